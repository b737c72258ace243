"""The results page: docs/results.md, made from the files in docs/results and from nothing else.

python benchmarks/page.py               makes the page
python benchmarks/page.py --take DIR    first copies the items that `purectrl paper ITEM --out DIR` has finished

Beside the numbers of a result, NAME.json, there may be NAME.note.md: a few sentences for its readers, such as why a
criterion is missed. They are written by hand and shown below the criteria.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

from purectrl.paper import ITEMS
from purectrl.paper.results import Table

RESULTS = Path(__file__).parents[1] / "docs" / "results"
CORES = 2
"""Cores of the machine whose time the criterion of the theory is about."""


def write_result(name: str, values: dict[str, Any]) -> None:
    """Stores what a benchmark measured, with the machine it ran on, and prints it."""
    machine = {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
    text = json.dumps({"values": values, "measured_on": machine}, indent=2)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    print(text)


def loop_overhead(values: dict[str, Any]) -> str:
    """The section on the cost of the loop."""
    found = {name: runs for name, runs in values.items() if isinstance(runs, dict)}
    rows = []
    for name, runs in found.items():
        cost, share = runs["microseconds"], runs["share_of_run"]
        rows.append(
            f"| `{name}` | {statistics.median(cost):.0f} ({cost[0]:.0f} to {cost[-1]:.0f}) "
            f"| {statistics.median(share):.1%} ({share[0]:.1%} to {share[-1]:.1%}) |"
        )
    missed = [
        f"`{name}` {what}"
        for name, runs in found.items()
        for what, key, limit in (("microseconds", "microseconds", 100.0), ("share", "share_of_run", 0.05))
        if statistics.median(runs[key]) >= limit
    ]
    count = len(next(iter(found.values()))["microseconds"])
    ratio = values["step_at_100000_over_1000"]
    return "\n".join(
        [
            "## Cost of the loop",
            "",
            "Everything in a step that is neither oracle nor learner, in a run of `finite` with 4,096 measurements.",
            f"Median of {count} runs, and their range. Criteria: under 100 microseconds per step, under 5% of the run. "
            + (f"**Missed** in the median: {', '.join(missed)}." if missed else "Both are met in the median."),
            "",
            "| algorithm | microseconds per step | share of the run |",
            "|---|---|---|",
            *rows,
            "",
            f"A step at 100,000 measurements costs {ratio:.2f} times one at 1,000 (criterion: at most 1.2).",
            "",
            "Command: `python benchmarks/loop_overhead.py`",
        ]
    )


def item(found: dict[str, Any]) -> str:
    """The section on an item of the paper: what it shows, which criteria it meets, figure, table, command."""
    name, seeds = found["item"], found["seeds"]
    checks = [
        f"- {'Met' if check['passed'] else '**Missed**'}: {check['criterion']}. Observed: {check['observed']}."
        for check in found["checks"]
    ]
    missed = sum(not check["passed"] for check in found["checks"])
    of = f"of {len(checks)} {'criterion' if len(checks) == 1 else 'criteria'}"
    cost = (
        f"{found['runs']} runs, seeds {seeds[0]} to {seeds[-1]}, {found['seconds'] / 3600:.1f} hours of computing"
        if found["runs"]
        else "no runs"
    )
    return "\n".join(
        [
            f"## {name}",
            "",
            f"{found['shows']}. {f'{missed} {of} missed' if missed else f'None {of} missed'}:",
            "",
            *checks,
            "",
            f"![{name}](results/{name}.png)",
            "",
            Table(tuple(found["table"]["columns"]), tuple(map(tuple, found["table"]["rows"]))).markdown(),
            "",
            f"Command: `{found['command']}` ({cost})",
        ]
    )


def theory_speed(values: dict[str, Any]) -> str:
    """The section on the cost of Algorithms 1 to 3."""
    steps, planner, run = values["step_at_65536_over_1024"], values["double_loop_over_planner"], values["run"]
    rows = [
        *(
            (f"a step at 65,536 measurements over one at 1,024, {name} classes", found, 1.2)
            for name, found in steps.items()
        ),
        *((f"plain double loop over the exact planner, {name} grid", found, 50.0) for name, found in planner.items()),
        (
            "a 65,536-episode run of `finite` with PURE LowSwitch over a product of 4,096² matrices",
            run["products"],
            40.0,
        ),
    ]
    if "batch" in values:  # results measured before batches existed have none
        rows.append(
            (
                "16 runs of `finite` with PURE base one by one over one batch",
                values["batch"]["one_by_one_over_batch"],
                8.0,
            )
        )
    lines = []
    for what, found, limit in rows:
        side, met = ("at least", found >= limit) if limit in (8.0, 50.0) else ("at most", found <= limit)
        lines.append(f"| {what} | {found:.3g} | {side} {limit:g} | {'met' if met else '**missed**'} |")
    return "\n".join(
        [
            "## Cost of Algorithms 1 to 3",
            "",
            "| ratio | measured | criterion | |",
            "|---|---|---|---|",
            *lines,
            "",
            f"The run took {run['run_seconds']:.1f} s from the command line, start included, a product "
            f"{run['product_seconds']:.2f} s.",
            "",
            "Command: `python benchmarks/theory_speed.py`",
        ]
    )


def control_speed(values: dict[str, Any]) -> str:
    """The section on the cost of ENODE's fit and plan."""
    rates, run = values["rates"], values["pendulum"]
    first, second = run["compile_seconds"]
    rows = [
        (
            "operations per second of a fit step over those of plain products",
            rates["fit"] / rates["plain"],
            "least",
            0.5,
        ),
        ("the same of a plan step", rates["plan"] / rates["plain"], "least", 0.5),
        ("compiling in a second process over the first, `pendulum`", second / first, "most", 0.2),
        ("peak memory of a whole run of `pendulum`, GiB", run["peak_gib"], "most", 2.0),
        *(
            (f"growth of the time of a step over growth of the {name}", _growth(curve), "most", 1.1)
            for name, curve in values["growth"].items()
        ),
    ]
    lines = []
    for what, found, side, limit in rows:
        met = found >= limit if side == "least" else found <= limit
        lines.append(f"| {what} | {found:.3g} | at {side} {limit:g} | {'met' if met else '**missed**'} |")
    return "\n".join(
        [
            "## Cost of ENODE's fit and plan",
            "",
            "| ratio | measured | criterion | |",
            "|---|---|---|---|",
            *lines,
            "",
            f"Rates in 10⁹ operations per second, one thread: fit {rates['fit']:.0f}, plan {rates['plan']:.0f}, plain "
            f"products {rates['plain']:.0f}. Large matrices with all threads reach {values['plain_all_threads']:.0f}: the "
            "products of a step are too small for several threads, so a run uses one core, and a sweep one core per run. "
            f"A whole run of `pendulum` took {run['total_seconds'][0]:.0f} s with an empty cache of compiled programs "
            f"({first:.0f} s of it compiling) and {run['total_seconds'][1]:.0f} s with a full one.",
            "",
            "![control_speed](results/control_speed.png)",
            "",
            "Command: `python benchmarks/control_speed.py`",
        ]
    )


def against_enode(values: dict[str, Any]) -> str:
    """The section on the time to a solved Pendulum beside the cost of the reference."""
    reference, ratios = values["reference"], values["ratios"]
    middle = lambda runs, unit: statistics.median(run[unit] for run in runs)  # noqa: E731
    lines = [
        f"| {unit.replace('cpu_', 'CPU ')} | {middle(reference, unit):.0f} | {middle(values['cold'], unit):.1f} "
        f"| {middle(values['warm'], unit):.1f} | {ratios[f'cold_{unit}']:.0f} | {ratios[f'warm_{unit}']:.0f} |"
        for unit in ("seconds", "cpu_seconds")
    ]
    limits = [
        f"| seconds to a solved Pendulum, {what} | {middle(values[kind], 'seconds'):.3g} | at most {limit:g} "
        f"| {'met' if middle(values[kind], 'seconds') <= limit else '**missed**'} |"
        for kind, what, limit in (
            ("cold", "cold (nothing compiled before)", 20.0),
            ("warm", "warm (compiled before)", 10.0),
        )
    ]
    made, sampled, first = values["steps"], values["sampled_steps"], reference[0]
    solved = sum(run["solved"] for kind in ("cold", "warm") for run in values[kind])
    return "\n".join(
        [
            "## Time to a solved Pendulum beside ENODE's released program",
            "",
            f"Our side is the whole process of `purectrl run pendulum --algorithm {values['algorithm']} --out DIR`, seeds "
            f"{', '.join(map(str, values['seeds']))}; {solved} of {2 * len(values['seeds'])} runs ended with a solved "
            "problem. **The reference was not run to its end.** Its program was written again from its settings. In the "
            f"four rounds that it needs it makes {made['fit']:,} steps of its fit and {made['policy']:,} of its policy; "
            f"{sampled['fit']} and {sampled['policy']} per seed were timed and multiplied: {first['solver_steps']:,} "
            f"steps of its adaptive solver and {first['evaluations']:,} evaluations of the ensemble, each forwards and "
            f"backwards, with {values['threads']} of PyTorch's threads. Medians over seeds; the ratios of CPU seconds do "
            "not depend on other programs on the machine.",
            "",
            "| | reference, extrapolated | ours, cold | ours, warm | ratio, cold | ratio, warm |",
            "|---|---|---|---|---|---|",
            *lines,
            "",
            "| | measured | criterion | |",
            "|---|---|---|---|",
            *limits,
            "",
            "Command: `python benchmarks/against_enode.py`",
        ]
    )


def report_speed(values: dict[str, Any]) -> str:
    """The section on the cost of a report."""
    rows = [
        ("seconds to build it, start of Python included", values["build_seconds"], 10.0),
        ("megabytes", values["megabytes"], 10.0),
        ("seconds until Chromium has loaded and drawn it", values["load_seconds"], 2.0),
    ]
    lines = []
    for what, found, limit in rows:
        met = "not measured" if found is None else "met" if found < limit else "**missed**"
        lines.append(f"| {what} | {'–' if found is None else f'{found:.3g}'} | under {limit:g} | {met} |")
    return "\n".join(
        [
            "## Cost of a report",
            "",
            f"`purectrl report` over {values['runs']} runs with {values['records']:,} records and {values['runs']} videos. "
            "The fastest of five.",
            "",
            "| | measured | criterion | |",
            "|---|---|---|---|",
            *lines,
            "",
            "Command: `python benchmarks/report_speed.py`",
        ]
    )


def _growth(curve: dict[str, list[float]]) -> float:
    """1 where the time of a step grows in proportion."""
    x, y = curve["x"], curve["milliseconds"]
    return (y[-1] / y[0]) / (x[-1] / x[0])


def diffusion_memory(values: dict[str, Any]) -> str:
    """The section on the memory of `digits`."""
    whole, short = values["whole_run_gib"], values["short_run_gib_by_updates"]
    counts = list(short)
    rows = [
        ("peak of a whole run of `digits` with PURE_SEIKO, GiB", whole, 2.0),
        (
            f"peak with {counts[-1]} updates over that with {counts[0]}, short runs",
            short[counts[-1]] / short[counts[0]],
            1.1,
        ),
    ]
    lines = [
        f"| {what} | {found:.3g} | at most {limit:g} | {'met' if found <= limit else '**missed**'} |"
        for what, found, limit in rows
    ]
    return "\n".join(
        [
            "## Memory of fine-tuning on the digits",
            "",
            "| | measured | criterion | |",
            "|---|---|---|---|",
            *lines,
            "",
            "Command: `python benchmarks/diffusion_memory.py`",
        ]
    )


def when_to_measure(values: dict[str, Any]) -> str:
    """The section on OCoRL with two samplers."""
    m, costs = values["measurements_per_episode"], values["costs"]
    seeds, episodes = len(next(iter(costs.values()))), len(next(iter(costs.values()))[0])
    rows = []
    for sampler, runs in costs.items():
        columns = [sorted(run[episode] for run in runs) for episode in range(episodes)]
        cells = [f"{statistics.median(one):.2f} ({one[0]:.2f} to {one[-1]:.2f})" for one in columns]
        rows.append(f"| `{sampler}` | {' | '.join(cells)} |")
    head = " | ".join(str(m * (episode + 1)) for episode in range(episodes))
    return "\n".join(
        [
            "## When to measure: OCoRL on its pendulum",
            "",
            f"Closed-loop cost of the policy on `ocorl-pendulum`, median of {seeds} seeds and their range, by the number of "
            "measurements. The best continuous control costs 20.16. The published medians are 20.307 after 44 measurements "
            "with max-determinant and 20.312 after 209 with equidistant ones.",
            "",
            f"| measurements | {head} |",
            f"|---|{'---|' * episodes}",
            *rows,
            "",
            "Command: `python benchmarks/when_to_measure.py`",
        ]
    )


def latency_table(values: dict[str, Any]) -> str:
    """The table of the cost of a learned policy, which docs/deployment.md shows, too."""
    limits = {"numpy": 30.0, "load_policy": 100.0}
    rows = []
    for problem, forms in values.items():
        for form, found in forms.items():
            limit = limits.get(form)
            met = "" if limit is None else "met" if found["median"] < limit else "**missed**"
            first = found.get("first_control_seconds")
            rows.append(
                f"| {problem} | `{form}` | {found['median']:.0f} | {found['p99']:.0f} "
                f"| {'–' if first is None else f'{first:.2f}'} | {'' if limit is None else f'under {limit:.0f}'} | {met} |"
            )
    head = "| policy | form | median | p99 | first control | criterion for the median | |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows])


def policy_latency(values: dict[str, Any]) -> str:
    """The section on the cost of a learned policy."""
    return "\n".join(
        [
            "## Cost of a learned policy",
            "",
            "One call with one state: median and 99th percentile in microseconds, of the fastest of several batches, "
            "and seconds from the start of Python to the first control. `numpy`, `onnx` and `jax` are the files of "
            "`purectrl export`.",
            "",
            latency_table(values),
            "",
            "Command: `python benchmarks/policy_latency.py`",
        ]
    )


def optimal_control(values: dict[str, Any]) -> str:
    """The section on the ceiling of the battery."""
    shares = {name: both["planner"] / statistics.mean(both["ilqr"]) for name, both in values.items()}
    enough = [name for name, share in shares.items() if share >= 0.95]
    rows = [
        f"| `{name}` | {both['planner']:.4g} | {statistics.mean(both['ilqr']):.4g} | {shares[name]:.3f} |"
        for name, both in values.items()
    ]
    return "\n".join(
        [
            "## Planning with known equations beside trajectory optimization",
            "",
            "The return of `known-model`, the ceiling of the item `battery`, beside that of the best open-loop controls "
            "that iLQR finds from random controls on. Means over different samples of initial states; a share above 1 "
            "says that iLQR ended in a worse local optimum. Criterion: at least 0.95 on 10 problems; "
            f"{'met' if len(enough) >= 10 else '**missed**'}, {len(enough)} of {len(values)}.",
            "",
            "| problem | known-model | iLQR | share |",
            "|---|---|---|---|",
            *rows,
            "",
            "Command: `python benchmarks/optimal_control.py`",
        ]
    )


def with_latency_table(text: str, results: Path = RESULTS) -> str:
    """docs/deployment.md with the newest table between its two comments."""
    before, rest = text.split("<!-- latency -->")
    _, after = rest.split("<!-- end of latency -->")
    table = latency_table(json.loads((results / "policy_latency.json").read_text())["values"])
    return f"{before}<!-- latency -->\n{table}\n<!-- end of latency -->{after}"


SECTIONS = {
    "loop_overhead": loop_overhead,
    "theory_speed": theory_speed,
    "control_speed": control_speed,
    "against_enode": against_enode,
    "diffusion_memory": diffusion_memory,
    "report_speed": report_speed,
    "when_to_measure": when_to_measure,
    "policy_latency": policy_latency,
    "optimal_control": optimal_control,
}
"""Benchmarks by the name of their file; every other file is an item of the paper."""


def take(folder: Path, results: Path = RESULTS) -> list[str]:
    """Copies the numbers and the figure of every finished item below `folder`, and returns their names."""
    numbers = sorted([*folder.glob("numbers.json"), *folder.glob("*/numbers.json")])
    if not numbers:
        sys.exit(f"error: {folder} holds no item that `purectrl paper ITEM --out {folder}` has finished")
    for path in numbers:
        for source, limit in ((path, 60_000), (path.with_name("figure.png"), 150_000)):
            if not source.exists() or source.stat().st_size > limit:
                sys.exit(f"error: {source} is missing or has more than {limit:,} bytes; nothing was copied")
    names = [json.loads(path.read_text())["item"] for path in numbers]
    for name, path in zip(names, numbers, strict=True):
        shutil.copyfile(path, results / f"{name}.json")
        shutil.copyfile(path.with_name("figure.png"), results / f"{name}.png")
    return names


def note_of(path: Path) -> Path:
    """The path of the note on the result in `path`, which may not exist."""
    return path.with_suffix(".note.md")


def with_note(text: str, note: str) -> str:
    """The section with the note below its criteria, which end at the figure or, without one, at the command."""
    lines = text.split("\n")
    end = next(number for number, line in enumerate(lines) if line.startswith(("![", "Command: ")))
    return "\n".join([*lines[:end], note.strip(), "", *lines[end:]])


def section(path: Path) -> str:
    """The section on the result in `path`."""
    found = json.loads(path.read_text())
    if path.stem in SECTIONS:
        text = SECTIONS[path.stem](found["values"])
    elif found.get("item") == path.stem:
        text = item(found)
    else:
        sys.exit(f"error: {path} is neither a benchmark that SECTIONS names nor an item of the paper")
    if note_of(path).exists():
        text = with_note(text, note_of(path).read_text())
    where = found["measured_on"]
    return f"{text}\n(on {where['cores']} {where['machine']} cores, Python {where['python']})\n"


def glance(items: list[dict[str, Any]]) -> str:
    """One row for each item: what it shows, how many criteria it meets, and its cost."""
    rows = tuple(
        (
            f"[{found['item']}](#{found['item']})",
            found["shows"],
            f"{sum(check['passed'] for check in found['checks'])} of {len(found['checks'])}",
            found["runs"],
            _minutes(found["seconds"]),
            _minutes(found["quick_seconds"]),
        )
        for found in items
    )
    columns = ("item", "shows", "criteria met", "runs", "minutes", "with `--quick`")
    return "\n".join(
        [
            "## At a glance",
            "",
            "`purectrl paper ITEM --out DIR` reproduces each of them. Minutes are those of all runs, each on one core, "
            "including those that an item shares with others: two cores halve them.",
            "",
            Table(columns, rows).markdown(),
            "",
            *theory_minutes(items),
        ]
    )


def theory_minutes(items: list[dict[str, Any]]) -> list[str]:
    """Whether the theory can be reproduced in the time that it should take on two cores; no lines without such items."""
    theory = [found for found in items if found["item"].startswith(("thm", "prop", "neural-"))]
    if not theory:
        return []
    spent = [sum(found[name] for found in theory) / 60 / CORES for name in ("seconds", "quick_seconds")]
    words = [
        f"{minutes:.0f} minutes{how} (criterion: at most {most}, {'met' if minutes <= most else '**missed**'})"
        for minutes, most, how in zip(spent, (60, 10), ("", " with `--quick`"), strict=True)
    ]
    short = [f"`{found['item']}`" for found in theory if found["command"].endswith("--quick")]
    more = f"Of {', '.join(short)} only the runs of `--quick` are stored and counted in both." if short else ""
    text = (
        f"The theory, all items from {theory[0]['item']} to {theory[-1]['item']}, on two cores: {' and '.join(words)}. "
    )
    return [text + more + " These are wall-clock times: too long where other programs used the cores.", ""]


def _minutes(seconds: float) -> int | str:
    return round(seconds / 60) or "seconds"


def page(results: Path = RESULTS) -> str:
    """The whole page: all items at a glance, the paper's items in their order, then the benchmarks."""
    head = "# Results\n\nGenerated by `python benchmarks/page.py` from the files in `docs/results`; do not edit.\n"
    order = [*ITEMS, *SECTIONS]
    files = sorted(results.glob("*.json"), key=lambda path: order.index(path.stem) if path.stem in order else -1)
    items = [json.loads(path.read_text()) for path in files if path.stem in ITEMS]
    return "\n".join([head, *([glance(items)] if items else []), *map(section, files)])


def main() -> None:
    """Writes docs/results.md, and the table in docs/deployment.md."""
    parser = argparse.ArgumentParser(description="Makes docs/results.md from the files in docs/results.")
    parser.add_argument("--take", type=Path, metavar="DIR", help="first copy the finished items below DIR")
    folder = parser.parse_args().take
    if folder is not None:
        names = take(folder)
        print(f"copied {', '.join(names)}")
        for note in filter(Path.exists, (note_of(RESULTS / f"{name}.json") for name in names)):
            print(f"check {note}: it was written for the earlier numbers")
    (RESULTS.parent / "results.md").write_text(page())
    deployment = RESULTS.parent / "deployment.md"
    deployment.write_text(with_latency_table(deployment.read_text()))


if __name__ == "__main__":
    main()

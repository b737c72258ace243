"""The results page: docs/results.md, made from the files in docs/results and from nothing else.

python benchmarks/page.py               makes the page
python benchmarks/page.py --take DIR    first takes over the items that `purectrl paper ITEM --out DIR` has finished

Beside the numbers of a result, NAME.json, there may be NAME.note.md: a few sentences for its readers, such as why a mark is
missed. They are written by hand and shown below the marks.
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

from purectrl.experiments.items import ITEMS
from purectrl.report.findings import Table

RESULTS = Path(__file__).parents[1] / "docs" / "results"


def write_result(name: str, values: dict[str, Any]) -> None:
    """Stores what a benchmark measured, with the machine it ran on, and prints it."""
    machine = {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
    text = json.dumps({"values": values, "measured_on": machine}, indent=2)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    print(text)


def loop_overhead(values: dict[str, Any]) -> str:
    """The section on what the loop costs."""
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
        for what, key, mark in (("microseconds", "microseconds", 100.0), ("share", "share_of_run", 0.05))
        if statistics.median(runs[key]) >= mark
    ]
    count = len(next(iter(found.values()))["microseconds"])
    ratio = values["step_at_100000_over_1000"]
    return "\n".join(
        [
            "## What the loop itself costs",
            "",
            "Everything in a step that is neither oracle nor learner, in a run of `finite` with 4,096 measurements.",
            f"Median of {count} runs, and their range. Marks: under 100 microseconds a step, under 5% of the run. "
            + (f"**Missed** in the median: {', '.join(missed)}." if missed else "Both are met in the median."),
            "",
            "| algorithm | microseconds a step | share of the run |",
            "|---|---|---|",
            *rows,
            "",
            f"A step at 100,000 measurements costs {ratio:.2f} times one at 1,000 (mark: at most 1.2).",
            "",
            "Command: `python benchmarks/loop_overhead.py`",
        ]
    )


def item(found: dict[str, Any]) -> str:
    """The section on an item of the paper: what it shows, which marks it meets, figure, table, command."""
    name, seeds = found["item"], found["seeds"]
    marks = [
        f"- {'Met' if mark['met'] else '**Missed**'}: {mark['asks']}. Found: {mark['found']}."
        for mark in found["marks"]
    ]
    missed = sum(not mark["met"] for mark in found["marks"])
    of = f"of {len(marks)} marks"
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
            *marks,
            "",
            f"![{name}](results/{name}.png)",
            "",
            Table(tuple(found["table"]["columns"]), tuple(map(tuple, found["table"]["rows"]))).markdown(),
            "",
            f"Command: `{found['command']}` ({cost})",
        ]
    )


def theory_speed(values: dict[str, Any]) -> str:
    """The section on what the theory's algorithms cost."""
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
    lines = []
    for what, found, mark in rows:
        wanted, met = ("at least", found >= mark) if mark == 50.0 else ("at most", found <= mark)
        lines.append(f"| {what} | {found:.3g} | {wanted} {mark:g} | {'met' if met else '**missed**'} |")
    return "\n".join(
        [
            "## What the theory's algorithms cost",
            "",
            "| ratio | found | mark | |",
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
    """The section on what ENODE's fit and plan cost."""
    rates, run = values["rates"], values["pendulum"]
    first, second = run["compile_seconds"]
    rows = [
        ("operations a second of a fit step over those of plain products", rates["fit"] / rates["plain"], "least", 0.5),
        ("the same of a plan step", rates["plan"] / rates["plain"], "least", 0.5),
        ("compiling in a second process over the first, `pendulum`", second / first, "most", 0.2),
        ("peak memory of a whole run of `pendulum`, GiB", run["peak_gib"], "most", 2.0),
        *(
            (f"growth of the time of a step over growth of the {name}", _growth(curve), "most", 1.1)
            for name, curve in values["growth"].items()
        ),
    ]
    lines = []
    for what, found, side, mark in rows:
        met = found >= mark if side == "least" else found <= mark
        lines.append(f"| {what} | {found:.3g} | at {side} {mark:g} | {'met' if met else '**missed**'} |")
    return "\n".join(
        [
            "## What ENODE's fit and plan cost",
            "",
            "| ratio | found | mark | |",
            "|---|---|---|---|",
            *lines,
            "",
            f"Rates in 10⁹ operations a second, one thread: fit {rates['fit']:.0f}, plan {rates['plan']:.0f}, plain "
            f"products {rates['plain']:.0f}. Large matrices with all threads reach {values['plain_all_threads']:.0f}: the "
            "products of a step are too small for threads to share, so a run uses one core, and a sweep a core for each. "
            f"A whole run of `pendulum` took {run['total_seconds'][0]:.0f} s with an empty cache of compiled programs "
            f"({first:.0f} s of it compiling) and {run['total_seconds'][1]:.0f} s with a full one.",
            "",
            "![control_speed](results/control_speed.png)",
            "",
            "Command: `python benchmarks/control_speed.py`",
        ]
    )


def report_speed(values: dict[str, Any]) -> str:
    """The section on what a report costs."""
    rows = [
        ("seconds to build it, start of Python included", values["build_seconds"], 10.0),
        ("megabytes", values["megabytes"], 10.0),
        ("seconds until Chromium has loaded and drawn it", values["load_seconds"], 2.0),
    ]
    lines = []
    for what, found, mark in rows:
        met = "not measured" if found is None else "met" if found < mark else "**missed**"
        lines.append(f"| {what} | {'–' if found is None else f'{found:.3g}'} | under {mark:g} | {met} |")
    return "\n".join(
        [
            "## What a report costs",
            "",
            f"`purectrl report` over {values['runs']} runs with {values['records']:,} records and {values['runs']} films. "
            "The fastest of five.",
            "",
            "| | found | mark | |",
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
        f"| {what} | {found:.3g} | at most {mark:g} | {'met' if found <= mark else '**missed**'} |"
        for what, found, mark in rows
    ]
    return "\n".join(
        [
            "## What fine-tuning of the digits takes in memory",
            "",
            "| | found | mark | |",
            "|---|---|---|---|",
            *lines,
            "",
            "Command: `python benchmarks/diffusion_memory.py`",
        ]
    )


SECTIONS = {
    "loop_overhead": loop_overhead,
    "theory_speed": theory_speed,
    "control_speed": control_speed,
    "diffusion_memory": diffusion_memory,
    "report_speed": report_speed,
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
                sys.exit(f"error: {source} is missing or has more than {limit:,} bytes; nothing was taken")
    names = [json.loads(path.read_text())["item"] for path in numbers]
    for name, path in zip(names, numbers, strict=True):
        shutil.copyfile(path, results / f"{name}.json")
        shutil.copyfile(path.with_name("figure.png"), results / f"{name}.png")
    return names


def note_of(path: Path) -> Path:
    """Where the note on the result in `path` lies, if there is one."""
    return path.with_suffix(".note.md")


def with_note(text: str, note: str) -> str:
    """The section with the note below its marks: they end where the figure begins or, without one, the command."""
    lines = text.split("\n")
    end = next(number for number, line in enumerate(lines) if line.startswith(("![", "Command: ")))
    return "\n".join([*lines[:end], note.strip(), "", *lines[end:]])


def section(path: Path) -> str:
    """What the page says about the result in `path`."""
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
    """One row for each item: what it shows, how many marks it meets, and what it costs."""
    rows = tuple(
        (
            f"[{found['item']}](#{found['item']})",
            found["shows"],
            f"{sum(mark['met'] for mark in found['marks'])} of {len(found['marks'])}",
            found["runs"],
            _minutes(found["seconds"]),
            _minutes(found["quick_seconds"]),
        )
        for found in items
    )
    columns = ("item", "shows", "marks met", "runs", "minutes", "with `--quick`")
    return "\n".join(
        [
            "## At a glance",
            "",
            "`purectrl paper ITEM --out DIR` makes each of them anew. Minutes are those of the runs, each on one core, "
            "those that an item shares with others included: two cores halve them.",
            "",
            Table(columns, rows).markdown(),
            "",
        ]
    )


def _minutes(seconds: float) -> int | str:
    return round(seconds / 60) or "seconds"


def page(results: Path = RESULTS) -> str:
    """The whole page: all items at a glance, the paper's items in their order, then the benchmarks."""
    head = "# Results\n\nMade by `python benchmarks/page.py` from the files in `docs/results`; do not edit.\n"
    order = [*ITEMS, *SECTIONS]
    files = sorted(results.glob("*.json"), key=lambda path: order.index(path.stem) if path.stem in order else -1)
    items = [json.loads(path.read_text()) for path in files if path.stem in ITEMS]
    return "\n".join([head, *([glance(items)] if items else []), *map(section, files)])


def main() -> None:
    """Writes docs/results.md."""
    parser = argparse.ArgumentParser(description="Makes docs/results.md from the files in docs/results.")
    parser.add_argument("--take", type=Path, metavar="DIR", help="first take over the finished items below DIR")
    folder = parser.parse_args().take
    if folder is not None:
        names = take(folder)
        print(f"took {', '.join(names)}")
        for note in filter(Path.exists, (note_of(RESULTS / f"{name}.json") for name in names)):
            print(f"read {note} again: it is about the numbers that were there before")
    (RESULTS.parent / "results.md").write_text(page())


if __name__ == "__main__":
    main()

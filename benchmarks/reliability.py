"""The attacks of tests/hostile with their full counts, and docs/reliability.md, made from their results.

    python benchmarks/reliability.py                         every attack; a stopped attack continues where it was
    python benchmarks/reliability.py --only kills flips      some of them
    python benchmarks/reliability.py --only calls --restart  from the first trial
    python benchmarks/reliability.py --only calls --repeat   the trials that failed, after a defect was corrected
    python benchmarks/reliability.py --minutes 5             at most five minutes of each; the same call continues
    python benchmarks/reliability.py --trials short          a few trials of each; writes no result
    python benchmarks/reliability.py --page                  the page alone

Each attack writes docs/results/reliability/ATTACK.json. Trial k of an attack is the same case every time; a kill falls at
another moment. The exit status is 1 if a trial failed.
"""

import argparse
import itertools
import json
import math
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
import hostile  # noqa: E402
import load  # noqa: E402
from hostile.campaign import Tally, Worker  # noqa: E402

RESULTS = ROOT / "docs" / "results" / "reliability"
MEMORY = Path("/dev/shm")  # noqa: S108
"""Where trials write: a disk that many processes share would make them wait."""
EVERY = 20.0
"""Seconds between two savings of a result."""
BETWEEN = "kills between a checkpoint and the end"
SYSTEMS = ("finite", "lqr", "neural", "pendulum", "digits", "sweep")
"""What is killed; a sweep is one of `finite`."""


def run(name: str, limit: int | None, restart: bool, results: Path | None, minutes: float = math.inf) -> bool:
    """Runs an attack, from where it was stopped, until it has its count or the minutes are over; returns whether no trial
    failed."""
    attack = hostile.make(name)
    file = None if results is None else results / f"{name}.json"
    known = json.loads(file.read_text())["values"] if file is not None and file.exists() and not restart else None
    tally = Tally(name, known)
    begin, saved = None, time.monotonic()
    with (
        tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as base,
        Worker(attack, Path(base)) as worker,
    ):
        for number in itertools.count(tally.values["trials"]):
            if number == limit or (limit is None and tally.amount(attack.unit) >= attack.full):
                break
            if begin is not None and time.monotonic() - begin > 60 * minutes:
                break
            verdict = worker.trial(number)
            begin = begin or time.monotonic()  # the first one prepares what all of them share
            tally.add(verdict)
            if verdict["failure"] is not None:
                print(f"failed {name} {number}: {verdict['case']}: {verdict['failure']}", flush=True)
            if file is not None and time.monotonic() - saved > EVERY:
                write(file, tally)
                saved = time.monotonic()
    if file is not None:
        write(file, tally)
    print(tally.line(), flush=True)
    return tally.values["failed"] == 0


def repeat(name: str, results: Path) -> bool:
    """Repeats the trials of an attack that failed, after the defect was corrected; returns whether none fails any more."""
    file = results / f"{name}.json"
    tally = Tally(name, json.loads(file.read_text())["values"])
    failures, tally.values["failures"] = tally.values["failures"], []
    with (
        tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as base,
        Worker(hostile.make(name), Path(base), ahead=1) as worker,
    ):
        for failure in failures:
            verdict = worker.trial(failure["number"])
            if verdict["failure"] is not None:
                print(f"failed again {name} {verdict['number']}: {verdict['case']}: {verdict['failure']}", flush=True)
                tally.values["failures"].append({**failure, "failure": verdict["failure"]})
    tally.values["failed"] = len(tally.values["failures"])
    corrected = len(failures) - tally.values["failed"]
    tally.values["repeated"] = tally.values.get("repeated", 0) + corrected
    write(file, tally)
    print(tally.line(), flush=True)
    return tally.values["failed"] == 0


def write(file: Path, tally: Tally) -> None:
    """Stores the counts of an attack with the machine that they are from."""
    machine = {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps({"values": tally.values, "measured_on": machine}, indent=2) + "\n")
    part.replace(file)


def row(values: dict[str, Any]) -> str:
    """One attack in the table."""
    attack = hostile.make(values["attack"])
    count = f"{Tally('', values).amount(attack.unit):,.0f}"
    amount = count if attack.unit == "trials" else f"{count} {attack.unit}"
    wanted = f"{attack.full:,}"
    return (
        f"| {attack.shows} | {amount} | {wanted} | {values['failed']} | {values['cpu_seconds'] / 60:.0f} "
        f"| `python benchmarks/reliability.py --only {values['attack']}` |"
    )


def details(values: dict[str, Any]) -> str:
    """How the trials of an attack divide, and what failed."""
    kinds = ", ".join(f"{name} {count:,}" for name, count in values["kinds"].items())
    lines = [f"**{values['attack']}**: {values['trials']:,} trials ({kinds})."]
    shown_above = {f"kills of {system}" for system in SYSTEMS}
    counts = {name: number for name, number in values["counts"].items() if number and name not in shown_above}
    if counts:
        lines.append(f"Counted: {', '.join(f'{number:,.0f} {name}' for name, number in counts.items())}.")
    if values.get("repeated"):
        lines.append(
            f"{values['repeated']} trials failed at first; after the defects were corrected they were repeated and passed."
        )
    for failure in values["failures"][:20]:
        case, reason = (
            text.replace("`", "'").replace("\n", " ")[:200] for text in (failure["case"], failure["failure"])
        )
        lines.append(f"\n- trial {failure['number']}: `{case}`: `{reason}`")
    return " ".join(lines) + "\n"


HEAD = """# Reliability

Generated by `python benchmarks/reliability.py` from the files in `docs/results/reliability`; do not edit.

Attacks on run directories and on the command line, generated by `tests/hostile`. `make test` runs a short selection of
them, `make test-all` thousands. A trial fails if a result differs in one bit from that of an uninterrupted run, if
something is silently wrong, followed, imported, left behind or printed that should not be, if there is a traceback, or if a
command on a hostile directory or a wrong call does not end within 10 seconds.
"""


def missing(attacks: list[dict[str, Any]]) -> list[str]:
    """What has not been reached, in words: every attack with fewer trials than wanted, or none."""
    found = {one["values"]["attack"]: Tally("", one["values"]) for one in attacks}
    short = []
    for name in hostile.ATTACKS:
        attack = hostile.make(name)
        count = found[name].amount(attack.unit) if name in found else 0
        if count < attack.full:
            short.append(f"{name} ({count:,.0f} of {attack.full:,})")
    text = (
        f"**Not complete**: there are fewer trials than wanted of {', '.join(short)}. The same commands continue them."
    )
    return [text, ""] if short else []


def all_kills(attacks: list[dict[str, Any]]) -> list[str]:
    """The kills of both kinds of processes together."""
    counts = [one["values"]["counts"] for one in attacks if BETWEEN in one["values"]["counts"]]
    kills, between = (sum(one[name] for one in counts) for name in ("kills", BETWEEN))
    if not kills:
        return []
    met = "met" if between > kills / 2 else "**missed**"
    split = [f"{sum(one.get(f'kills of {system}', 0) for one in counts):,} of {system}" for system in SYSTEMS]
    return [
        f"All kills together: {kills:,}, of which {between / kills:.1%} fell between a checkpoint and the end (criterion: "
        f"above a half, {met}). By what was killed: {', '.join(split)}.",
        "",
    ]


def page(results: Path = RESULTS) -> str:
    """The whole page."""
    found = {path.stem: json.loads(path.read_text()) for path in results.glob("*.json")}
    attacks = [found[name] for name in hostile.ATTACKS if name in found]
    lines = [
        HEAD,
        "| attack | trials | wanted | failures | minutes of computing | command |",
        "|---|---|---|---|---|---|",
    ]
    lines += [row(one["values"]) for one in attacks] + [""]
    lines += missing(attacks) + all_kills(attacks)
    lines += [details(one["values"]) for one in attacks]
    lines += [load.section(found[name]) for name in load.MEASURED if name in found]
    machines = {tuple(one["measured_on"].values()) for one in found.values()}
    lines += [f"On {cores} {machine} cores, Python {python}." for machine, cores, python in sorted(machines, key=str)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Runs what was asked for and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*hostile.ATTACKS, *load.MEASURED]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="ATTACK", help=", ".join(names))
    parser.add_argument("--trials", choices=("full", "short"), default="full")
    parser.add_argument("--restart", action="store_true", help="begin with the first trial")
    parser.add_argument("--repeat", action="store_true", help="only repeat the trials that failed")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop each attack after so many minutes")
    parser.add_argument("--page", action="store_true", help="write docs/reliability.md alone")
    options = parser.parse_args()
    passed = True
    for name in [] if options.page else options.only:
        if name in load.MEASURED:
            if options.trials == "full":
                load.MEASURED[name](RESULTS)
        elif options.repeat:
            passed &= repeat(name, RESULTS)
        elif options.trials == "short":
            passed &= run(name, hostile.make(name).short, True, None)
        else:
            passed &= run(name, None, options.restart, RESULTS, options.minutes)
    if options.page or options.trials == "full":
        (ROOT / "docs" / "reliability.md").write_text(page())
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())

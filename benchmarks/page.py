"""The results page: docs/results.md, made from the JSON files in docs/results and from nothing else.

python benchmarks/page.py
"""

import json
import os
import platform
import statistics
from pathlib import Path
from typing import Any

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
            + (f"Missed in the median: {', '.join(missed)}." if missed else "Both are met in the median."),
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


SECTIONS = {"loop_overhead": loop_overhead}


def main() -> None:
    """Writes docs/results.md."""
    parts = ["# Results", "", "Made by `python benchmarks/page.py` from the files in `docs/results`; do not edit.", ""]
    for name, section in SECTIONS.items():
        found = json.loads((RESULTS / f"{name}.json").read_text())
        where = found["measured_on"]
        parts += [
            section(found["values"]),
            f"(on {where['cores']} {where['machine']} cores, Python {where['python']})",
            "",
        ]
    (RESULTS.parent / "results.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()

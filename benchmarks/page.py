"""The results page: docs/results.md, made from the JSON files in docs/results and from nothing else.

python benchmarks/page.py
"""

import json
import os
import platform
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
    rows = [
        f"| `{name}` | {found['microseconds']:.0f} | {found['share_of_run']:.1%} |"
        for name, found in values.items()
        if isinstance(found, dict)
    ]
    ratio = values["step_at_100000_over_1000"]
    return "\n".join(
        [
            "## What the loop itself costs",
            "",
            "Everything in a step that is neither oracle nor learner, in a run of `finite` with 4,096 measurements.",
            "Marks: under 100 microseconds a step, under 5% of the run.",
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

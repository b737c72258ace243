"""PURE LowSwitch with a neural drift class: how far its plans are from the best, beside a random policy."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from purectrl.experiments.store import read_records
from purectrl.report.curves import size, updates
from purectrl.report.figures import COLOURS, MARK, log_height, panels
from purectrl.report.findings import Findings, Mark, Table
from purectrl.report.reading import Runs

SHARE, MOST_UPDATES, MOST_MEASUREMENTS = 0.1, 30, 2000
"""Marks: the gap at most this share of a random policy's, with fewer updates than that, within so many measurements."""


def analyse(found: Sequence[Runs], computed: Mapping[str, Any]) -> Findings:
    """The gap of the last plan of every run as a share of a random policy's, and the course to it."""
    (runs,) = found
    random = runs.metric("gap_random")
    columns = {
        "seed": [run["seed"] for run in runs.summaries],
        "last": (runs.metric("gap_final") / random).tolist(),
        "average": (runs.metric("gap") / random).tolist(),
        "updates": [int(count) for count in updates(runs)],
        "covered": [bool(covered) for covered in runs.metric("covered")],
    }
    courses = [course(place, share) for place, share in zip(runs.places, random, strict=True)]
    numbers = {**columns, "measurements": size(runs), "courses": courses, "gap_random": float(random[0])}
    table = Table(
        ("seed", "gap of the last plan / random policy's", "average gap / random policy's", "updates", "truth covered"),
        tuple(zip(*columns.values(), strict=True)),
    )
    good = sum(share <= SHARE for share in columns["last"])
    marks = (
        Mark(
            f"gap at most {SHARE:g} of a random policy's within {MOST_MEASUREMENTS:,} measurements",
            f"{good} of {len(random)} runs, at worst {max(columns['last']):.3g}, with {numbers['measurements']:,}",
            good == len(random) and numbers["measurements"] <= MOST_MEASUREMENTS,
        ),
        Mark(
            f"fewer than {MOST_UPDATES} updates",
            f"at most {max(columns['updates'])}",
            max(columns["updates"]) < MOST_UPDATES,
        ),
    )
    return Findings(numbers, table, marks)


def course(place: Path, random: float) -> dict[str, list[float]]:
    """The gap of the executed plan as a share of a random policy's, from the first measurement of each plan on."""
    steps: dict[str, list[float]] = {"x": [], "y": []}
    begin = 1
    for record in read_records(place):
        share = record["gap"] / random
        if not steps["y"] or steps["y"][-1] != share:
            steps["x"].append(begin)
            steps["y"].append(share)
        begin = record["measurements"] + 1
    return {"x": [*steps["x"], begin - 1], "y": [*steps["y"], steps["y"][-1]]}


def draw(numbers: Mapping[str, Any]) -> Figure:
    """One stair for each seed, down from a random policy's gap."""
    with panels(1) as (figure, (axes,)):
        for number, (seed, stair) in enumerate(zip(numbers["seed"], numbers["courses"], strict=True)):
            heights = [max(value, 1e-3) for value in stair["y"]]
            colour = COLOURS[number % len(COLOURS)]
            axes.step(stair["x"], heights, where="post", color=colour, linewidth=1.6, label=f"seed {seed}")
        axes.axhline(SHARE, **MARK, label=f"mark: {SHARE:g}")
        axes.set_xscale("log")
        log_height(axes)
        axes.set_xlabel("measurements")
        axes.set_ylabel("gap of the executed plan / random policy's")
        axes.set_title("a pendulum whose drift is a network")
        axes.legend(frameon=False)
    return figure

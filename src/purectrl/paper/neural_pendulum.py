"""PURE LowSwitch with a neural drift class: the suboptimality gap of its policies relative to a random policy's."""

from collections.abc import Mapping, Sequence
from typing import Any

from purectrl.paper.coverage import coverage_check
from purectrl.paper.figures import COLOURS, CRITERION, Figure, log_height, panels
from purectrl.paper.item import Group, Item
from purectrl.paper.load import Runs, budget, updates
from purectrl.paper.results import Analysis, Check, Table

MAX_RATIO, MAX_UPDATES, MAX_MEASUREMENTS = 0.1, 30, 2000
"""Criteria: the largest share of a random policy's gap, number of updates and number of measurements."""


def item() -> Item:
    """Algorithm 2 where no small linear class fits, with anytime-valid sets."""
    return Item(
        "neural-pendulum",
        "Algorithm 2 with a neural drift class on a pendulum: the gap relative to a random policy's",
        analyze,
        draw,
        (Group("neural", "neural drift", "neural", "pure-low-switch"),),
        seeds=5,
        quick=2,
        cost="about a quarter of an hour on two cores, 5 minutes with --quick",
    )


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """The gap of the last policy of every run relative to a random policy's, and its learning curve."""
    runs = found["neural"]
    random = runs.metric("gap_random")
    columns = {
        "seed": runs.seeds,
        "last": (runs.metric("gap_final") / random).tolist(),
        "average": (runs.metric("gap") / random).tolist(),
        "updates": [int(count) for count in updates(runs)],
        "covered": [bool(covered) for covered in runs.metric("covered")],
    }
    curves = [learning_curve(records, gap) for records, gap in zip(runs.records(), random, strict=True)]
    numbers = {**columns, "measurements": budget(runs), "learning_curves": curves, "gap_random": float(random[0])}
    gaps = ("gap of the last policy / random policy's", "average gap / random policy's")
    table = Table(("seed", *gaps, "updates", "truth covered"), tuple(zip(*columns.values(), strict=True)))
    most, good = max(columns["updates"]), sum(share <= MAX_RATIO for share in columns["last"])
    checks = (
        Check(
            f"gap at most {MAX_RATIO:g} of a random policy's within {MAX_MEASUREMENTS:,} measurements",
            f"{good} of {len(random)} runs, at worst {max(columns['last']):.3g}, with {budget(runs):,}",
            good == len(random) and budget(runs) <= MAX_MEASUREMENTS,
        ),
        Check(f"fewer than {MAX_UPDATES} updates", f"at most {most}", most < MAX_UPDATES),
        coverage_check(found),
    )
    return Analysis(numbers, table, checks)


def learning_curve(records: Sequence[Mapping[str, Any]], random: float) -> dict[str, list[float]]:
    """The gap of the executed policy relative to a random policy's, from the first measurement of each policy on."""
    x: list[float] = []
    y: list[float] = []
    begin = 1
    for record in records:
        share = record["gap"] / random
        if not y or y[-1] != share:
            x.append(begin)
            y.append(share)
        begin = record["measurements"] + 1
    return {"x": [*x, begin - 1], "y": [*y, y[-1]]}


def draw(numbers: Mapping[str, Any]) -> Figure:
    """One step function per seed."""
    with panels(1) as (figure, (axes,)):
        for number, (seed, steps) in enumerate(zip(numbers["seed"], numbers["learning_curves"], strict=True)):
            heights = [max(value, 1e-3) for value in steps["y"]]
            colour = COLOURS[number % len(COLOURS)]
            axes.step(steps["x"], heights, where="post", color=colour, linewidth=1.6, label=f"seed {seed}")
        axes.axhline(MAX_RATIO, **CRITERION, label=f"criterion: {MAX_RATIO:g}")
        log_height(axes)
        axes.set(xscale="log", xlabel="measurements", ylabel="gap of the executed policy / random policy's")
        axes.set_title("a pendulum whose drift is a network")
        axes.legend(frameon=False)
    return figure

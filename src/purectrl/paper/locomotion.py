"""HalfCheetah-v5 and Swimmer-v5 with PURE-auto, beside SAC: tried, not solved."""

from collections.abc import Mapping
from typing import Any

from purectrl.paper.environments import STEPS, groups, row, shown
from purectrl.paper.figures import COLOURS, Figure, panels
from purectrl.paper.item import Item
from purectrl.paper.load import Runs
from purectrl.paper.results import Analysis, Check, Table

ENVIRONMENTS = ("HalfCheetah-v5", "Swimmer-v5")


def item() -> Item:
    """Two environments, one seed each."""
    return Item(
        "locomotion",
        "PURE-auto and SAC on HalfCheetah-v5 and Swimmer-v5 with at most 10,000 steps, one seed each",
        analyze,
        draw,
        tuple(group for env in ENVIRONMENTS for group in groups(env, most_seeds=1)),
        seeds=1,
        quick=1,
        cost="about an hour of computing, halved on two cores; needs MuJoCo",
    )


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """Returns of whole episodes, and what they cost."""
    rows = [{"environment": env} | row(env, found) for env in ENVIRONMENTS]
    checks = tuple(
        Check(
            f"`{row['environment']}`: return above that of SAC, with at most {STEPS:,} steps each",
            f"{row['return']:,.1f} with {row['measurements']:,.0f} steps, SAC {row['sac_return']:,.1f}",
            row["return"] > row["sac_return"],
        )
        for row in rows
    )
    return Analysis({"environments": rows}, Table.of([shown(row) for row in rows]), checks)


def draw(numbers: Mapping[str, Any]) -> Figure:
    """The return of each algorithm on each environment."""
    with panels(len(ENVIRONMENTS), height=2.2) as (figure, axes):
        for axis, row in zip(axes, numbers["environments"], strict=True):
            axis.barh(["PURE-auto", "SAC"], [row["return"], row["sac_return"]], color=COLOURS[:2])
            axis.set_xlabel(f"return on {row['environment']}")
            axis.invert_yaxis()
    return figure

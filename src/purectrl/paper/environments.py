"""Gymnasium environments, learned from measurements alone: PURE-auto without a setting for any of them, beside SAC."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from purectrl.paper.figures import COLOURS, CRITERION, Figure, legend_below, panels
from purectrl.paper.item import Group, Item
from purectrl.paper.load import Runs
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import mean

GOALS = {
    "Pendulum-v1": -200.0,
    "InvertedPendulum-v5": 1000.0,
    "InvertedDoublePendulum-v5": 8000.0,
    "MountainCarContinuous-v0": 90.0,
    "Reacher-v5": -6.0,
}
"""The environments, and the return that should be reached."""
STEPS = 10_000
"""The largest number of measured steps of an environment."""
EPISODES = 30
"""Evaluation episodes of PURE-auto: the returns of single episodes differ much. SAC, which is evaluated after every
episode, has the default number."""
SEEDS = 0.8
"""The share of the seeds that should reach it."""


def item() -> Item:
    """Five environments with PURE-auto, and one seed with SAC."""
    return Item(
        "environments",
        "PURE-auto and SAC on five Gymnasium environments with at most 10,000 steps, and no settings for any of them",
        analyze,
        draw,
        tuple(group for env in GOALS for group in groups(env)),
        seeds=5,
        quick=3,
        cost="about 3 hours of computing, 2 with --quick, halved on two cores; needs MuJoCo",
    )


def groups(env: str, most_seeds: int | None = None) -> tuple[Group, Group]:
    """The runs of PURE-auto on an environment, and one of SAC."""
    often: dict[str, Any] = {"env": env, "eval_episodes": EPISODES}
    return (
        Group(f"{env}-auto", env, "gymnasium", "pure-auto", often, measurements=STEPS, most_seeds=most_seeds),
        Group(f"{env}-sac", env, "gymnasium", "sac", {"env": env}, measurements=STEPS, most_seeds=1),
    )


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """Returns of whole episodes, and what they cost."""
    rows = [{"environment": env, "goal": goal} | row(env, found) for env, goal in GOALS.items()]
    checks = tuple(_reached(env, goal, found[f"{env}-auto"]) for env, goal in GOALS.items())
    return Analysis({"environments": rows}, Table.of([shown(row) for row in rows]), checks)


def row(env: str, found: Mapping[str, Runs]) -> dict[str, Any]:
    """One environment: returns of both algorithms, and means of what the runs spent."""
    auto, sac = found[f"{env}-auto"], found[f"{env}-sac"]
    returns = auto.metric("return")
    return {
        "seeds": len(returns),
        "return": mean(returns),
        "lowest": float(returns.min()),
        **{name: mean(auto.ledger(name)) for name in ("measurements", "rollouts", "updates")},
        "seconds": mean(auto.seconds("total")),
        "sac_return": mean(sac.metric("return")),
        "sac_measurements": mean(sac.ledger("measurements")),
        "returns": returns.tolist(),
        "sac_returns": sac.metric("return").tolist(),
    }


def shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without the returns of single runs."""
    return {name: value for name, value in row.items() if not name.endswith("returns")}


def _reached(env: str, goal: float, auto: Runs) -> Check:
    """Whether enough seeds reach the goal."""
    returns, steps = auto.metric("return"), auto.ledger("measurements")
    reached = returns >= goal
    return Check(
        f"`{env}`: return at least {goal:,g} on {SEEDS:.0%} of the seeds, with at most {STEPS:,} steps",
        f"{reached.sum()} of {len(reached)}; returns {returns.min():,.1f} to {returns.max():,.1f} "
        f"with {steps.min():,.0f} to {steps.max():,.0f} steps",
        bool(reached.mean() >= SEEDS),
    )


def draw(numbers: Mapping[str, Any]) -> Figure:
    """The share of the runs that reach the goal, and the steps they took."""
    rows = numbers["environments"]
    places, height = np.arange(len(rows)), 0.36
    with panels(2, height=2.2 + 0.5 * len(rows)) as (figure, (left, right)):
        for number, (label, before) in enumerate((("PURE-auto", ""), ("SAC", "sac_"))):
            shares = [np.mean(np.array(row[f"{before}returns"]) >= row["goal"]) for row in rows]
            style = {"height": height, "color": COLOURS[number]}
            left.barh(places + (number - 0.5) * height, shares, label=label, **style)
            right.barh(places + (number - 0.5) * height, [row[f"{before}measurements"] for row in rows], **style)
        left.axvline(SEEDS, **CRITERION, label="criterion")
        left.set_yticks(places, [row["environment"] for row in rows])
        left.set_xlabel("share of seeds that reach the goal")
        right.set_yticks(places, [""] * len(rows))
        right.set_xlabel("measured steps")
        for axes in (left, right):
            axes.set_ylim(len(rows) - 0.5, -0.5)
        legend_below(figure, columns=3)
    return figure

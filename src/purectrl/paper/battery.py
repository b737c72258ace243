"""PURE-auto on twelve systems without a setting for any of them, beside the same planner with the true equations."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from purectrl.paper.figures import COLOURS, CRITERION, Figure, legend_below, panels
from purectrl.paper.item import Group, Item
from purectrl.paper.load import Runs
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import mean, sd

PROBLEMS = (
    "pendulum",
    "cartpole",
    "acrobot",
    "elbow-acrobot",
    "furuta",
    "quadrotor",
    "mountain-car",
    "ball-beam",
    "van-der-pol",
    "two-rooms",
    "bicycle",
    "coupled-tanks",
)
MOST = {"pendulum": 1_000, "cartpole": 3_000, "acrobot": 3_000}
"""Measurements within which they should reach `REWARD`, with at most `UPDATES` updates, on `SEEDS` of the seeds."""
REWARD, UPDATES, SEEDS = 0.95, 6, 0.8
MOST_SEEDS = 5
"""Seeds of the problems that are not in `MOST`, which have twice as many."""
LIMITED: Mapping[str, Mapping[str, Any]] = {"elbow-acrobot": {"measurements": 3_000, "most_seeds": 3}}
"""A budget, and a number of seeds, where a run takes longer than several others."""
SHARE = 0.95
"""The share of the ceiling that a problem should reach."""
ENOUGH = 10
"""The number of problems that should reach it."""
DROP = 0.05
"""A run should not end this share of the ceiling below its own best policy."""


def item() -> Item:
    """Twelve problems with PURE-auto, and one seed each with known equations."""
    groups = []
    for problem in PROBLEMS:
        fewer = LIMITED.get(problem, {} if problem in MOST else {"most_seeds": MOST_SEEDS})
        groups.append(Group(f"{problem}-auto", problem, problem, "pure-auto", **fewer))
        groups.append(Group(f"{problem}-known", problem, problem, "known-model", most_seeds=1))
    return Item(
        "battery",
        "PURE-auto on twelve systems, with one setting for all, beside planning with the true equations",
        analyze,
        draw,
        tuple(groups),
        seeds=10,
        quick=3,
        cost="about 2 hours of computing, 0.8 with --quick",
    )


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """Returns relative to the ceiling, what they cost, and whether runs end with their best policy."""
    rows = [_row(problem, found[f"{problem}-auto"], found[f"{problem}-known"]) for problem in PROBLEMS]
    reached = [row["problem"] for row in rows if row["share"] >= SHARE]
    missed = [f"{row['problem']} {row['share']:.3f}" for row in rows if row["share"] < SHARE]
    dropped = [f"{row['problem']} {row['drop']:.3f}" for row in rows if row["drop"] > DROP]
    checks = (
        Check(
            f"mean return at least {SHARE:g} of that with known equations on {ENOUGH} of {len(rows)} problems",
            f"{len(reached)} of {len(rows)}{'; below: ' + ', '.join(missed) if missed else ''}",
            len(reached) >= ENOUGH,
        ),
        Check(
            f"no run ends more than {DROP:g} of the ceiling below its own best policy",
            ", ".join(dropped) or "none does",
            not dropped,
        ),
        *(_few_measurements(problem, found[f"{problem}-auto"]) for problem in MOST),
    )
    shown = [{name: value for name, value in row.items() if name != "returns"} for row in rows]
    return Analysis({"problems": rows}, Table.of(shown), checks)


def _few_measurements(problem: str, auto: Runs) -> Check:
    """Whether enough seeds reach the reward with few measurements and updates."""
    spent, updates = auto.ledger("measurements"), auto.ledger("updates")
    reached = (auto.metric("reward") >= REWARD) & (spent <= MOST[problem]) & (updates <= UPDATES)
    return Check(
        f"`{problem}`: reward {REWARD} with at most {MOST[problem]:,} measurements and {UPDATES} updates on "
        f"{SEEDS:.0%} of the seeds",
        f"{reached.sum()} of {len(reached)}; measurements {_span(spent)}, updates {_span(updates)}",
        bool(reached.mean() >= SEEDS),
    )


def _span(values: np.ndarray) -> str:
    return f"{values.min():,.0f} to {values.max():,.0f}"


def _row(problem: str, auto: Runs, known: Runs) -> dict[str, Any]:
    """One problem: returns, their share of the ceiling, and means of what the runs spent."""
    returns, ceiling = auto.metric("return"), mean(known.metric("return"))
    best = np.array([_best(records, "eval_return") for records in auto.records()])
    return {
        "problem": problem,
        "seeds": len(returns),
        "return": mean(returns),
        "sd": sd(returns) if len(returns) > 1 else None,
        "ceiling": ceiling,
        "share": mean(returns) / ceiling,
        "drop": float(np.maximum(best - returns, 0.0).max() / abs(ceiling)),
        **{name: mean(auto.ledger(name)) for name in ("measurements", "rollouts", "updates")},
        "seconds": mean(auto.seconds("total")),
        "returns": returns.tolist(),
    }


def _best(records: list[dict[str, Any]], name: str) -> float:
    """The highest evaluation of a run; minus infinity if it has none."""
    return max((float(record[name]) for record in records if name in record), default=-np.inf)


def draw(numbers: Mapping[str, Any]) -> Figure:
    """Returns relative to the ceiling, and measurements, of every problem."""
    rows = numbers["problems"]
    with panels(2, height=2.5 + 0.34 * len(rows)) as (figure, (left, right)):
        for number, row in enumerate(rows):
            shares = np.array(row["returns"]) / row["ceiling"]
            left.plot(shares, np.full(len(shares), number), "|", markersize=9, color=COLOURS[0])
            left.plot([shares.mean()], [number], "o", color=COLOURS[0], label="_nolegend_" if number else "mean")
        left.axvline(SHARE, **CRITERION, label="criterion")
        left.set_yticks(np.arange(len(rows)), [row["problem"] for row in rows])
        left.set_xlabel("share of the return with known equations")
        right.barh(np.arange(len(rows)), [row["measurements"] for row in rows], height=0.6, color=COLOURS[2])
        right.set_yticks(np.arange(len(rows)), [""] * len(rows))
        right.set_xlabel("measurements")
        for axes in (left, right):
            axes.set_ylim(len(rows) - 0.5, -0.5)
        legend_below(figure, columns=2)
    return figure

"""Theorem 1, first claim: how often the truth was in both confidence sets for all n, and how small the radii could be."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from purectrl.paper.coverage import DELTA, covered
from purectrl.paper.figures import COLOURS, CRITERION, MARKERS, Figure, legend_below, panels
from purectrl.paper.item import Group, Item
from purectrl.paper.load import Runs
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import wilson

SCALES = np.geomspace(0.01, 2.0, 60)
"""Multiples of the radii in the calibration curve."""


def item(linear: int = 1024, m: int = 16, finite: int = 1024, seeds: int = 200, quick: int = 50) -> Item:
    """Algorithms 1 and 3, which compute F_n and R_n after every episode, with both kinds of radii. The theorem holds for any
    policies and any times, so linear classes have m measurements per episode, and little is spent on their planning."""
    light = {"learner": "linear-sets", "learner.num_restarts": 1, "learner.iterations": 2, "learner.paths": 2}
    arguments = {"dimension": 1, "steps": 10}
    groups = []
    for kind in ("theorem", "anytime"):
        radius = {"learner.radius": kind, "learner.delta": DELTA}
        label = f"lqr, linear classes, N = {linear:,}, {kind}"
        overrides = {**light, **radius, "sampler.m": m}
        groups.append(Group(f"lqr-{kind}", label, "lqr", "pure-low-rollout", arguments, overrides, linear))
        label = f"finite, N = {finite:,}, {kind}"
        groups.append(Group(f"finite-{kind}", label, "finite", "pure-base", {}, radius, finite))
    return Item(
        "thm1-coverage",
        "Theorem 1, first claim: f* in F_n and b* in R_n for all n, with probability at least 1 − δ",
        analyze,
        draw,
        tuple(groups),
        seeds,
        quick,
        cost="about a quarter of an hour of computing, 4 minutes with --quick, halved on two cores",
    )


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """The share of covered runs in each group, with Wilson's interval, and the multiple of the radii that would have covered
    the truth in a share 1 − δ of them."""
    rows, failed, curves, checks = [], {}, {}, []
    for name, runs in found.items():
        inside, needed = covered(runs), runs.metric("radius_needed")
        count, total, label = int(inside.sum()), len(inside), runs.group.label
        share = wilson(count, total)
        quantile = float(np.quantile(needed, 1 - DELTA, method="higher"))
        rows.append(
            {
                "problem": label,
                "runs": total,
                "covered": count,
                **share.columns("share"),
                "1 − δ": 1 - DELTA,
                "radius needed for 1 − δ": quantile,
            }
        )
        failed[name] = [seed for seed, good in zip(runs.seeds, inside, strict=True) if not good]
        curves[label] = [float(np.mean(needed <= scale)) for scale in SCALES]
        criterion = f"{label}: share of covered runs at least 1 − δ = {1 - DELTA:g}"
        observed = f"{count} of {total}, {share:.3f}; a multiple {quantile:.2g} of the radius would do"
        checks.append(Check(criterion, observed, share.value >= 1 - DELTA))
    numbers = {"rows": rows, "failed_seeds": failed, "scales": SCALES.tolist(), "calibration": curves}
    return Analysis(numbers, Table.of(rows), tuple(checks))


def draw(numbers: Mapping[str, Any]) -> Figure:
    """Left a row per problem: its share, the interval, the criterion. Right the share over the multiple of the radii."""
    rows = numbers["rows"]
    with panels(2, height=2.6 + 0.5 * len(rows)) as (figure, (left, right)):
        for y, row in enumerate(rows):
            left.plot([row["95% low"], row["95% high"]], [y, y], color=COLOURS[y], linewidth=2.5, zorder=2)
            left.plot(row["share"], y, MARKERS[y], color=COLOURS[y], markersize=8, zorder=3, clip_on=False)
            label = f"{row['problem']} ({row['runs']} runs)"
            right.plot(numbers["scales"], numbers["calibration"][row["problem"]], color=COLOURS[y], label=label)
        left.axvline(1 - DELTA, **CRITERION)
        right.axhline(1 - DELTA, **CRITERION, label=f"criterion: 1 − δ = {1 - DELTA:g}")
        right.axvline(1.0, color="#888888", linewidth=0.8)
        lowest = min(*(row["95% low"] for row in rows), 0.85)
        left.set(xlim=(lowest - 0.02, 1.0), ylim=(len(rows) - 0.5, -0.5))
        left.set_yticks(range(len(rows)), [row["problem"].split(", N")[0] for row in rows])
        left.set_xlabel("share of covered runs, 95% interval")
        right.set(xscale="log", xlabel="multiple of the radius", ylabel="share of covered runs", ylim=(0, 1.02))
        right.set_title("calibration")
        legend_below(figure)
    return figure

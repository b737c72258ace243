"""Theorem 1, second claim: how fast the average regret falls with N, and the cost of planning."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from purectrl.paper.coverage import coverage_check, covered
from purectrl.paper.figures import CRITERION, Figure, label_sizes, legend_below, log_height, panels, series
from purectrl.paper.item import Group, Item
from purectrl.paper.load import KEY, Runs, budget, by_label, curve, gap, matrix, updates
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import ROUNDING, slope

RATE = -0.5
"""The theorem's rate N^(−1/2), without its logarithms."""
LIGHT: Mapping[str, Any] = {
    "learner": "linear-sets",
    "learner.radius": "anytime",
    "learner.num_restarts": 4,
    "learner.iterations": 40,
    "learner.paths": 32,
}
"""Linear classes with anytime-valid radii, since with those of the theorem nothing is learned at small N, and with a planner
that Algorithm 1 can afford after every episode."""


def powers(first: int, last: int) -> tuple[int, ...]:
    """2^last … 2^first: long runs start first, so that all cores are busy until the end.

    >>> powers(8, 10)
    (1024, 512, 256)
    """
    return tuple(2**exponent for exponent in range(last, first - 1, -1))


def item(
    sizes: Sequence[int] = powers(8, 16), base_sizes: Sequence[int] = powers(8, 11), seeds: int = 10, quick: int = 4
) -> Item:
    """The average regret over N. Algorithm 1 with linear classes is affordable at small N only."""
    linear: Mapping[str, Any] = {"dimension": 1, "steps": 20}
    rows: list[tuple[str, str, str, Mapping[str, Any], Mapping[str, Any], Sequence[int]]] = [
        ("lqr, PURE base", "lqr", "pure-base", linear, LIGHT, base_sizes),
        ("lqr, PURE LowSwitch", "lqr", "pure-low-switch", linear, LIGHT, sizes),
        ("finite, PURE base", "finite", "pure-base", {}, {}, sizes),
        ("finite, PURE LowSwitch", "finite", "pure-low-switch", {}, {}, sizes),
        ("finite, PURE LowRollout (m = 4)", "finite", "pure-low-rollout", {}, {}, sizes),
    ]
    groups = [
        Group(f"{problem}-{algorithm}-N{N}", label, problem, algorithm, arguments, overrides, N)
        for label, problem, algorithm, arguments, overrides, budgets in rows
        for N in budgets
    ]
    return Item(
        "thm1-rate",
        "Theorem 1, second claim: the average regret falls like N^(−1/2)",
        analyze,
        draw,
        tuple(groups),
        seeds,
        quick,
        cost="about an hour of computing, 25 minutes with --quick, halved on two cores",
    )


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """Regret, updates and planning seconds over N, and the slope of the regret, for every series."""
    all_series, rows, checks = [], [], []
    for label, groups in by_label(found).items():
        ordered = sorted(groups, key=budget)
        sizes = np.array([budget(runs) for runs in ordered])
        rate = slope(KEY.child("slope", label), sizes, matrix(ordered, gap))
        one = {
            "label": label,
            "linear": groups[0].group.overrides.get("learner") == "linear-sets",
            "regret": curve(groups, budget, gap, "regret"),
            "slope": rate._asdict(),
            "local_slopes": local_slopes(sizes, matrix(ordered, gap)),
            "updates": curve(groups, budget, updates, "updates"),
            "seconds": curve(groups, budget, lambda runs: runs.seconds("plan"), "seconds"),
        }
        all_series.append(one)
        rows.append(
            {
                "series": label,
                "largest N": one["regret"]["x"][-1],
                "regret there": one["regret"]["mean"][-1],
                **rate.columns("slope"),
                "steepest octave": min(one["local_slopes"]),
                "flattest octave": max(one["local_slopes"]),
                "covered runs": sum(int(covered(runs).sum()) for runs in groups),
                "updates there": one["updates"]["mean"][-1],
                "planning seconds there": one["seconds"]["mean"][-1],
            }
        )
        criterion = f"{label}: slope of log regret over log N at most {RATE}"
        observed = f"{rate:.2f} for N = {sizes[0]:,} to {sizes[-1]:,}"
        checks.append(Check(criterion, observed, rate.value <= RATE + ROUNDING))
    return Analysis({"series": all_series}, Table.of(rows), (coverage_check(found), *checks))


def local_slopes(sizes: np.ndarray, values: np.ndarray) -> list[float]:
    """The slope of log(mean over seeds) over log N between neighbouring N, from values [seeds, sizes].

    >>> np.round(local_slopes(np.array([1, 2, 4]), np.array([[8.0, 4.0, 1.0]])), 6).tolist()
    [-1.0, -2.0]
    """
    return (np.diff(np.log(values.mean(axis=0))) / np.diff(np.log(sizes))).tolist()


def draw(numbers: Mapping[str, Any]) -> Figure:
    """Left the regret over N beside N^(−1/2), right the planning seconds with linear classes."""
    with panels(2, height=4.6) as (figure, (left, right)):
        sizes = sorted({N for one in numbers["series"] for N in one["regret"]["x"]})
        for index, one in enumerate(numbers["series"]):
            series(left, one["regret"], index, one["label"])
            if one["linear"]:
                series(right, one["seconds"], index, one["label"])
        start = max(one["regret"]["mean"][0] for one in numbers["series"]) * 1.3
        left.plot(sizes, [start * (N / sizes[0]) ** RATE for N in sizes], **CRITERION, label="criterion: slope −1/2")
        log_height(left)
        left.set(ylabel="average regret", title="regret, mean over seeds, 95% interval")
        right.set_yscale("symlog", linthresh=0.1)  # a run without updates plans for 0 seconds
        right.set_ylim(bottom=-0.01)
        right.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        right.set(ylabel="seconds in planning per run", title="cost of planning, linear classes")
        for axes in (left, right):
            label_sizes(axes, sizes, "measurements N")
        legend_below(figure)
    return figure

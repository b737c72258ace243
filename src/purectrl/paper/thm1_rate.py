"""Theorem 1, second claim: how fast the average regret falls with N, and the cost of planning."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from purectrl.paper.coverage import coverage_check, covered
from purectrl.paper.figures import CRITERION, Figure, label_sizes, legend_below, log_height, panels, series
from purectrl.paper.item import Group, Item
from purectrl.paper.load import KEY, Runs, budget, by_label, curve, gap, matrix, updates
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import ROUNDING, ratio, slope

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


OTHER = {"theorem": "anytime", "anytime": "theorem"}
"""The other kind of radius."""
MAX_SHARE = 0.5
"""Criterion: the largest share of the regret with the theorem's radii that anytime-valid ones may have."""


def powers(first: int, last: int) -> tuple[int, ...]:
    """2^last … 2^first: long runs start first, so that all cores are busy until the end.

    >>> powers(8, 10)
    (1024, 512, 256)
    """
    return tuple(2**exponent for exponent in range(last, first - 1, -1))


def item(
    sizes: Sequence[int] = powers(8, 16),
    base_sizes: Sequence[int] = powers(8, 10),
    compared: int = 2**12,
    seeds: int = 10,
    base_seeds: int = 5,
    quick: int = 4,
) -> Item:
    """The average regret over N. Algorithm 1 with linear classes is affordable at small N only.

    At N = `compared`, PURE LowSwitch runs with both kinds of radii.
    """
    linear: Mapping[str, Any] = {"dimension": 1, "steps": 20}
    rows: list[tuple[str, str, str, Mapping[str, Any], Mapping[str, Any], Sequence[int]]] = [
        ("lqr, PURE base", "lqr", "pure-base", linear, LIGHT, base_sizes),
        ("lqr, PURE LowSwitch", "lqr", "pure-low-switch", linear, LIGHT, sizes),
        ("finite, PURE base", "finite", "pure-base", {}, {}, sizes),
        ("finite, PURE LowSwitch", "finite", "pure-low-switch", {}, {}, sizes),
        ("finite, PURE LowRollout (m = 4)", "finite", "pure-low-rollout", {}, {}, sizes),
    ]
    groups = [
        Group(
            f"{problem}-{algorithm}-N{N}",
            label,
            problem,
            algorithm,
            arguments,
            overrides,
            N,
            base_seeds if (problem, algorithm) == ("lqr", "pure-base") else None,
        )
        for label, problem, algorithm, arguments, overrides, budgets in rows
        for N in budgets
    ]
    groups += [_other_radius(group) for group in groups if _is_compared(group, compared)]
    return Item(
        "thm1-rate",
        "Theorem 1, second claim: the average regret falls like N^(−1/2)",
        analyze,
        draw,
        tuple(groups),
        seeds,
        quick,
        cost="more than an hour of computing, 25 minutes with --quick, halved on two cores",
    )


def _is_compared(group: Group, N: int) -> bool:
    """Whether both kinds of radii are run: Algorithm 2 on both problems, and Algorithm 1 with lists."""
    return group.measurements == N and group.name.startswith(
        ("finite-pure-base", "finite-pure-low-s", "lqr-pure-low-s")
    )


def _kind(group: Group) -> str:
    """The kind of radius of a group."""
    return group.overrides.get("learner.radius", "theorem")


def _other_radius(group: Group) -> Group:
    """The same runs with the other kind of radius."""
    kind = OTHER[_kind(group)]
    overrides = {**group.overrides, "learner.radius": kind}
    return replace(group, name=f"{group.name}-{kind}", overrides=overrides)


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """Regret, updates and planning seconds over N, and the slope of the regret, for every series."""
    all_series, rows, checks = [], [], []
    others = {name for name, runs in found.items() if name.endswith(tuple(OTHER))}
    for label, groups in by_label({name: runs for name, runs in found.items() if name not in others}).items():
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
    shares, more = compare_radii(found, sorted(others))
    return Analysis({"series": all_series, "radii": shares}, Table.of(rows), (coverage_check(found), *checks, *more))


def compare_radii(found: Mapping[str, Runs], others: Sequence[str]) -> tuple[list[dict[str, Any]], list[Check]]:
    """The regret with anytime-valid radii beside that with the theorem's, for the groups that were run with both."""
    shares, checks = [], []
    for name in others:
        pair = {_kind(runs.group): gap(runs) for runs in (found[name], found[name.rpartition("-")[0]])}
        label, N = found[name].group.label, budget(found[name])
        share = ratio(KEY.child("radii", name), pair["anytime"], pair["theorem"])
        means = {kind: float(values.mean()) for kind, values in pair.items()}
        shares.append({"label": label, "N": N, **means, "share": share._asdict()})
        checks.append(
            Check(
                f"{label}, N = {N:,}: regret with anytime-valid radii at most {MAX_SHARE:g} of that with the theorem's",
                f"{means['anytime']:.4g} against {means['theorem']:.4g}, {share:.2f}",
                share.value <= MAX_SHARE,
            )
        )
    return shares, checks


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

"""Theorem 1 where it is tight: rewards at a distance in proportion to N^(−1/2), so that no algorithm has a smaller rate.

On `circle` with candidates θ = ±η a wrong sign costs Tη, and it takes about β_R/η² measurements to exclude it. With
η = c·N^(−1/2) these are a constant share of N: if the theorem holds, the average regret of the algorithm falls as fast as
that of the best possible one (`bayes_regret`), and more slowly or not at all if it does not. c is chosen in advance, for
every algorithm such that half of the measurements are needed.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from purectrl.paper.coverage import DELTA, coverage_check, covered
from purectrl.paper.figures import COLOURS, CRITERION, Figure, label_sizes, legend_below, log_height, panels, series
from purectrl.paper.item import Group, Item
from purectrl.paper.load import KEY, Runs, budget, by_label, curve, gap, matrix
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import Interval, slope
from purectrl.systems.circle_statistics import bayes_regret, information

RATE, WITHIN, WITHIN_LOCAL = -0.5, 0.03, 0.15
"""The theorem's exponent of N, and how far that of all N and that of neighbouring N may be from it."""
DIFFUSION = math.sqrt(20.0)
"""g; the mixing time is 0.1."""
M = 64
"""Measurements per rollout of the series with the largest N."""
BASE, SWITCH, ROLLOUT = "PURE base", "PURE LowSwitch", f"PURE LowRollout (m = {M})"

BETA = 2 * math.log(2 / (DELTA / 2))
"""β_R of two rewards and unit noise (`purectrl.theory.confidence.ville_radius`): the list of items must not load JAX."""


def fourths(first: int, last: int) -> tuple[int, ...]:
    """2^last … 2^first in factors of four: long runs start first.

    >>> fourths(8, 12)
    (4096, 1024, 256)
    """
    return tuple(2**exponent for exponent in range(last, first - 1, -2))


def item(
    sizes: Sequence[int] = fourths(8, 14),
    large_sizes: Sequence[int] = fourths(12, 20),
    seeds: int = 20,
    quick: int = 8,
) -> Item:
    """All three algorithms over N; Algorithm 3, which is the cheapest, to the largest."""
    rows: list[tuple[str, str, Mapping[str, Any], Sequence[int]]] = [
        (BASE, "pure-base", {}, sizes),
        (SWITCH, "pure-low-switch", {}, sizes),
        (ROLLOUT, "pure-low-rollout", {"sampler.m": M}, large_sizes),
    ]
    groups = []
    for label, algorithm, more, totals in rows:
        for N in totals:
            distance = math.sqrt(_needed(algorithm) / (2 * information("uniform", DIFFUSION, 1.0) * N))
            arguments = {"diffusion": DIFFUSION, "distance": distance}
            overrides = {"learner.delta": DELTA, "learner.radius": "anytime", **more}
            groups.append(Group(f"{algorithm}-N{N}", label, "circle", algorithm, arguments, overrides, N))
    return Item(
        "thm1-minimax",
        "Theorem 1 where it is tight: rewards at a distance in proportion to N^(−1/2), and regret in proportion to it",
        analyze,
        draw,
        tuple(groups),
        seeds,
        quick,
        cost="about 6 minutes of computing, 3 with --quick, halved on two cores",
    )


def _needed(algorithm: str) -> float:
    """How far the loss of a reward must be above the smallest for the plan to change: β_R, or 5β_R in Algorithm 2."""
    return BETA * (5 if algorithm == "pure-low-switch" else 1)


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """Regret over N beside the bound and beside the best possible; the exponents of N."""
    every, rows, checks = [], [], []
    for label, groups in by_label(found).items():
        ordered = sorted(groups, key=budget)
        sizes, values = np.array([budget(runs) for runs in ordered]), matrix(ordered, gap)
        rate = slope(KEY.child("slope", label), sizes, values)
        points = curve(ordered, budget, gap, label)
        one = {
            "label": label,
            "slope": rate._asdict(),
            "local": (np.diff(np.log(values.mean(axis=0))) / np.diff(np.log(sizes))).tolist(),
            "bounds": [theorem_bound(runs) for runs in ordered],
            "least": [bayes_regret(budget(runs), runs.group.arguments["distance"], 1.0) for runs in ordered],
            **{name: points[name] for name in ("x", "mean", "low", "high")},
        }
        every.append(one)
        rows += [_row(one, place, runs) for place, runs in enumerate(ordered)]
        checks += _rate_checks(one, rate)
    return Analysis({"series": every}, Table.of(rows), (coverage_check(found), *checks, *_bound_checks(rows)))


def theorem_bound(runs: Runs) -> float:
    """Theorem 1's bound with the factor one, and Theorem 2's for Algorithm 2, whose models may be 5β off; d_R = 1 for two
    rewards, and d_F = 0, since the drift is known."""
    from purectrl.theory.complexity import Smoothness, suboptimality_base

    smooth = Smoothness(horizon=1.0, drift=0.0, diffusion=0.0, reward=1.0, policy=0.0)
    sizes = {"dim_drift": 0, "dim_reward": 1, "beta_drift": 1.0, "beta_reward": _needed(runs.group.algorithm)}
    return suboptimality_base(smooth, budget(runs), **sizes)


def _row(one: Mapping[str, Any], place: int, runs: Runs) -> dict[str, Any]:
    return {
        "series": one["label"],
        "N": budget(runs),
        "η": runs.group.arguments["distance"],
        "covered": f"{int(covered(runs).sum())}/{len(runs.seeds)}",
        "regret": one["mean"][place],
        "95% low": one["low"][place],
        "95% high": one["high"][place],
        "slope from the N before": one["local"][place - 1] if place else None,
        "least possible": one["least"][place],
        "bound": one["bounds"][place],
    }


def _rate_checks(one: Mapping[str, Any], rate: Interval) -> list[Check]:
    steepest, flattest = min(one["local"]), max(one["local"])
    return [
        Check(
            f"{one['label']}: slope of log regret over log N within {WITHIN:g} of {RATE:g}",
            f"{rate:.3f} for N = {one['x'][0]:,} to {one['x'][-1]:,}",
            abs(rate.value - RATE) <= WITHIN,
        ),
        Check(
            f"{one['label']}: between neighbouring N within {WITHIN_LOCAL:g} of it",
            f"{steepest:.3f} to {flattest:.3f}",
            max(abs(steepest - RATE), abs(flattest - RATE)) <= WITHIN_LOCAL,
        ),
    ]


def _bound_checks(rows: Sequence[Mapping[str, Any]]) -> tuple[Check, Check]:
    above = max(row["regret"] / row["bound"] for row in rows)
    below = min(row["regret"] / row["least possible"] for row in rows)
    return (
        Check(
            "regret at most the theorem's bound with the factor one, everywhere",
            f"at most {above:.3f} of it",
            above <= 1,
        ),
        Check(
            "regret at least that of the best possible algorithm, everywhere", f"{below:.2f} times or more", below >= 1
        ),
    )


def draw(numbers: Mapping[str, Any]) -> Figure:
    """Left the regret over N with the bounds around it, right the local slopes."""
    with panels(2, height=4.8) as (figure, (left, right)):
        over = numbers["series"]
        sizes = sorted({N for one in over for N in one["x"]})
        for index, one in enumerate(over):
            series(left, one, index, one["label"])
            middle = np.sqrt(np.array(one["x"][1:]) * np.array(one["x"][:-1]))
            right.plot(middle, one["local"], "o-", color=COLOURS[index], markersize=5, linewidth=1.4)
        first, last = over[0], over[-1]
        left.plot(first["x"], first["least"], ":", color=COLOURS[0], linewidth=1.4, label=f"least possible, {BASE}")
        left.plot(last["x"], last["least"], ":", color=COLOURS[2], linewidth=1.4, label="least possible, LowRollout")
        left.plot(first["x"], first["bounds"], "--", color=COLOURS[0], linewidth=1.2, label=f"bound, {BASE}")
        log_height(left)
        left.set(ylabel="average regret", title="regret, mean over seeds, 95% interval")
        right.axhline(RATE, **CRITERION, label="hypothesis: −1/2")
        right.axhspan(RATE - WITHIN_LOCAL, RATE + WITHIN_LOCAL, color="#dddddd", alpha=0.5, zorder=0)
        right.set(ylim=(-1.0, 0.0), ylabel="slope between neighbouring N", title="local slopes, criterion shaded")
        for axes in (left, right):
            label_sizes(axes, sizes, "measurements N")
        legend_below(figure, columns=3)
    return figure

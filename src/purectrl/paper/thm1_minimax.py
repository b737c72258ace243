"""Theorem 1 where it is tight: rewards at a distance in proportion to N^(−1/2), so that no algorithm has a smaller rate.

On `circle` with candidates θ ∈ {−η, η}^d a wrong sign costs Tη, and it takes about β_R/η² measurements to exclude it. With
η = c·N^(−1/2) these are a constant share of N: if the theorem holds, the average regret of the algorithm falls as fast as
that of the best possible one (`bayes_regret`), and more slowly or not at all if it does not. c is chosen in advance, for
every algorithm such that half of the measurements are needed. The same at a fixed N for other d, T and noise.
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
from purectrl.paper.statistics import Interval, mean_interval, slope
from purectrl.systems.circle_statistics import bayes_regret, information

RATE, WITHIN, WITHIN_LOCAL = -0.5, 0.03, 0.15
"""The theorem's exponent of N, and how far that of all N and that of neighbouring N may be from it."""
SLACK = 0.05
"""An exponent of d, T or the noise may exceed that of the bound by this much."""
DIFFUSION = math.sqrt(20.0)
"""g; the mixing time is 0.1."""
M = 64
"""Measurements per rollout of the series with the largest N."""
BASE, SWITCH, ROLLOUT = "PURE base", "PURE LowSwitch", f"PURE LowRollout (m = {M})"

SWEPT = {"dimension": "d", "horizon": "T", "reward_std": "σ"}
"""Arguments of `circle` that are varied at one N, and their symbols."""


def fourths(first: int, last: int) -> tuple[int, ...]:
    """2^last … 2^first in factors of four: long runs start first.

    >>> fourths(8, 12)
    (4096, 1024, 256)
    """
    return tuple(2**exponent for exponent in range(last, first - 1, -2))


def item(
    sizes: Sequence[int] = fourths(8, 14),
    large_sizes: Sequence[int] = fourths(12, 20),
    N: int = 2**12,
    sweeps: Mapping[str, Sequence[float]] | None = None,
    seeds: int = 20,
    quick: int = 8,
) -> Item:
    """All three algorithms over N, and Algorithm 3 over the dimension d, the horizon T and the noise at one N."""
    swept = {"dimension": (1, 2, 4, 8), "horizon": (0.5, 2.0), "reward_std": (0.5, 2.0)}
    anytime, few = {"learner.radius": "anytime"}, {"sampler.m": M}
    rows: list[tuple[str, str, Mapping[str, Any], Sequence[int]]] = [
        (BASE, "pure-base", anytime, sizes),
        (SWITCH, "pure-low-switch", anytime, sizes),
        (ROLLOUT, "pure-low-rollout", {**anytime, **few}, large_sizes),
    ]
    groups = [
        _group(f"{label}-N{total}", label, algorithm, overrides, total, {})
        for label, algorithm, overrides, totals in rows
        for total in totals
    ]
    few_episodes = {**anytime, "sampler.m": 16}
    groups += [
        _group(f"{name}{value:g}", name, "pure-low-rollout", few_episodes, N, {name: value})
        for name, values in (sweeps or swept).items()
        for value in values
    ]
    return Item(
        "thm1-minimax",
        "Theorem 1 where it is tight: rewards at a distance in proportion to N^(−1/2), and regret in proportion to it",
        analyze,
        draw,
        tuple(groups),
        seeds,
        quick,
        cost="about 8 minutes of computing, 4 with --quick, halved on two cores",
    )


def _group(
    name: str, label: str, algorithm: str, overrides: Mapping[str, Any], total: int, arguments: Mapping[str, Any]
) -> Group:
    """The group with the distance at which half of its measurements are needed."""
    slug = name.replace(" ", "-").replace(",", "").replace("(", "").replace(")", "").replace("=-", "").lower()
    settings = {"learner.delta": DELTA, **overrides}
    spread = {"diffusion": DIFFUSION, **arguments}
    distance = math.sqrt(_needed(algorithm, settings, arguments) / (2 * _information() * total))
    return Group(slug, label, "circle", algorithm, {**spread, "distance": distance}, settings, total)


def _information() -> float:
    return information("uniform", DIFFUSION, 1.0)


def beta(overrides: Mapping[str, Any], arguments: Mapping[str, Any]) -> float:
    """β_R of 2^d rewards, as `purectrl.theory.confidence` has it: the list of items must not load JAX."""
    factor = 2 if overrides["learner.radius"] == "anytime" else 8
    logarithm = arguments.get("dimension", 1) * math.log(2) - math.log(DELTA / 2)
    return factor * arguments.get("reward_std", 1.0) ** 2 * logarithm


def _needed(algorithm: str, overrides: Mapping[str, Any], arguments: Mapping[str, Any]) -> float:
    """How far the loss of a reward must be above the smallest for the plan to change: β_R, or 5β_R in Algorithm 2."""
    return beta(overrides, arguments) * (5 if algorithm == "pure-low-switch" else 1)


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """Regret over N beside the bound and beside the best possible; exponents of N, d, T and the noise."""
    every, rows, checks = [], [], []
    for label, groups in by_label(found).items():
        ordered = sorted(groups, key=_position)
        swept = label in SWEPT
        at = np.array([_position(runs) for runs in ordered])
        values = matrix(ordered, gap)
        found_slope = slope(KEY.child("slope", label), at, values)
        bounds = np.array([theorem_bound(runs) for runs in ordered])
        one = {
            "label": label,
            "swept": swept,
            "slope": found_slope._asdict(),
            "bound_slope": float(np.polyfit(np.log(at), np.log(bounds), 1)[0]),
            "local": (np.diff(np.log(values.mean(axis=0))) / np.diff(np.log(at))).tolist(),
            "x": at.tolist(),
            "bounds": bounds.tolist(),
            "bayes": [_bayes(runs) for runs in ordered],
            **_without_seeds(curve(ordered, _position, gap, label)),
        }
        every.append(one)
        rows += [
            _row(label, place, runs, bound, bayes)
            for place, runs, bound, bayes in zip(at, ordered, bounds, one["bayes"], strict=True)
        ]
        checks += _sweep_checks(one, found_slope) if swept else _rate_checks(one, found_slope)
    return Analysis({"series": every}, Table.of(rows), (coverage_check(found), *checks, *_bound_checks(rows)))


def _without_seeds(points: dict[str, Any]) -> dict[str, Any]:
    return {name: points[name] for name in ("mean", "low", "high")}


def _position(runs: Runs) -> float:
    """Where a group is in its series: its N, or the value of the swept argument."""
    return float(runs.group.arguments[runs.group.label] if runs.group.label in SWEPT else budget(runs))


def theorem_bound(runs: Runs) -> float:
    """Theorem 1's bound with the factor one, and Theorem 2's for Algorithm 2, whose models may be 5β off; d_R = d, and
    d_F = 0, since the drift is known."""
    from purectrl.theory.complexity import Smoothness, suboptimality_base

    group, arguments = runs.group, runs.group.arguments
    smooth = Smoothness(arguments.get("horizon", 1.0), drift=0.0, diffusion=0.0, reward=1.0, policy=0.0)
    radius = _needed(group.algorithm, group.overrides, arguments)
    sizes = {"dim_drift": 0, "dim_reward": arguments.get("dimension", 1), "beta_drift": 1.0, "beta_reward": radius}
    return suboptimality_base(smooth, budget(runs), **sizes)


def _bayes(runs: Runs) -> float:
    """The lower bound on the regret of every algorithm there."""
    arguments = runs.group.arguments
    more = {name: arguments[name] for name in ("horizon", "dimension") if name in arguments}
    return bayes_regret(budget(runs), arguments["distance"], arguments.get("reward_std", 1.0), **more)


def _row(label: str, place: float, runs: Runs, bound: float, bayes: float) -> dict[str, Any]:
    name = SWEPT.get(label)
    found = mean_interval(KEY.child("row", runs.group.name), gap(runs))
    return {
        "series": ROLLOUT.replace(str(M), "16") if name else label,
        "N": budget(runs),
        "setting": f"{name} = {place:g}" if name else "",
        "η": runs.group.arguments["distance"],
        "covered": f"{int(covered(runs).sum())}/{len(runs.seeds)}",
        **found.columns("regret"),
        "least possible": bayes,
        "bound": bound,
    }


def _rate_checks(one: Mapping[str, Any], found: Interval) -> list[Check]:
    steepest, flattest = min(one["local"]), max(one["local"])
    return [
        Check(
            f"{one['label']}: slope of log regret over log N within {WITHIN:g} of {RATE:g}",
            f"{found:.3f} for N = {one['x'][0]:,.0f} to {one['x'][-1]:,.0f}",
            abs(found.value - RATE) <= WITHIN,
        ),
        Check(
            f"{one['label']}: between neighbouring N within {WITHIN_LOCAL:g} of it",
            f"{steepest:.3f} to {flattest:.3f}",
            max(abs(steepest - RATE), abs(flattest - RATE)) <= WITHIN_LOCAL,
        ),
    ]


def _sweep_checks(one: Mapping[str, Any], found: Interval) -> list[Check]:
    name = SWEPT[one["label"]]
    limit = one["bound_slope"]
    return [
        Check(
            f"exponent of {name} at most the bound's, {limit:.2f}, plus {SLACK:g}",
            f"{found:.3f} for {one['x'][0]:g} to {one['x'][-1]:g}",
            found.value <= limit + SLACK,
        )
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
        over = [one for one in numbers["series"] if not one["swept"]]
        sizes = sorted({N for one in over for N in one["x"]})
        for index, one in enumerate(over):
            series(left, one, index, one["label"])
            middle = np.sqrt(np.array(one["x"][1:]) * np.array(one["x"][:-1]))
            right.plot(middle, one["local"], "o-", color=COLOURS[index], markersize=5, linewidth=1.4)
        first, last = over[0], over[-1]
        left.plot(first["x"], first["bayes"], ":", color=COLOURS[0], linewidth=1.4, label=f"least possible, {BASE}")
        left.plot(last["x"], last["bayes"], ":", color=COLOURS[2], linewidth=1.4, label="least possible, LowRollout")
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

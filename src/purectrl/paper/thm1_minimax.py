"""Theorem 1 where it is tight: rewards at a distance in proportion to N^(−1/2), so that no algorithm has a smaller rate.

On `circle` with candidates θ = ±η a wrong sign costs Tη, and it takes about β_R/η² measurements to exclude it. With
η = c·N^(−1/2) these are a constant share of N: if the theorem holds, the average regret of the algorithm falls as fast as
that of the best possible one (`bayes_regret`), and more slowly or not at all if it does not. c is chosen in advance, for
every algorithm such that half of the measurements are needed.

At one N, PURE LowRollout also runs with other d, T and noise, at the distance that is chosen in the same way. A distance in
proportion to the noise makes the regret so exactly, so that sweep tests the code and not the theorem.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from purectrl.paper.coverage import DELTA, coverage_check, covered
from purectrl.paper.figures import (
    COLOURS,
    CRITERION,
    Axes,
    Figure,
    label_sizes,
    legend_below,
    log_height,
    log_ticks,
    panels,
    scatter,
    series,
)
from purectrl.paper.item import Group, Item
from purectrl.paper.load import KEY, Runs, budget, by_label, curve, gap, matrix
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import Interval, mean_interval, slope
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
VARIED: Mapping[str, str] = {"dimension": "d", "horizon": "T", "reward_std": "σ"}
"""Arguments of `circle` that are varied at one N, each one at 1 otherwise, and their symbols."""
SWEEPS: Mapping[str, Sequence[float]] = {
    "dimension": (2, 4, 8),
    "horizon": (0.25, 0.5, 2.0, 4.0),
    "reward_std": (0.25, 0.5, 2.0, 4.0),
}
"""Their values."""
WITHIN_VARIED = 0.1
"""How far the exponents of T and σ may be from one, those of the theorem, and that of d above the bound's."""


def fourths(first: int, last: int) -> tuple[int, ...]:
    """2^last … 2^first in factors of four: long runs start first.

    >>> fourths(8, 12)
    (4096, 1024, 256)
    """
    return tuple(2**exponent for exponent in range(last, first - 1, -2))


def item(
    sizes: Sequence[int] = fourths(8, 14),
    large_sizes: Sequence[int] = fourths(12, 20),
    sweeps: Mapping[str, Sequence[float]] = SWEEPS,
    at: int = 2**14,
    seeds: int = 100,
    quick: int = 20,
) -> Item:
    """All three algorithms over N; Algorithm 3, which is the cheapest, to the largest and, at one N, over d, T and σ."""
    rows: list[tuple[str, str, Mapping[str, Any], Sequence[int]]] = [
        (BASE, "pure-base", {}, sizes),
        (SWITCH, "pure-low-switch", {}, sizes),
        (ROLLOUT, "pure-low-rollout", {"sampler.m": M}, large_sizes),
    ]
    groups = []
    for label, algorithm, more, totals in rows:
        for N in totals:
            overrides = {"learner.delta": DELTA, "learner.radius": "anytime", **more}
            arguments = _arguments(algorithm, N)
            groups.append(Group(f"{algorithm}-N{N}", label, "circle", algorithm, arguments, overrides, N))
    (reference,) = (group for group in groups if group.name == _reference(at))
    for name, values in sweeps.items():
        for value in values:
            arguments = _arguments(reference.algorithm, at, **{name: value})
            groups.append(replace(reference, name=f"{name}-{value:g}", label=name, arguments=arguments))
    return Item(
        "thm1-minimax",
        "Theorem 1 where it is tight: rewards at a distance in proportion to N^(−1/2), and regret in proportion to it",
        analyze,
        draw,
        tuple(groups),
        seeds,
        quick,
        cost="about 15 minutes of computing, 4 with --quick, halved on two cores",
    )


def _reference(at: int) -> str:
    """The group beside which d, T and σ are varied."""
    return f"pure-low-rollout-N{at}"


def _arguments(algorithm: str, N: int, **varied: float) -> dict[str, float]:
    """The arguments of `circle`, with the distance at which half of N measurements exclude a reward that is wrong in one
    coordinate."""
    needed = _needed(algorithm, **{name: varied[name] for name in ("dimension", "reward_std") if name in varied})
    distance = math.sqrt(needed / (2 * information("uniform", DIFFUSION, 1.0) * N))
    return {"diffusion": DIFFUSION, "distance": distance, **varied}


def _needed(algorithm: str, dimension: float = 1, reward_std: float = 1.0) -> float:
    """How far the loss of a reward must be above the smallest for the plan to change: β_R, or 5β_R in Algorithm 2."""
    beta = reward_std**2 * (BETA + 2 * (dimension - 1) * math.log(2))  # 2^d rewards
    return beta * (5 if algorithm == "pure-low-switch" else 1)


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """Regret over N beside the bound and beside the best possible; the exponents of N."""
    every, rows, checks = [], [], []
    others = {name: runs for name, runs in found.items() if runs.group.label in VARIED}
    for label, groups in by_label({name: runs for name, runs in found.items() if name not in others}).items():
        ordered = sorted(groups, key=budget)
        sizes, values = np.array([budget(runs) for runs in ordered]), matrix(ordered, gap)
        rate = slope(KEY.child("slope", label), sizes, values)
        points = curve(ordered, budget, gap, label)
        one = {
            "label": label,
            "slope": rate._asdict(),
            "local": (np.diff(np.log(values.mean(axis=0))) / np.diff(np.log(sizes))).tolist(),
            "bounds": [theorem_bound(runs) for runs in ordered],
            "least": [_least(runs) for runs in ordered],
            **{name: points[name] for name in ("x", "mean", "low", "high")},
        }
        every.append(one)
        rows += [_row(one, place, runs) for place, runs in enumerate(ordered)]
        checks += _rate_checks(one, rate)
    sweeps = []
    for name, groups in by_label(others).items():
        reference = found[_reference(budget(groups[0]))]
        ordered = sorted([reference, *groups], key=functools.partial(_value, name=name))
        one = _sweep(name, ordered)
        sweeps.append(one)
        checks.append(_sweep_check(one))
        rows += [_sweep_row(one, place, runs) for place, runs in enumerate(ordered) if runs is not reference]
    numbers = {"series": every, "sweeps": sweeps}
    return Analysis(numbers, Table.of(rows), (coverage_check(found), *checks, *_bound_checks(rows)))


def _value(runs: Runs, name: str) -> float:
    """The value of a varied argument."""
    return runs.group.arguments.get(name, 1)


def theorem_bound(runs: Runs) -> float:
    """Theorem 1's bound with the factor one, and Theorem 2's for Algorithm 2, whose models may be 5β off; d_R = d for 2^d
    rewards, and d_F = 0, since the drift is known."""
    from purectrl.theory.complexity import Smoothness, suboptimality_base

    dimension, horizon, std = (_value(runs, name) for name in VARIED)
    smooth = Smoothness(horizon=horizon, drift=0.0, diffusion=0.0, reward=1.0, policy=0.0)
    beta = _needed(runs.group.algorithm, dimension, std)
    sizes = {"dim_drift": 0, "dim_reward": dimension, "beta_drift": 1.0, "beta_reward": beta}
    return suboptimality_base(smooth, budget(runs), **sizes)


def _least(runs: Runs) -> float:
    """The least regret of any algorithm."""
    dimension, horizon, std = (_value(runs, name) for name in VARIED)
    return bayes_regret(budget(runs), runs.group.arguments["distance"], std, horizon, int(dimension))


def _sweep(name: str, ordered: Sequence[Runs]) -> dict[str, Any]:
    """The regret over one argument, its exponent, and that of the bound."""
    sizes = np.array([_value(runs, name) for runs in ordered], float)
    points = [mean_interval(KEY.child("varied", name, place), gap(runs)) for place, runs in enumerate(ordered)]
    bounds = [theorem_bound(runs) for runs in ordered]
    return {
        "name": name,
        "x": sizes.tolist(),
        "mean": [point.value for point in points],
        "low": [point.low for point in points],
        "high": [point.high for point in points],
        "bounds": bounds,
        "least": [_least(runs) for runs in ordered],
        "exponent": slope(KEY.child("varied", name), sizes, matrix(ordered, gap))._asdict(),
        "exponent of the bound": float(np.polyfit(np.log(sizes), np.log(bounds), 1)[0]),
    }


def _sweep_check(one: Mapping[str, Any]) -> Check:
    symbol, known = VARIED[one["name"]], one["exponent of the bound"]
    rate = Interval(**one["exponent"])
    observed = f"{rate:.3f} for {symbol} = {one['x'][0]:g} to {one['x'][-1]:g}"
    if one["name"] == "dimension":
        criterion = f"exponent of d in the regret at most {WITHIN_VARIED:g} above that of the bound, {known:.2f}"
        return Check(criterion, observed, rate.value <= known + WITHIN_VARIED)
    criterion = f"exponent of {symbol} in the regret within {WITHIN_VARIED:g} of that of the bound, {known:.0f}"
    return Check(criterion, observed, abs(rate.value - known) <= WITHIN_VARIED)


def _sweep_row(one: Mapping[str, Any], place: int, runs: Runs) -> dict[str, Any]:
    label = f"{ROLLOUT}, {VARIED[one['name']]} = {one['x'][place]:g}"
    return _row({**one, "label": label, "local": [None] * place}, place, runs)


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
    """Left the regret over N with the bounds around it, then the local slopes, then the regret over d, T and σ."""
    with panels(3, height=4.8) as (figure, (left, right, last_panel)):
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
            label_sizes(axes, sizes[::2] if len(sizes) > 4 else sizes, "measurements N")
        _draw_sweeps(last_panel, numbers["sweeps"])
        legend_below(figure, columns=3)
    return figure


def _draw_sweeps(axes: Axes, sweeps: Sequence[Mapping[str, Any]]) -> None:
    """The regret relative to that with d = T = σ = 1, beside the bound's."""
    for index, one in enumerate(sweeps, 3):
        at = one["x"].index(1.0)
        points = {name: [value / one["mean"][at] for value in one[name]] for name in ("mean", "low", "high")}
        scatter(axes, {"x": one["x"], **points}, index, f"over {VARIED[one['name']]}")
        bounds = [value / one["bounds"][at] for value in one["bounds"]]
        axes.plot(one["x"], bounds, "--", color=COLOURS[index], linewidth=1.2)
    log_ticks(axes, sorted({x for one in sweeps for x in one["x"]}))
    log_height(axes)
    axes.set(xlabel="d, T or σ", ylabel="regret relative to that at 1", title="N = 2$^{14}$, dashed: the bound")

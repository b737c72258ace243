"""Theorem 3: the effect of several measurements per rollout on the regret, beside the coefficient C_{T,m}.

C_{T,m} is a supremum over F, R and the past. The rewards of `ou` are bumps and its states unbounded: a past far from all
bumps leaves nothing to tell two rewards apart, so C_{T,m} = ∞ for every sampler with m > 1, and Theorem 3 says nothing
there. What is drawn is its part over the drifts, C_{T,m,F}.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from purectrl.paper.coverage import coverage_check, covered
from purectrl.paper.figures import (
    CRITERION,
    Axes,
    Figure,
    label_sizes,
    legend_below,
    log_height,
    panels,
    scatter,
    series,
)
from purectrl.paper.item import Computation, Group, Item
from purectrl.paper.load import KEY, Runs, by_label, curve, gap
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import Interval, mean, ratio

SPREAD = ("uniform", "equidistant")
"""Samplers that spread their measurements over the episode."""
CLUSTERED = ("clustered", "at-the-start")
"""Samplers that take all measurements within a short window: anywhere in the episode, or at its start."""
MAX_RATIO = 1.5
"""Criterion: the regret is at most this many times that of one uniform measurement per rollout."""
STEP = 0.01
"""Time between two measurements of a window."""
SIMULATION: Mapping[str, int] = {"pasts": 32, "futures": 256, "pool": 2048}
"""Size of the simulation of C_{T,m}, which varies over many powers of ten."""


def independency(problem: str, overrides: Mapping[str, Any], **counts: int) -> dict[str, Any]:
    """C_{T,m} and C_{T,m,F} of the sampler of a run with pure-low-rollout and these overrides."""
    from purectrl.problems.coefficients import independency_of
    from purectrl.runs.spec import RunSpec

    sampler = RunSpec.of(problem, "pure-low-rollout", overrides=overrides).algorithm.sampler
    return independency_of(problem, {}, sampler, **counts)


def item(
    N: int = 2**13,
    counts: Sequence[int] = (1, 2, 4, 8, 16),
    seeds: int = 10,
    quick: int = 4,
    coefficient: Callable[..., Any] = independency,
) -> Item:
    """Algorithm 3 with samplers that spread their measurements and with samplers that do not. The system is that of
    Proposition 2, where x(0) = 0 contains no information about the drift; the radii are anytime-valid."""
    radius = {"learner.radius": "anytime"}
    groups = [
        Group(f"{label}-m{m}", label, "ou", "pure-low-rollout", {}, {**radius, **_sampler(label, m)}, N)
        for label in (*SPREAD, *CLUSTERED)
        for m in counts
    ]
    return Item(
        "thm3-rollouts",
        "Theorem 3: m measurements per rollout need N/m rollouts; the regret grows with the coefficient C_{T,m}",
        analyze,
        draw,
        tuple(groups),
        seeds,
        quick,
        cost="about 8 minutes on two cores, 6 with --quick",
        computations=tuple(
            Computation(group.name, coefficient, {"problem": "ou", "overrides": dict(group.overrides), **SIMULATION})
            for group in groups
        ),
    )


def _sampler(label: str, m: int) -> dict[str, Any]:
    """The overrides of a sampler with m measurements per episode."""
    if label in SPREAD:
        return {"sampler": label, "sampler.m": m}
    window = {"sampler": "windows", "sampler.count": 1, "sampler.length": m * STEP, "sampler.step": STEP}
    return window | ({"sampler.from_start": True} if label == "at-the-start" else {})


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """Regret of every sampler and m, beside C_{T,m} and relative to one uniform measurement per rollout."""
    single = gap(found["uniform-m1"])
    coefficients = {name: entry["value"] for name, entry in computed.items()}
    rows = [
        {
            "sampler": runs.group.label,
            "m": coefficients[name]["m"],
            "rollouts": int(mean(runs.ledger("rollouts"))),
            "C": _shown(coefficients[name]["value"]),
            "C of the drift": coefficients[name]["drift"],
            "sd of C of the drift": coefficients[name]["drift_error"],
            "covered": int(covered(runs).sum()),
            "regret": mean(gap(runs)),
            **ratio(KEY.child("ratio", name), gap(runs), single).columns("relative to m = 1"),
        }
        for name, runs in found.items()
    ]
    per_rollout = lambda runs: coefficients[runs.group.name]["m"]  # noqa: E731
    curves = {label: curve(groups, per_rollout, gap, label) for label, groups in by_label(found).items()}
    checks = (coverage_check(found), *_checks(rows))
    return Analysis({"rows": rows, "regret": curves, "single": mean(single)}, Table.of(rows), checks)


def _shown(coefficient: float | None) -> float | str:
    """A coefficient in a table: None is infinity in JSON."""
    return "∞" if coefficient is None else coefficient


def _checks(rows: Sequence[Mapping[str, Any]]) -> tuple[Check, ...]:
    """The worst m > 1 of every sampler that spreads its measurements, and the best m > 1 of every other."""
    checks = []
    for sampler in (*SPREAD, *CLUSTERED):
        several = [row for row in rows if row["sampler"] == sampler and row["m"] > 1]
        row = (max if sampler in SPREAD else min)(several, key=lambda row: row["relative to m = 1"])
        found = Interval(row["relative to m = 1"], row["95% low"], row["95% high"])
        if sampler in SPREAD:
            limit = f"regret at most {MAX_RATIO} times that of one uniform measurement per rollout, for every m > 1"
            observed, passed = f"at worst {found:.2f}", found.value <= MAX_RATIO
        else:
            limit = "worse than one uniform measurement per rollout, for every m > 1"
            observed, passed = f"at least {found:.3g} times", found.low > 1
        checks.append(Check(f"{sampler}: {limit}", f"{observed}, at m = {row['m']}", passed))
    return tuple(checks)


def draw(numbers: Mapping[str, Any]) -> Figure:
    """The regret over m, and over the part of C_{T,m} that concerns the drift."""
    with panels(2, height=4.4) as (figure, (left, right)):
        for index, (sampler, points) in enumerate(numbers["regret"].items()):
            series(left, points, index, sampler)
            rows = [row for row in numbers["rows"] if row["sampler"] == sampler]
            _scatter_finite(right, points, [row["C of the drift"] for row in rows], index, sampler)
        for axes in (left, right):
            axes.axhline(
                MAX_RATIO * numbers["single"], **CRITERION, label=f"criterion: {MAX_RATIO} times uniform, m = 1"
            )
            axes.set_ylabel("average regret")
            log_height(axes)
        sizes = sorted({m for points in numbers["regret"].values() for m in points["x"]})
        label_sizes(left, sizes, "measurements per rollout, m")
        left.set_title("regret, mean, 95% interval")
        right.set(xscale="log", xlabel="independency coefficient C$_{T,m,F}$ (drift)")
        infinite = sum(row["C of the drift"] is None for row in numbers["rows"])
        right.set_title(f"{infinite} infinite, not drawn" if infinite else "over the coefficient of the drift")
        legend_below(figure, columns=4)
    return figure


def _scatter_finite(axes: Axes, points: Mapping[str, Any], at: Sequence[float | None], index: int, label: str) -> None:
    """The points of a curve at other positions, without those at infinity."""
    known = [number for number, position in enumerate(at) if position is not None]
    moved = {name: [points[name][number] for number in known] for name in ("mean", "low", "high")}
    scatter(axes, {"x": [at[number] for number in known], **moved}, index, label)

"""Theorem 3: what several measurements a rollout cost in regret, beside the coefficient C_{T,m}.

C_{T,m} is a supremum over F, R and the past. Where a reward is a bump, a past far from all bumps leaves next to nothing to
tell rewards apart, so C_{T,m} is huge for every sampler with m > 1. Its part C_{T,m,F}, over the drifts, is shown, too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from purectrl.core.errors import StoreError
from purectrl.report.curves import KEY, by_label, curve, gap
from purectrl.report.figures import MARK, label_sizes, legend_below, log_height, panels, scatter, series
from purectrl.report.findings import Findings, Mark, Table
from purectrl.report.reading import Runs
from purectrl.report.statistics import mean, ratio

GOOD = ("uniform", "equidistant")
"""Samplers that spread their measurements over the episode."""
BAD = ("clustered", "at-the-start")
"""Samplers that take all of them within a moment: anywhere in the episode, or at its start."""
WORST = 1.5
"""Mark: their regret is at most this many times that of one uniform measurement a rollout."""


def analyse(found: Sequence[Runs], computed: Mapping[str, Any]) -> Findings:
    """Regret of every sampler and m, beside C_{T,m} and beside one uniform measurement a rollout."""
    per_rollout = lambda runs: computed[runs.group.name]["value"]["m"]  # noqa: E731
    single = next((runs for runs in found if runs.group.label == "uniform" and per_rollout(runs) == 1), None)
    if single is None:
        raise StoreError("thm3-rollouts compares with the uniform sampler at m = 1, which is not among its groups")
    rows = []
    for runs in sorted(found, key=lambda runs: (list(by_label(found)).index(runs.group.label), per_rollout(runs))):
        coefficient = computed[runs.group.name]["value"]
        against = ratio(KEY.child("ratio", runs.group.name), gap(runs), gap(single))
        rows.append(
            {
                "sampler": runs.group.label,
                "m": coefficient["m"],
                "rollouts": int(mean(runs.spent("rollouts"))),
                # None stands for infinity in JSON
                "coefficient": coefficient["value"],
                "coefficient_error": coefficient["error"],
                "drift_coefficient": coefficient["drift"],
                "drift_coefficient_error": coefficient["drift_error"],
                "regret": mean(gap(runs)),
                "ratio": against.value,
                "low": against.low,
                "high": against.high,
            }
        )
    curves = {label: curve(groups, per_rollout, gap, label) for label, groups in by_label(found).items()}
    numbers = {"rows": rows, "regret": curves, "single": mean(gap(single))}
    heads = {
        "sampler": "sampler",
        "m": "m",
        "rollouts": "rollouts",
        "coefficient": "C",
        "coefficient_error": "± (1 sd)",
        "drift_coefficient": "C of the drift",
        "drift_coefficient_error": "± (1 sd)",
        "regret": "regret",
        "ratio": "against m = 1",
        "low": "95% low",
        "high": "95% high",
    }
    table = Table(tuple(heads.values()), tuple(tuple(row[name] for name in heads) for row in rows))
    return Findings(numbers, table, _marks(rows))


def _marks(rows: Sequence[Mapping[str, Any]]) -> tuple[Mark, ...]:
    """The worst m > 1 of every good sampler, and whether each bad one is worse than one measurement, for every m > 1."""
    marks = []
    for sampler in GOOD:
        several = [row for row in rows if row["sampler"] == sampler and row["m"] > 1]
        worst = max(several, key=lambda row: row["ratio"])
        marks.append(
            Mark(
                f"{sampler}: regret at most {WORST} times that of one uniform measurement a rollout, for every m > 1",
                f"at worst {worst['ratio']:.2f} [{worst['low']:.2f}, {worst['high']:.2f}], at m = {worst['m']}",
                worst["ratio"] <= WORST,
            )
        )
    for sampler in BAD:
        several = [row for row in rows if row["sampler"] == sampler and row["m"] > 1]
        least = min(several, key=lambda row: row["ratio"])
        marks.append(
            Mark(
                f"{sampler}: worse than one uniform measurement a rollout, for every m > 1",
                f"at least {least['ratio']:.3g} times [{least['low']:.3g}, {least['high']:.3g}], at m = {least['m']}",
                least["low"] > 1,
            )
        )
    return tuple(marks)


def draw(numbers: Mapping[str, Any]) -> Figure:
    """The regret over m, over C_{T,m}, and over its part that concerns the drift."""
    coefficients = {"coefficient": "C$_{T,m}$", "drift_coefficient": "C$_{T,m,F}$ (drift)"}
    with panels(3, height=4.4) as (figure, (left, *others)):
        for index, (sampler, points) in enumerate(numbers["regret"].items()):
            series(left, points, index, sampler)
            rows = [row for row in numbers["rows"] if row["sampler"] == sampler]
            for axes, name in zip(others, coefficients, strict=True):
                _scatter_known(axes, points, [row[name] for row in rows], index, sampler)
        for axes in (left, *others):
            axes.axhline(WORST * numbers["single"], **MARK, label=f"mark: {WORST} times uniform, m = 1")
            axes.set_ylabel("average regret")
            log_height(axes)
        sizes = sorted({m for points in numbers["regret"].values() for m in points["x"]})
        label_sizes(left, sizes, "measurements a rollout, m")
        left.set_title("regret, mean, 95% interval")
        for axes, (name, text) in zip(others, coefficients.items(), strict=True):
            axes.set_xscale("log")
            axes.set_xlabel(f"independency coefficient {text}")
            infinite = sum(row[name] is None for row in numbers["rows"])
            axes.set_title(f"{infinite} infinite, not drawn" if infinite else "over the coefficient")
        legend_below(figure, columns=4)
    return figure


def _scatter_known(axes: Any, points: Mapping[str, Any], at: Sequence[float | None], index: int, label: str) -> None:
    """The points of a curve at other places, those that are finite."""
    known = [number for number, place in enumerate(at) if place is not None]
    moved = {name: [points[name][number] for number in known] for name in ("mean", "low", "high")}
    scatter(axes, {"x": [at[number] for number in known], **moved}, index, label)

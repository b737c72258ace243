"""Theorem 2: how often PURE LowSwitch updates its policy, and what that costs in regret."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from purectrl.report.curves import KEY, curve, gap, matrix, size, updates
from purectrl.report.figures import COLOURS, MARK, label_sizes, legend_below, log_height, panels, scatter, series
from purectrl.report.findings import Findings, Mark, Table
from purectrl.report.reading import Runs
from purectrl.report.statistics import ROUNDING, curvature, mean, ratio

FEWEST, SHARE, WORST = 10, 0.01, 6.0
"""Marks: at least so many switches at the largest N, at most this share of Algorithm 1's, at most this many times its
regret."""
FACTOR = 5.0
"""Algorithm 2, lines 6 and 7."""


def analyse(found: Sequence[Runs], computed: Mapping[str, Any]) -> Findings:
    """Updates and regret of both algorithms over N, and of other factors at the largest N."""
    base = {size(runs): runs for runs in found if runs.group.algorithm == "pure-base"}
    ours = [runs for runs in found if runs.group.algorithm == "pure-low-switch"]
    switching = sorted((runs for runs in ours if runs.setting("factor") == FACTOR), key=size)
    factors = sorted((runs for runs in ours if size(runs) == max(base)), key=lambda runs: runs.setting("factor"))
    sizes = np.array([size(runs) for runs in switching])
    counts = matrix(switching, updates)
    numbers = {
        "updates": curve(switching, size, updates, "updates"),
        "base_updates": curve(list(base.values()), size, updates, "base updates"),
        "regret": curve(switching, size, gap, "regret"),
        "base_regret": curve(list(base.values()), size, gap, "base regret"),
        "linear_fit": np.polyfit(np.log2(sizes), counts.mean(axis=0), 1).tolist(),
        "curvature": curvature(KEY.child("curvature"), np.log2(sizes), counts)._asdict(),
        "ratios": [_against(base[size(runs)], runs) for runs in switching],
        "factors": [_against(base[size(runs)], runs) for runs in factors],
    }
    return Findings(numbers, _table(numbers), _marks(numbers))


def _against(base: Runs, ours: Runs) -> dict[str, Any]:
    """One group beside Algorithm 1 with the same N."""
    against = ratio(KEY.child("ratio", ours.group.name), gap(ours), gap(base))
    return {
        "N": size(ours),
        "factor": ours.setting("factor"),
        "updates": mean(updates(ours)),
        "base_updates": mean(updates(base)),
        "regret": mean(gap(ours)),
        "base_regret": mean(gap(base)),
        "ratio": against.value,
        "low": against.low,
        "high": against.high,
    }


def _table(numbers: Mapping[str, Any]) -> Table:
    names = ("N", "factor", "updates", "base_updates", "regret", "base_regret", "ratio", "low", "high")
    heads = ("N", "factor", "updates", "updates of base", "regret", "regret of base", "ratio", "95% low", "95% high")
    others = [row for row in numbers["factors"] if row["factor"] != FACTOR]
    return Table(heads, tuple(tuple(row[name] for name in names) for row in [*numbers["ratios"], *others]))


def _marks(numbers: Mapping[str, Any]) -> tuple[Mark, ...]:
    last, bend = numbers["ratios"][-1], numbers["curvature"]
    worst = max(numbers["ratios"], key=lambda row: row["ratio"])
    share = last["updates"] / last["base_updates"]
    return (
        Mark(
            f"at least {FEWEST} switches at N = {last['N']:,}",
            f"{last['updates']:.1f} in the mean",
            last["updates"] >= FEWEST,
        ),
        Mark(f"at most {SHARE:.0%} of the updates of PURE base there", f"{share:.3%}", share <= SHARE),
        Mark(
            "updates at most linear in log N: no upward curvature beyond its interval",
            f"curvature {bend['value']:.3f} [{bend['low']:.3f}, {bend['high']:.3f}] a doubling squared",
            bend["low"] <= ROUNDING,
        ),
        Mark(
            f"average regret at most {WORST:g} times that of PURE base, at every N",
            f"at worst {worst['ratio']:.2f} [{worst['low']:.2f}, {worst['high']:.2f}], at N = {worst['N']:,}",
            worst["ratio"] <= WORST,
        ),
    )


def draw(numbers: Mapping[str, Any]) -> Figure:
    """Updates over log N, regret over N, and other factors."""
    with panels(3) as (figure, (left, middle, right)):
        sizes = numbers["updates"]["x"]
        series(left, numbers["updates"], 1, "PURE LowSwitch")
        rise, start = numbers["linear_fit"]
        fitted = [start + rise * np.log2(N) for N in sizes]
        left.plot(sizes, fitted, color=COLOURS[1], linestyle=":", label="fit linear in log N")
        left.axhline(FEWEST, **MARK, label=f"mark left: {FEWEST} updates")
        left.set_ylim(0, 1.25 * max(*numbers["updates"]["high"], FEWEST))
        left.set_ylabel("policy updates")
        left.set_title("updates (PURE base: N)")
        series(middle, numbers["base_regret"], 0, "PURE base")
        series(middle, numbers["regret"], 1, "PURE LowSwitch")
        limit = [WORST * value for value in numbers["base_regret"]["mean"]]
        middle.plot(sizes, limit, **MARK, label=f"mark middle, right: {WORST:g} times the regret of PURE base")
        log_height(middle)
        middle.set_ylabel("average regret")
        middle.set_title("regret, mean, 95% interval")
        for axes in (left, middle):
            label_sizes(axes, sizes, "measurements N")
        _draw_factors(right, numbers["factors"])
        legend_below(figure)
    return figure


def _draw_factors(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """The regret of each factor against Algorithm 1, with the number of its updates above it."""
    points = {"x": range(len(rows)), "mean": [row["ratio"] for row in rows]}
    scatter(axes, points | {name: [row[name] for row in rows] for name in ("low", "high")}, 1, "PURE LowSwitch")
    for number, row in enumerate(rows):
        text, above = f"{row['updates']:.3g}\nupdates", {"xytext": (0, 6), "textcoords": "offset points"}
        axes.annotate(text, (number, row["high"]), **above, ha="center", fontsize=9, zorder=4)
    axes.axhline(WORST, **MARK)
    axes.set_xticks(range(len(rows)), [f"{row['factor']:g}" for row in rows])
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.set_ylim(0, 1.3 * max(WORST, *(row["high"] for row in rows)))
    axes.set_xlabel("factor on the radius β (Algorithm 2: 5)")
    axes.set_ylabel("regret / regret of PURE base")
    axes.set_title(f"other factors, N = {rows[0]['N']:,}")

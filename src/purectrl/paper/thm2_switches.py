"""Theorem 2: how often PURE LowSwitch updates its policy, and the effect on the regret."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from purectrl.paper.coverage import coverage_check, covered
from purectrl.paper.figures import (
    COLOURS,
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
from purectrl.paper.item import Group, Item
from purectrl.paper.load import KEY, Runs, budget, curve, gap, matrix, policy_changes, updates
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import ROUNDING, Interval, curvature, mean, ratio
from purectrl.paper.thm1_rate import powers

MIN_UPDATES, MAX_SHARE, MAX_RATIO = 10, 0.01, 6.0
"""Criteria: at least so many updates at the largest N, at most this share of those of Algorithm 1, and at most this many
times its regret."""
THRESHOLD = 5.0
"""Algorithm 2, lines 6 and 7."""
RICH: Mapping[str, Any] = {
    "grid": "dyadic",
    "scales": 9,
    "a": 0.2,
    "c": 0.3,
    "goal": 0.5,
    "diffusion": 0.005,
    "reward_std": 0.01,
}
"""Arguments of `finite` with which LowSwitch has reason to update: candidates at nine distances from the truth, and so
little noise that the first are distinguished at once."""


def item(
    sizes: Sequence[int] = powers(8, 16),
    thresholds: Sequence[float] = (1.0, 2.0, 10.0),
    seeds: int = 10,
    quick: int = 4,
) -> Item:
    """Algorithm 2 beside Algorithm 1, its repair, and other thresholds than its 5 at the largest N."""
    paths = {"learner.paths": 32}
    base = [Group(f"base-N{N}", "PURE base", "finite", "pure-base", RICH, paths, N) for N in sizes]
    ours = [Group(f"low-switch-N{N}", "PURE LowSwitch", "finite", "pure-low-switch", RICH, paths, N) for N in sizes]
    repaired = [
        Group(
            f"renew-both-N{N}",
            "both sets renewed",
            "finite",
            "pure-low-switch",
            RICH,
            {**paths, "schedule.renew": "both"},
            N,
        )
        for N in sizes
    ]
    others = [
        Group(
            f"threshold{value:g}",
            f"threshold {value:g}",
            "finite",
            "pure-low-switch",
            RICH,
            {**paths, "schedule.threshold": value},
            max(sizes),
        )
        for value in thresholds
    ]
    return Item(
        "thm2-switches",
        "Theorem 2: PURE LowSwitch updates its policy O(log N) times, at the same regret",
        analyze,
        draw,
        (*base, *ours, *repaired, *others),
        seeds,
        quick,
        cost="about 5 minutes of computing, 3 with --quick, halved on two cores",
    )


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """Updates and regret of both algorithms over N, and of other thresholds at the largest N."""
    base = {budget(runs): runs for name, runs in found.items() if name.startswith("base-")}
    ours = sorted((runs for name, runs in found.items() if name.startswith("low-switch-")), key=budget)
    repaired = sorted((runs for name, runs in found.items() if name.startswith("renew-both-")), key=budget)
    others = [runs for name, runs in found.items() if name.startswith("threshold")]
    sizes, counts = np.log2([budget(runs) for runs in ours]), matrix(ours, updates)
    bend = curvature(KEY.child("curvature"), sizes, counts)
    rows, repaired_rows, other_rows = (
        [_compare(base[budget(runs)], runs) for runs in groups] for groups in (ours, repaired, others)
    )
    numbers = {
        "updates": curve(ours, budget, updates, "updates"),
        "changes": curve(ours, budget, policy_changes, "changes"),
        "repaired_updates": curve(repaired, budget, updates, "repaired updates"),
        "repaired_changes": curve(repaired, budget, policy_changes, "repaired changes"),
        "repaired_regret": curve(repaired, budget, gap, "repaired regret"),
        "base_updates": curve(list(base.values()), budget, updates, "base updates"),
        "regret": curve(ours, budget, gap, "regret"),
        "base_regret": curve(list(base.values()), budget, gap, "base regret"),
        "linear_fit": np.polyfit(sizes, counts.mean(axis=0), 1).tolist(),
        "curvature": bend._asdict(),
        "ratios": rows,
        "thresholds": sorted([rows[-1], *other_rows], key=lambda row: row["threshold"]),
    }
    table = Table.of([*rows, *repaired_rows, *other_rows])
    return Analysis(numbers, table, (coverage_check(found), *_checks(rows, bend), *_repair_checks(ours, repaired)))


def _repair_checks(ours: Sequence[Runs], repaired: Sequence[Runs]) -> tuple[Check, Check]:
    """Whether renewing both sets needs no more updates in any pair of runs, and has no more regret on average."""
    more = matrix(repaired, updates) - matrix(ours, updates)
    both, failed = matrix(repaired, gap), matrix(ours, gap)
    worse = int((both > failed * (1 + ROUNDING)).sum())
    compared = ratio(KEY.child("repair"), both.mean(axis=1), failed.mean(axis=1))
    return (
        Check(
            "both sets renewed: at most as many updates as the paper's rule, in every pair of runs",
            f"{int((more > 0).sum())} of {more.size} pairs have more; mean difference {more.mean():.2f}",
            bool((more <= 0).all()),
        ),
        Check(
            "both sets renewed: mean regret at most that of the paper's rule",
            f"{compared:.2f} times; larger in {worse} of {both.size} pairs",
            compared.value <= 1 + ROUNDING,
        ),
    )


def _compare(base: Runs, ours: Runs) -> dict[str, Any]:
    """One group beside Algorithm 1 with the same N."""
    return {
        "N": budget(ours),
        "threshold": ours.group.overrides.get("schedule.threshold", THRESHOLD),
        "renews": ours.group.overrides.get("schedule.renew", "failed"),
        "covered": int(covered(ours).sum()),
        "updates": mean(updates(ours)),
        "policy changes": mean(policy_changes(ours)),
        "updates of base": mean(updates(base)),
        "regret": mean(gap(ours)),
        "regret of base": mean(gap(base)),
        **ratio(KEY.child("ratio", ours.group.name), gap(ours), gap(base)).columns("ratio"),
    }


def _checks(rows: Sequence[Mapping[str, Any]], bend: Interval) -> tuple[Check, ...]:
    last, worst = rows[-1], max(rows, key=lambda row: row["ratio"])
    count, share = last["updates"], last["updates"] / last["updates of base"]
    interval = Interval(worst["ratio"], worst["95% low"], worst["95% high"])
    return (
        Check(f"at least {MIN_UPDATES} updates at N = {last['N']:,}", f"mean {count:.1f}", count >= MIN_UPDATES),
        Check(f"at most {MAX_SHARE:.0%} of the updates of PURE base there", f"{share:.3%}", share <= MAX_SHARE),
        Check(
            "updates at most linear in log N: no upward curvature beyond its interval",
            f"curvature {bend:.3f} per squared doubling",
            bend.low <= ROUNDING,
        ),
        Check(
            f"average regret at most {MAX_RATIO:g} times that of PURE base, at every N",
            f"at worst {interval:.2f}, at N = {worst['N']:,}",
            worst["ratio"] <= MAX_RATIO,
        ),
    )


def draw(numbers: Mapping[str, Any]) -> Figure:
    """Updates over log N, regret over N, and other thresholds."""
    with panels(3) as (figure, (left, middle, right)):
        sizes = numbers["updates"]["x"]
        series(left, numbers["updates"], 1, "PURE LowSwitch")
        series(left, numbers["repaired_updates"], 2, "both sets renewed")
        series(left, numbers["changes"], 3, "policy changes of PURE LowSwitch")
        rise, start = numbers["linear_fit"]
        fitted = [start + rise * np.log2(N) for N in sizes]
        left.plot(sizes, fitted, color=COLOURS[1], linestyle=":", label="fit linear in log N")
        left.axhline(MIN_UPDATES, **CRITERION, label=f"criterion left: {MIN_UPDATES} updates")
        left.set(ylim=(0, 1.25 * max(*numbers["updates"]["high"], MIN_UPDATES)), ylabel="policy updates")
        left.set_title("updates (PURE base: N)")
        series(middle, numbers["base_regret"], 0, "PURE base")
        series(middle, numbers["regret"], 1, "PURE LowSwitch")
        series(middle, numbers["repaired_regret"], 2, "both sets renewed")
        limit = [MAX_RATIO * value for value in numbers["base_regret"]["mean"]]
        label = f"criterion middle, right: {MAX_RATIO:g} times the regret of PURE base"
        middle.plot(sizes, limit, **CRITERION, label=label)
        log_height(middle)
        middle.set(ylabel="average regret", title="regret, mean, 95% interval")
        for axes in (left, middle):
            label_sizes(axes, sizes, "measurements N")
        _draw_thresholds(right, numbers["thresholds"])
        legend_below(figure)
    return figure


def _draw_thresholds(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """The regret for each threshold relative to Algorithm 1, with the number of updates above it."""
    names = {"mean": "ratio", "low": "95% low", "high": "95% high"}
    points = {name: [row[column] for row in rows] for name, column in names.items()}
    scatter(axes, {"x": range(len(rows)), **points}, 1, "PURE LowSwitch")
    for number, row in enumerate(rows):
        text, above = f"{row['updates']:.3g}\nupdates", {"xytext": (0, 6), "textcoords": "offset points"}
        axes.annotate(text, (number, row["95% high"]), **above, ha="center", fontsize=9, zorder=4)
    axes.axhline(MAX_RATIO, **CRITERION)
    axes.set_xticks(range(len(rows)), [f"{row['threshold']:g}" for row in rows])
    axes.set(xlim=(-0.6, len(rows) - 0.4), ylim=(0, 1.3 * max(MAX_RATIO, *points["high"])))
    axes.set(xlabel="threshold in radii β (Algorithm 2: 5)", ylabel="regret / regret of PURE base")
    axes.set_title(f"other thresholds, N = {rows[0]['N']:,}")

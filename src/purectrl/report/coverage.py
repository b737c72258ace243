"""Theorem 1, first claim: how often the truth was in both confidence sets for all n."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from purectrl.report.figures import COLOURS, MARK, MARKERS, panels
from purectrl.report.findings import Findings, Mark, Table
from purectrl.report.reading import Runs
from purectrl.report.statistics import wilson


def analyse(found: Sequence[Runs], computed: Mapping[str, Any]) -> Findings:
    """The share of covered runs in each group, with Wilson's interval."""
    groups = []
    for runs in found:
        covered = runs.metric("covered").astype(bool)
        share = wilson(int(covered.sum()), len(covered))
        failed = [run["seed"] for run, good in zip(runs.summaries, covered, strict=True) if not good]
        groups.append(
            {
                "label": runs.group.label,
                "runs": len(covered),
                "covered": int(covered.sum()),
                "failed_seeds": failed,
                "share": share.value,
                "low": share.low,
                "high": share.high,
                "mark": 1 - runs.setting("delta"),
            }
        )
    columns = ("label", "runs", "covered", "share", "low", "high", "mark")
    table = Table(
        ("experiment", "runs", "covered", "share", "95% low", "95% high", "1 − δ"),
        tuple(tuple(group[name] for name in columns) for group in groups),
    )
    marks = tuple(
        Mark(
            f"{group['label']}: share of covered runs at least 1 − δ = {group['mark']:g}",
            f"{group['covered']} of {group['runs']}, {group['share']:.3f} [{group['low']:.3f}, {group['high']:.3f}]",
            group["share"] >= group["mark"],
        )
        for group in groups
    )
    return Findings({"groups": groups}, table, marks)


def draw(numbers: Mapping[str, Any]) -> Figure:
    """One row for each experiment: its share, the interval, the mark."""
    groups = numbers["groups"]
    with panels(1, height=1.6 + 0.55 * len(groups)) as (figure, (axes,)):
        for row, group in enumerate(groups):
            axes.plot([group["low"], group["high"]], [row, row], color=COLOURS[row], linewidth=2.5, zorder=2)
            axes.plot(group["share"], row, MARKERS[row], color=COLOURS[row], markersize=8, zorder=3, clip_on=False)
        marks = sorted({group["mark"] for group in groups})
        for mark in marks:
            axes.axvline(mark, **MARK, label=f"mark: 1 − δ = {mark:g}")
        lowest = min(min(group["low"] for group in groups), *marks, 0.85)
        axes.set_xlim(lowest - 0.02, 1.0)
        axes.set_ylim(len(groups) - 0.5, -0.5)
        axes.set_yticks(range(len(groups)), [f"{group['label']}\n({group['runs']} runs)" for group in groups])
        axes.set_xlabel("share of runs with f* ∈ F$_n$ and b* ∈ R$_n$ for all n, 95% interval")
        figure.legend(loc="outside upper right", frameon=False)
    return figure

"""Theorem 1, second claim: how fast the average regret falls with N, and what planning costs on the way."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from purectrl.report.curves import KEY, by_label, curve, gap, matrix, size, updates
from purectrl.report.figures import MARK, label_sizes, legend_below, log_height, panels, series
from purectrl.report.findings import Findings, Mark, Table
from purectrl.report.reading import Runs
from purectrl.report.statistics import ROUNDING, slope

FASTEST = -0.5
"""The theorem's rate N^(−1/2), its logarithms aside."""


def analyse(found: Sequence[Runs], computed: Mapping[str, Any]) -> Findings:
    """Regret, updates and planning seconds over N, and the slope of the regret, for every series."""
    numbers: dict[str, Any] = {"series": []}
    for label, groups in by_label(found).items():
        ordered = sorted(groups, key=size)
        rate = slope(KEY.child("slope", label), np.array([size(runs) for runs in ordered]), matrix(ordered, gap))
        numbers["series"].append(
            {
                "label": label,
                "linear": groups[0].group.settings.get("classes") == "linear",
                "regret": curve(groups, size, gap, "regret"),
                "slope": rate._asdict(),
                "updates": curve(groups, size, updates, "updates"),
                "seconds": curve(groups, size, lambda runs: runs.seconds("plan"), "seconds"),
            }
        )
    return Findings(numbers, _table(numbers), tuple(_mark(one) for one in numbers["series"]))


def _table(numbers: Mapping[str, Any]) -> Table:
    columns = (
        "series",
        "largest N",
        "regret there",
        "slope",
        "95% low",
        "95% high",
        "updates there",
        "planning seconds there",
    )
    rows = [
        (
            one["label"],
            one["regret"]["x"][-1],
            one["regret"]["mean"][-1],
            *(one["slope"][name] for name in ("value", "low", "high")),
            one["updates"]["mean"][-1],
            one["seconds"]["mean"][-1],
        )
        for one in numbers["series"]
    ]
    return Table(columns, tuple(rows))


def _mark(one: Mapping[str, Any]) -> Mark:
    rate, sizes = one["slope"], one["regret"]["x"]
    return Mark(
        f"{one['label']}: slope of log regret over log N at most {FASTEST}, within its interval",
        f"{rate['value']:.2f} [{rate['low']:.2f}, {rate['high']:.2f}] for N = {sizes[0]:,} to {sizes[-1]:,}",
        rate["low"] <= FASTEST + ROUNDING,
    )


def draw(numbers: Mapping[str, Any]) -> Figure:
    """Left the regret over N beside N^(−1/2), right the planning seconds with linear classes."""
    with panels(2, height=4.6) as (figure, (left, right)):
        sizes = sorted({N for one in numbers["series"] for N in one["regret"]["x"]})
        for index, one in enumerate(numbers["series"]):
            series(left, one["regret"], index, one["label"])
            if one["linear"]:
                series(right, one["seconds"], index, one["label"])
        start = max(one["regret"]["mean"][0] for one in numbers["series"]) * 1.3
        left.plot(sizes, [start * (N / sizes[0]) ** FASTEST for N in sizes], **MARK, label="mark: slope −1/2")
        log_height(left)
        left.set_ylabel("average regret")
        left.set_title("regret, mean over seeds, 95% interval")
        right.set_yscale("symlog", linthresh=0.1)  # a run without any update plans for 0 seconds
        right.set_ylim(bottom=-0.01)
        right.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        right.set_ylabel("seconds in planning (a run)")
        right.set_title("cost of planning, linear classes")
        for axes in (left, right):
            label_sizes(axes, sizes, "measurements N")
        legend_below(figure)
    return figure

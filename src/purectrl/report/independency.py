"""Proposition 2: the coefficient C_{T,m} of the Ornstein-Uhlenbeck process, beside its bound."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from purectrl.report.figures import COLOURS, MARK, label_sizes, legend_below, panels
from purectrl.report.findings import Findings, Mark, Table
from purectrl.report.reading import Runs


def analyse(found: Sequence[Runs], computed: Mapping[str, Any]) -> Findings:
    """Every case (T, u_min) for all m."""
    cases = [
        {"horizon": entry["arguments"]["horizon"], "u_min": entry["arguments"]["u_min"], **entry["value"]}
        for entry in computed.values()
    ]
    points = [
        (case["horizon"], case["u_min"], m, value, bound)
        for case in cases
        for m, value, bound in zip(case["m"], case["value"], case["bound"], strict=True)
    ]
    table = Table(
        ("T", "u_min", "m", "C", "1 + m/(2T u_min)"), tuple(row for row in points if row[2] & row[2] - 1 == 0)
    )
    nearest = max(points, key=lambda row: row[3] / row[4])
    few = [row for row in points if row[2] <= 2 * row[0] * row[1]]
    marks = (
        Mark(
            "C at most 1 + m/(2T u_min), for every m",
            f"at most {nearest[3] / nearest[4]:.3f} of it (T = {nearest[0]:g}, u_min = {nearest[1]:g}, m = {nearest[2]})",
            all(row[3] <= row[4] for row in points),
        ),
        Mark(
            "C at most 2 while m ≤ 2T u_min",
            f"at most {max(row[3] for row in few):.3f} there",
            all(row[3] <= 2 for row in few),
        ),
    )
    return Findings({"cases": cases}, table, marks)


def draw(numbers: Mapping[str, Any]) -> Figure:
    """C solid, its bound dashed, one colour a case."""
    with panels(1, height=4.6) as (figure, (axes,)):
        for index, case in enumerate(numbers["cases"]):
            label = f"T = {case['horizon']:g}, u$_{{min}}$ = {case['u_min']:g}"
            axes.plot(case["m"], case["value"], color=COLOURS[index], linewidth=1.8, label=label)
            axes.plot(case["m"], case["bound"], **{**MARK, "color": COLOURS[index]})
        axes.plot([], [], **MARK, label="bound 1 + m/(2T u$_{min}$)")
        counts = [m for m in numbers["cases"][0]["m"] if m & m - 1 == 0]
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_ylabel("independency coefficient C$_{T,m}$")
        label_sizes(axes, counts, "measurements an episode, m")
        legend_below(figure, columns=2)
    return figure

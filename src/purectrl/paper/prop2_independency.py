"""Proposition 2: the coefficient C_{T,m} of the Ornstein-Uhlenbeck process, beside its bound."""

from collections.abc import Mapping, Sequence
from typing import Any

from purectrl.paper.figures import COLOURS, CRITERION, Figure, label_sizes, legend_below, panels
from purectrl.paper.item import Computation, Item
from purectrl.paper.load import Runs
from purectrl.paper.results import Analysis, Check, Table


def item(most: int = 64, cases: Sequence[tuple[float, float]] = ((1, 1), (4, 1), (4, 4))) -> Item:
    """The closed form of the Ornstein-Uhlenbeck process for a few (T, u_min), with m up to `most`."""
    return Item(
        "prop2-independency",
        "Proposition 2: C_{T,m} ≤ 1 + m/(2T u_min) for the Ornstein-Uhlenbeck process on the grid iT/m",
        analyze,
        draw,
        computations=tuple(
            Computation(
                f"T={T:g} u_min={u_min:g}", coefficients, {"horizon": float(T), "u_min": float(u_min), "most": most}
            )
            for T, u_min in cases
        ),
    )


def coefficients(**arguments: Any) -> dict[str, Any]:
    """C_{T,m} on the grid iT/m, m = 1 … most, and Proposition 2's bound on it."""
    from purectrl.problems.coefficients import ou_grid

    return ou_grid(**arguments)


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
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
    powers_of_two = tuple(point for point in points if point[2] & point[2] - 1 == 0)
    T, u_min, m, value, bound = max(points, key=lambda point: point[3] / point[4])
    few = [value for T, u_min, m, value, _ in points if m <= 2 * T * u_min]
    checks = (
        Check(
            "C at most 1 + m/(2T u_min), for every m",
            f"at most {value / bound:.3f} of it (T = {T:g}, u_min = {u_min:g}, m = {m})",
            value <= bound,
        ),
        Check("C at most 2 while m ≤ 2T u_min", f"at most {max(few):.3f} there", max(few) <= 2),
    )
    return Analysis({"cases": cases}, Table(("T", "u_min", "m", "C", "1 + m/(2T u_min)"), powers_of_two), checks)


def draw(numbers: Mapping[str, Any]) -> Figure:
    """C solid, its bound dashed, one colour per case."""
    with panels(1, height=4.6) as (figure, (axes,)):
        for index, case in enumerate(numbers["cases"]):
            label = f"T = {case['horizon']:g}, u$_{{min}}$ = {case['u_min']:g}"
            axes.plot(case["m"], case["value"], color=COLOURS[index], linewidth=1.8, label=label)
            axes.plot(case["m"], case["bound"], **{**CRITERION, "color": COLOURS[index]})
        axes.plot([], [], **CRITERION, label="bound 1 + m/(2T u$_{min}$)")
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_ylabel("independency coefficient C$_{T,m}$")
        counts = [m for m in numbers["cases"][0]["m"] if m & m - 1 == 0]
        label_sizes(axes, counts, "measurements per episode, m")
        legend_below(figure, columns=2)
    return figure

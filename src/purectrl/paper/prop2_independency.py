"""Proposition 2: the coefficient C_{T,m} of the Ornstein-Uhlenbeck process, beside its bound; and PURE_LowRollout on exactly
its system.

With x(0) = 0 and b = αx all policies are worth zero, so no algorithm has any regret there. What m changes is how many
measurements it takes until the confidence set has the true α alone: Theorem 3's proof allows C times as many as at uniform
times, one per rollout.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from purectrl.paper.coverage import DELTA, coverage_check, covered
from purectrl.paper.figures import COLOURS, CRITERION, Figure, label_sizes, legend_below, panels, scatter
from purectrl.paper.item import Computation, Group, Item
from purectrl.paper.load import KEY, Runs, budget, gap
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import mean, ratio

RUN = (4.0, 1.0)
"""T and u_min of the runs."""
COLUMNS = ("covered", "measurements", "relative", "95% low", "95% high")
"""What the runs add to the table: the measurements until the true α alone is left, and those relative to uniform times."""


def item(
    most: int = 64,
    cases: Sequence[tuple[float, float]] = ((1, 1), RUN, (4, 4)),
    counts: Sequence[int] = (4, 16, 64),
    N: int = 2**12,
    seeds: int = 40,
    quick: int = 10,
) -> Item:
    """The closed form for a few (T, u_min), with m up to `most`; runs with some m on the grid, and one at a uniform time."""
    horizon, u_min = RUN
    arguments = {"horizon": horizon, "u_min": u_min, "rewards": "linear"}
    sets = {"learner.radius": "anytime", "learner.delta": DELTA}
    samplers = {"uniform": {"sampler": "uniform", "sampler.m": 1}}
    samplers |= {f"grid{m}": {"sampler": "equidistant", "sampler.m": m} for m in counts}
    return Item(
        "prop2-independency",
        "Proposition 2: C_{T,m} ≤ 1 + m/(2T u_min) for the Ornstein-Uhlenbeck process on the grid iT/m",
        analyze,
        draw,
        tuple(
            Group(name, name, "ou", "pure-low-rollout", arguments, {**sets, **sampler}, N)
            for name, sampler in samplers.items()
        ),
        seeds,
        quick,
        cost="about 2 minutes of computing, 1 with --quick, halved on two cores",
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
    """Every case (T, u_min) for all m, and the runs."""
    cases = [
        {"horizon": entry["arguments"]["horizon"], "u_min": entry["arguments"]["u_min"], **entry["value"]}
        for entry in computed.values()
    ]
    points = [
        (case["horizon"], case["u_min"], m, value, bound)
        for case in cases
        for m, value, bound in zip(case["m"], case["value"], case["bound"], strict=True)
    ]
    runs = _compare(found, {m: value for T, u_min, m, value, _ in points if (T, u_min) == RUN})
    rows = []
    for T, u_min, m, value, bound in points:
        if m & m - 1 == 0:
            seen = runs.get(m, {}) if (T, u_min) == RUN else {}
            row = {"T": T, "u_min": u_min, "m": m, "C": value, "1 + m/(2T u_min)": bound}
            rows.append({**row, **{column: seen.get(column) for column in COLUMNS}})
    T, u_min, m, value, bound = max(points, key=lambda point: point[3] / point[4])
    few = [value for T, u_min, m, value, _ in points if m <= 2 * T * u_min]
    checks = (
        Check(
            "C at most 1 + m/(2T u_min), for every m",
            f"at most {value / bound:.3f} of it (T = {T:g}, u_min = {u_min:g}, m = {m})",
            value <= bound,
        ),
        Check("C at most 2 while m ≤ 2T u_min", f"at most {max(few):.3f} there", max(few) <= 2),
        coverage_check(found),
        *_checks(found, runs),
    )
    return Analysis({"cases": cases, "runs": {str(m): row for m, row in runs.items()}}, Table.of(rows), checks)


def decided(runs: Runs) -> np.ndarray:
    """The measurements of every run after which the set of rewards has a single member until the end [seeds]."""
    needed = []
    for records in runs.records():
        sizes = np.array([record["rewards"] for record in records])
        after = np.flatnonzero(sizes > 1)
        last = int(after[-1]) + 1 if after.size else 0
        needed.append(records[last]["measurements"] if last < len(records) else budget(runs))
    return np.array(needed, float)


def _compare(found: Mapping[str, Runs], known: Mapping[int, float]) -> dict[int, dict[str, Any]]:
    """The measurements that the runs needed, by m, beside those at uniform times and C."""
    uniform = decided(found["uniform"])
    rows = {}
    for name, runs in found.items():
        if name != "uniform":
            m = runs.group.overrides["sampler.m"]
            share = ratio(KEY.child("decided", name), decided(runs), uniform)
            row = {"covered": f"{int(covered(runs).sum())}/{len(runs.seeds)}", "measurements": mean(decided(runs))}
            rows[m] = {**row, **share.columns("relative"), "C": known[m]}
    return rows


def _checks(found: Mapping[str, Runs], runs: Mapping[int, Mapping[str, Any]]) -> tuple[Check, Check]:
    worst = max(float(np.abs(gap(one)).max()) for one in found.values())
    seen = [f"m = {m}: {row['relative']:.2f} [{row['95% low']:.2f}, {row['95% high']:.2f}]" for m, row in runs.items()]
    alone = mean(decided(found["uniform"]))
    return (
        Check("no regret, since all policies are worth zero", f"at most {worst:g}", worst == 0),
        Check(
            "until the true α alone is left, at most C times the measurements at uniform times, within its interval",
            f"{', '.join(seen)}, of {alone:,.0f}",
            all(row["95% low"] <= row["C"] for row in runs.values()),
        ),
    )


def draw(numbers: Mapping[str, Any]) -> Figure:
    """C solid, its bound dashed, one colour per case; the measurements that the runs needed as points."""
    with panels(1, height=4.6) as (figure, (axes,)):
        for index, case in enumerate(numbers["cases"]):
            label = f"T = {case['horizon']:g}, u$_{{min}}$ = {case['u_min']:g}"
            axes.plot(case["m"], case["value"], color=COLOURS[index], linewidth=1.8, label=label)
            axes.plot(case["m"], case["bound"], **{**CRITERION, "color": COLOURS[index]})
        axes.plot([], [], **CRITERION, label="bound 1 + m/(2T u$_{min}$)")
        rows = {int(m): row for m, row in numbers["runs"].items()}
        names = {"mean": "relative", "low": "95% low", "high": "95% high"}
        needed = {name: [row[column] for row in rows.values()] for name, column in names.items()}
        label = f"measurements needed, T = {RUN[0]:g}, u$_{{min}}$ = {RUN[1]:g}"
        scatter(axes, {"x": list(rows), **needed}, len(numbers["cases"]), label)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_ylabel("independency coefficient C$_{T,m}$")
        counts = [m for m in numbers["cases"][0]["m"] if m & m - 1 == 0]
        label_sizes(axes, counts, "measurements per episode, m")
        legend_below(figure, columns=2)
    return figure

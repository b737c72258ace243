"""Theorem 1 with the paper's real measurement: the difference quotient, compared with a model's drift or with its flow.

Confidence sets assume E[y | z] = f*(z). A quotient over Δ has another mean, by O(Δ). Hypotheses, fixed in advance: compared
with the drift at t, the truth leaves the set when there are enough measurements; compared with the flow over Δ, it stays in
at least 1 − δ of the runs at every N. The truth is simulated with another solver and on a finer grid than the planner's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from purectrl.paper.coverage import DELTA
from purectrl.paper.figures import COLOURS, CRITERION, Figure, label_sizes, legend_below, log_height, panels
from purectrl.paper.item import Computation, Item
from purectrl.paper.load import Runs
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import wilson

STEP: Mapping[str, float] = {"lists": 0.4, "linear": 0.2}
"""Δ for each kind of class; chosen on the seed 100, which is not reported, such that N shows the bias."""
WAYS: Mapping[str, str] = {
    "drawn": "y drawn as in the model",
    "drift": "quotient, compared with the drift",
    "flow": "quotient, compared with the flow",
}


def item(
    last: Mapping[str, int] = {"lists": 2**17, "linear": 2**16},
    first: int = 2**10,
    runs: int = 10,
) -> Item:
    """Sequences of measurements under random policies, for both kinds of classes and all ways to measure and compare."""
    computations = []
    for members, most in last.items():
        sizes = [first * 2**k for k in range((most // first).bit_length())]
        for way in WAYS:
            arguments = {"members": members, "way": way, "runs": runs, "sizes": sizes}
            more = {"delta": DELTA, "step": STEP[members]}
            computations.append(Computation(f"{members}, {way}", multiples, {**arguments, **more}))
    return Item(
        "thm1-quotient",
        "Theorem 1 with difference quotients: whether the truth stays in the confidence sets as N grows",
        analyze,
        draw,
        cost="about 4 minutes of computing",
        computations=tuple(computations),
    )


def multiples(**arguments: Any) -> list[list[float]]:
    """The multiples of the radius that sequences of measurements need."""
    from purectrl.problems.quotient_trials import multiples_by_size

    return multiples_by_size(**arguments)


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """The share of covered sequences over N, and the multiple of the radius that would have covered a share 1 − δ."""
    rows, checks = [], []
    for entry in computed.values():
        arguments, needed = entry["arguments"], np.array(entry["value"])
        for place, N in enumerate(arguments["sizes"]):
            inside = needed[:, place] <= 1
            rows.append(
                {
                    "classes": arguments["members"],
                    "way": arguments["way"],
                    "N": N,
                    "runs": len(inside),
                    "covered": int(inside.sum()),
                    **wilson(int(inside.sum()), len(inside)).columns("share"),
                    "radius needed for 1 − δ": float(np.quantile(needed[:, place], 1 - DELTA, method="higher")),
                }
            )
    for members in STEP:
        chosen = [row for row in rows if row["classes"] == members]
        checks += [_stays(members, way, chosen) for way in ("flow", "drawn")] + [_leaves(members, chosen)]
    largest = {members: max(row["N"] for row in rows if row["classes"] == members) for members in STEP}
    shown = [row for row in rows if row["N"] in (largest[row["classes"]], largest[row["classes"]] // 8)]
    return Analysis({"rows": rows, "step": dict(STEP)}, Table.of(shown), tuple(checks))


def _stays(members: str, way: str, rows: Sequence[Mapping[str, Any]]) -> Check:
    """Whether the truth is covered at every N."""
    own = [row for row in rows if row["way"] == way]
    worst = min(own, key=lambda row: row["share"])
    criterion = f"{members}, {WAYS[way]}: truth in the set for all n in at least 1 − δ = {1 - DELTA:g} of the runs"
    observed = f"{worst['covered']} of {worst['runs']} at N = {worst['N']:,}, the fewest at any N"
    return Check(criterion, observed, worst["share"] >= 1 - DELTA)


def _leaves(members: str, rows: Sequence[Mapping[str, Any]]) -> Check:
    """Whether plain drifts lose the truth at the largest N."""
    last = max((row for row in rows if row["way"] == "drift"), key=lambda row: row["N"])
    criterion = f"{members}, {WAYS['drift']}: truth outside the set in most runs at the largest N"
    observed = f"inside in {last['covered']} of {last['runs']} at N = {last['N']:,}"
    return Check(criterion, observed, last["share"] < 0.5)


def draw(numbers: Mapping[str, Any]) -> Figure:
    """For each kind of class the multiple of the radius over N, with the one that contains the truth by definition."""
    with panels(len(numbers["step"]), height=4.4) as (figure, every):
        for axes, (members, step) in zip(every, numbers["step"].items(), strict=True):
            rows = [row for row in numbers["rows"] if row["classes"] == members]
            for index, (way, label) in enumerate(WAYS.items()):
                own = [row for row in rows if row["way"] == way]
                heights = [row["radius needed for 1 − δ"] for row in own]
                axes.plot([row["N"] for row in own], heights, "os^"[index] + "-", color=COLOURS[index], label=label)
            axes.axhline(1.0, **CRITERION, label="the radius")
            log_height(axes)
            label_sizes(axes, sorted({row["N"] for row in rows})[::2], "measurements N")
            axes.set(ylabel="multiple of the radius that covers 90 %", title=f"{members}, Δ = {step:g}")
        legend_below(figure, columns=2)
    return figure

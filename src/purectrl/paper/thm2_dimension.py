"""Theorem 2 with linear classes: how the number of policy updates grows with the dimension and, within a run, with n.

On `circle` with rewards that are linear in d + 1 features, and unit noise. Counts over n are those of one run, not of runs
with different N. Beside them, on the same data: how often the determinant of the ridge regression doubled, the rule of many
linear bandits, and how often n did.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from purectrl.paper.coverage import DELTA, coverage_check, covered
from purectrl.paper.figures import COLOURS, CRITERION, Figure, label_sizes, legend_below, panels, series
from purectrl.paper.item import Group, Item
from purectrl.paper.load import KEY, Runs, budget, curve, gap, matrix, policy_changes, updates
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import Interval, mean, slope

EXPONENT = 1.0
"""The theorem's exponent of d_F + d_R."""
LIGHT: Mapping[str, Any] = {
    "learner": "linear-sets",
    "learner.radius": "anytime",
    "learner.delta": DELTA,
    "learner.num_restarts": 4,
    "learner.iterations": 40,
    "learner.paths": 16,
    "schedule.renew": "both",
}
"""Linear classes with anytime-valid sets, both renewed at every update, and a planner with few starting points."""


def item(dimensions: Sequence[int] = (1, 2, 4, 8), N: int = 2**12, seeds: int = 10, quick: int = 3) -> Item:
    """Algorithm 2, repaired, for several d; the rewards of all unknowns together are the same."""
    groups = []
    for d in dimensions:
        arguments = {"dimension": d, "distance": min(0.4 / d, 0.2), "diffusion": math.sqrt(20.0), "steps": 2}
        groups.append(Group(f"d{d}", f"d = {d}", "circle", "pure-low-switch", arguments, LIGHT, N))
    return Item(
        "thm2-dimension",
        "Theorem 2 with linear classes: policy updates at most in proportion to (d_F + d_R) log N, within a run",
        analyze,
        draw,
        tuple(groups),
        seeds,
        quick,
        cost="about 3 minutes of computing, 2 with --quick, halved on two cores",
    )


def features(runs: Runs) -> int:
    """The number of features d + 1 of the rewards, in whose place Theorem 2 has d_R; the drift is known."""
    return runs.group.arguments["dimension"] + 1


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """Updates and policy changes over d and within runs, beside the bound and the two other rules."""
    ordered = sorted(found.values(), key=features)
    rows = []
    for runs in ordered:
        doublings, N = mean(runs.metric("determinant_doublings")), budget(runs)
        rows.append(
            {
                "d": runs.group.arguments["dimension"],
                "covered": f"{int(covered(runs).sum())}/{len(runs.seeds)}",
                "updates": mean(updates(runs)),
                "policy changes": mean(policy_changes(runs)),
                "(d + 1) log N": features(runs) * math.log(N),
                "doublings of the determinant": doublings,
                "doublings of n": math.log2(N),
                "regret": mean(gap(runs)),
            }
        )
    exponent = slope(
        KEY.child("exponent"), np.array([features(runs) for runs in ordered], float), matrix(ordered, plans)
    )
    within = {runs.group.label: within_run(runs) for runs in ordered}
    numbers = {
        "rows": rows,
        "changes": _without_seeds(curve(ordered, features, policy_changes, "changes")),
        "exponent": exponent._asdict(),
        "within": within,
    }
    return Analysis(numbers, Table.of(rows), (coverage_check(found), *_checks(rows, exponent, within)))


def plans(runs: Runs) -> np.ndarray:
    """The number of plans that every run executed one after the other [seeds]: its policy changes and the first."""
    return policy_changes(runs) + 1


def _without_seeds(points: dict[str, Any]) -> dict[str, Any]:
    return {name: points[name] for name in ("x", "mean", "low", "high")}


def within_run(runs: Runs) -> dict[str, list[float]]:
    """The mean number of updates after n = 1, 2, 4, … measurements of a run."""
    N = budget(runs)
    sizes = [2**exponent for exponent in range(int(math.log2(N)) + 1)]
    counts = np.zeros(len(sizes))
    for records in runs.records():
        at = [record["measurements"] for record in records]
        total = [record["updates"] for record in records]
        after = np.searchsorted(at, sizes, side="right") - 1
        counts += [total[index] if index >= 0 else 0 for index in after]
    return {"x": [float(n) for n in sizes], "y": (counts / len(runs.seeds)).tolist()}


def _checks(
    rows: Sequence[Mapping[str, Any]], exponent: Interval, within: Mapping[str, Mapping[str, Sequence[float]]]
) -> tuple[Check, ...]:
    worst = max(rows, key=lambda row: row["policy changes"] / row["(d + 1) log N"])
    beside = max(rows, key=lambda row: row["updates"] / row["doublings of the determinant"])
    last = {label: (curve["y"][-1] - curve["y"][-3]) / 2 for label, curve in within.items()}
    return (
        Check(
            "policy changes at most (d_F + d_R) log N with d_R = d + 1 and the factor one",
            f"at most {worst['policy changes'] / worst['(d + 1) log N']:.3f} of it, at d = {worst['d']}",
            worst["policy changes"] <= worst["(d + 1) log N"],
        ),
        Check(
            f"exponent of d + 1 in the number of executed plans at most {EXPONENT:g}",
            f"{exponent:.2f} for d = {rows[0]['d']} to {rows[-1]['d']}",
            exponent.value <= EXPONENT,
        ),
        Check(
            "within a run: updates per doubling of n at most (d + 1) log 2, over the last two doublings",
            ", ".join(f"{label}: {count:.2f}" for label, count in last.items()),
            all(last[f"d = {row['d']}"] <= (row["d"] + 1) * math.log(2) for row in rows),
        ),
        Check(
            "fewer updates than doublings of the determinant on the same data, for every d",
            f"at most {beside['updates'] / beside['doublings of the determinant']:.2f} of them, at d = {beside['d']}",
            all(row["updates"] < row["doublings of the determinant"] for row in rows),
        ),
    )


def draw(numbers: Mapping[str, Any]) -> Figure:
    """Left the counts over the dimension, right those of updates within a run."""
    with panels(2, height=4.6) as (figure, (left, right)):
        rows, x = numbers["rows"], numbers["changes"]["x"]
        series(left, numbers["changes"], 0, "policy changes, PURE LowSwitch")
        left.plot(
            x, [row["doublings of the determinant"] for row in rows], "s-", color=COLOURS[1], label="doublings of det"
        )
        left.plot(x, [row["doublings of n"] for row in rows], "^-", color=COLOURS[2], label="doublings of n")
        left.plot(x, [row["(d + 1) log N"] for row in rows], **CRITERION, label="criterion: (d + 1) log N")
        left.set(
            ylim=(0, None), xlabel="features d + 1", ylabel="count at the end of a run", title="over the dimension"
        )
        left.set_xticks(x)
        for index, (label, curve) in enumerate(numbers["within"].items()):
            right.plot(curve["x"], curve["y"], "o-", color=COLOURS[index + 2], markersize=4, linewidth=1.5, label=label)
        right.set(ylim=(0, None), ylabel="updates so far, mean", title="within a run")
        sizes = next(iter(numbers["within"].values()))["x"]
        label_sizes(right, sizes[::2], "measurements n")
        legend_below(figure, columns=4)
    return figure

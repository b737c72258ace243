"""Theorem 2 with linear and kernel classes: how the number of policy updates grows with the dimension and, within a run,
with n.

On `circle` with rewards that are linear in d + 1 features, or in a ball of functions of a kernel, 1 + 7d coordinates; unit
noise. Counts over n are those of one run, not of runs with different N. Beside them, on the same data: the information gain
γ_N, in whose place a kernel class has (d_R log N)/2; how often the determinant of the ridge regression doubled, the rule of
many linear bandits; and how often n did.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from purectrl.paper.coverage import DELTA, coverage_check, covered
from purectrl.paper.figures import COLOURS, CRITERION, Axes, Figure, label_sizes, legend_below, panels, series
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
LINEAR, KERNEL = "linear", "kernel"
KERNEL_SEEDS = 4
"""Seeds of the runs with kernel classes, which take several times as long."""
FEATURES = {LINEAR: 1, KERNEL: 7}
"""Features of the rewards per dimension, beside the constant."""


def item(dimensions: Sequence[int] = (1, 2, 4, 8), N: int = 2**12, seeds: int = 10, quick: int = 3) -> Item:
    """Algorithm 2, repaired, for several d; the rewards of all unknowns together are the same."""
    groups = []
    for kind in (LINEAR, KERNEL):
        for d in dimensions:
            arguments = {"dimension": d, "distance": min(0.4 / d, 0.2), "diffusion": math.sqrt(20.0), "steps": 2}
            name, overrides = "" if kind == LINEAR else f"{kind}-", {**LIGHT, "learner": f"{kind}-sets"}
            most = None if kind == LINEAR else KERNEL_SEEDS
            groups.append(Group(f"{name}d{d}", f"d = {d}", "circle", "pure-low-switch", arguments, overrides, N, most))
    return Item(
        "thm2-dimension",
        "Theorem 2 with linear and kernel classes: policy updates at most in proportion to (d_F + d_R) log N, within a run",
        analyze,
        draw,
        tuple(groups),
        seeds,
        quick,
        cost="about 7 minutes of computing, 3 with --quick, halved on two cores",
    )


def kind_of(runs: Runs) -> str:
    """The kind of classes."""
    return runs.group.overrides["learner"].removesuffix("-sets")


def features(runs: Runs) -> int:
    """The number of features of the rewards, in whose place Theorem 2 has d_R; the drift is known."""
    return FEATURES[kind_of(runs)] * runs.group.arguments["dimension"] + 1


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """Updates and policy changes over d and within runs, beside the bounds and the two other rules."""
    rows, checks, numbers = [], [coverage_check(found)], {}
    for kind in (LINEAR, KERNEL):
        ordered = sorted((runs for runs in found.values() if kind_of(runs) == kind), key=features)
        own = [_row(kind, runs) for runs in ordered]
        sizes = np.array([features(runs) for runs in ordered], float)
        exponent = slope(KEY.child("exponent", *([] if kind == LINEAR else [kind])), sizes, matrix(ordered, plans))
        within = {runs.group.label: within_run(runs) for runs in ordered}
        numbers[kind] = {
            "rows": own,
            "changes": _without_seeds(curve(ordered, dimension, policy_changes, f"changes {kind}")),
            "exponent": exponent._asdict(),
            "within": within,
        }
        rows += own
        checks += _checks(kind, own, exponent, within)
    return Analysis(numbers, Table.of(rows), tuple(checks))


def dimension(runs: Runs) -> int:
    """d."""
    return runs.group.arguments["dimension"]


def _row(kind: str, runs: Runs) -> dict[str, Any]:
    doublings, N = mean(runs.metric("determinant_doublings")), budget(runs)
    return {
        "class": kind,
        "d": dimension(runs),
        "features p": features(runs),
        "covered": f"{int(covered(runs).sum())}/{len(runs.seeds)}",
        "updates": mean(updates(runs)),
        "policy changes": mean(policy_changes(runs)),
        "p log N": features(runs) * math.log(N),
        "2 γ_N": doublings * math.log(2),
        "doublings of the determinant": doublings,
        "doublings of n": math.log2(N),
        "regret": mean(gap(runs)),
    }


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
    kind: str,
    rows: Sequence[Mapping[str, Any]],
    exponent: Interval,
    within: Mapping[str, Mapping[str, Sequence[float]]],
) -> tuple[Check, ...]:
    bound = "p log N" if kind == LINEAR else "2 γ_N"
    worst = max(rows, key=lambda row: row["policy changes"] / row[bound])
    beside = max(rows, key=lambda row: row["updates"] / row["doublings of the determinant"])
    last = {label: (curve["y"][-1] - curve["y"][-3]) / 2 for label, curve in within.items()}
    return (
        Check(
            f"{kind}: policy changes at most {bound} with the factor one, in the place of (d_F + d_R) log N",
            f"at most {worst['policy changes'] / worst[bound]:.3f} of it, at d = {worst['d']}",
            worst["policy changes"] <= worst[bound],
        ),
        Check(
            f"{kind}: exponent of the number of features p in the number of executed plans at most {EXPONENT:g}",
            f"{exponent:.2f} for p = {rows[0]['features p']} to {rows[-1]['features p']}",
            exponent.value <= EXPONENT,
        ),
        Check(
            f"{kind}: within a run, updates per doubling of n at most p log 2, over the last two doublings",
            ", ".join(f"{label}: {count:.2f}" for label, count in last.items()),
            all(last[f"d = {row['d']}"] <= row["features p"] * math.log(2) for row in rows),
        ),
        Check(
            f"{kind}: fewer updates than doublings of the determinant on the same data, for every d",
            f"at most {beside['updates'] / beside['doublings of the determinant']:.2f} of them, at d = {beside['d']}",
            all(row["updates"] < row["doublings of the determinant"] for row in rows),
        ),
    )


def draw(numbers: Mapping[str, Any]) -> Figure:
    """Left the counts over the dimension, then those of updates within a run, of linear and of kernel classes."""
    with panels(3, height=4.6) as (figure, (left, *others)):
        for index, kind in enumerate((LINEAR, KERNEL)):
            one, colour = numbers[kind], COLOURS[index]
            series(left, one["changes"], index, f"policy changes, {kind}")
            bound = "p log N" if kind == LINEAR else "2 γ_N"
            at = [row["d"] for row in one["rows"]]
            label = "criterion: p log N (linear) or 2γ$_N$ (kernel)" if kind == LINEAR else None
            left.plot(at, [row[bound] for row in one["rows"]], **{**CRITERION, "color": colour}, label=label)
            doublings = [row["doublings of the determinant"] for row in one["rows"]]
            left.plot(at, doublings, "^:", color=colour, markersize=5, label=f"doublings of det, {kind}")
        left.set_yscale("log")
        left.set(xlabel="dimension d", ylabel="count at the end of a run", title="over the dimension")
        left.set_xticks(numbers[LINEAR]["changes"]["x"])
        for axes, kind in zip(others, (LINEAR, KERNEL), strict=True):
            _draw_within(axes, numbers[kind]["within"], kind)
        legend_below(figure, columns=4)
    return figure


def _draw_within(axes: Axes, within: Mapping[str, Mapping[str, Sequence[float]]], kind: str) -> None:
    for index, (label, points) in enumerate(within.items(), 2):
        shown = label if kind == LINEAR else None
        axes.plot(points["x"], points["y"], "o-", color=COLOURS[index], markersize=4, linewidth=1.5, label=shown)
    axes.set(ylim=(0, None), ylabel="updates so far, mean", title=f"within a run, {kind}")
    sizes = next(iter(within.values()))["x"]
    label_sizes(axes, sizes[::4], "measurements n")

"""Algorithm 2 with networks where little is known: a swing-up and a system of six dimensions; optimism beside its rivals.

The sets are anytime-valid; their coverage is a criterion. All runs have the same planner, with the models of the sets that
promise most (optimism), with the best fits (greedy), or with random members of the sets (Thompson sampling).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from purectrl.paper.coverage import coverage_check, covered
from purectrl.paper.figures import COLOURS, CRITERION, Figure, legend_below, panels
from purectrl.paper.item import Group, Item
from purectrl.paper.load import KEY, Runs, budget, updates
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import MIN_SEEDS, mean, mean_interval

MAX_RATIO = 0.1
"""Criterion: the largest share of a random policy's gap that the last policy with optimism may have, mean over seeds."""
SYSTEMS: Mapping[str, str] = {"swing-up": "swing-up, d = 2", "quadrotor": "quadrotor, d = 6"}
MODES: Mapping[str, str] = {"optimism": "optimism", "greedy": "greedy", "thompson": "Thompson sampling"}
LIGHT: Mapping[str, Any] = {
    "sampler.m": 4,
    "schedule.threshold": 2.0,
    "learner.width": 16,
    "learner.check_steps": 200,
    "learner.update_steps": 500,
    "learner.num_restarts": 4,
    "learner.iterations": 300,
}
"""Settings chosen on the seed 100, which is not reported; a run takes a minute and not a quarter of an hour. Models are
renewed when they are two radii off and not five: the regret bound then has 2β for 5β, but the proof of Theorem 2 counts
updates only for more than three."""


def item(
    systems: Sequence[str] = ("swing-up",),
    modes: Sequence[str] = tuple(MODES),
    measurements: int = 2000,
    seeds: int = 20,
    quick: int = 2,
) -> Item:
    """The given systems with all ways to choose the models."""
    groups = []
    for system in systems:
        for mode in modes:
            arguments = {"system": system, "steps": 20}
            overrides = {**LIGHT, "learner.exploration": mode}
            label = f"{SYSTEMS[system]}, {MODES[mode]}"
            groups.append(
                Group(f"{system}-{mode}", label, "neural", "pure-low-both", arguments, overrides, measurements)
            )
    return Item(
        "neural-systems",
        "Algorithm 2 with networks on a swing-up and on a quadrotor: optimism, greedy and Thompson sampling",
        analyze,
        draw,
        tuple(groups),
        seeds,
        quick,
        cost="about 40 minutes of computing, 7 with --quick, halved on two cores",
    )


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """The gaps of the last policy and of all executed ones relative to a random policy's, updates and coverage."""
    rows = []
    for name, runs in found.items():
        random = runs.metric("gap_random")
        last, average = runs.metric("gap_final") / random, runs.metric("gap") / random
        rows.append(
            {
                "": runs.group.label,
                "seeds": len(last),
                "gap of the last policy / random": mean(last),
                **_interval(name, last),
                "worst": float(last.max()),
                "average gap / random": mean(average),
                "updates": mean(updates(runs)),
                "covered": f"{int(covered(runs).sum())}/{len(last)}",
                "radius needed": float(runs.metric("radius_needed").max()),
            }
        )
    last = {name: (runs.metric("gap_final") / runs.metric("gap_random")).tolist() for name, runs in found.items()}
    labels = {name: runs.group.label for name, runs in found.items()}
    checks = [coverage_check(found)]
    for name, values in last.items():
        if name.endswith("-optimism"):
            checks.append(_near_optimum(labels[name], values, budget(found[name])))
            rivals = {other: last[other] for other in last if other != name and other.startswith(name[:-8])}
            checks += [_not_worse(labels[name], labels[other], values, theirs) for other, theirs in rivals.items()]
    return Analysis({"last": last, "labels": labels, "rows": rows}, Table.of(rows), tuple(checks))


def _interval(name: str, values: np.ndarray) -> dict[str, float | None]:
    """The interval of the mean, if there are enough seeds."""
    if len(values) < MIN_SEEDS:
        return {"95% low": None, "95% high": None}
    found = mean_interval(KEY.child("neural", name), values)
    return {"95% low": found.low, "95% high": found.high}


def _mean(values: Sequence[float]) -> float:
    return mean(np.array(values))


def _near_optimum(label: str, values: Sequence[float], N: int) -> Check:
    good = sum(value <= MAX_RATIO for value in values)
    return Check(
        f"{label}: gap of the last policy at most {MAX_RATIO:g} of a random policy's, mean over seeds, N = {N:,}",
        f"{_mean(values):.3f}; {good} of {len(values)} runs, at worst {max(values):.3g}",
        _mean(values) <= MAX_RATIO,
    )


def _not_worse(label: str, other: str, ours: Sequence[float], theirs: Sequence[float]) -> Check:
    kind = other.rpartition(", ")[2]
    return Check(
        f"{label}: gap of the last policy no larger than with {kind}",
        f"{_mean(ours):.3f} against {_mean(theirs):.3f}",
        _mean(ours) <= _mean(theirs),
    )


def draw(numbers: Mapping[str, Any]) -> Figure:
    """The gap of the last policy of every run, a row per group."""
    with panels(1, height=1.8 + 0.45 * len(numbers["last"])) as (figure, (axes,)):
        for height, (name, values) in enumerate(numbers["last"].items()):
            colour = COLOURS[list(MODES).index(name.rpartition("-")[2])]
            axes.plot(values, np.full(len(values), height), "|", markersize=11, color=colour)
            axes.plot([np.mean(values)], [height], "o", markersize=7, color=colour)
        axes.axvline(MAX_RATIO, **CRITERION, label=f"criterion: {MAX_RATIO:g}")
        axes.set_yticks(range(len(numbers["last"])), list(numbers["labels"].values()))
        axes.set(xlabel="gap of the last policy / random policy's", xlim=(0, None))
        axes.set_ylim(len(numbers["last"]) - 0.5, -0.5)
        legend_below(figure)
    return figure

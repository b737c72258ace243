"""When intermediate measurements help: the direction of a fitted reward model, by what is labelled."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from purectrl.paper.figures import COLOURS, Figure, legend_below, panels
from purectrl.paper.item import Computation, Item
from purectrl.paper.load import Runs
from purectrl.paper.results import Analysis, Check, Table

CASES: Sequence[tuple[str, int, float]] = (
    ("linear", 75, 0.5),
    ("linear", 150, 0.5),
    ("linear", 300, 0.5),
    ("linear", 150, 0.0),
    ("saturating", 150, 0.5),
)
"""Reward, trajectories n, label noise."""


def item(cases: Sequence[tuple[str, int, float]] = CASES, preferences: int = 10) -> Item:
    """Labels on n trajectories, and SEIKO's on 4n, for hidden preferences on a frozen embedding."""
    return Item(
        "diffusion-regimes",
        "When intermediate measurements help: labels on n trajectories beside SEIKO's on 4n, by reward, noise and n",
        analyze,
        draw,
        computations=tuple(
            Computation(
                f"{reward} n={n} noise={noise:g}",
                alignment,
                {"reward": reward, "n": n, "noise": noise, "preferences": preferences},
            )
            for reward, n, noise in cases
        ),
        cost="minutes",
    )


def alignment(**arguments: Any) -> dict[str, list[float]]:
    """The cosine between the gradients of fitted and true reward, per preference, by what is labelled."""
    from purectrl.diffusion.alignment import alignment as compute

    return compute(**arguments)


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """x(t) at all times beside final images on as many trajectories, and beside SEIKO on four times as many."""
    cases = [{**entry["arguments"], "cosines": entry["value"]} for entry in computed.values()]
    arms = list(cases[0]["cosines"])
    columns = ("labels", *(f"{case['reward']}, n = {case['n']}, noise {case['noise']:g}" for case in cases))
    rows = tuple((arm, *(float(np.mean(case["cosines"][arm])) for case in cases)) for arm in arms)
    checks = list[Check]()
    for case in cases:
        if case["reward"] != "linear" or case["noise"] == 0:
            continue
        where = f"n = {case['n']}, noise {case['noise']:g}"
        checks.append(
            _ahead(case, "finals", f"{where}: x(t) at four times above final images on the same trajectories", 2)
        )
        checks.append(
            _ahead(case, "more-finals", f"{where}: x(t) at four times not below SEIKO with 4n trajectories", -1)
        )
    return Analysis({"cases": cases}, Table(columns, rows), tuple(checks))


def _ahead(case: Mapping[str, Any], other: str, criterion: str, errors: float) -> Check:
    """Whether x(t) at all times is ahead of another arm by so many standard errors of the paired difference."""
    difference = np.array(case["cosines"]["states"]) - np.array(case["cosines"][other])
    mean, error = difference.mean(), difference.std(ddof=1) / len(difference) ** 0.5
    return Check(criterion, f"difference of cosines {mean:.3f} ± {error:.3f}", bool(mean > errors * error))


def draw(numbers: Mapping[str, Any]) -> Figure:
    """Mean cosine of each arm, one group of bars per case."""
    from purectrl.diffusion.alignment import ARMS

    cases = numbers["cases"]
    with panels(1, height=4.8) as (figure, (axes,)):
        for index, (arm, label) in enumerate(ARMS.items()):
            heights = [float(np.mean(case["cosines"][arm])) for case in cases]
            errors = [float(np.std(case["cosines"][arm], ddof=1) / len(case["cosines"][arm]) ** 0.5) for case in cases]
            places = np.arange(len(cases)) + (index - 2.5) * 0.13
            axes.bar(places, heights, 0.12, yerr=errors, color=COLOURS[index], label=label)
        axes.set_xticks(range(len(cases)), [f"{c['reward']}\nn = {c['n']}\nnoise {c['noise']:g}" for c in cases])
        axes.set_ylabel("cosine between ∇r̂ and ∇r")
        legend_below(figure, columns=2)
    return figure

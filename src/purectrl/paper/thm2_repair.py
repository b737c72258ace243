"""Theorem 2: Algorithm 2 with both confidence sets renewed at every update, beside the paper's rule, over paired seeds.

Runs of one seed see the same measurements until the first update at which the rules differ. `docs/algorithm-2.md` has the
gap in the paper's proof that the repair closes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from purectrl.paper.coverage import coverage_check, covered
from purectrl.paper.figures import COLOURS, CRITERION, MARKERS, Axes, Figure, legend_below, panels
from purectrl.paper.item import Group, Item
from purectrl.paper.load import KEY, Runs, gap, policy_changes, updates
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import ROUNDING, mean, mean_interval, ratio
from purectrl.paper.thm2_switches import RICH

RULES = ("failed", "both")
"""The paper's rule, then the repair."""
SETTINGS: Mapping[str, Mapping[str, Any]] = {"default": {}, "low noise": RICH}
"""Arguments of `finite`: its own, with unit noise, and those of `thm2-switches`."""


def item(N: int = 2**14, seeds: int = 50, quick: int = 10) -> Item:
    """Both rules with the same seeds, on `finite` with two kinds of lists."""
    groups = [
        Group(
            f"{label.replace(' ', '-')}-{rule}",
            label,
            "finite",
            "pure-low-switch",
            arguments,
            {"learner.paths": 32, "schedule.renew": rule},
            N,
        )
        for label, arguments in SETTINGS.items()
        for rule in RULES
    ]
    return Item(
        "thm2-repair",
        "Theorem 2: PURE LowSwitch with both sets renewed at every update, beside the paper's rule, over paired seeds",
        analyze,
        draw,
        tuple(groups),
        seeds,
        quick,
        cost="about 3 minutes of computing, 1 with --quick, halved on two cores",
    )


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """Updates, policy changes and regret of every pair of runs."""
    rows, checks, pairs = [], [coverage_check(found)], {}
    for label, (failed, both) in _pairs(found).items():
        fewer = updates(both) - updates(failed)
        regret = {rule: gap(runs) for rule, runs in zip(RULES, (failed, both), strict=True)}
        share = ratio(KEY.child("regret", label), regret["both"], regret["failed"])
        larger = int((regret["both"] > regret["failed"] * (1 + ROUNDING)).sum())
        rows += [_row(label, rule, runs) for rule, runs in zip(RULES, (failed, both), strict=True)]
        pairs[label] = {
            "updates": {rule: updates(runs).tolist() for rule, runs in zip(RULES, (failed, both), strict=True)},
            "regret": {rule: values.tolist() for rule, values in regret.items()},
        }
        difference = mean_interval(KEY.child("updates", label), fewer)
        checks += [
            Check(
                f"{label}: both sets renewed, at most as many updates as the paper's rule in every pair",
                f"more in {int((fewer > 0).sum())} of {len(fewer)} pairs, fewer in {int((fewer < 0).sum())}; "
                f"mean difference {difference:.2f}",
                bool((fewer <= 0).all()),
            ),
            Check(
                f"{label}: at most its regret in every pair",
                f"larger in {larger} of {len(fewer)} pairs, at most {_worst(regret):.3f} times",
                larger == 0,
            ),
            Check(f"{label}: at most its mean regret", f"{share:.3f} times", share.value <= 1 + ROUNDING),
        ]
    return Analysis({"pairs": pairs}, Table.of(rows), tuple(checks))


def _pairs(found: Mapping[str, Runs]) -> dict[str, tuple[Runs, Runs]]:
    """The groups of the paper's rule and of the repair, by their label."""
    by_rule = {(runs.group.label, runs.group.overrides["schedule.renew"]): runs for runs in found.values()}
    labels = dict.fromkeys(label for label, _ in by_rule)
    return {label: (by_rule[label, RULES[0]], by_rule[label, RULES[1]]) for label in labels}


def _worst(regret: Mapping[str, np.ndarray]) -> float:
    """The largest regret of the repair relative to that of the paper's rule, of all pairs."""
    return float((regret["both"] / regret["failed"]).max())


def _row(label: str, rule: str, runs: Runs) -> dict[str, Any]:
    return {
        "lists": label,
        "renews": rule,
        "pairs": len(runs.seeds),
        "covered": int(covered(runs).sum()),
        "updates": mean(updates(runs)),
        "most": int(updates(runs).max()),
        "policy changes": mean(policy_changes(runs)),
        **mean_interval(KEY.child("regret", label, rule), gap(runs)).columns("regret"),
    }


def draw(numbers: Mapping[str, Any]) -> Figure:
    """The regret of every pair of runs, one panel per list."""
    with panels(len(numbers["pairs"]), height=4.6) as (figure, axes):
        for one, (label, pair) in zip(axes, numbers["pairs"].items(), strict=True):
            _draw_pairs(one, pair["regret"], pair["updates"], label)
        legend_below(figure)
    return figure


def _draw_pairs(
    axes: Axes, regret: Mapping[str, Sequence[float]], counts: Mapping[str, Sequence[float]], label: str
) -> None:
    """Points below the line have less regret with both sets renewed; their colour says how the updates compare."""
    difference = np.array(counts["both"]) - np.array(counts["failed"])
    x, y = np.array(regret["failed"]), np.array(regret["both"])
    kinds = {"fewer updates": difference < 0, "equally many": difference == 0, "more updates": difference > 0}
    for index, (kind, chosen) in enumerate(kinds.items()):
        style = {"color": COLOURS[index], "marker": MARKERS[index], "linestyle": "", "alpha": 0.75}
        axes.plot(x[chosen], y[chosen], **style, markersize=5, label=kind)
    ends = [0, 1.05 * max(x.max(), y.max())]
    axes.plot(ends, ends, **CRITERION, label="criterion: the same regret")
    axes.ticklabel_format(style="sci", scilimits=(-3, 3), useMathText=True)
    axes.locator_params(nbins=6)
    axes.set(xlabel="average regret, the paper's rule", ylabel="average regret, both sets renewed", title=label)

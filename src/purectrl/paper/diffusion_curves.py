"""Reward on the digits over queries, trajectories and seconds: PURE_SEIKO beside SEIKO, at equal queries as well."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from purectrl.paper.diffusion_fine_tuners import style_of
from purectrl.paper.figures import Figure, legend_below, log_decades, panels
from purectrl.paper.fine_tuning import FOUND, SPENT, Curve, ahead, curves, mean_and_error, mean_curve
from purectrl.paper.item import Group, Item
from purectrl.paper.load import Runs
from purectrl.paper.results import Analysis, Check, Table

LABELS = 19_200
"""N."""
UPDATES = 6
"""K. Batches double, so that the first update is after N/63 labels, which are 305, and the last after N."""
DISTINCT = 0.3893
"""Distinct images per label of the sampler of PURE_SEIKO (m = 4, λ = 6), whose other labels repeat the score of an image."""
OURS = ("pure-seiko", "distinct")


def item(labels: int = LABELS, updates: int = UPDATES) -> Item:
    """PURE_SEIKO with two samplers, SEIKO with as many queries, and with as many labels."""
    digits, settings = {"left_out": (1,)}, {"schedule.updates": updates}
    distinct = settings | {"sampler": "geometric-distinct"}
    equal = round(DISTINCT * labels)
    return Item(
        "diffusion-curves",
        f"Reward on the digits without the 1 over queries, trajectories and seconds, up to N = {labels:,} labels",
        analyze,
        draw,
        (
            Group("pure-seiko", "PURE_SEIKO", "digits", "pure-seiko", digits, settings, labels),
            Group("distinct", "PURE_SEIKO, each time once", "digits", "pure-seiko", digits, distinct, equal),
            Group("seiko-queries", "SEIKO, equal queries", "digits", "seiko", digits, settings, equal),
            Group("seiko", "SEIKO, equal labels", "digits", "seiko", digits, settings, labels),
        ),
        seeds=10,
        quick=2,
        cost="about 4 hours of computing, 50 minutes with --quick, halved on two cores",
    )


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """Curves of every group, and how far ours are ahead of SEIKO when as much was spent."""
    single = {name: curves(runs) for name, runs in found.items()}
    means = {name: mean_curve(some) for name, some in single.items()}
    rows = [
        {
            "": found[name].group.label,
            "update": number + 1,
            **{column: curve[column][number] for column in (*SPENT, "reward", "standard error")},
            **{column: curve[column][number] for column in FOUND if column != "reward"},
        }
        for name, curve in means.items()
        for number in range(len(curve["reward"]))
    ]
    before = float(np.mean([runs.metric("reward_pretrained").mean() for runs in found.values()]))
    numbers = {
        "labels": found["pure-seiko"].group.measurements,
        "before": before,
        "curves": {name: {"label": found[name].group.label, **curve} for name, curve in means.items()},
    }
    return Analysis(numbers, Table.of(rows), _checks(single))


def _checks(single: Mapping[str, list[Curve]]) -> tuple[Check, ...]:
    """At equal queries nowhere behind; ahead in trajectories and in seconds."""
    theirs = single["seiko-queries"]
    ours = {name: single[name] for name in OURS}
    return (
        never_behind(ours, theirs),
        *(mean_ahead(ours, theirs, spent) for spent in ("trajectories", "seconds")),
    )


def never_behind(ours: Mapping[str, list[Curve]], theirs: list[Curve]) -> Check:
    """Whether at each update the best of ours is at most one standard error behind theirs with as many queries."""
    leads = [
        max(_lead(some, theirs, number) for some in ours.values() if number < len(some[0]["reward"]))
        for number in range(max(len(some[0]["reward"]) for some in ours.values()))
    ]
    known = [lead for lead in leads if lead.mean > -np.inf]
    missed = sum(lead.mean < -lead.error for lead in known)
    lowest = min(known, default=Lead(-np.inf, 0.0, 0.0))
    return Check(
        "at equal queries, the best of our samplers is never behind SEIKO by more than one standard error",
        f"behind at {missed} of {len(known)} updates; the smallest lead is {lowest.mean:+.3f} ± {lowest.error:.3f}, at "
        f"{lowest.queries:,.0f} queries",
        missed == 0 and len(known) > 0,
    )


class Lead(NamedTuple):
    """How far ours are ahead at an update, over seeds."""

    mean: float
    """-∞ if theirs had never spent as much."""
    error: float
    queries: float


def _lead(ours: list[Curve], theirs: list[Curve], number: int) -> Lead:
    """That at the update with this number."""
    lead = ahead(ours, theirs, "queries")[:, number]
    lead, queries = lead[~np.isnan(lead)], float(np.mean([one["queries"][number] for one in ours]))
    return Lead(*mean_and_error(lead), queries) if len(lead) else Lead(-np.inf, 0.0, queries)


def mean_ahead(ours: Mapping[str, list[Curve]], theirs: list[Curve], spent: str) -> Check:
    """Whether the best of ours is ahead of theirs by more than one standard error, in the mean over the updates at which
    theirs had spent as much."""
    criterion = f"ahead in {spent}: higher reward by more than one standard error, in the mean over its updates"
    leads = {name: _leads(ahead(some, theirs, spent)) for name, some in ours.items()}
    leads = {name: lead for name, lead in leads.items() if len(lead)}
    if not leads:
        return Check(criterion, "no update has spent as much as one of SEIKO's", passed=False)
    best = max(leads, key=lambda name: leads[name].mean())
    lead, error = mean_and_error(leads[best])
    return Check(criterion, f"`{best}`: {lead:+.3f} ± {error:.3f}, {len(leads[best])} seeds", lead > error)


def _leads(found: np.ndarray) -> np.ndarray:
    """The mean of each row without what is NaN [seeds], for those seeds that have anything."""
    return np.array([row[~np.isnan(row)].mean() for row in found if not np.isnan(row).all()])


def draw(numbers: Mapping[str, Any]) -> Figure:
    """The mean reward after each update over queries, trajectories and seconds; bands of one standard error."""
    with panels(3, height=4.6) as (figure, axes):
        for panel, spent in zip(axes, ("queries", "trajectories", "seconds"), strict=True):
            for index, curve in enumerate(numbers["curves"].values()):
                style = style_of(index)
                x, reward = curve[spent], np.array(curve["reward"])
                error = np.array(curve["standard error"])
                panel.plot(x, reward, label=curve["label"], markersize=5, linewidth=1.5, **style)
                panel.fill_between(x, reward - error, reward + error, color=style["color"], alpha=0.15, linewidth=0)
            panel.axhline(numbers["before"], color="#444444", linestyle=":", linewidth=1.2, label="pretrained")
            if spent != "seconds":
                log_decades(panel)
            panel.set_xlabel(spent)
        axes[0].set_ylabel("reward: probability that the digit is read")
        legend_below(figure, columns=5)
    return figure

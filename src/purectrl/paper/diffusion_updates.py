"""PURE_SEIKO with other numbers of updates."""

from collections.abc import Mapping
from typing import Any

from purectrl.paper.diffusion_main import conclude, draw, summaries
from purectrl.paper.groups import not_worse, worse
from purectrl.paper.item import Group, Item
from purectrl.paper.load import Runs
from purectrl.paper.results import Analysis


def item() -> Item:
    """K = 2, 4, 8. The paper does not say how eight batches grow: by 1.35 here, so that the first is half of the first of
    four."""

    def group(K: int, growth: float) -> Group:
        overrides = {"schedule.updates": K, "schedule.growth": growth}
        return Group(f"K{K}", f"K = {K}", "digits", "pure-seiko", {}, overrides, most_seeds=2)

    four = Group("K4", "K = 4", "digits", "pure-seiko", home="diffusion-main/pure-seiko")
    return Item(
        "diffusion-updates",
        "How many updates PURE_SEIKO needs: K = 2, 4, 8 at m = 4",
        analyze,
        draw,
        (group(2, 2.0), four, group(8, 1.35)),
        seeds=5,
        quick=2,
        cost="about a quarter of an hour on two cores, with --quick or without, after diffusion-main",
    )


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """K: in the paper, K = 4 is as good as more, and K = 2 clearly worse."""
    groups = summaries(found)
    return conclude(
        groups,
        not_worse(groups["K4"], groups["K8"], "as in the paper, more than 4 updates add nothing"),
        worse(groups["K2"], groups["K4"], "as in the paper, 2 updates are too few"),
    )

"""PURE_SEIKO with other labels on the same N/m trajectories, which the paper does not test."""

from collections.abc import Mapping
from typing import Any

from purectrl.paper.diffusion_main import conclude, draw, summaries
from purectrl.paper.groups import worse
from purectrl.paper.item import Group, Item
from purectrl.paper.load import Runs
from purectrl.paper.results import Analysis


def item() -> Item:
    """The same N/m trajectories with final labels only, and other intermediate measurements, with fewer seeds."""
    distinct, state = {"sampler": "geometric-distinct"}, {"measure": "x_t"}
    twice = "x(t) itself, each time once"
    return Item(
        "diffusion-labels",
        "Whether intermediate labels help: PURE_SEIKO beside other labels on the same N/m trajectories",
        analyze,
        draw,
        (
            Group("pure-seiko", "PURE_SEIKO", "digits", "pure-seiko", home="diffusion-main/pure-seiko"),
            Group("final", "final labels only", "digits", "seiko", measurements=4800),
            Group("distinct", "each of the m times once", "digits", "pure-seiko", {}, distinct, most_seeds=2),
            Group("state", "x(t) itself", "digits", "pure-seiko", state, most_seeds=2),
            Group("state-distinct", twice, "digits", "pure-seiko", state, distinct, most_seeds=2),
        ),
        seeds=5,
        quick=2,
        cost="about 40 minutes on two cores, half an hour with --quick, after diffusion-main",
    )


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """PURE_SEIKO beside other measurements on the same trajectories."""
    groups = summaries(found)
    criterion = "PURE_SEIKO, with predicted images at the paper's times, is clearly better than: {}"
    others = [group for name, group in groups.items() if name != "pure-seiko"]
    checks = [worse(group, groups["pure-seiko"], criterion.format(group["label"])) for group in others]
    return conclude(groups, *checks)

"""PURE_SEIKO with other numbers of measurements per trajectory."""

from collections.abc import Mapping
from typing import Any

from purectrl.paper.diffusion_main import conclude, draw, summaries
from purectrl.paper.groups import increasing_time, not_worse, worse
from purectrl.paper.item import Group, Item
from purectrl.paper.load import Runs
from purectrl.paper.results import Analysis


def item() -> Item:
    """m = 1, which is SEIKO, 4 and 40."""
    return Item(
        "diffusion-frequency",
        "How often PURE_SEIKO measures along a trajectory: m = 1, 4, 40 at K = 4",
        analyze,
        draw,
        (
            Group("m1", "m = 1", "digits", "seiko", home="diffusion-main/seiko"),
            Group("m4", "m = 4", "digits", "pure-seiko", home="diffusion-main/pure-seiko"),
            Group("m40", "m = 40", "digits", "pure-seiko", overrides={"sampler.m": 40}, most_seeds=2),
        ),
        seeds=5,
        quick=2,
        cost="about 10 minutes on two cores, with --quick or without, after diffusion-main",
    )


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """m: in the paper, m = 4 is as good as m = 1 and faster, and m = 40 is worse."""
    groups = summaries(found)
    return conclude(
        groups,
        not_worse(groups["m4"], groups["m1"], "as in the paper, 4 measurements per trajectory are as good as 1"),
        worse(groups["m40"], groups["m4"], "as in the paper, 40 measurements per trajectory are too many"),
        increasing_time(list(groups.values())[::-1], "as in the paper, time falls with m"),
    )

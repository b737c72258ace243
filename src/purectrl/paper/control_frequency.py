"""PURE_ENODE on acrobot with other numbers of measurements per episode."""

from collections.abc import Mapping
from typing import Any

from purectrl.paper.control_updates import PAPER, batches, conclude, draw, summaries
from purectrl.paper.groups import increasing_time, not_worse, worse
from purectrl.paper.item import Group, Item
from purectrl.paper.load import Runs
from purectrl.paper.results import Analysis


def item() -> Item:
    """Other numbers of measurements per episode, with the batches of the paper's table. An episode has 500 points 0.1 s
    apart, so that 1,000 measurements are 0.05 s apart; η_init is rounded up to whole episodes."""

    def group(m: int, windows: Mapping[str, Any], initial: int, *sizes: int) -> Group:
        overrides = {**windows, **batches(*sizes, initial=initial)}
        measurements = m * (initial + sum(sizes))
        return Group(f"m{m}", f"m = {m}", "acrobot", "pure-enode", {}, overrides, measurements)

    return Item(
        "control-frequency",
        "How often PURE_ENODE measures in an episode of acrobot: m = 125, 250, 500, 1000",
        analyze,
        draw,
        (
            group(125, {"sampler.length": 2.5}, 14, 4, 8, 16, 32, 36, 64),
            Group("m250", "m = 250", "acrobot", "pure-enode", home="control-main/acrobot-pure-enode"),
            group(500, {"sampler.count": 10}, 4, 1, 2, 4, 8, 9, 16),
            group(1000, {"sampler.count": 10, "sampler.step": 0.05}, 2, 1, 1, 2, 4, 4, 8),
        ),
        seeds=5,
        quick=2,
        cost="about 25 minutes on two cores, 10 with --quick, after control-main",
    )


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """m: in the paper, time falls with m, and rewards are lower at 500 and 1000."""
    groups = summaries(found)
    groups["m250"] |= {"paper_reward": PAPER.paper[0]}
    checks = (
        not_worse(groups["m250"], groups["m125"], "m = 250 is as good as m = 125, with half of the episodes"),
        worse(groups["m500"], groups["m250"], "as in the paper, m = 500 is worse than m = 250"),
        worse(groups["m1000"], groups["m250"], "as in the paper, m = 1000 is worse than m = 250"),
        increasing_time(list(groups.values())[::-1], "as in the paper, time falls with m"),
    )
    return conclude(groups, checks)

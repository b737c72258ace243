"""PURE_ENODE on acrobot with other numbers of updates."""

from collections.abc import Mapping
from typing import Any

from purectrl.paper.control_main import REFERENCES
from purectrl.paper.figures import Figure
from purectrl.paper.groups import (
    Summary,
    draw_groups,
    increasing_time,
    not_worse,
    scaled_minutes,
    summarize,
    tabulate,
    worse,
)
from purectrl.paper.item import Group, Item
from purectrl.paper.load import KEY, Runs
from purectrl.paper.results import Analysis, Check

PAPER = REFERENCES["acrobot"]
"""The paper gives numbers for N_pu = 6 with m = 250 and for ENODE; for other values it has only curves."""


def batches(*sizes: int, initial: int = 7) -> dict[str, Any]:
    """The overrides for a schedule with these batches, each with an update at its start."""
    exact = {"schedule.sizes": list(sizes), "schedule.initial": initial, "schedule.update": "before"}
    return {"schedule": "batches", **exact}


def item() -> Item:
    """Other batches on acrobot: tripling, doubling, ten equal ones, and ENODE's twenty. The paper's ten batches of 4 do not
    spend its budget of 87 episodes; ten of 8 do."""
    return Item(
        "control-updates",
        "How many updates PURE_ENODE needs on acrobot: N_pu = 4, 6, 10, 20",
        analyze,
        draw,
        (
            Group("four", "N_pu = 4, tripling", "acrobot", "pure-enode", overrides=batches(2, 6, 18, 54)),
            Group("six", "N_pu = 6, doubling", "acrobot", "pure-enode", home="control-main/acrobot-pure-enode"),
            Group("ten", "N_pu = 10, equal", "acrobot", "pure-enode", overrides=batches(*(8,) * 10)),
            Group("twenty", "N_pu = 20, ENODE", "acrobot", "enode", most_seeds=2, home="control-main/acrobot-enode"),
        ),
        seeds=5,
        quick=2,
        cost="about 20 minutes on two cores, 10 with --quick, after control-main",
    )


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """N_pu: in the paper, time falls with it, ten equal batches are worse than six that double, and four are unstable."""
    groups = summaries(found)
    six, twenty = groups["six"], groups["twenty"]
    six |= {"paper_reward": PAPER.paper[0], **scaled_minutes(PAPER.paper_hours, twenty)}
    twenty |= {"paper_reward": PAPER.paper[1]}
    checks = (
        not_worse(six, twenty, "6 updates with doubling batches are as good as ENODE's 20"),
        worse(groups["ten"], six, "as in the paper, 10 equal batches are worse than 6 that double"),
        worse(groups["four"], six, "as in the paper, 4 batches that triple are worse than 6 that double"),
        increasing_time(list(groups.values()), "as in the paper, time falls with the number of updates"),
    )
    return conclude(groups, checks)


def summaries(found: Mapping[str, Runs]) -> dict[str, Summary]:
    """The summary of every group."""
    return {
        name: summarize(runs, KEY.child("ablation", runs.group.label), ["reward_after_5"])
        for name, runs in found.items()
    }


def conclude(groups: Mapping[str, Summary], checks: tuple[Check, ...]) -> Analysis:
    """The results of an item whose groups are compared."""
    columns = {"after 5 s": "reward_after_5", "updates": "updates", "rollouts": "rollouts"}
    table = tabulate(groups, {**columns, "measurements": "measurements", "seconds": "total"})
    return Analysis({"groups": list(groups.values())}, table, checks)


def draw(numbers: Mapping[str, Any]) -> Figure:
    """Rewards of every group, and where its time is spent."""
    series = {"reward": "after 3 s", "reward_after_5": "after 5 s"}
    phases = {
        "rollout": "episodes",
        "fit": "fitting the model",
        "plan": "optimizing the policy",
        "rest": "evaluation, start, compilation",
    }
    return draw_groups(numbers["groups"], series, phases, "mean reward in evaluations of 30 s")

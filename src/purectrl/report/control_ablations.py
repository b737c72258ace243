"""PURE_ENODE on acrobot with other numbers of updates, and with other numbers of measurements an episode."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from purectrl.report.control import WANTED
from purectrl.report.curves import KEY
from purectrl.report.findings import Findings, Table
from purectrl.report.groups import about, below, by_share, draw_groups, reward_columns, rewards_of, rising
from purectrl.report.reading import Runs
from purectrl.report.statistics import mean

PAPER = WANTED["acrobot"]
"""The paper gives numbers for N_pu = 6 and m = 250, and for ENODE; of the others it has curves alone."""
SERIES: Mapping[str, str] = {"reward": "after 3 s", "reward_after_5": "after 5 s"}
PHASES: Mapping[str, str] = {
    "rollout": "episodes",
    "fit": "fitting the model",
    "plan": "improving the policy",
    "rest": "tests, start, compiling",
}


def told(runs: Runs) -> dict[str, Any]:
    """What the runs of one group say."""
    total = runs.seconds("total")
    seconds = {name: runs.seconds(name) for name in ("rollout", "fit", "plan")}
    seconds["rest"] = np.maximum(total - sum(seconds.values()), 0.0)
    return {
        "label": runs.group.label,
        **rewards_of(runs, KEY.child("ablation", runs.group.label)),
        "reward_after_5": runs.metric("reward_after_5").tolist(),
        **{name: runs.spent(name).tolist() for name in ("rollouts", "measurements", "updates")},
        "total": total.tolist(),
        "seconds": {name: values.tolist() for name, values in seconds.items()},
    }


def analyse_updates(found: Sequence[Runs], computed: Mapping[str, Any]) -> Findings:
    """N_pu: the paper finds that time falls with it, that ten equal batches are worse than six that double, and that four
    are unstable."""
    groups = [told(runs) for runs in found]
    four, six, ten, twenty = groups
    six |= {"paper_reward": PAPER.paper[0], **by_share(PAPER.paper_hours, twenty)}
    twenty |= {"paper_reward": PAPER.paper[1]}
    marks = (
        about(six, twenty, "6 updates that double are as good as ENODE's 20"),
        below(ten, six, "as the paper has it, 10 equal batches are worse than 6 that double"),
        below(four, six, "as the paper has it, 4 that triple are worse than 6 that double"),
        rising(groups, "as the paper has it, time falls with the number of updates"),
    )
    return Findings({"groups": groups}, _table(groups), marks)


def analyse_frequency(found: Sequence[Runs], computed: Mapping[str, Any]) -> Findings:
    """m: the paper finds less time with larger m, and lower rewards at 500 and 1000."""
    groups = [told(runs) for runs in found]
    few, usual, more, most = groups
    usual |= {"paper_reward": PAPER.paper[0]}
    marks = (
        about(usual, few, "m = 250 is as good as m = 125, with half of the episodes"),
        below(more, usual, "as the paper has it, m = 500 is worse than m = 250"),
        below(most, usual, "as the paper has it, m = 1000 is worse than m = 250"),
        rising(groups[::-1], "as the paper has it, time falls with m"),
    )
    return Findings({"groups": groups}, _table(groups), marks)


def _table(groups: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        {
            "": group["label"],
            **reward_columns(group),
            "after 5 s": mean(np.array(group["reward_after_5"])),
            **{name: mean(np.array(group[name])) for name in ("updates", "rollouts", "measurements")},
            "seconds": mean(np.array(group["total"])),
            **{f"s {name}": mean(np.array(values)) for name, values in group["seconds"].items()},
        }
        for group in groups
    ]
    return Table(tuple(rows[0]), tuple(tuple(row.values()) for row in rows))


def draw(numbers: Mapping[str, Any]) -> Figure:
    """Rewards of every group, and where its minutes go."""
    return draw_groups(numbers["groups"], SERIES, PHASES, "mean reward in tests of 30 s")

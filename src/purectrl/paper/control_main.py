"""PURE_ENODE beside ENODE on the three systems: the reward of the learned policy, and the time to learn it."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from purectrl.paper.figures import COLOURS, CRITERION, Axes, Figure, legend_below, panels
from purectrl.paper.groups import Summary, not_worse, paired, reward_columns, summarize
from purectrl.paper.item import Group, Item
from purectrl.paper.load import KEY, Runs
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import MIN_SEEDS, mean, ratio, sd


class Reference(NamedTuple):
    """The criteria on a system, and the values of the paper's plots for PURE_ENODE and ENODE."""

    reward: float
    share: float
    """Share of the seeds that reach the reward (on the pendulum: that solve the task)."""
    seconds: float
    """The longest run of PURE_ENODE."""
    paper: tuple[float, float]
    """Rewards."""
    paper_hours: tuple[float, float]
    """Hours on an A6000."""


LABELS = {"pure-enode": "PURE_ENODE", "enode": "ENODE"}
REFERENCES = {
    "pendulum": Reference(0.95, 0.8, 120.0, (0.864, 0.946), (0.33, 0.51)),
    "cartpole": Reference(0.94, 0.6, 1200.0, (0.946, 0.950), (3.52, 7.40)),
    "acrobot": Reference(0.94, 0.6, 1200.0, (0.946, 0.894), (2.77, 5.26)),
}
FIRST_SOLVED = 60.0
"""The longest time in seconds to the first update that solves the pendulum."""
TIME_RATIO = 0.55
"""The largest ratio of PURE_ENODE's seconds to ENODE's."""


def item() -> Item:
    """ENODE and PURE_ENODE on the three systems, with fewer seeds where a run takes long."""
    most = {"pure-enode": 5, "enode": 2}
    groups = [
        Group(f"{system}-{name}", label, system, name, most_seeds=None if system == "pendulum" else most[name])
        for system in REFERENCES
        for name, label in LABELS.items()
    ]
    return Item(
        "control-main",
        "Continuous-time control: PURE_ENODE beside ENODE, the same learner with fewer updates",
        analyze,
        draw,
        tuple(groups),
        seeds=10,
        quick=2,
        cost="about an hour and a quarter on two cores, 40 minutes with --quick",
    )


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """Rewards, counts and seconds of both algorithms on each system."""
    systems: dict[str, Any] = {}
    checks: list[Check] = []
    for system in REFERENCES:
        pure, enode = (_summarize(found[f"{system}-{algorithm}"]) for algorithm in LABELS)
        ours, theirs = paired(pure, enode)
        criterion = f"`{system}`: reward of PURE_ENODE within one standard deviation of ENODE's, or better"
        checks += [*_reward_checks(system, pure), not_worse(pure, enode, criterion, max(sd(ours), sd(theirs)))]
        time = ratio(KEY.child("time", system), *paired(pure, enode, "total"))
        observed = f"{time:.2f}" if len(ours) >= MIN_SEEDS else f"{time.value:.2f}"
        counts = f"{mean(pure['updates']):.0f} updates against {mean(enode['updates']):.0f}"
        criterion = f"`{system}`: at most {TIME_RATIO} of the seconds of ENODE"
        checks.append(Check(criterion, f"{observed}, with {counts}", time.value <= TIME_RATIO))
        systems[system] = {"pure-enode": pure, "enode": enode, "time_ratio": time._asdict()}
    return Analysis({"systems": systems}, _table(systems), tuple(checks))


def _summarize(runs: Runs) -> Summary:
    """The results of one algorithm on one system."""
    curves = [learning_curve(records) for records in runs.records()]
    metrics = ("reward_min", "reward_after_5", "solved")
    return summarize(runs, KEY.child("reward", runs.group.problem, runs.group.algorithm), metrics) | {
        "compile_seconds": runs.seconds("compile").tolist(),
        "reward_best_measured": [best_measured(curve) for curve in curves],
        "learning_curves": curves,
    }


def learning_curve(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The evaluations of a run: their time, their result, and the reward measured in the episodes that followed.

    >>> other = {"seconds": 2.0, "reward": 0.1, "episodes": 3}
    >>> first = {"seconds": 3.0, "reward": 0.1, "episodes": 1, "eval_reward": 0.5, "eval_solved": False}
    >>> learning_curve([other, first, {"seconds": 4.0, "reward": 0.4, "episodes": 2}])
    {'seconds': [3.0], 'reward': [0.5], 'solved': [False], 'measured': [0.4]}
    """
    evaluated = [number for number, record in enumerate(records) if "eval_reward" in record]
    followed = [records[begin + 1 : end + 1] for begin, end in pairwise([*evaluated, len(records)])]
    return {
        "seconds": [round(records[number]["seconds"], 1) for number in evaluated],
        "reward": [round(records[number]["eval_reward"], 4) for number in evaluated],
        "solved": [records[number]["eval_solved"] for number in evaluated],
        "measured": [round(_measured_reward(episodes), 4) for episodes in followed],
    }


def _measured_reward(records: Sequence[Mapping[str, Any]]) -> float:
    """The mean reward of the episodes of some records; −1, which is lower than any reward, if there are none."""
    count = sum(record["episodes"] for record in records)
    return sum(record["reward"] * record["episodes"] for record in records) / count if count else -1.0


def best_measured(curve: Mapping[str, Sequence[Any]]) -> float:
    """The evaluation of the policy whose own episodes had the highest mean reward.

    >>> best_measured({"reward": [0.5, 0.99, 0.6], "measured": [0.3, 0.8, 0.5]})
    0.99
    """
    return curve["reward"][int(np.argmax(curve["measured"]))]


def first_solved(curve: Mapping[str, Sequence[Any]]) -> float | None:
    """Seconds from the start of a run to the first evaluation that solves the task; None if there is none.

    >>> first_solved({"seconds": [3.0, 4.0], "reward": [0.5, 0.99], "solved": [False, True]})
    4.0
    """
    return next((s for s, solved in zip(curve["seconds"], curve["solved"], strict=True) if solved), None)


def _reward_checks(system: str, pure: Summary) -> list[Check]:
    """Whether PURE_ENODE learns the system, and fast enough."""
    reference, rewards, count, longest = REFERENCES[system], pure["reward"], len(pure["reward"]), max(pure["total"])
    time = Check(
        f"`{system}`: a whole run of PURE_ENODE in at most {reference.seconds:g} s",
        f"median {np.median(pure['total']):.0f} s, maximum {longest:.0f} s",
        longest <= reference.seconds,
    )
    if system != "pendulum":
        good = sum(reward >= reference.reward for reward in rewards)
        criterion = (
            f"`{system}`: mean reward at least {reference.reward} on at least {reference.share:.0%} of the seeds"
        )
        observed = f"{good} of {count}, from {min(rewards):.3f} to {max(rewards):.3f}"
        return [Check(criterion, observed, good >= reference.share * count), time]
    solved, average = int(sum(pure["solved"])), mean(rewards)
    known = [first for first in map(first_solved, pure["learning_curves"]) if first is not None]
    median, latest = (float(np.median(known)), max(known)) if known else (np.inf, np.inf)
    first = f"median {median:.0f} s of {len(known)} runs that solve it, maximum {latest:.0f} s"
    criterion = f"`{system}`: solved on at least {reference.share:.0%} of the seeds"
    return [
        Check(criterion, f"{solved} of {count}", solved >= reference.share * count),
        Check(f"`{system}`: mean reward at least {reference.reward}", f"{average:.3f}", average >= reference.reward),
        time,
        Check(
            f"`{system}`: the first solved update within {FIRST_SOLVED:g} s",
            first if known else "never solved",
            len(known) == count and median <= FIRST_SOLVED,
        ),
    ]


def _table(systems: Mapping[str, Mapping[str, Any]]) -> Table:
    columns = {"best measured": "reward_best_measured", "after 5 s": "reward_after_5"}
    rows = [
        {
            "system": system,
            "algorithm": group["label"],
            **reward_columns(group),
            **{heading: mean(group[name]) for heading, name in columns.items()},
            "solved": int(sum(group["solved"])),
            **{heading: mean(group[heading]) for heading in ("rollouts", "updates")},
            "seconds": mean(group["total"]),
            "paper's reward": paper,
            "paper's hours": hours,
        }
        for system, entry in systems.items()
        for group, paper, hours in zip(
            (entry[name] for name in LABELS), REFERENCES[system].paper, REFERENCES[system].paper_hours, strict=True
        )
    ]
    return Table.of(rows)


def draw(numbers: Mapping[str, Any]) -> Figure:
    """The reward of every evaluation over the time of its run, a panel per system."""
    with panels(len(numbers["systems"])) as (figure, axes):
        for panel, (system, entry) in zip(axes, numbers["systems"].items(), strict=True):
            _draw_system(panel, system, entry)
        axes[0].set_ylabel("mean reward of an evaluation after 3 s")
        legend_below(figure, columns=5)
    return figure


def _draw_system(axes: Axes, system: str, entry: Mapping[str, Any]) -> None:
    reference = REFERENCES[system]
    for index, (algorithm, paper) in enumerate(zip(("enode", "pure-enode"), reference.paper[::-1], strict=True)):
        colour, label = COLOURS[index], LABELS[algorithm]
        look: dict[str, Any] = {"marker": "os"[index], "markersize": 3.5, "linewidth": 1.0, "alpha": 0.75}
        for number, curve in enumerate(entry[algorithm]["learning_curves"]):
            text = "_nolegend_" if number else f"{label}, each seed"
            axes.plot(np.array(curve["seconds"]) / 60, curve["reward"], color=colour, label=text, **look)
        axes.axhline(paper, color=colour, linestyle=":", linewidth=1.4, label=f"{label} in the paper")
    axes.axhline(reference.reward, **CRITERION, label="criterion")
    axes.set(ylim=(0, 1.03), xlabel="minutes", title=system)
    axes.set_xlim(left=0)

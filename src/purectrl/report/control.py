"""PURE_ENODE beside ENODE on the three systems: the reward of the learned policy, and the seconds it took."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from purectrl.experiments.store import read_records
from purectrl.report.curves import KEY, updates
from purectrl.report.figures import COLOURS, MARK, legend_below, panels
from purectrl.report.findings import Findings, Mark, Table
from purectrl.report.groups import reward_columns, rewards_of
from purectrl.report.reading import Runs
from purectrl.report.statistics import FEWEST, mean, ratio, sd


class Wanted(NamedTuple):
    """What a system should show, and what the paper's plots show."""

    reward: float
    share: float
    """Of the seeds that reach the reward (on the pendulum: that solve the task)."""
    seconds: float
    """A whole run of PURE_ENODE at most."""
    paper: tuple[float, float]
    """Rewards of PURE_ENODE and ENODE."""
    paper_hours: tuple[float, float]
    """On an A6000."""


WANTED = {
    "pendulum": Wanted(0.95, 0.8, 120.0, (0.864, 0.946), (0.33, 0.51)),
    "cartpole": Wanted(0.94, 0.6, 1200.0, (0.946, 0.950), (3.52, 7.40)),
    "acrobot": Wanted(0.94, 0.6, 1200.0, (0.946, 0.894), (2.77, 5.26)),
}
FIRST_SOLVED = 60.0
"""Seconds to the first solved update on the pendulum."""
TIME_SHARE = 0.55
"""Of ENODE's seconds at most."""


def analyse(found: Sequence[Runs], computed: Mapping[str, Any]) -> Findings:
    """Rewards, counts and seconds of both algorithms on each system."""
    systems = list(dict.fromkeys(runs.group.experiment for runs in found))
    numbers: dict[str, Any] = {"systems": {}}
    marks: list[Mark] = []
    for system in systems:
        pure, enode = (
            next(runs for runs in found if (runs.group.experiment, runs.group.algorithm) == (system, algorithm))
            for algorithm in ("pure-enode", "enode")
        )
        entry = {runs.group.algorithm: _told(runs) for runs in (pure, enode)}
        entry["time_ratio"] = _time_ratio(system, pure, enode)
        numbers["systems"][system] = entry
        marks += [*_reward_marks(system, entry), *_against(system, entry)]
    return Findings(numbers, _table(numbers), tuple(marks))


def _told(runs: Runs) -> dict[str, Any]:
    """What the runs of one algorithm on one system say."""
    courses = [course(read_records(place)) for place in runs.places]
    return {
        **rewards_of(runs, KEY.child("reward", runs.group.name, runs.group.algorithm)),
        "reward_min": runs.metric("reward_min").tolist(),
        "reward_after_5": runs.metric("reward_after_5").tolist(),
        "solved": [bool(solved) for solved in runs.metric("solved")],
        "updates": mean(updates(runs)),
        "rollouts": mean(runs.spent("rollouts")),
        "measurements": mean(runs.spent("measurements")),
        "seconds": runs.seconds("total").tolist(),
        "compile_seconds": runs.seconds("compile").tolist(),
        "reward_best_measured": [best_measured(run) for run in courses],
        "courses": courses,
    }


def course(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The tests of a run: when they were made, what they said, and the reward measured in the episodes that followed.

    >>> untested = {"seconds": 2.0, "reward": 0.1, "episodes": 3}
    >>> first = {"seconds": 3.0, "reward": 0.1, "episodes": 1, "test_reward": 0.5, "test_solved": False}
    >>> course([untested, first, {"seconds": 4.0, "reward": 0.4, "episodes": 2}])
    {'seconds': [3.0], 'reward': [0.5], 'solved': [False], 'measured': [0.4]}
    """
    tests = [number for number, record in enumerate(records) if "test_reward" in record]
    followed = [records[begin + 1 : end + 1] for begin, end in pairwise([*tests, len(records)])]
    return {
        "seconds": [round(records[number]["seconds"], 1) for number in tests],
        "reward": [round(records[number]["test_reward"], 4) for number in tests],
        "solved": [records[number]["test_solved"] for number in tests],
        "measured": [round(_measured(episodes), 4) for episodes in followed],
    }


def _measured(records: Sequence[Mapping[str, Any]]) -> float:
    """The mean reward of the episodes of some records; −1 if there are none, which is worse than any."""
    count = sum(record["episodes"] for record in records)
    return sum(record["reward"] * record["episodes"] for record in records) / count if count else -1.0


def best_measured(run: Mapping[str, Sequence[Any]]) -> float:
    """The test of the policy whose own episodes had the highest mean reward.

    >>> best_measured({"reward": [0.5, 0.99, 0.6], "measured": [0.3, 0.8, 0.5]})
    0.99
    """
    return run["reward"][int(np.argmax(run["measured"]))]


def _time_ratio(system: str, pure: Runs, enode: Runs) -> dict[str, float]:
    """PURE_ENODE's seconds over ENODE's, on the seeds that both have; with an interval if there are enough."""
    shared = min(len(pure.places), len(enode.places))
    found = ratio(KEY.child("time", system), *(runs.seconds("total")[:shared] for runs in (pure, enode)))
    return found._asdict() if shared >= FEWEST else {"value": found.value}


def _reward_marks(system: str, entry: Mapping[str, Any]) -> list[Mark]:
    """Whether PURE_ENODE learns the system, and fast enough."""
    wanted, pure = WANTED[system], entry["pure-enode"]
    rewards, count = pure["reward"], len(pure["reward"])
    slowest = max(pure["seconds"])
    marks = [
        Mark(
            f"`{system}`: a whole run of PURE_ENODE in at most {wanted.seconds:g} s",
            f"{np.median(pure['seconds']):.0f} s in the median, {slowest:.0f} s at most",
            slowest <= wanted.seconds,
        )
    ]
    if system == "pendulum":
        solved = sum(pure["solved"])
        firsts = [first_solved(run) for run in pure["courses"]]
        known = [first for first in firsts if first is not None]
        return [
            Mark(
                f"`{system}`: solved on at least {wanted.share:.0%} of the seeds", f"{solved} of {count}",
                solved >= wanted.share * count,
            ),
            Mark(
                f"`{system}`: mean reward at least {wanted.reward}", f"{pure['reward_mean']['value']:.3f}",
                pure["reward_mean"]["value"] >= wanted.reward,
            ),
            *marks,
            Mark(
                f"`{system}`: the first solved update within {FIRST_SOLVED:g} s",
                f"{np.median(known):.0f} s in the median of {len(known)} runs that solve it, {max(known):.0f} s at most"
                if known
                else "never solved",
                len(known) == count and float(np.median(known)) <= FIRST_SOLVED,
            ),
        ]  # fmt: skip
    good = sum(reward >= wanted.reward for reward in rewards)
    return [
        Mark(
            f"`{system}`: mean reward at least {wanted.reward} on at least {wanted.share:.0%} of the seeds",
            f"{good} of {count}, from {min(rewards):.3f} to {max(rewards):.3f}",
            good >= wanted.share * count,
        ),
        *marks,
    ]


def first_solved(run: Mapping[str, Sequence[Any]]) -> float | None:
    """Seconds from the start of a run to its first solved test; None if there is none.

    >>> first_solved({"seconds": [3.0, 4.0], "reward": [0.5, 0.99], "solved": [False, True]})
    4.0
    """
    return next((s for s, solved in zip(run["seconds"], run["solved"], strict=True) if solved), None)


def _against(system: str, entry: Mapping[str, Any]) -> list[Mark]:
    """PURE_ENODE beside ENODE, on the seeds that both have."""
    pure, enode, share = entry["pure-enode"], entry["enode"], entry["time_ratio"]
    interval = f" [{share['low']:.2f}, {share['high']:.2f}]" if "low" in share else ""
    shared = min(len(pure["seeds"]), len(enode["seeds"]))
    ours, theirs = (np.array(told["reward"][:shared]) for told in (pure, enode))
    spread = max(sd(ours), sd(theirs))
    return [
        Mark(
            f"`{system}`: reward of PURE_ENODE within one standard deviation of ENODE's, or better",
            f"{mean(ours):.3f} against {mean(theirs):.3f}, standard deviation {spread:.3f}, {shared} seeds",
            mean(ours) >= mean(theirs) - spread,
        ),
        Mark(
            f"`{system}`: at most {TIME_SHARE} of the seconds of ENODE",
            f"{share['value']:.2f}{interval}, with {pure['updates']:.0f} updates against {enode['updates']:.0f}",
            share["value"] <= TIME_SHARE,
        ),
    ]


def _table(numbers: Mapping[str, Any]) -> Table:
    rows = []
    for system, entry in numbers["systems"].items():
        for number, (algorithm, label) in enumerate((("pure-enode", "PURE_ENODE"), ("enode", "ENODE"))):
            told = entry[algorithm]
            row = {
                "system": system,
                "algorithm": label,
                **reward_columns(told),
                "best measured": float(np.mean(told["reward_best_measured"])),
                "after 5 s": float(np.mean(told["reward_after_5"])),
                "solved": sum(told["solved"]),
                "rollouts": told["rollouts"],
                "updates": told["updates"],
                "seconds": float(np.mean(told["seconds"])),
                "paper's reward": WANTED[system].paper[number],
                "paper's hours": WANTED[system].paper_hours[number],
            }
            rows.append(row)
    return Table(tuple(rows[0]), tuple(tuple(row.values()) for row in rows))


def draw(numbers: Mapping[str, Any]) -> Figure:
    """The reward of every test over the seconds of its run, a panel for each system."""
    with panels(len(numbers["systems"])) as (figure, axes):
        for panel, (system, entry) in zip(axes, numbers["systems"].items(), strict=True):
            _draw_system(panel, system, entry)
        axes[0].set_ylabel("mean reward after 3 s of a test")
        legend_below(figure, columns=5)
    return figure


def _draw_system(axes: Axes, system: str, entry: Mapping[str, Any]) -> None:
    ours, theirs = WANTED[system].paper
    for index, (algorithm, label, paper) in enumerate((("enode", "ENODE", theirs), ("pure-enode", "PURE_ENODE", ours))):
        colour = COLOURS[index]
        for number, run in enumerate(entry[algorithm]["courses"]):
            minutes = np.array(run["seconds"]) / 60
            look = {"marker": "os"[index], "markersize": 3.5, "linewidth": 1.0, "alpha": 0.75}
            axes.plot(minutes, run["reward"], color=colour, label=f"{label}, each seed" if not number else None, **look)
        axes.axhline(paper, color=colour, linestyle=":", linewidth=1.4, label=f"{label} in the paper")
    axes.axhline(WANTED[system].reward, **MARK, label="mark")
    axes.set_ylim(0, 1.03)
    axes.set_xlim(left=0)
    axes.set_xlabel("minutes")
    axes.set_title(system)

"""Comparison of groups of runs: rewards of all seeds, where the time is spent, which group is better.

The summary of a group is a dictionary: "label", "seeds", "reward" of each seed, "reward_sd", "seconds" of each phase and,
where the paper reports them, "paper_reward" and "paper_minutes".
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from purectrl.core.keys import Key
from purectrl.paper.figures import COLOURS, CRITERION, Axes, Figure, legend_below, panels
from purectrl.paper.load import Runs
from purectrl.paper.results import Check, Table
from purectrl.paper.statistics import MIN_SEEDS, interquartile_mean, mean, mean_interval, sd

Summary = dict[str, Any]


def summarize(runs: Runs, key: Key, metrics: Sequence[str]) -> Summary:
    """Rewards, other metrics, counts and seconds of a group; no interval or deviation if there are too few seeds."""
    rewards, total = runs.metric("reward"), runs.seconds("total")
    single = {"value": mean(rewards), "low": None, "high": None}
    seconds = {name: runs.seconds(name) for name in ("rollout", "fit", "plan")}
    seconds["rest"] = np.maximum(total - sum(seconds.values()), 0.0)
    return {
        "label": runs.group.label,
        "seeds": runs.seeds,
        "reward": rewards.tolist(),
        "reward_mean": mean_interval(key, rewards)._asdict() if len(rewards) >= MIN_SEEDS else single,
        "reward_sd": sd(rewards) if len(rewards) > 1 else None,
        "reward_iqm": interquartile_mean(rewards),
        **{name: runs.metric(name).tolist() for name in metrics},
        **{name: runs.ledger(name).tolist() for name in ("rollouts", "measurements", "updates")},
        "total": total.tolist(),
        "seconds": {name: values.tolist() for name, values in seconds.items()},
    }


def reward_columns(group: Summary) -> dict[str, Any]:
    """The columns of a table for the rewards of a group."""
    return {
        "seeds": len(group["seeds"]),
        "reward": group["reward_mean"]["value"],
        "sd": group["reward_sd"],
        "95% low": group["reward_mean"]["low"],
        "95% high": group["reward_mean"]["high"],
        "IQM": group["reward_iqm"],
    }


def tabulate(groups: Mapping[str, Summary], columns: Mapping[str, str]) -> Table:
    """A row per group: rewards, the means of what `columns` maps headings to, and the seconds of every phase."""
    rows = [
        {
            "": group["label"],
            **reward_columns(group),
            **{heading: mean(group[name]) for heading, name in columns.items()},
            **{f"s {name}": mean(values) for name, values in group["seconds"].items()},
        }
        for group in groups.values()
    ]
    return Table.of(rows)


def paired(one: Summary, other: Summary, name: str = "reward") -> tuple[np.ndarray, np.ndarray]:
    """A quantity of two groups on the seeds that both have."""
    shared = min(len(one["seeds"]), len(other["seeds"]))
    return np.array(one[name][:shared]), np.array(other[name][:shared])


def not_worse(one: Summary, other: Summary, criterion: str, spread: float | None = None) -> Check:
    """Whether the reward of `one` is at most one standard deviation below that of `other`, on the seeds that both have.

    The standard deviation is the larger one of both groups unless `spread` is given.
    """
    ours, theirs = paired(one, other)
    deviations = [group["reward_sd"] for group in (one, other) if group["reward_sd"] is not None]
    below = max(deviations, default=0.0) if spread is None else spread
    seeds = f"{len(ours)} seed{'s' if len(ours) > 1 else ''}"
    observed = f"{mean(ours):.3f} against {mean(theirs):.3f}, {seeds}, standard deviation {below:.3f}"
    return Check(criterion, observed, mean(ours) >= mean(theirs) - below)


def worse(one: Summary, other: Summary, criterion: str) -> Check:
    """Whether the reward of `one` is more than one standard deviation below that of `other`."""
    opposite = not_worse(one, other, criterion)
    return replace(opposite, passed=not opposite.passed)


def increasing_time(groups: Sequence[Summary], criterion: str) -> Check:
    """Whether each group takes longer than the one before."""
    seconds = [mean(group["total"]) for group in groups]
    observed = ", ".join(f"{group['label']}: {s:.0f} s" for group, s in zip(groups, seconds, strict=True))
    return Check(criterion, observed, seconds == sorted(seconds))


def scaled_minutes(hours: tuple[float, float], other: Summary) -> dict[str, float]:
    """The minutes that a group would take if its ratio to another group were that of the paper's hours.

    >>> scaled_minutes((15.0, 30.0), {"total": [60.0, 180.0]})
    {'paper_minutes': 1.0}
    """
    return {"paper_minutes": hours[0] / hours[1] * mean(other["total"]) / 60}


def draw_groups(
    groups: Sequence[Summary],
    series: Mapping[str, str],
    phases: Mapping[str, str],
    label: str,
    required: float | None = None,
) -> Figure:
    """Rewards of every group, and where its time is spent.

    Main arguments:
        series: the entries of a group that are rewards, and their names; `<entry>_pretrained` is drawn as well.
        phases: the entries of "seconds" that are drawn, and their names.
        label: what a reward is.
        required: a criterion for the first series.
    """
    with panels(2, height=2.5 + 0.42 * len(groups)) as (figure, (left, right)):
        for index, (name, text) in enumerate(series.items()):
            _draw_rewards(left, groups, name, text, index)
        if required is not None:
            left.axvline(required, **CRITERION, label=f"criterion, {next(iter(series.values()))}")
        left.set_yticks(np.arange(len(groups)), [group["label"] for group in groups])
        left.set_xlabel(label)
        _draw_minutes(right, groups, phases)
        _draw_paper(left, groups, "paper_reward", "the paper's reward")
        _draw_paper(right, groups, "paper_minutes", "by the paper's ratio of times")
        for axes in (left, right):
            axes.set_ylim(len(groups) - 0.5, -0.5)
        legend_below(figure, columns=3)
    return figure


def _draw_rewards(axes: Axes, groups: Sequence[Summary], name: str, label: str, index: int) -> None:
    """Every seed as a small tick, the mean as a large marker."""
    colour = COLOURS[index]
    for number, group in enumerate(groups):
        values, height = np.array(group[name]), number + (index - 0.5) * 0.24
        text = "_nolegend_" if number else label
        axes.plot(values, np.full(len(values), height), "|", markersize=9, color=colour, zorder=3)
        axes.plot([values.mean()], [height], "os"[index], markersize=7, label=text, color=colour, zorder=3)
    if before := [value for group in groups for value in group.get(f"{name}_pretrained", [])]:
        axes.axvline(float(np.mean(before)), label=f"{label}, before", color=colour, linestyle=":", linewidth=1.4)


def _draw_minutes(axes: Axes, groups: Sequence[Summary], phases: Mapping[str, str]) -> None:
    positions, done = np.arange(len(groups)), np.zeros(len(groups))
    for index, (name, label) in enumerate(phases.items()):
        minutes = np.array([mean(group["seconds"][name]) / 60 for group in groups])
        axes.barh(positions, minutes, left=done, height=0.6, color=COLOURS[(index + 2) % len(COLOURS)], label=label)
        done += minutes
    axes.set_yticks(positions, [""] * len(groups))
    axes.set_xlabel("minutes on one core")


def _draw_paper(axes: Axes, groups: Sequence[Summary], name: str, label: str) -> None:
    """The paper's value for a group, as a hollow diamond in its row."""
    known = [(group[name], number) for number, group in enumerate(groups) if name in group]
    if known:
        look: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": "#222222", "markersize": 7, "zorder": 4}
        axes.plot(*zip(*known, strict=True), "D", linestyle="none", label=label, **look)

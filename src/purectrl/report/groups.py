"""Groups of runs beside each other: rewards of every seed, where the minutes go, and which group is better.

A group is what an item says of its runs: "label", "seeds", "reward" of each seed, "reward_sd", "seconds" of each phase, and
where the paper has them "paper_reward" and "paper_minutes".
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from purectrl.core.keys import Key
from purectrl.report.figures import COLOURS, MARK, legend_below, panels
from purectrl.report.findings import Mark
from purectrl.report.reading import Runs
from purectrl.report.statistics import FEWEST, interquartile_mean, mean, mean_interval, sd


def rewards_of(runs: Runs, key: Key) -> dict[str, Any]:
    """Seeds and rewards of some runs, and what they say together; no interval and no spread where the seeds are too few."""
    rewards = runs.metric("reward")
    lone = {"value": mean(rewards), "low": None, "high": None}
    return {
        "seeds": [run["seed"] for run in runs.summaries],
        "reward": rewards.tolist(),
        "reward_mean": mean_interval(key, rewards)._asdict() if len(rewards) >= FEWEST else lone,
        "reward_sd": sd(rewards) if len(rewards) > 1 else None,
        "reward_iqm": interquartile_mean(rewards),
    }


def reward_columns(told: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a table that say what `rewards_of` found."""
    return {
        "seeds": len(told["seeds"]),
        "reward": told["reward_mean"]["value"],
        "sd": told["reward_sd"],
        "95% low": told["reward_mean"]["low"],
        "95% high": told["reward_mean"]["high"],
        "middle half": told["reward_iqm"],
    }


def paired(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Rewards on the seeds that both have."""
    shared = min(len(one["seeds"]), len(other["seeds"]))
    return np.array(one["reward"][:shared]), np.array(other["reward"][:shared])


def compared(one: np.ndarray, other: np.ndarray) -> str:
    """Two means in words."""
    return f"{mean(one):.3f} against {mean(other):.3f}, {len(one)} seed{'s' if len(one) > 1 else ''}"


def about(one: Mapping[str, Any], other: Mapping[str, Any], asks: str) -> Mark:
    """Whether `one` is as good as `other`: no more than one standard deviation below."""
    ours, theirs = paired(one, other)
    wide = _widest(one, other)
    return Mark(asks, f"{compared(ours, theirs)}, standard deviation {wide:.3f}", mean(ours) >= mean(theirs) - wide)


def below(one: Mapping[str, Any], other: Mapping[str, Any], asks: str) -> Mark:
    """Whether `one` is clearly worse than `other`: by more than one standard deviation."""
    ours, theirs = paired(one, other)
    wide = _widest(one, other)
    return Mark(asks, f"{compared(ours, theirs)}, standard deviation {wide:.3f}", mean(ours) < mean(theirs) - wide)


def rising(groups: Sequence[Mapping[str, Any]], asks: str) -> Mark:
    """Whether the groups take longer and longer."""
    seconds = [mean(np.array(group["total"])) for group in groups]
    told = ", ".join(f"{group['label']}: {s:.0f} s" for group, s in zip(groups, seconds, strict=True))
    return Mark(asks, told, seconds == sorted(seconds))


def _widest(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The larger of two standard deviations; a group of one seed has none."""
    return max((group["reward_sd"] for group in (one, other) if group["reward_sd"] is not None), default=0.0)


def draw_groups(
    groups: Sequence[Mapping[str, Any]],
    series: Mapping[str, str],
    phases: Mapping[str, str],
    what: str,
    wanted: float | None = None,
) -> Figure:
    """Rewards of every group, and where its minutes go.

    Main arguments:
        series: which entries of a group are rewards, and what they are called; `<name>_pretrained` is drawn, too.
        phases: which entries of "seconds" are drawn, and what they are called.
        what: what a reward is.
        wanted: a mark for the first series.
    """
    with panels(2, height=2.5 + 0.42 * len(groups)) as (figure, (left, right)):
        for index, (name, label) in enumerate(series.items()):
            _draw_rewards(left, groups, name, label, index)
        if wanted is not None:
            left.axvline(wanted, **MARK, label=f"mark, {next(iter(series.values()))}")
        left.set_yticks(np.arange(len(groups)), [group["label"] for group in groups])
        left.set_xlabel(what)
        _draw_minutes(right, groups, phases)
        _draw_paper(left, groups, "paper_reward", "the paper's reward")
        _draw_paper(right, groups, "paper_minutes", "by the paper's share of the time")
        for axes in (left, right):
            axes.set_ylim(len(groups) - 0.5, -0.5)
        legend_below(figure, columns=3)
    return figure


def _draw_rewards(axes: Axes, groups: Sequence[Mapping[str, Any]], name: str, label: str, index: int) -> None:
    """Every seed as a small mark, the mean as a large one."""
    for number, group in enumerate(groups):
        values, height = np.array(group[name]), number + (index - 0.5) * 0.24
        look = {"color": COLOURS[index], "zorder": 3}
        axes.plot(values, np.full(len(values), height), "|", markersize=9, **look)
        axes.plot([values.mean()], [height], "os"[index], markersize=7, label=None if number else label, **look)
    if before := [value for group in groups for value in group.get(f"{name}_pretrained", [])]:
        look = {"color": COLOURS[index], "linestyle": ":", "linewidth": 1.4}
        axes.axvline(mean(np.array(before)), label=f"{label}, before", **look)


def _draw_minutes(axes: Axes, groups: Sequence[Mapping[str, Any]], phases: Mapping[str, str]) -> None:
    places, done = np.arange(len(groups)), np.zeros(len(groups))
    for index, (name, label) in enumerate(phases.items()):
        minutes = np.array([mean(np.array(group["seconds"][name])) / 60 for group in groups])
        axes.barh(places, minutes, left=done, height=0.6, color=COLOURS[(index + 2) % len(COLOURS)], label=label)
        done += minutes
    axes.set_yticks(places, [""] * len(groups))
    axes.set_xlabel("minutes on one core")


def _draw_paper(axes: Axes, groups: Sequence[Mapping[str, Any]], name: str, label: str) -> None:
    """What the paper has for a group, as a hollow diamond in its row."""
    known = [(group[name], number) for number, group in enumerate(groups) if name in group]
    look = {"markerfacecolor": "white", "markeredgecolor": "#222222", "markersize": 7, "zorder": 4}
    if known:
        axes.plot(*zip(*known, strict=True), "D", linestyle="none", label=label, **look)


def by_share(hours: tuple[float, float], other: Mapping[str, Any]) -> dict[str, float]:
    """The minutes that a group would take if its share of another's were the paper's, whose machines are not ours.

    >>> by_share((15.0, 30.0), {"total": [60.0, 180.0]})
    {'paper_minutes': 1.0}
    """
    return {"paper_minutes": hours[0] / hours[1] * mean(np.array(other["total"])) / 60}

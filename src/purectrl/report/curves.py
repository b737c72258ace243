"""Groups of runs as points of a curve: means over seeds with intervals, at increasing x."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from purectrl.core.keys import Key
from purectrl.report.reading import Runs
from purectrl.report.statistics import interquartile_mean, mean_interval, sd

KEY = Key.from_seed(0).child("report")
"""Where all bootstrap samples come from: the same runs give the same intervals."""

Reading = Callable[[Runs], np.ndarray]
"""What of a group's runs is meant: one number for each seed [seeds]."""


def gap(runs: Runs) -> np.ndarray:
    """The average regret of every run [seeds]."""
    return runs.metric("gap")


def updates(runs: Runs) -> np.ndarray:
    """The policy updates of every run [seeds]."""
    return runs.spent("updates")


def size(runs: Runs) -> int:
    """N."""
    return int(runs.setting("measurements"))


def by_label(found: Sequence[Runs]) -> dict[str, list[Runs]]:
    """The groups of each series, in the order in which labels first appear."""
    labels = dict.fromkeys(runs.group.label for runs in found)
    return {label: [runs for runs in found if runs.group.label == label] for label in labels}


def matrix(found: Sequence[Runs], values: Reading) -> np.ndarray:
    """Values [seeds, groups]."""
    return np.stack([values(runs) for runs in found], axis=1)


def curve(found: Sequence[Runs], x: Callable[[Runs], float], values: Reading, name: str) -> dict[str, Any]:
    """ "x", "mean" with "low" and "high", "sd", the mean of the middle half, and the values of every seed, sorted by x."""
    ordered = sorted(found, key=x)
    columns = matrix(ordered, values)
    means = [mean_interval(KEY.child(name, number), columns[:, number]) for number in range(len(ordered))]
    return {
        "x": [x(runs) for runs in ordered],
        "mean": [interval.value for interval in means],
        "low": [interval.low for interval in means],
        "high": [interval.high for interval in means],
        "sd": [sd(column) for column in columns.T],
        "middle_half": [interquartile_mean(column) for column in columns.T],
        "seeds": columns.T.tolist(),
    }

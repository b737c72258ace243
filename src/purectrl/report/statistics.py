"""What a handful of seeds say: means, their intervals, slopes. Intervals are bootstrapped over seeds, from a key."""

from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from purectrl.core.errors import require
from purectrl.core.keys import Key

LEVEL = 0.95
"""How often an interval should contain what it estimates."""
ROUNDING = 1e-9
"""Estimates that should be equal may differ by this much."""
FEWEST = 4
"""Seeds below which a group is shown without an interval: that of two would be the two."""
RESAMPLES = 2000
"""Bootstrap samples behind an interval: its ends then vary by far less than its width."""


class Interval(NamedTuple):
    """An estimate and the interval around it."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def mean(values: np.ndarray) -> float:
    """The mean over seeds [seeds].

    >>> mean(np.array([1.0, 2.0, 6.0]))
    3.0
    """
    return float(np.mean(_finite(values)))


def sd(values: np.ndarray) -> float:
    """The standard deviation over seeds [seeds], with seeds − 1 in the denominator.

    >>> sd(np.array([1.0, 3.0]))
    1.4142135623730951
    """
    require(len(values) >= 2, f"values: a standard deviation needs at least two seeds, not {len(values)}")
    return float(np.std(_finite(values), ddof=1))


def interquartile_mean(values: np.ndarray) -> float:
    """The mean of the middle half of the values [seeds]; where a quarter cuts a value, it counts in part.

    >>> interquartile_mean(np.array([0.0, 2.0, 4.0, 1000.0]))
    3.0
    >>> interquartile_mean(np.array([0.0, 1.0, 5.0, 6.0, 1000.0]))  # 0.75 · 1 + 1 · 5 + 0.75 · 6, over 2.5
    4.1
    """
    count = len(_finite(values))
    edges = np.clip(np.arange(count + 1) / count, 0.25, 0.75)
    return float(np.sort(values) @ np.diff(edges) * 2)


def bootstrap(
    key: Key, values: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], level: float = LEVEL
) -> Interval:
    """A function of the means over seeds, with its percentile interval under resampling of the seeds.

    With few seeds such an interval is somewhat too narrow, as every one that knows nothing but them.

    Main arguments:
        values: one row for each seed [seeds, ...]. A row is kept together, since runs of one seed share random numbers.
        statistic: means [samples, ...] -> numbers [samples].

    >>> squares = bootstrap(Key.from_seed(0), np.array([2.0, 4.0]), lambda means: means**2)
    >>> tuple(squares)
    (9.0, 4.0, 16.0)
    """
    values = _finite(values)
    seeds = len(values)
    require(seeds >= 2, f"values: an interval needs at least two seeds, not {seeds}")
    require(0 < level < 1, f"level: must lie between 0 and 1, not {level}")
    chosen = key.generator().integers(seeds, size=(RESAMPLES, seeds))
    low, high = np.quantile(statistic(values[chosen].mean(axis=1)), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(statistic(values.mean(axis=0, keepdims=True))[0]), float(low), float(high))


def mean_interval(key: Key, values: np.ndarray, level: float = LEVEL) -> Interval:
    """The mean over seeds [seeds] with its interval.

    >>> found = mean_interval(Key.from_seed(0), np.arange(100.0))
    >>> found.value, found.low < 49.5 - 4 < 49.5 + 4 < found.high  # its standard error is 2.9
    (49.5, True)
    """
    return bootstrap(key, values, lambda means: means, level)


def slope(key: Key, sizes: np.ndarray, values: np.ndarray, level: float = LEVEL) -> Interval:
    """The slope of log(mean over seeds) over log(size), by least squares, with its interval.

    Main arguments:
        sizes: positive and not all the same [sizes].
        values: positive in the mean over seeds [seeds, sizes].

    >>> sizes = np.array([256.0, 512.0, 1024.0])
    >>> found = slope(Key.from_seed(0), sizes, np.array([[1.0], [2.0], [3.0]]) * sizes**-0.5)
    >>> [round(number, 9) for number in found]
    [-0.5, -0.5, -0.5]
    """
    return bootstrap(key, values, lambda means: _leading(np.log(sizes), np.log(_positive(means)), 1), level)


def curvature(key: Key, positions: np.ndarray, values: np.ndarray, level: float = LEVEL) -> Interval:
    """c in the least-squares fit a + b x + c x² to the means over seeds, with its interval: above zero, they grow faster
    than linearly.

    >>> x = np.arange(5.0)
    >>> round(curvature(Key.from_seed(0), x, np.array([[1.0], [3.0]]) * x**2).value, 9)
    2.0
    """
    return bootstrap(key, values, lambda means: _leading(positions, means, 2), level)


def ratio(key: Key, over: np.ndarray, under: np.ndarray, level: float = LEVEL) -> Interval:
    """mean(over)/mean(under) for runs with the same seeds [seeds], with its interval.

    >>> tuple(ratio(Key.from_seed(0), np.array([2.0, 4.0]), np.array([1.0, 2.0])))
    (2.0, 2.0, 2.0)
    """
    require(bool((np.asarray(under) > 0).all()), "under: a ratio needs values above zero")
    return bootstrap(key, np.stack([over, under], axis=1), lambda means: means[:, 0] / means[:, 1], level)


def wilson(successes: int, trials: int, level: float = LEVEL) -> Interval:
    """The share successes/trials with Wilson's score interval, which is sound near 0 and 1, too.

    >>> [round(number, 3) for number in wilson(10, 10)]
    [1.0, 0.722, 1.0]
    >>> [round(number, 3) for number in wilson(50, 100)]
    [0.5, 0.404, 0.596]
    """
    require(0 <= successes <= trials and trials >= 1, f"successes: {successes} of {trials} trials cannot be")
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, weight = successes / trials, z**2 / trials
    middle = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * (share * (1 - share) / trials + weight / (4 * trials)) ** 0.5
    # at the ends the formula gives 0 and 1 up to rounding
    return Interval(share, 0.0 if successes == 0 else middle - half, 1.0 if successes == trials else middle + half)


def _leading(x: np.ndarray, y: np.ndarray, degree: int) -> np.ndarray:
    """The leading coefficient of the least-squares polynomial through each row of y [samples, points]."""
    require(len(set(x)) > degree, f"sizes: {degree + 1} different ones are needed, not {len(set(x))}")
    return np.polyfit(x, y.T, degree)[0]


def _positive(means: np.ndarray) -> np.ndarray:
    require(bool((means > 0).all()), f"values: a mean of {means.min():g} has no logarithm")
    return means


def _finite(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, np.float64)
    require(values.size > 0, "values: there are none")
    require(bool(np.isfinite(values).all()), "values: some are not finite numbers; a mean must not hide that")
    return values

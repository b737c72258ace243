"""Estimates over seeds with their confidence intervals, by SciPy. Bootstrap samples are drawn from a key.

SciPy is imported on first use, so that listing the items stays fast.
"""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from purectrl.core.errors import require
from purectrl.core.keys import Key

LEVEL = 0.95
"""The confidence level of all intervals."""
ROUNDING = 1e-9
"""Estimates that should be equal may differ by this much."""
MIN_SEEDS = 4
"""Groups with fewer seeds are reported without an interval."""
RESAMPLES = 2000
"""Bootstrap samples per interval."""


class Interval(NamedTuple):
    """An estimate with its confidence interval.

    >>> f"{Interval(0.5, 0.25, 1.0):.2f}"
    '0.50 [0.25, 1.00]'
    """

    value: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        return f"{self.value:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"

    def columns(self, name: str) -> dict[str, float]:
        """The columns of a table that show it."""
        return {name: self.value, "95% low": self.low, "95% high": self.high}


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
    """The interquartile mean (IQM) over seeds [seeds]: a mean without the lowest and highest quarter, rounded down to whole
    values, as in the package rliable.

    >>> interquartile_mean(np.array([0.0, 2.0, 4.0, 1000.0])), interquartile_mean(np.array([0.0, 1.0, 5.0, 6.0, 1000.0]))
    (3.0, 4.0)
    """
    from scipy.stats import trim_mean

    return float(trim_mean(_finite(values), 0.25))


def bootstrap(
    key: Key, values: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], level: float = LEVEL
) -> Interval:
    """A function of the means over seeds with its BCa bootstrap interval under resampling of the seeds.

    The bias-corrected and accelerated interval is undefined for degenerate samples, such as equal values for all seeds; the
    percentile interval of the same resamples replaces it there. With few seeds both are somewhat too narrow.

    Main arguments:
        values: one row per seed [seeds, ...]. A row is resampled as a whole, since runs of one seed share random numbers.
        statistic: means [samples, ...] -> numbers [samples].

    >>> tuple(bootstrap(Key.from_seed(0), np.array([2.0, 2.0]), lambda means: means**2))
    (4.0, 4.0, 4.0)
    """
    from scipy import stats

    values = _finite(values)
    seeds = len(values)
    require(seeds >= 2, f"values: an interval needs at least two seeds, not {seeds}")
    require(0 < level < 1, f"level: must lie between 0 and 1, not {level}")

    def of_seeds(chosen: np.ndarray, axis: int = -1) -> np.ndarray:
        chosen = chosen.astype(int)
        means = values[chosen.reshape(-1, chosen.shape[-1])].mean(axis=1)
        return statistic(means).reshape(chosen.shape[:-1])

    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        options = {"n_resamples": RESAMPLES, "vectorized": True, "confidence_level": level, "rng": key.generator()}
        found = stats.bootstrap((np.arange(seeds),), of_seeds, method="BCa", **options)
    low, high = found.confidence_interval
    if not np.isfinite([low, high]).all():
        low, high = np.quantile(found.bootstrap_distribution, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(statistic(values.mean(axis=0, keepdims=True))[0]), float(low), float(high))


def mean_interval(key: Key, values: np.ndarray, level: float = LEVEL) -> Interval:
    """The mean over seeds [seeds] with its interval.

    >>> found = mean_interval(Key.from_seed(0), np.arange(100.0))
    >>> found.value, found.low < 49.5 - 4 < 49.5 + 4 < found.high  # its standard error is 2.9
    (49.5, True)
    """
    return bootstrap(key, values, lambda means: means, level)


def slope(key: Key, sizes: np.ndarray, values: np.ndarray) -> Interval:
    """The slope of log(mean over seeds) over log(size), by least squares, with its interval.

    Main arguments:
        sizes: positive and not all the same [sizes].
        values: positive in the mean over seeds [seeds, sizes].

    >>> sizes = np.array([256.0, 512.0, 1024.0])
    >>> found = slope(Key.from_seed(0), sizes, np.array([[1.0], [2.0], [3.0]]) * sizes**-0.5)
    >>> [round(number, 9) for number in found]
    [-0.5, -0.5, -0.5]
    """
    return bootstrap(key, values, lambda means: _leading(np.log(sizes), np.log(_positive(means)), 1))


def curvature(key: Key, positions: np.ndarray, values: np.ndarray) -> Interval:
    """c in the least-squares fit a + b x + c x² to the means over seeds, with its interval; positive if they grow faster
    than linearly.

    >>> x = np.arange(5.0)
    >>> round(curvature(Key.from_seed(0), x, np.array([[1.0], [3.0]]) * x**2).value, 9)
    2.0
    """
    return bootstrap(key, values, lambda means: _leading(positions, means, 2))


def ratio(key: Key, numerator: np.ndarray, denominator: np.ndarray) -> Interval:
    """mean(numerator)/mean(denominator) for runs with the same seeds [seeds], with its interval.

    >>> tuple(ratio(Key.from_seed(0), np.array([2.0, 4.0]), np.array([1.0, 2.0])))
    (2.0, 2.0, 2.0)
    """
    require(bool((np.asarray(denominator) > 0).all()), "denominator: a ratio needs values above zero")
    both = np.stack([numerator, denominator], axis=1)
    return bootstrap(key, both, lambda means: means[:, 0] / means[:, 1])


def wilson(successes: int, trials: int) -> Interval:
    """The proportion successes/trials with Wilson's score interval, which is valid near 0 and 1 as well.

    >>> [round(number, 3) for number in wilson(10, 10)]
    [1.0, 0.722, 1.0]
    >>> [round(number, 3) for number in wilson(50, 100)]
    [0.5, 0.404, 0.596]
    """
    from scipy.stats import binomtest

    require(0 <= successes <= trials and trials >= 1, f"successes: {successes} of {trials} trials is impossible")
    low, high = binomtest(successes, trials).proportion_ci(LEVEL, "wilson")
    return Interval(successes / trials, float(low), float(high))


def _leading(x: np.ndarray, y: np.ndarray, degree: int) -> np.ndarray:
    """The leading coefficient of the least-squares polynomial through each row of y [samples, points]."""
    require(len(set(x)) > degree, f"sizes: at least {degree + 1} different ones are needed, not {len(set(x))}")
    return np.polyfit(x, y.T, degree)[0]


def _positive(means: np.ndarray) -> np.ndarray:
    require(bool((means > 0).all()), f"values: a mean of {means.min():g} has no logarithm")
    return means


def _finite(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, np.float64)
    require(values.size > 0, "values: there are none")
    require(bool(np.isfinite(values).all()), "values: some are not finite numbers; a mean must not hide that")
    return values

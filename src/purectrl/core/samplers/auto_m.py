"""The number of measurements per episode from prices and from the correlation of the rewards of an episode."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from purectrl.core.errors import UnsupportedError, require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.prices import Prices
from purectrl.core.samplers.base import Context, Sampler
from purectrl.core.settings import check_counts


def reward_correlation(rewards: np.ndarray) -> float:
    """ρ: the share of the variance of rewards [episodes, m] that the measurements of an episode have in common.

    It is the intraclass correlation of a two-way analysis of variance: differences between the means of the m times are not
    counted. Sampling errors can make it negative.

    >>> reward_correlation(np.array([[0.0, 1.0], [5.0, 6.0], [9.0, 10.0]]))  # each episode has one value, up to its time
    1.0
    """
    episodes, m = rewards.shape
    require(
        episodes >= 2 and m >= 2, f"rewards: a correlation needs two episodes of two measurements, not {rewards.shape}"
    )
    centred = rewards - rewards.mean(axis=0)
    means = centred.mean(axis=1, keepdims=True)
    between = m * (means**2).sum() / (episodes - 1)
    within = ((centred - means) ** 2).sum() / ((episodes - 1) * (m - 1))
    total = between + (m - 1) * within
    return float((between - within) / total) if total > 0 else 1.0


def best_m(ratio: float, rho: float, most: int) -> int:
    """The number of measurements per episode that estimates a mean most precisely for its price.

    n episodes of m measurements have price n(c + m) in units of a measurement, and their mean has a variance proportional to
    (ρ + (1 − ρ)/m)/n. The product is least at m* = sqrt(c (1 − ρ)/ρ); of the integers, one of its neighbours.

    Main arguments:
        ratio: c, the price of an episode in measurements.
        rho: the correlation of the rewards of an episode.
        most: the largest m.

    >>> best_m(ratio=30.0, rho=0.6, most=10), best_m(ratio=3.5, rho=0.72, most=10), best_m(ratio=1.0, rho=0.0, most=10)
    (4, 1, 10)
    """
    if rho <= 0:
        return most
    wanted = math.sqrt(ratio * max(1.0 - rho, 0.0) / rho)
    near = {min(max(1, one), most) for one in (math.floor(min(wanted, most)), math.ceil(min(wanted, most)))}
    return min(near, key=lambda m: ((ratio + m) * (rho + (1.0 - rho) / m), m))


@dataclass(frozen=True)
class AutoM(Sampler):
    """m from prices: before the first update the grid {T/m, …, T} with the largest m, then with m* of the rewards so far.

    m* = sqrt((c_episode/c_measurement)·(1 − ρ)/ρ), with ρ the correlation of the rewards of an episode among those that were
    measured at all m times. The budget counts measurements: with a smaller m there are more episodes. Prices are those of
    the problem.

    >>> AutoM(m=4)(Key.from_seed(0), 1, Context(horizon=12.0))
    array([[ 3.,  6.,  9., 12.]])
    """

    selects: ClassVar[bool] = True

    m: int = 4
    """The largest number of measurements per episode, and that before the first update."""
    prices: Prices | None = field(default=None, init=False)
    """Of the problem, set by `priced`."""

    def check(self) -> None:
        """At least two measurements, since one shows no correlation."""
        check_counts(self, "m")
        require(self.m >= 2, f"m: one measurement per episode shows no correlation; use at least 2, not {self.m}")

    def priced(self, prices: Prices) -> "AutoM":
        """The sampler for the prices of a problem, of which two must be known."""
        if not (prices.measurement > 0 and prices.rollout > 0):
            raise UnsupportedError(
                "sampler: auto-m needs to know what a measurement and a rollout cost; give problem.measurement_price and "
                "problem.rollout_price, in any unit"
            )
        found = replace(self)
        object.__setattr__(found, "prices", prices)
        return found

    def current(self, context: Context) -> int:
        """m now."""
        if not context.ledger.updates or self.prices is None:
            return self.m
        data = context.data.all
        assert data.r is not None
        whole = data.r if data.count is None else data.r[data.count == self.m]
        if len(whole) < 2:
            return self.m
        return best_m(self.prices.rollout / self.prices.measurement, reward_correlation(whole), self.m)

    def rollouts(self, episodes: int, context: Context) -> int:
        """As many as m* measurements each need for the measurements of `episodes` whole ones."""
        return -(-episodes * self.m // self.current(context))

    def draw(self, key: Key, episodes: int, context: Context) -> np.ndarray:
        """Times [episodes, m]: the grid with m* times, then T."""
        m = self.current(context)
        times = np.minimum(np.arange(1, self.m + 1), m) / m * context.horizon
        return np.tile(times, (episodes, 1))

    def select(
        self, offered: Measurements, asked: int, key: Key, context: Context, bonus: Callable[[Measurements], np.ndarray]
    ) -> np.ndarray:
        """The first m* times of each episode; the last episode may have fewer, and then they are its last ones."""
        m = self.current(context)
        taken = np.tile(np.arange(self.m) < m, (offered.episodes, 1))
        surplus = int(taken.sum()) - asked
        taken[-1, : max(surplus, 0)] = False
        return taken

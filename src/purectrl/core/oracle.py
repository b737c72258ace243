"""The only door to the true system. Whoever wants a measurement comes through here and pays."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from purectrl.core.errors import MeasurementError, require
from purectrl.core.keys import Key
from purectrl.core.ledger import Budget, Ledger
from purectrl.core.measurement import Measurements
from purectrl.core.problem import Plan

Rollout = Callable[[Key, Plan, np.ndarray], Measurements]
"""(key, plan, times [episodes, m]) -> Measurements: executes `plan` in that many episodes and looks at those times."""


@dataclass(frozen=True)
class Oracle:
    """Executes a plan on the true system, measures at the given times, charges the ledger.

    Main arguments:
        rollout: the true system, all episodes of a block at once.
        horizon: T, the length of an episode.
        budget: the measurements that may be taken.

    Other arguments:
        reward_range: the range that measured rewards promise to stay in; None for none (Gaussian noise has none).
    """

    rollout: Rollout
    horizon: float
    budget: Budget
    reward_range: tuple[float, float] | None = None

    def __call__(self, key: Key, plan: Plan, times: np.ndarray, ledger: Ledger) -> tuple[Measurements, Ledger]:
        """Measurements at `times` [episodes, m] and the ledger that has paid for them."""
        start = time.perf_counter()
        check_times(times, self.horizon)
        episodes, m = times.shape
        ledger = ledger.charge(self.budget, rollouts=episodes, m=m)
        block = self.rollout(key, plan, times)
        if not np.array_equal(block.t, times):
            raise MeasurementError(f"the rollout returned times {block.t.shape}, others {times.shape} were asked for")
        block.check(self.reward_range)
        return block, ledger.spent(rollout=time.perf_counter() - start)


def check_times(times: np.ndarray, horizon: float) -> None:
    """Raises unless `times` is [episodes, m], sorted within each episode, inside [0, horizon].

    >>> check_times(np.array([[0.5, 1.5]]), horizon=1.0)
    Traceback (most recent call last):
    ...
    purectrl.core.errors.InputError: times: 1.5 lies outside [0, 1]
    """
    require(times.ndim == 2 and times.size > 0, f"times: shape {times.shape}, expected [episodes, m], both at least 1")
    low, high = times.min(), times.max()
    require(bool(low >= 0 and high <= horizon), f"times: {low if low < 0 else high:g} lies outside [0, {horizon:g}]")
    require(bool((times[:, 1:] >= times[:, :-1]).all()), "times: must be sorted within each episode")

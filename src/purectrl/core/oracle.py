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

Keep = Callable[[Measurements], int]
"""How many episodes of a block there are until the plan changes."""


@dataclass(frozen=True)
class Oracle:
    """Executes a plan on the true system, measures at the given times, charges the ledger.

    Main arguments:
        rollout: the true system, all episodes of a block at once.
        horizon: T, the length of an episode.
        budget: the measurements that may be taken.

    Other arguments:
        reward_range: the range that measured rewards promise to stay in; None for none (Gaussian noise has none).
        ahead: how many episodes a schedule that decides after each of them may let run at once. More than one is for
            simulated systems alone: episodes after the decision are taken back, unpaid and unseen by anyone.

    A system that stands still, measured twice in each of three episodes:

    >>> still = lambda key, plan, times: Measurements(t=times, x=np.ones((*times.shape, 1)), u=np.zeros((*times.shape, 1)))
    >>> oracle = Oracle(still, horizon=1.0, budget=Budget(10))
    >>> block, ledger = oracle(Key(0), Plan(None, None), np.array([[0.2, 0.7]] * 3), Ledger())
    >>> block.x.shape, ledger.rollouts, ledger.measurements
    ((3, 2, 1), 3, 6)
    """

    rollout: Rollout
    horizon: float
    budget: Budget
    reward_range: tuple[float, float] | None = None
    ahead: int = 1

    def __post_init__(self) -> None:
        require(self.ahead >= 1, f"ahead: at least one episode runs at a time, not {self.ahead}")

    def __call__(
        self, key: Key, plan: Plan, times: np.ndarray, ledger: Ledger, keep: Keep | None = None
    ) -> tuple[Measurements, Ledger]:
        """Measurements at `times` [episodes, m], cut to the first `keep(block)` episodes, and the ledger that has paid."""
        start = time.perf_counter()
        check_times(times, self.horizon)
        episodes, m = times.shape
        paid = ledger.charge(self.budget, rollouts=episodes, m=m)
        block = self.rollout(key, plan, times)
        if not np.array_equal(block.t, times):
            raise MeasurementError(f"the rollout returned times {block.t.shape}, others {times.shape} were asked for")
        block.check(self.reward_range)
        seconds = time.perf_counter() - start
        if keep is not None and (kept := keep(block)) < episodes:
            block, paid = block.first(kept), ledger.charge(self.budget, rollouts=kept, m=m)
        return block, paid.spent(rollout=seconds)


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

"""Access to the true system: every measurement passes through the oracle, which charges the ledger."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from purectrl.core.errors import MeasurementError, require
from purectrl.core.keys import Key
from purectrl.core.ledger import Budget, Ledger
from purectrl.core.measurement import Measurements
from purectrl.core.plan import Plan
from purectrl.core.samplers import Context, Selection

Rollout = Callable[[Key, Plan, np.ndarray], Measurements]
"""(key, plan, times [episodes, m]) -> Measurements: executes `plan` in that many episodes and measures at those times.

An episode that ends early has fewer measurements (`Measurements.count`), and only those are charged. With `count`, the times
may also differ from the requested ones, as those of a clock do."""

SelectiveRollout = Callable[[Key, Plan, np.ndarray, Selection], Measurements]
"""The same, with a rule that decides which of the measurements are taken; the result has a `count`."""


@dataclass(frozen=True)
class Oracle:
    """Executes a plan on the true system, measures at the given times, charges the ledger.

    Main arguments:
        rollout: the true system, all episodes of a batch at once.
        horizon: T, the length of an episode.
        budget: what may be spent.

    Other arguments:
        reward_range: the range that measured rewards must lie in; None for no check (Gaussian noise has no range).
        selective: the same system for samplers that take some of the measurements only; None if it cannot do so.

    A system at rest, measured twice in each of three episodes:

    >>> still = lambda key, plan, times: Measurements(t=times, x=np.ones((*times.shape, 1)), u=np.zeros((*times.shape, 1)))
    >>> oracle = Oracle(still, horizon=1.0, budget=Budget(10))
    >>> block, ledger = oracle(Key(0), np.array([[0.2, 0.7]] * 3), Context(horizon=1.0))
    >>> block.x.shape, ledger.rollouts, ledger.measurements
    ((3, 2, 1), 3, 6)
    """

    rollout: Rollout
    horizon: float
    budget: Budget
    reward_range: tuple[float, float] | None = None
    selective: SelectiveRollout | None = None
    lookahead: ClassVar[int] = 1
    """Episodes that may run before a schedule decides; see `purectrl.core.lookahead`."""

    def __call__(self, key: Key, times: np.ndarray, context: Context) -> tuple[Measurements, Ledger]:
        """Executes `context.plan`; returns measurements at `times` [episodes, m] and the charged ledger."""
        start = time.perf_counter()
        check_times(times, self.horizon)
        episodes, m = times.shape
        if context.selection is not None:
            asked = context.selection.asked
            ledger = context.ledger.charge(self.budget, rollouts=episodes, m=m, measurements=asked)
            assert self.selective is not None
            block = self.selective(key, context.plan, times, context.selection)
            if block.total != asked:
                raise MeasurementError(f"the rollout returned {block.total} measurements, {asked} were requested")
            check_measured_times(block, times, self.horizon)
            block.check(self.reward_range)
            return block, ledger.add_seconds(rollout=time.perf_counter() - start)
        ledger = context.ledger.charge(self.budget, rollouts=episodes, m=m)
        block = self.rollout(key, context.plan, times)
        if block.count is None and not np.array_equal(block.t, times):
            raise MeasurementError(f"the rollout returned times {block.t.shape}, others {times.shape} were requested")
        if block.count is not None:
            check_measured_times(block, times, self.horizon)
            ledger = ledger.refund(times.size - block.total)
        block.check(self.reward_range)
        return block, ledger.add_seconds(rollout=time.perf_counter() - start)


def check_measured_times(block: Measurements, times: np.ndarray, horizon: float) -> None:
    """Raises unless the times of a block with episodes of different length have the shape of `times`, are sorted and lie in
    [0, horizon]."""
    if block.t.shape != times.shape:
        raise MeasurementError(f"the rollout returned times {block.t.shape}, others {times.shape} were requested")
    if not block.total:
        raise MeasurementError("the rollout returned no measurement: every episode ended before its first one")
    seen = block.t[block.valid]
    if not (seen.min() >= 0 and seen.max() <= horizon * (1 + 1e-9)):
        raise MeasurementError(f"t: measured between {seen.min():g} and {seen.max():g}, outside [0, {horizon:g}]")
    if not ((np.diff(block.t, axis=1) >= 0) | ~block.valid[:, 1:]).all():
        raise MeasurementError("t: the times of an episode must not decrease")


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

"""What a run has spent: measurements, rollouts, policy updates, seconds. Evaluation is counted separately.

The budget is a hard limit: `charge` raises before the system is executed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from purectrl.core.errors import BudgetError, StoreError, require


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may spend: N measurements and, optionally, a number of rollouts.

    >>> Budget(10).episodes_left(Ledger(), m=4), Budget(10, rollouts=1).episodes_left(Ledger(), m=4)
    (2, 1)
    """

    measurements: int
    """N, the total number of measurements."""
    rollouts: int | None = None
    """The total number of rollouts; None is unlimited."""

    def __post_init__(self) -> None:
        for name, value in (("measurements", self.measurements), ("rollouts", self.rollouts)):
            if name == "rollouts" and value is None:
                continue
            require(type(value) is int, f"{name}: must be an integer, not {value!r:.60}")
            assert value is not None
            require(value > 0, f"{name}: the budget must be at least 1, not {value}")
            require(value <= 10**12, f"{name}: the budget must be at most 10^12, not {value!r:.24}")

    def episodes_left(self, ledger: "Ledger", m: int) -> int:
        """How many whole episodes of `m` measurements are left: ⌊(N − spent)/m⌋, as in Algorithms 4 and 5."""
        left = (self.measurements - ledger.measurements) // m
        return left if self.rollouts is None else min(left, self.rollouts - ledger.rollouts)


LARGEST_COUNT = 10**18
"""No run counts as far as this."""


class Seconds(NamedTuple):
    """Wall-clock seconds per phase. Compilation is part of the phase that caused it and is also listed separately."""

    total: float = 0.0
    rollout: float = 0.0
    fit: float = 0.0
    plan: float = 0.0
    compile: float = 0.0

    def plus(
        self, total: float = 0.0, rollout: float = 0.0, fit: float = 0.0, plan: float = 0.0, compile: float = 0.0
    ) -> "Seconds":
        """The same with seconds added to the named phases."""
        return Seconds(
            self.total + total, self.rollout + rollout, self.fit + fit, self.plan + plan, self.compile + compile
        )


class Ledger(NamedTuple):
    """Everything spent so far.

    >>> Ledger().charge(Budget(8), rollouts=2, m=4).measurements
    8
    >>> Ledger().charge(Budget(8), rollouts=3, m=4)
    Traceback (most recent call last):
    ...
    purectrl.core.errors.BudgetError: 12 more measurements requested, 8 of 8 left
    """

    rollouts: int = 0
    measurements: int = 0
    updates: int = 0
    evaluation_rollouts: int = 0
    seconds: Seconds = Seconds()
    policy_changes: int = 0
    """Updates after which the plan (π, q) differs from the one before, number by number."""

    def charge(self, budget: Budget, rollouts: int, m: int, measurements: int | None = None) -> "Ledger":
        """Counts `rollouts` episodes with `m` measurements each, or `measurements` in all; raises if the budget does not
        cover them."""
        cost = rollouts * m if measurements is None else measurements
        left = budget.measurements - self.measurements
        if cost > left:
            raise BudgetError(f"{cost} more measurements requested, {left} of {budget.measurements} left")
        if budget.rollouts is not None and self.rollouts + rollouts > budget.rollouts:
            raise BudgetError(
                f"{rollouts} more rollouts requested, {budget.rollouts - self.rollouts} of {budget.rollouts} left"
            )
        return Ledger(self.rollouts + rollouts, self.measurements + cost, *self[2:])

    def refund(self, measurements: int) -> "Ledger":
        """Takes back measurements that were charged and not taken, since an episode ended before them."""
        return self._replace(measurements=self.measurements - measurements)

    def count_update(self, changed: bool = True) -> "Ledger":
        """Counts one policy update, and whether it changed the plan."""
        return Ledger(
            self.rollouts, self.measurements, self.updates + 1, *self[3:5], self.policy_changes + int(changed)
        )

    def count_evaluation(self, rollouts: int) -> "Ledger":
        """Counts evaluation episodes, which do not draw on the budget and are not shown to the learner."""
        return self._replace(evaluation_rollouts=self.evaluation_rollouts + rollouts)

    def add_seconds(self, **seconds: float) -> "Ledger":
        """Adds wall-clock seconds to the named phases."""
        return Ledger(*self[:4], self.seconds.plus(**seconds), self.policy_changes)

    def as_dict(self) -> dict[str, Any]:
        """The ledger as `summary.json` has it."""
        return {**self._asdict(), "seconds": self.seconds._asdict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Ledger":
        """The ledger that `as_dict` described; raises `StoreError` for anything else.

        >>> Ledger.from_dict(Ledger(rollouts=2).as_dict()).rollouts
        2
        """
        values = {"policy_changes": 0, **values}  # runs written before it was counted have none
        seconds = values.get("seconds")
        seconds = seconds if isinstance(seconds, Mapping) else {}
        counts: dict[str, Any] = {name: values.get(name) for name in cls._fields if name != "seconds"}
        for name, count in counts.items():
            if type(count) is not int or not 0 <= count < LARGEST_COUNT:
                raise StoreError(f"the ledger has {name} = {count!r:.40}, expected a count")
        for name in Seconds._fields:
            value = seconds.get(name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LARGEST_COUNT:
                raise StoreError(f"the ledger has seconds.{name} = {value!r:.40}, expected a number")
        return cls(**counts, seconds=Seconds(**{name: float(seconds[name]) for name in Seconds._fields}))

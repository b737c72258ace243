"""What a run has spent: measurements, rollouts, policy updates, seconds. Evaluation is kept apart.

The measurement budget N is a limit, not a hint: `charge` raises before the system is touched.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from purectrl.core.errors import BudgetError, require


@dataclass(frozen=True, slots=True)
class Budget:
    """The paper's N.

    >>> Budget(measurements=10).episodes_left(Ledger(), m=4)
    2
    """

    measurements: int
    """Total number of measurements that a run may take."""

    def __post_init__(self) -> None:
        require(isinstance(self.measurements, int), f"measurements: must be an integer, not {self.measurements!r}")
        require(self.measurements > 0, f"measurements: the budget N must be at least 1, not {self.measurements}")

    def episodes_left(self, ledger: "Ledger", m: int) -> int:
        """How many whole episodes of `m` measurements are left: ⌊(N − spent)/m⌋, as in Algorithms 4 and 5."""
        return (self.measurements - ledger.measurements) // m


class Seconds(NamedTuple):
    """Wall-clock seconds by phase. Compilation is part of the phase that caused it and is shown once more, apart."""

    total: float = 0.0
    rollout: float = 0.0
    fit: float = 0.0
    plan: float = 0.0
    compile: float = 0.0

    def plus(
        self, total: float = 0.0, rollout: float = 0.0, fit: float = 0.0, plan: float = 0.0, compile: float = 0.0
    ) -> "Seconds":
        """The same account with more seconds on the named phases."""
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
    purectrl.core.errors.BudgetError: 12 more measurements asked for, 8 of 8 left
    """

    rollouts: int = 0
    measurements: int = 0
    updates: int = 0
    evaluation_rollouts: int = 0
    seconds: Seconds = Seconds()

    def charge(self, budget: Budget, rollouts: int, m: int) -> "Ledger":
        """Pays for `rollouts` episodes with `m` measurements each."""
        cost = rollouts * m
        left = budget.measurements - self.measurements
        if cost > left:
            raise BudgetError(f"{cost} more measurements asked for, {left} of {budget.measurements} left")
        return Ledger(self.rollouts + rollouts, self.measurements + cost, *self[2:])

    def updated(self) -> "Ledger":
        """Counts one policy update."""
        return Ledger(self.rollouts, self.measurements, self.updates + 1, *self[3:])

    def evaluated(self, rollouts: int) -> "Ledger":
        """Counts evaluation episodes, which cost the budget nothing and teach the learner nothing."""
        return self._replace(evaluation_rollouts=self.evaluation_rollouts + rollouts)

    def spent(self, **seconds: float) -> "Ledger":
        """Adds wall-clock seconds to the named phases."""
        return Ledger(*self[:4], self.seconds.plus(**seconds))

    def as_dict(self) -> dict[str, Any]:
        """The ledger as it stands in `summary.json`."""
        return {**self._asdict(), "seconds": self.seconds._asdict()}

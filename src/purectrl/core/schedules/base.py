"""What a schedule is: the rule that decides WHEN to update."""

import abc
from enum import Flag
from typing import ClassVar, NamedTuple

from purectrl.core.ledger import Budget, Ledger
from purectrl.core.settings import Settings

UNTIL_BUDGET = 2**62
"""A number of episodes that only the budget limits."""


class Targets(Flag):
    """Which models an update refits."""

    NEITHER = 0
    DRIFT = 1
    REWARD = 2
    BOTH = 3


class ExcessLoss(NamedTuple):
    """The excess losses in units of the confidence radius: (L(f_n) − min L)/β_F, and the same for b."""

    drift: float
    reward: float


class Schedule(Settings, abc.ABC):
    """A rule for updates. Subclasses are frozen dataclasses with methods `episodes` and `due`."""

    needs_excess_loss: ClassVar[bool] = False
    """Whether `due` needs the excess loss after every episode, which the learner has to compute."""

    @abc.abstractmethod
    def episodes(self, ledger: Ledger, m: int) -> int:
        """Number of episodes until the next decision; the loop cuts it at the budget."""

    @abc.abstractmethod
    def due(self, ledger: Ledger, excess_loss: ExcessLoss | None) -> Targets:
        """Which models to update now; `excess_loss` is None unless `needs_excess_loss`."""

    def prepare(self, budget: Budget, m: int) -> "Schedule":
        """The schedule for a given budget and m measurements per episode; raises if it does not fit them."""
        return self


def update_points(schedule: Schedule, episodes: int, m: int = 1) -> list[int]:
    """The numbers of episodes after which `schedule` updates in a run of `episodes` episodes if no excess loss occurs.

    >>> from purectrl.core.schedules import Every
    >>> update_points(Every(k=3), episodes=10)
    [3, 6, 9]
    """
    schedule = schedule.prepare(Budget(episodes * m), m)
    points, ledger = [], Ledger()
    while ledger.rollouts < episodes:
        count = min(schedule.episodes(ledger, m), episodes - ledger.rollouts)
        ledger = Ledger(ledger.rollouts + count, ledger.measurements + count * m, ledger.updates)
        if schedule.due(ledger, ExcessLoss(0.0, 0.0)):
            points.append(ledger.rollouts)
            ledger = ledger.count_update()
    return points

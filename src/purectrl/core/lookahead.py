"""Looking ahead in a simulator: many episodes run at once before a schedule decides after each of them.

Algorithm 2 decides after every episode whether to update. A simulated system can run many episodes in one compiled call;
those after the first update are discarded and not charged. Decisions and costs are the same as with one episode at a time. A
real system must not be wrapped in this way.
"""

from dataclasses import dataclass

import numpy as np

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.learner import LookaheadMonitor
from purectrl.core.ledger import Budget, Ledger
from purectrl.core.measurement import Measurements
from purectrl.core.oracle import Oracle
from purectrl.core.samplers import Context
from purectrl.core.schedules import Schedule


@dataclass(frozen=True)
class Lookahead:
    """An oracle that may run up to `lookahead` episodes before `schedule` decides.

    Main arguments:
        oracle: the simulated system.
        schedule: the schedule that needs the excess loss after every episode.
        learner: computes the excess loss after each of several episodes.
        lookahead: the largest number of episodes at once.
    """

    oracle: Oracle
    schedule: Schedule
    learner: LookaheadMonitor
    lookahead: int

    def __post_init__(self) -> None:
        require(self.lookahead >= 1, f"lookahead: must be at least 1 episode, not {self.lookahead}")
        capable = isinstance(self.learner, LookaheadMonitor) and self.learner.can_look_ahead
        require(capable, f"learner: {type(self.learner).__name__} cannot compute excess losses ahead; use lookahead 1")

    @property
    def horizon(self) -> float:
        """T, the length of an episode."""
        return self.oracle.horizon

    @property
    def budget(self) -> Budget:
        """What may be spent."""
        return self.oracle.budget

    def __call__(self, key: Key, times: np.ndarray, context: Context) -> tuple[Measurements, Ledger]:
        """As `Oracle`, cut after the first episode at which an update is due."""
        block, ledger = self.oracle(key, times, context)
        if block.episodes == 1:
            return block, ledger
        losses = self.learner.excess_loss_per_episode(context.learner, block)
        kept = next((n for n, loss in enumerate(losses, 1) if self.schedule.due(context.ledger, loss)), len(losses))
        some = block.first(kept)
        charged = context.ledger.charge(self.budget, rollouts=kept, m=block.m).refund(kept * block.m - some.total)
        return some, charged._replace(seconds=ledger.seconds)

"""Whether an ensemble still fits: the test of Algorithm 2, line 6, for a learner that has no confidence radius.

Algorithm 2                     here
------------------------------  ---------------------------------------------------------------------------------------
f_n                             the ensemble after its last fit, to the episodes D_n
L_e(f)                          its mean loss on the sub-sequences of an episode e, averaged over its members
min_f L_e(f), e after D_n       ℓ_n, the mean of L_e(f_n) over the newest episodes of D_n: the loss that a fit leaves
L(f_n) − min L                  the sum of L_e(f_n) − ℓ_n over the episodes e after D_n, reset when below zero
β_F                             ℓ_n, once: in Theorem 1, too, the radius is a multiple of the noise that no fit explains
L(f_n) ≥ min L + 5 β_F          S ≥ 5, where S ← max(0, S + L_e(f_n)/ℓ_n − 1) after each episode

Computing min L would require a fit, which is the work that the test should save. But the last fit has shown which loss a fit
leaves on the episodes that it used for the first time, which are most like those to come. Older episodes are not: in those
that explore at random the loss is up to thirty times as large, and no fit changes that. For the same reason nothing is known
before the ensemble was fitted to an episode under a policy, and S is infinite: the second update follows the first such
episode. The sum is Page's (1954) CUSUM statistic, which forgets episodes that fitted well, so that they cannot hide others.

Episodes like the earlier ones have L_e near ℓ_n, and S stays small. If the losses are twice as large as they could be, the
update follows after five episodes; if they are six times as large, after one.
"""

from typing import NamedTuple

import numpy as np

from purectrl.control.ensembles import MechanicalEnsemble
from purectrl.control.trajectories import Pairs, TrajectoryLoss, error_scale, mean_loss, subsample, window_starts
from purectrl.core.measurement import Measurements


class CusumMonitor(NamedTuple):
    """What is known about the fit of the current ensemble."""

    level: float = 0.0
    """ℓ_n, zero if it is unknown."""
    sum: float = 0.0
    """S, if ℓ_n is known."""
    fitted: int = 0
    """Number of episodes in D_n."""
    since: int = 0
    """Number of episodes after them that were monitored."""

    def add(self, loss: float) -> "CusumMonitor":
        """The monitor after one more episode with this loss.

        >>> CusumMonitor(level=2.0, sum=1.0, fitted=3).add(8.0)
        CusumMonitor(level=2.0, sum=4.0, fitted=3, since=1)
        >>> CusumMonitor(level=2.0, sum=0.2).add(1.0).sum
        0.0
        """
        total = max(0.0, self.sum + loss / self.level - 1) if self.level > 0 else 0.0
        return self._replace(sum=total, since=self.since + 1)

    @property
    def excess_loss(self) -> float:
        """What Algorithm 2 compares with 5.

        >>> CusumMonitor(level=2.0, sum=4.0).excess_loss, CusumMonitor().excess_loss
        (4.0, inf)
        """
        return self.sum if self.level > 0 else float("inf")


def start_monitor(
    objective: TrajectoryLoss, model: MechanicalEnsemble, seen: Measurements, pairs: Pairs, first_new: int
) -> CusumMonitor:
    """The monitor of an ensemble that was just fitted to `seen`.

    Main arguments:
        first_new: the number of the first episode that the ensemble had not been fitted to before; the number of all
            episodes if none counts.
    """
    starts = window_starts(seen, objective.sequence_length, pairs)
    newest = subsample(starts[starts[:, 0] >= first_new])
    level = mean_loss(objective, model, error_scale(objective, model), seen, newest)
    return CusumMonitor(level, fitted=seen.episodes)


def update_monitor(
    objective: TrajectoryLoss, model: MechanicalEnsemble, monitor: CusumMonitor, seen: Measurements, pairs: Pairs
) -> list[CusumMonitor]:
    """The monitor after each episode of `seen`. One at a time, so that an episode has the same loss in any batch."""
    starts, scale = window_starts(seen, objective.sequence_length, pairs), error_scale(objective, model)
    found = []
    for episode in range(seen.episodes):
        own = starts[starts[:, 0] == episode] if monitor.level else np.empty((0, 2), int)  # no level, no use for a loss
        monitor = monitor.add(mean_loss(objective, model, scale, seen, own))
        found.append(monitor)
    return found

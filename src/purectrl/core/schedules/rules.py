"""Schedules that are rules on the ledger: every k episodes, geometric thresholds, Algorithm 2's test of the excess loss."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from purectrl.core.ledger import Ledger
from purectrl.core.schedules.base import UNTIL_BUDGET, ExcessLoss, Schedule, Targets
from purectrl.core.settings import check_counts, check_not_negative, check_positive


@dataclass(frozen=True)
class Every(Schedule):
    """Both models after every k-th episode (Algorithms 1 and 3, line 5, with k = 1).

    >>> from purectrl.core.schedules import update_points
    >>> update_points(Every(), episodes=4)
    [1, 2, 3, 4]
    """

    k: int = 1
    """Episodes between two updates."""

    def check(self) -> None:
        """At least one episode."""
        check_counts(self, "k")

    def episodes(self, ledger: Ledger, m: int) -> int:
        """Up to the next multiple of k."""
        return self.k - ledger.rollouts % self.k

    def due(self, ledger: Ledger, excess_loss: ExcessLoss | None) -> Targets:
        """Both models at multiples of k."""
        return Targets.NEITHER if ledger.rollouts % self.k else Targets.BOTH


@dataclass(frozen=True)
class Geometric(Schedule):
    """Both models when growth^κ · first / m ≤ n − initial, κ counting updates (Algorithm 4, line 7; Algorithm 5, line 5).

    The rule counts cumulatively: `first` is the number of measurements before the first update, and each further update
    waits until `growth` times as many have been taken in total. At most one update follows an episode.

    >>> from purectrl.core.schedules import update_points
    >>> update_points(Geometric(first=1280, growth=2), episodes=4800, m=4)
    [320, 640, 1280, 2560]
    """

    first: float = 64.0
    """B₁, measurements before the first update."""
    growth: float = 2.0
    """η_base, how many times more measurements each further update waits for."""
    initial: int = 0
    """η_init, episodes of exploration that the rule does not count."""

    def check(self) -> None:
        """Positive thresholds."""
        check_positive(self, "first", "growth")
        check_not_negative(self, "initial")

    def _threshold(self, ledger: Ledger) -> float:
        if ledger.updates * math.log(self.growth) > 600:  # beyond any budget, and beyond floating point
            return math.inf
        # the product may round up past a whole number of measurements; the slack keeps 1280·2^κ exact
        return self.first * self.growth**ledger.updates * (1 - 1e-12)

    def episodes(self, ledger: Ledger, m: int) -> int:
        """Up to the next threshold; exploration is a batch of its own."""
        if ledger.rollouts < self.initial:
            return self.initial - ledger.rollouts
        return max(1, math.ceil(min(self._threshold(ledger) / m, UNTIL_BUDGET)) + self.initial - ledger.rollouts)

    def due(self, ledger: Ledger, excess_loss: ExcessLoss | None) -> Targets:
        """Both models once the threshold is reached."""
        m = max(1, ledger.measurements // ledger.rollouts)
        reached = self._threshold(ledger) / m <= ledger.rollouts - self.initial
        return Targets.BOTH if reached else Targets.NEITHER


@dataclass(frozen=True)
class OnExcessLoss(Schedule):
    """When the excess loss of a model is large: L(f_n) ≥ min L + threshold · β_F, or the same for b (Algorithm 2, lines 6
    and 7). Nothing is updated before `initial` episodes of exploration.

    The paper renews the set of the model that failed its test and then plans in both, so that the other model is chosen from
    a set that newer data may contradict. Renewing both repairs this; docs/algorithm-2.md derives why.

    >>> OnExcessLoss(threshold=5.0).due(Ledger(), ExcessLoss(drift=5.0, reward=4.9))
    <Targets.BOTH: 3>
    >>> OnExcessLoss(threshold=5.0, renew="failed").due(Ledger(), ExcessLoss(drift=5.0, reward=4.9))
    <Targets.DRIFT: 1>
    """

    threshold: float = 5.0
    """Update when the excess loss reaches this many confidence radii."""
    initial: int = 0
    """η_init, episodes of exploration before the first test."""
    renew: Literal["both", "failed"] = "both"
    """Which sets an update renews: both, or only that of the model that failed its test (the paper's Algorithm 2)."""
    needs_excess_loss: ClassVar[bool] = True

    def check(self) -> None:
        """A positive threshold."""
        check_positive(self, "threshold")
        check_not_negative(self, "initial")

    def episodes(self, ledger: Ledger, m: int) -> int:
        """As many as the run has had so far: a simulator may look ahead further, the longer no update was due."""
        if ledger.rollouts < self.initial:
            return self.initial - ledger.rollouts
        return max(1, ledger.rollouts)

    def due(self, ledger: Ledger, excess_loss: ExcessLoss | None) -> Targets:
        """Both models, or those that fail the test, if one does."""
        assert excess_loss is not None
        if ledger.rollouts < self.initial:
            return Targets.NEITHER
        drift = Targets.DRIFT if excess_loss.drift >= self.threshold else Targets.NEITHER
        failed = drift | Targets.REWARD if excess_loss.reward >= self.threshold else drift
        return Targets.BOTH if failed and self.renew == "both" else failed

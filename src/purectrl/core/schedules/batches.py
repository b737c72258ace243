"""Schedules that update once per batch: explicit batch sizes, equal ones, and batches that grow to spend the budget."""

import abc
import functools
import itertools
import math
from dataclasses import dataclass, field, replace
from typing import Literal

from purectrl.core.errors import InputError, require
from purectrl.core.ledger import Budget, Ledger
from purectrl.core.schedules.base import UNTIL_BUDGET, ExcessLoss, Schedule, Targets
from purectrl.core.settings import check_counts, check_not_negative, check_positive

UpdateAt = Literal["before", "after"]


@dataclass(frozen=True)
class Batches(Schedule):
    """Both models once per batch of `sizes` episodes, after `initial` episodes of exploration.

    `update="before"` updates at the start of each batch, as the paper's table of data and policy updates has it for ENODE;
    `update="after"` updates at the end of each, as SEIKO does. Episodes count by their measurements: where they end early, a
    batch has as many measurements as its episodes would have had, and so more episodes.

    >>> from purectrl.core.schedules import update_points
    >>> update_points(Batches((2, 4, 8, 16, 18, 32), update="before", initial=7), episodes=87)
    [7, 9, 13, 21, 37, 55]
    >>> update_points(Batches((320, 640, 1280, 2560)), episodes=4800, m=4)
    [320, 960, 2240, 4800]
    """

    sizes: tuple[int, ...]
    """Episodes of each batch."""
    update: UpdateAt = "after"
    """Whether to update at the start (before) or at the end (after) of a batch."""
    initial: int = 0
    """η_init, episodes of exploration before the first batch."""
    m: int = field(default=0, init=False, repr=False, compare=False)
    """Measurements of a whole episode, set by `prepare`."""
    full: int = field(default=0, init=False, repr=False, compare=False)
    """Measurements after which the budget has no room for another episode, set by `prepare`."""

    def check(self) -> None:
        """Every batch has an episode, and there is data before the first update."""
        require(len(self.sizes) > 0, "sizes: at least one batch is needed")
        require(min(self.sizes) >= 1, f"sizes: every batch needs at least one episode, not {list(self.sizes)}")
        check_not_negative(self, "initial")
        has_data = self.update == "after" or self.initial > 0
        require(has_data, "initial: updating before the first batch needs at least one episode of exploration")

    @functools.cached_property
    def points(self) -> list[int]:
        """The numbers of episodes after which an update is due."""
        ends = [self.initial + end for end in itertools.accumulate(self.sizes)]
        return [self.initial, *ends[:-1]] if self.update == "before" else ends

    def episodes(self, ledger: Ledger, m: int) -> int:
        """Up to the next update."""
        if ledger.updates >= len(self.points):
            return UNTIL_BUDGET
        return max(1, math.ceil((self._needed(ledger.updates, m) - ledger.measurements) / m))

    def due(self, ledger: Ledger, excess_loss: ExcessLoss | None) -> Targets:
        """Both models at the end of a batch."""
        require(self.m > 0, "schedule: batches count measurements; call prepare(budget, m) first")
        left = ledger.updates < len(self.points)
        ended = left and ledger.measurements >= self._needed(ledger.updates, self.m)
        return Targets.BOTH if ended else Targets.NEITHER

    def _needed(self, updates: int, m: int) -> int:
        """Measurements after which the next update is due: those of the batches so far, or all that the budget allows."""
        point = self.points[updates]
        return self.full if point == self.initial + sum(self.sizes) else point * m

    def prepare(self, budget: Budget, m: int) -> "Batches":
        """Raises unless the batches spend the budget exactly."""
        total, available = self.initial + sum(self.sizes), budget.episodes_left(Ledger(), m)
        require(
            total == available,
            f"schedule.sizes: initial + sizes = {total} episodes, but the budget holds {available} episodes of m = {m} "
            f"measurements; use a budget of {total * m} measurements, or other sizes",
        )
        prepared = replace(self)
        object.__setattr__(prepared, "m", m)
        object.__setattr__(prepared, "full", min(total * m, budget.measurements - m + 1))
        return prepared


class BudgetedBatches(Schedule, abc.ABC):
    """Batches whose sizes follow from the budget: `prepare` returns the `Batches`."""

    @abc.abstractmethod
    def batches(self, episodes: int) -> Batches:
        """The batches that spend a budget of `episodes` episodes."""

    def prepare(self, budget: Budget, m: int) -> Batches:
        """The batches for this budget."""
        episodes, initial = budget.episodes_left(Ledger(), m), getattr(self, "initial", 0)
        require(
            initial < episodes,
            f"schedule.initial: {initial} episodes of exploration leave nothing of a budget of {episodes} episodes of "
            f"m = {m} measurements; use a budget of at least {(initial + 1) * m} measurements, or fewer initial episodes",
        )
        return self.batches(episodes).prepare(budget, m)

    def episodes(self, ledger: Ledger, m: int) -> int:
        """Unsupported before `prepare`."""
        raise InputError("schedule: the batch sizes depend on the budget; call prepare(budget, m) first")

    def due(self, ledger: Ledger, excess_loss: ExcessLoss | None) -> Targets:
        """Unsupported before `prepare`."""
        raise InputError("schedule: the batch sizes depend on the budget; call prepare(budget, m) first")


@dataclass(frozen=True)
class EqualBatches(BudgetedBatches):
    """Batches of `size` episodes until the budget is spent: the schedule of ENODE. The last batch may be smaller.

    The rows of the paper's table for ENODE, with N/m and η_init episodes:

    >>> EqualBatches(size=4, initial=7).batches(87).sizes == (4,) * 20
    True
    >>> EqualBatches(size=1, initial=3).batches(9).sizes, EqualBatches(size=3, initial=5).batches(80).sizes == (3,) * 25
    ((1, 1, 1, 1, 1, 1), True)
    """

    size: int = 4
    """Episodes of each batch."""
    initial: int = 5
    """η_init, episodes of exploration before the first batch."""
    update: UpdateAt = "before"
    """Whether to update at the start (before) or at the end (after) of a batch."""

    def check(self) -> None:
        """Positive sizes."""
        check_counts(self, "size")
        check_not_negative(self, "initial")

    def batches(self, episodes: int) -> Batches:
        """Batches of equal size."""
        left = _left_after(self.initial, episodes)
        sizes = [self.size] * (left // self.size) + ([left % self.size] if left % self.size else [])
        return Batches(tuple(sizes), self.update, self.initial)


@dataclass(frozen=True)
class DoublingBatches(BudgetedBatches):
    """Batches of `first`, 2·`first`, 4·`first`, … episodes; the remainder of the budget is one more batch, placed by its
    size. That is the rule behind the paper's table for PURE_ENODE; its rows, with N/m and η_init episodes:

    >>> DoublingBatches(first=2, initial=7).batches(87).sizes
    (2, 4, 8, 16, 18, 32)
    >>> DoublingBatches(first=1, initial=3).batches(9).sizes
    (1, 2, 3)
    >>> DoublingBatches(first=2, initial=5).batches(80).sizes
    (2, 4, 8, 13, 16, 32)
    """

    first: int = 2
    """Episodes of the first batch."""
    initial: int = 5
    """η_init, episodes of exploration before the first batch."""
    update: UpdateAt = "before"
    """Whether to update at the start (before) or at the end (after) of a batch."""

    def check(self) -> None:
        """Positive sizes."""
        check_counts(self, "first")
        check_not_negative(self, "initial")

    def batches(self, episodes: int) -> Batches:
        """Batches that double."""
        left, size, sizes = _left_after(self.initial, episodes), self.first, []
        while sum(sizes) + size <= left:
            sizes.append(size)
            size *= 2
        remainder = left - sum(sizes)
        return Batches(tuple(sorted(sizes + ([remainder] if remainder else []))), self.update, self.initial)


@dataclass(frozen=True)
class GrowingBatches(BudgetedBatches):
    """A fixed number of batches that grow by a factor and spend the budget: the K batches of SEIKO and PURE_SEIKO.

    >>> GrowingBatches(updates=4).batches(4800).sizes
    (320, 640, 1280, 2560)
    """

    updates: int = 4
    """K, the number of updates."""
    growth: float = 2.0
    """How many times more episodes each batch has than the one before."""

    def check(self) -> None:
        """At least one update."""
        check_counts(self, "updates")
        check_positive(self, "growth")

    def batches(self, episodes: int) -> Batches:
        """Batches that grow."""
        return Batches(tuple(geometric_batch_sizes(episodes, self.updates, self.growth)))


def geometric_batch_sizes(episodes: int, count: int, growth: float = 2.0) -> list[int]:
    """`count` batch sizes that grow by `growth` and add up to `episodes`.

    >>> geometric_batch_sizes(4800, count=2), geometric_batch_sizes(480, count=8, growth=1.35)
    ([1600, 3200], [17, 22, 31, 41, 56, 75, 101, 137])
    """
    require(count <= episodes, f"schedule.updates: {count} batches need at least as many episodes, not {episodes}")
    heights = list(itertools.accumulate(growth ** (i - (count - 1) * (growth > 1)) for i in range(count)))
    # every batch has at least one episode, the ends of batches are rounded, and the last is exact
    ends = [
        max(i, min(round(episodes * height / heights[-1]), episodes - count + i)) for i, height in enumerate(heights, 1)
    ]
    return [end - start for start, end in itertools.pairwise([0, *ends])]


def _left_after(initial: int, episodes: int) -> int:
    """Episodes that are left for batches."""
    require(
        initial < episodes,
        f"schedule.initial: {initial} episodes of exploration leave nothing of a budget of {episodes} episodes",
    )
    return episodes - initial

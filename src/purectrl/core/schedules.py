"""WHEN to update: schedules decide how many episodes the current policy runs and what is learned afterwards.

A schedule is a pair of plain functions of the ledger:

    block(ledger, m) -> how many episodes until the next decision (the loop cuts it at the budget);
    due(ledger, excess) -> which models to update now, after those episodes; `excess` is None unless `watches_fit`.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from enum import Flag
from typing import NamedTuple

from purectrl.core.errors import require
from purectrl.core.ledger import Ledger


class Which(Flag):
    """Which models an update concerns."""

    NEITHER = 0
    DRIFT = 1
    REWARD = 2
    BOTH = 3


class Excess(NamedTuple):
    """How badly the current models fit, in units of the confidence radius: (L(f_n) − min L)/β_F, the same for b."""

    drift: float
    reward: float


class Schedule(NamedTuple):
    """A pair of functions; see the module's docstring."""

    name: str
    block: Callable[[Ledger, int], int]
    due: Callable[[Ledger, Excess | None], Which]
    watches_fit: bool = False
    """Whether `due` wants to know after every episode how well the models fit, which costs the learner a look."""

    def first_due(self, ledger: Ledger, excesses: Sequence[Excess]) -> int:
        """The number of episodes after which an update is due for the first time, all of them if it never is.

        >>> on_misfit(5.0).first_due(Ledger(), [Excess(1.0, 2.0), Excess(1.0, 6.0), Excess(7.0, 0.0)])
        2
        """
        return next((n for n, excess in enumerate(excesses, 1) if self.due(ledger, excess)), len(excesses))


FOREVER = 2**62
"""A block that only the budget ends."""


def update_points(schedule: Schedule, episodes: int, m: int = 1) -> list[int]:
    """The numbers of episodes after which `schedule` updates in a run of `episodes` episodes, if the models always fit.

    >>> update_points(every(3), episodes=10)
    [3, 6, 9]
    """
    points, ledger = [], Ledger()
    while ledger.rollouts < episodes:
        count = min(schedule.block(ledger, m), episodes - ledger.rollouts)
        ledger = Ledger(ledger.rollouts + count, ledger.measurements + count * m, ledger.updates)
        if schedule.due(ledger, Excess(0.0, 0.0)):
            points.append(ledger.rollouts)
            ledger = ledger.updated()
    return points


def every(k: int = 1) -> Schedule:
    """Both models after every k-th episode (Algorithms 1 and 3, line 5, with k = 1).

    >>> update_points(every(1), episodes=4)
    [1, 2, 3, 4]
    """
    require(k >= 1, f"k: the number of episodes between updates must be at least 1, not {k}")
    return Schedule(
        f"every({k})",
        lambda ledger, m: k - ledger.rollouts % k,
        lambda ledger, excess: Which.NEITHER if ledger.rollouts % k else Which.BOTH,
    )


def batches(sizes: Sequence[int], update: str = "after", initial: int = 0) -> Schedule:
    """Both models once a batch of `sizes` episodes, after `initial` episodes of exploration.

    `update="before"` learns at the start of each batch, as the table of data and policy updates has it for ENODE;
    `update="after"` learns at the end of each, as SEIKO does. Every row of the table, N/m and η_init in front:

    >>> acrobot, pendulum, cartpole = (87, 7), (9, 3), (80, 5)
    >>> def row(total, sizes):
    ...     return update_points(batches(sizes, update="before", initial=total[1]), total[0])
    >>> row(acrobot, [2, 4, 8, 16, 18, 32])
    [7, 9, 13, 21, 37, 55]
    >>> row(acrobot, [4] * 20) == list(range(7, 87, 4))
    True
    >>> row(pendulum, [1, 2, 3])
    [3, 4, 6]
    >>> row(pendulum, [1] * 6)
    [3, 4, 5, 6, 7, 8]
    >>> row(cartpole, [2, 4, 8, 13, 16, 32])
    [5, 7, 11, 19, 32, 48]
    >>> row(cartpole, [3] * 25) == list(range(5, 80, 3))
    True

    SEIKO, K = 4: 1280, 2560, 5120 and 10240 measurements with m = 4.

    >>> update_points(batches([320, 640, 1280, 2560]), episodes=4800, m=4)
    [320, 960, 2240, 4800]
    """
    require(len(sizes) > 0, "sizes: at least one batch is needed")
    require(min(sizes) >= 1, f"sizes: every batch needs at least one episode, not {list(sizes)}")
    require(update in ("before", "after"), f"update: must be 'before' or 'after', not {update!r}")
    require(initial >= 0, f"initial: the number of exploring episodes cannot be negative, got {initial}")
    require(update == "after" or initial > 0, "initial: updating before the first batch needs exploring episodes")
    ends = [initial + end for end in itertools.accumulate(sizes)]
    points = [initial, *ends[:-1]] if update == "before" else ends

    def block(ledger: Ledger, m: int) -> int:
        return next((point - ledger.rollouts for point in points if point > ledger.rollouts), FOREVER)

    return Schedule(
        f"batches({update})",
        block,
        lambda ledger, excess: Which.BOTH if ledger.rollouts in points else Which.NEITHER,
    )


def growing(episodes: int, count: int, growth: float = 2.0) -> list[int]:
    """`count` batch sizes that grow by `growth` and add up to `episodes`: the K batches of SEIKO, for `batches`.

    >>> growing(4800, count=4), growing(4800, count=2), growing(480, count=8, growth=1.35)
    ([320, 640, 1280, 2560], [1600, 3200], [17, 22, 31, 41, 56, 75, 101, 137])
    """
    require(count >= 1, f"count: at least one batch is needed, not {count}")
    require(growth > 0, f"growth: must be positive, not {growth}")
    require(count <= episodes, f"count: {count} batches need at least as many episodes, not {episodes}")
    heights = list(itertools.accumulate(growth ** (i - (count - 1) * (growth > 1)) for i in range(count)))
    # every batch has at least one episode, the ends of batches are rounded, and the last is exact
    ends = [
        max(i, min(round(episodes * height / heights[-1]), episodes - count + i)) for i, height in enumerate(heights, 1)
    ]
    return [end - start for start, end in itertools.pairwise([0, *ends])]


def geometric(first: float, growth: float, initial: int = 0) -> Schedule:
    """Both models when growth^κ · first / m ≤ n − initial, κ counting updates (Algorithm 4, line 7; Algorithm 5, line 5).

    The rule counts cumulatively: `first` is the number of measurements before the first update, and each further update
    waits until `growth` times as many have been taken in all. At most one update follows an episode.

    >>> update_points(geometric(first=1280, growth=2), episodes=4800, m=4)
    [320, 640, 1280, 2560]
    """
    require(first > 0, f"first: the first batch must hold a positive number of measurements, not {first}")
    require(growth > 0, f"growth: the growth factor η must be positive, not {growth}")
    require(initial >= 0, f"initial: the number of exploring episodes cannot be negative, got {initial}")

    def threshold(ledger: Ledger) -> float:
        if ledger.updates * math.log(growth) > 600:  # beyond any budget, and beyond floating point
            return math.inf
        # the product may round up past a whole number of measurements; the slack keeps 1280·2^κ exact
        return first * growth**ledger.updates * (1 - 1e-12)

    def block(ledger: Ledger, m: int) -> int:
        if ledger.rollouts < initial:  # a block of its own, so that exploring may differ from what follows
            return initial - ledger.rollouts
        return max(1, math.ceil(min(threshold(ledger) / m, FOREVER)) + initial - ledger.rollouts)

    def due(ledger: Ledger, excess: Excess | None) -> Which:
        m = ledger.measurements // ledger.rollouts
        return Which.BOTH if threshold(ledger) / m <= ledger.rollouts - initial else Which.NEITHER

    return Schedule(f"geometric({first:g}, {growth:g})", block, due)


def on_misfit(factor: float = 5.0, initial: int = 0) -> Schedule:
    """Only the model that has stopped fitting: L(f_n) ≥ min L + factor · β_F, the same for b (Algorithm 2, lines 6 and 7).

    Nothing is updated before `initial` episodes of exploration.

    >>> on_misfit(5.0).due(Ledger(), Excess(drift=5.0, reward=4.9))
    <Which.DRIFT: 1>
    """
    require(factor > 0, f"factor: the misfit test needs a positive factor, not {factor}")
    require(initial >= 0, f"initial: the number of exploring episodes cannot be negative, got {initial}")

    def block(ledger: Ledger, m: int) -> int:
        # the longer nothing happened, the more episodes a simulator may run ahead of the next decision
        return initial - ledger.rollouts if ledger.rollouts < initial else max(1, ledger.rollouts)

    def due(ledger: Ledger, excess: Excess | None) -> Which:
        assert excess is not None
        if ledger.rollouts < initial:
            return Which.NEITHER
        drift = Which.DRIFT if excess.drift >= factor else Which.NEITHER
        return drift | Which.REWARD if excess.reward >= factor else drift

    return Schedule(f"on-misfit({factor:g})", block, due, watches_fit=True)

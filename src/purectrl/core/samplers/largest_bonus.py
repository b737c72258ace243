"""Which measurements to take: those of which the reward model knows least."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.samplers.base import Context, Sampler
from purectrl.core.settings import check_counts


@dataclass(frozen=True)
class LargestBonus(Sampler):
    """Of the measurements on the grid {T/m, …, T} of several times as many rollouts, those with the largest bonus.

    `candidates` rollouts are made for each m measurements, and the measurements are those with the largest bonus among all
    that are generated together, of whichever rollout and time. Before the first update they are chosen at random. All
    rollouts count: it pays where a measurement is much more expensive than a rollout.

    >>> LargestBonus(m=2)(Key.from_seed(0), 1, Context(horizon=12.0))
    array([[ 6., 12.]])
    """

    selects: ClassVar[bool] = True
    needs_bonus: ClassVar[bool] = True

    m: int = 1
    """Measurements that a rollout offers."""
    candidates: int = 4
    """Rollouts for each m measurements that are taken."""

    def check(self) -> None:
        """At least one of each."""
        check_counts(self, "m", "candidates")

    def rollouts(self, episodes: int, context: Context) -> int:
        """`candidates` times as many."""
        return episodes * self.candidates

    def draw(self, key: Key, episodes: int, context: Context) -> np.ndarray:
        """Times [episodes, m], the same in every episode."""
        return np.tile(np.arange(1, self.m + 1) / self.m * context.horizon, (episodes, 1))

    def select(
        self, offered: Measurements, asked: int, key: Key, context: Context, bonus: Callable[[Measurements], np.ndarray]
    ) -> np.ndarray:
        """Those with the largest bonus; before the first update, any."""
        scores = bonus(offered) if context.ledger.updates else key.uniform(*offered.t.shape)
        taken = np.zeros(offered.t.size, bool)
        taken[np.argsort(-scores.ravel(), kind="stable")[:asked]] = True
        return taken.reshape(offered.t.shape)

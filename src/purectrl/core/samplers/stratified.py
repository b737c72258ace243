"""The sampler of CT-MLE: one random time in each of m gaps."""

from dataclasses import dataclass

import numpy as np

from purectrl.core.keys import Key
from purectrl.core.samplers.base import Context, Sampler
from purectrl.core.settings import check_counts


@dataclass(frozen=True)
class Stratified(Sampler):
    """One time ~ Unif[(i−1)T/m, iT/m] for each i = 1 … m. A time drawn at random from them is uniform on [0, T], as with
    `Uniform`, but the mean of a smooth function over them has a variance of order m⁻³ instead of m⁻¹.

    >>> Stratified(m=4)(Key.from_seed(0), 2, Context(horizon=8.0)).round(1)
    array([[1.5, 3.1, 5.2, 7.9],
           [0.6, 2.7, 4.6, 6.2]])
    """

    m: int = 10
    """Measurements per episode."""

    def check(self) -> None:
        """At least one measurement."""
        check_counts(self, "m")

    def draw(self, key: Key, episodes: int, context: Context) -> np.ndarray:
        """Times [episodes, m]."""
        # min, because (i + v)/m may round to just above 1
        return np.minimum((np.arange(self.m) + key.uniform(episodes, self.m)) / self.m, 1.0) * context.horizon

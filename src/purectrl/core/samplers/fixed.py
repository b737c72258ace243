"""Samplers of the paper whose times do not depend on the learner: uniform, equidistant, final, exponential gaps."""

from dataclasses import dataclass, field

import numpy as np

from purectrl.core.keys import Key
from purectrl.core.samplers.base import Context, Sampler
from purectrl.core.settings import check_counts, check_positive


@dataclass(frozen=True)
class Uniform(Sampler):
    """m independent times ~ Unif[0, T] (Algorithms 1 and 2, line 4, with m = 1).

    >>> Uniform(m=3)(Key.from_seed(0), 2, Context(horizon=10.0)).round(1)
    array([[ 5.1,  5.4,  6.6],
           [ 6.4,  7.6, 10. ]])
    """

    m: int = 1
    """Measurements per episode."""

    def check(self) -> None:
        """At least one measurement."""
        check_counts(self, "m")

    def draw(self, key: Key, episodes: int, context: Context) -> np.ndarray:
        """Times [episodes, m]."""
        return key.uniform(episodes, self.m) * context.horizon


@dataclass(frozen=True)
class Equidistant(Sampler):
    """The grid t_i = iT/m, i = 1 … m (proof of Proposition 2).

    >>> Equidistant(m=4)(Key.from_seed(0), 1, Context(horizon=10.0))
    array([[ 2.5,  5. ,  7.5, 10. ]])
    """

    m: int = 1
    """Measurements per episode."""

    def check(self) -> None:
        """At least one measurement."""
        check_counts(self, "m")

    def draw(self, key: Key, episodes: int, context: Context) -> np.ndarray:
        """Times [episodes, m], the same in every episode."""
        return np.tile(np.arange(1, self.m + 1) / self.m * context.horizon, (episodes, 1))


@dataclass(frozen=True)
class Final(Sampler):
    """One measurement at the end of the trajectory, t = T: the sampler of SEIKO.

    >>> Final()(Key.from_seed(0), 2, Context(horizon=10.0))
    array([[10.],
           [10.]])
    """

    m: int = field(default=1, init=False)
    """Measurements per episode."""

    def draw(self, key: Key, episodes: int, context: Context) -> np.ndarray:
        """Times [episodes, 1]."""
        return np.full((episodes, 1), float(context.horizon))


@dataclass(frozen=True)
class ExponentialGaps(Sampler):
    """m times with independent exponential gaps: irregular observation. An episode whose last time would exceed T is
    compressed to end at T.

    >>> ExponentialGaps(m=4, mean_gap=1.0)(Key.from_seed(0), 1, Context(horizon=10.0)).round(1)
    array([[0.2, 0.3, 1.3, 2.5]])
    """

    m: int = 1
    """Measurements per episode."""
    mean_gap: float = 0.1
    """Mean time between two measurements."""

    def check(self) -> None:
        """At least one measurement and a positive gap."""
        check_counts(self, "m")
        check_positive(self, "mean_gap")

    def draw(self, key: Key, episodes: int, context: Context) -> np.ndarray:
        """Times [episodes, m]."""
        times = np.cumsum(key.generator().exponential(self.mean_gap, (episodes, self.m)), axis=1)
        # min, because T·(t/t_m) may round to just above T
        return np.minimum(times * np.minimum(1.0, context.horizon / times[:, -1:]), context.horizon)

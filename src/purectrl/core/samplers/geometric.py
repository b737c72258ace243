"""The samplers of PURE_SEIKO: late times of a trajectory are preferred, P(iT/m) ∝ λ^i."""

from dataclasses import dataclass

import numpy as np

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.samplers.base import Context, Sampler
from purectrl.core.settings import check_counts, check_positive


def geometric_probabilities(m: int, lam: float) -> np.ndarray:
    """P(iT/m) ∝ λ^i, i = 1 … m (section "Fine-Tuning Diffusion Models"), as an array [m].

    >>> geometric_probabilities(m=4, lam=6.0).round(4)
    array([0.0039, 0.0232, 0.139 , 0.834 ])
    """
    weights = np.exp((np.arange(1, m + 1) - m) * np.log(lam) - max(0.0, (1 - m) * np.log(lam)))
    return weights / weights.sum()


@dataclass(frozen=True)
class Geometric(Sampler):
    """m independent draws from the grid {T/m, …, T} with P(iT/m) ∝ λ^i: the sampler of PURE_SEIKO. Times may repeat.

    >>> Geometric(m=4, lam=6.0)(Key.from_seed(0), 3, Context(horizon=50.0))
    array([[37.5, 37.5, 50. , 50. ],
           [50. , 50. , 50. , 50. ],
           [37.5, 37.5, 50. , 50. ]])
    """

    m: int = 4
    """Measurements per episode."""
    lam: float = 6.0
    """λ: how strongly late times are preferred."""

    def check(self) -> None:
        """At least one measurement and a positive λ."""
        check_counts(self, "m")
        check_positive(self, "lam")

    def draw(self, key: Key, episodes: int, context: Context) -> np.ndarray:
        """Times [episodes, m]."""
        cumulative = np.cumsum(geometric_probabilities(self.m, self.lam))
        index = np.searchsorted(cumulative, key.uniform(episodes, self.m), side="right")
        return (np.minimum(index, self.m - 1) + 1) / self.m * context.horizon


@dataclass(frozen=True)
class GeometricDistinct(Sampler):
    """m different times from the grid {T/grid, …, T}, drawn one after the other with P(t) ∝ λ^(mt/T) among the remaining.

    A reward without noise says nothing new about a time that was measured already. With `grid` = m, the default, every time
    of `Geometric` is taken once; a finer grid, such as the denoising steps, leaves a choice.

    >>> GeometricDistinct(m=4, lam=6.0, grid=12)(Key.from_seed(0), 3, Context(horizon=12.0))
    array([[ 5., 10., 11., 12.],
           [ 9., 10., 11., 12.],
           [ 8., 10., 11., 12.]])
    """

    m: int = 4
    """Measurements per episode."""
    lam: float = 6.0
    """λ: how strongly late times are preferred."""
    grid: int | None = None
    """Number of candidate times per episode; by default m."""

    def check(self) -> None:
        """The grid has room for m different times."""
        check_counts(self, "m", "grid")
        check_positive(self, "lam")
        enough = self.grid is None or self.grid >= self.m
        require(enough, f"grid: {self.m} different times need a grid of at least {self.m}, not {self.grid}")

    def draw(self, key: Key, episodes: int, context: Context) -> np.ndarray:
        """Times [episodes, m]."""
        points = self.m if self.grid is None else self.grid
        logits = np.arange(1, points + 1) * (self.m / points * np.log(self.lam))
        # the m largest of logit + Gumbel noise are m draws without replacement (Yellott, 1977)
        noise = -np.log(-np.log(key.uniform(episodes, points).clip(1e-300, 1 - 1e-16)))
        chosen = np.argsort(-(logits + noise), axis=1)[:, : self.m]
        return (chosen + 1) / points * context.horizon

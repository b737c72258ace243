"""WHEN to measure: samplers draw the times of a block of episodes.

A sampler is called as `sampler(key, episodes, context)` and returns times [episodes, m], sorted within each episode and
inside [0, T]; `sampler.m` is the number of measurements an episode. Any callable that does this is a sampler; those below
are the ones of the paper. An adaptive sampler reads the learner's state from `context`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from purectrl.core.errors import InputError, require
from purectrl.core.keys import Key
from purectrl.core.ledger import Ledger
from purectrl.core.measurement import Dataset


class Context(NamedTuple):
    """What a sampler may look at."""

    horizon: float
    """T, the length of an episode."""
    ledger: Ledger = Ledger()
    """What was spent so far."""
    learner: Any = None
    """The learner's state."""
    plan: Any = None
    """The plan that is about to run."""
    data: Dataset = Dataset()
    """All measurements so far."""


@dataclass(frozen=True)
class Sampler:
    """A rule for measurement times.

    Main arguments:
        name: what reports call it.
        m: measurements an episode.
        draw: (key, episodes, context) -> times [episodes, m] in any order.

    >>> ends = Sampler("ends", 2, lambda key, episodes, context: np.tile([context.horizon, 0.0], (episodes, 1)))
    >>> ends(Key.from_seed(0), 1, Context(horizon=5.0))
    array([[0., 5.]])
    """

    name: str
    m: int
    draw: Callable[[Key, int, Context], np.ndarray]

    def __post_init__(self) -> None:
        require(self.m >= 1, f"m: an episode needs at least one measurement, not {self.m}")

    def __call__(self, key: Key, episodes: int, context: Context) -> np.ndarray:
        """Times [episodes, m], sorted within each episode."""
        times = self.draw(key, episodes, context)
        if times.shape != (episodes, self.m):
            raise InputError(f"sampler {self.name!r}: returned times {times.shape}, expected {(episodes, self.m)}")
        return np.sort(times, axis=1) if self.m > 1 else times


def uniform(m: int = 1) -> Sampler:
    """m independent times ~ Unif[0, T] (Algorithms 1 and 2, line 4, with m = 1).

    >>> uniform(m=3)(Key.from_seed(0), 2, Context(horizon=10.0)).round(1)
    array([[ 5.1,  5.4,  6.6],
           [ 6.4,  7.6, 10. ]])
    """
    return Sampler("uniform", m, lambda key, episodes, c: key.uniform(episodes, m) * c.horizon)


def equidistant(m: int) -> Sampler:
    """The grid t_i = iT/m, i = 1 … m (proof of Proposition 2).

    >>> equidistant(m=4)(Key.from_seed(0), 1, Context(horizon=10.0))
    array([[ 2.5,  5. ,  7.5, 10. ]])
    """
    grid = np.arange(1, m + 1) / max(m, 1)
    return Sampler("equidistant", m, lambda key, episodes, c: np.tile(grid * c.horizon, (episodes, 1)))


def geometric_probabilities(m: int, lam: float) -> np.ndarray:
    """P(iT/m) ∝ λ^i, i = 1 … m (section "Fine-Tuning Diffusion Models"), as an array [m].

    >>> geometric_probabilities(m=4, lam=6.0).round(4)
    array([0.0039, 0.0232, 0.139 , 0.834 ])
    """
    require(lam > 0, f"lam: the temperature λ must be positive, not {lam}")
    weights = np.exp((np.arange(1, m + 1) - m) * np.log(lam) - max(0.0, (1 - m) * np.log(lam)))
    return weights / weights.sum()


def geometric(m: int, lam: float = 6.0) -> Sampler:
    """m independent draws from the grid {T/m, …, T} with P(iT/m) ∝ λ^i: the sampler of PURE_SEIKO. Times may repeat.

    >>> geometric(m=4, lam=6.0)(Key.from_seed(0), 3, Context(horizon=50.0))
    array([[37.5, 37.5, 50. , 50. ],
           [50. , 50. , 50. , 50. ],
           [37.5, 37.5, 50. , 50. ]])
    """
    require(m >= 1, f"m: an episode needs at least one measurement, not {m}")
    cumulative = np.cumsum(geometric_probabilities(m, lam))

    def draw(key: Key, episodes: int, context: Context) -> np.ndarray:
        index = np.searchsorted(cumulative, key.uniform(episodes, m), side="right")
        return (np.minimum(index, m - 1) + 1) / m * context.horizon

    return Sampler("geometric", m, draw)


def geometric_distinct(m: int, lam: float = 6.0, grid: int | None = None) -> Sampler:
    """m different times from the grid {T/grid, …, T}, one after the other with P(t) ∝ λ^(mt/T) among those that are left.

    A reward without noise tells nothing new about a time it was asked for already. With `grid` = m, the default, every time
    of the sampler above is taken once; a finer grid, such as one of denoising steps, leaves a choice.

    >>> geometric_distinct(m=4, lam=6.0, grid=12)(Key.from_seed(0), 3, Context(horizon=12.0))
    array([[ 5., 10., 11., 12.],
           [ 9., 10., 11., 12.],
           [ 8., 10., 11., 12.]])
    """
    require(m >= 1, f"m: an episode needs at least one measurement, not {m}")
    require(lam > 0, f"lam: the temperature λ must be positive, not {lam}")
    points = m if grid is None else grid
    require(points >= m, f"grid: {m} different times need a grid of at least {m}, not {points}")
    logits = np.arange(1, points + 1) * (m / points * np.log(lam))

    def draw(key: Key, episodes: int, context: Context) -> np.ndarray:
        # the m largest of logit + Gumbel noise are m draws without replacement (Yellott, 1977)
        noise = -np.log(-np.log(key.uniform(episodes, points).clip(1e-300, 1 - 1e-16)))
        chosen = np.argsort(-(logits + noise), axis=1)[:, :m]
        return (chosen + 1) / points * context.horizon

    return Sampler("geometric-distinct", m, draw)


def windows(count: int, length: float, step: float, overlap: bool = False, from_start: bool = False) -> Sampler:
    """`count` windows of consecutive times t⁰, t⁰+Δt, … with random starts: m = count · length / step (Algorithm 5, line 3).

    By default the windows are placed uniformly at random among all placements that do not overlap, so that sorting keeps
    each window together; `overlap=True` draws the starts independently, as the paper does. With `from_start=True` the first
    window is always at t = 0, so that every episode shows how it begins.

    >>> windows(count=5, length=5.0, step=0.1).m
    250
    >>> windows(count=2, length=2.0, step=1.0)(Key.from_seed(0), 1, Context(horizon=10.0)).round(1)
    array([[2.9, 3.9, 6.8, 7.8]])
    >>> windows(count=2, length=2.0, step=1.0, from_start=True)(Key.from_seed(0), 1, Context(horizon=10.0)).round(1)
    array([[0. , 1. , 6.9, 7.9]])
    """
    require(count >= 1, f"count: at least one window is needed, not {count}")
    require(step > 0, f"step: the time grid Δt must be positive, not {step}")
    require(length >= step, f"length: a window must hold at least one step of {step}, not {length}")
    points = round(length / step)
    require(abs(points * step - length) < 1e-6 * length, f"length: {length} is not a whole number of steps of {step}")

    def draw(key: Key, episodes: int, context: Context) -> np.ndarray:
        free = context.horizon - (length if overlap else count * length)
        require(
            free >= -1e-9 * context.horizon,
            f"windows: {count} windows of {length} do not fit into an episode of {context.horizon}; "
            f"take fewer or shorter ones{'' if overlap else ', or allow overlap'}",
        )
        starts = np.sort(key.uniform(episodes, count - from_start), axis=1) * max(free, 0.0)
        starts = np.pad(starts, ((0, 0), (int(from_start), 0)))
        if not overlap:
            starts += np.arange(count) * length
        return (starts[:, :, None] + np.arange(points) * step).reshape(episodes, -1)

    return Sampler("windows", count * points, draw)


def final() -> Sampler:
    """One measurement at the end of the trajectory, t = T: the sampler of SEIKO.

    >>> final()(Key.from_seed(0), 2, Context(horizon=10.0))
    array([[10.],
           [10.]])
    """
    return Sampler("final", 1, lambda key, episodes, c: np.full((episodes, 1), float(c.horizon)))


def exponential_gaps(m: int, mean_gap: float) -> Sampler:
    """m times from the start on, with independent exponential gaps: irregular observation. An episode whose last time
    would lie beyond T is compressed to end at T.

    >>> exponential_gaps(m=4, mean_gap=1.0)(Key.from_seed(0), 1, Context(horizon=10.0)).round(1)
    array([[0.2, 0.3, 1.3, 2.5]])
    """
    require(mean_gap > 0, f"mean_gap: the mean gap must be positive, not {mean_gap}")

    def draw(key: Key, episodes: int, context: Context) -> np.ndarray:
        times = np.cumsum(key.generator().exponential(mean_gap, (episodes, m)), axis=1)
        # min, because T·(t/t_m) may round to just above T
        return np.minimum(times * np.minimum(1.0, context.horizon / times[:, -1:]), context.horizon)

    return Sampler("exponential-gaps", m, draw)

"""Expectations of Brownian motion on a circle (`purectrl.systems.circle`) in closed form, and what follows from them about
any algorithm: the coefficient C_{T,m}, the design effect, a lower bound on the regret. This module does not load JAX.

From a state z, E cos k(x(t) − a) = e^(−k²g²t/2) cos k(z − a): the slowest correlation has decayed to 1/e at t = 2/g², the
mixing time. Every expectation below is a sum of such terms, because

    ψ_0(x)² = 3/8 + cos(x)/2 + cos(2x)/8.
"""

import math
from typing import Literal

import numpy as np

from purectrl.core.errors import UnsupportedError, require
from purectrl.core.samplers import Equidistant, ExponentialGaps, Sampler, Uniform, Windows

Start = Literal["uniform", "opposite"]
"""x(0) uniform on the circle, its stationary distribution; or at π, where ψ_0 is zero and nothing is to be learned."""


def mean_bump(start: Start, diffusion: float, horizon: float) -> float:
    """E ψ_0(x(t)) for t ~ Unif[0, T]: what a unit of θ_0 u_0 is worth per unit of time.

    >>> mean_bump("uniform", 2.0, 1.0), round(mean_bump("opposite", 2.0, 1e-9), 6)
    (0.5, 0.0)
    """
    return 0.5 if start == "uniform" else (1 - _averaged(1, diffusion, horizon)) / 2


def information(start: Start, diffusion: float, horizon: float) -> float:
    """E ψ_0(x(t))² for t ~ Unif[0, T]: the squared distance of two rewards with d = 1 that differ by one in θ.

    >>> information("uniform", 2.0, 1.0)
    0.375
    """
    if start == "uniform":
        return 3 / 8
    return 3 / 8 - _averaged(1, diffusion, horizon) / 2 + _averaged(2, diffusion, horizon) / 8


def conditional_information(decays: tuple[float, float]) -> float:
    """E[ψ_0(x)² | z] at the worst past z = π, from E e^(−k²g²s/2) over the time s since then, for k = 1 and 2.

    >>> conditional_information((0.0, 0.0)), conditional_information((1.0, 1.0))
    (0.375, 0.0)
    """
    first, second = decays
    return 3 / 8 - first / 2 + second / 8


def decays_after(gap: float, diffusion: float) -> tuple[float, float]:
    """e^(−k²g²s/2) for k = 1, 2 after a fixed time s."""
    return math.exp(-(diffusion**2) * gap / 2), math.exp(-2 * diffusion**2 * gap)


def mean_decays(mean_gap: float, diffusion: float) -> tuple[float, float]:
    """E e^(−k²g²s/2) for k = 1, 2 and an exponential time s.

    >>> mean_decays(mean_gap=1.0, diffusion=1.0)
    (0.6666666666666666, 0.3333333333333333)
    """
    return 1 / (1 + diffusion**2 * mean_gap / 2), 1 / (1 + 2 * diffusion**2 * mean_gap)


def correlation(gap: np.ndarray, diffusion: float) -> np.ndarray:
    """The correlation of ψ_0² at two times of an episode that starts uniformly, by the time between them.

    >>> correlation(np.array([0.0, 100.0]), diffusion=1.0).round(6).tolist()
    [1.0, 0.0]
    """
    slow, fast = np.exp(-(diffusion**2) * gap / 2), np.exp(-2 * diffusion**2 * gap)
    return (16 * slow + fast) / 17


def measured_information(sampler: Sampler, diffusion: float, horizon: float, start: Start = "uniform") -> float:
    """The mean of E ψ_0² over the first measurements of episodes, given nothing.

    Main arguments:
        sampler: any with a uniform start; from π, one that has a closed form (see `independency_circle`).

    >>> measured_information(Equidistant(m=20), diffusion=2.0, horizon=1.0)
    0.375
    """
    if start == "uniform" or isinstance(sampler, Uniform):
        return information(start, diffusion, horizon)
    return conditional_information(_decays(sampler, diffusion, horizon))


def independency_circle(sampler: Sampler, diffusion: float, horizon: float, start: Start = "uniform") -> float:
    """C_{T,m} of `circle` with d = 1, exact: F has one drift, so only rewards count, and h = 4η²ψ_0² for both.

    The worst past is z = π, where ψ_0 = 0, since e^(−g²s/2) ≥ e^(−2g²s) makes E[ψ_0² | z] smallest there. Exponential gaps
    are taken as not compressed, which is accurate while m · mean gap ≪ T.

    Main arguments:
        sampler: uniform with m = 1, equidistant, exponential gaps, or a window at the start.

    >>> independency_circle(Uniform(), diffusion=2.0, horizon=1.0)
    1.0
    >>> round(independency_circle(Equidistant(m=20), diffusion=2.0, horizon=1.0), 3)
    58.858
    >>> independency_circle(Windows(count=1, length=0.1, step=0.1, from_start=True), 2.0, 1.0, start="opposite")
    inf
    """
    if sampler.m == 1 and (isinstance(sampler, Uniform) or start == "uniform"):
        return 1.0
    given = conditional_information(_decays(sampler, diffusion, horizon))
    return max(1.0, information(start, diffusion, horizon) / given) if given > 0 else math.inf


def _decays(sampler: Sampler, diffusion: float, horizon: float) -> tuple[float, float]:
    """E e^(−k²g²s/2) over the time s from the start of an episode, or from one measurement, to the next."""
    if isinstance(sampler, Equidistant):
        return decays_after(horizon / sampler.m, diffusion)
    if isinstance(sampler, ExponentialGaps):
        return mean_decays(sampler.mean_gap, diffusion)
    if isinstance(sampler, Windows) and sampler.from_start and sampler.count == 1 and sampler.m == 1:
        return decays_after(0.0, diffusion)
    raise UnsupportedError(
        f"no closed form for {sampler}; use Uniform(m=1), Equidistant or ExponentialGaps, or "
        "purectrl.theory.independency.independency_coefficient"
    )


def design_effect(m: int, diffusion: float, horizon: float) -> float:
    """1 + (m − 1)ρ, where ρ is the mean correlation of ψ_0² between two of m equidistant measurements of an episode that
    starts uniformly: by how much the variance of their sum exceeds that of m independent ones.

    >>> design_effect(1, 2.0, 1.0), round(design_effect(20, 1e-3, 1.0), 3), round(design_effect(20, 100.0, 1.0), 3)
    (1.0, 20.0, 1.0)
    """
    times = np.arange(1, m + 1) * horizon / m
    found = correlation(np.abs(times[:, None] - times[None]), diffusion)
    return float(found.mean() * m)


def bayes_regret(total: int, distance: float, reward_std: float, horizon: float = 1.0, dimension: int = 1) -> float:
    """A lower bound on the average regret of every algorithm on `circle` with uniform start, for the worst of all truths.

    Each coordinate of θ is an independent sign. After n measurements and with full knowledge of the others, the best guess
    of one is wrong with probability E Φ(−η sqrt(Σψ²)/σ) ≥ Φ(−η sqrt(3n/8)/σ), by Jensen's inequality, whatever was
    executed; a wrong sign costs Tη. The worst truth is at least as bad as the mean.

    >>> round(bayes_regret(4096, distance=3 / 64, reward_std=1.0), 5)
    0.00616
    """
    from scipy.stats import norm

    n = np.arange(total)
    wrong = norm.cdf(-distance * np.sqrt(3 * n / 8) / reward_std)
    return float(dimension * horizon * distance * wrong.mean())


def _averaged(k: int, diffusion: float, horizon: float) -> float:
    """The mean of e^(−k²g²t/2) over [0, T]."""
    rate = k**2 * diffusion**2 * horizon / 2
    require(rate > 0, "diffusion: g* must be positive on the circle from a fixed start; without noise the state stays")
    return -math.expm1(-rate) / rate

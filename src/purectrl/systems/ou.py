"""The Ornstein-Uhlenbeck process of Proposition 2: the control is the rate at which the state is drawn back to the origin.

    dx = −u · x dt + g dw,     x(0) = 0,     0 < u_min ≤ u ≤ u_max,     b(x, u) = exp(−2 (x − goal)²)

or, as in the proposition itself, b(x, u) = x (`linear`). With a constant control the state is Gaussian at every time, with
mean 0 and variance g² (1 − e^(−2ut)) / (2u). The expected reward then has a closed form, and the value of an episode is one
integral over time. The paper has g = sqrt(2), with which the stationary variance is 1/u, and the unbounded reward x, with
which all policies are worth zero, since E x(t) = 0; a bump keeps 0 ≤ b ≤ 1, which the algorithms assume, and makes policies
differ.
"""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.system import System

SHARPNESS = 2.0
"""The factor in front of (x − goal)²."""


def drift(multiplier: Array, x: Array, u: Array) -> Array:
    """−κ · u · x for the multiplier κ; the truth is κ = 1. x [1], u [1] -> [1]."""
    return -multiplier * u * x


def reward(goal: Array, x: Array, u: Array) -> Array:
    """exp(−2 (x − goal)²); x [1], u [1] -> scalar."""
    return jnp.exp(-SHARPNESS * (x[0] - goal) ** 2)


def proportional(slope: Array, x: Array, u: Array) -> Array:
    """α x; x [1], u [1] -> scalar."""
    return slope * x[0]


def linear(diffusion: float = math.sqrt(2.0), horizon: float = 4.0) -> System:
    """The system of Proposition 2, whose reward is x and has no bounds.

    >>> float(linear().reward(jnp.full(1, -0.5), jnp.ones(1)))
    -0.5
    """
    reward = lambda x, u: proportional(jnp.float32(1.0), x, u)  # noqa: E731
    return dataclasses.replace(ou(0.0, diffusion, horizon), reward=reward, reward_range=(-math.inf, math.inf))


def ou(goal: float = 1.25, diffusion: float = math.sqrt(2.0), horizon: float = 4.0) -> System:
    """The system.

    >>> ou().drift(jnp.ones(1), jnp.full(1, 3.0)).tolist()
    [-3.0]
    """
    return System(
        name="ou",
        state_dim=1,
        control_dim=1,
        horizon=horizon,
        drift=lambda x, u: drift(jnp.float32(1.0), x, u),
        diffusion=lambda x, u: jnp.float32(diffusion),
        reward=lambda x, u: reward(jnp.float32(goal), x, u),
    )


def variance(rate: np.ndarray, time: np.ndarray, diffusion: float = math.sqrt(2.0)) -> np.ndarray:
    """Var x(t) = g² (1 − e^(−2·rate·t)) / (2·rate) for x(0) = 0; the arguments broadcast.

    >>> variance(np.array([1.0, 2.0]), 100.0).round(3).tolist()
    [1.0, 0.5]
    """
    return -(diffusion**2) * np.expm1(-2 * rate * time) / (2 * rate)


def value(rate: np.ndarray, goal: np.ndarray, diffusion: float, horizon: float, nodes: int = 64) -> np.ndarray:
    """The expected reward of an episode, ∫ E b(x(t)) dt over [0, T], for a constant rate of decay κ·u.

    E exp(−s (x − goal)²) = exp(−s · goal² / a) / sqrt(a) with a = 1 + 2 s Var x(t), and Gauss-Legendre quadrature over time.
    The integrand is analytic: with 64 nodes the error is below 1e-12 for rate · T ≤ 64 and below 1e-6 for rate · T ≤ 400.

    Main arguments:
        rate, goal: arrays that broadcast.

    A goal at the origin is served best by a fast decay, one far away by a slow one:

    >>> value(np.array([0.25, 0.5, 4.0]), np.array([[0.0], [1.25]]), math.sqrt(2.0), 4.0).round(2).tolist()
    [[1.4, 1.6, 2.86], [0.88, 0.92, 0.58]]
    """
    places, weights = np.polynomial.legendre.leggauss(nodes)
    spread = 1 + 2 * SHARPNESS * variance(np.asarray(rate)[..., None], (places + 1) * horizon / 2, diffusion)
    expected = np.exp(-SHARPNESS * np.asarray(goal)[..., None] ** 2 / spread) / np.sqrt(spread)
    return expected @ weights * horizon / 2

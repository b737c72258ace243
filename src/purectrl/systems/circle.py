"""Brownian motion on a circle: a compact system on which nearly everything about Algorithms 1 to 3 has a closed form.

    dx = g dw,     b(x, u) = 1/2 + Σ_j θ_j u_j ψ_j(x),     ψ_j(x) = (1 + cos(x − 2πj/d))/2,     |u_j| ≤ 1,  j = 0 … d − 1

The state is an angle; all functions have the period 2π. The noise is additive, so Euler-Maruyama has no error for any step.
Its expectations are in `purectrl.systems.circle_statistics`.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.system import System


def bumps(dimension: int, x: Array) -> Array:
    """ψ_j(x) for all j [d]; x [1].

    >>> bumps(2, jnp.zeros(1)).tolist()
    [1.0, 0.0]
    """
    angles = 2 * jnp.pi * jnp.arange(dimension) / dimension
    return (1 + jnp.cos(x[0] - angles)) / 2


def reward(theta: Array, x: Array, u: Array) -> Array:
    """1/2 + Σ_j θ_j u_j ψ_j(x); θ [d], x [1], u [d] -> scalar."""
    return 0.5 + jnp.sum(theta * u * bumps(theta.shape[0], x))


def drift(x: Array, u: Array) -> Array:
    """Zero."""
    return jnp.zeros(1)


def circle(theta: np.ndarray, diffusion: float = 2.0, horizon: float = 1.0) -> System:
    """The system with the true θ [d].

    >>> float(circle(np.array([0.25])).reward(jnp.zeros(1), jnp.ones(1)))
    0.75
    """
    true = jnp.asarray(theta, jnp.float32)
    return System(
        name="circle",
        state_dim=1,
        control_dim=len(theta),
        horizon=horizon,
        drift=drift,
        diffusion=lambda x, u: jnp.float32(diffusion),
        reward=lambda x, u: reward(true, x, u),
    )

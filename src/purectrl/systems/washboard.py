"""A particle on a washboard: a small nonlinear system whose unknowns come from finite classes.

    dx = (a · sin 2x + c · u) dt + g dw,     b(x, u) = exp(−4 (x − goal)²) · (1 − u²/5),     |u| ≤ 1

Drift and reward satisfy the paper's assumptions: |f| ≤ 1 for |a| + |c| ≤ 1, and 0 ≤ b ≤ 1.
"""

import jax.numpy as jnp
from jax import Array

from purectrl.core.system import System


def drift(parameters: Array, x: Array, u: Array) -> Array:
    """a · sin 2x + c · u for parameters (a, c) [2]; x [1], u [1] -> [1]."""
    a, c = parameters
    return a * jnp.sin(2 * x) + c * u


def reward(goal: Array, x: Array, u: Array) -> Array:
    """exp(−4 (x − goal)²) · (1 − u²/5); x [1], u [1] -> scalar."""
    return jnp.exp(-4 * (x[0] - goal) ** 2) * (1 - u[0] ** 2 / 5)


def washboard(
    a: float = 0.5, c: float = 0.5, goal: float = 0.75, diffusion: float = 0.2, horizon: float = 2.0
) -> System:
    """The system with the given truth.

    >>> washboard().drift(jnp.zeros(1), jnp.ones(1)).tolist()
    [0.5]
    """
    truth = jnp.array([a, c])
    return System(
        name="washboard",
        state_dim=1,
        control_dim=1,
        horizon=horizon,
        drift=lambda x, u: drift(truth, x, u),
        diffusion=lambda x, u: jnp.float32(diffusion),
        reward=lambda x, u: reward(jnp.float32(goal), x, u),
    )

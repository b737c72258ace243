"""Van der Pol's oscillator: a circuit that oscillates by itself, to be brought to rest at the origin.

Equations (B. van der Pol, 1926), with μ = 1:

    ẍ = μ (1 − x²) ẋ − x + u,     |u| ≤ 1

The origin is an unstable focus, with the poles 1/2 ± i √3/2; without control every path ends in a limit cycle of
amplitude 2.

State (x, ẋ). Start: anywhere within ± 2 in both.

Reward:

    b(x, u) = 1 / (1 + x² + ẋ² + u²/100)
"""

import jax
import jax.numpy as jnp
from jax import Array

DAMPING, START = 1.0, 2.0


def drift(x: Array, u: Array) -> Array:
    """dx/dt [2] for x [2] and u [1].

    >>> drift(jnp.array([0.0, 1.0]), jnp.zeros(1)).tolist()
    [1.0, 1.0]
    """
    return jnp.stack([x[1], DAMPING * (1 - x[0] ** 2) * x[1] - x[0] + u[0]])


def reward(x: Array, u: Array) -> Array:
    """b(x, u), a scalar in (0, 1]."""
    return 1 / (1 + x[0] ** 2 + x[1] ** 2 + u[0] ** 2 / 100)


def sample_initial_state(key: Array) -> Array:
    """x(0) [2]."""
    return START * jax.random.uniform(key, (2,), minval=-1.0)

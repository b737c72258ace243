"""Mountain car: a car in a valley, too weak to drive straight up the hill, to be brought to the top and held there.

Physics. The mountain car of A. W. Moore (1990) with the constants of R. S. Sutton and A. G. Barto's book and the
continuous force of Gymnasium, v ← v + 0.0015 u − 0.0025 cos 3s and s ← s + v per step, in continuous time with 20
steps per second:

    s̈ = 0.6 u − cos 3s,     |u| ≤ 1

The valley is at s = −π/6, the top at s = π/6, where the car rolls away with a rate of √3 1/s. There is no wall: hills
repeat.

State x = (s, ṡ). Start: at rest in the valley, s ± 0.1 and ṡ ± 0.05.

Reward, with z = s − π/6:

    b(x, u) = 1 / (1 + 4z² + ṡ² + u²/100)
"""

import math

import jax
import jax.numpy as jnp
from jax import Array

ENGINE = 0.6
VALLEY, TOP = -math.pi / 6, math.pi / 6


def drift(x: Array, u: Array) -> Array:
    """dx/dt [2] for x = (s, ṡ) [2] and u [1].

    >>> drift(jnp.array([TOP, 0.0]), jnp.zeros(1)).round(6).tolist()  # an equilibrium
    [0.0, 0.0]
    """
    return jnp.stack([x[1], ENGINE * u[0] - jnp.cos(3 * x[0])])


def reward(x: Array, u: Array) -> Array:
    """b(x, u), a scalar in (0, 1]."""
    return 1 / (1 + 4 * (x[0] - TOP) ** 2 + x[1] ** 2 + u[0] ** 2 / 100)


def sample_initial_state(key: Array) -> Array:
    """x(0) [2]."""
    return jnp.array([VALLEY, 0.0]) + jnp.array([0.1, 0.05]) * jax.random.uniform(key, (2,), minval=-1.0)

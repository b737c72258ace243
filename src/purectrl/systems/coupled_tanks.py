"""Two coupled tanks: a pump fills the upper tank, which drains into the lower one, whose level is to be held.

Equations (Torricelli's law; K. J. Åström and A. Lundqvist, 1990, in centimetres and seconds). Levels h₁ and h₂,
cross-section A = 15.5 cm², outlets a = 0.178 cm², g = 981 cm/s²; the pump delivers up to 50 cm³/s:

    dh₁/dt = (50 u − a √(2g h₁))/A        dh₂/dt = (a √(2g h₁) − a √(2g h₂))/A,        0 ≤ u ≤ 1

Below a few millimetres the outflow is linear in the level, which keeps its slope finite, and an empty tank stays empty.

State x = (h₁, h₂). Start: both between 0 and 4 cm.

Reward: 10 cm in the lower tank:

    b(x, u) = 1 / (1 + (h₂ − 10)²/4)
"""

import jax
import jax.numpy as jnp
from jax import Array

GRAVITY, CROSS_SECTION, OUTLET, PUMP = 981.0, 15.5, 0.178, 50.0
LEVEL = 10.0
SHALLOW = 0.1
"""Centimetres below which the outflow is about linear in the level."""


def outflow(level: Array) -> Array:
    """a √(2g h), smoothed at h = 0, of the same shape as `level`."""
    return OUTLET * jnp.sqrt(2 * GRAVITY) * level / jnp.sqrt(jnp.abs(level) + SHALLOW)


def drift(x: Array, u: Array) -> Array:
    """dx/dt [2] in cm/s for x = (h₁, h₂) [2] and u [1].

    >>> drift(jnp.zeros(2), jnp.zeros(1)).tolist()
    [0.0, 0.0]
    """
    flow = outflow(x)
    return jnp.stack([PUMP * u[0] - flow[0], flow[0] - flow[1]]) / CROSS_SECTION


def reward(x: Array, u: Array) -> Array:
    """b(x, u), a scalar in (0, 1]."""
    return 1 / (1 + (x[1] - LEVEL) ** 2 / 4)


def sample_initial_state(key: Array) -> Array:
    """x(0) [2]."""
    return jax.random.uniform(key, (2,), maxval=4.0)

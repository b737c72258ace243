"""Heating of two rooms: two radiators, a wall between the rooms and a cold day outside; time is in hours.

Equations (a thermal network of two capacities, as in any textbook of building physics). The rooms lose heat to the outside
at T_o = 5 °C and exchange it with each other; the heating of room i runs with the share u_i of its power:

    dT₁/dt = −0.2 (T₁ − T_o) − 0.15 (T₁ − T₂) + 6 u₁        dT₂/dt = −0.3 (T₂ − T_o) − 0.15 (T₂ − T₁) + 8 u₂,     0 ≤ u_i ≤ 1

State x = (T₁, T₂) in °C. Start: both between 8 and 16 °C. A day has 24 hours.

Reward: 21 °C in the first room and 18 °C in the second, at little cost:

    b(x, u) = (1 − (u₁ + u₂)/20) / (1 + (T₁ − 21)²/4 + (T₂ − 18)²/4)
"""

import jax
import jax.numpy as jnp
from jax import Array

OUTSIDE, WALL = 5.0, 0.15
LOSS, POWER, COMFORT = (0.2, 0.3), (6.0, 8.0), (21.0, 18.0)


def drift(x: Array, u: Array) -> Array:
    """dx/dt [2] in K/h for x = (T₁, T₂) [2] and u [2].

    >>> drift(jnp.full(2, OUTSIDE), jnp.zeros(2)).tolist()
    [0.0, 0.0]
    """
    return -jnp.array(LOSS) * (x - OUTSIDE) - WALL * (x - x[::-1]) + jnp.array(POWER) * u


def reward(x: Array, u: Array) -> Array:
    """b(x, u), a scalar in (0, 1]."""
    return (1 - u.sum() / 20) / (1 + ((x - jnp.array(COMFORT)) ** 2).sum() / 4)


def sample_initial_state(key: Array) -> Array:
    """x(0) [2]."""
    return jax.random.uniform(key, (2,), minval=8.0, maxval=16.0)

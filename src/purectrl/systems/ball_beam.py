"""Ball on a beam: a ball rolls on a beam that a servo tilts; the ball is to be brought to the centre and held there.

Physics (J. Hauser, S. Sastry, P. Kokotović, 1992, with a servo in the place of the torque). The ball is solid, so
that a share of 5/7 of a force along the beam accelerates it; the servo follows the commanded angle u with the time
constant 0.1 s:

    r̈ = (5/7)(r α̇² − g sin α)        α̇ = (u − α)/0.1,        |u| ≤ 0.25 rad

State x = (r, ṙ, α). Start: at rest, r ± 1 m, ṙ ± 0.2 m/s, α ± 0.1 rad. The beam is long.

Reward:

    b(x, u) = 1 / (1 + 4r² + ṙ² + u²/10)
"""

import jax
import jax.numpy as jnp
from jax import Array

GRAVITY, ROLLING_SHARE, SERVO_TIME, TILT = 9.81, 5 / 7, 0.1, 0.25


def drift(x: Array, u: Array) -> Array:
    """dx/dt [3] for x = (r, ṙ, α) [3] and u [1].

    >>> drift(jnp.array([1.0, 0.0, 0.0]), jnp.zeros(1)).tolist()  # on a level beam the ball rests anywhere
    [0.0, 0.0, 0.0]
    """
    turn = (u[0] - x[2]) / SERVO_TIME
    return jnp.stack([x[1], ROLLING_SHARE * (x[0] * turn**2 - GRAVITY * jnp.sin(x[2])), turn])


def reward(x: Array, u: Array) -> Array:
    """b(x, u), a scalar in (0, 1]."""
    return 1 / (1 + 4 * x[0] ** 2 + x[1] ** 2 + u[0] ** 2 / 10)


def sample_initial_state(key: Array) -> Array:
    """x(0) [3]."""
    return jnp.array([1.0, 0.2, 0.1]) * jax.random.uniform(key, (3,), minval=-1.0)

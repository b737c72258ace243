"""Bicycle parking: a car, modelled by one wheel per axle, is to be driven into a parking space and stopped there.

Equations (the kinematic bicycle model, e.g. R. Rajamani, Vehicle Dynamics and Control, 2012). The rear axle is at
(p₁, p₂), the heading is ψ, the speed v, the wheelbase L = 1 m; u₁ is the acceleration and u₂ the steering angle:

    ṗ₁ = v cos ψ        ṗ₂ = v sin ψ        ψ̇ = (v/L) tan u₂        v̇ = u₁,        |u₁| ≤ 1 m/s², |u₂| ≤ 0.6 rad

The car cannot move sideways. State x = (p₁, p₂, ψ, v). Start: 3 m behind the space and 1 m beside it, at rest.

Reward: in the space at the origin, parallel to it and at rest:

    b(x, u) = 1 / (1 + p₁² + 2p₂² + 2(1 − cos ψ) + v²/2 + ‖u‖²/100)
"""

import jax
import jax.numpy as jnp
from jax import Array

WHEELBASE = 1.0
ACCELERATION, STEERING = 1.0, 0.6
START, START_HALF_WIDTH = (-3.0, 1.0, 0.0, 0.0), (0.5, 0.3, 0.2, 0.1)


def drift(x: Array, u: Array) -> Array:
    """dx/dt [4] for x = (p₁, p₂, ψ, v) [4] and u [2].

    >>> drift(jnp.array([0.0, 0.0, 0.0, 2.0]), jnp.zeros(2)).tolist()  # straight on
    [2.0, 0.0, 0.0, 0.0]
    """
    heading, speed = x[2], x[3]
    rates = [speed * jnp.cos(heading), speed * jnp.sin(heading), speed / WHEELBASE * jnp.tan(u[1]), u[0]]
    return jnp.stack(rates)


def reward(x: Array, u: Array) -> Array:
    """b(x, u), a scalar in (0, 1]."""
    place = x[0] ** 2 + 2 * x[1] ** 2 + 2 * (1 - jnp.cos(x[2]))
    return 1 / (1 + place + x[3] ** 2 / 2 + (u**2).sum() / 100)


def sample_initial_state(key: Array) -> Array:
    """x(0) [4]."""
    return jnp.array(START) + jnp.array(START_HALF_WIDTH) * jax.random.uniform(key, (4,), minval=-1.0)

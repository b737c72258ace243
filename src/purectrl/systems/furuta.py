"""Furuta pendulum: a motor turns a horizontal arm, a pendulum swings freely at its end and is to be swung up and held
there.

Physics (K. Furuta, M. Yamakita, S. Kobayashi, 1992, with a point mass at the tip). The arm of length r has the angle
φ and the inertia J, the pendulum of length ℓ and mass m the angle θ, θ = 0 is up. With the viscous friction b of the
motor and c of the hinge, Lagrange's equations are

    (J + mr² + mℓ² sin²θ) φ̈ + mrℓ cos θ θ̈ + 2mℓ² sin θ cos θ θ̇φ̇ − mrℓ sin θ θ̇² = u − bφ̇,     |u| ≤ 0.3 N m
                mrℓ cos θ φ̈ + mℓ² θ̈ − mℓ² sin θ cos θ φ̇² − mgℓ sin θ           = −cθ̇

with m = 0.1 kg, r = ℓ = 0.3 m, J = 0.01 kg m², b = 1e-3, c = 1e-4, g = 9.81. Upright, it falls with a rate of 7.8
1/s: almost three times as fast as cartpole or acrobot.

State x = (φ, θ, φ̇, θ̇). Start: hanging, (0, π, 0, 0) ± 0.05 in each number.

Reward. The pendulum should be up and, less important, the arm at φ = 0. With p = (sin θ, cos θ, 0.3 sin φ, 0.3 cos φ):

    b(x, u) = exp(−‖p − (0, 1, 0, 0.3)‖² − (φ̇² + θ̇²)/1000 − u²/100)
"""

import functools
import math

import jax.numpy as jnp
from jax import Array

from purectrl.systems.mechanical import MechanicalSystem, log_distance_reward

GRAVITY, MASS, ARM, LENGTH, INERTIA = 9.81, 0.1, 0.3, 0.3, 0.01
MOTOR_FRICTION, HINGE_FRICTION = 1e-3, 1e-4
ARM_WEIGHT = 0.3
"""Weight of the arm's direction in the reward, relative to the pendulum's."""


def acceleration(q: Array, v: Array, u: Array) -> Array:
    """(φ̈, θ̈) [..., 2] for q = (φ, θ) [..., 2], v = (φ̇, θ̇) [..., 2], u [..., 1]."""
    sin, cos = jnp.sin(q[..., 1]), jnp.cos(q[..., 1])
    tip = MASS * LENGTH**2
    m11, m12, m22 = INERTIA + MASS * ARM**2 + tip * sin**2, MASS * ARM * LENGTH * cos, tip
    turning = 2 * tip * sin * cos * v[..., 1] * v[..., 0] - MASS * ARM * LENGTH * sin * v[..., 1] ** 2
    motor = u[..., 0] - MOTOR_FRICTION * v[..., 0] - turning
    hinge = tip * sin * cos * v[..., 0] ** 2 + MASS * GRAVITY * LENGTH * sin - HINGE_FRICTION * v[..., 1]
    determinant = m11 * m22 - m12**2
    return jnp.stack([m22 * motor - m12 * hinge, m11 * hinge - m12 * motor], axis=-1) / determinant[..., None]


def directions(q: Array) -> Array:
    """(sin θ, cos θ, 0.3 sin φ, 0.3 cos φ) [..., 4]."""
    arm, pendulum = q[..., 0], q[..., 1]
    parts = [jnp.sin(pendulum), jnp.cos(pendulum), ARM_WEIGHT * jnp.sin(arm), ARM_WEIGHT * jnp.cos(arm)]
    return jnp.stack(parts, axis=-1)


def links(q: Array) -> Array:
    """End of the arm and tip of the pendulum [..., 2, 2], seen from the side."""
    end = jnp.stack([ARM * jnp.sin(q[..., 0]), jnp.zeros_like(q[..., 0])], axis=-1)
    return jnp.stack([end, end + LENGTH * jnp.stack([jnp.sin(q[..., 1]), jnp.cos(q[..., 1])], axis=-1)], axis=-2)


@functools.cache
def furuta(torque: float = 0.3) -> MechanicalSystem:
    """The pendulum on a rotating arm; `torque` is the largest |u|.

    >>> whirl = furuta()
    >>> hanging = jnp.array([0.0, jnp.pi, 0.0, 0.0])
    >>> [round(float(rate), 2) for rate in whirl.drift(hanging, jnp.full(1, 0.1))]  # the pendulum stays behind
    [0.0, 0.0, 10.0, 10.0]
    """
    return MechanicalSystem(
        name="furuta",
        angles=(True, True),
        control_dim=1,
        u_max=torque,
        acceleration=acceleration,
        log_reward=log_distance_reward(directions, (0.0, 1.0, 0.0, ARM_WEIGHT), 1e-3, 1e-2),
        init_mean=(0.0, math.pi, 0.0, 0.0),
        init_half_width=(0.05, 0.05, 0.05, 0.05),
        goal=(0.0, 0.0, 0.0, 0.0),
        links=links,
    )

"""Planar quadrotor: a rigid body with two rotors in a vertical plane, to be flown to the origin and held there.

Physics (the planar model of R. Mahony, V. Kumar, P. Corke, 2012, in the plane). Position (s, h), tilt θ, mass m = 0.5
kg, inertia I = 0.05 kg m², rotors at ± ℓ = 0.2 m, g = 9.81. Each rotor pushes with half the weight times 1 + u_i:

    F_i = (mg/2)(1 + u_i)
    s̈ = −(F₁ + F₂) sin θ / m        ḧ = (F₁ + F₂) cos θ / m − g        θ̈ = ℓ (F₁ − F₂) / I,        |u_i| ≤ 1

so that u = 0 hovers and the thrust is between zero and twice the weight. Linearized at hover it has no pole but zero.

State x = (s, h, θ, ṡ, ḣ, θ̇). Start: 2 m to the right and 1 m below the goal, ± 0.5 m; θ ± 0.2; velocities ± 0.1.

Reward. With p = (s, h, 0.3 sin θ, 0.3 cos θ), which should be at (0, 0, 0, 0.3):

    b(x, u) = exp(−‖p − (0, 0, 0, 0.3)‖² − (ṡ² + ḣ² + θ̇²)/100 − ‖u‖²/100)
"""

import functools

import jax.numpy as jnp
from jax import Array

from purectrl.systems.mechanical import MechanicalSystem, log_distance_reward

GRAVITY, MASS, INERTIA, ARM = 9.81, 0.5, 0.05, 0.2
TILT_WEIGHT = 0.3
"""Weight of the tilt in the reward, relative to metres."""


def thrusts(u: Array) -> Array:
    """F₁ and F₂ [..., 2] for u [..., 2]."""
    return MASS * GRAVITY / 2 * (1 + u)


def acceleration(q: Array, v: Array, u: Array) -> Array:
    """(s̈, ḧ, θ̈) [..., 3] for q = (s, h, θ) [..., 3], v [..., 3] and u [..., 2]."""
    force, tilt = thrusts(u), q[..., 2]
    push = (force[..., 0] + force[..., 1]) / MASS
    turn = ARM * (force[..., 0] - force[..., 1]) / INERTIA
    return jnp.stack([-push * jnp.sin(tilt), push * jnp.cos(tilt) - GRAVITY, turn], axis=-1)


def pose(q: Array) -> Array:
    """(s, h, 0.3 sin θ, 0.3 cos θ) [..., 4]."""
    tilt = q[..., 2]
    return jnp.stack([q[..., 0], q[..., 1], TILT_WEIGHT * jnp.sin(tilt), TILT_WEIGHT * jnp.cos(tilt)], axis=-1)


@functools.cache
def quadrotor() -> MechanicalSystem:
    """The quadrotor.

    >>> drone = quadrotor()
    >>> bool(jnp.allclose(drone.drift(jnp.zeros(6), jnp.zeros(2)), 0.0))  # it hovers
    True
    """
    return MechanicalSystem(
        name="quadrotor",
        angles=(False, False, True),
        control_dim=2,
        u_max=1.0,
        acceleration=acceleration,
        log_reward=log_distance_reward(pose, (0.0, 0.0, 0.0, TILT_WEIGHT), 1e-2, 1e-2),
        init_mean=(2.0, -1.0, 0.0, 0.0, 0.0, 0.0),
        init_half_width=(0.5, 0.5, 0.2, 0.1, 0.1, 0.1),
        goal=(0.0,) * 6,
    )

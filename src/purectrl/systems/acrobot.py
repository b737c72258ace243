"""Acrobot, fully actuated: two links in a chain, to be swung up and held there by torques at both joints.

Physics. Links of length ℓ = 1 and mass 1, centres of mass in the middle (c = 1/2), inertia I = 1 about them, gravity
g = 9.8. θ₁ = 0 is down; θ₂ is relative to the first link. With u₁ at the shoulder and u₂ at the elbow:

    M(θ₂) θ̈ + h(θ, θ̇) = u,       M = [[d₁, d₂], [d₂, d₃]],         |u_i| ≤ 4

    d₁ = ℓ² + 2c² + 2I + 2ℓc cos θ₂        d₂ = c² + ℓc cos θ₂ + I        d₃ = c² + I
    h₁ = −ℓc (θ̇₂² + 2 θ̇₁θ̇₂) sin θ₂ + (c + ℓ) g sin θ₁ + c g sin(θ₁ + θ₂)
    h₂ =  ℓc θ̇₁² sin θ₂ + c g sin(θ₁ + θ₂)

State x = (θ₁, θ₂, θ̇₁, θ̇₂), observed as (cos θ₁, sin θ₁, cos θ₂, sin θ₂, θ̇₁, θ̇₂). Start: hanging, each number in ± 0.1.

Reward. The tip p = ℓ (sin θ₁ + sin(θ₁+θ₂), −cos θ₁ − cos(θ₁+θ₂)) should be at (0, 2ℓ):

    b(x, u) = exp(−‖p − (0, 2ℓ)‖² − c_p (θ̇₁² + θ̇₂²) − c_a ‖u‖²),     c_p = 1e-4, c_a = 1e-2

Where table, text and released code differ:

    what            paper's table        paper's text                 released code                "paper"       "released"
    --------------  -------------------  ---------------------------  ---------------------------  ------------  -----------
    control limit   4                    a discrete control           5 (its comment says 4)       4             5
    actuated        -                    "the joint between the       both joints                  both          both
                                         links"; "fully actuated"
    coupling        -                    -                            θ̈₂ is computed without       as above      as released
                                                                      the shoulder's torque
    controls        -                    -                            (elbow, −shoulder)           (shoulder,    (elbow,
                                                                                                   elbow)        −shoulder)
    c_p             1e-4                 inside the exponential       1e-2, inside                 1e-4          1e-2
    c_a             1e-2                 inside the exponential       1e-4, subtracted outside     1e-2, inside  1e-4, out
    box covers      four numbers         the position alone           all four                     all four      all four

In the released code θ̈₂ is that of an arm whose shoulder is free, and the shoulder's torque then moves the first link alone:
    θ̈₂ = (u₁ᵣ + (d₂/d₁) h₁ − h₂) / (d₃ − d₂²/d₁),     θ̈₁ = −(u₂ᵣ + d₂ θ̈₂ + h₁) / d₁
with u₁ᵣ at the elbow. Without control both variants are the same double pendulum. The physical constants are not in the
paper; they are the released code's, which are Gym's.

The variant "elbow" is the underactuated acrobot (R. Murray and J. Hauser, 1991): the arm of "paper" with the torque at the
elbow alone, k = 1.
"""

import functools
import math

import jax.numpy as jnp
from jax import Array

from purectrl.core.errors import choose
from purectrl.systems.mechanical import MechanicalSystem, log_distance_reward

GRAVITY, LENGTH, CENTRE, INERTIA = 9.8, 1.0, 0.5, 1.0


def inertia_and_load(q: Array, v: Array) -> tuple[Array, Array, Array, Array, Array]:
    """(d₁, d₂, d₃, h₁, h₂) of the equations above, for q [..., 2] and v [..., 2]."""
    swing = LENGTH * CENTRE * jnp.cos(q[..., 1])
    d1 = LENGTH**2 + 2 * CENTRE**2 + 2 * INERTIA + 2 * swing
    d2 = CENTRE**2 + swing + INERTIA
    d3 = jnp.full_like(d1, CENTRE**2 + INERTIA)
    lever = LENGTH * CENTRE * jnp.sin(q[..., 1])
    elbow_weight = CENTRE * GRAVITY * jnp.sin(q[..., 0] + q[..., 1])
    shoulder_weight = (CENTRE + LENGTH) * GRAVITY * jnp.sin(q[..., 0]) + elbow_weight
    h1 = -lever * (v[..., 1] ** 2 + 2 * v[..., 0] * v[..., 1]) + shoulder_weight
    h2 = lever * v[..., 0] ** 2 + elbow_weight
    return d1, d2, d3, h1, h2


def acceleration(q: Array, v: Array, u: Array) -> Array:
    """(θ̈₁, θ̈₂) [..., 2] of the physical arm, for q, v [..., 2] and torques u = (shoulder, elbow) [..., 2]."""
    d1, d2, d3, h1, h2 = inertia_and_load(q, v)
    shoulder, elbow = u[..., 0] - h1, u[..., 1] - h2
    return jnp.stack([d3 * shoulder - d2 * elbow, d1 * elbow - d2 * shoulder], -1) / (d1 * d3 - d2**2)[..., None]


def released_acceleration(q: Array, v: Array, u: Array) -> Array:
    """(θ̈₁, θ̈₂) [..., 2] as the released code has them, for q, v [..., 2] and u = (elbow, −shoulder) [..., 2]."""
    d1, d2, d3, h1, h2 = inertia_and_load(q, v)
    second = (u[..., 0] + d2 / d1 * h1 - h2) / (d3 - d2**2 / d1)
    return jnp.stack([-(u[..., 1] + d2 * second + h1) / d1, second], axis=-1)


def elbow_acceleration(q: Array, v: Array, u: Array) -> Array:
    """(θ̈₁, θ̈₂) [..., 2] of the physical arm with the torque u [..., 1] at the elbow and none at the shoulder."""
    return acceleration(q, v, jnp.concatenate([jnp.zeros_like(u), u], axis=-1))


def links(q: Array) -> Array:
    """Shoulder, elbow and tip [..., 3, 2]."""
    first, second = q[..., 0], q[..., 0] + q[..., 1]
    elbow = LENGTH * jnp.stack([jnp.sin(first), -jnp.cos(first)], axis=-1)
    forearm = LENGTH * jnp.stack([jnp.sin(second), -jnp.cos(second)], axis=-1)
    return jnp.stack([jnp.zeros_like(elbow), elbow, elbow + forearm], axis=-2)


@functools.cache
def acrobot(variant: str = "paper", torque: float | None = None) -> MechanicalSystem:
    """The arm; `variant` is "paper", "released" or "elbow" (see above), `torque` the largest |u_i|.

    >>> arm = acrobot()
    >>> upright = jnp.array([jnp.pi, 0.0, 0.0, 0.0])
    >>> links(upright[:2]).round(3).tolist()[-1], float(arm.reward(upright, jnp.zeros(2)))
    ([-0.0, 2.0], 1.0)
    """
    released = choose("variant", variant, ("paper", "released", "elbow")) == "released"
    velocity_cost, inside, outside = (1e-2, 0.0, 1e-4) if released else (1e-4, 1e-2, 0.0)
    forces = {"paper": acceleration, "released": released_acceleration, "elbow": elbow_acceleration}
    return MechanicalSystem(
        name="acrobot",
        variant=variant,
        angles=(True, True),
        control_dim=1 if variant == "elbow" else 2,
        u_max=torque or (5.0 if released else 4.0),
        acceleration=forces[variant],
        log_reward=log_distance_reward(lambda q: links(q)[..., -1, :], (0.0, 2 * LENGTH), velocity_cost, inside),
        init_mean=(0.0, 0.0, 0.0, 0.0),
        init_half_width=(0.1, 0.1, 0.1, 0.1),
        goal=(math.pi, 0.0, 0.0, 0.0),
        links=links,
        control_cost=outside,
    )

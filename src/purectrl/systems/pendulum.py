"""Pendulum: a rod on a pivot, to be swung up and held there by a torque too weak to lift it.

Physics. A uniform rod of length ℓ = 1 and mass m = 1 in gravity g = 10; θ = 0 is up, the torque u turns it towards larger θ:

    θ̈ = (3g / 2ℓ) sin θ + (3 / mℓ²) u = 15 sin θ + 3u,     |u| ≤ 2

State x = (θ, θ̇), observed as (cos θ, sin θ, θ̇). Start: θ(0) ~ Unif(−π, π), θ̇(0) ~ Unif(−3, 3).

Reward. The tip p = ℓ (sin θ, cos θ) should be at (0, ℓ):

    b(x, u) = exp(−‖p − (0, ℓ)‖² − θ̇²/100 − u²/100)

Where table, text and released code differ:

    what            paper's table    paper's text                   released code               "paper"     "released"
    --------------  ---------------  -----------------------------  --------------------------  ----------  ----------------
    start           box [π, 3]       hanging down                   box [π, 3]                  box         box
    box covers      two numbers      the position alone             position and velocity       both        both
    torque acts     -                at the free end                at the pivot                pivot       pivot
    control cost    c_a = 0.01       inside the exponential         subtracted outside of it    inside      outside

The physical constants are not in the paper; they are the released code's, which are Gym's.
"""

import functools
import math

import jax.numpy as jnp
from jax import Array

from purectrl.core.errors import choose
from purectrl.systems.mechanical import MechanicalSystem, log_distance_reward

GRAVITY, MASS, LENGTH = 10.0, 1.0, 1.0
VELOCITY_COST, CONTROL_COST = 1e-2, 1e-2


def acceleration(q: Array, v: Array, u: Array) -> Array:
    """θ̈ [..., 1] for q = (θ) [..., 1], v = (θ̇) [..., 1], u [..., 1]."""
    return 3 * GRAVITY / (2 * LENGTH) * jnp.sin(q) + 3 / (MASS * LENGTH**2) * u


def tip(q: Array) -> Array:
    """The free end [..., 2]."""
    return LENGTH * jnp.stack([jnp.sin(q[..., 0]), jnp.cos(q[..., 0])], axis=-1)


def links(q: Array) -> Array:
    """Pivot and tip [..., 2, 2]."""
    return jnp.stack([jnp.zeros_like(tip(q)), tip(q)], axis=-2)


@functools.cache
def pendulum(variant: str = "paper", torque: float = 2.0) -> MechanicalSystem:
    """The pendulum; `variant` is "paper" or "released" (see the table above), `torque` is the largest |u|.

    >>> swing = pendulum()
    >>> hanging, still = jnp.array([jnp.pi, 0.0]), jnp.zeros(1)
    >>> swing.featurize(hanging).round(3).tolist(), round(float(swing.reward(hanging, still)), 3)
    ([-1.0, -0.0, 0.0], 0.018)
    """
    inside = choose("variant", variant, ("paper", "released")) == "paper"
    return MechanicalSystem(
        name="pendulum",
        variant=variant,
        angles=(True,),
        control_dim=1,
        u_max=torque,
        acceleration=acceleration,
        log_reward=log_distance_reward(tip, (0.0, LENGTH), VELOCITY_COST, CONTROL_COST if inside else 0.0),
        init_mean=(0.0, 0.0),
        init_half_width=(math.pi, 3.0),
        goal=(0.0, 0.0),
        links=links,
        control_cost=0.0 if inside else CONTROL_COST,
    )

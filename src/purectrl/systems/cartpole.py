"""CartPole: a pole hangs from a cart on a frictionless rail, to be swung up and held there by pushing the cart.

Physics. Cart of mass M = 1 at position s, pole of mass m = 0.1 with its centre of mass at distance ℓ = 1 from the hinge: a
uniform rod of length 2ℓ, with inertia mℓ²/3 about its centre. Gravity g = 9.8; θ = 0 is up; the force is F = 3u:

    c  = (F + mℓ θ̇² sin θ) / (M + m)
    θ̈  = (g sin θ − c cos θ) / (ℓ (4/3 − m cos²θ / (M + m)))
    s̈  = c − mℓ θ̈ cos θ / (M + m),                                   |u| ≤ 3

State x = (s, θ, ṡ, θ̇), observed as (s, cos θ, sin θ, ṡ, θ̇). Start: hanging, (0, π, 0, 0) ± 0.05 in each number.

Reward. With p = (s, ℓ sin θ, ℓ cos θ), which should be at (0, 0, ℓ):

    b(x, u) = exp(−‖p − (0, 0, ℓ)‖² − (ṡ² + θ̇²)/100 − u²/100)

Where table, text and released code differ:

    what            paper's table        paper's text                 released code               "paper"       "released"
    --------------  -------------------  ---------------------------  --------------------------  ------------  -----------
    goal            [0, 0, ℓ]            -                            (s + ℓ sin θ, ℓ cos θ)      three         two numbers
                                                                      at (0, ℓ)                   numbers
    control         α_max = 3            direction of a fixed force   F = 3u, so ±9 N             F = 3u        F = 3u
    start           box 0.05, no centre  "hanging-down" for all       hanging ± 0.05              hanging       hanging
                                         tasks; "upright" here
    box covers      four numbers         the position alone           all four                    all four      all four
    control cost    c_a = 0.01           inside the exponential       subtracted outside of it    inside        outside

The gain 3 of the force is in no table. With ±3 N the cart accelerates at 2.7 m/s² at most, a half swing of 1.2 s adds about
0.55 rad, and the pole would come up after about five seconds: too late for rewards that count after three.
ℓ is half the pole in the equations and in the reward: the rewarded point is the centre of mass, not the tip. The physical
constants are not in the paper; they are the released code's, which are Gym's with a pole of twice the length.
"""

import functools
import math

import jax.numpy as jnp
from jax import Array

from purectrl.core.errors import choose
from purectrl.systems.mechanical import MechanicalSystem, log_distance_reward

GRAVITY, CART, POLE, HALF_LENGTH, FORCE = 9.8, 1.0, 0.1, 1.0, 3.0
VELOCITY_COST, CONTROL_COST = 1e-2, 1e-2


def acceleration(q: Array, v: Array, u: Array, force: float = FORCE) -> Array:
    """(s̈, θ̈) [..., 2] for q = (s, θ) [..., 2], v = (ṡ, θ̇) [..., 2], u [..., 1]."""
    cos, sin = jnp.cos(q[..., 1]), jnp.sin(q[..., 1])
    share = POLE / (CART + POLE)
    push = force * u[..., 0] / (CART + POLE) + share * HALF_LENGTH * v[..., 1] ** 2 * sin
    turn = (GRAVITY * sin - push * cos) / (HALF_LENGTH * (4 / 3 - share * cos**2))
    return jnp.stack([push - share * HALF_LENGTH * turn * cos, turn], axis=-1)


def cart_and_pole(q: Array) -> Array:
    """The paper's three numbers [..., 3]: the cart's position, the pole's centre of mass as seen from the cart."""
    return jnp.stack([q[..., 0], HALF_LENGTH * jnp.sin(q[..., 1]), HALF_LENGTH * jnp.cos(q[..., 1])], axis=-1)


def centre_of_mass(q: Array) -> Array:
    """The released code's two numbers [..., 2]: where the pole's centre of mass is."""
    return jnp.stack([q[..., 0] + HALF_LENGTH * jnp.sin(q[..., 1]), HALF_LENGTH * jnp.cos(q[..., 1])], axis=-1)


def links(q: Array) -> Array:
    """Hinge and tip [..., 2, 2]."""
    hinge = jnp.stack([q[..., 0], jnp.zeros_like(q[..., 0])], axis=-1)
    return jnp.stack([hinge, 2 * centre_of_mass(q) - hinge], axis=-2)


@functools.cache
def cartpole(variant: str = "paper", force: float = FORCE) -> MechanicalSystem:
    """The cart with its pole; `variant` is "paper" or "released" (see the table above), `force` the gain of F = force · u.

    >>> cart = cartpole()
    >>> hanging = jnp.array([0.0, jnp.pi, 0.0, 0.0])
    >>> [round(float(rate), 2) for rate in cart.drift(hanging, jnp.ones(1))]  # pushed to the right, the pole stays behind
    [0.0, 0.0, 2.93, 2.2]
    """
    inside = choose("variant", variant, ("paper", "released")) == "paper"
    point, target = (cart_and_pole, (0.0, 0.0, HALF_LENGTH)) if inside else (centre_of_mass, (0.0, HALF_LENGTH))
    return MechanicalSystem(
        name="cartpole",
        variant=variant,
        angles=(False, True),
        control_dim=1,
        u_max=3.0,
        acceleration=functools.partial(acceleration, force=force),
        log_reward=log_distance_reward(point, target, VELOCITY_COST, CONTROL_COST if inside else 0.0),
        init_mean=(0.0, math.pi, 0.0, 0.0),
        init_half_width=(0.05, 0.05, 0.05, 0.05),
        goal=(0.0, 0.0, 0.0, 0.0),
        links=links,
        control_cost=0.0 if inside else CONTROL_COST,
    )

"""Rollouts of a policy under the learned model: states, controls, and the reward that is planned with.

Far from the goal the reward b is zero in float32 and has no slope. The mixture b̃ = 0.34 b + 0.33 b^(1/4) + 0.33 b^(1/16) has
one, and the same maximum; it is what is planned with. A policy is judged by b alone.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from purectrl.control.integrate import Integrator
from purectrl.control.policy import Actor
from purectrl.core.errors import require
from purectrl.core.problem import Array

MIXTURE = ((0.34, 1.0), (0.33, 4.0), (0.33, 16.0))
"""Weights and roots of b̃."""
SETTLED = 3.0
"""Seconds after which an imagined test counts, as in the real one."""


class World(Protocol):
    """What imagination needs besides the drift: a `Mechanism` knows it, for other systems it is learned."""

    control_cost: float

    def start(self, key: Array) -> Array:
        """x(0) [d]."""
        ...

    def log_reward(self, x: Array, u: Array) -> Array:
        """What `Improving.planned` makes the planned reward of: x [..., d], u [..., k] -> [...]."""
        ...

    def reward(self, x: Array, u: Array) -> Array:
        """What a policy is judged by, with the same shapes."""
        ...


class Model(Protocol):
    """What imagination needs of a dynamics model: (x [members, rows, d], u [members, rows, k]) -> [members, rows, d]."""

    @property
    def mechanism(self) -> World:
        """Where episodes start and what is rewarded."""
        ...

    @property
    def members(self) -> int:
        """Number of members."""
        ...

    def drift(self, x: Array, u: Array) -> Array:
        """dx/dt under each member."""
        ...

    def pick(self, members: Array) -> "Model":
        """Some members, by number."""
        ...


def mixture(log_b: Array) -> Array:
    """b̃, of the logarithm of b.

    >>> float(mixture(jnp.log(1.0)))
    1.0
    """
    return sum(weight * jnp.exp(log_b / root) for weight, root in MIXTURE)


@dataclass(frozen=True)
class Improving:
    """How the policy is improved.

    Main arguments:
        iterations: steps of the actor; five snapshots of it compete at the end.
        rows, members: imagined rollouts a step, under that many members of the ensemble, drawn anew each time.
        horizon, discount: H and τ, in seconds.
        optimistic: False gives each start one member, and the objective is the mean over members. True gives each start all
            members drawn, and takes the best of them: the optimistic plan of Algorithm 1, line 3, with the ensemble as F_n.

    Other arguments:
        step: seconds for which an imagined control is held.
        actor_rate, critic_rate: of Adam; the actor's falls to a twentieth along a cosine.
        critic_steps, critic_rows: steps of the critic for one of the actor, and imagined states in each.
        target_rate: how fast the target copy of the critic follows.
        costate: limit of the gradient that flows back through one state of a rollout, in units of an equal share.
        noise, noise_time: largest size and correlation time of the noise on imagined controls, before tanh.
        calm: weight of the squared control before tanh, which keeps tanh from saturating.
        box, rewarded, chained: shares of starts from the initial box, from rewarded states in the data and from the ends of
            the rollouts before; the rest are any states in the data.
        snapshots: how many.
        planned: log b -> the reward that is planned with, b̃.
    """

    iterations: int = 450
    rows: int = 48
    members: int = 3
    horizon: float = 3.0
    discount: float = 5.0
    optimistic: bool = False
    step: float = 0.1
    actor_rate: float = 2e-3
    critic_rate: float = 1e-3
    critic_steps: int = 4
    critic_rows: int = 256
    target_rate: float = 0.03
    costate: float = 10.0
    noise: float = 0.3
    noise_time: float = 0.4
    calm: float = 0.003
    box: float = 0.4
    rewarded: float = 0.2
    chained: float = 0.3
    snapshots: int = 5
    planned: Callable[[Array], Array] = mixture

    def __post_init__(self) -> None:
        require(self.rows % self.members == 0, f"rows: {self.rows} rollouts cannot be shared by {self.members} members")
        require(self.iterations >= self.snapshots, f"iterations: at least {self.snapshots}, not {self.iterations}")
        require(self.horizon >= self.step, f"horizon: must hold a step of {self.step} s, not {self.horizon}")

    @property
    def steps(self) -> int:
        """Steps of an imagined rollout."""
        return round(self.horizon / self.step)


class Region(NamedTuple):
    """Where to plan: measured states, and how far imagination may go."""

    states: Array
    """Measured states inside the limits [rows, 2·nq], zero beyond `count`."""
    count: Array
    limits: Array
    """Largest size of each number of the state [2·nq]; angles are free."""


class Imagined(NamedTuple):
    """Rollouts under the model; the last axis but one of each is a row, the one before it a member."""

    x: Array
    """States after each step [steps, members, rows, 2·nq]."""
    u: Array
    """Controls held during each step [steps, members, rows, k]."""
    z: Array
    """The same before tanh."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def clip_costate(x: Array, limit: float) -> Array:
    """x [..., d] itself; its gradient is cut to the norm `limit` in each row, and is zero where it is not finite."""
    return x


def _clip_backward(limit: float, _: None, slope: Array) -> tuple[Array]:
    slope = jnp.where(jnp.isfinite(slope), slope, 0.0)
    norm = jnp.sqrt((slope**2).sum(axis=-1, keepdims=True) + 1e-20)
    return (slope * jnp.minimum(1.0, limit / norm),)


clip_costate.defvjp(lambda x, limit: (x, None), _clip_backward)


def imagine(
    improving: Improving, integrate: Integrator, model: Model, actor: Actor, starts: Array, noise: Array, limits: Array
) -> Imagined:
    """Rolls the actor out under the model from `starts` [members, rows, 2·nq], with `noise` [steps, members, rows, k].

    A state that has left twice the limits is drawn back, but its gradient is not: clipped for good, it would never learn to
    come home.
    """
    costate = improving.costate / math.prod(starts.shape[:-1])
    gap = jnp.full((*starts.shape[:-1], 1), improving.step)

    def advance(x: Array, noise: Array) -> tuple[Array, Imagined]:
        x = clip_costate(x, costate)
        x = x + jax.lax.stop_gradient(jnp.clip(x, -2 * limits, 2 * limits) - x)
        z = actor.before_tanh(x) + noise
        u = actor.squash(z)
        x = integrate(lambda x, s: model.drift(x, u), x, gap)
        return x, Imagined(x, u, z)

    return jax.lax.scan(advance, starts, noise)[1]


def planned_reward(improving: Improving, world: World, seen: Imagined, limits: Array) -> Array:
    """b̃ of each step [steps, members, rows]; log b is lowered where a state is beyond its limit."""
    beyond = jax.nn.relu(jnp.abs(seen.x) / limits - 1)
    log_b = world.log_reward(seen.x, seen.u) - (beyond**2).sum(axis=-1)
    return improving.planned(log_b) - world.control_cost * (seen.u**2).sum(axis=-1)


def control_noise(improving: Improving, key: Array, shape: tuple[int, ...]) -> Array:
    """An Ornstein-Uhlenbeck process in time for each row, [steps, members, rows, k], of a size drawn for each row."""
    first_key, steps_key, size_key = jax.random.split(key, 3)
    keep = math.exp(-improving.step / improving.noise_time)
    kicks = math.sqrt(1 - keep**2) * jax.random.normal(steps_key, shape)

    def advance(z: Array, kick: Array) -> tuple[Array, Array]:
        z = keep * z + kick
        return z, z

    _, noise = jax.lax.scan(advance, jax.random.normal(first_key, shape[1:]), kicks)
    return improving.noise * jax.random.uniform(size_key, (1, *shape[1:-1], 1)) * noise


def imagined_test(
    improving: Improving,
    integrate: Integrator,
    model: Model,
    actor: Actor,
    key: Array,
    limits: Array,
    seconds: float = 10.0,
    episodes: int = 8,
) -> Array:
    """The true reward b after the first three seconds of imagined tests from the box, for each member [members]."""
    starts = jax.vmap(model.mechanism.start)(jax.random.split(key, episodes))
    starts = jnp.broadcast_to(starts, (model.members, *starts.shape))
    silence = jnp.zeros((round(seconds / improving.step), *starts.shape[:-1], actor.mechanism.control_dim))
    seen = imagine(improving, integrate, model, actor, starts, silence, limits)
    rewards = model.mechanism.reward(seen.x, seen.u)[round(SETTLED / improving.step) :]
    return jnp.nan_to_num(rewards).mean(axis=(0, 2))

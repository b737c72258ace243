"""Rollouts of a policy under the learned model: states, controls, and the reward that is planned with.

Far from the goal the reward b of a mechanical system is zero in float32 and has no gradient. The mixture
b̃ = 0.34 b + 0.33 b^(1/4) + 0.33 b^(1/16) has one, and the same maximum; it is planned with. A policy is evaluated by b.
"""

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp
from jax import Array

from purectrl.control.integrate import Integrator
from purectrl.control.policy import Actor
from purectrl.control.settings import PlanSettings
from purectrl.control.termination import earned
from purectrl.systems.mechanical import MechanicalSystem

MIXTURE = ((0.34, 1.0), (0.33, 4.0), (0.33, 16.0))
"""Weights and roots of b̃."""
TEST_SECONDS, TRANSIENT_SHARE = 10.0, 0.3
"""Length of an imagined test, and the share at its beginning that does not count: 3 s, as for mechanical systems."""


class TaskModel(Protocol):
    """What imagination needs besides the drift: known for a mechanical system, learned for others."""

    @property
    def reward_range(self) -> tuple[float | Array, float | Array]:
        """The range of the reward, in its unit."""
        ...

    @property
    def reward_unit(self) -> float | Array:
        """What the rewards below are multiplied by to obtain those of the problem."""
        ...

    def sample_initial_state(self, key: Array) -> Array:
        """x(0) [d]."""
        ...

    def reward(self, x: Array, u: Array) -> Array:
        """What a policy is evaluated by; x [..., d], u [..., k] -> [...]."""
        ...

    def log_reward(self, x: Array, u: Array) -> Array:
        """The logarithm of the reward, or the reward itself if it is not known to be positive; same shapes."""
        ...

    def planning_reward(self, x: Array, u: Array, penalty: Array) -> Array:
        """b̃, of which `penalty` [...] is subtracted before it is transformed; same shapes."""
        ...


class ImaginationModel(Protocol):
    """A dynamics model as imagination sees it: a pytree."""

    @property
    def task(self) -> TaskModel:
        """Reward and initial distribution."""
        ...

    @property
    def members(self) -> int:
        """Number of ensemble members."""
        ...

    def drift(self, x: Array, u: Array) -> Array:
        """dx/dt under each member; x [members, rows, d], u [members, rows, k] -> [members, rows, d]."""
        ...

    def select_members(self, members: Array) -> Self:
        """Some members, by number."""
        ...


def mixture(log_b: Array) -> Array:
    """b̃, of the logarithm of b.

    >>> float(mixture(jnp.log(1.0)))
    1.0
    """
    (weight, root), *others = MIXTURE
    return sum((weight * jnp.exp(log_b / root) for weight, root in others), weight * jnp.exp(log_b / root))


@dataclass(frozen=True)
class MechanicalTask:
    """The task model of a mechanical system, whose reward and initial distribution are known."""

    system: MechanicalSystem
    reward_unit: float = 1.0

    @property
    def reward_range(self) -> tuple[float, float]:
        """The range of the reward."""
        return self.system.reward_range

    def sample_initial_state(self, key: Array) -> Array:
        """x(0) [2·nq]."""
        return self.system.sample_initial_state(key)

    def reward(self, x: Array, u: Array) -> Array:
        """b(x, u)."""
        return self.system.reward(x, u)

    def log_reward(self, x: Array, u: Array) -> Array:
        """The logarithm of b, without its control cost."""
        return self.system.log_reward(x, u)

    def planning_reward(self, x: Array, u: Array, penalty: Array) -> Array:
        """The mixture b̃ with log b lowered by the penalty."""
        return mixture(self.system.log_reward(x, u) - penalty) - self.system.control_cost * (u**2).sum(axis=-1)


class Region(NamedTuple):
    """Where to plan: measured states, and limits of the imagined ones."""

    states: Array
    """Measured states inside the limits [rows, d], zero beyond `size`."""
    size: Array
    """The number of states."""
    limits: Array
    """Largest size of each coordinate of the state [d]; angles have no limit."""


class Imagined(NamedTuple):
    """Rollouts under the model; the last axis but one of each numbers rows, the one before it members."""

    x: Array
    """States after each step [steps, members, rows, d]."""
    u: Array
    """Controls held during each step [steps, members, rows, k]."""
    z: Array
    """The same before tanh."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def clip_state_gradient(x: Array, limit: float) -> Array:
    """x [..., d] itself; its gradient is clipped to the norm `limit` in each row, and zero where it is not finite."""
    return x


def _clip_backward(limit: float, _: None, gradient: Array) -> tuple[Array]:
    gradient = jnp.where(jnp.isfinite(gradient), gradient, 0.0)
    norm = jnp.sqrt((gradient**2).sum(axis=-1, keepdims=True) + 1e-20)
    return (gradient * jnp.minimum(1.0, limit / norm),)


clip_state_gradient.defvjp(lambda x, limit: (x, None), _clip_backward)


def bounded_state(x: Array, limits: Array, gradient_limit: float) -> Array:
    """x [..., d] with a clipped gradient; beyond twice the limits the state is clipped, but its gradient is not: with a zero
    gradient the policy could not learn to return."""
    x = clip_state_gradient(x, gradient_limit)
    return x + jax.lax.stop_gradient(jnp.clip(x, -2 * limits, 2 * limits) - x)


def imagine(
    plan: PlanSettings,
    integrate: Integrator,
    model: ImaginationModel,
    actor: Actor,
    starts: Array,
    noise: Array,
    limits: Array,
) -> Imagined:
    """Rolls the actor out under the model from `starts` [members, rows, d], with `noise` [steps, members, rows, k]."""
    limit = plan.state_grad_clip / math.prod(starts.shape[:-1])
    gap = jnp.full((*starts.shape[:-1], 1), plan.step)

    def advance(x: Array, noise: Array) -> tuple[Array, Imagined]:
        x = bounded_state(x, limits, limit)
        z = actor.before_tanh(x) + noise
        u = actor.squash(z)
        x = integrate(lambda x, s: model.drift(x, u), x, gap)
        return x, Imagined(x, u, z)

    return jax.lax.scan(advance, starts, noise)[1]


def planned_reward(task: TaskModel, seen: Imagined, limits: Array) -> Array:
    """b̃ of each step [steps, members, rows], lower where a state is beyond its limit, and zero after the end."""
    beyond = jax.nn.relu(jnp.abs(seen.x) / limits - 1)
    return earned(task, task.planning_reward(seen.x, seen.u, (beyond**2).sum(axis=-1)), seen.x)


def control_noise(plan: PlanSettings, key: Array, shape: tuple[int, ...]) -> Array:
    """An Ornstein-Uhlenbeck process in time for each row, [steps, members, rows, k], with a size drawn for each row."""
    keep = math.exp(-plan.step / plan.noise_time)
    first_key, steps_key, size_key = jax.random.split(key, 3)
    kicks, first = jax.random.normal(steps_key, shape), jax.random.normal(first_key, shape[1:])
    size = jax.random.uniform(size_key, (1, *shape[1:-1], 1))
    return plan.noise * size * ornstein_uhlenbeck(first, math.sqrt(1 - keep**2) * kicks, keep)


def ornstein_uhlenbeck(first: Array, kicks: Array, keep: float | Array) -> Array:
    """z_i = keep · z_{i−1} + kick_i from z_0 = `first` [...], for kicks [steps, ...] -> [steps, ...]."""

    def advance(z: Array, kick: Array) -> tuple[Array, Array]:
        z = keep * z + kick
        return z, z

    return jax.lax.scan(advance, first, kicks)[1]


def imagined_test(
    plan: PlanSettings,
    integrate: Integrator,
    model: ImaginationModel,
    actor: Actor,
    key: Array,
    limits: Array,
    episodes: int = 8,
) -> Array:
    """The mean reward b after the transient of imagined episodes from initial states, for each member [members]."""
    steps = max(round(TEST_SECONDS / plan.step), plan.rollout_steps)
    starts = jax.vmap(model.task.sample_initial_state)(jax.random.split(key, episodes))
    starts = jnp.broadcast_to(starts, (model.members, *starts.shape))
    no_noise = jnp.zeros((steps, *starts.shape[:-1], actor.spec.control_dim))
    seen = imagine(plan, integrate, model, actor, starts, no_noise, limits)
    rewards = earned(model.task, model.task.reward(seen.x, seen.u), seen.x)[round(TRANSIENT_SHARE * steps) :]
    return jnp.nan_to_num(rewards).mean(axis=(0, 2))

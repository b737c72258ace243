"""Where imagined rollouts begin, and the random numbers of planning."""

import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from purectrl.control.auto_settings import RoundSettings
from purectrl.systems.spec import StateSpec

SMALLEST_DISTANCE = 0.01
"""Distances from rewarded states are between this and one, in units of the spread of the data, uniform in their
logarithm."""


class PlanRegion(NamedTuple):
    """Where to plan."""

    states: Array
    """Measured states [rows, d], zero beyond `size`."""
    size: Array
    """The number of states."""
    limits: Array
    """Largest size of each coordinate of the state [d]."""
    goals: Array
    """States with the highest reward [goals, d]."""
    spread: Array
    """The typical distance of measured states from each other, in each coordinate [d]."""
    length: Array | float
    """Length of an imagined episode, whose mean reward is the promised return."""
    end: Array | float
    """How long it goes on to show how it ends, at least `length`."""


class Draws(NamedTuple):
    """The random numbers of one step.

    The numbers of many steps are drawn in two calls, one uniform and one normal: XLA compiles every call of the generator
    separately, and one takes about as long to compile as a part of the rollout.
    """

    initial: Array
    """Which initial states to begin in [initial], uniform in [0, 1) as all numbers but those that are said to be normal."""
    goals: Array
    """Which rewarded states to begin near [near]."""
    distance: Array
    """How near [near, 1]."""
    measured: Array
    """Which measured states to begin in [measured]."""
    order: Array
    """The rollouts in random order [rows]."""
    members: Array
    """The members in random order [members of the model]."""
    noise_size: Array
    """The size of the noise on the controls [1, members, rows of a member, 1]."""
    critic: Array
    """Which imagined states the critic is fitted to [critic steps, critic batch size]."""
    offset: Array
    """Where, seen from a rewarded state; normal [near, d]."""
    first_noise: Array
    """The noise on the first controls; normal [members, rows of a member, k]."""
    kicks: Array
    """Its changes; normal [steps, members, rows of a member, k]."""

    @classmethod
    def of(cls, settings: RoundSettings, model_members: int, spec: StateSpec, key: Array, steps: int) -> "Draws":
        """The random numbers of `steps` steps, which are the first axis of each array."""
        members = min(settings.ensemble_size, model_members)
        rows, each = settings.batch_size, (members, settings.batch_size // members)
        initial, near, ends = _shares(settings)
        uniform = (initial,), (near,), (near, 1), (rows - initial - near - ends,), (rows,), (model_members,)
        uniform += (1, *each, 1), (settings.critic_steps, settings.critic_batch_size)
        noise = *each, spec.control_dim
        normal = (near, spec.state_dim), noise, (settings.rollout_steps, *noise)
        uniform_key, normal_key = jax.random.split(key)
        drawn = jax.random.uniform(uniform_key, (steps, _count(uniform)))
        return cls(*_cut(drawn, uniform), *_cut(jax.random.normal(normal_key, (steps, _count(normal))), normal))


def _count(shapes: tuple[tuple[int, ...], ...]) -> int:
    return sum(map(math.prod, shapes))


def _cut(block: Array, shapes: tuple[tuple[int, ...], ...]) -> list[Array]:
    """Arrays [n, *shape] for each shape, from one block [n, numbers]."""
    ends = list(itertools.accumulate(map(math.prod, shapes)))
    parts = jnp.split(block, ends[:-1], axis=1)
    return [part.reshape(len(block), *shape) for part, shape in zip(parts, shapes, strict=True)]


def _shares(settings: RoundSettings) -> tuple[int, int, int]:
    """Rollouts that begin in initial states, near rewarded states, and where earlier ones ended."""
    shares = settings.initial_share, settings.goal_share, settings.rollout_end_share
    initial, near, ends = (int(share * settings.batch_size) for share in shares)
    return initial, near, ends


def index(uniform: Array, count: Array | int) -> Array:
    """Numbers below `count` from numbers in [0, 1)."""
    return (uniform * count).astype(jnp.int32)


def draw_starts(
    settings: RoundSettings, draws: Draws, initial_states: Array, region: PlanRegion, rollout_ends: Array
) -> Float[Array, "rows d"]:
    """Initial states of rollouts in random order: initial, near rewarded states, ends of rollouts, any measured states.

    Main arguments:
        initial_states: samples of x(0) [n, d].
        rollout_ends: where earlier rollouts ended [rows, d].
    """
    smallest = math.log(SMALLEST_DISTANCE)
    centres = region.goals[index(draws.goals, len(region.goals))]
    starts = [
        initial_states[index(draws.initial, len(initial_states))],
        centres + jnp.exp(smallest * (1 - draws.distance)) * region.spread * draws.offset,
        rollout_ends[: _shares(settings)[2]],
        region.states[index(draws.measured, region.size)],
    ]
    return jnp.concatenate(starts)[jnp.argsort(draws.order)]

"""Where PURE-auto plans: measured states, rewarded states, and the normalization of the features."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.control.black_box import LearnedTask
from purectrl.control.imagination import ImaginationModel
from purectrl.control.plan_starts import PlanRegion
from purectrl.core.measurement import Measurements
from purectrl.systems.spec import StateSpec

GOALS = 64
"""Rewarded states that are kept."""
ASCENT_STEPS = 200
"""Steps of the ascent from rewarded measured states to states with the highest reward, if the reward is known."""
MOST_ASCENTS, ASCENT_GAIN = 10, 0.01
"""The ascent is repeated as long as the highest reward rises by this share of the range of measured rewards: episodes that
stay near their start have a small spread, and the ascent short steps."""
WIDER = 1.0, 2.0, 4.0, 8.0, 16.0
"""The limits of the ascent are widened by these factors until the highest reward lies inside them. A reward that still rises
at the last ones has no maximum, and the first limits count."""
ANGLE_SPREAD = 1.5
"""The spread of an angle: about its whole circle."""
MARGIN = 1.3
"""Imagined states may be this many times larger than measured or rewarded ones before their reward is lowered."""
EARLY, MIN_STATES = 0.1, 100
"""The share of an episode, from its beginning, whose states determine the limits, and the least number of states."""
NO_LIMIT = 1e6
"""The limit of an angle."""


def working_region(
    spec: StateSpec,
    seen: Measurements,
    model: ImaginationModel,
    horizon: float,
    capacity: int,
    length: float,
    end: float,
) -> PlanRegion:
    """Where to plan, given all measurements of episodes of length `horizon`.

    Main arguments:
        capacity: N, the measurements that a run may take; the number of rows does not change as data are added.
        length, end: of imagined episodes, and how long they go on, unless they should end with a rewarded step.

    The early part of the episodes determines the limits: later, a cart on a long rail may be a kilometre away.
    """
    x, t = seen.x[seen.valid].astype(np.float32), seen.t[seen.valid]
    early = t <= max(EARLY * horizon, np.sort(t)[min(MIN_STATES, len(t)) - 1])
    largest = MARGIN * np.quantile(np.abs(x[early]), 0.995, axis=0)
    largest = np.where(largest > 0, largest, 1.0)
    largest[list(spec.angles)] = NO_LIMIT
    inside = (np.abs(x) <= largest).all(axis=1)
    states, typical = x[inside], x[inside & early]
    spread = 1.5 * np.median(np.abs(typical - np.median(typical, axis=0)), axis=0)
    spread = np.maximum(spread, 0.01 * largest).astype(np.float32)
    spread[list(spec.angles)] = ANGLE_SPREAD
    if spec.mechanics is not None and spec.mechanics.goal is not None:
        goals = np.tile(np.asarray(spec.mechanics.goal, np.float32), (GOALS, 1))
    elif (last := rewarded_ends(seen, model)) is not None:
        end = length
        goals = last[np.arange(GOALS) % len(last)]
    else:
        goals = rewarded_states(spec, model, states, spread, largest)
    limits = np.maximum(largest, MARGIN * np.abs(goals).max(axis=0))
    rows = np.zeros((capacity, x.shape[1]), np.float32)
    rows[: len(states)] = states
    arrays = rows, np.int32(len(states)), *(a.astype(np.float32) for a in (limits, goals, spread))
    return PlanRegion(*map(jnp.asarray, (*arrays, np.float32(length), np.float32(end))))


def rewarded_ends(seen: Measurements, model: ImaginationModel) -> np.ndarray | None:
    """The last states before episodes terminated [n, d], if that was rewarded more than any other step; else None."""
    task = model.task
    if not isinstance(task, LearnedTask) or task.ending_reward is None or not seen.terminated.any():
        return None
    if not task.ending_reward > task.best:
        return None
    return seen.x[seen.ending].astype(np.float32)


def rewarded_states(
    spec: StateSpec, model: ImaginationModel, states: np.ndarray, spread: np.ndarray, limits: np.ndarray
) -> np.ndarray:
    """States with the highest reward [goals, d]: the best measured ones, and from there upwards if the reward is known."""
    arrays = [jnp.asarray(array, jnp.float32) for array in (states, spread, limits)]
    rewards = np.asarray(_reward(spec, model, arrays[0]))
    best = np.argsort(-rewards, kind="stable")[np.arange(GOALS) % len(states)]
    if spec.reward is None:
        return states[best]
    least = ASCENT_GAIN * float(np.ptp(rewards))
    goals, found = arrays[0][best], []
    for factor in WIDER:
        goals = _climb(spec, model, goals, arrays[1], factor * arrays[2], least)
        found.append(np.asarray(goals))
        highest = found[-1][int(_reward(spec, model, goals).argmax())]
        if (np.abs(highest) < factor * limits).all():
            return found[-1]
    return found[0]


def _climb(spec: StateSpec, model: ImaginationModel, goals: Array, spread: Array, limits: Array, least: float) -> Array:
    """States [n, d] after ascents, which are repeated as long as the highest reward rises by more than `least`."""
    highest = float(_reward(spec, model, goals).max())
    for _ in range(MOST_ASCENTS):
        found = _ascend(spec, model, goals, spread, limits)
        goals = jnp.where(jnp.isfinite(found).all(axis=1, keepdims=True), found, goals)
        before, highest = highest, float(_reward(spec, model, goals).max())
        if not highest > before + least:
            break
    return goals


@functools.partial(jax.jit, static_argnums=0)
def _reward(spec: StateSpec, model: ImaginationModel, x: Array) -> Array:
    """What is maximized [n] in states [n, d], with controls in the middle of their range."""
    u = jnp.broadcast_to(jnp.asarray(spec.control_mid), (len(x), spec.control_dim))
    return model.task.log_reward(x, u)


@functools.partial(jax.jit, static_argnums=0)
def _ascend(spec: StateSpec, model: ImaginationModel, x: Array, spread: Array, limits: Array) -> Array:
    """States [n, d] after steps along the gradient, in units of the spread, whose length shrinks from 0.3 to 0.001."""
    slope = jax.grad(lambda x: _reward(spec, model, x).sum())

    def step(x: Array, size: Array) -> tuple[Array, None]:
        gradient = jnp.nan_to_num(slope(x)) * spread
        norm = jnp.sqrt((gradient**2).sum(axis=-1, keepdims=True))
        moved = x + size * spread * gradient / jnp.maximum(norm, 1e-12)
        return jnp.clip(moved, -limits, limits), None

    return jax.lax.scan(step, x, jnp.geomspace(0.3, 0.001, ASCENT_STEPS))[0]


def normalization(spec: StateSpec, region: PlanRegion) -> tuple[Array, Array]:
    """What is subtracted from each feature and what it is divided by [features] in actor and critic.

    Features of mechanical systems are divided by the root of their typical size, between 1 and 3, and not shifted. Others
    are shifted by their median and divided by their typical distance from it. Outliers would flatten the policy near the
    goal, so it is the median distance, but at least a tenth of the standard deviation.
    """
    features = np.asarray(spec.featurize(region.states))[: int(region.size)]
    if spec.mechanics is not None:
        return jnp.zeros(features.shape[1]), jnp.asarray(
            np.clip((features**2).mean(axis=0) ** 0.25, 1.0, 3.0), jnp.float32
        )
    middle = np.median(features, axis=0)
    away = 1.5 * np.median(np.abs(features - middle), axis=0)
    scale = np.clip(away, features.std(axis=0) / 10, features.std(axis=0))
    scale = np.where(scale > 1e-6, scale, 1.0)
    return jnp.asarray(middle, jnp.float32), jnp.asarray(scale, jnp.float32)

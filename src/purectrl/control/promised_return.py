"""Returns that PURE-auto compares: measured in an episode, and imagined for the same policy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.control.auto_settings import RoundSettings
from purectrl.control.imagination import ImaginationModel
from purectrl.control.integrate import Integrator
from purectrl.control.planner import Normalized, roll_out
from purectrl.control.policy import Actor
from purectrl.control.termination import earned
from purectrl.core.measurement import Measurements
from purectrl.systems.spec import StateSpec

EXPLAINED = 1e-3
"""Rewards are explained by the controls up to this share of the largest one."""


def time_mean(t: np.ndarray, values: np.ndarray) -> float:
    """The mean over time of values [n] at increasing times [n], by the trapezoidal rule.

    >>> time_mean(np.array([0.0, 1.0, 3.0]), np.array([0.0, 1.0, 1.0]))
    0.8333333333333334
    """
    span = float(t[-1] - t[0])
    return float(np.trapezoid(values.astype(np.float64), t) / span) if span > 0 else float(values.mean())


def episode_rewards(spec: StateSpec, seen: Measurements) -> np.ndarray:
    """Measured rewards [episodes, m], or the known reward of measured states."""
    if seen.r is not None:
        return seen.r
    assert spec.reward is not None
    return np.asarray(jnp.vectorize(spec.reward, signature="(d),(k)->()")(seen.x, seen.u))


def rewards_states(seen: Measurements) -> bool:
    """Whether measurements tell states apart: an episode has terminated, or rewards are no quadratic function of controls.

    >>> u = np.linspace(-1.0, 1.0, 20)[None, :, None]
    >>> [rewards_states(Measurements(u[..., 0], 2 * u, u, r=r)) for r in (-u[..., 0] ** 2, np.cos(9 * u[..., 0]))]
    [False, True]
    """
    if seen.terminated.any() or seen.r is None:
        return True
    u, r = seen.u[seen.valid].astype(np.float64), seen.r[seen.valid].astype(np.float64)
    scaled = u / np.maximum(np.abs(u).max(axis=0), 1e-12)
    products = scaled[:, :, None] * scaled[:, None, :]
    terms = np.concatenate([np.ones((len(u), 1)), scaled, products.reshape(len(u), -1)], axis=1)
    error = r - terms @ np.linalg.lstsq(terms, r, rcond=None)[0]
    return float(np.abs(error).max()) > EXPLAINED * float(np.abs(r).max())


@functools.partial(jax.jit, static_argnums=0)
def rewards_at_rest(spec: StateSpec, model: ImaginationModel, x: Array) -> Array:
    """Rewards [n] in states [n, d] with controls in the middle of their range."""
    return model.task.reward(x, jnp.broadcast_to(jnp.asarray(spec.control_mid), (len(x), spec.control_dim)))


@functools.partial(jax.jit, static_argnums=(0, 1))
def imagined_rewards(
    settings: RoundSettings, integrate: Integrator, model: ImaginationModel, actor: Actor, start: Array, step: float
) -> Array:
    """Rewards [test_steps] of an imagined episode from `start` [d], in the problem's unit, the mean over members."""
    starts = jnp.broadcast_to(start, (model.members, 1, start.size))
    no_noise = jnp.zeros((settings.test_steps, *starts.shape[:-1], actor.spec.control_dim))
    free = jnp.full(start.size, jnp.inf)
    network = Normalized.of(actor, jnp.zeros(actor.spec.feature_dim))
    seen = roll_out(settings, integrate, model, network, starts, no_noise, step, free, jnp.ones(start.size))
    rewards = earned(model.task, jnp.nan_to_num(model.task.reward(seen.x, seen.u)), seen.x)
    return model.task.reward_unit * rewards.mean(axis=(1, 2))


def best_reward(
    spec: StateSpec,
    model: ImaginationModel,
    seen: Measurements,
    goals: Array,
    length: float,
    time_grid: float | None,
) -> float:
    """The highest reward, measured or in the rewarded states `goals` [n, d].

    In discrete time, that of a step which terminates an episode is earned once: it counts as its share of an imagined
    episode of `length` seconds.
    """
    rewards = episode_rewards(spec, seen)
    if time_grid is None or spec.reward is not None or not seen.terminated.any():
        at_goals = float(model.task.reward_unit) * np.asarray(rewards_at_rest(spec, model, goals))
        return max(float(at_goals.max()), float(rewards[seen.valid].max()))
    return float(np.where(seen.ending, time_grid / length * rewards, rewards)[seen.valid].max())

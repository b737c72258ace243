"""Episodes of a simulated system under continuous feedback: the true system behind an oracle, and in an evaluation.

The policy acts at every instant, not on the grid of the measurements; only a `HeldPolicy` acts at instants of its own. The
path is computed by the classical Runge-Kutta method on a grid that contains every measurement time; process noise is added
after each step.
"""

import functools
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.oracle import Rollout
from purectrl.core.plan import Plan
from purectrl.systems.compiled import pad_rows
from purectrl.systems.held_policy import HeldPolicy, held_path
from purectrl.systems.integration import runge_kutta_step
from purectrl.systems.spec import episode_control

MAX_STEP = 0.01
"""Longest step of the simulation, in seconds."""
BATCH_SIZES = (4, 32)
"""Numbers of episodes that share a compiled program; smaller batches are padded."""


class SimulatedSystem(Protocol):
    """What the simulation needs; a `MechanicalSystem` has it."""

    @property
    def state_dim(self) -> int:
        """The number of coordinates of a state."""
        ...

    def sample_initial_state(self, key: Array) -> Array:
        """x(0) [d]."""
        ...

    def drift(self, x: Array, u: Array) -> Array:
        """dx/dt; x [..., d], u [..., k] -> [..., d]."""
        ...

    def reward(self, x: Array, u: Array) -> Array:
        """The reward rate; x [..., d], u [..., k] -> [...]."""
        ...


@functools.lru_cache(maxsize=64)
def closed_loop_rollouts(
    system: SimulatedSystem,
    horizon: float,
    diffusion: float = 0.0,
    *,
    drift_step: float | None = None,
    max_step: float = MAX_STEP,
    batch_sizes: tuple[int, ...] = BATCH_SIZES,
) -> Rollout:
    """The rollout of a simulated system under `plan.policy`, in episodes of length `horizon`.

    Measurements carry the exact reward.

    Main arguments:
        system: the true system, a hashable value.
        horizon: T.
        diffusion: g, the process noise in every direction of the state.

    Other arguments:
        drift_step: if given, y = (x(t + drift_step) − x(t))/drift_step is measured, too.
        max_step: longest step of the simulation.
        batch_sizes: numbers of episodes that a batch is padded to.
    """
    require(diffusion >= 0, f"diffusion: must not be negative, got {diffusion}")
    end = horizon if drift_step is None else horizon + drift_step
    grid = np.linspace(0.0, end, int(np.ceil(end / max_step - 1e-9)) + 1, dtype=np.float32)

    def episode(key: Array, policy: Any, number: Array, times: Array) -> tuple[Array, ...]:
        start_key, noise_key, path_key = jax.random.split(key, 3)
        times = times if drift_step is None else jnp.concatenate([times, times + drift_step])
        if isinstance(policy, HeldPolicy):
            x, u = held_path(system, policy, (start_key, noise_key, path_key), times, end, diffusion, max_step)
            return _with_rewards(system, x, u, drift_step)
        act = episode_control(policy, noise_key, number)
        nodes = jnp.concatenate([grid, times])
        order = jnp.argsort(nodes)
        rate = lambda x, t: system.drift(x, act(x, t))  # noqa: E731
        increments = diffusion * jax.random.normal(path_key, (len(nodes), system.state_dim)) if diffusion else None
        states = _path(rate, system.sample_initial_state(start_key), nodes[order], increments)
        x = states[jnp.argsort(order)[len(grid) :]]
        measured = len(times) if drift_step is None else len(times) // 2
        return _with_rewards(system, x, jax.vmap(act)(x[:measured], times[:measured]), drift_step)

    @jax.jit
    def batch(key_data: Array, policy: Any, numbers: Array, times: Array) -> tuple[Array, ...]:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.wrap_key_data(key_data), numbers)
        return jax.vmap(episode, (0, None, 0, 0))(keys, policy, numbers, times)

    def rollout(key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        rows = np.arange(len(times)), np.asarray(times, np.float32)
        run = lambda *rows: batch(key.jax_key_data(), plan.policy, *rows)  # noqa: E731
        sizes = (1, *batch_sizes) if isinstance(plan.policy, HeldPolicy) else batch_sizes  # its decisions are expensive
        x, u, r, *y = pad_rows(run, *rows, sizes=sizes)
        return Measurements(times, x, u, *y, r=r)

    return rollout


def _with_rewards(system: SimulatedSystem, x: Array, u: Array, drift_step: float | None) -> tuple[Array, ...]:
    """States, controls, rewards and, from the states `drift_step` seconds later in the second half of x, drifts."""
    if drift_step is None:
        return x, u, system.reward(x, u)
    x, after = jnp.split(x, 2)
    u = u[: len(x)]
    return x, u, system.reward(x, u), (after - x) / drift_step


def _path(rate: Callable[[Array, Array], Array], start: Array, times: Array, increments: Array | None) -> Array:
    """States [n, d] at `times` [n] of dx/dt = rate(x, t), with noise [n, d] per square root of a second."""

    def advance(x: Array, step: tuple[Array, Array, Array | None]) -> tuple[Array, Array]:
        t, h, noise = step
        x = runge_kutta_step(rate, x, t, h)
        x = x if noise is None else x + jnp.sqrt(h) * noise
        return x, x

    noises = None if increments is None else increments[1:]
    _, path = jax.lax.scan(advance, start, (times[:-1], jnp.diff(times), noises))
    return jnp.concatenate([start[None], path])

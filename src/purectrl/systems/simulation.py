"""Simulated diffusions: one compiled Euler-Maruyama scan, and the rollout that an oracle hides.

The path is computed on a time grid that contains every measurement time, so irregular times, different in each episode,
need neither rounding nor interpolation, and several times on one path have their exact joint law (of the scheme).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purectrl.core.errors import MeasurementError, require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.oracle import Rollout
from purectrl.core.problem import Array, Measuring, Plan, System


def euler_maruyama(
    key: Array,
    drift: Callable[[Array, Array], Array],
    diffusion: Callable[[Array, Array], Array],
    policy: Callable[[Array], Array],
    start: Array,
    times: Array,
) -> Array:
    """One path of dx = f(x, π(x)) dt + g(x, π(x)) dw.

    Main arguments:
        drift, diffusion, policy: functions of one state, as in `System`.
        start: x(t_0) [d].
        times: t_0 ≤ … ≤ t_K [K+1], not necessarily equidistant.

    Returns:
        States at those times [K+1, d].
    """
    steps = jnp.diff(times)
    increments = jax.random.normal(key, (steps.size, start.size)) * jnp.sqrt(steps)[:, None]

    def advance(x: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        dt, dw = step
        u = policy(x)
        x = x + drift(x, u) * dt + diffusion(x, u) * dw
        return x, x

    _, path = jax.lax.scan(advance, start, (steps, increments), unroll=4)
    return jnp.concatenate([start[None], path])


def simulated(
    system: System,
    policy: Callable[[Any, Array], Array],
    initial: Callable[[Any, Array], Array],
    measuring: Measuring,
    steps: int,
) -> Rollout:
    """The rollout of a simulated true system, for `Oracle`.

    Main arguments:
        system: the truth.
        policy: (parameters, x [d]) -> u [k]; the parameters are `plan.policy`.
        initial: (parameters, JAX key) -> x(0) [d]; the parameters are `plan.initial`.
        measuring: Δ, the noise, and how y comes about.
        steps: Euler-Maruyama steps over [0, T].
    """
    require(steps >= 1, f"steps: the simulation needs at least one step, not {steps}")
    grid = np.linspace(0.0, system.horizon, steps + 1, dtype=np.float32)
    by_quotient = measuring.drift == "quotient"

    def episode(key: Array, plan: Plan, times: Array) -> tuple[Array, ...]:
        m = times.size
        start_key, path_key, drift_key, reward_key = jax.random.split(key, 4)
        nodes = jnp.concatenate([grid, times, times + measuring.step] if by_quotient else [grid, times])
        order = jnp.argsort(nodes)
        start = initial(plan.initial, start_key)
        act = lambda x: policy(plan.policy, x)  # noqa: E731
        path = euler_maruyama(path_key, system.drift, system.diffusion, act, start, nodes[order])
        place = jnp.argsort(order)[grid.size :]
        x = path[place[:m]]
        u = jax.vmap(act)(x)
        if by_quotient:
            y = (path[place[m:]] - x) / measuring.step
        else:
            noise = jax.random.normal(drift_key, x.shape) / np.sqrt(measuring.step)
            y = jax.vmap(system.drift)(x, u) + jax.vmap(system.diffusion)(x, u)[:, None] * noise
        b = jax.vmap(system.reward)(x, u)
        r = b + measuring.reward_std * jax.random.normal(reward_key, b.shape)
        return x, u, y, r, b

    @jax.jit
    def block(words: Array, plan: Plan, times: Array) -> tuple[Array, ...]:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.wrap_key_data(words), jnp.arange(times.shape[0]))
        return jax.vmap(episode, (0, None, 0))(keys, plan, times)

    def rollout(key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        x, u, y, r, b = pad_rows(lambda rows: block(key.words(), plan, rows), np.asarray(times, np.float32))
        low, high = system.reward_range
        if b.min() < low - 1e-6 or b.max() > high + 1e-6:  # NaN is the oracle's to name
            raise MeasurementError(
                f"the reward of {system.name!r} is {b.min() if b.min() < low else b.max():g}, outside its declared range "
                f"[{low:g}, {high:g}]: scale it or declare its true range"
            )
        return Measurements(times, x, u, y, r)

    return rollout


def pad_rows(
    function: Callable[..., tuple[Array, ...]], *arrays: np.ndarray, sizes: tuple[int, ...] = (1, 16, 256)
) -> tuple[np.ndarray, ...]:
    """Calls `function` on arrays whose first axis is padded to one of `sizes` or a larger power of two, and cuts its results
    back: a run with blocks of many sizes compiles a handful of programs instead of many. The last row fills the rest."""
    rows = len(arrays[0])
    padded = next((size for size in sizes if rows <= size), 1 << (rows - 1).bit_length())
    if padded > rows:
        arrays = tuple(np.concatenate([a, np.repeat(a[-1:], padded - rows, axis=0)]) for a in arrays)
    return tuple(np.asarray(result)[:rows] for result in function(*arrays))

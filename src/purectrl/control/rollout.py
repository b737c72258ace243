"""Episodes of a simulated mechanism under continuous feedback: what an oracle hides, and what an evaluation sees.

The policy acts at every instant, not on the grid of the measurements. The path is computed by the classical method of order
four on a grid that contains every measurement time; process noise is added after each step.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from purectrl.control.exploration import SmoothNoise, draw
from purectrl.control.policy import Behaviour
from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.oracle import Rollout
from purectrl.core.problem import Array, Plan
from purectrl.systems.mechanism import Mechanism
from purectrl.systems.simulation import pad_rows

FINEST = 0.01
"""Seconds a step of the simulation at most."""
SIZES = (4, 32)
"""Numbers of episodes that share a compiled program; smaller blocks are padded."""


def feedback(
    mechanism: Mechanism, noise: SmoothNoise, diffusion: float = 0.0, sizes: tuple[int, ...] = SIZES
) -> Rollout:
    """The rollout of a mechanism under a `Behaviour`, for episodes as long as `noise` is.

    Measurements carry the exact reward: in ENODE it is known.

    Main arguments:
        mechanism: the truth; episodes start in its box.
        noise: the exploration; a behaviour scales it.
        diffusion: g, the process noise in every direction of the state.
    """
    require(diffusion >= 0, f"diffusion: g cannot be negative, got {diffusion}")
    factor = noise.factor()
    grid = np.linspace(0.0, noise.horizon, int(np.ceil(noise.horizon / FINEST - 1e-9)) + 1, dtype=np.float32)

    def episode(key: Array, behaviour: Behaviour, amplitude: Array, times: Array, factor: Array) -> tuple[Array, ...]:
        start_key, noise_key, path_key = jax.random.split(key, 3)
        knots = amplitude * draw(noise_key, factor, mechanism.control_dim)
        nodes = jnp.concatenate([grid, times])
        order = jnp.argsort(nodes)
        act = lambda x, t: behaviour.control(x, noise.at(knots, t))  # noqa: E731
        rate = lambda x, t: mechanism.drift(x, act(x, t))  # noqa: E731
        increments = diffusion * jax.random.normal(path_key, (len(nodes), mechanism.state_dim)) if diffusion else None
        states = _runge_kutta(rate, mechanism.start(start_key), nodes[order], increments)
        x = states[jnp.argsort(order)[len(grid) :]]
        u = jax.vmap(act)(x, times)
        return x, u, mechanism.reward(x, u)

    @jax.jit
    def block(words: Array, behaviour: Behaviour, factor: Array, numbers: Array, times: Array) -> tuple[Array, ...]:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.wrap_key_data(words), numbers)
        amplitudes = jnp.asarray(behaviour.amplitudes)[numbers % len(behaviour.amplitudes)]
        return jax.vmap(episode, (0, None, 0, 0, None))(keys, behaviour, amplitudes, times, factor)

    def rollout(key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        rows = np.arange(len(times)), np.asarray(times, np.float32)
        x, u, r = pad_rows(lambda *rows: block(key.words(), plan.policy, factor, *rows), *rows, sizes=sizes)
        return Measurements(times, x, u, r=r)

    return rollout


def _runge_kutta(rate: Callable[[Array, Array], Array], start: Array, times: Array, increments: Array | None) -> Array:
    """States [n, d] at `times` [n] of dx/dt = rate(x, t), with noise [n, d] per square root of a second."""

    def advance(x: Array, step: tuple) -> tuple[Array, Array]:
        t, h, noise = step
        a = rate(x, t)
        b = rate(x + h / 2 * a, t + h / 2)
        c = rate(x + h / 2 * b, t + h / 2)
        d = rate(x + h * c, t + h)
        x = x + h / 6 * (a + 2 * b + 2 * c + d)
        x = x if noise is None else x + jnp.sqrt(h) * noise
        return x, x

    noises = None if increments is None else increments[1:]
    _, path = jax.lax.scan(advance, start, (times[:-1], jnp.diff(times), noises))
    return jnp.concatenate([start[None], path])

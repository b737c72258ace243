"""Episodes of a simulated system behind a digital controller: sampled and held, delayed, noisy, partly measured.

symbol            here                       meaning
----------------  -------------------------  -------------------------------------------------------------------------
p                 Device.period              time between two controls; the control is held in between
δ_s, δ_a          sensor_delay, ...          age of a measured state; time from a command to its effect
o(t_k)            observation [n]            the measured coordinates of x(t_k − δ_s), with noise
z(t_k)            what policies see [D]      the last observations, newest first, then the controls between them

At t_k = k p the controller reads o, computes u = π(z, t_k) and holds it for p seconds. With a history of h samples z is
(o_k, o_{k−1}, …, o_{k−h+1}, u_{k−1}, …, u_{k−h+1}), so that a state of which only positions are measured, or whose
measurement is late, is again a function of what is known. Before the first samples there are copies of it, and controls at
rest.

A measurement at t_k is (z, u, y, r) with y = (z(t_{k+1}) − z(t_k))/p, which one Euler step of length p inverts, and r the
true reward. An episode terminates at the first t_k at which the true state is terminal; the step that led there is measured
in the place of the next measurement, and nothing after it.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.oracle import Rollout
from purectrl.core.plan import Plan
from purectrl.systems.closed_loop import BATCH_SIZES, SimulatedSystem
from purectrl.systems.compiled import pad_rows
from purectrl.systems.integration import runge_kutta_step
from purectrl.systems.spec import episode_decisions


@dataclass(frozen=True)
class Device:
    """How a system is measured and controlled.

    Main arguments:
        period: p, seconds between two controls.
        observed: the coordinates of the state that are measured [n].
        rest: the controls before the first one has an effect [k].

    Other arguments:
        history: h, the number of samples that policies see.
        observation_std: standard deviation of the noise on each measured coordinate [n].
        sensor_delay, actuator_delay: in seconds.
        terminated: (x [d]) -> bool, whether an episode terminates in the true state x.

    >>> device = Device(0.1, observed=(0,), rest=(0.0,), history=3)
    >>> device.size(control_dim=1)
    5
    """

    period: float
    observed: tuple[int, ...]
    rest: tuple[float, ...]
    history: int = 1
    observation_std: tuple[float, ...] = ()
    sensor_delay: float = 0.0
    actuator_delay: float = 0.0
    terminated: Callable[[Array], Array] | None = None

    def __post_init__(self) -> None:
        require(self.period > 0, f"control_period: must be positive, not {self.period}")
        require(self.history >= 1, f"history: must be at least 1 sample, not {self.history}")
        require(len(self.observed) >= 1, "observed: at least one coordinate must be measured")
        if self.observation_std:
            lengths = len(self.observation_std), len(self.observed)
            require(
                lengths[0] == lengths[1],
                f"observation_std: has {lengths[0]} numbers, expected one per measured coordinate, {lengths[1]}",
            )

    def labels(self, control_dim: int) -> tuple[str, ...]:
        """What the coordinates that policies see are called.

        >>> Device(0.1, observed=(1,), rest=(0.0,), history=2).labels(control_dim=1)
        ('x[1]', 'x[1], 1 sample ago', 'u[0], 1 sample ago')
        """
        ago = lambda n: "" if n == 0 else f", {n} sample{'s' * (n > 1)} ago"  # noqa: E731
        states = [f"x[{i}]{ago(n)}" for n in range(self.history) for i in self.observed]
        return (*states, *(f"u[{i}]{ago(n)}" for n in range(1, self.history) for i in range(control_dim)))

    def size(self, control_dim: int) -> int:
        """D, the number of coordinates that policies see."""
        return self.history * len(self.observed) + (self.history - 1) * control_dim


def device_rollouts(
    system: SimulatedSystem,
    device: Device,
    horizon: float,
    diffusion: float = 0.0,
    *,
    max_step: float,
    batch_sizes: tuple[int, ...] = BATCH_SIZES,
) -> Rollout:
    """The rollout of `system` behind `device`; times are multiples of the period.

    Main arguments:
        system: the true system, a hashable value.
        horizon: T.
        diffusion: g, the process noise in every direction of the state.

    Other arguments:
        max_step: longest step of the simulation.
        batch_sizes: numbers of episodes that a batch is padded to.
    """
    run = _compiled(system, device, horizon, diffusion, max_step)

    def rollout(key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        call = lambda numbers: run(key.jax_key_data(), plan.policy, numbers)  # noqa: E731
        found = pad_rows(call, np.arange(len(times)), sizes=batch_sizes)
        return _measured(device, times, *found)

    return rollout


@functools.lru_cache(maxsize=64)
def _compiled(
    system: SimulatedSystem, device: Device, horizon: float, diffusion: float, max_step: float
) -> Callable[..., tuple[Array, ...]]:
    """(key data, policy, numbers of episodes [n]) -> z [n, steps + 1, D], u [n, steps, k], r [n, steps], and whether each
    state is terminal [n, steps + 1]."""
    ticks = int(np.floor(horizon / device.period + 1e-9)) + 1
    substeps = max(1, int(np.ceil(device.period / max_step - 1e-9)))
    h = device.period / substeps
    late_sensor, late_actuator = (round(delay / h) for delay in (device.sensor_delay, device.actuator_delay))
    rest, observed = jnp.asarray(device.rest, jnp.float32), jnp.asarray(device.observed)
    std = jnp.asarray(device.observation_std or (0.0,) * len(device.observed), jnp.float32)

    def episode(key: Array, policy: Any, number: Array) -> tuple[Array, ...]:
        start_key, noise_key, path_key, sensor_key = jax.random.split(key, 4)
        memory, decide = episode_decisions(policy, noise_key, number)
        start = system.sample_initial_state(start_key)
        kicks = jnp.sqrt(h) * diffusion * jax.random.normal(path_key, (ticks, substeps, system.state_dim))
        errors = std * jax.random.normal(sensor_key, (ticks + 1, len(device.observed)))

        def observe(past: Array, error: Array) -> Array:
            return past[0, observed] + error

        def tick(carry: tuple, inputs: tuple) -> tuple:
            past, commands, seen, used, memory = carry
            k, kick, error = inputs
            seen = jnp.concatenate([observe(past, error)[None], seen[:-1]])
            z = jnp.concatenate([seen.ravel(), used.ravel()])
            u, memory = decide(memory, z, k * device.period)
            x = past[-1]
            reward = system.reward(x, u)

            def substep(carry: tuple, kick: Array) -> tuple[tuple, None]:
                x, past, commands = carry
                commands = jnp.concatenate([commands[1:], u[None]])
                x = runge_kutta_step(lambda x, t: system.drift(x, commands[0]), x, 0.0, h) + kick
                return (x, jnp.concatenate([past[1:], x[None]]), commands), None

            (_, past, commands), _ = jax.lax.scan(substep, (x, past, commands), kick)
            used = jnp.concatenate([u[None], used])[: device.history - 1]
            return (past, commands, seen, used, memory), (z, u, reward, x)

        first = start[observed] + errors[0]
        carry = (
            jnp.broadcast_to(start, (late_sensor + 1, *start.shape)),  # oldest first
            jnp.broadcast_to(rest, (late_actuator + 1, *rest.shape)),
            jnp.broadcast_to(first, (device.history, *first.shape)),
            jnp.broadcast_to(rest, (device.history - 1, *rest.shape)),
            memory,
        )
        inputs = jnp.arange(ticks, dtype=jnp.float32), kicks, errors[:-1]
        (past, _, seen, used, _), (z, u, r, x) = jax.lax.scan(tick, carry, inputs)
        last = jnp.concatenate([jnp.concatenate([observe(past, errors[-1])[None], seen[:-1]]).ravel(), used.ravel()])
        z, x = jnp.concatenate([z, last[None]]), jnp.concatenate([x, past[-1:]])
        if device.terminated is None:
            return z, u, r, jnp.zeros(len(x), bool)
        return z, u, r, jnp.asarray(jax.vmap(device.terminated)(x), bool)

    @jax.jit
    def batch(key_data: Array, policy: Any, numbers: Array) -> tuple[Array, ...]:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.wrap_key_data(key_data), numbers)
        return jax.vmap(episode, (0, None, 0))(keys, policy, numbers)

    return batch


def _measured(
    device: Device, times: np.ndarray, z: np.ndarray, u: np.ndarray, r: np.ndarray, ends: np.ndarray
) -> Measurements:
    """What is measured at `times` [episodes, m] of simulated steps; see `device_rollouts`."""
    (episodes, m), steps = times.shape, u.shape[1]
    ticks = np.minimum(np.rint(times / device.period).astype(int), steps - 1)
    first = np.where(ends.any(axis=1), ends.argmax(axis=1), steps + 1)  # the first terminal state of each episode
    count, place = np.zeros(episodes, np.int64), np.zeros((episodes, m), int)
    final = np.full((episodes, z.shape[-1]), np.nan, np.float32)
    for number, row in enumerate(ticks):
        asked = np.unique(row)
        end = max(first[number], 1)
        seen = asked[asked < end]
        if asked[-1] >= end - 1 and first[number] <= steps:
            final[number] = z[number, end]
            seen = np.union1d(seen, [end - 1])
        count[number], place[number] = len(seen), seen[-1] if len(seen) else 0
        place[number, : len(seen)] = seen
    row = np.arange(episodes)[:, None]
    x, after = z[row, place], z[row, place + 1]
    y = (after - x) / np.float32(device.period)
    return Measurements(place * device.period, x, u[row, place], y, r[row, place], count, final)


class History:
    """What a policy with a history of h samples sees, built up sample by sample: for use with a real system.

        history = History(observed=1, controls=1, length=3)
        z = history(o)             # before each call of the policy
        u = policy(z); history.applied(u)

    Main arguments:
        observed, controls: the numbers of measured coordinates and of controls.
        length: h.

    Other arguments:
        rest: the controls before the first [k]; zeros by default.

    >>> history = History(observed=1, controls=1, length=2)
    >>> history([3.0]).tolist(), history.applied([0.5]), history([4.0]).tolist()
    ([3.0, 3.0, 0.0], None, [4.0, 3.0, 0.5])
    """

    def __init__(self, observed: int, controls: int, length: int, rest: Any = None) -> None:
        self.length = length
        self._seen: Float[np.ndarray, "h n"] | None = None
        self._rest = np.zeros(controls, np.float32) if rest is None else np.asarray(rest, np.float32)
        self._used = np.tile(self._rest, (length - 1, 1))
        self._observed = observed

    def __call__(self, observation: Any) -> np.ndarray:
        """z after a new observation [n]."""
        new = np.asarray(observation, np.float32)
        require(new.shape == (self._observed,), f"observation: has shape {new.shape}, expected [{self._observed}]")
        past = np.tile(new, (self.length, 1)) if self._seen is None else self._seen[:-1]
        self._seen = past if self._seen is None else np.concatenate([new[None], past])
        return np.concatenate([self._seen.ravel(), self._used.ravel()])

    def applied(self, control: Any) -> None:
        """Records the control [k] that is applied until the next observation."""
        self._used = np.concatenate([np.asarray(control, np.float32)[None], self._used])[: self.length - 1]

"""Policies that decide at sampling instants and hold their control in between, such as model predictive control.

symbol     here                 meaning
---------  -------------------  ------------------------------------------------------------------------
p          HeldPolicy.period    time between two decisions
c_k        memory               what decision k leaves for the next one, such as a plan to begin its search from
u_k        decide(...)          the control that is held from k·p to (k+1)·p

    c_0 = begin(key),   (u_k, c_{k+1}) = decide(c_k, x(k·p), k·p)

A policy that is a function of state and time is evaluated wherever the simulation needs it, several times per step. A
decision that is an optimization would be too slow for that, and a plan that the next one begins from is not a function of
the state.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.systems.integration import runge_kutta_step

ROUNDING = 1e-2
"""A time that is this share of a step before a node of the simulation counts as the node: times have single precision."""


@runtime_checkable
class HeldPolicy(Protocol):
    """A policy that decides at multiples of its period; a pytree whose period is static."""

    @property
    def period(self) -> float:
        """p, in seconds."""
        ...

    def begin(self, key: Array) -> Any:
        """The memory at the beginning of an episode, a pytree of arrays."""
        ...

    def decide(self, memory: Any, x: Array, t: Any) -> tuple[Array, Any]:
        """The control [k] from time t on, at state x [d], and the next memory."""
        ...

    def __call__(self, x: Array, t: Any = 0.0) -> Array:
        """The decision [k] without memory, as at the beginning of an episode."""
        ...


def held_path(
    system: Any,
    policy: HeldPolicy,
    keys: tuple[Array, Array, Array],
    times: Array,
    end: float,
    diffusion: float,
    max_step: float,
) -> tuple[Array, Array]:
    """States [n, d] at `times` [n] of an episode under a policy whose control is held, and controls [n, k].

    The path is computed on a grid that contains the decisions; a state between two nodes follows from the one before it.
    With noise it has the right law given both nodes, and two states between the same nodes are independent given them.

    Main arguments:
        system: a `purectrl.systems.closed_loop.SimulatedSystem`.
        keys: JAX keys for the initial state, for the policy and for the process noise.
        end: the last time.
        diffusion: g, the process noise in every direction of the state.
        max_step: longest step of the simulation.
    """
    start_key, policy_key, path_key = keys
    ticks = max(1, int(np.ceil(end / policy.period - 1e-6)))
    substeps = max(1, int(np.ceil(policy.period / max_step - 1e-6)))
    h = policy.period / substeps
    node_key, between_key = jax.random.split(path_key)
    kicks = np.sqrt(h) * diffusion * jax.random.normal(node_key, (ticks, substeps, system.state_dim))

    def flow(x: Array, u: Array, h: Any) -> Array:
        return runge_kutta_step(lambda x, t: system.drift(x, u), x, 0.0, h)

    def tick(carry: tuple[Array, Any], inputs: tuple[Array, Array]) -> tuple[tuple[Array, Any], tuple[Array, Array]]:
        x, memory = carry
        number, kick = inputs
        u, memory = policy.decide(memory, x, number * policy.period)
        x, nodes = jax.lax.scan(lambda x, kick: (flow(x, u, h) + kick, x), x, kick)
        return (x, memory), (nodes, u)

    begin = system.sample_initial_state(start_key), policy.begin(policy_key)
    _, (nodes, u) = jax.lax.scan(tick, begin, (jnp.arange(ticks, dtype=jnp.float32), kicks))
    place = jnp.clip(jnp.asarray(times / h + ROUNDING, jnp.int32), 0, ticks * substeps - 1)
    rest = jnp.clip(times - place * h, 0.0, h)[:, None]
    x, held = nodes.reshape(-1, system.state_dim)[place], u[place // substeps]
    found = jax.vmap(flow)(x, held, rest)
    if diffusion:  # a Brownian bridge between the two nodes
        bridge = diffusion * jnp.sqrt(rest * (h - rest) / h) * jax.random.normal(between_key, x.shape)
        found = found + rest / h * kicks.reshape(-1, system.state_dim)[place] + bridge
    return found, held


_begin: Callable[..., Any] = jax.jit(
    lambda policy, key, rows: jax.vmap(lambda number: policy.begin(jax.random.fold_in(key, number)))(rows)
)
_decide: Callable[..., Any] = jax.jit(lambda policy, memory, x, t: jax.vmap(policy.decide, (0, 0, None))(memory, x, t))


class HeldControl:
    """(x [..., d], t) -> u [..., k]: a `HeldPolicy` outside of a simulation, called with increasing times.

    It decides at the first call of each period and returns the same control until the next one. A call at time zero, at an
    earlier time than the last one or with another number of states begins a new episode.

    Main arguments:
        policy: the policy.
        key: a JAX key.
    """

    def __init__(self, policy: HeldPolicy, key: Array) -> None:
        self.policy, self._key = policy, key
        self._t, self._tick, self._rows = -1.0, -1, -1
        self._memory: Any = None
        self._u = np.zeros(0, np.float32)

    def __call__(self, x: Any, t: Any = 0.0) -> np.ndarray:
        """The control at state x and time t."""
        x, t = np.asarray(x, np.float32), float(t)
        states = x.reshape(-1, x.shape[-1])
        if t <= 0 or t < self._t or len(states) != self._rows:
            self._memory = _begin(self.policy, self._key, np.arange(len(states)))
            self._tick, self._rows = -1, len(states)
        tick, self._t = int(t / self.policy.period + ROUNDING), t
        if tick != self._tick:
            u, self._memory = _decide(self.policy, self._memory, states, np.float32(t))
            self._tick, self._u = tick, np.asarray(u)
        return self._u.reshape(*x.shape[:-1], -1)

"""The optimistic argmax over (π, q, f, b) where the classes are continuous: joint gradient ascent through the simulator.

Policy, initial distribution, drift and reward move together (Algorithm 1, line 3) from several starts at once, on common
random numbers, and after each step the models are pulled back into their confidence sets. What comes out is judged on fresh
paths, so the reported value is not that of a lucky draw; its Monte-Carlo error stands beside it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from purectrl.core.keys import Key
from purectrl.core.problem import Array, Plan, System
from purectrl.systems.simulation import euler_maruyama
from purectrl.theory.linear import LinearClass, Region, decode, retract


class Variables(NamedTuple):
    """What moves: parameters of π and q, and coordinates of f and b in their confidence sets."""

    policy: Any
    initial: Any
    drift: Array
    reward: Array


class Optimum(NamedTuple):
    """The best point found."""

    plan: Plan
    drift: np.ndarray
    """Θ of f_n [p, d]."""
    reward: np.ndarray
    """θ of b_n [p, 1]."""
    value: float
    """R(π_n, q_n, f_n, b_n) on fresh paths."""
    error: float
    """Its standard error."""


Drift = Callable[[Array, Array], Array]


def value_on_paths(
    system: System,
    policy: Callable[[Array], Array],
    initial: Callable[[Array], Array],
    drift: Drift,
    reward: Drift,
    keys: Array,
    steps: int,
) -> Array:
    """The reward of one episode on each of the given keys [paths, 2]: [paths]."""
    times = jnp.linspace(0.0, system.horizon, steps + 1)

    def episode(key: Array) -> Array:
        path = euler_maruyama(key[1], drift, system.diffusion, policy, initial(key[0]), times)[:-1]
        return jax.vmap(lambda x: reward(x, policy(x)))(path).mean() * system.horizon

    return jax.vmap(episode)(keys)


class Ascent:
    """Joint gradient ascent over Π × Q × F_n × R_n.

    Main arguments:
        system: only its diffusion and T are used.
        policies, initials: classes with `start(key) -> parameters` and `apply(parameters, ...)`.
        drifts, rewards: linear classes.

    Other arguments:
        steps: Euler-Maruyama steps over [0, T].
        paths: simulated paths in the ascent; eight times as many judge the result.
        starts: points that the ascent starts from.
        iterations, rate: Adam's.
    """

    def __init__(
        self,
        system: System,
        policies: Any,
        initials: Any,
        drifts: LinearClass,
        rewards: LinearClass,
        steps: int = 40,
        paths: int = 64,
        starts: int = 8,
        iterations: int = 150,
        rate: float = 0.05,
    ) -> None:
        self.policies, self.initials, self.starts = policies, initials, starts
        optimiser = optax.adam(optax.cosine_decay_schedule(rate, iterations, alpha=0.1))

        def values(variables: Variables, drift: Region, reward: Region, keys: Array) -> Array:
            theta, weights = decode(drift, variables.drift), decode(reward, variables.reward)
            return value_on_paths(
                system,
                lambda x: policies.apply(variables.policy, x),
                lambda key: initials.apply(variables.initial, key),
                lambda x, u: drifts.apply(theta, x, u),
                lambda x, u: rewards.apply(weights, x, u),
                keys,
                steps,
            )

        def climb(start: Variables, drift: Region, reward: Region, keys: Array) -> Variables:
            slope = jax.grad(lambda variables: -values(variables, drift, reward, keys).mean())

            def step(carry: tuple[Variables, Any], _: None) -> tuple[tuple[Variables, Any], None]:
                variables, memory = carry
                # a costate that explodes on one path must not throw the whole start away
                gradient = jax.tree.map(lambda leaf: jnp.nan_to_num(leaf, posinf=0.0, neginf=0.0), slope(variables))
                change, memory = optimiser.update(gradient, memory)
                moved = optax.apply_updates(variables, change)
                moved = moved._replace(drift=retract(drift, moved.drift), reward=retract(reward, moved.reward))
                return (moved, memory), None

            (end, _), _ = jax.lax.scan(step, (start, optimiser.init(start)), length=iterations)
            return end

        @jax.jit
        def search(words: Array, begin: Variables, drift: Region, reward: Region) -> tuple[Any, ...]:
            climbing, judging = jax.random.split(jax.random.wrap_key_data(words))
            ends = jax.vmap(climb, (0, None, None, None))(begin, drift, reward, jax.random.split(climbing, (paths, 2)))
            judged = jax.vmap(values, (0, None, None, None))(
                ends, drift, reward, jax.random.split(judging, (8 * paths, 2))
            )
            means = jnp.where(jnp.isfinite(judged).all(axis=1), judged.mean(axis=1), -jnp.inf)
            best = jnp.argmax(means)
            found = jax.tree.map(lambda leaf: leaf[best], ends)
            error = judged[best].std() / np.sqrt(8 * paths - 1)
            return found, decode(drift, found.drift), decode(reward, found.reward), means[best], error

        self._search = search

    def __call__(self, key: Key, drift: Region, reward: Region, previous: Variables) -> tuple[Optimum, Variables]:
        """The optimistic point in the two sets, climbing from `previous` and from random starts."""
        begin_key, search_key, _, _ = key.split("ascent")
        previous = previous._replace(drift=retract(drift, previous.drift), reward=retract(reward, previous.reward))
        begins = [previous] + [self.random(begin_key.child(i), drift, reward) for i in range(self.starts - 1)]
        begin = jax.tree.map(lambda *leaves: jnp.stack(leaves), *begins)
        found, theta, weights, value, error = self._search(search_key.words(), begin, drift, reward)
        found = jax.tree.map(np.asarray, found)
        plan = Plan(found.policy, found.initial)
        return Optimum(plan, np.asarray(theta), np.asarray(weights), float(value), float(error)), found

    def random(self, key: Key, drift: Region, reward: Region) -> Variables:
        """A random plan with random models or, half of the time, with those that fit best."""
        draws = key.generator()
        size = draws.integers(2)
        return Variables(
            self.policies.start(key.child("policy")),
            self.initials.start(key.child("initial")),
            retract(drift, jnp.asarray(size * draws.normal(size=drift.center.shape), jnp.float32)),
            retract(reward, jnp.asarray(size * draws.normal(size=reward.center.shape), jnp.float32)),
        )

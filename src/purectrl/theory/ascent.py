"""The optimistic argmax over (π, q, f, b) where the classes are continuous: joint gradient ascent through the simulator.

Policy, initial distribution, drift and reward move together (Algorithm 1, line 3) from several starts at once, on common
random numbers. Models stay in their confidence sets in two ways: a linear class has coordinates in which the set is all of
space; for a neural one a multiplier grows while the constraint L(f) ≤ min L + β is violated (primal-dual), and what is left
is settled at the end. A finite Π or Q is enumerated: every member is the start of an ascent of its own. What comes out is
judged on fresh paths, so the reported value is not that of a lucky draw; its Monte-Carlo error stands beside it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from purectrl.core.errors import InputError
from purectrl.core.keys import Key
from purectrl.core.problem import Array, Plan, System
from purectrl.systems.simulation import euler_maruyama
from purectrl.theory.classes import FiniteClass, ModelClass


class Variables(NamedTuple):
    """What moves: parameters of π and q, and coordinates of f and b in their confidence sets."""

    policy: Any
    initial: Any
    drift: Any
    reward: Any


class Optimum(NamedTuple):
    """The best point found."""

    plan: Plan
    drift: Any
    """The parameter of f_n."""
    reward: Any
    """The parameter of b_n."""
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
        policies, initials: finite classes, or classes with `start(key) -> parameters` and `apply(parameters, ...)`.
        drifts, rewards: linear or neural classes.

    Other arguments:
        steps: Euler-Maruyama steps over [0, T].
        paths: simulated paths in the ascent; eight times as many judge the result.
        starts: points that the ascent starts from; at least one for each member of a finite Π × Q.
        iterations, rate: Adam's.
        pressure: how fast the multiplier of a violated constraint grows, per step and radius.
    """

    def __init__(
        self,
        system: System,
        policies: Any,
        initials: Any,
        drifts: ModelClass,
        rewards: ModelClass,
        steps: int = 40,
        paths: int = 64,
        starts: int = 8,
        iterations: int = 150,
        rate: float = 0.05,
        pressure: float = 0.1,
    ) -> None:
        self.policies, self.initials, self.drifts, self.rewards = policies, initials, drifts, rewards
        self.system, self.steps, self.paths, self.iterations, self.pressure = system, steps, paths, iterations, pressure
        self.members = [range(c.size) if isinstance(c, FiniteClass) else None for c in (policies, initials)]
        pairs = np.prod([len(found) for found in self.members if found is not None], dtype=int)
        self.starts = max(starts, int(pairs))
        self.optimiser = optax.adam(optax.cosine_decay_schedule(rate, iterations, alpha=0.1))
        self._search = jax.jit(self._searched)

    def _values(self, variables: Variables, drift: Any, reward: Any, keys: Array) -> Array:
        """The reward of one episode on each of the given keys [paths, 2]: [paths]."""
        theta, weights = self.drifts.decode(drift, variables.drift), self.rewards.decode(reward, variables.reward)
        return value_on_paths(
            self.system,
            lambda x: self.policies.apply(variables.policy, x),
            lambda key: self.initials.apply(variables.initial, key),
            lambda x, u: self.drifts.apply(theta, x, u),
            lambda x, u: self.rewards.apply(weights, x, u),
            keys,
            self.steps,
        )

    def _climb(self, start: Variables, drift: Any, reward: Any, keys: Array) -> Variables:
        """Where the ascent from `start` ends."""
        moving, fixed = eqx.partition(start, eqx.is_inexact_array)  # an index into a finite class does not move

        def lagrangian(moving: Variables, multipliers: Array) -> tuple[Array, Array]:
            variables = eqx.combine(moving, fixed)
            outside = self.drifts.violation(drift, variables.drift), self.rewards.violation(reward, variables.reward)
            value = self._values(variables, drift, reward, keys).mean()
            return jnp.sum(multipliers * jnp.stack(outside)) - value, jnp.stack(outside)

        def step(carry: tuple[Variables, Any, Array], _: None) -> tuple[tuple[Variables, Any, Array], None]:
            moving, memory, multipliers = carry
            slope, outside = jax.grad(lagrangian, has_aux=True)(moving, multipliers)
            # a costate that explodes on one path must not throw the whole start away
            slope = jax.tree.map(lambda leaf: jnp.nan_to_num(leaf, posinf=0.0, neginf=0.0), slope)
            change, memory = self.optimiser.update(slope, memory)
            moving = optax.apply_updates(moving, change)
            return (moving, memory, jnp.maximum(0.0, multipliers + self.pressure * outside)), None

        begin = moving, self.optimiser.init(moving), jnp.zeros(2)
        (moving, _, _), _ = jax.lax.scan(step, begin, length=self.iterations)
        end = eqx.combine(moving, fixed)
        return end._replace(drift=self.drifts.settle(drift, end.drift), reward=self.rewards.settle(reward, end.reward))

    def _searched(self, words: Array, begin: Variables, drift: Any, reward: Any) -> tuple[Any, ...]:
        """The best end of all starts, judged on fresh paths."""
        climbing, judging = (
            jax.random.split(key, (paths, 2))
            for key, paths in zip(
                jax.random.split(jax.random.wrap_key_data(words)), (self.paths, 8 * self.paths), strict=True
            )
        )
        each = (0, None, None, None)
        ends = jax.vmap(self._climb, each)(begin, drift, reward, climbing)
        judged = jax.vmap(self._values, each)(ends, drift, reward, judging)
        means = jnp.where(jnp.isfinite(judged).all(axis=1), judged.mean(axis=1), -jnp.inf)
        best = jnp.argmax(means)
        found = jax.tree.map(lambda leaf: leaf[best], ends)
        error = judged[best].std() / np.sqrt(8 * self.paths - 1)
        models = self.drifts.decode(drift, found.drift), self.rewards.decode(reward, found.reward)
        return found, *models, means[best], error

    def __call__(self, key: Key, drift: Any, reward: Any, previous: Variables) -> tuple[Optimum, Variables]:
        """The optimistic point in the two sets, climbing from `previous` and from random starts."""
        begin_key, search_key, _, _ = key.split("ascent")
        begins = [previous] + [self.random(begin_key.child(i), drift, reward) for i in range(self.starts - 1)]
        begins = [self._member(i, begin) for i, begin in enumerate(begins)]
        begin = jax.tree.map(lambda *leaves: np.stack(leaves), *begins)
        found, theta, weights, value, error = self._search(search_key.words(), begin, drift, reward)
        if not np.isfinite(value):
            raise InputError(
                "planning: every start of the optimistic ascent leaves the finite numbers; bound the functions of the "
                "classes, take more simulation steps or a shorter horizon"
            )
        found, theta, weights = jax.tree.map(np.asarray, (found, theta, weights))
        return Optimum(Plan(found.policy, found.initial), theta, weights, float(value), float(error)), found

    def random(self, key: Key, drift: Any, reward: Any) -> Variables:
        """A random plan with random models or, half of the time, with those that fit best."""
        return Variables(
            *(
                np.int32(key.child(name).generator().integers(len(found))) if found else c.start(key.child(name))
                for name, found, c in zip(
                    ("policy", "initial"), self.members, (self.policies, self.initials), strict=True
                )
            ),
            self.drifts.random(drift, key.child("drift")),
            self.rewards.random(reward, key.child("reward")),
        )

    def _member(self, i: int, begin: Variables) -> Variables:
        """The i-th start: the members of finite classes in turn, so that none is left out."""
        policies, initials = self.members
        if policies is not None:
            begin = begin._replace(policy=np.int32(i % len(policies)))
        if initials is not None:
            begin = begin._replace(initial=np.int32(i // (len(policies) if policies else 1) % len(initials)))
        return begin

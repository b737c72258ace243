"""The optimistic argmax over (π, q, f, b) where the classes are continuous: joint gradient ascent through the simulator.

Policy, initial distribution, drift and reward move together (Algorithm 1, line 3) from several starting points at once, on
common random numbers. Models stay in their confidence sets in two ways: a linear class has coordinates in which the set is
all of space; for a neural one a multiplier grows while the constraint L(f) ≤ min L + β is violated (primal-dual), and the
result is projected onto the set. A finite Π or Q is enumerated: every member is the starting point of one ascent. The
results are compared on new paths, so the reported value is not that of a fortunate draw; its standard error is reported.

The problem is not concave, and the distance to the true maximum is unknown. It is estimated: for the largest of several
independent values v_1 ≥ v_2 ≥ … below an unknown end, Robson and Whitlock (1964) estimate the end by v_1 + (v_1 − v_2). The
values are compared on common random numbers, so v_1 − v_2, the `search_error`, has little noise. It knows nothing of maxima
that no starting point reaches; `larger` makes the planner with which audits look for them.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from purectrl.core.errors import InputError
from purectrl.core.keys import Key
from purectrl.core.system import System
from purectrl.systems.simulation import Controller, Initial, Solver, euler_maruyama
from purectrl.theory.classes import FiniteClass, ModelClass
from purectrl.theory.policy_classes import ParametricClass

Exploration = Literal["optimism", "greedy", "thompson"]


class Variables(NamedTuple):
    """The variables of the ascent: parameters of π and q, and coordinates of f and b in their confidence sets."""

    policy: Any
    initial: Any
    drift: Any
    reward: Any


class Optimum(NamedTuple):
    """The models and the value at the best point found."""

    drift: Any
    """The parameter of f_n."""
    reward: Any
    """The parameter of b_n."""
    value: float
    """R(π_n, q_n, f_n, b_n) on new paths."""
    error: float
    """Its standard error."""
    search_error: float
    """The estimated distance to the largest value of all: how much the best starting point gained on the second best;
    infinite if there is only one."""


def value_on_paths(
    system: System,
    policy: Controller,
    initial: Initial,
    drift: Callable[[Array, Array], Array],
    reward: Callable[[Array, Array], Array],
    keys: Array,
    steps: int,
    solver: Solver = euler_maruyama,
) -> Array:
    """The reward of one episode on each of the given keys [paths, 2]: [paths]."""
    times = jnp.linspace(0.0, system.horizon, steps + 1)

    def episode(key: Array) -> Array:
        path = solver(key[1], drift, system.diffusion, policy, initial(key[0]), times)[:-1]
        return jax.vmap(lambda x, t: reward(x, policy(x, t)))(path, times[:-1]).mean() * system.horizon

    return jax.vmap(episode)(keys)


class GradientPlanner:
    """Joint gradient ascent over Π × Q × F_n × R_n.

    Main arguments:
        system: only its diffusion and T are used.
        policies, initials: finite classes, or classes with `init(key) -> parameters` and `apply(parameters, ...)`.
        drifts, rewards: linear or neural classes.

    Other arguments:
        steps: Euler-Maruyama steps over [0, T].
        paths: simulated paths in the ascent; the results are compared on eight times as many.
        num_restarts: starting points of the ascent; at least one per member of a finite Π × Q.
        iterations, learning_rate: those of Adam.
        dual_learning_rate: growth of the multiplier of a violated constraint, per step and radius.
        exploration: optimism moves the models with the plan; greedy plans with the best fits, thompson with random members
            of the sets.
    """

    def __init__(
        self,
        system: System,
        policies: FiniteClass | ParametricClass,
        initials: FiniteClass | ParametricClass,
        drifts: ModelClass,
        rewards: ModelClass,
        steps: int = 40,
        paths: int = 64,
        num_restarts: int = 8,
        iterations: int = 150,
        learning_rate: float = 0.05,
        dual_learning_rate: float = 0.1,
        exploration: Exploration = "optimism",
    ) -> None:
        self.policies, self.initials, self.drifts, self.rewards = policies, initials, drifts, rewards
        self.system, self.steps, self.paths = system, steps, paths
        self.iterations, self.dual_learning_rate = iterations, dual_learning_rate
        pairs = math.prod(c.size for c in (policies, initials) if isinstance(c, FiniteClass))
        self.num_restarts = max(num_restarts, pairs)
        self.optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, iterations, alpha=0.1))
        self._search = jax.jit(self._best_ascent)
        self._gain = jax.jit(self._differences)
        self.exploration: Exploration = exploration
        self._budget, self._rates = (num_restarts, iterations), (learning_rate, dual_learning_rate)

    def larger(self, factor: int) -> "GradientPlanner":
        """The same planner with `factor` times as many starting points and steps."""
        return GradientPlanner(
            self.system,
            self.policies,
            self.initials,
            self.drifts,
            self.rewards,
            self.steps,
            self.paths,
            factor * self._budget[0],
            factor * self._budget[1],
            *self._rates,
            exploration=self.exploration,
        )

    def gain(self, key: Key, drift: Any, reward: Any, better: Variables, than: Variables) -> tuple[float, float]:
        """R of one point of the sets minus R of another on common random numbers, and its standard error."""
        mean, error = self._gain(key.jax_key_data(), drift, reward, better, than)
        return float(mean), float(error)

    def _differences(
        self, words: Array, drift: Any, reward: Any, one: Variables, other: Variables
    ) -> tuple[Array, Array]:
        keys = jax.random.split(jax.random.wrap_key_data(words), (8 * self.paths, 2))
        found = self._values(one, drift, reward, keys) - self._values(other, drift, reward, keys)
        return found.mean(), found.std() / np.sqrt(len(found) - 1)

    def _values(self, variables: Variables, drift: Any, reward: Any, keys: Array) -> Array:
        """The reward of one episode on each of the given keys [paths, 2]: [paths]."""
        theta, weights = self.drifts.decode(drift, variables.drift), self.rewards.decode(reward, variables.reward)
        return value_on_paths(
            self.system,
            lambda x, t: self.policies.apply(variables.policy, x),
            lambda key: self.initials.apply(variables.initial, key),
            lambda x, u: self.drifts.apply(theta, x, u),
            lambda x, u: self.rewards.apply(weights, x, u),
            keys,
            self.steps,
        )

    def _ascend(self, start: Variables, drift: Any, reward: Any, keys: Array) -> Variables:
        """The result of the ascent from `start`."""
        moves = jax.tree.map(eqx.is_inexact_array, start)  # an index into a finite class does not move
        optimistic = self.exploration == "optimism"
        if not optimistic:
            still = (jax.tree.map(lambda _: False, part) for part in (moves.drift, moves.reward))
            moves = Variables(moves.policy, moves.initial, *still)
        moving, fixed = eqx.partition(start, moves)

        def lagrangian(moving: Variables, multipliers: Array) -> tuple[Array, Array]:
            variables = eqx.combine(moving, fixed)
            violated = self.drifts.violation, self.rewards.violation
            outside = violated[0](drift, variables.drift), violated[1](reward, variables.reward)
            if not optimistic:  # the models are inside and do not move
                outside = jnp.float32(0.0), jnp.float32(0.0)
            value = self._values(variables, drift, reward, keys).mean()
            return jnp.sum(multipliers * jnp.stack(outside)) - value, jnp.stack(outside)

        def step(carry: tuple[Any, Any, Array], _: None) -> tuple[tuple[Any, Any, Array], None]:
            moving, memory, multipliers = carry
            slope, outside = jax.grad(lagrangian, has_aux=True)(moving, multipliers)
            # an infinite gradient on one path must not discard this starting point
            slope = jax.tree.map(lambda leaf: jnp.nan_to_num(leaf, posinf=0.0, neginf=0.0), slope)
            change, memory = self.optimizer.update(slope, memory)
            moving = optax.apply_updates(moving, change)
            return (moving, memory, jnp.maximum(0.0, multipliers + self.dual_learning_rate * outside)), None

        begin = moving, self.optimizer.init(moving), jnp.zeros(2)
        (moving, _, _), _ = jax.lax.scan(step, begin, length=self.iterations)
        end = eqx.combine(moving, fixed)
        return end._replace(
            drift=self.drifts.project(drift, end.drift), reward=self.rewards.project(reward, end.reward)
        )

    def _best_ascent(self, words: Array, begin: Variables, drift: Any, reward: Any) -> tuple[Any, ...]:
        """The best result of all starting points, compared on new paths; its value is that of other new paths, since the
        largest of several estimates is too large."""
        key = jax.random.wrap_key_data(words)
        ascent_keys, value_keys = (
            jax.random.split(key, (paths, 2))
            for key, paths in zip(jax.random.split(key), (self.paths, 8 * self.paths), strict=True)
        )
        reported_keys = jax.random.split(jax.random.fold_in(key, 2), (8 * self.paths, 2))
        each = (0, None, None, None)
        ends = jax.vmap(self._ascend, each)(begin, drift, reward, ascent_keys)
        values = jax.vmap(self._values, each)(ends, drift, reward, value_keys)
        means = jnp.where(jnp.isfinite(values).all(axis=1), values.mean(axis=1), -jnp.inf)
        best = jnp.argmax(means)
        found = jax.tree.map(lambda leaf: leaf[best], ends)
        reported = self._values(found, drift, reward, reported_keys)
        error = reported.std() / np.sqrt(8 * self.paths - 1)
        models = self.drifts.decode(drift, found.drift), self.rewards.decode(reward, found.reward)
        value = jnp.where(jnp.isfinite(means[best]), reported.mean(), -jnp.inf)
        second = jnp.max(jnp.where(jnp.arange(len(means)) == best, -jnp.inf, means))
        return found, *models, value, error, means[best] - second

    def __call__(self, key: Key, drift: Any, reward: Any, previous: Variables) -> tuple[Optimum, Variables]:
        """The optimistic point in the two sets, by ascent from `previous` and from random points."""
        begin_key, search_key, _, _ = key.split("ascent")
        begins = [previous] + [self.sample(begin_key.child(i), drift, reward) for i in range(self.num_restarts - 1)]
        begins = [self._enumerate_finite(i, begin) for i, begin in enumerate(begins)]
        if self.exploration != "optimism":
            models = self._models(key.child("models"), drift, reward)
            begins = [Variables(begin.policy, begin.initial, *models) for begin in begins]
        begin = jax.tree.map(lambda *leaves: np.stack(leaves), *begins)
        found, theta, weights, value, error, search_error = self._search(
            search_key.jax_key_data(), begin, drift, reward
        )
        if not np.isfinite(value):
            raise InputError(
                "planning: every optimistic ascent leaves the finite numbers; bound the functions of the classes, use more "
                "simulation steps or a shorter horizon"
            )
        found, theta, weights = jax.tree.map(np.asarray, (found, theta, weights))
        return Optimum(theta, weights, float(value), float(error), float(search_error)), found

    def _models(self, key: Key, drift: Any, reward: Any) -> tuple[Any, Any]:
        """The models that a plan without optimism is made for."""
        if self.exploration == "greedy":
            return self.drifts.middle(drift), self.rewards.middle(reward)
        return self.drifts.draw(drift, key.child("drift")), self.rewards.draw(reward, key.child("reward"))

    def sample(self, key: Key, drift: Any, reward: Any) -> Variables:
        """A random plan with random models or, half of the time, with those that fit best."""
        return Variables(
            _sample_parameter(self.policies, key.child("policy")),
            _sample_parameter(self.initials, key.child("initial")),
            self.drifts.sample(drift, key.child("drift")),
            self.rewards.sample(reward, key.child("reward")),
        )

    def _enumerate_finite(self, i: int, begin: Variables) -> Variables:
        """The i-th starting point: the members of finite classes in turn, so that none is omitted."""
        if isinstance(self.policies, FiniteClass):
            begin = begin._replace(policy=np.int32(i % self.policies.size))
        if isinstance(self.initials, FiniteClass):
            policies = self.policies.size if isinstance(self.policies, FiniteClass) else 1
            begin = begin._replace(initial=np.int32(i // policies % self.initials.size))
        return begin


def _sample_parameter(members: FiniteClass | ParametricClass, key: Key) -> Any:
    """The parameter of a random member."""
    if isinstance(members, FiniteClass):
        return np.int32(key.generator().integers(members.size))
    return members.init(key)

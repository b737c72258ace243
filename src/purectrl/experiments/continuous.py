"""Experiments with continuous classes: `lqr` with linear ones, and `neural`, the pendulum's drift with networks.

The learner plans over a continuous class of policies. The gap is measured against the best of them for the true system,
found by plain gradient ascent on the truth, which has no confidence set in it.
"""

import itertools
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from purectrl.core.keys import Key
from purectrl.core.learner import Record, State
from purectrl.core.ledger import Budget
from purectrl.core.loop import Loop
from purectrl.core.oracle import Oracle
from purectrl.core.problem import Array, Measuring, Plan, System
from purectrl.experiments.config import (
    LqrConfig,
    NeuralConfig,
    TheoryConfig,
    make_output,
    make_sampler,
    make_schedule,
)
from purectrl.experiments.registry import Task
from purectrl.experiments.theory import AHEAD, fresh, noise, radii, regret
from purectrl.systems import lqr as lqr_system
from purectrl.systems.mechanism import log_closeness
from purectrl.systems.pendulum import CONTROL_COST, VELOCITY_COST, pendulum, tip
from purectrl.systems.simulation import simulated
from purectrl.theory.ascent import Ascent, value_on_paths
from purectrl.theory.ascent_learner import AscentLearner
from purectrl.theory.linear import LinearClass
from purectrl.theory.neural import NeuralClass
from purectrl.theory.plans import GaussianInitials, LinearPolicies, MlpPolicies

TRUTH_PATHS = 4096
"""Paths behind the values by which plans are judged."""


class Climb(NamedTuple):
    """How the true optimum is searched for: starts, Adam's steps and step size, paths."""

    starts: int = 4
    steps: int = 200
    rate: float = 0.1
    paths: int = 1024


def lqr(config: LqrConfig) -> Task:
    """Drift linear in (x, u), reward linear in bumps around a grid of goals, both within a ball; clipped linear policies."""
    d, N = config.dimension, config.measurements
    system = lqr_system.lqr(d, config.diffusion, config.horizon)
    A, B = (np.asarray(matrix) for matrix in lqr_system.truth(d))
    goals = np.array([*itertools.product((0.5, -0.5), repeat=d), (0.0,) * d], np.float32)
    truth = np.concatenate([A.T, B.T]), np.eye(len(goals))[:, :1]
    drifts = LinearClass(
        lambda x, u: jnp.concatenate([x, u]), bound=1.25 * np.linalg.norm(truth[0]), outputs=d, feature_bound=3 * d
    )
    rewards = LinearClass(
        lambda x, u: jax.vmap(lqr_system.reward, (0, None, None))(goals, x, u), 1.0, feature_bound=math.sqrt(len(goals))
    )
    ascent = Ascent(
        system,
        LinearPolicies(d, d),
        GaussianInitials(d, limit=0.0),
        drifts,
        rewards,
        config.steps,
        config.paths // 4,
        config.starts,
        config.iterations,
    )
    covers = drifts.log_cover(drifts.size(d, d), N**-2.0), rewards.log_cover(rewards.size(d, d), N**-2.0)
    return task(config, system, ascent, radii(config, d, *covers), truth, AHEAD, Climb())


class Network(eqx.Module):
    """The drift of a pendulum through two hidden layers; it sees cos and sin of the angle, and is softly bounded."""

    layers: eqx.nn.MLP
    limit: float = eqx.field(static=True)

    def __init__(self, key: Array, width: int, limit: float) -> None:
        self.layers = eqx.nn.MLP(4, 2, width, 2, jnp.tanh, key=key)
        self.limit = limit

    def __call__(self, x: Array, u: Array) -> Array:
        """dx/dt [2] in state (θ, θ̇) under torque u [1]."""
        seen = jnp.concatenate([jnp.cos(x[:1]), jnp.sin(x[:1]), x[1:] / 5, u / 5])
        return self.limit * jnp.tanh(self.layers(seen))


def neural(config: NeuralConfig) -> Task:
    """The pendulum, lifted from where it hangs by a torque just strong enough; its drift is a network, its reward linear in
    bumps around the four corners of its circle, the policy a network."""
    N, swing = config.measurements, pendulum()
    corners = (0.0, 1.0), (1.0, 0.0), (-1.0, 0.0), (0.0, -1.0)
    bumps = [log_closeness(tip, corner, VELOCITY_COST, CONTROL_COST) for corner in corners]
    system = swing.system(config.horizon, config.diffusion)
    drifts = NeuralClass(
        lambda key: Network(key, config.width, 30.0),
        outputs=2,
        rate=config.rate,
        check_steps=config.check_steps,
        update_steps=config.update_steps,
    )
    rewards = LinearClass(
        lambda x, u: jnp.exp(jnp.stack([bump(x, u) for bump in bumps])), bound=1.25, feature_bound=2.0
    )
    ascent = Ascent(
        system,
        MlpPolicies(2, 1, limit=5.0, features=swing.observe),
        Hanging(),
        drifts,
        rewards,
        config.steps,
        config.paths // 8,
        config.starts,
        config.iterations,
        rate=0.01,
    )
    covers = config.drift_scale * drifts.log_cover(N**-2.0), rewards.log_cover(len(bumps), N**-2.0)
    truth = system.drift, np.eye(len(bumps))[:, :1]
    return task(config, system, ascent, radii(config, 2, *covers), truth, 1, Climb(3, 500, 0.01, 64))


class Hanging:
    """The one initial distribution of `neural`: hanging down, nearly still."""

    def start(self, key: Key) -> Array:
        """There is nothing to choose."""
        return np.zeros(0, np.float32)

    def apply(self, parameters: Array, key: Array) -> Array:
        """A draw of x(0) [2]."""
        return jnp.array([jnp.pi, 0.0]) + 0.1 * jax.random.normal(key, (2,))


def task(
    config: TheoryConfig,
    system: System,
    ascent: Ascent,
    betas: tuple[float, float],
    truth: tuple[Any, Any],
    ahead: int,
    climb: Climb,
) -> Task:
    """Algorithms 1 to 3 with continuous classes; `truth` holds f* and b* as the classes take them."""
    policies, initials = ascent.policies, ascent.initials
    learner = AscentLearner(ascent, *betas, system.state_dim, system.control_dim, noise(config))
    measuring = Measuring(config.delta_t, config.reward_std, config.drift)
    rollout = simulated(system, policies.apply, initials.apply, measuring, config.steps)
    oracle = Oracle(rollout, system.horizon, Budget(config.measurements), ahead=ahead)
    loop = Loop(oracle, make_sampler(config), make_schedule(config), learner, make_output(config))
    judge = true_value(system, policies, initials, config.steps)
    best, error, random = optimum(system, policies, initials, config.steps, judge, climb)
    last: list[Any] = [None, 0.0]

    def gap(plan: Plan) -> float:
        if plan.policy is not last[0]:  # a plan is judged once, and not at every episode it is executed in
            last[:] = plan.policy, best - float(judge(plan)[0])
        return last[1]

    def probe(state: State, record: Record) -> dict[str, Any]:
        return {"gap": gap(record.plan), "covered": learner.covers(state.learner, state.data, *truth)}

    def metrics(state: State, records: list[dict[str, Any]]) -> dict[str, Any]:
        learner.check_fit(state.learner, state.data)
        more = {"gap_output": gap(state.output.plan), "gap_random": best - random, "optimum": best}
        return regret(records) | more | {"gap_final": gap(learner.plan(state.learner)), "truth_error": error}

    def evaluate(plan: Plan, seed: int, episodes: int) -> dict[str, Any]:
        return fresh(system, policies, initials, config.steps, plan, seed, episodes) | {"gap": gap(plan)}

    return Task(loop, probe, metrics, evaluate)


def true_value(system: System, policies: Any, initials: Any, steps: int, paths: int = TRUTH_PATHS) -> Any:
    """R(π, q, f*, b*) and its standard error, as a compiled function of a plan."""
    keys = jax.random.split(jax.random.wrap_key_data(Key.from_seed(0).child("truth").words()), (paths, 2))

    @jax.jit
    def value(plan: Plan) -> tuple[Array, Array]:
        found = value_on_paths(
            system,
            lambda x: policies.apply(plan.policy, x),
            lambda key: initials.apply(plan.initial, key),
            system.drift,
            system.reward,
            keys,
            steps,
        )
        return found.mean(), found.std() / math.sqrt(paths - 1)

    return value


def optimum(
    system: System, policies: Any, initials: Any, steps: int, judge: Any, climb: Climb
) -> tuple[float, float, float]:
    """The best value of any policy on the true system, by gradient ascent from several starts, its error, and the mean value
    of the random policies that the ascent started from."""
    optimiser = optax.adam(optax.cosine_decay_schedule(climb.rate, climb.steps))
    rough = true_value(system, policies, initials, steps, climb.paths)

    def ascend(plan: Plan) -> Plan:
        def step(carry: tuple[Plan, Any], _: None) -> tuple[tuple[Plan, Any], None]:
            plan, memory = carry
            slope = jax.grad(lambda plan: -rough(plan)[0])(plan)
            change, memory = optimiser.update(jax.tree.map(jnp.nan_to_num, slope), memory)
            return (optax.apply_updates(plan, change), memory), None

        return jax.lax.scan(step, (plan, optimiser.init(plan)), length=climb.steps)[0][0]

    key = Key.from_seed(0).child("optimum")
    begins = [Plan(policies.start(key.child("p", i)), initials.start(key.child("q", i))) for i in range(climb.starts)]
    ends = jax.jit(jax.vmap(ascend))(jax.tree.map(lambda *leaves: jnp.stack(leaves), *begins))
    found = [tuple(map(float, judge(jax.tree.map(lambda leaf, i=i: leaf[i], ends)))) for i in range(climb.starts)]
    return *max(found), float(np.mean([judge(begin)[0] for begin in begins]))

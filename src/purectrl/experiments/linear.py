"""`lqr` with linear classes: drift linear in (x, u), reward linear in bumps around a grid of goals, both within a ball.

The learner plans over all clipped linear policies. The gap is measured against the best of them for the true system, found
by plain gradient ascent on the truth, which has no confidence set in it.
"""

import itertools
import math
from typing import Any

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
from purectrl.experiments.config import LqrConfig, make_output, make_sampler, make_schedule
from purectrl.experiments.registry import Task
from purectrl.experiments.theory import AHEAD, fresh, regret
from purectrl.systems import lqr as lqr_system
from purectrl.systems.simulation import simulated
from purectrl.theory.ascent import Ascent, value_on_paths
from purectrl.theory.ascent_learner import AscentLearner
from purectrl.theory.confidence import radius
from purectrl.theory.linear import LinearClass
from purectrl.theory.plans import GaussianInitials, LinearPolicies

TRUTH_PATHS = 4096
"""Paths behind the values by which plans are judged."""


def lqr(config: LqrConfig) -> Task:
    """Algorithms 1 to 3 with linear classes."""
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
    policies, initials = LinearPolicies(d, d), GaussianInitials(d, limit=0.0)

    noise = math.sqrt(d / config.delta_t) * config.diffusion  # G; see docs/deviations.md
    sizes = drifts.size(d, d), rewards.size(d, d)
    beta_drift = radius(drifts.log_cover(sizes[0], N**-2.0), N, config.delta, noise)
    beta_reward = radius(rewards.log_cover(sizes[1], N**-2.0), N, config.delta, config.reward_std)
    ascent = Ascent(
        system, policies, initials, drifts, rewards, config.steps, config.paths // 4, config.starts, config.iterations
    )
    betas = config.radius_scale * beta_drift, config.radius_scale * beta_reward
    learner = AscentLearner(ascent, *betas, d, d)
    measuring = Measuring(config.delta_t, config.reward_std, config.drift)
    oracle = Oracle(
        simulated(system, policies.apply, initials.apply, measuring, config.steps),
        system.horizon,
        Budget(N),
        ahead=AHEAD,
    )
    loop = Loop(oracle, make_sampler(config), make_schedule(config), learner, make_output(config))
    judge = true_value(system, policies, initials, config.steps)
    best, error = optimum(judge, policies, initials)
    last: list[Any] = [None, 0.0]

    def gap(plan: Plan) -> float:
        if plan.policy is not last[0]:  # a plan is judged once, and not at every episode it is executed in
            last[:] = plan.policy, best - float(judge(plan)[0])
        return last[1]

    def probe(state: State, record: Record) -> dict[str, Any]:
        return {"gap": gap(record.plan), "covered": learner.covers(state.learner, state.data, *truth)}

    def metrics(state: State, records: list[dict[str, Any]]) -> dict[str, Any]:
        return regret(records) | {"gap_output": gap(state.output.plan), "optimum": best, "truth_error": error}

    def evaluate(plan: Plan, seed: int, episodes: int) -> dict[str, Any]:
        return fresh(system, policies, initials, config.steps, plan, seed, episodes) | {"gap": gap(plan)}

    return Task(loop, probe, metrics, evaluate)


def true_value(system: System, policies: LinearPolicies, initials: GaussianInitials, steps: int) -> Any:
    """R(π, q, f*, b*) and its standard error, as a compiled function of a plan."""
    keys = jax.random.split(jax.random.wrap_key_data(Key.from_seed(0).child("truth").words()), (TRUTH_PATHS, 2))

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
        return found.mean(), found.std() / math.sqrt(TRUTH_PATHS - 1)

    return value


def optimum(judge: Any, policies: LinearPolicies, initials: GaussianInitials, starts: int = 4) -> tuple[float, float]:
    """The best value of any policy on the true system, by gradient ascent from several starts, and its error."""
    optimiser = optax.adam(optax.cosine_decay_schedule(0.1, 200))

    def climb(plan: Plan) -> Plan:
        def step(carry: tuple[Plan, Any], _: None) -> tuple[tuple[Plan, Any], None]:
            plan, memory = carry
            change, memory = optimiser.update(jax.grad(lambda plan: -judge(plan)[0])(plan), memory)
            return (optax.apply_updates(plan, change), memory), None

        return jax.lax.scan(step, (plan, optimiser.init(plan)), length=200)[0][0]

    key = Key.from_seed(0).child("optimum")
    begins = [Plan(policies.start(key.child("p", i)), initials.start(key.child("q", i))) for i in range(starts)]
    climb = jax.jit(climb)
    found = [tuple(map(float, judge(climb(begin)))) for begin in begins]
    return max(found)

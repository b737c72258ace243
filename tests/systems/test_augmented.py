"""Time as a part of the state."""

import dataclasses

import diffrax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from purectrl.core import Budget, Key, Lookahead, Loop, MeasurementModel, Oracle, Plan, System, samplers, schedules
from purectrl.systems.augmented import with_time
from purectrl.systems.simulation import simulate_rollouts
from purectrl.systems.solvers import diffrax_solver
from purectrl.systems.washboard import washboard
from purectrl.theory import Classes, FiniteClass, FiniteLearner, OptimisticPlanner, value_table

HALF = 1.0


def test_the_last_entry_of_the_state_is_the_time_and_the_others_are_as_before():
    plain, timed = washboard(), with_time(washboard())
    times = np.sort(np.random.default_rng(0).uniform(0, 2, (64, 3)), axis=1)
    push = Partial(lambda x, t: jnp.full(1, 0.5))
    one, two = (Plan(push, Partial(lambda key, d=d: jnp.zeros(d))) for d in (1, 2))
    seen = simulate_rollouts(timed, MeasurementModel(), 40)(Key(1), two, times)
    assert np.allclose(seen.x[..., 1], times, atol=1e-5)
    assert np.allclose(seen.y[..., 1], 1.0)  # dt/dt is measured without noise
    before = simulate_rollouts(plain, MeasurementModel(), 40)(Key(2), one, np.tile(times, (40, 1)))
    after = simulate_rollouts(timed, MeasurementModel(), 40)(Key(3), two, np.tile(times, (40, 1)))
    for name in "xyr":
        one, other = getattr(before, name), getattr(after, name)
        other = other if name == "r" else other[..., :1]
        assert abs(one.mean() - other.mean()) < 4 * one.std() / np.sqrt(one.size / 3)


def test_a_policy_of_time_is_learned_where_no_other_is_good():
    """First to the left, then to the right: the reward asks for it, and only policies that see t can."""

    def reward(sign, x, u):
        return jnp.exp(-4 * (x[0] - jnp.where(x[1] < HALF, -sign, sign) * 0.5) ** 2)

    def policy(parameters, x):
        first, second = parameters
        return jnp.clip(6 * (jnp.where(x[1] < HALF, first, second) - x[:1]), -1.0, 1.0)

    particle = System("particle", 1, 1, 2.0, lambda x, u: 2 * u, lambda x, u: jnp.float32(0.1), lambda x, u: 0.0)
    truth = dataclasses.replace(with_time(particle), reward=lambda x, u: reward(1.0, x, u))
    places = np.array([(a, b) for a in (-0.5, 0.5) for b in (-0.5, 0.5)], np.float32)
    classes = Classes(
        FiniteClass.family(policy, (places[:, 0], places[:, 1])),
        FiniteClass.of([lambda key: jnp.zeros(2)]),
        FiniteClass.family(lambda c, x, u: jnp.append(c * u, 1.0), np.array([-2.0, 1.0, 2.0], np.float32)),
        FiniteClass.family(reward, np.array([1.0, -1.0], np.float32)),
    )
    classes.check(truth)
    values = value_table(truth, *classes, steps=40, paths=64)(Key(0)).mean
    best = values[:, 0, 2, 0]
    assert best.argmax() == 1  # (-0.5, 0.5)
    assert best[1] > best[[0, 3]].max() + 0.3  # the same place all the time
    learner = FiniteLearner(classes, OptimisticPlanner.of(values), beta_drift=2.0, beta_reward=10.0)
    oracle, schedule = (
        Oracle(simulate_rollouts(truth, MeasurementModel(), 40), 2.0, Budget(2000)),
        schedules.OnExcessLoss(),
    )
    loop = Loop(Lookahead(oracle, schedule, learner, 64), samplers.Uniform(m=4), schedule, learner)
    *_, (state, _) = loop.run(loop.init(Key(0)))
    assert (state.learner.policy, state.learner.initial) == (1, 0)


def test_a_stratonovich_solver_takes_a_direction_without_noise():
    """Geometric Brownian motion with time beside it: E x(1) = exp(μ) holds for the Itô equation alone."""
    growth = System("growth", 1, 1, 1.0, lambda x, u: 0.25 * x, lambda x, u: 0.8 * x[0], lambda x, u: jnp.float32(0.0))
    solver = diffrax_solver(diffrax.EulerHeun(), substeps=2)
    plan = Plan(Partial(lambda x, t: jnp.zeros(1)), Partial(lambda key: jnp.array([1.0, 0.0])))
    rollout = simulate_rollouts(with_time(growth), MeasurementModel(), 20, solver=solver)
    seen = rollout(Key(0), plan, np.tile([0.5, 1.0], (20_000, 1)))
    assert np.allclose(seen.x[..., 1], [0.5, 1.0], atol=1e-5)
    end = seen.x[:, 1, 0]
    assert abs(end.mean() - np.exp(0.25)) < 4 * end.std() / np.sqrt(len(end)) + 0.005

"""Finite classes: exact losses, exact sets, exact planning."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purectrl.core import (
    Budget,
    Dataset,
    InputError,
    Key,
    Loop,
    MeasurementModel,
    Measurements,
    Oracle,
    System,
    Targets,
)
from purectrl.core.samplers import Uniform
from purectrl.core.schedules import Every, OnExcessLoss
from purectrl.systems.simulation import simulate_rollouts
from purectrl.theory.classes import Classes, FiniteClass, TrueFunction, Truth
from purectrl.theory.confidence import MisspecificationWarning, confidence_mask, radius
from purectrl.theory.finite_learner import FiniteLearner
from purectrl.theory.planning import OptimisticPlanner, value_table

DRIFT = lambda a, x, u: a * x + u  # noqa: E731
GOALS = lambda c, x, u: jnp.exp(-((x[0] - c) ** 2))  # noqa: E731
DRIFTS = FiniteClass.family(DRIFT, np.array([-1.0, 0.0, 0.5], np.float32))
REWARDS = FiniteClass.family(GOALS, np.array([-1.0, 1.0], np.float32))
POLICIES = FiniteClass.family(lambda k, x: jnp.clip(k - x, -1, 1), np.array([-1.0, 0.0, 1.0], np.float32))
INITIALS = FiniteClass.family(lambda mean, key: mean + 0.1 * jax.random.normal(key, (1,)), np.zeros((1, 1), np.float32))
CLASSES = Classes(POLICIES, INITIALS, DRIFTS, REWARDS)
SYSTEM = System(
    "linear", 1, 1, 1.0, lambda x, u: -x + u, lambda x, u: jnp.float32(0.3), lambda x, u: jnp.exp(-((x[0] - 1) ** 2))
)


def learner(beta_drift=3.0, beta_reward=2.0, values=None):
    if values is None:
        values = np.random.default_rng(0).random((3, 1, 3, 2))
    return FiniteLearner(CLASSES, OptimisticPlanner.of(values), beta_drift, beta_reward)


def some(n=50, seed=0):
    draws = np.random.default_rng(seed)
    x, u, y = (draws.normal(size=(n, 1, 1)).astype(np.float32) for _ in range(3))
    return Measurements(np.zeros((n, 1)), x, u, y, draws.normal(size=(n, 1)).astype(np.float32))


def test_a_list_of_functions_and_a_family_are_the_same_class():
    listed = FiniteClass.of([lambda x, u, a=a: DRIFT(a, x, u) for a in (-1.0, 0.0, 0.5)])
    x, u = jnp.array([0.7]), jnp.array([0.2])
    assert np.array_equal(listed.table(x, u), DRIFTS.table(x, u))
    assert all(np.array_equal(listed.apply(i, x, u), DRIFTS.apply(i, x, u)) for i in range(3))


def test_losses_are_the_papers_sums_of_squares():
    blocks = [some(7, seed) for seed in range(5)]
    made = learner()
    state = made.init(Key.from_seed(0))
    for block in blocks:
        state = made.observe(state, block)
    x, u, y = (np.concatenate([getattr(b, name)[:, 0, 0] for b in blocks]) for name in "xuy")
    r = np.concatenate([b.r[:, 0] for b in blocks])
    assert np.allclose(state.drift_loss, [((a * x + u - y) ** 2).sum() for a in (-1.0, 0.0, 0.5)], rtol=1e-5)
    assert np.allclose(state.reward_loss, [((np.exp(-((x - c) ** 2)) - r) ** 2).sum() for c in (-1.0, 1.0)], rtol=1e-5)


def test_an_update_recomputes_only_the_sets_that_are_named():
    made = learner(beta_drift=0.5, beta_reward=0.1)
    state = made.observe(made.init(Key.from_seed(0)), some())
    drift = made.update(state, None, Targets.DRIFT, Key.from_seed(0)).state
    reward = made.update(state, None, Targets.REWARD, Key.from_seed(0)).state
    assert np.array_equal(drift.drift_set, confidence_mask(state.drift_loss, 0.5))
    assert drift.reward_set.all()
    assert np.array_equal(reward.reward_set, confidence_mask(state.reward_loss, 0.1))
    assert reward.drift_set.all()


def test_the_excess_loss_is_in_units_of_the_radius():
    made = learner()
    state = made.observe(made.init(Key.from_seed(0)), some())
    (drift, reward), _ = made.excess_loss(state, None, Key.from_seed(0))
    assert drift == pytest.approx((state.drift_loss[state.drift] - state.drift_loss.min()) / 3.0)
    assert reward == pytest.approx((state.reward_loss[state.reward] - state.reward_loss.min()) / 2.0)


def test_the_optimistic_planner_agrees_with_enumeration():
    draws = np.random.default_rng(1)
    for _ in range(50):
        values = draws.random((4, 3, 5, 6))
        f_set, b_set = draws.random(5) < 0.5, draws.random(6) < 0.5
        f_set[draws.integers(5)] = b_set[draws.integers(6)] = True
        pi, q, f, b, value = OptimisticPlanner.of(values)(f_set, b_set)
        allowed = itertools.product(range(4), range(3), np.flatnonzero(f_set), np.flatnonzero(b_set))
        assert (pi, q, f, b) == max(allowed, key=lambda index: values[index])
        assert value == values[pi, q, f, b]


def test_values_match_a_closed_form():
    """dx = (−x + u) dt with u = −1 − x clipped is linear while |x + 1| ≤ 1; the reward integrates a Gaussian's moment.

    With g = 0 and x(0) = 0: x(t) = −(1 − e^(−2t))/2 for u = −1 − x, so R = ∫ exp(−(x(t) − c)²) dt by quadrature.
    """
    still = System("still", 1, 1, 1.0, SYSTEM.drift, lambda x, u: jnp.float32(0.0), SYSTEM.reward)
    origin = FiniteClass.of([lambda key: jnp.zeros(1)])
    found = value_table(still, POLICIES, origin, DRIFTS, REWARDS, steps=2000, paths=2)(Key.from_seed(0))
    t = np.linspace(0, 1, 20_001)
    x = -(1 - np.exp(-2 * t)) / 2
    expected = [np.trapezoid(np.exp(-((x - c) ** 2)), t) for c in (-1.0, 1.0)]
    assert np.allclose(found.mean[0, 0, 0], expected, atol=1e-3)
    assert found.error == pytest.approx(0.0, abs=1e-6)


def test_the_monte_carlo_error_is_what_it_says():
    draw = value_table(SYSTEM, POLICIES, INITIALS, DRIFTS, REWARDS, steps=20, paths=200)
    tables = [draw(Key.from_seed(seed)) for seed in range(30)]
    spread = np.std([table.mean for table in tables], axis=0).max()
    assert spread == pytest.approx(np.mean([table.error for table in tables]), rel=0.35)


def test_radius_is_the_formula_of_the_theorem():
    N, delta, G, size = 1000, 0.05, 0.7, 12
    epsilon = 1 / N**2
    expected = 8 * G**2 * math.log(size / delta)
    expected += 2 * epsilon * N * (8 + math.sqrt(8 * G**2 * math.log(4 * N**2 * size / delta)))
    assert radius(math.log(size), N, delta, G) == pytest.approx(expected)


def run(schedule, seed, measurements=400):
    values = value_table(SYSTEM, POLICIES, INITIALS, DRIFTS, REWARDS, 20, 100)(Key.from_seed(0))
    betas = radius(math.log(3), measurements, 0.1, 0.3 / math.sqrt(0.1)), radius(math.log(2), measurements, 0.1)
    rollout = simulate_rollouts(SYSTEM, MeasurementModel(), 20)
    loop = Loop(
        Oracle(rollout, 1.0, Budget(measurements)),
        Uniform(),
        schedule,
        FiniteLearner(CLASSES, OptimisticPlanner.of(values.mean), *betas),
    )
    return values, list(loop.run(loop.init(Key.from_seed(seed))))


def test_the_truth_stays_covered_and_plans_stay_optimistic():
    values, steps = run(Every(), seed=0)
    best = values.mean[:, :, 0, 1].max()
    for state, _ in steps:
        assert state.learner.drift_set[0]
        assert state.learner.reward_set[1]
        assert state.learner.value >= best
    assert steps[-1][0].learner.drift_set.sum() == 1  # and something was learned


def test_low_switch_updates_only_after_an_excess_loss_of_five_radii():
    _, steps = run(OnExcessLoss(threshold=5.0, renew="failed"), seed=0)
    for _, record in steps:
        assert (Targets.DRIFT in record.updated) == (record.excess_loss.drift >= 5.0)
        assert (Targets.REWARD in record.updated) == (record.excess_loss.reward >= 5.0)
    assert 1 <= steps[-1][0].ledger.updates <= 10


def test_the_policy_is_the_member_that_was_planned_and_does_not_depend_on_time():
    made = learner()
    state = made.init(Key.from_seed(0))
    plan = made.policy(state)
    x, key = jnp.array([0.3]), jax.random.key(1)
    assert np.array_equal(plan.policy(x, 0.7), POLICIES.apply(state.policy, x))
    assert np.array_equal(plan.policy(x), plan.policy(x, 0.2))
    assert np.array_equal(plan.initial(key), INITIALS.apply(state.initial, key))
    assert jax.tree.leaves(plan) == [state.policy, state.initial]
    again = jax.jit(lambda plan: plan.policy(x, 0.0))(plan)  # one compiled program for all members
    assert np.array_equal(again, plan.policy(x))


def test_the_truth_is_covered_while_both_sets_contain_it():
    made = learner()
    state = made.init(Key.from_seed(0))._replace(drift_set=np.array([True, False, True]))
    truth = lambda f, b: Truth(TrueFunction(SYSTEM.drift, f), TrueFunction(SYSTEM.reward, b))  # noqa: E731
    assert made.covers(state, None, truth(0, 1))
    assert not made.covers(state, None, truth(1, 1))
    assert not made.covers(state, None, truth(None, 1))


def test_excess_losses_ahead_are_those_of_one_episode_at_a_time():
    made = learner()
    state, block = made.init(Key.from_seed(0)), some()
    assert made.can_look_ahead
    ahead = made.excess_loss_per_episode(state, block)
    for n in range(block.episodes):
        state = made.observe(state, Measurements(*(getattr(block, name)[n : n + 1] for name in "txuyr")))
        assert np.allclose(ahead[n], made.excess_loss(state, None, Key(0))[0])


def test_data_that_no_member_explains_cause_a_warning():
    values = np.random.default_rng(0).random((3, 1, 3, 2))
    made = FiniteLearner(CLASSES, OptimisticPlanner.of(values), 3.0, 2.0, noise_std=(0.1, 10.0))
    state = made.observe(made.init(Key.from_seed(0)), some())
    with pytest.warns(MisspecificationWarning, match=r"the drift class is misspecified: best RMSE \d"):
        made.check_fit(state, Dataset(some()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FiniteClass.of([]), "a function class is empty"),
        (lambda: FiniteClass.family(DRIFT, np.zeros((0, 2))), "a function class is empty"),
        (
            lambda: FiniteClass.family(DRIFT, (np.zeros(2), np.zeros(3))),
            "parameters: every array needs the same length",
        ),
        (lambda: radius(0.0, 10, 1.5), "delta: the failure probability δ must lie between 0 and 1, not 1.5"),
        (
            lambda: DRIFTS.check("drifts", (2,), *[jax.ShapeDtypeStruct((1,), jnp.float32)] * 2),
            r"drifts: its functions return shape \(1,\), expected \(2,\)",
        ),
        (
            lambda: POLICIES.check("policies", (1,), *[jax.ShapeDtypeStruct((1,), jnp.float32)] * 2),
            "policies: its functions cannot be evaluated",
        ),
    ],
)
def test_wrong_classes_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_a_class_that_explodes_is_named():
    wild = FiniteClass.of([lambda x, u: -x, lambda x, u: jnp.exp(100 * jnp.abs(x) + 80)])
    with pytest.raises(InputError, match="under drift 1 and reward 0 of the classes leaves the finite numbers"):
        value_table(SYSTEM, POLICIES, INITIALS, wild, REWARDS, 20, 10)(Key.from_seed(0))

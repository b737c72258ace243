"""Drift and reward without known mechanics: networks, their fit, and what imagination sees."""

import functools
import re
from dataclasses import replace

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purectrl.control.black_box import BlackBoxDynamics, BlackBoxModel, KnownReward, LearnedTask
from purectrl.control.episodes import begin_episode
from purectrl.control.exploration import SmoothNoise
from purectrl.control.fit import fit_ensemble
from purectrl.control.imagination import ImaginationModel
from purectrl.control.integrate import euler
from purectrl.control.policy import Actor, BehaviorPolicy
from purectrl.control.regression import (
    Networks,
    RegressionLoss,
    centre_and_scale,
    regression_data,
    robust_scale,
    root_mean_square,
)
from purectrl.control.settings import FitSettings
from purectrl.control.working_region import rewarded_ends, working_region
from purectrl.core import Key, MeasurementError, Measurements, Plan
from purectrl.core.schedules import Targets
from purectrl.systems.gym import gym_episodes
from purectrl.systems.spec import StateSpec

PENDULUM = StateSpec(3, 1, (-2.0,), (2.0,))


def networks(outputs=2, members=3, seed=0, spec=PENDULUM):
    return Networks.random(np.random.default_rng(seed), spec, outputs, members, (16, 16))


def behavior(use_actor=0.0, amplitudes=(1.0,), seed=0, horizon=5.0):
    actor = Actor.random(np.random.default_rng(seed), PENDULUM, (8, 8))
    return BehaviorPolicy(actor, use_actor, np.array(amplitudes, np.float32), SmoothNoise(horizon))


def swinging(episodes, m=100):
    """Pendulum-v1 under random torque, measured at every step."""
    rollout = gym_episodes(gymnasium.make("Pendulum-v1"), begin_episode)
    return rollout(Key.from_seed(0), Plan(behavior(horizon=0.05 * m), ()), np.tile(0.05 * np.arange(m), (episodes, 1)))


def test_other_scales_are_the_same_function():
    generator = np.random.default_rng(1)
    x, u = generator.normal(size=(3, 7, 3)), generator.normal(size=(3, 7, 1))
    before = networks()
    centre, scale, sizes = generator.normal(size=3), np.array([0.1, 2.0, 30.0]), np.array([5.0, 0.2])
    after = before.rescale(*map(jnp.float32, (centre, scale, sizes))).rescale(
        *map(jnp.float32, (-centre, 1 / scale, sizes))
    )
    assert np.allclose(after(x, u), before(x, u), atol=1e-4)
    assert after.size.tolist() == pytest.approx([5.0, 0.2])


def test_drift_and_reward_of_an_environment_are_found_from_measurements():
    """Of what varies in the data, a small part is left unexplained. At |ω| = 8 Pendulum-v1 has a kink, so more of ω."""
    data = regression_data(swinging(episodes=8), PENDULUM, capacity=900, max_gap=0.1)
    n = int(data.size)
    fresh = np.random.default_rng(2).choice(n, 200, replace=False)  # held out
    kept = np.setdiff1d(np.arange(n), fresh)
    for targets, outputs, allowed in ((data.y, 3, 0.08), (data.r, 1, 0.02)):
        start = networks(outputs).rescale(
            *map(jnp.asarray, (*centre_and_scale(data.x[kept]), root_mean_square(targets[kept])))
        )
        rows = data.x[kept], data.u[kept], targets[kept], np.int32(len(kept))
        fitted, loss = fit_ensemble(RegressionLoss(64), start, jax.random.key(0), rows, 1500, 3e-3, 1e-4)
        seen = (jnp.broadcast_to(array[fresh], (3, 200, array.shape[-1])) for array in (data.x, data.u))
        error = np.asarray(fitted(*seen)).mean(axis=0) - targets[fresh]
        unexplained = (error**2).mean(axis=0) / targets[fresh].var(axis=0)
        assert unexplained.max() < allowed, unexplained
        assert loss < 0.02


def test_a_step_of_euler_undoes_the_quotient():
    seen = swinging(episodes=2, m=20)
    after = euler(lambda x, s: seen.y[:, :-1], seen.x[:, :-1], 0.05)
    assert np.allclose(after, seen.x[:, 1:], atol=1e-5)


def test_a_constant_coordinate_is_not_scaled():
    data = np.array([[2.0, 5.0, 0.0], [4.0, 5.0, 0.0]])
    assert centre_and_scale(data)[1].tolist() == [1.0, 1.0, 1.0]
    assert root_mean_square(data).tolist() == pytest.approx([np.sqrt(10), 5.0, 1.0])


def test_outliers_hardly_change_the_scale_of_the_others():
    usual = np.random.default_rng(0).normal(size=(1000, 1)) * [[1.0, 50.0]]
    fast = np.concatenate([usual, 40 * usual[:60]])
    scale = robust_scale(usual)
    assert scale == pytest.approx(
        [0.85, 43], rel=0.1
    )  # the root mean square of a normal variable clipped at its 0.9 quantile
    assert robust_scale(fast) == pytest.approx(np.maximum(scale, 0.1 * np.sqrt((fast**2).mean(axis=0))), rel=0.25)
    assert root_mean_square(fast)[0] > 8
    # rare large values are not lost
    assert robust_scale(np.array([[0.0]] * 99 + [[10.0]])).tolist() == pytest.approx([0.1])


def test_drifts_that_were_not_measured_are_difference_quotients():
    t = np.array([[0.0, 0.1, 0.2, 0.9]])
    x = np.stack([np.sin(3 * t), t**2, 0 * t], axis=-1)
    seen = Measurements(t, x, np.zeros((1, 4, 1)), r=np.zeros((1, 4)))
    data = regression_data(seen, PENDULUM, capacity=4, max_gap=0.15)
    assert data.size == 2
    assert np.allclose(data.y[:2], (x[0, 1:3] - x[0, :2]) / 0.1, atol=1e-5)
    with pytest.raises(MeasurementError, match=r"no two measurements lie within max_gap = 0\.05 s"):
        regression_data(seen, PENDULUM, capacity=4, max_gap=0.05)


def test_rewards_that_were_not_measured_must_be_known():
    seen = Measurements(np.zeros((1, 2)), np.ones((1, 2, 3)), np.ones((1, 2, 1)), y=np.zeros((1, 2, 3)))
    with pytest.raises(MeasurementError, match="the reward is unknown and was not measured: r is missing"):
        regression_data(seen, PENDULUM, 2, 0.1)
    known = StateSpec(3, 1, (-2.0,), (2.0,), reward=lambda x, u: x.sum() - u[0])
    assert regression_data(seen, known, 2, 0.1).r[0] == 2.0


def test_angles_and_velocities_are_known_by_construction():
    spec = StateSpec(2, 1, (0.0,), (1.0,), angles=(0,), velocities=((0, 1),))
    task = LearnedTask(networks(1, spec=spec), *map(jnp.float32, (0.0, 1.0)), jnp.zeros((1, 2)), jnp.int32(1))
    model = BlackBoxModel(networks(2, spec=spec), task)
    x, u = np.random.default_rng(0).normal(size=(2, 3, 4, 2)).astype(np.float32)
    u = u[..., :1]
    found = model.drift(x, u)
    assert np.array_equal(found[..., 0], x[..., 1])
    turned = x + 2 * np.pi * np.array([3, 0], np.float32)
    assert np.allclose(model.drift(turned, u), found, atol=1e-4)


def test_a_known_reward_is_neither_learned_nor_clipped():
    known = StateSpec(3, 1, (-2.0,), (2.0,), reward=lambda x, u: x[0] - u[0] ** 2)
    dynamics = BlackBoxDynamics(known, FitSettings(steps=2, batch_size=4), 60, 3, euler, members=2, width=8)
    seen = swinging(episodes=3, m=20)
    fit = dynamics.fit(dynamics.init(Key.from_seed(0)), seen, Targets.BOTH, True, Key.from_seed(1))
    assert isinstance(fit.model.task.rewards, KnownReward)
    assert set(fit.info) == {"fit_loss"}
    x, u = np.full((2, 5, 3), 1e3, np.float32), np.ones((2, 5, 1), np.float32)
    assert np.allclose(fit.model.task.reward_unit * fit.model.task.reward(x, u), 1e3 - 1, rtol=1e-5)


@pytest.fixture(scope="module")
def data():
    return swinging(episodes=3, m=20)


DYNAMICS = BlackBoxDynamics(PENDULUM, FitSettings(steps=4, finetune_steps=4, batch_size=4), 80, 4, euler, 2, 8)


def test_a_fit_changes_what_it_is_told_to(data):
    begin = DYNAMICS.init(Key.from_seed(0))
    model = DYNAMICS.fit(begin, data, Targets.DRIFT, True, Key.from_seed(1)).model
    assert not np.array_equal(model.rates.layers[0].weight, begin.rates.layers[0].weight)
    assert model.task.rewards is begin.task.rewards
    model = DYNAMICS.fit(begin, data, Targets.REWARD, True, Key.from_seed(1)).model
    assert model.rates is begin.rates
    assert model.task.reward_unit == pytest.approx(np.sqrt((data.r**2).mean()), rel=1e-5)
    assert np.allclose([model.task.worst, model.task.best], [data.r.min(), data.r.max()])


def test_a_fit_of_more_data_takes_as_many_steps_as_its_epochs_ask_for(data):
    """With a batch of all measurements, eight passes are eight steps; four are set."""
    few = replace(DYNAMICS.settings, batch_size=data.total)
    rates = [
        replace(DYNAMICS, settings=settings)
        .fit(DYNAMICS.init(Key.from_seed(0)), data, Targets.DRIFT, True, Key.from_seed(1))
        .model.rates.layers[0]
        .weight
        for settings in (replace(few, epochs=8), replace(few, steps=8), few)
    ]
    assert np.array_equal(rates[0], rates[1])
    assert not np.array_equal(rates[0], rates[2])


def test_the_reward_for_reaching_a_goal_is_a_number_of_its_own_and_imagination_begins_near_it():
    """Each step costs 0.1; every other episode of 10 terminates in its 6th, for a reward of 50."""
    generator, episodes, m = np.random.default_rng(3), 4, 10
    x = generator.normal(size=(episodes, m, 3))
    count, r, final = np.full(episodes, m), np.full((episodes, m), -0.1), np.full((episodes, 3), np.nan)
    count[::2], final[::2], r[::2, 5] = 6, 9.0, 50.0
    seen = Measurements(
        np.tile(0.1 * np.arange(m), (episodes, 1)), x, np.zeros((episodes, m, 1)), y=x, r=r, count=count, final=final
    )
    spec = replace(PENDULUM, may_terminate=True)
    dynamics = replace(DYNAMICS, spec=spec, settings=FitSettings(steps=300, batch_size=16, learning_rate=1e-2))
    task = dynamics.fit(dynamics.init(Key.from_seed(0)), seen, Targets.BOTH, True, Key.from_seed(1)).model.task
    assert float(task.ending_reward) == 50.0
    assert float(task.best) == pytest.approx(-0.1)
    assert [float(limit * task.reward_unit) for limit in task.reward_range] == pytest.approx([-0.1, 50.0])
    last = jnp.asarray(x[::2, 5], jnp.float32)
    assert np.asarray(task.reward(last, jnp.zeros((2, 1))) * task.reward_unit) == pytest.approx(
        -0.1 * np.ones(2), abs=2
    )
    model = BlackBoxModel(networks(3, spec=spec), task)
    region = working_region(spec, seen, model, 1.0, 80, 0.5, 2.0)
    assert float(region.end) == 0.5  # imagined episodes end with a rewarded step
    assert {tuple(goal) for goal in region.goals.tolist()} == {tuple(state) for state in last.tolist()}
    punished = eqx.tree_at(lambda model: model.task.ending_reward, model, jnp.asarray(-50.0))
    assert rewarded_ends(seen, punished) is None


@pytest.mark.parametrize("part", ["rates", "rewards"])
def test_a_fit_that_diverges_is_detected_in_drift_and_reward(data, part):
    begin = DYNAMICS.init(Key.from_seed(0))
    good = DYNAMICS.fit(begin, data, Targets.BOTH, True, Key.from_seed(1)).model
    assert DYNAMICS.check_fit(begin, good, data) == ""
    where = (lambda m: m.rates.layers) if part == "rates" else (lambda m: m.task.rewards.layers)
    name = {"rates": "drift", "rewards": "reward"}[part]
    for factor, found in ((1e3, r"loss \S+ before it, \S+ after it"), (np.nan, "numbers that are not finite")):
        bad = eqx.tree_at(where, good, jax.tree.map(functools.partial(jnp.multiply, factor), where(good)))
        assert re.match(rf"the fit of the {name} diverged \(.*{found}\)", DYNAMICS.check_fit(good, bad, data))


def test_imagined_rewards_exceed_the_largest_measured_one_by_its_distance_from_most_of_them(data):
    task = DYNAMICS.fit(DYNAMICS.init(Key.from_seed(0)), data, Targets.BOTH, True, Key.from_seed(1)).model.task
    high, best = np.quantile(data.r, (0.95, 1.0))
    assert best > high
    assert float(task.largest) == pytest.approx(2 * best - high, abs=1e-4)


def test_targets_that_are_zero_throughout_are_no_divergence(data):
    still = Measurements(data.t, data.x, data.u, data.y, 0 * data.r)
    begin = DYNAMICS.init(Key.from_seed(0))
    dynamics = replace(DYNAMICS, settings=FitSettings(steps=800, batch_size=16))
    fitted = dynamics.fit(begin, still, Targets.BOTH, True, Key.from_seed(1)).model
    assert dynamics.check_fit(begin, fitted, still) == ""


def test_the_learned_task_starts_where_episodes_started_and_rewards_by_member():
    rewards = networks(outputs=1).rescale(jnp.zeros(3), jnp.ones(3), jnp.array([4.0]))
    task = LearnedTask(
        rewards, jnp.float32(-9.0), jnp.float32(1e3), jnp.array([[1.0] * 3, [2.0] * 3, [0.0] * 3]), jnp.int32(2)
    )
    model: ImaginationModel = BlackBoxModel(networks(outputs=3), task)
    starts = jax.vmap(task.sample_initial_state)(jax.random.split(jax.random.key(0), 50))
    assert set(np.asarray(starts[:, 0]).tolist()) == {1.0, 2.0}
    x, u = jax.random.normal(jax.random.key(1), (6, 3, 5, 3)), jnp.zeros((6, 3, 5, 1))
    each = task.reward(x, u)
    assert np.allclose(4.0 * each, rewards(x, u)[..., 0], atol=1e-6)  # in units of their typical size
    capped = eqx.tree_at(lambda task: task.best, task, jnp.float32(0.5)).reward(x, u)
    assert np.allclose(capped, np.minimum(each, 0.5 / 4.0))
    assert (capped < each).any()
    known = (task.rewards, task.worst, jnp.float32(0.5), task.starts, task.count)
    assert np.allclose(LearnedTask(*known, largest=jnp.float32(0.8)).reward(x, u), np.minimum(each, 0.8 / 4.0))
    shared = jnp.broadcast_to(x[:1, :1], (1, 3, 5, 3))
    assert np.allclose(task.log_reward(x[0, 0], u[0, 0]), task.reward(shared, u[:1])[0].mean(axis=0), atol=1e-6)
    chosen = jnp.array([2, 0])
    selected = model.select_members(chosen)
    assert selected.members == 2
    assert np.allclose(selected.task.reward(x[:, chosen], u[:, chosen]), each[:, chosen], atol=1e-6)
    assert np.allclose(selected.drift(x[0, chosen], u[0, chosen]), model.drift(x[0], u[0])[chosen], atol=1e-6)


def test_exploration_is_a_function_of_the_key_and_the_amplitude_of_the_episode():
    plan, x = Plan(behavior(use_actor=1.0, amplitudes=(0.0, 1.0)), ()), np.ones(3)

    def acts(key, number):
        act = begin_episode(Key.from_seed(key), plan, number)
        return np.array([act(x, t) for t in np.arange(0, 5, 0.25)])

    assert np.allclose(acts(0, 0), plan.policy(x), atol=1e-6)
    assert np.array_equal(acts(0, 1), acts(0, 3))
    assert np.abs(acts(0, 1) - acts(1, 1)).max() > 0.1
    assert 0.2 < acts(0, 1).std() < 2.0

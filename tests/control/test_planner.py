"""Planning in rounds: time scales, starts, targets of the critic, and that no round makes the policy worse in the model."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_cart import cart, spec

from purectrl.control.auto_settings import RoundSettings
from purectrl.control.integrate import midpoint_in
from purectrl.control.known_equations import EquationsModel, KnownDynamics
from purectrl.control.plan_starts import Draws, PlanRegion, draw_starts
from purectrl.control.planner import (
    DISCOUNT_UNITS,
    Normalized,
    imagined_test,
    plan_round,
    td_targets,
)
from purectrl.control.policy import Actor, Critic
from purectrl.control.time_scales import TimeScales, estimate_rate, mode_rate, time_scales
from purectrl.control.working_region import normalization, rewarded_states, working_region
from purectrl.core import Key, Measurements
from purectrl.problems.continuous_systems import ContinuousSystem
from purectrl.systems.furuta import furuta
from purectrl.systems.spec import StateSpec

SMALL = RoundSettings(steps=60, snapshots=2, batch_size=32, width=16, test_steps=60, ensemble_size=1)


def region_of(system, length=6.0, end=None):
    """A region around the origin."""
    d = system.state_dim
    states = jax.random.normal(jax.random.key(0), (50, d))
    parts = jnp.asarray(50), jnp.full(d, 5.0), jnp.zeros((4, d)), jnp.ones(d)
    return PlanRegion(states, *parts, jnp.asarray(length), jnp.asarray(end or length))


def networks(about, seed=0):
    generator = np.random.default_rng(seed)
    return Actor.random(generator, about, (16, 16)), Critic.random(generator, about, (16, 16))


def scales_of(rate, settings=SMALL):
    return TimeScales(*map(jnp.asarray, time_scales(settings, rate, None)))


def test_td_targets_are_the_return_for_lambda_one_and_one_step_for_lambda_zero():
    generator = np.random.default_rng(0)
    rewards, values = (jnp.asarray(generator.normal(size=(5, 3)), jnp.float32) for _ in range(2))
    step, keep = 0.1, np.exp(-0.1 / DISCOUNT_UNITS)
    far = td_targets(replace(SMALL, trace=1.0), rewards, values, step, keep)
    weights = keep ** np.arange(5)
    whole = (step * weights[:, None] * np.asarray(rewards)).sum(axis=0) + keep**5 * np.asarray(values[-1])
    assert np.allclose(far[0], whole, rtol=1e-5)
    near = td_targets(replace(SMALL, trace=0.0), rewards, values, step, keep)
    assert np.allclose(near, step * rewards + keep * values, rtol=1e-5)


def test_the_value_of_a_constant_reward_is_a_fixed_point_of_the_targets():
    step, keep = 0.2, jnp.exp(-0.2 / DISCOUNT_UNITS)
    value = step / (1 - keep)
    found = td_targets(SMALL, jnp.ones((20, 2)), jnp.full((20, 2), value), step, keep)
    assert np.allclose(found, value, rtol=1e-5)


def test_the_shift_of_the_features_is_absorbed_by_the_first_bias():
    about = spec(cart())
    x, mean = jax.random.normal(jax.random.key(1), (7, 2)) + 20, jnp.array([20.0, -3.0])
    for network in networks(about):
        network = eqx_scale(network, jnp.array([2.0, 0.5]))
        inside = Normalized.of(network, mean)
        apply = inside.before_tanh if isinstance(network, Actor) else inside.value
        expected = network.before_tanh(x) if isinstance(network, Actor) else network(x)
        assert np.allclose(apply(x), expected, atol=1e-4)
        again = inside.fold(network)
        assert type(again) is type(network)
        assert np.allclose(again(x), network(x), atol=1e-4)


def eqx_scale(network, scale):
    return type(network)(network.layers, scale, network.spec)


def test_the_rate_is_that_of_the_fastest_mode_and_scales_with_time():
    system = furuta()
    model, goal = EquationsModel(jnp.ones(()), system), np.zeros((4, 4))
    hanging = np.tile([0.0, np.pi, 0.0, 0.0], (10, 1))
    found = estimate_rate(model, spec(system), hanging, goal, horizon=20.0)
    assert found.goal == pytest.approx(7.85, abs=0.01)
    assert found.rate == found.data == pytest.approx(7.88, abs=0.01)  # it swings a little faster than it falls
    slow = ContinuousSystem(4, lambda x, u: system.drift(x, u) / 60, lambda x, u: x[0], lambda key: jnp.zeros(4))
    minutes = estimate_rate(EquationsModel(jnp.ones(()), slow), spec(system), hanging, goal, horizon=1200.0)
    assert minutes.rate == pytest.approx(found.rate / 60, rel=1e-4)


def test_modes_that_decay_count_a_quarter_and_the_rate_is_limited_by_the_episode():
    spin = jnp.array([[[0.0, 3.0], [-3.0, 0.0]]])
    assert mode_rate(spin) == pytest.approx(3.0)
    assert mode_rate(jnp.array([[[-40.0, 0.0], [0.0, -1.0]]])) == pytest.approx(10.0)
    assert mode_rate(jnp.full((1, 2, 2), jnp.nan)) == 0.0
    still = ContinuousSystem(2, lambda x, u: 0 * x, lambda x, u: x[0], lambda key: jnp.zeros(2))
    about = StateSpec(2, 1, (-1.0,), (1.0,))
    zeros = np.zeros((3, 2))
    assert estimate_rate(EquationsModel(jnp.ones(()), still), about, zeros, zeros, horizon=10.0).rate == 4.0


def test_the_times_follow_the_rate_and_a_time_grid_sets_the_step():
    fast, slow = time_scales(SMALL, 10.0, None), time_scales(SMALL, 1.0, None)
    assert slow.step == pytest.approx(10 * fast.step)
    assert slow.step * SMALL.rollout_steps == pytest.approx(5.0)
    assert time_scales(SMALL, 10.0, 0.05).step == 0.05


def test_starts_are_shared_out_and_those_near_the_goal_have_all_sizes():
    settings = RoundSettings(batch_size=1000, ensemble_size=1, initial_share=0.2, goal_share=0.5, rollout_end_share=0.2)
    system = cart(start=0.0)
    goals = jnp.array([[100.0, 0.0]])
    region = region_of(system)._replace(goals=goals, states=jnp.full((50, 2), -300.0))
    draws = jax.tree.map(lambda drawn: drawn[0], Draws.of(settings, 1, spec(system), jax.random.key(0), steps=1))
    starts = draw_starts(settings, draws, jnp.zeros((4, 2)), region, 200 + jnp.zeros((1000, 2)))
    x = np.asarray(starts[:, 0])
    assert [(x == 0).sum(), (np.abs(x - 100) < 50).sum(), (x == 200).sum(), (x == -300).sum()] == [200, 500, 200, 100]
    sizes = np.abs(np.asarray(starts)[np.abs(x - 100) < 50] - goals[0]).max(axis=1)
    assert np.quantile(sizes, 0.1) < 0.05
    assert np.quantile(sizes, 0.9) > 0.5


def test_random_numbers_have_their_distributions_and_differ_from_step_to_step():
    settings = RoundSettings(batch_size=64, ensemble_size=2, critic_steps=2, critic_batch_size=50)
    draws = Draws.of(settings, 3, spec(cart()), jax.random.key(0), steps=40)
    assert draws.members.shape == (40, 3)
    assert draws.kicks.shape == (40, settings.rollout_steps, 2, 32, 1)
    assert draws.critic.shape == (40, 2, 50)
    for uniform in (draws.critic, draws.order):
        numbers = np.sort(np.asarray(uniform).ravel())
        assert np.abs(numbers - np.linspace(0, 1, len(numbers))).max() < 1.7 / len(numbers) ** 0.5  # Kolmogorov
    normal = np.asarray(draws.kicks)
    assert normal.mean() == pytest.approx(0, abs=4 / normal.size**0.5)
    assert normal.var() == pytest.approx(1, abs=6 / normal.size**0.5)
    assert abs(np.corrcoef(normal[0].ravel(), normal[1].ravel())[0, 1]) < 0.15


@pytest.mark.parametrize("end", [3.0, 4.0], ids=["as long as measured", "longer"])
def test_an_imagined_test_of_a_known_decay_has_its_mean(end):
    """dx/dt = −x from 1 with the reward x: the mean over [a, b] is (e^(−a) − e^(−b))/(b − a)."""
    system = ContinuousSystem(1, lambda x, u: -x, lambda x, u: x[0], lambda key: jnp.ones(1))
    about = StateSpec(1, 1, (-1.0,), (1.0,))
    actor = Normalized.of(networks(about)[0], jnp.zeros(1))
    settings = replace(SMALL, test_steps=400)
    region = region_of(system, length=3.0, end=end)
    found = imagined_test(
        settings,
        midpoint_in(2),
        EquationsModel(jnp.ones(()), system),
        actor,
        scales_of(25.0),
        region,
        jax.random.key(0),
    )
    assert found.whole.shape == (1, SMALL.test_episodes)
    assert float(found.whole.mean()) == pytest.approx((1 - np.exp(-3)) / 3, abs=0.01)
    assert float(found.late.mean()) == pytest.approx((np.exp(-1.5) - np.exp(-end)) / (end - 1.5), abs=0.01)


def test_rounds_never_lower_the_score_and_bring_a_cart_to_its_goal():
    system = cart(acceleration=lambda q, v, u: 2.0 * q + u)  # falls away from the goal
    model, about = EquationsModel(jnp.ones(()), system), spec(system)
    actor, critic = networks(about)
    scores, settings = [], replace(SMALL, steps=150)
    for number in range(3):
        keys = jax.random.key(number), jax.random.key(99)
        found = plan_round(
            settings, midpoint_in(1), model, actor, critic, jnp.zeros(2), scales_of(1.4), region_of(system), keys
        )
        scores += [float(found.before.score), float(found.test.score)]
        actor, critic = found.actor, found.critic
    assert scores == sorted(scores)
    assert scores[1] == pytest.approx(scores[2], abs=1e-4)  # the incumbent is the policy that came of the round before
    assert scores[-1] > scores[0] + 0.5


def test_a_policy_that_training_destroys_is_not_returned():
    system = cart()
    model, about = EquationsModel(jnp.ones(()), system), spec(system)
    actor, critic = networks(about)
    ruin = replace(SMALL, actor_learning_rate=100.0, steps=4)
    keys = jax.random.key(0), jax.random.key(1)
    found = plan_round(
        ruin, midpoint_in(1), model, actor, critic, jnp.zeros(2), scales_of(1.4), region_of(system), keys
    )
    assert float(found.test.score) >= float(found.before.score)


def measured_states(x, horizon=10.0):
    t = np.tile(np.linspace(0, horizon, x.shape[1]), (len(x), 1))
    return Measurements(t, x, np.zeros((*x.shape[:2], 1)), r=np.zeros(t.shape))


def test_rewarded_states_are_found_beyond_the_data_if_the_reward_is_known():
    system = ContinuousSystem(2, lambda x, u: 0 * x, lambda x, u: 1 / (1 + (x[0] - 21) ** 2), lambda key: jnp.zeros(2))
    known = StateSpec(2, 1, (-1.0,), (1.0,), reward=system.reward_function)
    model = EquationsModel(jnp.ones(()), system)
    states = np.random.default_rng(0).uniform(10, 15, (100, 2)).astype(np.float32)
    limits = np.full(2, 30.0, np.float32)
    found = rewarded_states(known, model, states, states.std(axis=0), limits)
    assert np.allclose(found[:, 0], 21, atol=0.05)
    far = rewarded_states(known, model, states, np.full(2, 0.3, np.float32), limits)  # 20 to 37 spreads away
    assert np.allclose(far[:, 0], 21, atol=0.05)
    unknown = replace(known, reward=None)
    kept = rewarded_states(unknown, model, states, states.std(axis=0), limits)
    assert kept[0, 0] == states[:, 0].max()


def test_goals_lie_beyond_the_limits_only_if_the_reward_has_a_maximum_there():
    states = np.random.default_rng(0).uniform(-1, 1, (100, 2)).astype(np.float32)
    limits = np.full(2, 1.3, np.float32)

    def highest(reward):
        system = ContinuousSystem(2, lambda x, u: 0 * x, reward, lambda key: jnp.zeros(2))
        known = StateSpec(2, 1, (-1.0,), (1.0,), reward=system.reward_function)
        goals = rewarded_states(known, EquationsModel(jnp.ones(()), system), states, states.std(axis=0), limits)
        return goals[np.argmax([reward(goal, None) for goal in goals])]

    assert np.allclose(highest(lambda x, u: -((x[0] - 9) ** 2) - x[1] ** 2), (9, 0), atol=0.05)
    assert highest(lambda x, u: x[0] - x[1] ** 2)[0] == pytest.approx(1.3)  # rises forever: no goal is far away


def test_the_region_is_that_of_early_states_and_contains_the_goal():
    x = np.random.default_rng(1).normal(size=(4, 200, 2)).astype(np.float32)
    x[:, 100:] += 1000  # later, far away
    system = cart()
    goal = replace(system, goal=(9.0, 0.0))
    region = working_region(spec(goal), measured_states(x), EquationsModel(jnp.ones(()), goal), 10.0, 1000, 5.0, 10.0)
    assert int(region.size) < 800
    assert float(region.states.max()) < 10
    assert float(region.limits[0]) == pytest.approx(1.3 * 9)
    assert region.states.shape == (1000, 2)


def test_starts_near_the_goal_are_spread_like_early_states():
    """Random controls drive a cart far away in time; where it is then says nothing about where a policy will be."""
    x = np.random.default_rng(1).normal(size=(40, 200, 2)).astype(np.float32)
    x[:, 100:] *= 1.8
    goal = replace(cart(), goal=(0.0, 0.0))
    region = working_region(spec(goal), measured_states(x), EquationsModel(jnp.ones(()), goal), 10.0, 8000, 5.0, 20.0)
    assert (float(region.length), float(region.end)) == (5.0, 20.0)
    quartile = 0.6745  # of a standard normal
    assert np.allclose(region.spread, 1.5 * quartile, atol=0.1)


def test_features_far_from_zero_are_shifted_and_outliers_do_not_flatten_the_policy():
    about = StateSpec(2, 1, (-1.0,), (1.0,))
    states = np.random.default_rng(2).normal(size=(500, 2)).astype(np.float32)
    states[:, 0] += 20
    states[:10, 1] = 1e3
    region = region_of(cart())._replace(states=jnp.asarray(states), size=jnp.asarray(500))
    mean, scale = normalization(about, region)
    assert float(mean[0]) == pytest.approx(20, abs=0.2)
    assert float(scale[0]) == pytest.approx(1, abs=0.2)
    assert float(scale[1]) < 20


def test_known_equations_need_no_fit():
    dynamics = KnownDynamics(cart(), midpoint_in(2))
    model = dynamics.init(Key.from_seed(0))
    x = np.ones((1, 3, 2), np.float32)
    assert np.array_equal(model.drift(x, x[..., :1]), cart().drift(x, x[..., :1]))
    fitted, info = dynamics.fit(model, measured_states(np.zeros((1, 5, 2))), None, True, Key.from_seed(0))
    assert info == {}
    assert dynamics.check_fit(model, fitted, None) == ""
    assert fitted.members == 1

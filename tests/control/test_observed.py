"""Drift and reward without known mechanics: networks, their fit, and what imagination is given."""

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purectrl.control.episodes import exploring, played
from purectrl.control.exploration import SmoothNoise
from purectrl.control.imagination import Improving, Model
from purectrl.control.observed import (
    LearnedWorld,
    Networks,
    Observed,
    ObservedModel,
    as_it_is,
    euler,
    regress,
    rows_of,
    size,
    spread,
)
from purectrl.control.observed_learner import ObservedLearner
from purectrl.control.policy import Actor, Behaviour
from purectrl.core import Dataset, Key, MeasurementError, Measurements, Plan
from purectrl.core.schedules import Which
from purectrl.systems.gym import gym_episodes

PENDULUM = Observed(state_dim=3, control_dim=1)
PLANNING = Improving(iterations=5, rows=6, members=2, horizon=0.5, step=0.05, planned=as_it_is)
"""With the sizes of `learner` below those of the experiment's tests, which so share a compiled program."""


def networks(outputs=2, members=3, seed=0, observed=PENDULUM):
    return Networks.random(np.random.default_rng(seed), observed, outputs, members, (16, 16))


def behaviour(follow=0.0, amplitudes=(1.0,), seed=0):
    actor = Actor.random(np.random.default_rng(seed), PENDULUM, (8, 8))
    return Behaviour(actor, follow, np.array(amplitudes, np.float32))


def swinging(episodes, m=100):
    """Pendulum-v1 under random torque, measured at every step. Its actions are in [−2, 2], the behaviour's in [−1, 1]."""
    env = gymnasium.wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), np.float32(-1), np.float32(1))
    rollout = gym_episodes(env, exploring(SmoothNoise(0.05 * m), 1))
    return rollout(Key.from_seed(0), Plan(behaviour(), ()), np.tile(0.05 * np.arange(m), (episodes, 1)))


def test_other_scales_are_the_same_function():
    generator = np.random.default_rng(1)
    x, u = generator.normal(size=(3, 7, 3)), generator.normal(size=(3, 7, 1))
    before = networks()
    centre, scale, sizes = generator.normal(size=3), np.array([0.1, 2.0, 30.0]), np.array([5.0, 0.2])
    after = before.rescaled(*map(jnp.float32, (centre, scale, sizes))).rescaled(
        *map(jnp.float32, (-centre, 1 / scale, sizes))
    )
    assert np.allclose(after(x, u), before(x, u), atol=1e-4)
    assert after.size.tolist() == pytest.approx([5.0, 0.2])


def test_drift_and_reward_of_an_environment_are_found_from_measurements():
    """Of what varies in the data, a small part is left unexplained. At |ω| = 8 Pendulum-v1 has a kink, so more of ω."""
    data = rows_of(swinging(episodes=8), capacity=900)
    n = int(data.count)
    fresh = np.random.default_rng(2).choice(n, 200, replace=False)  # held out
    kept = np.setdiff1d(np.arange(n), fresh)
    for targets, outputs, allowed in ((data.y, 3, 0.08), (data.r, 1, 0.02)):
        start = networks(outputs).rescaled(*map(jnp.asarray, (*spread(data.x[kept]), size(targets[kept]))))
        rows = data.x[kept], data.u[kept], targets[kept], np.int32(len(kept))
        fitted, loss = regress(64, start, jax.random.key(0), rows, 1500, 3e-3, 1e-4)
        seen = (jnp.broadcast_to(array[fresh], (3, 200, array.shape[-1])) for array in (data.x, data.u))
        error = np.asarray(fitted(*seen)).mean(axis=0) - targets[fresh]
        unexplained = (error**2).mean(axis=0) / targets[fresh].var(axis=0)
        assert unexplained.max() < allowed, unexplained
        assert loss < 0.02


def test_a_step_of_euler_undoes_the_quotient():
    seen = swinging(episodes=2, m=20)
    after = euler(lambda x, s: seen.y[:, :-1], seen.x[:, :-1], 0.05)
    assert np.allclose(after, seen.x[:, 1:], atol=1e-5)


def test_a_number_that_never_changes_is_left_alone():
    data = np.array([[2.0, 5.0, 0.0], [4.0, 5.0, 0.0]])
    assert spread(data)[1].tolist() == [1.0, 1.0, 1.0]
    assert size(data).tolist() == pytest.approx([np.sqrt(10), 5.0, 1.0])


def test_what_was_not_measured_cannot_be_learned():
    seen = Measurements(np.zeros((1, 2)), np.zeros((1, 2, 3)), np.zeros((1, 2, 1)), r=np.zeros((1, 2)))
    with pytest.raises(MeasurementError, match="y or r is missing"):
        rows_of(seen, 2)


def test_the_learned_world_starts_where_episodes_started_and_rewards_by_member():
    rewards = networks(outputs=1).rescaled(jnp.zeros(3), jnp.ones(3), jnp.array([4.0]))
    world = LearnedWorld(rewards, jnp.float32(1e3), jnp.array([[1.0] * 3, [2.0] * 3, [0.0] * 3]), jnp.int32(2))
    model: Model = ObservedModel(networks(outputs=3), world)
    starts = jax.vmap(world.start)(jax.random.split(jax.random.key(0), 50))
    assert set(np.asarray(starts[:, 0]).tolist()) == {1.0, 2.0}
    x, u = jax.random.normal(jax.random.key(1), (6, 3, 5, 3)), jnp.zeros((6, 3, 5, 1))
    each = world.reward(x, u)
    assert np.allclose(4.0 * each, rewards(x, u)[..., 0], atol=1e-6)  # in units of their typical size
    capped = eqx.tree_at(lambda world: world.best, world, jnp.float32(0.5)).reward(x, u)
    assert np.allclose(capped, np.minimum(each, 0.5 / 4.0))
    assert (capped < each).any()
    shared = jnp.broadcast_to(x[:1, :1], (1, 3, 5, 3))
    assert np.allclose(world.log_reward(x[0, 0], u[0, 0]), world.reward(shared, u[:1])[0].mean(axis=0), atol=1e-6)
    chosen = jnp.array([2, 0])
    picked = model.pick(chosen)
    assert picked.members == 2
    assert np.allclose(picked.mechanism.reward(x[:, chosen], u[:, chosen]), each[:, chosen], atol=1e-6)
    assert np.allclose(picked.drift(x[0, chosen], u[0, chosen]), model.drift(x[0], u[0])[chosen], atol=1e-6)


def test_exploration_is_a_function_of_the_key_and_the_loudness_of_the_episode():
    begin = exploring(SmoothNoise(5.0), controls=1)
    plan, x = Plan(behaviour(follow=1.0, amplitudes=(0.0, 1.0)), ()), np.ones(3)

    def acts(key, number):
        act = begin(Key.from_seed(key), plan, number)
        return np.array([act(x, t) for t in np.arange(0, 5, 0.25)])

    assert np.allclose(acts(0, 0), plan.policy.actor(x), atol=1e-6)
    assert np.array_equal(acts(0, 1), acts(0, 3))
    assert np.abs(acts(0, 1) - acts(1, 1)).max() > 0.1
    assert 0.1 < acts(0, 1).std() < 1.0


class Countdown(gymnasium.Env):
    """Pays 1 − 10·action² a step, and ends after its own number of steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 3 + seed % 5
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(3, np.float32), 1.0 - 10 * float(action[0]) ** 2, self.left == 0, False, {}


def test_a_test_is_the_actor_alone_until_the_environment_or_the_limit_ends_it():
    found = played(Countdown(), behaviour(), Key.from_seed(0), episodes=20, limit=5)
    assert set(found.steps.tolist()) == {3, 4, 5}
    assert np.array_equal(found.returns, found.steps)  # at x = 0 a fresh actor does nothing: no noise was added
    assert found.judged()["reward"] == 1.0


def learner(**settings):
    return ObservedLearner(
        PENDULUM, 80, 4, PLANNING, first_iterations=4, later_iterations=4, batch=4, members=2, width=8, **settings
    )


@pytest.fixture(scope="module")
def data():
    return Dataset().append(swinging(episodes=3, m=20))


def test_an_update_refits_what_it_is_told_to(data):
    one = learner()
    begin = one.init(Key.from_seed(0))
    state = one.update(begin, data, Which.DRIFT, Key.from_seed(1)).state
    assert not np.array_equal(state.rates.layers[0].weight, begin.rates.layers[0].weight)
    assert state.rewards is begin.rewards
    state = one.update(begin, data, Which.REWARD, Key.from_seed(1)).state
    assert state.rates is begin.rates
    assert state.rewards.size[0] == pytest.approx(np.sqrt((data.view.r**2).mean()), rel=1e-5)


def test_the_critic_keeps_its_values_when_the_unit_of_reward_changes(data):
    one = learner()
    begin = one.init(Key.from_seed(0))
    rows = rows_of(data.view, 80)
    fitted, _ = one._fit(begin, rows, Which.BOTH, Key.from_seed(1))
    x = np.random.default_rng(0).normal(size=(5, 3))
    unit = float(fitted.rewards.size[0])
    assert unit > 2
    assert np.allclose(unit * fitted.critic(x), begin.critic(x), rtol=1e-5)


def test_models_and_policies_that_diverge_are_rolled_back(data):
    wild = learner(rate=1e30)
    begin = wild.init(Key.from_seed(0))
    update = wild.update(begin, data, Which.BOTH, Key.from_seed(1))
    assert update.info["rolled_back"] == "the fit of the models diverged"
    assert update.state is begin
    broken = jax.tree.map(lambda array: array * np.nan, begin.critic)
    update = learner().update(begin._replace(critic=broken), data, Which.BOTH, Key.from_seed(1))
    assert update.info["rolled_back"] == "the policy improvement diverged"
    assert update.state.follow == 0.0
    assert update.state.actor.layers[0].weight is begin.actor.layers[0].weight
    assert update.state.rates is not begin.rates  # what was learned about the system stays

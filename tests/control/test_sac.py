"""Soft actor-critic: densities in closed form, transitions, a problem without future whose optimum is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purectrl as pc
from purectrl.control.sac import LOWEST, SacLearner, sample, transitions
from purectrl.control.sac_settings import Sac
from purectrl.core import Budget, InputError, Key, Measurements, Targets, UnsupportedError
from purectrl.core.measurement import Dataset
from purectrl.core.samplers import Uniform
from purectrl.systems.spec import StateSpec

SPEC = StateSpec(1, 1, (0.0,), (4.0,))


def test_the_density_of_squashed_controls_integrates_to_one():
    """Importance sampling with the policy's own draws: over those in an interval, 1/density adds up to its length."""
    networks = SacLearner(Sac(width=16), SPEC, 10, 0.1).init(Key(0)).networks
    u, log_density = sample(networks, jnp.full((200_000, 1), 0.3), jax.random.key(1))
    inside = np.abs(np.asarray(u[:, 0])) < 0.3  # where draws are frequent
    assert np.mean(np.where(inside, np.exp(-np.asarray(log_density)), 0.0)) == pytest.approx(0.6, rel=0.02)


def test_the_density_is_that_of_the_change_of_variables():
    networks = SacLearner(Sac(width=16), SPEC, 10, 0.1).init(Key(0)).networks
    x = jnp.linspace(-1.0, 1.0, 50)[:, None]
    u, log_density = sample(networks, x, jax.random.key(0))
    mean = networks.actor.before_tanh(x)
    sigma = np.exp(LOWEST + 3.5 * (1 + np.tanh(networks.deviation.before_tanh(x))))
    z = np.arctanh(np.asarray(u, np.float64))
    expected = -0.5 * ((z - mean) / sigma) ** 2 - np.log(sigma * np.sqrt(2 * np.pi)) - np.log(1 - np.asarray(u) ** 2)
    assert np.allclose(log_density, expected[:, 0], atol=1e-3)


def test_transitions_join_consecutive_measurements_of_one_episode():
    t = np.array([[0.0, 0.1, 0.2, 0.9], [0.0, 0.1, 0.0, 0.0]])
    x = np.arange(8.0).reshape(2, 4, 1)
    final = np.array([[np.nan], [50.0]])
    seen = Measurements(t, x, np.full((2, 4, 1), 4.0), count=np.array([4, 2]), final=final)
    found, count = transitions(SPEC, seen, np.arange(8.0).reshape(2, 4), 0.1, capacity=10)
    assert count == 4  # the gap of 0.7 is too long
    assert found.x[:4, 0].tolist() == [0.0, 1.0, 4.0, 5.0]
    assert found.next_x[:4, 0].tolist() == [1.0, 2.0, 5.0, 50.0]
    assert found.alive[:4].tolist() == [1.0, 1.0, 1.0, 0.0]
    assert np.allclose(found.u[:4], 1.0)
    assert np.allclose(found.reward[:4], [0.0, 1.0, 4.0, 5.0])
    assert found.x.shape == (10, 1)


def test_without_future_the_policy_finds_the_best_control():
    """γ = 0 and the reward −(u − 3)²: the best control is 3, in units of half the range 0.5."""
    settings = Sac(width=32, discount=0.0, gradient_steps=8.0, learning_rate=3e-3, target_entropy=-3.0)
    learner = SacLearner(settings, SPEC, 200, 0.1)
    generator = np.random.default_rng(0)
    u = generator.uniform(0.0, 4.0, (1, 200, 1))
    seen = Measurements(np.arange(200.0)[None] / 10, generator.normal(size=(1, 200, 1)), u, r=-((u[..., 0] - 3.0) ** 2))
    state = learner.init(Key(0))
    updated = learner.update(state, Dataset(seen), Targets.BOTH, Key(1))
    assert updated.diverged == ""
    assert updated.info["gradient_steps"] == 1600
    policy = learner.policy(updated.state).policy.without_noise()
    assert np.allclose(policy(jnp.linspace(-1.0, 1.0, 5)[:, None]), 3.0, atol=0.25)


def test_the_first_controls_are_uniform_and_held_for_a_step():
    learner = SacLearner(Sac(width=8), SPEC, 10, 0.5)
    policy = learner.policy(learner.init(Key(0))).policy
    control = policy.explore(jax.random.key(0), 0)
    drawn = np.array([float(control(jnp.zeros(1), t)[0]) for t in np.arange(0.0, 100.0, 0.5)])
    assert drawn.min() < 0.3
    assert drawn.max() > 3.7
    assert abs(drawn.mean() - 2.0) < 0.3
    assert float(control(jnp.zeros(1), 0.6)[0]) == drawn[1] == float(control(jnp.ones(1), 0.9)[0])


def test_samplers_without_consecutive_times_are_refused():
    with pytest.raises(UnsupportedError, match="sac needs consecutive measurements; use the sampler windows"):
        Sac().build(pc.problems.pendulum(), Budget(100), Uniform(10))
    with pytest.raises(InputError, match="discount: must be below 1"):
        Sac(discount=1.0)

"""Deep PILCO: moments of particles, returns and gradients in closed form, a run on a user's own system."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purectrl as pc
from purectrl.control.deep_pilco import HeldActor, improve, match_moments, particle_return
from purectrl.control.deep_pilco_settings import DeepPilco, ParticleSettings
from purectrl.control.imagination import Region
from purectrl.control.pets_settings import TransitionModelSettings
from purectrl.control.policy import Actor
from purectrl.core import Budget, InputError, Key, UnsupportedError
from purectrl.core.samplers import Uniform
from purectrl.systems.spec import StateSpec

PERIOD = 0.1
SPEC = StateSpec(1, 1, (-2.0,), (2.0,))
NO_LIMITS = jnp.full(1, jnp.inf)
SMALL = {
    "learner.model.width": 16,
    "learner.model.ensemble_size": 2,
    "learner.fit.steps": 300,
    "learner.fit.finetune_steps": 100,
    "learner.plan.steps": 100,
    "learner.plan.horizon": 10,
    "learner.plan.batch_size": 8,
    "learner.plan.width": 16,
    "learner.plan.learning_rate": 1e-2,
    "sampler.length": 2.0,
    "sampler.step": 0.1,
}


class Task(eqx.Module):
    """The reward −x²; episodes begin at 1."""

    def planning_reward(self, x, u, penalty):
        return -(x[..., 0] ** 2) - penalty

    def sample_initial_state(self, key):
        return jnp.ones(1)


class Linear(eqx.Module):
    """Members dx/dt = a_i x + u."""

    rates: jax.Array
    task: Task = Task()

    @property
    def members(self):
        return len(self.rates)

    def drift(self, x, u):
        return self.rates[:, None, None] * x + u


def actor(gain=0.0, seed=0):
    """An actor whose output is a small random function, or zero."""
    made = Actor.random(np.random.default_rng(seed), SPEC, (8, 8))
    return eqx.tree_at(lambda made: made.layers[-1].weight, made, gain * made.layers[-1].weight)


def returned(plan, rates, made, starts=(1.0, -0.5)):
    model, x = Linear(jnp.array(rates)), jnp.array(starts)[:, None]
    return particle_return(plan, PERIOD, model, made, x, NO_LIMITS, jax.random.key(0))


def test_each_particle_follows_its_own_network():
    plan = ParticleSettings(horizon=5, action_l2=0.0)
    value, seen = returned(plan, (-1.0, 2.0), actor())
    powers = np.array([[[(1 + PERIOD * a) ** (k + 1) * x for x in (1.0, -0.5)] for a in (-1.0, 2.0)] for k in range(5)])
    assert np.allclose(seen.x[..., 0], powers, rtol=1e-5)
    assert float(value) == pytest.approx(-(powers**2).mean(), rel=1e-5)


def test_the_gradient_is_that_of_finite_differences():
    plan, rates = ParticleSettings(horizon=5, state_grad_clip=1e6), (-1.0, 2.0)
    found = jax.grad(lambda bias: returned(plan, rates, _shifted(bias))[0])(0.1)
    step = 1e-2
    above, below = (float(returned(plan, rates, _shifted(0.1 + sign * step))[0]) for sign in (1, -1))
    assert float(found) == pytest.approx((above - below) / (2 * step), rel=1e-2)


def _shifted(bias):
    made = actor(1.0)
    return eqx.tree_at(lambda made: made.layers[-1].bias, made, made.layers[-1].bias + bias)


def test_particles_that_are_drawn_anew_keep_their_moments():
    x = jnp.asarray(np.random.default_rng(0).normal([1.0, -3.0], [0.5, 2.0], (20_000, 1, 2)))
    drawn = match_moments(x, jax.random.key(1))
    assert np.allclose(drawn.mean(axis=0), x.mean(axis=0), atol=4 * 2.0 / np.sqrt(20_000))
    assert np.allclose(drawn.std(axis=0), x.std(axis=0), rtol=0.03)
    assert not np.allclose(drawn, x)


def test_matching_moments_changes_nothing_where_networks_agree():
    kept, matched = (
        returned(ParticleSettings(horizon=5, moment_matching=matching), (0.5, 0.5, 0.5), actor(1.0))[0]
        for matching in (False, True)
    )
    assert float(matched) == pytest.approx(float(kept), rel=1e-4)


def test_the_policy_brings_a_known_system_to_its_goal():
    """dx/dt = u from 1 with the reward −x²: the best policy pushes back at once."""
    plan = ParticleSettings(steps=150, horizon=10, learning_rate=2e-2, batch_size=8)
    region = Region(jnp.linspace(-1.0, 1.0, 8)[:, None], jnp.asarray(8), jnp.full(1, 3.0))
    better, returns = improve(plan, PERIOD, Linear(jnp.zeros(2)), actor(1.0), jax.random.key(0), region)
    assert float(returns[-10:].mean()) > float(returns[0]) + 0.1
    assert better(jnp.array([1.0]))[0] < -1.0
    assert better(jnp.array([-1.0]))[0] > 0.3  # fewer rollouts begin there


def test_the_first_controls_are_random_and_later_ones_are_the_actor():
    first, later = (HeldActor(actor(1.0), trained, PERIOD) for trained in (0.0, 1.0))
    x = jnp.array([0.7])
    drawn = [float(first.decide(first.begin(jax.random.key(seed)), x, 0.3)[0][0]) for seed in range(5)]
    assert len(set(drawn)) == 5
    assert np.array_equal(later.decide(later.begin(jax.random.key(0)), x, 0.3)[0], actor(1.0)(x))


def test_what_deep_pilco_cannot_use_is_refused():
    with pytest.raises(UnsupportedError, match="deep-pilco needs consecutive measurements; use the sampler windows"):
        DeepPilco().build(pc.problems.pendulum(), Budget(100), Uniform(10))
    with pytest.raises(InputError, match=r"plan\.moment_matching: needs at least 2 networks"):
        DeepPilco(TransitionModelSettings(ensemble_size=1), plan=ParticleSettings(moment_matching=True))
    with pytest.raises(InputError, match=r"initial_share: must be at most 1, not 1\.5"):
        ParticleSettings(initial_share=1.5)


@pytest.mark.parametrize("matching", [False, True])
def test_a_users_own_system_is_brought_to_its_goal_and_runs_repeat(matching):
    """The level 1 of a tank from about 0: a return of about −1/6 at full control, −2 at rest."""
    problem = pc.problems.continuous(
        name="tank",
        horizon=2.0,
        drift=lambda x, u: 2.0 * u,
        reward=lambda x, u: -((x[0] - 1.0) ** 2),
        initial=lambda key: jax.random.uniform(key, (1,), minval=-0.5, maxval=0.5),
        eval_episodes=2,
    )
    settings = {**SMALL, "learner.plan.moment_matching": matching}
    algorithm = pc.deep_pilco(problem).with_settings(settings)
    result = pc.run(problem, algorithm, measurements=80)
    assert result.ledger.updates == 4
    assert result.metrics["return"] > -0.6
    loop = algorithm.build(problem, Budget(80))
    state = loop.init(Key.from_seed(0))
    for _ in range(4):
        state, _ = loop.step(state)
    for one, other in zip(
        jax.tree.leaves(loop.learner.policy(state.learner)), jax.tree.leaves(result.plan), strict=True
    ):
        assert np.array_equal(one, other)

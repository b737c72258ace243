"""Policy optimization: its pieces against closed forms, and the whole on a cart whose equations are known."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_cart import cart, spec

from purectrl.control.actor_critic import critic_targets, discounted, draw_starts, objective, optimize_policy
from purectrl.control.imagination import (
    Imagined,
    MechanicalTask,
    Region,
    clip_state_gradient,
    control_noise,
    imagine,
    imagined_test,
    planned_reward,
)
from purectrl.control.integrate import midpoint
from purectrl.control.policy import Actor, Critic
from purectrl.control.settings import PlanSettings
from purectrl.core import InputError
from purectrl.systems.acrobot import acrobot

SMALL = PlanSettings(steps=100, batch_size=12, ensemble_size=2, horizon=1.5, critic_batch_size=64)
LIMITS = np.array([5.0, 5.0], np.float32)


class Truth:
    """The system itself as an ensemble of equal members."""

    def __init__(self, system, members=2):
        self.system, self.task = system, MechanicalTask(system)
        self.members, self.drift = members, system.drift

    def select_members(self, members):
        return Truth(self.system, len(members))


jax.tree_util.register_pytree_node(Truth, lambda t: ((), (t.system, t.members)), lambda aux, _: Truth(*aux))


def networks(system, width=16, seed=0):
    generator, known = np.random.default_rng(seed), spec(system)
    return Actor.random(generator, known, (width, width)), Critic.random(generator, known, (width, width))


def test_the_gradient_is_clipped_row_by_row_and_the_state_is_not():
    x = jnp.arange(8.0).reshape(4, 2)
    weights = jnp.array([[0.3, 0.4], [30.0, 40.0], [jnp.nan, 1.0], [0.0, jnp.inf]])
    value, slope = jax.value_and_grad(lambda x: (clip_state_gradient(x, 1.0) * weights)[:2].sum())(x)
    assert value == (x * weights)[:2].sum()
    assert np.allclose(slope[:2], [[0.3, 0.4], [0.6, 0.8]])
    _, back = jax.vjp(lambda x: clip_state_gradient(x, 1.0), x)
    assert np.allclose(back(weights)[0][2:], [[0.0, 1.0], [0.0, 0.0]])


def test_a_constant_reward_has_the_value_of_its_geometric_series_as_the_critic_s_fixed_point():
    reward = 0.7
    value = reward * SMALL.step / (1 - math.exp(-SMALL.step / SMALL.discount))
    returns = discounted(SMALL, jnp.full((SMALL.rollout_steps, 2, 3), reward))
    targets = critic_targets(SMALL, returns, jnp.full((2, 3), value))
    assert targets.shape == returns.shape
    assert np.allclose(targets, value, rtol=1e-5)
    # and from anywhere else the last target comes nearer by the discount of one step
    off = critic_targets(SMALL, returns, jnp.full((2, 3), value + 1.0))
    assert np.allclose(off[-1] - value, math.exp(-SMALL.step / SMALL.discount), rtol=1e-4)


def test_the_objective_is_the_same_at_every_horizon_if_the_critic_is_right():
    reward = 0.7
    value = reward * SMALL.step / (1 - math.exp(-SMALL.step / SMALL.discount))
    returns = discounted(SMALL, jnp.full((SMALL.rollout_steps, 2, 3), reward))
    assert objective(SMALL, returns, jnp.full((SMALL.rollout_steps, 2, 3), value)) == pytest.approx(value, rel=1e-5)


def test_the_optimistic_objective_takes_the_best_member_for_each_start():
    returns = jnp.asarray(np.random.default_rng(0).uniform(size=(SMALL.rollout_steps, 3, 5)))
    nothing = jnp.zeros_like(returns)
    bold = dataclasses.replace(SMALL, objective="optimistic")
    each = returns.mean(axis=0)
    assert objective(bold, returns, nothing) == pytest.approx(float(each.max(axis=0).mean()))
    assert objective(bold, returns, nothing) > objective(SMALL, returns, nothing)


def test_planned_and_true_reward_share_their_maximum_and_only_one_has_a_slope_far_away():
    arm = acrobot()
    free = jnp.full(4, 1e6)

    def planned(x):
        return planned_reward(
            MechanicalTask(arm), Imagined(x, jnp.zeros((*x.shape[:-1], 2)), jnp.zeros((*x.shape[:-1], 2))), free
        )

    assert planned(jnp.asarray(arm.goal)) == pytest.approx(1.0)
    hanging = jnp.array([0.1, 0.1, 0.0, 0.0])
    slope = jax.grad(lambda x: planned(x).sum())(hanging)
    assert jnp.abs(slope).max() > 1e-2
    assert jnp.abs(jax.grad(lambda x: arm.reward(x, jnp.zeros(2)))(hanging)).max() < 1e-5


def test_beyond_its_limits_a_state_loses_reward_and_keeps_a_gradient():
    system = cart()
    actor, _ = networks(system)
    task = MechanicalTask(system)
    starts = jnp.array([[[30.0, 0.0]]])
    run = lambda starts: imagine(SMALL, midpoint, Truth(system, 1), actor, starts, jnp.zeros((3, 1, 1, 1)), LIMITS)  # noqa: E731
    seen = run(starts)
    assert jnp.abs(seen.x[0, 0, 0, 0]) < 11  # clipped to twice the limit
    assert jnp.abs(jax.grad(lambda s: run(s).x[-1, 0, 0, 0])(starts)).max() > 0
    inside = seen._replace(x=jnp.full_like(seen.x, 4.9))
    assert (planned_reward(task, inside, LIMITS) == planned_reward(task, inside, 10 * LIMITS)).all()
    outside = seen._replace(x=jnp.full_like(seen.x, 6.0))
    assert (planned_reward(task, outside, LIMITS) < planned_reward(task, outside, 10 * LIMITS)).all()


def test_imagination_under_the_truth_is_the_truth():
    """Free fall from rest: v = t and q = t²/2, exactly so under the midpoint rule."""
    falling = cart(acceleration=lambda q, v, u: jnp.ones_like(q))
    actor, _ = networks(falling)
    seen = imagine(
        SMALL,
        midpoint,
        Truth(falling, 1),
        actor,
        jnp.zeros((1, 1, 2)),
        jnp.zeros((SMALL.rollout_steps, 1, 1, 1)),
        9 * LIMITS,
    )
    t = 0.1 * np.arange(1, SMALL.rollout_steps + 1)
    assert np.allclose(seen.x[:, 0, 0], np.stack([t**2 / 2, t], axis=1), atol=1e-5)


def test_imagined_noise_is_stationary_with_its_correlation_time():
    loud = dataclasses.replace(SMALL, noise=1.0)
    noise = np.asarray(control_noise(loud, jax.random.key(0), (SMALL.rollout_steps, 2, 20_000, 1)))[..., 0]
    power = (noise**2).mean(axis=(1, 2))
    assert np.allclose(power, 1 / 3, atol=0.02)  # the mean square of Unif(0, 1)
    assert (noise[1:] * noise[:-1]).mean() / (noise**2).mean() == pytest.approx(math.exp(-0.1 / 0.4), abs=0.01)


def test_starts_are_shared_out_as_set():
    task = MechanicalTask(cart(start=0.1))
    shares = {"initial_share": 0.4, "rewarded_share": 0.2, "rollout_end_share": 0.3}
    settings = PlanSettings(batch_size=20, ensemble_size=2, **shares)
    region = Region(jnp.full((7, 2), 40.0), 5, LIMITS)
    pools = jnp.full((30, 2), 20.0), jnp.full((20, 2), 30.0)
    starts = draw_starts(settings, jax.random.key(0), task, region, *pools)
    assert starts.shape == (2, 10, 2)
    counts = [int((jnp.round(starts[..., 0], -1) == place).sum()) for place in (0, 20, 30, 40)]
    assert counts == [8, 4, 6, 2]
    bold = dataclasses.replace(settings, objective="optimistic")
    shared = draw_starts(bold, jax.random.key(0), task, region, *pools)
    assert np.array_equal(shared[0], shared[1])


@pytest.mark.parametrize("kind", ["mean", pytest.param("optimistic", marks=pytest.mark.slow)])
def test_the_policy_gets_better_and_the_critic_learns_its_value(kind):
    """A double integrator with u in ±2: from anywhere in ±1 it can be at rest at 0 within two seconds."""
    system = cart(acceleration=lambda q, v, u: u)
    actor, critic = networks(system, width=32)
    rates = {"actor_learning_rate": 1e-2, "critic_learning_rate": 3e-3}
    settings = dataclasses.replace(SMALL, steps=600, objective=kind, **rates)
    generator = np.random.default_rng(0)
    region = Region(generator.uniform(-2, 2, (64, 2)).astype(np.float32), np.int32(64), LIMITS)
    model = Truth(system)
    better = optimize_policy(settings, midpoint, model, actor, critic, jax.random.key(0), region)
    before = imagined_test(settings, midpoint, model, actor, jax.random.key(1), LIMITS)
    after = imagined_test(settings, midpoint, model, better.actor, jax.random.key(1), LIMITS)
    assert after.mean() > 0.95 > 0.5 > before.mean()
    assert np.allclose(better.reward, after, atol=0.05)
    assert better.planned[-1] > better.planned[0]
    # at the goal nearly every reward to come is 1: the value is near that of the geometric series
    most = settings.step / (1 - math.exp(-settings.step / settings.discount))
    assert 0.8 * most < better.critic(jnp.zeros(2)) < 1.1 * most
    assert better.critic(jnp.zeros(2)) > better.critic(jnp.array([2.0, 2.0]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 10, "ensemble_size": 3}, "ensemble_size: must divide batch_size = 10, got 3"),
        ({"steps": 3}, "steps: must be at least 5, not 3"),
        ({"horizon": 0.01}, "horizon: must hold a step of 0.1 s, not 0.01"),
        ({"initial_share": 0.9}, "initial_share: the shares of rollouts add up to 1.4, more than 1"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        PlanSettings(**settings)

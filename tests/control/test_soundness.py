"""Updates that are finite and bad are found out; healthy ones pass."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import cart, measured

from purectrl.control.imagination import Improving, Region
from purectrl.control.integrate import midpoint
from purectrl.control.misfit import error_scale, mean_loss, places
from purectrl.control.model import Ensemble, Fitting, fit, scales, sequences
from purectrl.control.policy import Actor, Critic
from purectrl.control.soundness import coasting, judge_fit, judge_policy, worth

FITTING = Fitting(points=3, rows=32, step=0.1)
GAP = 0.15
IMPROVING = Improving(rows=12, members=2, horizon=1.5)


def times(factor, tree):
    """The same networks with other weights."""
    return eqx.tree_at(lambda net: net.layers, tree, jax.tree.map(lambda array: factor * array, tree.layers))


@pytest.fixture(scope="module")
def data():
    seen = measured(cart(), episodes=8, m=20, generator=np.random.default_rng(0))
    return seen, places(seen, FITTING.points, GAP)


@pytest.fixture(scope="module")
def fitted(data):
    """An ensemble before and after a fit, and what fits it with a rate that is larger by a factor."""
    seen, _ = data
    start = Ensemble.random(np.random.default_rng(0), cart(), 2, (16, 16)).rescaled(
        *map(jnp.asarray, scales(cart(), seen, GAP))
    )
    rows = sequences(seen, FITTING.points, GAP, seen.t.size)
    train = lambda model, more=1: fit(  # noqa: E731
        FITTING, midpoint, model, jax.random.key(0), rows, 200, more * 3e-3, more * 1e-4
    )[0]
    return start, train(start), train


def test_a_healthy_fit_is_sound_the_first_time_and_later(data, fitted):
    start, good, train = fitted
    assert judge_fit(FITTING, midpoint, start, good, *data) == ""
    assert judge_fit(FITTING, midpoint, good, train(good), *data) == ""


def test_the_coasting_model_knows_that_positions_move_with_velocities(data, fitted):
    x, u = np.random.default_rng(0).normal(size=(2, 2, 5, 2)).astype(np.float32)
    found = coasting(fitted[1]).drift(x, u[..., :1])
    assert np.array_equal(found[..., 0], x[..., 1])
    assert not found[..., 1].any()


@pytest.mark.parametrize("factor", [np.nan, 1e3, -1.0])
def test_weights_that_are_bad_are_found_out(data, fitted, factor):
    """Not a number; an exploding drift; a drift in the wrong direction, which is finite and of the right size."""
    _, good, _ = fitted
    wrong = judge_fit(FITTING, midpoint, good, times(factor, good), *data)
    loss = mean_loss(FITTING, midpoint, good, error_scale(FITTING, good), *data)
    assert wrong.startswith("the fit of the model diverged")
    assert f"(loss {loss:.3g} before it, " in wrong


def test_a_model_that_was_bad_before_is_no_excuse(data, fitted):
    _, good, _ = fitted
    assert judge_fit(FITTING, midpoint, times(1e3, good), times(1e3, good), *data)
    assert judge_fit(FITTING, midpoint, times(1e3, good), good, *data) == ""
    assert judge_fit(FITTING, midpoint, times(np.nan, good), good, *data) == ""


def test_a_rate_that_is_a_thousand_times_too_large_is_found_out_at_any_update(data, fitted):
    start, good, train = fitted
    for before in (start, good):
        assert judge_fit(FITTING, midpoint, before, train(before, more=1000), *data)


class Truth(eqx.Module):
    """A double integrator as a model."""

    members: int = eqx.field(static=True, default=2)

    def drift(self, x, u):
        return cart(acceleration=lambda q, v, u: u).drift(x, u)


@pytest.fixture(scope="module")
def pairs():
    """Actor and critic that do nothing; and an actor u ∝ −q − 2v, which brings the double integrator to rest at 0."""
    mechanism, generator = cart(acceleration=lambda q, v, u: u), np.random.default_rng(0)
    actor, critic = Actor.random(generator, mechanism, (4, 4)), Critic.random(generator, mechanism, (4, 4))
    idle = times(0.0, actor)
    to_unit = jnp.array([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]])
    out = jnp.array([[-0.5], [0.5], [-1.0], [1.0]])
    weights = lambda net: [layer.weight for layer in net.layers]  # noqa: E731
    return (idle, critic), (eqx.tree_at(weights, idle, [to_unit, jnp.eye(4), out]), critic)


def judge(before, after):
    states = np.random.default_rng(0).uniform(-1, 1, (64, 2)).astype(np.float32)
    region = Region(np.concatenate([states, np.full((9, 2), 1e9, np.float32)]), np.int32(64), np.full(2, 5, np.float32))
    return judge_policy(IMPROVING, midpoint, Truth(), before, after, jax.random.key(0), region), region


def test_a_policy_that_gets_better_is_sound_and_one_that_gets_worse_is_not(pairs):
    idle, good = pairs
    assert judge(idle, good)[0] == ""
    assert judge(good, good)[0] == ""
    assert judge(good, idle)[0].startswith("the policy improvement diverged (the policy was worth 0.9")


def test_a_saturated_policy_is_found_out_even_against_one_that_does_nothing(pairs):
    idle, (actor, critic) = pairs
    wrong, region = judge(idle, (times(30.0, actor), critic))
    assert wrong.startswith("the policy improvement diverged")
    value, _ = worth(IMPROVING, midpoint, Truth(), actor, critic, jax.random.key(0), region)
    effort = (actor.before_tanh(region.states[:64]) ** 2).mean() * IMPROVING.calm
    assert 0.9 < value + effort <= 1.0  # the padding of the region does not count


def test_a_policy_or_a_critic_that_is_not_a_number_is_found_out(pairs):
    idle, (actor, critic) = pairs
    assert "diverged" in judge(idle, (times(np.nan, actor), critic))[0]
    assert judge(idle, (actor, times(np.nan, critic)))[0].startswith("the critic diverged")
    assert judge((times(np.nan, actor), critic), (actor, critic))[0] == ""


def test_a_critic_promises_no_more_than_rewards_can_add_up_to(pairs):
    idle, (actor, critic) = pairs
    assert judge(idle, (actor, times(1e3, critic)))[0].startswith("the critic diverged (its values are about ")
    assert "rewards add up to 5 at most" in judge(idle, (actor, times(1e3, critic)))[0]

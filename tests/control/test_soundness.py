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
from purectrl.control.networks import Layer, glorot
from purectrl.control.policy import Actor, Critic
from purectrl.control.soundness import coasting, heaviness, judge_fit, judge_policy, worth

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
    train = lambda model, more=1, steps=200: fit(  # noqa: E731
        FITTING, midpoint, model, jax.random.key(0), rows, steps, more * 3e-3, more * 1e-4
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


@pytest.mark.parametrize("factor", [1e3, -1.0])
def test_weights_that_are_bad_are_found_out(data, fitted, factor):
    """An exploding drift; a drift in the wrong direction, which is finite and of the right size."""
    _, good, _ = fitted
    loss = mean_loss(FITTING, midpoint, good, error_scale(FITTING, good), *data)
    wrong = judge_fit(FITTING, midpoint, good, times(factor, good), *data)
    assert wrong.startswith(f"the fit of the model diverged (loss {loss:.3g} before it, ")


def test_a_model_that_is_not_a_number_is_found_out(data, fitted):
    wrong = judge_fit(FITTING, midpoint, fitted[1], times(np.nan, fitted[1]), *data)
    assert wrong == "the fit of the model diverged (it has left the finite numbers)"


def test_a_model_that_was_bad_before_is_no_excuse(data, fitted):
    _, good, _ = fitted
    assert judge_fit(FITTING, midpoint, times(1e3, good), times(1e3, good), *data)
    assert judge_fit(FITTING, midpoint, times(1e3, good), good, *data) == ""
    assert judge_fit(FITTING, midpoint, times(np.nan, good), good, *data) == ""


def test_a_rate_that_is_a_thousand_times_too_large_is_found_out_at_any_update(data, fitted):
    start, good, train = fitted
    for before in (start, good):
        # with many more steps the networks die, and what is left is the coasting model: useless, but not wild
        assert judge_fit(FITTING, midpoint, before, train(before, more=1000, steps=20), *data)


class Truth(eqx.Module):
    """A double integrator as a model."""

    members: int = eqx.field(static=True, default=2)
    mechanism = cart(acceleration=lambda q, v, u: u)

    def drift(self, x, u):
        return self.mechanism.drift(x, u)


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


@pytest.fixture(scope="module")
def region():
    states = np.random.default_rng(0).uniform(-1, 1, (64, 2)).astype(np.float32)
    padded = np.concatenate([states, np.full((9, 2), 1e9, np.float32)])
    return Region(padded, np.int32(64), np.full(2, 5, np.float32))


@pytest.fixture(scope="module")
def judge(region):
    how = IMPROVING, midpoint, Truth()
    return lambda before, after: judge_policy(*how, before, after, jax.random.key(0), region)


def test_a_policy_that_gets_better_is_sound_and_one_that_gets_worse_is_not(judge, pairs):
    idle, good = pairs
    assert judge(idle, good) == ""
    assert judge(good, good) == ""
    assert judge(good, idle).startswith("the actor diverged (the policy was worth 0.9")


def test_a_policy_is_worth_its_reward_less_its_effort(region, pairs):
    """The double integrator is at rest at 0 before the test counts; the padding of the region does not count."""
    _, (actor, critic) = pairs
    value, size = worth(IMPROVING, midpoint, Truth(), actor, critic, jax.random.key(0), region)
    x = region.states[:64]
    effort = IMPROVING.calm * ((0.5 * x[:, 0] + x[:, 1]) ** 2).mean()
    assert 0.98 < value + effort <= 1.0
    assert size == pytest.approx(float(np.abs(critic(x)).mean()), rel=1e-5)


def test_an_actor_that_is_saturated_everywhere_is_worth_little_against_one_that_does_nothing(judge, pairs):
    idle, (actor, critic) = pairs
    loud = eqx.tree_at(lambda net: net.layers[2].weight, actor, 5 * actor.layers[2].weight)
    louder = eqx.tree_at(lambda net: net.scale, loud, 0.02 * loud.scale)
    assert heaviness(louder.layers) < 10
    assert judge(idle, (louder, critic)).startswith("the actor diverged (the policy was worth ")


def test_a_policy_or_a_critic_that_is_not_a_number_is_found_out(judge, pairs):
    idle, (actor, critic) = pairs
    assert judge(idle, (times(np.nan, actor), critic)) == "the actor diverged (it has left the finite numbers)"
    assert judge(idle, (actor, times(np.nan, critic))) == "the critic diverged (it has left the finite numbers)"
    assert judge((times(np.nan, actor), critic), (actor, critic)) == ""


def test_weights_ten_times_those_of_glorot_are_found_out(judge, pairs):
    idle, (actor, critic) = pairs
    for name, after in (("actor", (times(30.0, actor), critic)), ("critic", (actor, times(30.0, critic)))):
        assert judge(idle, after).startswith(f"the {name} diverged (its weights are ")


def test_a_critic_promises_no_more_than_rewards_can_add_up_to(judge, pairs):
    idle, (actor, critic) = pairs
    bias = critic.layers[2].bias
    shifted = lambda by: eqx.tree_at(lambda net: net.layers[2].bias, critic, bias + by)  # noqa: E731
    assert judge(idle, (actor, shifted(5.0))) == ""
    wrong = judge(idle, (actor, shifted(-1000.0)))
    assert wrong.startswith("the critic diverged (its values are about 1e+03, rewards add up to 5 at most)")


def test_heaviness_is_one_for_new_networks_and_that_of_the_worst_layer():
    layers = glorot(np.random.default_rng(0), (40, 60, 80, 1))
    assert heaviness(layers) == pytest.approx(1.0, abs=0.15)
    worse = (layers[0], Layer(7 * layers[1].weight, layers[1].bias), layers[2])
    assert heaviness(worse) == pytest.approx(7 * heaviness(layers[1:2]), rel=1e-6)

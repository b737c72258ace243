"""Updates that are finite and wrong are detected; healthy ones pass."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_cart import cart, measured, spec

from purectrl.control.divergence import check_policy, regularized_return, relative_weight_norm
from purectrl.control.ensembles import Ensemble
from purectrl.control.fit import fit_ensemble
from purectrl.control.imagination import MechanicalTask, Region
from purectrl.control.integrate import midpoint
from purectrl.control.mechanical import MechanicalDynamics, zero_acceleration_baseline
from purectrl.control.networks import Layer, glorot
from purectrl.control.policy import Actor, Critic
from purectrl.control.settings import FitSettings, PlanSettings
from purectrl.control.trajectories import Pairs, error_scale, mean_loss, scales, sequences, window_starts
from purectrl.core.keys import Key
from purectrl.core.schedules import Targets

FIT = FitSettings(sequence_length=3, batch_size=32, max_gap=0.15)
DYNAMICS = MechanicalDynamics(cart(), FIT, 160, 0.1, midpoint, Ensemble.random, 2, 16)
OBJECTIVE = DYNAMICS.objective
PLAN = PlanSettings(batch_size=12, ensemble_size=2, horizon=1.5)


def times(factor, tree):
    """The same networks with other weights."""
    return eqx.tree_at(lambda net: net.layers, tree, jax.tree.map(lambda array: factor * array, tree.layers))


@pytest.fixture(scope="module")
def data():
    return measured(cart(), episodes=8, m=20, generator=np.random.default_rng(0))


@pytest.fixture(scope="module")
def fitted(data):
    """An ensemble before and after a fit, and a fit with a learning rate that is larger by a factor."""
    start = Ensemble.random(np.random.default_rng(0), cart(), 2, (16, 16)).rescale(
        *map(jnp.asarray, scales(cart(), data, Pairs(FIT.max_gap)))
    )
    rows = sequences(data, FIT.sequence_length, Pairs(FIT.max_gap), data.t.size)
    train = lambda model, more=1, steps=200: fit_ensemble(  # noqa: E731
        OBJECTIVE, model, jax.random.key(0), rows, steps, more * 3e-3, more * 1e-4
    )[0]
    return start, train(start), train


def test_a_fit_of_more_data_takes_as_many_steps_as_its_epochs_ask_for(data):
    """With a batch of all sub-sequences, eight passes are eight steps; four are set."""
    size = int(sequences(data, FIT.sequence_length, DYNAMICS.pairs, data.t.size).size)
    few = replace(FIT, gradient_matching_steps=0, steps=4, batch_size=size)
    fits = [
        replace(DYNAMICS, settings=settings).fit(
            DYNAMICS.init(Key.from_seed(0)), data, Targets.BOTH, True, Key.from_seed(1)
        )
        for settings in (replace(few, epochs=8), replace(few, steps=8), few)
    ]
    weights = [fit.model.layers[0].weight for fit in fits]
    assert np.array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


def test_a_healthy_fit_passes_the_first_time_and_later(data, fitted):
    start, good, train = fitted
    assert DYNAMICS.check_fit(start, good, data) == ""
    assert DYNAMICS.check_fit(good, train(good), data) == ""


def test_the_baseline_knows_that_positions_move_with_velocities(data, fitted):
    x, u = np.random.default_rng(0).normal(size=(2, 2, 5, 2)).astype(np.float32)
    found = zero_acceleration_baseline(fitted[1]).drift(x, u[..., :1])
    assert np.array_equal(found[..., 0], x[..., 1])
    assert not found[..., 1].any()


@pytest.mark.parametrize("factor", [1e3, -1.0])
def test_wrong_weights_are_detected(data, fitted, factor):
    """An exploding drift; a drift in the wrong direction, which is finite and of the right size."""
    _, good, _ = fitted
    starts = window_starts(data, FIT.sequence_length, Pairs(FIT.max_gap))
    loss = mean_loss(OBJECTIVE, good, error_scale(OBJECTIVE, good), data, starts)
    wrong = DYNAMICS.check_fit(good, times(factor, good), data)
    assert wrong.startswith(f"the fit of the model diverged (loss {loss:.3g} before it, ")


def test_a_model_that_is_not_finite_is_detected(data, fitted):
    wrong = DYNAMICS.check_fit(fitted[1], times(np.nan, fitted[1]), data)
    assert wrong == "the fit of the model diverged (it contains numbers that are not finite)"


def test_a_model_that_was_wrong_before_is_no_reference(data, fitted):
    _, good, _ = fitted
    assert DYNAMICS.check_fit(times(1e3, good), times(1e3, good), data)
    assert DYNAMICS.check_fit(times(1e3, good), good, data) == ""
    assert DYNAMICS.check_fit(times(np.nan, good), good, data) == ""


def test_a_learning_rate_that_is_a_thousand_times_too_large_is_detected_at_any_update(data, fitted):
    start, good, train = fitted
    for before in (start, good):
        # with many more steps the units saturate, and the baseline remains: useless, but not divergent
        assert DYNAMICS.check_fit(before, train(before, more=1000, steps=20), data)


class Truth(eqx.Module):
    """A double integrator as a model."""

    members: int = eqx.field(static=True, default=2)
    task = MechanicalTask(cart(acceleration=lambda q, v, u: u))

    def drift(self, x, u):
        return self.task.system.drift(x, u)


@pytest.fixture(scope="module")
def pairs():
    """Actor and critic that do nothing; and an actor u ∝ −q − 2v, which brings the double integrator to rest at 0."""
    known, generator = spec(cart(acceleration=lambda q, v, u: u)), np.random.default_rng(0)
    actor, critic = Actor.random(generator, known, (4, 4)), Critic.random(generator, known, (4, 4))
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
def check(region):
    how = PLAN, midpoint, Truth()
    return lambda before, after: check_policy(*how, before, after, jax.random.key(0), region)


def test_a_policy_that_gets_better_passes_and_one_that_gets_worse_does_not(check, pairs):
    idle, good = pairs
    assert check(idle, good) == ""
    assert check(good, good) == ""
    assert check(good, idle).startswith("the actor diverged (the imagined return was 0.9")


def test_the_regularized_return_is_the_reward_less_the_effort(region, pairs):
    """The double integrator is at rest at 0 before the test counts; the padding of the region does not count."""
    _, (actor, critic) = pairs
    value, size = regularized_return(PLAN, midpoint, Truth(), actor, critic, jax.random.key(0), region)
    x = region.states[:64]
    effort = PLAN.action_l2 * ((0.5 * x[:, 0] + x[:, 1]) ** 2).mean()
    assert 0.98 < value + effort <= 1.0
    assert size == pytest.approx(float(np.abs(critic(x)).mean()), rel=1e-5)


def test_a_saturated_actor_has_a_lower_return_than_one_that_does_nothing(check, pairs):
    idle, (actor, critic) = pairs
    loud = eqx.tree_at(lambda net: net.layers[2].weight, actor, 5 * actor.layers[2].weight)
    louder = eqx.tree_at(lambda net: net.scale, loud, 0.02 * loud.scale)
    assert relative_weight_norm(louder.layers) < 10
    assert check(idle, (louder, critic)).startswith("the actor diverged (the imagined return was ")


def test_a_policy_or_a_critic_that_is_not_finite_is_detected(check, pairs):
    idle, (actor, critic) = pairs
    assert check(idle, (times(np.nan, actor), critic)) == "the actor diverged (it contains numbers that are not finite)"
    assert (
        check(idle, (actor, times(np.nan, critic))) == "the critic diverged (it contains numbers that are not finite)"
    )
    assert check((times(np.nan, actor), critic), (actor, critic)) == ""


def test_weights_ten_times_those_of_glorot_are_detected(check, pairs):
    idle, (actor, critic) = pairs
    for name, after in (("actor", (times(30.0, actor), critic)), ("critic", (actor, times(30.0, critic)))):
        assert check(idle, after).startswith(f"the {name} diverged (its weights are ")


def test_the_values_of_a_critic_are_limited_by_what_rewards_can_add_up_to(check, pairs):
    idle, (actor, critic) = pairs
    bias = critic.layers[2].bias
    shifted = lambda by: eqx.tree_at(lambda net: net.layers[2].bias, critic, bias + by)  # noqa: E731
    assert check(idle, (actor, shifted(5.0))) == ""
    wrong = check(idle, (actor, shifted(-1000.0)))
    assert wrong.startswith("the critic diverged (its values are about 1e+03, rewards add up to 5 at most)")


def test_the_relative_weight_norm_is_one_for_new_networks_and_that_of_the_worst_layer():
    layers = glorot(np.random.default_rng(0), (40, 60, 80, 1))
    assert relative_weight_norm(layers) == pytest.approx(1.0, abs=0.15)
    worse = (layers[0], Layer(7 * layers[1].weight, layers[1].bias), layers[2])
    assert relative_weight_norm(worse) == pytest.approx(7 * relative_weight_norm(layers[1:2]), rel=1e-6)


def test_a_fit_anew_does_not_depend_on_the_networks_before(data):
    few = replace(FIT, gradient_matching_steps=0, finetune_steps=5)
    anew, warm = (replace(DYNAMICS, settings=few, refit=refit) for refit in (True, False))
    starts = [anew.init(Key.from_seed(seed)) for seed in (0, 1)]
    fit = lambda dynamics: [  # noqa: E731
        dynamics.fit(start, data, Targets.DRIFT, False, Key.from_seed(2)).model.layers for start in starts
    ]
    equal = lambda one, other: all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))  # noqa: E731
    assert equal(*fit(anew))
    assert not equal(*fit(warm))

"""Optimism, greedy plans and Thompson sampling: which models a plan is made for; and the systems of `neural`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purectrl.core import InputError, Key
from purectrl.core.system import System
from purectrl.problems.neural_systems import neural_parts
from purectrl.theory.classes import FiniteClass, RegressionData
from purectrl.theory.gradient_planner import GradientPlanner
from purectrl.theory.linear import LinearClass, Statistics
from purectrl.theory.neural import NeuralClass, pad
from purectrl.theory.policy_classes import GaussianInitials
from purectrl.theory.settings import NeuralSets

NOTHING = RegressionData(*(np.zeros((0, 1), np.float32),) * 3)
SEEN = Statistics(np.full((1, 1), 4.0), np.full((1, 1), 1.0), 2.0)
"""Four rows φ = 1 with mean 1/4: the set of radius 1 is |θ − 1/4| ≤ 1/2."""


def planned(exploration, seed=0):
    """The plan for dx = θ dt with reward x, whose value is θ times the left sum of ∫ t dt."""
    system = System("line", 1, 1, 1.0, lambda x, u: x, lambda x, u: jnp.float32(0.01), lambda x, u: x[0], (-9, 9))
    drifts, rewards = LinearClass(lambda x, u: jnp.ones(1), 2.0, outputs=1), LinearClass(lambda x, u: x, 1.0)
    push, initials = FiniteClass.of([lambda x: jnp.zeros(1)]), GaussianInitials(1, limit=0.0, std=0.0)
    budget = {"steps": 10, "paths": 8, "num_restarts": 4, "iterations": 150, "learning_rate": 0.1}
    planner = GradientPlanner(system, push, initials, drifts, rewards, **budget, exploration=exploration)
    known = Statistics(np.full((1, 1), 1e6), np.full((1, 1), 0.9e6), 0.81e6)
    sets = drifts.confidence_set(SEEN, NOTHING, 1.0), rewards.confidence_set(known, NOTHING, 1.0)
    return planner(Key(seed), *sets, planner.sample(Key(1), *sets))[0], drifts


def test_optimism_takes_the_best_model_greed_the_best_fit_and_thompson_any():
    optimist, greedy = (planned(exploration)[0] for exploration in ("optimism", "greedy"))
    assert float(optimist.drift[0, 0]) == pytest.approx(0.75, abs=0.02)
    assert float(greedy.drift[0, 0]) == pytest.approx(0.25, abs=1e-3)
    assert greedy.value == pytest.approx(0.25 * 0.9 * 0.45, abs=0.01)
    assert optimist.value == pytest.approx(0.75 * 0.9 * 0.45, abs=0.01)
    drawn = []
    for seed in range(6):
        found, drifts = planned("thompson", seed)
        assert drifts.contains(SEEN, np.asarray(found.drift, np.float64), NOTHING, 1.0)
        assert found.value <= optimist.value + 0.01
        drawn.append(float(found.drift[0, 0]))
    assert np.std(drawn) > 0.05
    assert planned("thompson", 3)[0].drift == planned("thompson", 3)[0].drift


def test_a_random_network_is_in_the_set_and_not_the_best_fit():
    parts = neural_parts("swing-up")
    members = NeuralClass(lambda key: parts.network(key, 8), outputs=2, update_steps=20, rows=512)
    draws = np.random.default_rng(0)
    rows = RegressionData(*(np.float32(draws.normal(size=(30, columns))) for columns in (2, 1, 2)))
    fit = members.refit(members.init(Key(0), 2, 1), rows, thorough=True)
    sets = members.confidence_set(fit, rows, beta=2.0)
    assert sets.data.y.shape == (512, 2)
    assert sets.data.weights.sum() == 30
    found = members.draw(sets, Key(1))
    assert members.contains(fit, found, rows, 2.0)
    assert members.excess_loss(fit, found, rows) > 0.01
    assert not members.contains(fit, found, rows, 0.5 * members.excess_loss(fit, found, rows))
    middle = members.middle(sets)
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (middle, fit.best)), strict=True))


def test_padding_grows_by_factors_of_four():
    rows = lambda count: RegressionData(*(np.zeros((count, 1), np.float32),) * 3)  # noqa: E731
    assert [len(pad(rows(count)).x) for count in (0, 128, 129, 513)] == [128, 128, 512, 2048]
    assert [len(pad(rows(count), 2048).x) for count in (5, 2049)] == [2048, 8192]


@pytest.mark.parametrize(("name", "d", "k"), [("pendulum", 2, 1), ("swing-up", 2, 1), ("quadrotor", 6, 2)])
def test_the_classes_of_a_system_fit_it_and_contain_its_reward(name, d, k):
    parts = neural_parts(name)
    draws = np.random.default_rng(0)
    x, u = jnp.asarray(draws.normal(size=d), jnp.float32), jnp.asarray(draws.normal(size=k), jnp.float32)
    system = parts.mechanics.system(2.0, 0.1)
    assert float(parts.rewards.features(x, u)[0]) == pytest.approx(float(system.reward(x, u)), rel=1e-5)
    network = parts.network(jax.random.key(0), 16)
    assert network(x, u).shape == (d,)
    assert np.allclose(network(x, u)[: d // 2], x[d // 2 :])
    assert float(jnp.abs(network(x, u)[d // 2 :]).max()) < 3.0  # a tenth of its limit
    assert parts.initials.apply(parts.initials.init(Key(0)), jax.random.key(0)).shape == (d,)
    assert parts.policies.apply(parts.policies.init(Key(0)), x).shape == (k,)


def test_the_swing_up_cannot_be_lifted_and_the_pendulum_can():
    """At θ = π/2 gravity accelerates by 15."""
    horizontal, down = jnp.array([jnp.pi / 2, 0.0]), lambda name: -jnp.ones(1) * neural_parts(name).limit
    for name, lifted in (("pendulum", True), ("swing-up", False)):
        parts = neural_parts(name)
        turn = float(parts.mechanics.drift(horizontal, down(name))[1])
        assert (turn <= 1e-5) == lifted


def test_the_ways_to_explore_are_named():
    with pytest.raises(InputError, match="exploration"):
        NeuralSets(exploration="curious")

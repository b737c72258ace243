"""Brownian motion on a circle: its closed forms against quadrature and simulation, and the problem built on it."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purectrl.core import InputError, Key, UnsupportedError
from purectrl.core.algorithm import Algorithm
from purectrl.core.samplers import Equidistant, ExponentialGaps, Uniform, Windows
from purectrl.core.schedules import OnExcessLoss
from purectrl.problems.circle import circle
from purectrl.runs.api import run
from purectrl.systems import circle_statistics as statistics
from purectrl.theory.independency import independency_coefficient
from purectrl.theory.policy_classes import make_plan
from purectrl.theory.settings import LinearSets

ANGLES = np.linspace(0.0, 2 * np.pi, 4001)[:-1]


def bump(x):
    return (1 + np.cos(x)) / 2


def given(z, variance):
    """E ψ² after a Gaussian step from z, by quadrature over the line."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    return float(weights @ bump(z + math.sqrt(variance) * nodes) ** 2 / weights.sum())


@pytest.mark.parametrize(("g", "m"), [(0.7, 2), (2.0, 5), (2.0, 20)])
def test_c_is_the_supremum_over_all_pasts(g, m):
    """By quadrature over 400 pasts, of which π is one."""
    pasts = np.linspace(0.0, 2 * np.pi, 401)
    least = min(given(z, g**2 / m) for z in pasts)
    expected = np.mean(bump(ANGLES) ** 2) / least
    assert statistics.independency_circle(Equidistant(m), g, 1.0) == pytest.approx(expected, rel=1e-6)


def test_c_of_one_early_measurement_from_the_opposite_point():
    g, mean_gap = 1.5, 0.05
    places, weights = np.polynomial.laguerre.laggauss(60)
    early = weights @ [given(np.pi, g**2 * mean_gap * place) for place in places]
    times = (np.arange(400) + 0.5) / 400
    uniform = np.mean([given(np.pi, g**2 * t) for t in times])
    assert statistics.information("opposite", g, 1.0) == pytest.approx(uniform, rel=1e-4)
    assert statistics.mean_bump("opposite", g, 1.0) == pytest.approx(
        np.mean([(1 - math.exp(-(g**2) * t / 2)) / 2 for t in times]), rel=1e-4
    )
    sampler = ExponentialGaps(1, mean_gap)
    assert statistics.independency_circle(sampler, g, 1.0, "opposite") == pytest.approx(uniform / early, rel=1e-4)
    assert statistics.measured_information(sampler, g, 1.0, "opposite") == pytest.approx(early, rel=1e-6)


def test_infinite_and_unknown_coefficients():
    at_the_start = Windows(count=1, length=0.1, step=0.1, from_start=True)
    assert statistics.independency_circle(at_the_start, 1.0, 1.0, "opposite") == math.inf
    assert statistics.independency_circle(Uniform(1), 1.0, 1.0, "opposite") == 1.0
    with pytest.raises(UnsupportedError, match="no closed form for Uniform"):
        statistics.independency_circle(Uniform(3), 1.0, 1.0)


def test_the_nested_simulation_finds_no_more_than_the_closed_form():
    problem = circle(diffusion=1.0, distance=0.25)
    assert problem.finite is not None
    counts = {"steps": 4, "pasts": 64, "futures": 256, "pool": 512}
    found = independency_coefficient(
        Key.from_seed(0), problem.system, *problem.finite.classes, sampler=Equidistant(2), **counts
    )
    exact = statistics.independency_circle(Equidistant(2), 1.0, 1.0)
    assert 0.6 * exact < found.value < exact + 4 * found.error


def test_correlations_and_the_design_effect_are_those_of_simulated_episodes():
    g, m, episodes = 1.0, 4, 40_000
    draws = np.random.default_rng(0)
    steps = g * math.sqrt(1 / m) * draws.normal(size=(episodes, m))
    x = draws.uniform(0, 2 * np.pi, size=(episodes, 1)) + np.cumsum(steps, axis=1)
    squares = bump(x) ** 2
    effect = squares.sum(axis=1).var() / (m * squares.var())
    assert statistics.design_effect(m, g, 1.0) == pytest.approx(effect, rel=0.03)


@pytest.mark.parametrize("arguments", [{"dimension": 3, "distance": 0.2}, {"start": "opposite", "distance": 0.4}])
def test_values_are_those_of_simulated_paths(arguments):
    problem = circle(steps=200, **arguments)
    assert problem.finite is not None
    values, classes = problem.finite.values(0).mean, problem.finite.classes
    assert values.shape == (classes.policies.size, 1, 1, classes.rewards.size)
    pair = make_plan(classes.policies, 1, classes.initials, 0)
    found, error = problem.value(pair)
    assert float(found) == pytest.approx(values[1, 0, 0, -1], abs=4 * float(error) + 2e-3)
    assert problem.finite.gap(pair) == pytest.approx(values[:, 0, 0, -1].max() - values[1, 0, 0, -1])


def test_values_of_the_linear_classes_are_those_of_simulated_paths():
    problem = circle(dimension=3, distance=0.2, steps=100)
    models = problem.continuous
    assert models is not None
    assert problem.finite is not None
    plan = make_plan(models.policies, np.array([0.5, -1.0, 2.0], np.float32), models.initials, np.zeros(0, np.float32))
    simulated, error = problem.value(plan)
    assert float(models.value(plan)[0]) == pytest.approx(float(simulated), abs=4 * float(error) + 1e-3)
    best = make_plan(models.policies, np.full(3, -20.0, np.float32), models.initials, np.zeros(0, np.float32))
    assert models.gap(best) == pytest.approx(0.0, abs=1e-6)
    assert models.optimum()[0] == pytest.approx(problem.finite.optimum()[0])


def test_linear_classes_contain_the_truth_and_count_doublings_of_the_determinant():
    problem = circle(dimension=2, distance=0.2, steps=2)
    learner = LinearSets(radius="anytime", paths=4, num_restarts=1, iterations=2)
    result = run(problem, Algorithm(Uniform(), OnExcessLoss(), learner), measurements=64, seed=0)
    assert result.metrics["covered"]
    # per doubling of n, each of three features adds at most one doubling, and the drift, which is known, none
    assert 0 < result.metrics["determinant_doublings"] < 3 * (math.log2(64) + 10)


def test_the_truth_is_tried_last():
    problem = circle(dimension=2)
    assert problem.finite is not None
    assert problem.truth.reward.index == 3
    best = problem.finite.values(0).mean.max(axis=0)[0, 0]
    assert best.tolist() == [best[0]] * 4  # all rewards promise the same, so the first in the list is chosen


def test_rewards_stay_between_zero_and_one():
    problem = circle(dimension=4, distance=0.25)
    controls = jnp.asarray([[1.0, -1.0, 1.0, 1.0], [-1.0, -1.0, -1.0, -1.0]])
    found = jax.vmap(lambda u: jax.vmap(lambda x: problem.system.reward(x[None], u))(jnp.asarray(ANGLES)))(controls)
    assert 0 <= float(found.min()) < float(found.max()) <= 1


def test_no_algorithm_is_better_than_the_lower_bound():
    """The likelihood-ratio test with the known distance, which is Bayes' rule, averaged over both truths."""
    N, eta, runs = 200, 0.2, 2000
    draws = np.random.default_rng(1)
    psi = bump(draws.uniform(0, 2 * np.pi, size=(runs, N)))
    evidence = np.cumsum(psi * (eta * psi + draws.normal(size=(runs, N))), axis=1) * eta
    wrong = np.concatenate([np.full((runs, 1), 0.5), evidence[:, :-1] < 0], axis=1)
    bound = statistics.bayes_regret(N, eta, 1.0)
    assert bound <= eta * wrong.mean() + 4 * eta * wrong.mean(axis=1).std() / math.sqrt(runs)
    assert bound == pytest.approx(eta * wrong.mean(), rel=0.1)  # and it is not far below


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dimension": 9}, "dimension: must lie between 1 and 8, not 9"),
        ({"distance": 0.6}, "distance: rewards stay in .0, 1. for 0 < η ≤ 0.5, not 0.6"),
        ({"diffusion": 0.0}, "diffusion: g. must be positive on the circle, not 0.0"),
        ({"dimension": 2, "start": "opposite"}, "start: opposite is the point"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        circle(**arguments)

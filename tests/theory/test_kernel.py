"""Kernel classes: the dual formulas of Gaussian processes, membership of the truth, coverage, runs with `kernel-sets`."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from purectrl.core import Budget, Key, UnsupportedError
from purectrl.core.algorithm import Algorithm
from purectrl.core.samplers import Uniform
from purectrl.core.schedules import OnExcessLoss
from purectrl.problems.circle import WAVES, circle
from purectrl.problems.theory import lqr
from purectrl.problems.theory_classes import lqr_kernel_classes
from purectrl.runs.api import run
from purectrl.theory.build import predicting
from purectrl.theory.classes import RegressionData, TrueFunction
from purectrl.theory.confidence import prequential_radius
from purectrl.theory.kernel import choose_points, gaussian_kernel, kernel_class, kernel_features
from purectrl.theory.linear import information_gain
from purectrl.theory.settings import KernelSets

KERNEL = gaussian_kernel(np.array([0.4, 2.0]))
CANDIDATES = np.stack(np.meshgrid(np.linspace(-1, 1, 9), [-1.0, 0.0, 1.0]), axis=-1).reshape(-1, 2)


def exact(rows, columns):
    """The kernel matrix, by NumPy."""
    off = (rows[:, None] - columns[None]) / np.array([0.4, 2.0])
    return np.exp(-(off**2).sum(axis=-1) / 2)


def data(count, seed=0):
    z = np.random.default_rng(seed).uniform(-1, 1, size=(count, 2)).astype(np.float32)
    return z, RegressionData(z[:, :1], z[:, 1:], np.zeros((count, 1)))


def test_points_explain_all_candidates_within_the_tolerance():
    points = choose_points(KERNEL, CANDIDATES, tolerance=0.01)
    assert 3 < len(points) < len(CANDIDATES)
    cross = exact(CANDIDATES, points)
    explained = (cross * np.linalg.solve(exact(points, points), cross.T).T).sum(axis=1)
    assert (1 - explained).max() <= 0.01 + 1e-5
    forced = choose_points(KERNEL, CANDIDATES, first=2, tolerance=0.1)
    assert forced[:2].tolist() == CANDIDATES[:2].tolist()


def test_ridge_regression_is_the_posterior_mean_of_a_gaussian_process():
    """With all points of the data as points of the class: k_Z = k there, and the dual formula has no features."""
    z, rows = data(12)
    y = np.sin(3 * z[:, :1])
    members = kernel_class(kernel_features(KERNEL, z), z, bound=100.0, state_dim=1)
    phi, ridge = members.feature_rows(rows), 0.1
    assert phi @ phi.T == pytest.approx(exact(z, z), abs=2e-4)
    new, new_rows = data(5, seed=1)
    theta = np.linalg.solve(phi.T @ phi + ridge * np.eye(12), phi.T @ y)
    dual = exact(new, z) @ np.linalg.solve(exact(z, z) + ridge * np.eye(12), y)
    assert members.feature_rows(new_rows) @ theta == pytest.approx(dual, abs=2e-3)


def test_information_gain_is_that_of_the_kernel_matrix():
    z, rows = data(10)
    members = kernel_class(kernel_features(KERNEL, z), z, bound=1.0, state_dim=1)
    statistics = members.observe(members.init(Key(0), 1, 1), rows)
    expected = np.linalg.slogdet(np.eye(10) + exact(z, z) / 0.3)[1] / 2
    assert information_gain(statistics, 0.3) == pytest.approx(expected, abs=1e-3)


def test_prediction_losses_and_information_gain_are_one_identity():
    """Σ (f̂_{t−1} − y_t)²/(1 + v_t/λ) is the smallest ridge loss, and ½ Σ log(1 + v_t/λ) the information gain."""
    z, rows = data(30)
    y = np.random.default_rng(3).normal(size=(30, 1))
    members = kernel_class(kernel_features(KERNEL, choose_points(KERNEL, CANDIDATES, tolerance=0.05)), z, 1.0, 1)
    phi, ridge = members.feature_rows(rows), 0.2
    empty = members.init(Key(0), 1, 1)
    losses = empty.prediction_losses(phi, y, ridge)
    p, spread = phi.shape[1], []
    for t in range(30):
        before = phi[:t].T @ phi[:t] + ridge * np.eye(p)
        spread.append(1 + phi[t] @ np.linalg.solve(before, phi[t]))
    theta = np.linalg.solve(phi.T @ phi + ridge * np.eye(p), phi.T @ y)
    least = ((phi @ theta - y) ** 2).sum() + ridge * (theta**2).sum()
    assert (losses / np.array(spread)).sum() == pytest.approx(least)
    assert np.log(spread).sum() / 2 == pytest.approx(information_gain(empty.add(phi, y), ridge))


def test_only_functions_of_the_space_are_members():
    """The reward of `lqr` is a section of its kernel; a reward with a corner is in no space of smooth functions."""
    drifts, rewards = lqr_kernel_classes()
    truth = lqr(dimension=1).truth
    weights, theta = rewards.true_parameter(truth.reward), drifts.true_parameter(truth.drift)
    assert weights is not None
    assert theta is not None
    assert np.linalg.norm(weights) == pytest.approx(1.0, abs=1e-4)
    assert theta[:2, 0] == pytest.approx([-0.3, 0.8], abs=1e-4)
    assert theta[2:] == pytest.approx(0.0, abs=1e-3)
    corner = TrueFunction(lambda x, u: jnp.abs(x[0]))
    assert rewards.true_parameter(corner) is None
    statistics = rewards.init(Key(0), 1, 1)
    assert rewards.truth_excess(statistics, data(1)[1], corner) == math.inf


def test_anytime_sets_of_a_kernel_class_cover_the_truth():
    """400 runs with random states, checked after every measurement; δ = 0.1 for one set."""
    _, rewards = lqr_kernel_classes()
    truth, std, delta, runs, N = lqr(dimension=1).truth.reward, 1.0, 0.1, 400, 60
    members = predicting(rewards, rewards.size(1, 1), std)
    theta, radius = members.true_parameter(truth), prequential_radius(delta, std)
    assert theta is not None
    missed, widest = 0, 0.0
    for seed in range(runs):
        draws = np.random.default_rng([7, seed])
        z = draws.uniform(-1, 1, size=(N, 2)).astype(np.float32)
        rows = RegressionData(z[:, :1], z[:, 1:], np.zeros((N, 1)))
        y = members.feature_rows(rows) @ theta + std * draws.normal(size=(N, 1))
        empty = members.init(Key(0), 1, 1)
        found = members.losses_per_episode(empty, theta, rows._replace(y=y), 1)
        needed = found.excess / np.array([radius(regret) for regret in found.regret])
        missed += bool((needed > 1).any())
        widest = max(widest, float(needed.max()))
    assert missed <= delta * runs
    assert widest > 0.5  # and the sets are not so large that nothing could fail


@pytest.mark.filterwarnings("ignore::purectrl.theory.confidence.MisspecificationWarning")
@pytest.mark.parametrize("d", [1, 3])
def test_the_reward_of_the_circle_is_in_the_ball_of_its_kernel(d):
    problem = circle(dimension=d, distance=0.4 / d)
    drifts, rewards = problem.continuous.kernels()
    theta = rewards.true_parameter(problem.truth.reward)
    assert theta.shape == (1 + 7 * d, 1)
    # the norm of −η ψ_j in the space of κ is η sqrt((1/2)²/w_0 + (1/2)²/w_1), and that of the constant 1/2 is 0.1
    expected = math.sqrt(0.01 + d * (0.4 / d) ** 2 * (1 / WAVES[0] + 1 / WAVES[1]) / 4)
    assert np.linalg.norm(theta) == pytest.approx(expected, rel=1e-3)
    assert expected < rewards.bound
    for seed in range(3):
        draws = np.random.default_rng(seed)
        x, u = (jnp.asarray(draws.uniform(low, high, n), jnp.float32) for low, high, n in ((0, 7, 1), (-1, 1, d)))
        found = rewards.apply(jnp.asarray(theta, jnp.float32), x, u)
        assert float(found) == pytest.approx(float(problem.truth.reward.function(x, u)), abs=1e-5)
    assert drifts.true_parameter(problem.truth.drift).tolist() == [[0.0]]


def test_kernel_sets_run_on_the_circle():
    learner = KernelSets(paths=4, num_restarts=1, iterations=2)
    result = run(circle(dimension=2), Algorithm(Uniform(), OnExcessLoss(), learner), measurements=64, seed=0)
    assert result.metrics["covered"]
    assert 0 < result.metrics["determinant_doublings"] < 64


def test_kernel_sets_run_with_low_switch():
    learner = KernelSets(paths=4, num_restarts=1, iterations=2)
    problem = lqr(dimension=1, steps=8)
    result = run(problem, Algorithm(Uniform(), OnExcessLoss(), learner), measurements=64, seed=0)
    assert result.ledger.measurements == 64
    assert result.metrics["covered"]
    assert 0 < result.metrics["radius_needed"] < 1


def test_problems_without_kernel_classes_are_refused():
    for problem in (lqr(dimension=2), lqr(dimension=3)):
        with pytest.raises(UnsupportedError, match=r"kernel-sets needs kernel classes .* --problem\.dimension 1"):
            KernelSets().build(problem, Budget(10), Uniform())

"""Confidence radii: the likelihood-ratio martingale, coverage by simulation, predictions, the share of δ of each set."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from purectrl.core import Budget, Key
from purectrl.core.samplers import Uniform
from purectrl.problems.theory import finite, lqr, neural
from purectrl.theory.classes import RegressionData
from purectrl.theory.confidence import (
    Radius,
    confidence_mask,
    prequential_radius,
    radius,
    radius_of_list,
    ville_radius,
)
from purectrl.theory.linear import LinearClass, Statistics
from purectrl.theory.neural import NeuralClass
from purectrl.theory.settings import FiniteSets, LinearSets, NeuralSets

DELTA, RUNS, STEPS = 0.1, 4000, 256


@given(st.floats(-2.0, 2.0), st.floats(-2.0, 2.0), st.floats(0.5, 3.0), st.integers(1, 4))
def test_the_likelihood_ratio_has_expectation_one_for_any_model(model, truth, std, outputs):
    """E exp(−(‖f − y‖² − ‖f* − y‖²)/2σ²) by Gauss-Hermite quadrature; the outputs are independent, so it factors."""
    points, weights = np.polynomial.hermite_e.hermegauss(80)
    y = truth + std * points
    one = np.exp(-((model - y) ** 2 - (truth - y) ** 2) / (2 * std**2)) @ weights / weights.sum()
    assert one**outputs == pytest.approx(1.0, rel=1e-6)


def list_losses(candidates, truth, std):
    """L_n(f) of constant functions for every n [RUNS, STEPS, candidates], where z_t depends on the past: it is larger
    after a large y."""
    draws = np.random.default_rng(0)
    z, losses = np.ones(RUNS), np.zeros((RUNS, STEPS, len(candidates)))
    for t in range(STEPS):
        y = truth * z + std * draws.normal(size=RUNS)
        losses[:, t] = (np.array(candidates) * z[:, None] - y[:, None]) ** 2
        z = np.where(y > truth, 2.0, 0.5)
    return losses.cumsum(axis=1)


def test_lists_are_covered_at_all_n_and_a_fifth_of_the_radius_would_not_suffice():
    candidates, truth, std = np.linspace(-0.1, 0.1, 9), 4, 0.6
    losses = list_losses(candidates, candidates[truth], std)
    excess = (losses[:, :, truth] - losses.min(axis=2)).max(axis=1)
    beta = ville_radius(len(candidates), DELTA, std)
    assert np.mean(excess <= beta) >= 1 - DELTA
    assert np.mean(excess <= 0.2 * beta) < 1 - DELTA
    assert np.quantile(excess, 1 - DELTA) < 0.3 * radius_of_list(len(candidates), DELTA, std)


class Simulated:
    """Linear regressions with a design that depends on the data, all runs at once, with the ridge regression written out."""

    def __init__(self, p=3, o=2, std=0.7, ridge=1.5, runs=RUNS, steps=STEPS):
        draws = np.random.default_rng(1)
        theta = draws.normal(size=(p, o)) / math.sqrt(p)
        A, B = np.tile(ridge * np.eye(p), (runs, 1, 1)), np.zeros((runs, p, o))
        self.phi, self.y, losses = np.zeros((runs, steps, p)), np.zeros((runs, steps, o)), np.zeros((2, runs, steps))
        for t in range(steps):
            fitted = np.linalg.solve(A, B)
            pair = draws.normal(size=(2, runs, p)) / math.sqrt(p)
            values = [np.einsum("np,npo->n", rows, fitted) for rows in pair]
            phi = np.where((values[0] > values[1])[:, None], *pair)  # the row with the larger predicted value
            y = phi @ theta + std * draws.normal(size=(runs, o))
            predicted = np.einsum("np,npo->no", phi, fitted)
            losses[:, :, t] = ((predicted - y) ** 2).sum(axis=1), ((phi @ theta - y) ** 2).sum(axis=1)
            A += phi[:, :, None] * phi[:, None]
            B += phi[:, :, None] * y[:, None]
            self.phi[:, t], self.y[:, t] = phi, y
        self.predicted, self.true = losses.cumsum(axis=2)
        self.theta, self.std, self.ridge = theta, std, ridge


@pytest.fixture(scope="module")
def simulated():
    return Simulated()


def test_linear_classes_are_covered_at_all_n(simulated):
    """P(∃n: L_n(f*) > prequential loss + 2σ² log(1/δ)) ≤ δ; the bound is nearly attained, so the constant is right."""
    slack = prequential_radius(DELTA, simulated.std).constant
    missed = (simulated.true > simulated.predicted + slack).any(axis=1)
    assert 0.3 * DELTA < missed.mean() <= DELTA
    smaller = (simulated.true > simulated.predicted + 0.5 * slack).any(axis=1)
    assert smaller.mean() > 1.5 * DELTA


def test_recursive_predictions_are_those_of_a_refit_before_every_row(simulated):
    for run in range(3):
        phi, y, zero = simulated.phi[run], simulated.y[run], Statistics(np.zeros((3, 3)), np.zeros((3, 2)), 0.0)
        brute = [
            ((phi[t] @ np.linalg.solve(phi[:t].T @ phi[:t] + 1.5 * np.eye(3), phi[:t].T @ y[:t]) - y[t]) ** 2).sum()
            for t in range(len(phi))
        ]
        assert np.allclose(zero.prediction_losses(phi, y, 1.5), brute)
        assert np.allclose(np.cumsum(brute), simulated.predicted[run])


@pytest.mark.parametrize("sizes", [(60,), (1,) * 60, (7, 13, 40)])
def test_the_prequential_loss_does_not_depend_on_the_blocks(simulated, sizes):
    members = LinearClass(lambda x, u: x, bound=3.0, outputs=2, ridge=1.5)
    rows = RegressionData(np.float32(simulated.phi[0]), np.zeros((STEPS, 1), np.float32), simulated.y[0])
    seen, start = members.init(Key(0), 3, 1), 0
    for size in sizes:
        seen = members.observe(seen, RegressionData(*(array[start : start + size] for array in rows)))
        start += size
    assert members.prequential(seen) == pytest.approx(simulated.predicted[0, 59], rel=1e-5)
    without = LinearClass(lambda x, u: x, bound=3.0, outputs=2)
    assert without.prequential(without.observe(without.init(Key(0), 3, 1), rows)) == 0.0


def test_the_prequential_radius_is_a_small_and_slowly_growing_part_of_the_theorems(simulated):
    members = LinearClass(lambda x, u: x, bound=3.0, outputs=2, feature_bound=3.0, ridge=1.5)
    shares = []
    for n in (64, 256):
        betas = []
        for phi, y in zip(simulated.phi[:50, :n], simulated.y[:50, :n], strict=True):
            zero = Statistics(np.zeros((3, 3)), np.zeros((3, 2)), 0.0)
            seen = zero.add(phi, y)
            regret = zero.prediction_losses(phi, y, 1.5).sum() - members.minimum(seen)
            betas.append(prequential_radius(DELTA / 2, simulated.std)(regret))
        theorem = radius(members.log_cover(3, n**-2.0), n, DELTA / 4, math.sqrt(2) * simulated.std)
        shares.append(np.mean(betas) / theorem)
    assert max(shares) < 0.08
    assert shares[1] < 1.1 * shares[0]


class Line(eqx.Module):
    """y = slope · x."""

    slope: jax.Array

    def __call__(self, x, u):
        return self.slope * x


LINES = NeuralClass(lambda key: Line(jnp.zeros(())), outputs=1, learning_rate=0.05, check_steps=5, predicts=True)


def noisy_line(seed, n=40):
    draws = np.random.default_rng(seed)
    x = np.float32(draws.normal(size=(n, 1)))
    return RegressionData(x, 0 * x, np.float32(1.5 * x + 0.5 * draws.normal(size=(n, 1))))


def test_a_neural_class_predicts_with_the_network_that_it_had_before():
    rows, fit, expected = noisy_line(0), LINES.init(Key(0), 1, 1), 0.0
    for n in range(0, 40, 4):
        before = float(fit.best.slope)
        new = RegressionData(*(array[n : n + 4] for array in rows))
        fit = LINES.observe(fit, new)
        expected += ((before * new.x - new.y) ** 2).sum()
        fit = LINES.refit(fit, RegressionData(*(array[: n + 4] for array in rows)))
    assert LINES.prequential(fit) == pytest.approx(expected, rel=1e-5)
    assert LINES.prequential(fit) > LINES.minimum(fit)


def test_neural_classes_are_covered_although_descent_is_far_from_done():
    slack, missed = prequential_radius(DELTA, 0.5), 0
    for seed in range(60):
        rows, fit, covered = noisy_line(seed), LINES.init(Key(0), 1, 1), True
        for n in range(0, 40, 8):
            fit = LINES.observe(fit, RegressionData(*(array[n : n + 8] for array in rows)))
            fit = LINES.refit(fit, RegressionData(*(array[: n + 8] for array in rows)))
            beta = slack(LINES.prequential(fit) - LINES.minimum(fit))
            loss = ((1.5 * rows.x[: n + 8] - rows.y[: n + 8]) ** 2).sum()
            covered = covered and loss <= LINES.minimum(fit) + beta
        missed += not covered
    assert missed <= 0.1 * 60


def test_half_of_delta_belongs_to_each_set():
    """Theorem 1 for a list has one event per class, for a net two; together all of them have probability δ."""
    sigma = 0.2 / math.sqrt(0.1)
    build = lambda sets, problem: sets.build(problem, Budget(1000), Uniform())  # noqa: E731
    lists = build(FiniteSets(delta=0.2, paths=4), finite(steps=8))
    assert lists.beta_drift == pytest.approx(8 * sigma**2 * math.log(20 / 0.1))
    assert lists.beta_reward == pytest.approx(8 * math.log(7 / 0.1))
    linear = build(LinearSets(delta=0.2), lqr(dimension=1))
    assert linear.radius_drift == Radius(radius(linear.drifts.log_cover(2, 1e-6), 1000, 0.05, sigma))
    assert linear.radius_reward == Radius(radius(linear.rewards.log_cover(3, 1e-6), 1000, 0.05))
    anytime = build(FiniteSets(delta=0.2, radius="anytime", paths=4), finite(steps=8))
    assert anytime.beta_drift == pytest.approx(2 * sigma**2 * math.log(20 / 0.1))
    assert anytime.beta_reward == pytest.approx(2 * math.log(7 / 0.1))
    for sets, problem in (
        (LinearSets(delta=0.2, radius="anytime"), lqr(dimension=1)),
        (NeuralSets(delta=0.2), neural()),
    ):
        learner = build(sets, problem)
        y, r = problem.noise_std
        assert learner.radius_drift == Radius(pytest.approx(2 * y**2 * math.log(10)), adds_regret=True)
        assert learner.radius_reward == Radius(pytest.approx(2 * r**2 * math.log(10)), adds_regret=True)


def test_the_anytime_radius_of_a_list_does_not_grow_with_the_dimension():
    betas = [
        FiniteSets(radius="anytime", paths=4).build(lqr(dimension=d, steps=8), Budget(600), Uniform()).beta_drift
        for d in (1, 3)
    ]
    assert betas[0] == betas[1]  # both lists have 16 drifts


def test_without_noise_the_truth_alone_remains():
    problem = finite(diffusion=0.0, reward_std=0.0, steps=8)
    learner = FiniteSets(radius="anytime", paths=4).build(problem, Budget(600), Uniform())
    state = learner.init(Key(0))
    state = learner.observe(state, problem.rollout(Key(0), learner.policy(state), np.linspace(0.1, 1.9, 64)[:, None]))
    assert confidence_mask(state.drift_loss, learner.beta_drift)[problem.truth.drift.index]
    assert confidence_mask(state.drift_loss, learner.beta_drift).sum() == 1


def test_a_negative_regret_counts_as_zero():
    assert Radius(2.0, adds_regret=True)(-5.0) == 2.0

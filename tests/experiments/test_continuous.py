"""The optimum that gaps are measured against, computed a second time without simulation and without gradients."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from purectrl.core.problem import Plan
from purectrl.experiments.continuous import Climb, optimum, true_value
from purectrl.systems import lqr
from purectrl.theory import GaussianInitials, LinearPolicies

STEPS, HORIZON, NOISE = 20, 2.0, 0.2


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_the_value_of_a_gentle_policy_is_that_of_a_gaussian_process(d):
    """While no control is clipped, the Euler-Maruyama chain is Gaussian and the reward the exponential of a quadratic."""
    system, dt = lqr.lqr(d, NOISE, HORIZON), HORIZON / STEPS
    A, B = (np.asarray(matrix, np.float64) for matrix in lqr.truth(d))
    draws = np.random.default_rng(d)
    K, k, goal = 0.2 * draws.normal(size=(d, d)), 0.1 * draws.normal(size=d), np.full(d, 0.5)
    mean, cov, value = np.zeros(d), 0.1**2 * np.eye(d), 0.0
    precision, linear = 2 * np.eye(d) + K.T @ K / 5, 2 * goal - K.T @ k / 5  # −½xᵀPx + lᵀx − c
    constant = goal @ goal + k @ k / 10
    for _ in range(STEPS):
        inverse = np.linalg.inv(cov)
        both = inverse + precision
        center = np.linalg.solve(both, inverse @ mean + linear)
        exponent = (center @ both @ center - mean @ inverse @ mean) / 2 - constant
        value += dt * np.exp(exponent) / np.sqrt(np.linalg.det(cov) * np.linalg.det(both))
        step = np.eye(d) + dt * (A + B @ K)
        mean, cov = step @ mean + dt * B @ k, step @ cov @ step.T + NOISE**2 * dt * np.eye(d)
    plan = Plan({"gain": jnp.asarray(K, jnp.float32), "offset": jnp.asarray(k, jnp.float32)}, np.zeros(d, np.float32))
    found, error = true_value(system, LinearPolicies(d, d), GaussianInitials(d, limit=0.0), STEPS)(plan)
    assert float(found) == pytest.approx(value, abs=4 * float(error))


def test_the_optimum_in_one_dimension_is_that_of_backward_quadrature():
    A, B = (float(matrix[0, 0]) for matrix in lqr.truth(1))
    dt, grid = HORIZON / STEPS, np.linspace(-2.5, 2.5, 301)
    points, weights = np.polynomial.hermite_e.hermegauss(15)
    weights = weights / weights.sum()

    def value(parameters):
        gain, offset = parameters
        u = np.clip(gain * grid + offset, -1.0, 1.0)
        reward = np.exp(-((grid - 0.5) ** 2) - u**2 / 10)
        ahead = grid + dt * (A * grid + B * u)
        left = np.zeros_like(grid)
        for _ in range(STEPS):
            places = ahead[:, None] + NOISE * np.sqrt(dt) * points
            left = dt * reward + np.interp(places, grid, left) @ weights
        return float(np.interp(0.1 * points, grid, left) @ weights)

    starts = [(-1.0, 0.5), (0.0, 1.0), (-4.0, 2.0)]
    best = max(-minimize(lambda p: -value(p), start, method="Nelder-Mead").fun for start in starts)
    policies, initials = LinearPolicies(1, 1), GaussianInitials(1, limit=0.0)
    system = lqr.lqr(1, NOISE, HORIZON)
    judge = true_value(system, policies, initials, STEPS)
    found, error, random = optimum(system, policies, initials, STEPS, judge, Climb())
    assert found == pytest.approx(best, abs=4 * error)
    assert random < best - 0.1

"""Gaussian processes: closed forms, gradients, calibration on draws from the prior, and the learner that uses them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import purectrl as pc
from purectrl.control.gaussian_process import (
    GaussianProcess,
    Hyperparameters,
    fit_hyperparameters,
    kernel,
    log_posterior,
)
from purectrl.control.gp_dynamics import GpDynamics
from purectrl.control.integrate import midpoint
from purectrl.control.settings import Enode, FitSettings, ModelSettings, PlanSettings
from purectrl.core import Key, Measurements, Targets, UnsupportedError
from purectrl.core.samplers import MaxDeterminant, MaxKernelDistance, Receding, VarianceThreshold
from purectrl.core.schedules import Every
from purectrl.systems.spec import StateSpec

HYPER = Hyperparameters(np.array([0.7, 1.6]), 1.3, 0.1)


def drawn(generator, n, hyper=HYPER, inputs=2, more=0):
    """n inputs, noisy outputs there, and exact outputs at `more` further inputs: one draw from the prior."""
    z = generator.uniform(-3.0, 3.0, (n + more, inputs))
    f = np.linalg.cholesky(kernel(hyper, z, z) + 1e-9 * np.eye(n + more)) @ generator.normal(size=n + more)
    return z[:n], f[:n] + hyper.noise * generator.normal(size=n), z[n:], f[n:]


def exact(function, *arrays):
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, function(*map(jnp.asarray, arrays)))


@given(seed=st.integers(0, 100))
@settings(max_examples=20)
def test_the_gradient_of_the_posterior_density_is_that_of_finite_differences(seed):
    generator = np.random.default_rng(seed)
    z, y, *_ = drawn(generator, 12)
    logs = np.log(np.concatenate([HYPER.length, [HYPER.amplitude, HYPER.noise]])) + 0.3 * generator.normal(size=4)
    value = lambda logs: log_posterior(Hyperparameters(np.exp(logs[:2]), *np.exp(logs[2:])), z, y)  # noqa: E731
    numeric = [(value(logs + step)[0] - value(logs - step)[0]) / 2e-5 for step in 1e-5 * np.eye(4)]
    assert np.allclose(value(logs)[1], numeric, rtol=1e-5, atol=1e-5)


def test_prediction_equals_the_conditional_of_a_gaussian():
    z, y, new, _ = drawn(np.random.default_rng(0), 20, more=5)
    process = GaussianProcess.prior(1, 2, rows=30).condition(z, y[:, None], [HYPER])  # ten rows of padding
    gram, cross = kernel(HYPER, z, z) + HYPER.noise**2 * np.eye(20), kernel(HYPER, new, z)
    mean, std = exact(process.mean_and_std, new)
    covariance = kernel(HYPER, new, new) - cross @ np.linalg.solve(gram, cross.T)
    assert np.allclose(mean[:, 0], cross @ np.linalg.solve(gram, y))
    assert np.allclose(std[:, 0], np.sqrt(covariance.diagonal()))
    assert np.allclose(exact(process.covariance, new)[0], covariance)
    assert np.allclose(exact(process.mean, new), mean)


def test_without_data_prediction_is_the_prior():
    process = GaussianProcess.prior(2, 3, rows=4)
    mean, std = exact(process.mean_and_std, np.ones((5, 3)))
    assert np.array_equal(mean, np.zeros((5, 2)))
    assert np.allclose(std, np.exp(0.0))


def test_the_noise_enters_as_its_variance():
    """With n measurements of one number, the posterior variance is 1/(1/s² + n/σ²)."""
    hyper = Hyperparameters(np.ones(1), 2.0, 0.5)
    process = GaussianProcess.prior(1, 1, 8).condition(np.zeros((8, 1)), np.ones((8, 1)), [hyper])
    mean, std = exact(process.mean_and_std, np.zeros((1, 1)))
    assert std[0, 0] == pytest.approx((1 / 4 + 8 / 0.25) ** -0.5)
    assert mean[0, 0] == pytest.approx(32 / (1 / 4 + 32))


def test_hyperparameters_of_a_draw_are_found():
    generator = np.random.default_rng(3)
    found = [fit_hyperparameters(*drawn(generator, 200)[:2]) for _ in range(3)]
    median = lambda name: np.median([getattr(one, name) for one in found], axis=0)  # noqa: E731
    assert np.allclose(median("length"), HYPER.length, rtol=0.25)
    assert median("noise") == pytest.approx(HYPER.noise, rel=0.15)
    assert median("amplitude") == pytest.approx(HYPER.amplitude, rel=0.5)
    fixed = fit_hyperparameters(*drawn(generator, 50)[:2], noise=0.25)
    assert fixed.noise == pytest.approx(0.25)


def test_predictions_are_calibrated_on_draws_from_the_prior():
    """Standardized errors of fitted processes are standard normal: coverage, and Kolmogorov-Smirnov at 0.1 %."""
    generator, errors = np.random.default_rng(5), []
    for _ in range(25):
        z, y, new, f = drawn(generator, 80, more=8)
        process = GaussianProcess.prior(1, 2, 80).fit(z, y[:, None])
        mean, std = exact(process.mean_and_std, new)
        errors.append(((f - mean[:, 0]) / std[:, 0])[:4])
    errors = np.concatenate(errors)
    assert 0.88 <= (np.abs(errors) < 1.96).mean() <= 1.0
    assert scipy.stats.kstest(errors, "norm").pvalue > 1e-3


SPEC = StateSpec(2, 1, (-2.0,), (2.0,), angles=(0,), reward=lambda x, u: -(x**2).sum() - (u**2).sum())


def truth(x, u):
    return np.stack([x[..., 1], 2.0 * np.sin(x[..., 0]) + u[..., 0]], axis=-1)


def measured(n, spec=SPEC, seed=0, noise=0.01):
    generator = np.random.default_rng(seed)
    x, u = generator.uniform(-3.0, 3.0, (n, 1, 2)), generator.uniform(-2.0, 2.0, (n, 1, 1))
    y = truth(x, u) + noise * generator.normal(size=x.shape)
    return Measurements(
        np.zeros((n, 1)), *(array.astype(np.float32) for array in (x, u, y)), np.zeros((n, 1), np.float32)
    )


def fitted(n, spec=SPEC, **arguments):
    dynamics = GpDynamics(spec, n, n, midpoint, **arguments)
    return dynamics, dynamics.fit(dynamics.init(Key(0)), measured(n), Targets.BOTH, True, Key(1)).model


def test_the_dynamics_are_learned_with_the_noise_as_it_is():
    _, model = fitted(120)
    new = measured(200, seed=1, noise=0.0)
    mean, std = exact(model.mean_and_std, new.x[:, 0], new.u[:, 0])
    error = mean - new.y[:, 0]
    assert np.sqrt((error**2).mean()) < 0.05
    assert (np.abs(error) < 2 * std + 1e-3).mean() > 0.85
    assert np.allclose(np.sqrt(model.noise), 0.01, rtol=0.6)


def test_members_have_the_mean_and_the_covariance_of_the_posterior():
    _, model = fitted(25, members=600)
    x, u = np.array([[0.5, 3.5], [2.0, -3.5], [0.6, 3.4]]), np.array([[2.0], [-2.0], [1.9]])
    mean, std = exact(model.mean_and_std, x, u)
    covariance = exact(model.covariance, x, u)
    draws = exact(model.drift, *(np.broadcast_to(array, (600, *array.shape)) for array in (x, u)))
    assert np.allclose(draws.mean(axis=0), mean, atol=5 * std.max() / np.sqrt(600) + 0.02)
    assert np.allclose(draws.std(axis=0), std, rtol=0.25)
    found = np.stack([np.cov(draws[:, :, j].T) for j in range(2)])
    assert np.allclose(found, covariance, atol=0.25 * np.abs(covariance).max())


def test_a_known_velocity_is_exact_and_certain():
    spec = StateSpec(2, 1, (-2.0,), (2.0,), angles=(0,), velocities=((0, 1),), reward=SPEC.reward)
    _, model = fitted(10, spec)
    x, u = np.array([[0.5, 9.0]]), np.zeros((1, 1))
    mean, std = exact(model.mean_and_std, x, u)
    assert (mean[0, 0], std[0, 0]) == (9.0, 0.0)
    assert not exact(model.covariance, x, u)[0].any()
    assert (exact(model.drift, np.tile(x, (10, 1, 1)), np.tile(u, (10, 1, 1)))[..., 0] == 9.0).all()


def test_more_data_than_rows_are_thinned_out():
    dynamics, model = fitted(60, max_rows=40)
    assert model.process.inputs.shape == (40, 4)
    assert np.asarray(model.process.weights).all()
    assert dynamics.check_fit(model, model, measured(60)) == ""
    broken = eqx.tree_at(lambda model: model.process.weights, model, np.full((2, 40), np.nan))
    assert "gp diverged" in dynamics.check_fit(model, broken, measured(60))


def test_an_unknown_reward_is_refused():
    with pytest.raises(UnsupportedError, match="gp needs a problem whose reward is known; use black-box"):
        GpDynamics(StateSpec(1, 1, (-1.0,), (1.0,)), 10, 10, midpoint)


def cart(**arguments):
    """A cart on a line, with exact derivatives."""
    return pc.problems.continuous(
        name="cart", horizon=3.0, drift=lambda x, u: jnp.stack([x[1], u[0]]), reward=lambda x, u: -(x**2).sum(),
        initial=lambda key: jax.random.uniform(key, (2,)), eval_episodes=1, **arguments,
    )  # fmt: skip


SMALL = Enode(
    ModelSettings("gp", ensemble_size=4, width=8),
    FitSettings(),
    PlanSettings(steps=5, batch_size=4, ensemble_size=2, critic_steps=1, critic_batch_size=8, horizon=0.5),
)


@pytest.mark.parametrize("sampler", [MaxDeterminant(5), MaxKernelDistance(5), Receding(5), VarianceThreshold(5)])
def test_every_adaptive_sampler_works_with_a_gp_in_the_learner_of_enode(sampler):
    result = pc.run(cart(), pc.Algorithm(sampler, Every(1), SMALL), measurements=15)
    assert result.ledger.updates == 3
    assert np.isfinite(result.metrics["return"])


def test_a_gp_is_fitted_to_difference_quotients_of_a_mechanical_problem(tmp_path):
    sampler = MaxDeterminant(10, window=5)
    result = pc.run(pc.problems.pendulum(horizon=5.0), pc.Algorithm(sampler, Every(1), SMALL), measurements=30)
    assert result.ledger.updates == 3
    assert "rolled_back" not in result.metrics

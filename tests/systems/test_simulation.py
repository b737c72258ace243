"""The simulator against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purectrl.core import Key, MeasurementError, Measuring, Plan, System
from purectrl.systems.lqr import lqr
from purectrl.systems.simulation import euler_maruyama, pad_rows, simulated
from purectrl.systems.washboard import washboard

OU = System(  # dx = -x dt + sqrt(2) dw, stationary variance 1
    name="ou",
    state_dim=1,
    control_dim=1,
    horizon=2.0,
    drift=lambda x, u: -x,
    diffusion=lambda x, u: jnp.sqrt(2.0),
    reward=lambda x, u: jnp.exp(-(x[0] ** 2)),
)
ZERO = lambda parameters, x: jnp.zeros(1)  # noqa: E731
ORIGIN = lambda parameters, key: jnp.zeros(1)  # noqa: E731
PLAN = Plan(0, 0)


def test_ou_variance_and_covariance_at_irregular_times():
    times = np.tile([0.13, 0.5, 0.51, 1.9], (40_000, 1))
    seen = simulated(OU, ZERO, ORIGIN, Measuring(), steps=200)(Key.from_seed(0), PLAN, times)
    x, t = seen.x[:, :, 0], times[0]
    # Cov(x(s), x(t)) = e^(-|t-s|) - e^(-(t+s)) for x(0) = 0
    expected = np.exp(-np.abs(t[:, None] - t)) - np.exp(-(t[:, None] + t))
    assert np.allclose(x.T @ x / len(x), expected, atol=0.03)
    assert np.allclose(x.mean(axis=0), 0.0, atol=0.03)


def test_weak_error_falls_linearly_with_the_step():
    """E[x(T)] of dx = -x dt from 1 is e^-T; Euler has (1 - T/K)^K, an error of order 1/K."""
    errors = []
    for steps in (16, 32, 64):
        times = jnp.linspace(0.0, 2.0, steps + 1)
        drift, none, still = (lambda x, u: -x), (lambda x, u: jnp.float32(0.0)), (lambda x: jnp.zeros(1))
        path = euler_maruyama(jax.random.key(0), drift, none, still, jnp.ones(1), times)
        errors.append(abs(float(path[-1, 0]) - np.exp(-2.0)))
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert np.allclose(orders, 1.0, atol=0.15)


def test_measured_drift_and_reward_have_the_models_noise():
    measuring = Measuring(step=0.05, reward_std=0.5)
    seen = simulated(OU, ZERO, ORIGIN, measuring, steps=50)(Key.from_seed(1), PLAN, np.full((40_000, 1), 1.0))
    drift_noise = seen.y - -seen.x
    reward_noise = seen.r - np.exp(-(seen.x[..., 0] ** 2))
    assert drift_noise.var() == pytest.approx(2.0 / 0.05, rel=0.03)  # g²/Δ
    assert reward_noise.std() == pytest.approx(0.5, rel=0.03)
    assert abs(drift_noise.mean()) < 0.1


def test_difference_quotient_measures_the_same_drift():
    """(x(t+Δ) − x(t))/Δ on one path: mean f up to O(Δ), variance g²/Δ."""
    measuring = Measuring(step=0.02, drift="quotient")
    seen = simulated(OU, ZERO, ORIGIN, measuring, steps=50)(Key.from_seed(2), PLAN, np.full((40_000, 1), 1.0))
    x, y = seen.x.ravel(), seen.y.ravel()
    slope = (x * y).sum() / (x * x).sum()
    assert slope == pytest.approx(-1.0, abs=0.15)
    assert (y + x).var() == pytest.approx(2.0 / 0.02, rel=0.05)


def test_an_episode_does_not_depend_on_how_many_run_beside_it():
    rollout = simulated(OU, ZERO, ORIGIN, Measuring(), steps=20)
    many = rollout(Key.from_seed(3), PLAN, np.full((13, 2), 1.0))
    few = rollout(Key.from_seed(3), PLAN, np.full((5, 2), 1.0))
    assert np.array_equal(many.x[:5], few.x)
    assert np.array_equal(many.r[:5], few.r)


def test_padding_changes_no_result():
    rows = np.arange(11.0)
    assert np.array_equal(pad_rows(lambda a: (2 * a,), rows)[0], 2 * rows)


def test_a_reward_outside_its_declared_range_is_named():
    wrong = System("wrong", 1, 1, 1.0, OU.drift, OU.diffusion, lambda x, u: jnp.float32(2.0))
    with pytest.raises(MeasurementError, match=r"the reward of 'wrong' is 2, outside its declared range \[0, 1\]"):
        simulated(wrong, ZERO, ORIGIN, Measuring(), 5)(Key.from_seed(0), PLAN, np.ones((1, 1)))


@pytest.mark.parametrize("system", [washboard(), *[lqr(dimension) for dimension in (1, 2, 3, 4)]])
def test_shipped_systems_keep_their_promises(system):
    draws = np.random.default_rng(0)
    x = jnp.asarray(draws.normal(size=(500, system.state_dim)) * 2, jnp.float32)
    u = jnp.asarray(draws.uniform(-1, 1, (500, system.control_dim)), jnp.float32)
    assert jax.vmap(system.drift)(x, u).shape == x.shape
    rewards = jax.vmap(system.reward)(x, u)
    assert rewards.shape == (500,)
    assert rewards.min() >= 0.0
    assert rewards.max() <= 1.0
    assert jax.vmap(system.diffusion)(x, u).min() >= 0.0

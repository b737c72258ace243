"""Integrators against closed forms, against each other, and their orders."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purectrl.control.integrate import dopri5, euler, midpoint, midpoint_in, path
from purectrl.core import InputError


def oscillator(x, s):
    """dx/dt of (cos t, −sin t)."""
    return jnp.stack([x[..., 1], -x[..., 0]], axis=-1)


def after(t):
    return jnp.stack([jnp.cos(t), -jnp.sin(t)], axis=-1)


START = jnp.array([[1.0, 0.0]])
TIGHT = dopri5(rtol=1e-6, atol=1e-6)


def test_the_midpoint_rule_has_order_two():
    gap = jnp.full((1, 1), 2.0)
    steps = np.array([8, 16, 32, 64])
    errors = [float(jnp.abs(midpoint_in(n)(oscillator, START, gap) - after(gap[:, 0])).max()) for n in steps]
    orders = np.diff(np.log(errors)) / np.diff(np.log(1 / steps))
    assert np.allclose(orders, 2.0, atol=0.15)


def test_one_step_of_it_is_what_the_taylor_series_says():
    h = 0.3
    found = midpoint(oscillator, START, jnp.full((1, 1), h))
    assert np.allclose(found, [[1 - h**2 / 2, -h]], atol=1e-7)


@pytest.mark.parametrize("seconds", [0.1, 1.0, 5.0])
def test_dopri5_agrees_with_the_closed_form_and_with_many_midpoint_steps(seconds):
    gap = jnp.full((1, 1), seconds)
    adaptive = TIGHT(oscillator, START, gap)
    assert np.allclose(adaptive, after(gap[:, 0]), atol=2e-5)
    assert np.allclose(midpoint_in(2000)(oscillator, START, gap), adaptive, atol=5e-5)


def test_gradients_of_both_agree():
    slope = lambda integrate: jax.grad(lambda x: integrate(oscillator, x, jnp.ones((1, 1)))[0, 0])(START)  # noqa: E731
    assert np.allclose(slope(TIGHT), [[np.cos(1.0), np.sin(1.0)]], atol=1e-4)
    assert np.allclose(slope(midpoint_in(200)), slope(TIGHT), atol=1e-4)


@pytest.mark.parametrize("integrate", [midpoint_in(50), TIGHT], ids=["midpoint", "dopri5"])
def test_rows_may_have_different_gaps(integrate):
    gaps = jnp.array([[0.2], [0.7], [1.3]])
    assert np.allclose(integrate(oscillator, jnp.tile(START, (3, 1)), gaps), after(gaps[:, 0]), atol=1e-3)


def test_the_control_is_linear_between_its_measurements():
    """dx/dt = u: the midpoint rule integrates a line exactly, so the path is the sum of trapezoids."""
    generator = np.random.default_rng(0)
    u = generator.normal(size=(6, 4, 1)).astype(np.float32)
    gaps = generator.uniform(0.05, 0.2, (5, 4, 1)).astype(np.float32)
    found = path(midpoint, lambda x, u: u, jnp.zeros((4, 1)), jnp.asarray(u), jnp.asarray(gaps))
    assert np.allclose(found, np.cumsum(gaps * (u[1:] + u[:-1]) / 2, axis=0), atol=1e-6)


def test_a_step_of_euler_inverts_the_quotient():
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    y = (x[1:] - x[:-1]) / 0.05
    assert np.allclose(euler(lambda x, s: jnp.asarray(y), jnp.asarray(x[:-1]), 0.05), x[1:], atol=1e-5)


def test_no_step_at_all_is_refused():
    with pytest.raises(InputError, match="steps: a gap needs at least one step, not 0"):
        midpoint_in(0)


def test_dopri5_says_that_it_has_not_arrived():
    """x' = x² from 1 is at infinity after one second; up to there it is 1/(1 − t)."""
    blow_up = lambda x, s: x**2  # noqa: E731
    found = [TIGHT(blow_up, jnp.ones((1, 1)), jnp.full((1, 1), seconds)) for seconds in (0.5, 2.0)]
    assert found[0] == pytest.approx(2.0, rel=1e-4)
    assert np.isnan(found[1]).all()

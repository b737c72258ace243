"""Smooth noise has the covariance that it promises."""

import jax
import numpy as np
import pytest

from purectrl.control.exploration import SmoothNoise
from purectrl.core import InputError


def test_the_noise_has_its_covariance():
    noise = SmoothNoise(horizon=2.0, length=0.4)
    count = 8000
    paths = np.asarray(noise.draw(jax.random.key(0), count))
    found = paths @ paths.T / count
    t = np.arange(21) * 0.1
    expected = np.exp(-0.5 * ((t[:, None] - t) / 0.4) ** 2)
    # the variance of an empirical covariance of Gaussians is (1 + ρ²)/n
    assert (np.abs(found - expected) < 5 * np.sqrt((1 + expected**2) / count)).all()
    assert np.abs(paths.mean(axis=1)).max() < 5 / np.sqrt(count)


def test_it_is_linear_between_knots_and_stays_at_its_ends():
    noise = SmoothNoise(horizon=1.0)
    knots = np.random.default_rng(0).normal(size=(11, 2)).astype(np.float32)
    t = np.array([0.0, 0.3, 0.34, 0.999, 1.0])
    found = np.stack([noise.at(knots, np.float32(s)) for s in t])
    assert np.allclose(found, np.stack([np.interp(t, np.arange(11) * 0.1, column) for column in knots.T], 1), atol=1e-5)


@pytest.mark.parametrize(("setting", "value"), [("length", 0.0), ("step", -1.0)])
def test_wrong_settings_are_named(setting, value):
    with pytest.raises(InputError, match=f"{setting}: .* must be positive"):
        SmoothNoise(1.0, **{setting: value})

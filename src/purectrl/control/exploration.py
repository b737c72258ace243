"""Smooth random exploration: a Gaussian process over time that is added to the policy before it is squashed."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from purectrl.core.errors import require
from purectrl.core.problem import Array

JITTER = 1e-4
"""Added to the variance, since the matrix of a smooth kernel is singular to float32."""


@dataclass(frozen=True)
class SmoothNoise:
    """A Gaussian process with mean 0, variance 1 and covariance exp(−(t − s)²/2ℓ²), linear between knots.

    Main arguments:
        horizon: it is drawn on [0, horizon].
        length: ℓ, the time over which it changes.
        step: seconds between two knots.
    """

    horizon: float
    length: float = 0.5
    step: float = 0.1

    def __post_init__(self) -> None:
        require(self.length > 0, f"length: the time scale of the noise must be positive, not {self.length}")
        require(self.step > 0, f"step: the distance of the knots must be positive, not {self.step}")

    def factor(self) -> np.ndarray:
        """The Cholesky factor of the covariance [knots, knots].

        >>> factor = SmoothNoise(horizon=1.0).factor()
        >>> (factor @ factor.T)[0, [0, 5]].round(3)  # variance 1; ℓ = 0.5 later e^(-1/2)
        array([1.   , 0.607], dtype=float32)
        """
        t = np.arange(int(np.ceil(self.horizon / self.step - 1e-9)) + 1) * self.step
        covariance = np.exp(-0.5 * ((t[:, None] - t[None]) / self.length) ** 2)
        return np.linalg.cholesky(covariance + JITTER * np.eye(len(t))).astype(np.float32)

    def at(self, knots: Array, t: Array) -> Array:
        """The noise at time t, given its values at the knots [knots, k] -> [k]."""
        place = jnp.clip(t / self.step, 0.0, knots.shape[0] - 1.0)
        left = jnp.minimum(place.astype(jnp.int32), knots.shape[0] - 2)
        return knots[left] + (place - left) * (knots[left + 1] - knots[left])


def draw(key: Array, factor: Array, controls: int) -> Array:
    """Values at the knots [knots, controls], independent for each control."""
    return factor @ jax.random.normal(key, (factor.shape[0], controls))

"""Smooth random exploration: a Gaussian process over time that is added to the policy before tanh."""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from purectrl.core.errors import require

JITTER = 1e-4
"""Added to the variance, since the matrix of a smooth kernel is singular to float32."""


@dataclass(frozen=True)
class SmoothNoise:
    """A Gaussian process with mean 0, variance 1 and covariance exp(−(t − s)²/2ℓ²), linear between knots.

    Main arguments:
        horizon: the process is drawn on [0, horizon].
        length: ℓ, the time over which it changes.
        step: seconds between two knots.
    """

    horizon: float
    length: float = 0.5
    step: float = 0.1

    def __post_init__(self) -> None:
        require(self.length > 0, f"length: the time scale of the noise must be positive, not {self.length}")
        require(self.step > 0, f"step: the distance of the knots must be positive, not {self.step}")

    @functools.cached_property
    def factor(self) -> np.ndarray:
        """The Cholesky factor of the covariance [knots, knots].

        >>> factor = SmoothNoise(horizon=1.0).factor
        >>> (factor @ factor.T)[0, [0, 5]].round(3)  # variance 1; ℓ = 0.5 later e^(-1/2)
        array([1.   , 0.607], dtype=float32)
        """
        t = np.arange(int(np.ceil(self.horizon / self.step - 1e-9)) + 1) * self.step
        covariance = np.exp(-0.5 * ((t[:, None] - t[None]) / self.length) ** 2)
        return np.linalg.cholesky(covariance + JITTER * np.eye(len(t))).astype(np.float32)

    def draw(self, key: Array, controls: int) -> Float[Array, "knots controls"]:
        """Values at the knots, independent for each control."""
        return jnp.asarray(self.factor) @ jax.random.normal(key, (self.factor.shape[0], controls))

    def at(self, knots: Float[Array, "knots k"], t: Array | float) -> Float[Array, " k"]:
        """The noise at time t, given its values at the knots."""
        place = jnp.clip(t / self.step, 0.0, knots.shape[0] - 1.0)
        left = jnp.minimum(place.astype(jnp.int32), knots.shape[0] - 2)
        return knots[left] + (place - left) * (knots[left + 1] - knots[left])

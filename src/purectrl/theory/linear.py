"""Linear classes {⟨Θ, φ(x, u)⟩ : ‖Θ‖_F ≤ R}: least squares, confidence sets and their shape, from sufficient statistics.

    symbol                      here
    --------------------------  -----------------------------------------------------------
    φ(x, u) ∈ R^p               features
    Θ ∈ R^{p×o}, R              parameter, bound
    L_D(Θ) = Σ ‖Θᵀφ − y‖²       Statistics.loss: tr(ΘᵀAΘ) − 2 tr(ΘᵀB) + c
    A = Σ φφᵀ, B = Σ φyᵀ, c     gram [p, p], cross [p, o], square
    min over the ball           `fit`, by the eigenvalues of A and one multiplier

Everything costs the same at measurement one hundred thousand as at one thousand.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purectrl.core.errors import InputError, require
from purectrl.core.problem import Array
from purectrl.theory.features import Features


class Statistics(NamedTuple):
    """All that least squares needs to know of the data."""

    gram: np.ndarray
    """A = Σ φφᵀ [p, p]."""
    cross: np.ndarray
    """B = Σ φyᵀ [p, o]."""
    square: float
    """c = Σ ‖y‖²."""

    def loss(self, theta: np.ndarray) -> float:
        """L_D(Θ) for Θ [p, o]."""
        return float(np.sum(theta * (self.gram @ theta - 2 * self.cross)) + self.square)


class Region(NamedTuple):
    """A confidence set {Θ : L(Θ) ≤ min L + β, ‖Θ‖_F ≤ R} as the planner moves in it: Θ = center + shape · W."""

    center: Array
    """The minimiser [p, o]."""
    shape: Array
    """(A/β + I/R²)^(−1/2) [p, p]: in W the set is round up to a factor of two."""
    gram: Array
    """A/β [p, p]."""
    slope: Array
    """(A·center − B)/β [p, o]: zero unless the ball binds."""
    bound: Array
    """R."""


@dataclass(frozen=True)
class LinearClass:
    """Linear functions of given features.

    Main arguments:
        features: φ, (x [d], u [k]) -> [p].
        bound: R, on the Frobenius norm of Θ.
        outputs: o for a vector (a drift), None for a scalar (a reward).

    Other arguments:
        feature_bound: a bound on ‖φ‖, which the covering number needs.
    """

    features: Features
    bound: float
    outputs: int | None = None
    feature_bound: float = 1.0

    def __post_init__(self) -> None:
        require(self.bound > 0, f"bound: R must be positive, not {self.bound}")
        require(self.feature_bound > 0, f"feature_bound: must be positive, not {self.feature_bound}")

    def apply(self, theta: Array, x: Array, u: Array) -> Array:
        """⟨Θ, φ(x, u)⟩ for Θ [p, o]: [o], or a scalar where `outputs` is None."""
        value = self.features(x, u) @ theta
        return value[0] if self.outputs is None else value

    def size(self, state_dim: int, control_dim: int) -> int:
        """p, the number of features; raises if the feature map does not fit the system."""
        arguments = [jax.ShapeDtypeStruct((n,), jnp.float32) for n in (state_dim, control_dim)]
        try:
            shape = jax.eval_shape(self.features, *arguments).shape
        except (TypeError, ValueError, IndexError) as error:
            raise InputError(f"features: cannot be evaluated on x [{state_dim}], u [{control_dim}]: {error}") from error
        require(len(shape) == 1, f"features: must return a vector [p], got shape {shape}")
        return shape[0]

    def log_cover(self, features: int, epsilon: float) -> float:
        """Logarithm of the covering number at scale ε: p·o·log(1 + 2RL/ε)."""
        return features * (self.outputs or 1) * math.log1p(2 * self.bound * self.feature_bound / epsilon)

    def start(self, features: int) -> Statistics:
        """No data yet."""
        return Statistics(np.zeros((features, features)), np.zeros((features, self.outputs or 1)), 0.0)

    def fit(self, statistics: Statistics) -> tuple[np.ndarray, float]:
        """The minimiser of the loss over the ball [p, o], and the minimum."""
        values, vectors = np.linalg.eigh(statistics.gram)
        values = np.maximum(values, 0.0)
        target = vectors.T @ statistics.cross
        floor = 1e-10 * max(values[-1], 1.0)

        def solution(multiplier: float) -> np.ndarray:
            return np.where(
                values[:, None] + multiplier > floor, target / np.maximum(values + multiplier, floor)[:, None], 0.0
            )

        low = high = 0.0
        if np.linalg.norm(solution(0.0)) > self.bound:
            high = np.linalg.norm(target) / self.bound  # ‖(Λ + μ)⁻¹t‖ ≤ ‖t‖/μ
            for _ in range(60):
                middle = (low + high) / 2
                low, high = (middle, high) if np.linalg.norm(solution(middle)) > self.bound else (low, middle)
        theta = vectors @ solution(high)
        return theta, statistics.loss(theta)

    def region(self, statistics: Statistics, beta: float) -> Region:
        """The confidence set of radius β, for the planner."""
        center, _ = self.fit(statistics)
        values, vectors = np.linalg.eigh(statistics.gram / beta + np.eye(len(center)) / self.bound**2)
        shape = (vectors / np.sqrt(values)) @ vectors.T
        slope = (statistics.gram @ center - statistics.cross) / beta
        arrays = center, shape, statistics.gram / beta, slope, self.bound
        return Region(*(jnp.asarray(array, jnp.float32) for array in arrays))


def decode(region: Region, w: Array) -> Array:
    """Θ [p, o] for coordinates W [p, o] in the region."""
    return region.center + region.shape @ w


def retract(region: Region, w: Array) -> Array:
    """W moved towards the center until Θ is in the set: since it is convex and holds its center, the largest step that
    stays inside is the smaller root of two quadratics."""
    direction = region.shape @ w
    ellipsoid = _reach(jnp.sum(direction * (region.gram @ direction)), 2 * jnp.sum(direction * region.slope), 1.0)
    norms = jnp.sum(region.center**2)
    ball = _reach(jnp.sum(direction**2), 2 * jnp.sum(direction * region.center), region.bound**2 - norms)
    return w * jnp.minimum(1.0, jnp.minimum(ellipsoid, ball))


def _reach(a: Array, b: Array, c: Array) -> Array:
    """The largest s ≥ 0 with a s² + b s ≤ c, for a ≥ 0 and c ≥ 0."""
    c = jnp.maximum(c, 0.0)
    root = jnp.sqrt(b**2 + 4 * a * c)
    # for b > 0 the form without cancellation; a direction that no data has seen (a = 0, b ≤ 0) never leaves
    falling = jnp.where(a > 1e-20, (root - b) / jnp.maximum(2 * a, 1e-20), jnp.inf)
    return jnp.where(b > 0, 2 * c / jnp.maximum(b + root, 1e-20), falling)

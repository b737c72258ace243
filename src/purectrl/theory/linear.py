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
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purectrl.core.errors import InputError, MeasurementError, require
from purectrl.core.keys import Key
from purectrl.core.problem import Array
from purectrl.systems.simulation import pad_rows
from purectrl.theory.classes import Rows
from purectrl.theory.complexity import log_cover_linear
from purectrl.theory.features import Features

FLOOR = 1e-10
"""An eigenvalue of A below this share of the largest counts as zero: a direction that no data has seen."""


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

    def after(self, features: np.ndarray, targets: np.ndarray) -> "Statistics":
        """With rows φ [n, p] and y [n, o] added."""
        y = targets.astype(np.float64)
        return Statistics(
            self.gram + features.T @ features, self.cross + features.T @ y, self.square + float((y**2).sum())
        )


class Region(NamedTuple):
    """A confidence set {Θ : L(Θ) ≤ min L + β, ‖Θ‖_F ≤ R} as the planner moves in it."""

    center: Array
    """A point inside [p, o]: the minimiser, moved inwards where the ball is near."""
    shape: Array
    """(A/β + I/R²)^(−1/2) [p, p]: what makes the set round up to a factor of two."""
    gram: Array
    """A/β [p, p]."""
    slope: Array
    """(A·center − B)/β [p, o]: zero at the minimiser, unless the ball binds."""
    room: Array
    """1 − (L(center) − min L)/β: zero on the ellipsoid."""
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

    Drifts that are linear in (x, u), for d = 2 and k = 1; Θ has shape [p, o] = [3, 2]:

    >>> drifts = LinearClass(lambda x, u: jnp.concatenate([x, u]), bound=10.0, outputs=2)
    >>> theta = jnp.array([[0.0, -1.0], [1.0, 0.0], [0.0, 2.0]])
    >>> drifts.apply(theta, jnp.array([1.0, 3.0]), jnp.array([0.5])).tolist()
    [3.0, 0.0]
    """

    features: Features
    bound: float
    outputs: int | None = None
    feature_bound: float = 1.0
    _features: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require(self.bound > 0, f"bound: R must be positive, not {self.bound}")
        require(self.feature_bound > 0, f"feature_bound: must be positive, not {self.feature_bound}")
        object.__setattr__(self, "_features", jax.jit(lambda x, u: (jax.vmap(self.features)(x, u),)))

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
        return log_cover_linear(features * (self.outputs or 1), self.bound, self.feature_bound, epsilon)

    def start(self, key: Key, state_dim: int, control_dim: int) -> Statistics:
        """No data yet."""
        features = self.size(state_dim, control_dim)
        return Statistics(np.zeros((features, features)), np.zeros((features, self.outputs or 1)), 0.0)

    def observe(self, statistics: Statistics, rows: Rows) -> Statistics:
        """The statistics with more rows in them."""
        return statistics.after(self.rows_features(rows), rows.y)

    def rows_features(self, rows: Rows) -> np.ndarray:
        """φ of every row [n, p]; raises where it is not finite."""
        (found,) = pad_rows(self._features, rows.x, rows.u)
        if not np.isfinite(found).all():
            row = np.argwhere(~np.isfinite(found))[0][0]
            raise MeasurementError(f"the features are not finite at x = {rows.x[row]}, u = {rows.u[row]}")
        return found.astype(np.float64)

    def refit(self, statistics: Statistics, rows: Rows, thorough: bool = False) -> Statistics:
        """Nothing to do: the fit has a closed form."""
        return statistics

    def minimum(self, statistics: Statistics) -> float:
        """min L."""
        return self.fit(statistics)[1]

    def excess(self, statistics: Statistics, theta: np.ndarray, rows: Rows) -> float:
        """L(Θ) − min L."""
        return statistics.loss(theta) - self.minimum(statistics)

    def excesses(self, statistics: Statistics, theta: np.ndarray, rows: Rows, m: int) -> np.ndarray:
        """L(Θ) − min L after each episode of m rows [episodes]."""
        phi, y = self.rows_features(rows).reshape(-1, m, len(theta)), rows.y.reshape(-1, m, theta.shape[1])
        grams = statistics.gram + np.cumsum(np.einsum("emp,emq->epq", phi, phi), axis=0)
        crosses = statistics.cross + np.cumsum(np.einsum("emp,emo->epo", phi, y), axis=0)
        squares = statistics.square + np.cumsum((y.astype(np.float64) ** 2).sum(axis=(1, 2)))
        values, vectors = np.linalg.eigh(grams)
        target = np.einsum("epq,epo->eqo", vectors, crosses)
        seen = values > FLOOR * np.maximum(values[:, -1:], 1.0)
        free = np.where(seen[..., None], target / np.where(seen, values, 1.0)[..., None], 0.0)
        least = squares - (free * target).sum(axis=(1, 2))
        binds = np.flatnonzero((free**2).sum(axis=(1, 2)) > self.bound**2)
        if binds.size:  # there the ball decides
            least[binds] = squares[binds] + _least_in_ball(values[binds], target[binds], self.bound)
        losses = np.einsum("po,epo->e", theta, grams @ theta - 2 * crosses) + squares
        return losses - least

    def contains(self, statistics: Statistics, rows: Rows, beta: float, truth: np.ndarray) -> bool:
        """Whether Θ = `truth` [p, o] is in the set that `statistics` define."""
        return bool(self.excess(statistics, truth, rows) <= beta and np.linalg.norm(truth) <= self.bound)

    def fit(self, statistics: Statistics) -> tuple[np.ndarray, float]:
        """The minimiser of the loss over the ball [p, o], and the minimum."""
        values, vectors = np.linalg.eigh(statistics.gram)
        values = np.maximum(values, 0.0)
        target = vectors.T @ statistics.cross
        floor = FLOOR * max(values[-1], 1.0)

        found = np.where(values[:, None] > floor, target / np.maximum(values, floor)[:, None], 0.0)
        if np.linalg.norm(found) > self.bound:
            found = target / (values + _multiplier(values[None], target[None], self.bound))[:, None]
        theta = vectors @ found
        return theta, statistics.loss(theta)

    def region(self, statistics: Statistics, rows: Rows, beta: float) -> Region:
        """The confidence set of radius β, for the planner."""
        center, least = self.fit(statistics)
        bend = float(np.sum(center * (statistics.gram @ center))) / beta
        pull = 2 * float(np.sum(center * (statistics.cross - statistics.gram @ center))) / beta
        pull = max(pull, 0.0)
        inwards = min(0.5, 1.0 / (pull + math.sqrt(pull**2 + 2 * bend) + 1e-12))  # costs at most half of the radius
        if (1 + inwards) * np.linalg.norm(center) > self.bound:
            center = (1 - inwards) * center
        room = 1 - (statistics.loss(center) - least) / beta
        values, vectors = np.linalg.eigh(statistics.gram / beta + np.eye(len(center)) / self.bound**2)
        shape = (vectors / np.sqrt(values)) @ vectors.T
        slope = (statistics.gram @ center - statistics.cross) / beta
        arrays = center, shape, statistics.gram / beta, slope, room, self.bound
        return Region(*(np.asarray(array, np.float32) for array in arrays))

    def decode(self, region: Region, w: Array) -> Array:
        """Θ [p, o] for coordinates w [p, o]: any w is a point inside the set, and any point inside has its w.

        w is shortened by tanh(g)/g, g being its gauge, so that the set becomes all of space. Stepping out and pulling back
        along the ray instead is no projection, and stops where the gradient is parallel to the ray.
        """
        g = gauge(region, region.shape @ w)
        return region.center + region.shape @ w * (jnp.tanh(g) / g)

    def encode(self, region: Region, theta: np.ndarray) -> np.ndarray:
        """The inverse of `decode`; a point on or beyond the surface of the set is taken just below it."""
        direction = np.asarray(theta - np.asarray(region.center), np.float64)
        g = float(_gauge(region, np.float32(direction)))
        w = np.linalg.solve(np.asarray(region.shape, np.float64), direction)
        return np.float32(w * np.arctanh(min(g, 0.9999)) / g)

    def violation(self, region: Region, w: Array) -> Array:
        """Nothing to press: no coordinates are outside."""
        return jnp.float32(0.0)

    def settle(self, region: Region, w: Array) -> Array:
        """Nothing to do: all coordinates are inside."""
        return w

    def random(self, region: Region, key: Key) -> Array:
        """A random point of the set or, half of the time, its center."""
        draws = key.generator()
        return np.float32(draws.integers(2) * draws.normal(size=region.center.shape))


def _multiplier(values: np.ndarray, target: np.ndarray, bound: float) -> np.ndarray:
    """μ [n] with ‖(Λ + μ)⁻¹t‖ = R for eigenvalues Λ [n, p] and t [n, p, o], where μ = 0 gives more than R; by bisection,
    since ‖(Λ + μ)⁻¹t‖ ≤ ‖t‖/μ. The upper end, so that the solution is in the ball."""
    size = (target**2).sum(axis=-1)
    low, high = np.zeros(len(values)), np.sqrt(size.sum(axis=1)) / bound
    for _ in range(60):
        middle = (low + high) / 2
        outside = (size / (values + middle[:, None]) ** 2).sum(axis=1) > bound**2
        low, high = np.where(outside, middle, low), np.where(outside, high, middle)
    return high


def _least_in_ball(values: np.ndarray, target: np.ndarray, bound: float) -> np.ndarray:
    """The minimum over the ball of Σ λ‖w‖² − 2⟨w, t⟩ [n], where the ball binds."""
    w = target / (values + _multiplier(values, target, bound)[:, None])[..., None]
    return (w * (values[..., None] * w - 2 * target)).sum(axis=(1, 2))


def gauge(region: Region, direction: Array) -> Array:
    """How many times `direction` [p, o] from the center is as long as the way to the surface of the set: below 1 inside.

    The surface is where one of two quadratics a s² + b s reaches its room c; 1/s is (b + sqrt(b² + 4ac))/2c.
    """

    def quadratic(a: Array, b: Array, c: Array) -> Array:
        # the small number keeps the slope finite at the center
        return (b + jnp.sqrt(b**2 + 4 * a * c + 1e-12)) / (2 * c)

    bent = jnp.sum(direction * (region.gram @ direction))
    ellipsoid = quadratic(bent, 2 * jnp.sum(direction * region.slope), region.room)
    left = region.bound**2 - jnp.sum(region.center**2)
    ball = quadratic(jnp.sum(direction**2), 2 * jnp.sum(direction * region.center), left)
    return jnp.maximum(ellipsoid, ball)


_gauge = jax.jit(gauge)

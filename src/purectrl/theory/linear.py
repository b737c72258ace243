"""Linear classes {⟨Θ, φ(x, u)⟩ : ‖Θ‖_F ≤ R}: least squares, confidence sets and their shape, from sufficient statistics.

    symbol                      here
    --------------------------  -----------------------------------------------------------
    φ(x, u) ∈ R^p               features
    Θ ∈ R^{p×o}, R              parameter, bound
    L_D(Θ) = Σ ‖Θᵀφ − y‖²       Statistics.loss: tr(ΘᵀAΘ) − 2 tr(ΘᵀB) + c
    A = Σ φφᵀ, B = Σ φyᵀ, c     gram [p, p], cross [p, o], square
    min over the ball           `fit`, by the eigenvalues of A and one multiplier
    Θ̂_{t−1} = (A + λI)⁻¹ B      the ridge regression on the rows before t, with which row t is predicted; λ is `ridge`

Everything costs the same at measurement one hundred thousand as at one thousand.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.errors import InputError, MeasurementError, require
from purectrl.core.keys import Key
from purectrl.systems.compiled import pad_rows
from purectrl.theory.classes import EpisodeLosses, RegressionData, TrueFunction
from purectrl.theory.complexity import log_cover_linear
from purectrl.theory.features import Features

FLOOR = 1e-10
"""An eigenvalue of A below this share of the largest counts as zero: a direction that no data has seen."""


class Statistics(NamedTuple):
    """The sufficient statistics of least squares."""

    gram: np.ndarray
    """A = Σ φφᵀ [p, p]."""
    cross: np.ndarray
    """B = Σ φyᵀ [p, o]."""
    square: float
    """c = Σ ‖y‖²."""
    prequential: float = 0.0
    """Σ_t ‖Θ̂_{t−1}ᵀφ_t − y_t‖²: the loss of predicting each row by the ridge regression on those before it."""

    def loss(self, theta: np.ndarray) -> float:
        """L_D(Θ) for Θ [p, o]."""
        return float(np.sum(theta * (self.gram @ theta - 2 * self.cross)) + self.square)

    def add(self, features: np.ndarray, targets: np.ndarray) -> "Statistics":
        """The statistics with rows φ [n, p] and y [n, o] added."""
        y = targets.astype(np.float64)
        gram, cross = self.gram + features.T @ features, self.cross + features.T @ y
        return Statistics(gram, cross, self.square + float((y**2).sum()), self.prequential)

    def prediction_losses(self, features: np.ndarray, targets: np.ndarray, ridge: float) -> np.ndarray:
        """‖Θ̂_{t−1}ᵀφ_t − y_t‖² for new rows φ [n, p] and y [n, o], each predicted from all rows before it [n]."""
        y = targets.astype(np.float64)
        past = lambda rows: np.cumsum(rows, axis=0) - rows  # noqa: E731
        grams = self.gram + past(features[:, :, None] * features[:, None]) + ridge * np.eye(features.shape[1])
        crosses = self.cross + past(features[:, :, None] * y[:, None])
        predicted = np.einsum("np,npo->no", features, np.linalg.solve(grams, crosses))
        return ((predicted - y) ** 2).sum(axis=1)


class LinearConfidenceSet(NamedTuple):
    """A confidence set {Θ : L(Θ) ≤ min L + β, ‖Θ‖_F ≤ R}, in the form that the planner needs."""

    center: Array
    """A point inside [p, o]: the minimizer, moved inwards where the ball is near."""
    shape: Array
    """(A/β + I/R²)^(−1/2) [p, p]: a preconditioner that makes the set round up to a factor of two."""
    gram: Array
    """A/β [p, p]."""
    slope: Array
    """(A·center − B)/β [p, o]: zero at the minimizer, unless the ball binds."""
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
        ridge: λ > 0 of the ridge regressions that predict every row before it is used; None makes no predictions.
        true_parameter: a true function -> its Θ [p, o], or None if it is not a member.

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
    ridge: float | None = None
    true_parameter: Callable[[TrueFunction], np.ndarray | None] = attrgetter("parameter")
    _features: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require(self.bound > 0, f"bound: R must be positive, not {self.bound}")
        require(self.feature_bound > 0, f"feature_bound: must be positive, not {self.feature_bound}")
        require(self.ridge is None or self.ridge > 0, f"ridge: λ must be positive, not {self.ridge}")
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

    def init(self, key: Key, state_dim: int, control_dim: int) -> Statistics:
        """The statistics of no data."""
        features = self.size(state_dim, control_dim)
        return Statistics(np.zeros((features, features)), np.zeros((features, self.outputs or 1)), 0.0)

    def observe(self, statistics: Statistics, data: RegressionData) -> Statistics:
        """The statistics with new data added, each row after its prediction."""
        phi = self.feature_rows(data)
        if self.ridge is not None:
            losses = statistics.prediction_losses(phi, data.y, self.ridge)
            statistics = statistics._replace(prequential=statistics.prequential + float(losses.sum()))
        return statistics.add(phi, data.y)

    def feature_rows(self, data: RegressionData) -> np.ndarray:
        """φ of every row [n, p]; raises where it is not finite."""
        (found,) = pad_rows(self._features, data.x, data.u)
        if not np.isfinite(found).all():
            row = np.argwhere(~np.isfinite(found))[0][0]
            raise MeasurementError(f"the features are not finite at x = {data.x[row]}, u = {data.u[row]}")
        return found.astype(np.float64)

    def refit(self, statistics: Statistics, data: RegressionData, thorough: bool = False) -> Statistics:
        """The same statistics: the fit has a closed form."""
        return statistics

    def minimum(self, statistics: Statistics) -> float:
        """min L."""
        return self.fit(statistics)[1]

    def prequential(self, statistics: Statistics) -> float:
        """The loss of the predictions."""
        return statistics.prequential

    def excess_loss(self, statistics: Statistics, theta: np.ndarray, data: RegressionData) -> float:
        """L(Θ) − min L."""
        return statistics.loss(theta) - self.minimum(statistics)

    def losses_per_episode(
        self, statistics: Statistics, theta: np.ndarray, data: RegressionData, m: int
    ) -> EpisodeLosses:
        """L(Θ) − min L, and the regret of the predictions, after each episode of m rows."""
        phi, y = self.feature_rows(data).reshape(-1, m, len(theta)), data.y.reshape(-1, m, theta.shape[1])
        grams = statistics.gram + np.cumsum(np.einsum("emp,emq->epq", phi, phi), axis=0)
        crosses = statistics.cross + np.cumsum(np.einsum("emp,emo->epo", phi, y), axis=0)
        squares = statistics.square + np.cumsum((y.astype(np.float64) ** 2).sum(axis=(1, 2)))
        values, vectors = np.linalg.eigh(grams)
        target = np.einsum("epq,epo->eqo", vectors, crosses)
        seen = values > FLOOR * np.maximum(values[:, -1:], 1.0)
        free = np.where(seen[..., None], target / np.where(seen, values, 1.0)[..., None], 0.0)
        least = squares - (free * target).sum(axis=(1, 2))
        binds = np.flatnonzero((free**2).sum(axis=(1, 2)) > self.bound**2)
        if binds.size:  # where the unconstrained minimizer is outside the ball
            least[binds] = squares[binds] + _least_in_ball(values[binds], target[binds], self.bound)
        losses = np.einsum("po,epo->e", theta, grams @ theta - 2 * crosses) + squares
        predicted = np.full(len(least), statistics.prequential)
        if self.ridge is not None:
            rows = statistics.prediction_losses(phi.reshape(-1, len(theta)), data.y, self.ridge)
            predicted = predicted + np.cumsum(rows.reshape(-1, m).sum(axis=1))
        return EpisodeLosses(losses - least, predicted - least)

    def truth_excess(self, statistics: Statistics, data: RegressionData, truth: TrueFunction) -> float:
        """L(Θ*) − min L; infinite if the truth is not a member or outside the ball."""
        theta = self.true_parameter(truth)
        if theta is None or np.linalg.norm(theta) > self.bound:
            return math.inf
        return self.excess_loss(statistics, theta, data)

    def contains(self, statistics: Statistics, theta: np.ndarray, data: RegressionData, beta: float) -> bool:
        """Whether L(Θ) ≤ min L + β and ‖Θ‖ ≤ R, up to the rounding of float32."""
        near = np.linalg.norm(theta) <= self.bound * (1 + 1e-5)
        return bool(near) and self.excess_loss(statistics, theta, data) <= beta * (1 + 1e-5)

    def fit(self, statistics: Statistics) -> tuple[np.ndarray, float]:
        """The minimizer of the loss over the ball [p, o], and the minimum."""
        values, vectors = np.linalg.eigh(statistics.gram)
        values = np.maximum(values, 0.0)
        target = vectors.T @ statistics.cross
        floor = FLOOR * max(values[-1], 1.0)

        found = np.where(values[:, None] > floor, target / np.maximum(values, floor)[:, None], 0.0)
        if np.linalg.norm(found) > self.bound:
            found = target / (values + _multiplier(values[None], target[None], self.bound))[:, None]
        theta = vectors @ found
        return theta, statistics.loss(theta)

    def confidence_set(self, statistics: Statistics, data: RegressionData, beta: float) -> LinearConfidenceSet:
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
        return LinearConfidenceSet(*(jnp.asarray(array, jnp.float32) for array in arrays))

    def decode(self, confidence_set: LinearConfidenceSet, w: Array) -> Array:
        """Θ [p, o] for coordinates w [p, o]: any w is a point inside the set, and any point inside has its w.

        w is multiplied by tanh(g)/g, where g is its gauge, so that the set becomes all of space. Stepping out of the set and
        back along the ray instead is not a projection, and stops where the gradient is parallel to the ray.
        """
        g = gauge(confidence_set, confidence_set.shape @ w)
        return confidence_set.center + confidence_set.shape @ w * (jnp.tanh(g) / g)

    def encode(self, confidence_set: LinearConfidenceSet, theta: np.ndarray) -> np.ndarray:
        """The inverse of `decode`; a point on or outside the boundary of the set is moved just inside."""
        direction = np.asarray(theta - np.asarray(confidence_set.center), np.float64)
        g = float(_gauge(confidence_set, np.float32(direction)))
        w = np.linalg.solve(np.asarray(confidence_set.shape, np.float64), direction)
        return (w * np.arctanh(min(g, 0.9999)) / g).astype(np.float32)

    def violation(self, confidence_set: LinearConfidenceSet, w: Array) -> Array:
        """Zero: no coordinates are outside."""
        return jnp.float32(0.0)

    def project(self, confidence_set: LinearConfidenceSet, w: Array) -> Array:
        """The same coordinates: all of them are inside."""
        return w

    def middle(self, confidence_set: LinearConfidenceSet) -> np.ndarray:
        """The coordinates of the center."""
        return np.zeros(confidence_set.center.shape, np.float32)

    def draw(self, confidence_set: LinearConfidenceSet, key: Key) -> np.ndarray:
        """The coordinates of a random point of the set."""
        return key.generator().normal(size=confidence_set.center.shape).astype(np.float32)

    def sample(self, confidence_set: LinearConfidenceSet, key: Key) -> np.ndarray:
        """A random point of the set or, half of the time, its center."""
        draws = key.generator()
        return (draws.integers(2) * draws.normal(size=confidence_set.center.shape)).astype(np.float32)


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


def information_gain(statistics: Statistics, ridge: float) -> float:
    """γ_n = ½ log det(I + K_n/λ) of the measurements, K_n = ΦΦᵀ, by det(I + ΦΦᵀ/λ) = det(I + ΦᵀΦ/λ).

    The determinant has doubled 2γ_n / log 2 times since the start: how often an algorithm updates that waits for that.

    >>> round(information_gain(Statistics(3.0 * np.eye(2), np.zeros((2, 1)), 0.0), ridge=1.0), 4)  # log 4
    1.3863
    """
    return float(np.linalg.slogdet(np.eye(len(statistics.gram)) + statistics.gram / ridge)[1] / 2)


def gauge(confidence_set: LinearConfidenceSet, direction: Array) -> Array:
    """The length of `direction` [p, o] from the center, in units of the distance to the boundary of the set: below 1 inside.

    The boundary is where one of two quadratics a s² + b s reaches its room c; 1/s is (b + sqrt(b² + 4ac))/2c.
    """

    def quadratic(a: Array, b: Array, c: Array) -> Array:
        # the small number keeps the slope finite at the center
        return (b + jnp.sqrt(b**2 + 4 * a * c + 1e-12)) / (2 * c)

    bent = jnp.sum(direction * (confidence_set.gram @ direction))
    ellipsoid = quadratic(bent, 2 * jnp.sum(direction * confidence_set.slope), confidence_set.room)
    left = confidence_set.bound**2 - jnp.sum(confidence_set.center**2)
    ball = quadratic(jnp.sum(direction**2), 2 * jnp.sum(direction * confidence_set.center), left)
    return jnp.maximum(ellipsoid, ball)


_gauge = jax.jit(gauge)

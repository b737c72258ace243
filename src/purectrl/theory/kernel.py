"""Kernel classes: the functions of a reproducing-kernel Hilbert space with norm at most R, on the span of chosen points.

    symbol                          here
    ------------------------------  ----------------------------------------------------------------------------
    k(z, z'), z = (x, u)            kernel
    Z = (z_1, …, z_p)               points, chosen among candidates by `choose_points`
    f = Σ_j a_j k(z_j, ·)           a member: f = ⟨Θ, φ⟩ with φ(z) = L⁻¹ k(Z, z), where L Lᵀ = k(Z, Z)
    ‖f‖_k ≤ R                       ‖Θ‖ ≤ R: the norm of the space is that of Θ
    ridge regression, λ             the posterior mean of a Gaussian process with kernel k_Z and noise λ
    γ_n = ½ log det(I + K_n/λ)      `purectrl.theory.linear.information_gain`; K_n is the kernel matrix of the measurements

On this span everything is exact: it is the space of the kernel k_Z(z, z') = ⟨φ(z), φ(z')⟩, and a linear class with features
φ, so least squares, confidence sets and the planner are those of `purectrl.theory.linear` and cost the same at any n. Of the
whole space of k, a function of norm R is on every candidate within R·sqrt(tolerance) of the span.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.errors import require
from purectrl.theory.classes import TrueFunction
from purectrl.theory.features import Features
from purectrl.theory.linear import LinearClass

Kernel = Callable[[Array, Array], Array]
"""(z [d + k], z' [d + k]) -> k(z, z'), positive definite."""
EXACT = 1e-4
"""How far a member may be from a true function on all candidates, relative to its largest value, to be that function."""


def gaussian_kernel(widths: np.ndarray) -> Kernel:
    """k(z, z') = exp(−Σ_i (z_i − z'_i)²/(2 w_i²)) for widths w [d + k].

    >>> round(float(gaussian_kernel(np.array([1.0]))(jnp.zeros(1), jnp.ones(1))), 4)
    0.6065
    """
    require(bool((np.asarray(widths) > 0).all()), f"widths: must be positive, not {widths}")
    scale = jnp.asarray(widths, jnp.float32)
    return lambda z, other: jnp.exp(-jnp.sum(((z - other) / scale) ** 2) / 2)


def choose_points(kernel: Kernel, candidates: np.ndarray, first: int = 0, tolerance: float = 1e-3) -> np.ndarray:
    """Points among the candidates [n, d + k] that represent the others: pivoted Cholesky.

    The next point is the one that those before explain worst, until k(z, z) − k_Z(z, z) ≤ tolerance · max k everywhere.

    Main arguments:
        first: the first so many candidates are chosen in any case, unless those before explain them.

    >>> line = np.linspace(0.0, 1.0, 50)[:, None]
    >>> [len(choose_points(gaussian_kernel(np.array([width])), line)) for width in (0.5, 9.0)]
    [5, 2]
    """
    require(0 < tolerance < 1, f"tolerance: must lie between 0 and 1, not {tolerance}")
    gram = _gram(kernel, candidates, candidates)
    left, most = gram.diagonal().copy(), float(gram.diagonal().max())
    columns, chosen = np.zeros((0, len(candidates))), list[int]()
    while left.max() > tolerance * most:
        waiting = [one for one in range(first) if left[one] > tolerance * most]
        pivot = waiting[0] if waiting else int(left.argmax())
        column = (gram[pivot] - columns[:, pivot] @ columns) / np.sqrt(left[pivot])
        columns, left = np.vstack([columns, column]), left - column**2
        chosen.append(pivot)
    return candidates[chosen]


def kernel_features(kernel: Kernel, points: np.ndarray) -> Features:
    """φ(z) = L⁻¹ k(Z, z) [p] for points Z [p, d + k]: ⟨φ(z), φ(z')⟩ is k(z, z') if one of z, z' is a point.

    >>> found = kernel_features(gaussian_kernel(np.ones(2)), np.array([[0.0, 0.0], [1.0, 0.0]]))(jnp.ones(1), jnp.zeros(1))
    >>> round(float(found @ found), 4)
    1.0
    """
    factor = np.linalg.cholesky(_gram(kernel, points, points))
    inverse = jnp.asarray(np.linalg.inv(factor), jnp.float32)
    places = jnp.asarray(points, jnp.float32)

    def features(x: Array, u: Array) -> Array:
        z = jnp.concatenate([x, u])
        return inverse @ jax.vmap(lambda place: kernel(place, z))(places)

    return features


def kernel_class(
    features: Features, candidates: np.ndarray, bound: float, state_dim: int, outputs: int | None = None
) -> LinearClass:
    """The ball {⟨Θ, φ⟩ : ‖Θ‖ ≤ R}, to which a true function belongs if the features represent it on all candidates.

    Main arguments:
        features: φ of one kernel, or of a sum of kernels: their features, one after the other.
        candidates: where functions are compared [n, d + k].
        bound: R.
        state_dim: d; the other columns of the candidates are the control.
        outputs: o for a vector (a drift), None for a scalar (a reward).
    """
    x, u = (jnp.asarray(part, jnp.float32) for part in (candidates[:, :state_dim], candidates[:, state_dim:]))
    rows = np.asarray(jax.vmap(features)(x, u), np.float64)

    def parameter(truth: TrueFunction) -> np.ndarray | None:
        values = np.asarray(jax.vmap(truth.function)(x, u), np.float64).reshape(len(rows), -1)
        theta = np.linalg.lstsq(rows, values, rcond=None)[0]
        off = np.abs(rows @ theta - values).max()
        return theta if off <= EXACT * max(float(np.abs(values).max()), 1e-12) else None

    largest = float(np.sqrt((rows**2).sum(axis=1).max()))
    return LinearClass(features, bound, outputs, feature_bound=largest, true_parameter=parameter)


def _gram(kernel: Kernel, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    each = jax.vmap(jax.vmap(kernel, (None, 0)), (0, None))
    found = each(jnp.asarray(rows, jnp.float32), jnp.asarray(columns, jnp.float32))
    return np.asarray(found, np.float64)

"""Optimism of a reward model: four ways to turn its uncertainty into a bonus.

The last layer of a reward model is linear in features φ(x, t), so the data enter its uncertainty through the matrix
A = λI + Σ φφᵀ over all measurements. It is stored as its Cholesky factor L, LLᵀ = A, which is updated without forming A.
Every further measurement can only decrease φᵀA⁻¹φ: the bonus shrinks with data.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from purectrl.core.errors import require


class Posterior(NamedTuple):
    """What an uncertainty can use."""

    activation: Callable[[Tensor], Tensor]
    """From outputs of heads [...] to rewards [...]."""
    heads: Tensor
    """The last layer [num_heads, d]."""
    factor: Tensor
    """L, the Cholesky factor of A [d, d]."""
    direction: Tensor
    """L⁻ᵀ times standard normal numbers, drawn once per update [d]: a sample of N(0, A⁻¹)."""


class Uncertainty(NamedTuple):
    """A bonus and the number of last layers that it needs."""

    num_heads: int
    """Last layers that are trained; if there are several, each on its own resample of the episodes."""
    bonus: Callable[[Tensor, Posterior], Tensor]
    """(φ [n, d], posterior) -> what is added to the predicted rewards [n]."""


def ridge_factor(width: int, ridge: float) -> Tensor:
    """L before any measurement: A = λI [d, d]."""
    require(ridge > 0, f"ridge: λ must be positive, not {ridge}: otherwise A has no inverse before there are data")
    return ridge**0.5 * torch.eye(width, dtype=torch.float64)


def cholesky_update(factor: Tensor, features: Tensor) -> Tensor:
    """L of A + Σ φφᵀ [d, d], from L of A [d, d] and further features φ [n, d], by a QR decomposition.

    >>> cholesky_update(ridge_factor(1, ridge=9.0), torch.tensor([[4.0]])).item()  # sqrt(9 + 16)
    5.0
    """
    triangle = torch.linalg.qr(torch.cat([factor.T, features.to(factor)]), mode="r").R
    return (triangle * torch.sign(triangle.diagonal())[:, None]).T


def elliptical_norm(factor: Tensor, features: Tensor) -> Tensor:
    """sqrt(φᵀ A⁻¹ φ) [n] for features [n, d]; differentiable in the features."""
    solved = torch.linalg.solve_triangular(factor.to(features), features.T, upper=False)
    return torch.linalg.vector_norm(solved, dim=0)


class RidgeFit(NamedTuple):
    """A ridge regression and its confidence ellipsoid {θ : (θ − θ̂)ᵀ A (θ − θ̂) ≤ β²}."""

    theta: Tensor
    """θ̂ [d]."""
    factor: Tensor
    """Cholesky factor of A = λI + Σφφᵀ [d, d]."""
    ridge: float
    """λ."""
    noise: float
    """Estimated standard deviation of a label."""
    radius: float
    """β."""


RIDGES = tuple(10.0 ** (exponent / 4) for exponent in range(-16, 25))
"""The λ among which generalised cross-validation chooses."""


def fit_ridge(features: Tensor, r: Tensor, confidence: float = 0.95) -> RidgeFit:
    """Ridge regression of r [n] on features [n, d] in double precision, λ by generalised cross-validation.

    The radius is that of Abbasi-Yadkori et al. (2011), σ·sqrt(2 log(1/δ) + log det(A/λ)) + √λ·|θ|, with the estimated σ, and
    with |θ̂| in place of the unknown |θ|.
    """
    u, s, v = torch.linalg.svd(features, full_matrices=False)
    projected, total = u.T @ r, r.square().sum()
    outside = total - projected.square().sum()  # of r, what no θ explains

    def residuals(ridge: float) -> tuple[float, float]:
        """Sum of squares, and degrees of freedom that are left."""
        shrunk = ridge / (s.square() + ridge)
        left = len(r) - float((1 - shrunk).sum())
        return float(outside + (shrunk * projected).square().sum()), max(left, 1e-9)

    def gcv(ridge: float) -> float:
        squares, left = residuals(ridge)
        return squares / left**2

    ridge = min(RIDGES, key=gcv)
    squares, left = residuals(ridge)
    noise = (squares / left) ** 0.5
    theta = v.T @ (s / (s.square() + ridge) * projected)
    factor = cholesky_update(ridge_factor(features.shape[1], ridge), features)
    log_ratio = float((1 + s.square() / ridge).log().sum())  # log det(A/λ)
    radius = noise * (2 * math.log(1 / (1 - confidence)) + log_ratio) ** 0.5 + ridge**0.5 * float(theta.norm())
    return RidgeFit(theta, factor, ridge, noise, max(radius, 1e-12))


def sample_direction(factor: Tensor, generator: torch.Generator) -> Tensor:
    """A sample of N(0, A⁻¹) [d]."""
    noise = torch.randn(len(factor), 1, generator=generator, dtype=torch.float64)
    return torch.linalg.solve_triangular(factor.T.cpu(), noise, upper=True)[:, 0].to(factor)


def ucb(scale: float, num_heads: int = 1) -> Uncertainty:
    """`scale` · sqrt(φᵀ A⁻¹ φ): the upper confidence bound of a linear model on the last layer's features; one head."""
    return Uncertainty(1, lambda features, posterior: scale * elliptical_norm(posterior.factor, features))


def bootstrap(scale: float, num_heads: int = 8) -> Uncertainty:
    """`scale` · the standard deviation of heads that were trained on resampled episodes."""
    require(num_heads >= 2, f"num_heads: a spread needs at least two heads, not {num_heads}")

    def bonus(features: Tensor, posterior: Posterior) -> Tensor:
        values = posterior.activation(features @ posterior.heads.T)
        # not `std`, whose gradient is infinite where all heads agree
        return scale * (values.var(dim=1) + 1e-12).sqrt()

    return Uncertainty(num_heads, bonus)


def thompson(scale: float, num_heads: int = 1) -> Uncertainty:
    """What one sample of the last layer from N(ŵ, scale² A⁻¹), fixed for an update, predicts beyond ŵ; one head."""

    def bonus(features: Tensor, posterior: Posterior) -> Tensor:
        best = posterior.heads[0]
        sampled = best + scale * posterior.direction.to(best)
        return posterior.activation(features @ sampled) - posterior.activation(features @ best)

    return Uncertainty(1, bonus)


def greedy(scale: float = 0.0, num_heads: int = 1) -> Uncertainty:
    """No bonus; one head."""
    return Uncertainty(1, lambda features, posterior: torch.zeros_like(features[:, 0]))


UNCERTAINTIES: dict[str, Callable[[float, int], Uncertainty]] = {
    "ucb": ucb,
    "bootstrap": bootstrap,
    "thompson": thompson,
    "greedy": greedy,
}
"""(bonus_scale, num_heads) -> uncertainty, by the names that `RewardModelSettings.uncertainty` takes."""

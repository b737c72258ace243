"""How sure a reward model is: four ways to turn what it does not know into a bonus.

The last layer of a reward model is linear in features φ(x, t), so what the data say about it is the matrix
A = λI + Σ φφᵀ over all measurements. It is kept as its Cholesky factor L, LLᵀ = A, to which measurements are added without
forming A: every further measurement can only make φᵀA⁻¹φ smaller, so that the bonus shrinks with data.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from purectrl.core.errors import require


class Belief(NamedTuple):
    """What an uncertainty may look at."""

    value: Callable[[Tensor], Tensor]
    """From what a head puts out [...] to rewards [...]."""
    heads: Tensor
    """The last layer [heads, d]."""
    factor: Tensor
    """L, the Cholesky factor of A [d, d]."""
    direction: Tensor
    """L⁻ᵀ times standard normal numbers, drawn once an update [d]: a draw from N(0, A⁻¹)."""


class Uncertainty(NamedTuple):
    """A way to be optimistic."""

    name: str
    heads: int
    """Last layers that are trained, each on its own resample of the episodes if there are several."""
    bonus: Callable[[Tensor, Belief], Tensor]
    """(φ [n, d], belief) -> what is added to the predicted rewards [n]."""


def empty_factor(width: int, ridge: float) -> Tensor:
    """L before any measurement: A = λI [d, d]."""
    require(ridge > 0, f"ridge: λ must be positive, not {ridge}, or A has no inverse before there are data")
    return ridge**0.5 * torch.eye(width, dtype=torch.float64)


def absorb(factor: Tensor, features: Tensor) -> Tensor:
    """L of A + Σ φφᵀ [d, d], from L of A [d, d] and more features φ [n, d]: the triangle of a QR decomposition.

    >>> absorb(empty_factor(1, ridge=9.0), torch.tensor([[4.0]])).item()  # sqrt(9 + 16)
    5.0
    """
    triangle = torch.linalg.qr(torch.cat([factor.T, features.to(factor)]), mode="r").R
    return (triangle * torch.sign(triangle.diagonal())[:, None]).T


def width_of_confidence(factor: Tensor, features: Tensor) -> Tensor:
    """sqrt(φᵀ A⁻¹ φ) [n] for features [n, d]; differentiable in the features."""
    solved = torch.linalg.solve_triangular(factor.to(features), features.T, upper=False)
    return torch.linalg.vector_norm(solved, dim=0)


def draw_direction(factor: Tensor, generator: torch.Generator) -> Tensor:
    """A draw from N(0, A⁻¹) [d]."""
    noise = torch.randn(len(factor), 1, generator=generator, dtype=torch.float64)
    return torch.linalg.solve_triangular(factor.T.cpu(), noise, upper=True)[:, 0].to(factor)


def ucb(scale: float) -> Uncertainty:
    """`scale` · sqrt(φᵀ A⁻¹ φ): the upper confidence bound of a linear model on the last layer's features."""
    require(scale >= 0, f"scale: a bonus cannot be negative, got {scale}")
    return Uncertainty("ucb", 1, lambda features, belief: scale * width_of_confidence(belief.factor, features))


def bootstrap(scale: float, heads: int = 8) -> Uncertainty:
    """`scale` · the standard deviation of heads that were trained on resampled episodes."""
    require(scale >= 0, f"scale: a bonus cannot be negative, got {scale}")
    require(heads >= 2, f"heads: a spread needs at least two heads, not {heads}")

    def bonus(features: Tensor, belief: Belief) -> Tensor:
        values = belief.value(features @ belief.heads.T)
        # not `std`, whose gradient is infinite where all heads agree
        return scale * (values.var(dim=1) + 1e-12).sqrt()

    return Uncertainty("bootstrap", heads, bonus)


def thompson(scale: float) -> Uncertainty:
    """What one draw of the last layer from N(ŵ, scale² A⁻¹) says beyond ŵ: the same draw for a whole update."""
    require(scale >= 0, f"scale: a standard deviation cannot be negative, got {scale}")

    def bonus(features: Tensor, belief: Belief) -> Tensor:
        best = belief.heads[0]
        drawn = best + scale * belief.direction.to(best)
        return belief.value(features @ drawn) - belief.value(features @ best)

    return Uncertainty("thompson", 1, bonus)


def greedy() -> Uncertainty:
    """No bonus: the prediction is taken at its word."""
    return Uncertainty("greedy", 1, lambda features, belief: torch.zeros_like(features[:, 0]))

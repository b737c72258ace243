"""A sampler of OCoRL: times at which the model's errors are as different as possible."""

from dataclasses import dataclass

import numpy as np

from purectrl.core.samplers.adaptive import AdaptiveSampler, Criterion
from purectrl.core.uncertainty import Uncertainty


class _Distance:
    """The distance to the nearest time that was chosen."""

    def __init__(self, uncertainty: Uncertainty) -> None:
        self.covariance = uncertainty.covariance
        self.variance = np.diagonal(self.covariance, axis1=1, axis2=2).astype(np.float64)
        self.nearest = self.variance.sum(axis=0)  # the squared distance to zero: what is known without a measurement

    def scores(self, chosen: list[int]) -> np.ndarray:
        """The squared distance of each candidate from the nearest one that was chosen [n]."""
        return self.nearest

    def add(self, i: int) -> None:
        """Takes the distances to candidate `i` into account."""
        distance = self.variance + self.variance[:, i : i + 1] - 2 * self.covariance[:, :, i]
        self.nearest = np.minimum(self.nearest, distance.sum(axis=0).clip(0.0))


@dataclass(frozen=True)
class MaxKernelDistance(AdaptiveSampler):
    """First the time of the largest variance, then always the time whose error differs most from those at the chosen times.

    The distance of two times is Σ_j (Σ_j[s, s] + Σ_j[t, t] − 2 Σ_j[s, t]), the mean square of the difference of the errors;
    the nearest chosen time counts. Times at which the error is that of a chosen time, or zero, are never preferred.
    """

    def criterion(self, uncertainty: Uncertainty) -> Criterion:
        """The distance to the nearest chosen time."""
        return _Distance(uncertainty)

"""A receding horizon: each time is chosen before the prediction from the previous one has become too uncertain."""

from dataclasses import dataclass

import numpy as np

from purectrl.core.samplers.adaptive import AdaptiveSampler, Criterion
from purectrl.core.settings import check_positive
from purectrl.core.uncertainty import Conditioning, Uncertainty


class _Receding:
    """The information of candidates inside the horizon after the last time; those beyond it score lower."""

    def __init__(self, uncertainty: Uncertainty, error: float) -> None:
        self.conditioning = Conditioning(uncertainty.covariance, uncertainty.noise)
        self.add = self.conditioning.add
        variance = self.conditioning.variance
        largest = variance.max(axis=1, keepdims=True)
        self.limit = np.where(largest > 0, error**2 * largest, np.inf)

    def scores(self, chosen: list[int]) -> np.ndarray:
        """The gain of each candidate [n], less a constant beyond the horizon."""
        gains = self.conditioning.gains()
        first = chosen[-1] + 1 if chosen else 0
        exceeded = np.flatnonzero((self.conditioning.variance[:, first:] > self.limit).any(axis=0))
        if not len(exceeded):  # the rest of the episode is predicted well enough: any time of the episode
            return gains
        inside = np.zeros(len(gains), bool)
        inside[first : first + exceeded[0] + 1] = True
        return np.where(inside, gains, gains - gains.max() - 1.0)


@dataclass(frozen=True)
class Receding(AdaptiveSampler):
    """As `MaxDeterminant`, but each time is chosen inside a horizon that the error of the model sets.

    From the last chosen time on, the horizon is where the standard deviation of some output, given the times chosen so far,
    first exceeds `error` times its largest value in the episode. When the rest of the episode is predicted better than that,
    the remaining times are chosen in the whole episode. All times are chosen before the episode begins.
    """

    error: float = 0.5
    """The standard deviation that ends the horizon, as a share of the largest one in the episode."""

    def check(self) -> None:
        """A positive share."""
        super().check()
        check_positive(self, "error")

    def criterion(self, uncertainty: Uncertainty) -> Criterion:
        """The information of a measurement inside the horizon."""
        return _Receding(uncertainty, self.error)

"""The rule of active observing control: measure when the predicted reward has become too uncertain."""

from dataclasses import dataclass

import numpy as np

from purectrl.core.samplers.adaptive import AdaptiveSampler, Criterion
from purectrl.core.settings import check_positive
from purectrl.core.uncertainty import Conditioning, Uncertainty


class _Threshold:
    """The first candidate after the last chosen one at which the reward is too uncertain; otherwise the most uncertain."""

    def __init__(self, uncertainty: Uncertainty, level: float | None) -> None:
        self.conditioning = Conditioning(uncertainty.reward[None], np.zeros(1))
        self.add = self.conditioning.add
        largest = np.sqrt(self.conditioning.variance.max())
        self.level = largest / 2 if level is None else level

    def scores(self, chosen: list[int]) -> np.ndarray:
        """The standard deviation of the reward [n]; where it exceeds the level, the earlier the higher."""
        std = np.sqrt(self.conditioning.variance[0])
        places = np.arange(len(std))
        due = (std > self.level) & (places > (chosen[-1] if chosen else -1))
        return np.where(due, std.max() + len(std) - places, std)


@dataclass(frozen=True)
class VarianceThreshold(AdaptiveSampler):
    """Measures whenever the standard deviation of the predicted reward exceeds a level, given the measurements before.

    Every episode has m measurements. Where the level is exceeded less often, the remaining times are those at which the
    reward is most uncertain.
    """

    level: float | None = None
    """The standard deviation of the reward rate that asks for a measurement; none takes half the largest one that is
    predicted for the episode."""

    def check(self) -> None:
        """A positive level."""
        super().check()
        check_positive(self, "level")

    def criterion(self, uncertainty: Uncertainty) -> Criterion:
        """The uncertainty of the reward."""
        return _Threshold(uncertainty, self.level)

"""The sampler of OCoRL: the times whose measurements give the most information about the model."""

from dataclasses import dataclass

import numpy as np

from purectrl.core.samplers.adaptive import AdaptiveSampler, Criterion
from purectrl.core.uncertainty import Conditioning, Uncertainty


class _Information:
    """The log determinant that a candidate adds."""

    def __init__(self, uncertainty: Uncertainty) -> None:
        self.conditioning = Conditioning(uncertainty.covariance, uncertainty.noise)
        self.add = self.conditioning.add

    def scores(self, chosen: list[int]) -> np.ndarray:
        """The gain of each candidate [n]."""
        return self.conditioning.gains()


@dataclass(frozen=True)
class MaxDeterminant(AdaptiveSampler):
    """Adds the time that maximizes Σ_j log det(Σ_j[S, S]/σ_j² + I) until m are chosen; Σ_j is the covariance of output j.

    The greedy choice has at least 1 − 1/e = 63 % of the largest value, as for every monotone submodular function. With
    windows, the scores of a window's times are added up as if these were independent.

    >>> waves = np.sin(np.arange(1, 4)[:, None] * np.linspace(0.0, np.pi, 1001))  # one member each
    >>> known = Uncertainty.of_members(waves[:, :, None], waves)
    >>> from purectrl.core.keys import Key
    >>> from purectrl.core.ledger import Ledger
    >>> from purectrl.core.samplers.base import Context
    >>> context = Context(horizon=10.0, ledger=Ledger(updates=1), uncertainty=lambda times, key: known)
    >>> MaxDeterminant(m=2)(Key.from_seed(0), 1, context).round(1)
    array([[5.1, 7.9]])
    """

    def criterion(self, uncertainty: Uncertainty) -> Criterion:
        """The information of a measurement."""
        return _Information(uncertainty)

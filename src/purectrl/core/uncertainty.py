"""The predictive uncertainty that adaptive samplers read, and how measurements reduce it.

symbol        here                      meaning
------------  ------------------------  -----------------------------------------------------------------------------
Σ_j           Uncertainty.covariance    covariance of output j of the model among n times, given all data so far
σ_j²          Uncertainty.noise         variance of the noise with which output j is measured
S             -                         the times that were chosen
v_j(i | S)    Conditioning.variance     variance of output j at time i, given measurements at the times in S
log det       Conditioning.gains        Σ_j log det(Σ_j[S, S]/σ_j² + I): twice the information that S gives, in nats

By the chain rule, log det(Σ[S ∪ {i}]/σ² + I) − log det(Σ[S]/σ² + I) = log(v(i | S)/σ² + 1). One step of a Cholesky
factorization with i as its pivot gives v(· | S ∪ {i}) for all n times, so the greedy choice of k times among n costs O(k²n)
operations instead of k·n determinants.
"""

from typing import NamedTuple

import numpy as np

LEAST_NOISE = 1e-4
"""Least variance of a measurement, as a share of the mean variance of its output: a covariance of low rank, such as that of
an ensemble, has directions without any."""
NEGLIGIBLE = 1e-18
"""The same for an output that is known exactly."""


class Uncertainty(NamedTuple):
    """What a model does not know about an episode under the current policy, at n times.

    >>> paths = np.array([[0.0, 1.0], [0.0, -1.0]])[:, :, None]  # two members, two times, one output
    >>> Uncertainty.of_members(paths, rewards=paths[..., 0]).covariance[0].tolist()
    [[0.0, 0.0], [0.0, 2.0]]
    """

    covariance: np.ndarray
    """Covariance of each output, such as a coordinate of the state or of the drift, among the times [outputs, n, n]."""
    noise: np.ndarray
    """Variance of the noise with which each output is measured [outputs]; zero if it is not known."""
    reward: np.ndarray
    """Covariance of the predicted reward rate among the times [n, n]."""

    @classmethod
    def of_members(cls, paths: np.ndarray, rewards: np.ndarray, noise: np.ndarray | None = None) -> "Uncertainty":
        """The uncertainty that the spread of some equally likely predictions shows.

        Main arguments:
            paths: the prediction of each member [members, n, outputs], or [members, starts, n, outputs]: then the covariance
                is averaged over the starts.
            rewards: the rewards of the same predictions, without the last axis.

        Other arguments:
            noise: variance of the noise of each output [outputs]; zero if it is None.
        """
        if paths.ndim == 3:
            paths, rewards = paths[:, None], rewards[:, None]
        members, starts, n, outputs = paths.shape
        share = 1.0 / np.sqrt(max(members - 1, 1) * starts)
        spread = np.concatenate([paths, rewards[..., None]], axis=-1)
        spread = (spread - spread.mean(axis=0)) * share
        rows = np.ascontiguousarray(np.moveaxis(spread, -1, 0)).reshape(outputs + 1, members * starts, n)
        covariance = np.matmul(rows.transpose(0, 2, 1), rows)
        return cls(covariance[:-1], np.zeros(outputs) if noise is None else noise, covariance[-1])

    @property
    def std(self) -> np.ndarray:
        """The standard deviation of each output at each time [n, outputs]."""
        return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2).T.clip(0.0))


def interpolated(paths: np.ndarray, grid: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Paths [..., nodes, c] on an increasing time grid [nodes], linearly interpolated at `times` [n]: [..., n, c].

    >>> interpolated(np.array([[0.0], [2.0], [6.0]]), np.array([0.0, 1.0, 2.0]), np.array([0.5, 1.5, 9.0]))[:, 0].tolist()
    [1.0, 4.0, 6.0]
    """
    left = np.clip(np.searchsorted(grid, times, side="right") - 1, 0, len(grid) - 2)
    share = np.clip((times - grid[left]) / (grid[left + 1] - grid[left]), 0.0, 1.0)[:, None].astype(paths.dtype)
    return paths[..., left, :] * (1 - share) + paths[..., left + 1, :] * share


class Conditioning:
    """Variances given the measurements at times that are added one after the other: a Cholesky factorization with pivots.

    >>> two = Conditioning(np.array([[[1.0, 0.5], [0.5, 1.0]]]), noise=np.array([0.25]))
    >>> two.add(0)
    >>> two.variance.round(3).tolist()  # 1 − 1²/1.25 and 1 − 0.5²/1.25
    [[0.2, 0.8]]
    """

    def __init__(self, covariance: np.ndarray, noise: np.ndarray) -> None:
        """Begins with no measurement.

        Main arguments:
            covariance: of each output among the times [outputs, n, n].
            noise: variance of a measurement of each output [outputs].
        """
        self.covariance = covariance
        self.variance = np.diagonal(covariance, axis1=1, axis2=2).astype(np.float64).clip(0.0)
        """Of each output at each time, given the measurements so far [outputs, n]."""
        self.noise = np.maximum(np.maximum(noise, LEAST_NOISE * self.variance.mean(axis=1)), NEGLIGIBLE)
        """Variance of a measurement of each output, not below a small share of what is to be learned [outputs]."""
        self._columns = np.empty((0, *self.variance.shape))

    def gains(self) -> np.ndarray:
        """What a measurement at each time would add to Σ_j log det(Σ_j[S, S]/σ_j² + I) [n]."""
        return np.log1p(self.variance / self.noise[:, None]).sum(axis=0)

    def add(self, i: int) -> None:
        """Conditions on a measurement of all outputs at time number `i`."""
        column = self.covariance[:, :, i] - np.einsum("kdn,kd->dn", self._columns, self._columns[:, :, i])
        column /= np.sqrt(self.variance[:, i] + self.noise)[:, None]
        self._columns = np.concatenate([self._columns, column[None]])
        self.variance = (self.variance - column**2).clip(0.0)

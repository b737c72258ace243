"""The sampler of ENODE and PURE_ENODE: windows of consecutive times, so that a model can be fitted to trajectories."""

from dataclasses import dataclass, field

import numpy as np

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.samplers.base import Context, Sampler
from purectrl.core.settings import check_counts, check_positive


@dataclass(frozen=True)
class Windows(Sampler):
    """`count` windows of consecutive times t⁰, t⁰+Δt, … with random starts: m = count · length / step (Algorithm 5, line 3).

    By default the windows are placed uniformly at random among all placements that do not overlap, so that sorting keeps
    each window together; `overlap=True` draws the starts independently, as the paper does. With `from_start=True` the first
    window is always at t = 0, so that every episode shows how it begins.

    >>> Windows(count=5, length=5.0, step=0.1).m
    250
    >>> Windows(count=2, length=2.0, step=1.0)(Key.from_seed(0), 1, Context(horizon=10.0)).round(1)
    array([[2.9, 3.9, 6.8, 7.8]])
    >>> Windows(count=2, length=2.0, step=1.0, from_start=True)(Key.from_seed(0), 1, Context(horizon=10.0)).round(1)
    array([[0. , 1. , 6.9, 7.9]])
    """

    count: int = 5
    """Number of windows per episode."""
    length: float = 5.0
    """Length of a window."""
    step: float = 0.1
    """Time Δt between two measurements of a window."""
    overlap: bool = False
    """Whether the starts are drawn independently, so that windows may overlap."""
    from_start: bool = False
    """Whether the first window is always at t = 0."""
    m: int = field(default=0, init=False)
    """Measurements per episode: count · length / step."""

    def check(self) -> None:
        """A window is a whole number of steps."""
        check_counts(self, "count")
        check_positive(self, "step")
        require(
            self.length >= self.step, f"length: a window must hold at least one step of {self.step}, not {self.length}"
        )
        points = round(self.length / self.step)
        whole = abs(points * self.step - self.length) < 1e-6 * self.length
        require(whole, f"length: {self.length} is not a whole number of steps of {self.step}")
        object.__setattr__(self, "m", self.count * points)
        check_counts(self, "m")

    def check_horizon(self, horizon: float) -> None:
        """Raises unless the windows fit into an episode."""
        require(
            self._free(horizon) >= -1e-9 * horizon,
            f"sampler.count: {self.count} windows of {self.length:g} do not fit into an episode of {horizon:g}; "
            f"use fewer or shorter windows{'' if self.overlap else ', or allow overlap'}",
        )

    def _free(self, horizon: float) -> float:
        """The time that windows can be shifted by."""
        return horizon - (self.length if self.overlap else self.count * self.length)

    def draw(self, key: Key, episodes: int, context: Context) -> np.ndarray:
        """Times [episodes, m]."""
        free = self._free(context.horizon)
        starts = np.sort(key.uniform(episodes, self.count - self.from_start), axis=1) * max(free, 0.0)
        starts = np.pad(starts, ((0, 0), (int(self.from_start), 0)))
        if not self.overlap:
            starts += np.arange(self.count) * self.length
        points = self.m // self.count
        return (starts[:, :, None] + np.arange(points) * self.step).reshape(episodes, -1)

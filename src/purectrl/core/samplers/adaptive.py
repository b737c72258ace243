"""Samplers that read the model: they choose the times of an episode from its predictive uncertainty along the plan.

All of them choose one time after the other among candidates on an equidistant grid, the one with the highest score among
those that the sensor allows. They differ in the score. Episodes of one batch are chosen one after the other, too, and each
takes the times of the earlier ones into account. Before the first update nothing is known of the system, and the times are
equidistant.
"""

import abc
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from purectrl.core.errors import InputError, require
from purectrl.core.keys import Key
from purectrl.core.samplers.base import Context, Sampler
from purectrl.core.samplers.spacing import Spacing
from purectrl.core.settings import check_counts, check_not_negative, check_positive
from purectrl.core.uncertainty import Uncertainty


class Criterion(Protocol):
    """Which candidate is the best one to measure next."""

    def scores(self, chosen: list[int]) -> np.ndarray:
        """The score of each candidate [n], given those that were chosen in this episode, in the order of their choice."""
        ...

    def add(self, i: int) -> None:
        """Takes a measurement at candidate `i` into account."""
        ...


@dataclass(frozen=True)
class AdaptiveSampler(Sampler, abc.ABC):
    """Base class of samplers that choose among candidates; subclasses say how these are scored."""

    needs_uncertainty: ClassVar[bool] = True

    m: int = 10
    """Measurements per episode."""
    candidates: int = 1001
    """Number of times to choose from; all of the grid if that has fewer."""
    min_gap: float = 0.0
    """Shortest time between two chosen times that the sensor allows."""
    grid: float | None = None
    """If given, times are multiples of it. On problems with a time grid it is that grid."""
    from_start: bool = False
    """Whether t = 0 is always among the times."""
    window: int = 1
    """Consecutive measurements at each chosen time, for models that are fitted to trajectories; m is a multiple of it."""
    step: float = 0.1
    """Time between two measurements of a window."""

    @abc.abstractmethod
    def criterion(self, uncertainty: Uncertainty) -> Criterion:
        """How candidates are scored, given the uncertainty at their times."""

    def check(self) -> None:
        """Whole windows, positive numbers."""
        check_counts(self, "m", "window")
        check_counts(self, "candidates", most=100_000)
        check_not_negative(self, "min_gap")
        check_positive(self, "grid", "step")
        require(self.m % self.window == 0, f"m: must be a multiple of window = {self.window}, not {self.m}")
        self._stride(self.step)

    def check_horizon(self, horizon: float) -> None:
        """Raises unless the episode has room for the times."""
        free = self._spacing(horizon)
        looks = self.m // self.window
        require(
            free.capacity >= looks,
            f"sampler.m: the sensor allows {free.capacity} times in an episode of {horizon:g}, not {looks}; use fewer "
            "measurements, a smaller min_gap or window, or more candidates",
        )

    def on_grid(self, dt: float) -> "AdaptiveSampler":
        """The same sampler with candidates on the grid of a sensor."""
        return replace(self, grid=dt)

    def draw(self, key: Key, episodes: int, context: Context) -> np.ndarray:
        """Times [episodes, m]."""
        times = self.candidate_times(context.horizon)
        within = np.arange(self.window) * self._per_step(times)
        spacing = self._spacing(context.horizon)
        if not context.ledger.updates:
            starts = np.tile(spacing.equidistant(self.m // self.window, self.from_start), (episodes, 1))
        else:
            if context.uncertainty is None:
                raise InputError("context.uncertainty: an adaptive sampler needs the uncertainty of a learner")
            criterion = self.criterion(context.uncertainty(times, key))
            starts = np.stack([self._choose(criterion, spacing, within) for _ in range(episodes)])
        return np.minimum(times[starts[:, :, None] + within].reshape(episodes, -1), context.horizon)

    def _choose(self, criterion: Criterion, spacing: Spacing, within: np.ndarray) -> np.ndarray:
        """The first candidates of the windows of one episode [m / window], in any order."""
        chosen: list[int] = []
        while len(chosen) < self.m // self.window:
            if self.from_start and not chosen:
                i = 0
            else:
                scores = criterion.scores(chosen)
                starts = len(scores) - within[-1]
                windowed = sum(scores[offset : offset + starts] for offset in within)
                allowed = spacing.allowed(chosen, self.m // self.window - len(chosen))
                i = int(np.argmax(np.where(allowed, windowed, -np.inf)))
            chosen.append(i)
            for offset in within:
                criterion.add(i + int(offset))
        return np.array(chosen)

    def _stride(self, step: float) -> int:
        """Multiples of the grid per step of a window; raises if it is not a whole number."""
        if self.grid is None or self.window == 1:
            return 1
        whole = round(step / self.grid)
        exact = whole >= 1 and abs(whole * self.grid - step) < 1e-6 * step
        require(exact, f"step: {step:g} is not a whole number of steps of the grid, {self.grid:g}")
        return whole

    def candidate_times(self, horizon: float) -> np.ndarray:
        """The candidates [n]: equidistant from 0, to the end of the episode at most."""
        if self.grid is not None:
            last = int(horizon / self.grid + 1e-9)
            stride = max(1, -(-last // max(self.candidates - 1, 1)))
            if self.window > 1:  # the step of a window is a whole number of candidates
                per_step = self._stride(self.step)
                stride = max(
                    divisor for divisor in range(1, per_step + 1) if per_step % divisor == 0 and divisor <= stride
                )
            return np.arange(0, last + 1, stride) * self.grid
        if self.window == 1:
            return np.linspace(0.0, horizon, self.candidates)
        parts = max(1, int(self.step * (self.candidates - 1) / horizon))
        return np.arange(int(horizon * parts / self.step + 1e-9) + 1) * (self.step / parts)

    def _per_step(self, times: np.ndarray) -> int:
        """Candidates per step of a window."""
        return 0 if self.window == 1 else round(self.step / (times[1] - times[0]))

    def _spacing(self, horizon: float) -> Spacing:
        times = self.candidate_times(horizon)
        length = self._per_step(times) * self.window
        apart = int(np.ceil(self.min_gap / (times[1] - times[0]) - 1e-9)) if len(times) > 1 else 1
        starts = len(times) - self._per_step(times) * (self.window - 1)
        return Spacing(max(starts, 0), max(apart, length, 1))

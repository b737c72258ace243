"""Windows of consecutive times whose step the learner chooses."""

from dataclasses import dataclass

import numpy as np

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.samplers.base import Context, Sampler
from purectrl.core.samplers.windows import Windows
from purectrl.core.settings import check_counts, check_positive


@dataclass(frozen=True)
class PacedWindows(Sampler):
    """Windows of consecutive times, the first at t = 0, whose step is the number `measurement_step` in the learner's state.

    As long as there is none, or it is zero, the step is a share of the episode, and there is one window.

    >>> PacedWindows(m=4, windows=2, first_step=0.1)(Key.from_seed(0), 1, Context(horizon=10.0))
    array([[0., 1., 2., 3.]])
    """

    m: int = 250
    """Measurements per episode."""
    windows: int = 5
    """Number of windows per episode, which must divide m; fewer if they would overlap."""
    first_step: float = 0.001
    """Time between two measurements before the learner has chosen one, as a share of the episode."""
    grid: float | None = None
    """If given, the time between two measurements is a multiple of it."""

    def check(self) -> None:
        """Windows of equal size."""
        check_counts(self, "m", "windows")
        check_positive(self, "first_step")
        require(self.m % self.windows == 0, f"windows: must divide m = {self.m}, got {self.windows}")
        require(self.grid is None or self.grid > 0, f"grid: must be positive, not {self.grid}")

    def draw(self, key: Key, episodes: int, context: Context) -> np.ndarray:
        """Times [episodes, m]."""
        chosen = float(getattr(context.learner, "measurement_step", 0.0))
        step = self._step(chosen or self.first_step * context.horizon, context.horizon)
        room = self.m * step < context.horizon * (1 - 1e-6)
        count = self.windows if chosen and room else 1
        return Windows(count, self.m // count * step, step, from_start=True)(key, episodes, context)

    def _step(self, wanted: float, horizon: float) -> float:
        """Seconds between two measurements: at most such that m of them fit into the episode."""
        step = min(wanted, horizon / self.m)
        return step if self.grid is None else max(1, int(step / self.grid + 1e-6)) * self.grid

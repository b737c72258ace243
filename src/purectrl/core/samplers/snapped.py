"""A sampler on the time grid of a sensor."""

from dataclasses import dataclass, field

import numpy as np

from purectrl.core.keys import Key
from purectrl.core.samplers.base import Context, Sampler
from purectrl.core.settings import check_positive


@dataclass(frozen=True)
class Snapped(Sampler):
    """`sampler` with every time moved to the nearest multiple of `dt` inside [0, T].

    >>> from purectrl.core.samplers import Uniform
    >>> Snapped(Uniform(m=3), dt=0.5)(Key.from_seed(0), 1, Context(horizon=10.0))
    array([[1. , 2.5, 9.5]])
    """

    sampler: Sampler
    """The sampler whose times are rounded."""
    dt: float
    """The time grid of the sensor."""
    m: int = field(default=0, init=False)
    """Measurements per episode."""

    def check(self) -> None:
        """A positive grid."""
        check_positive(self, "dt")
        object.__setattr__(self, "m", self.sampler.m)

    def check_horizon(self, horizon: float) -> None:
        """As the sampler does."""
        self.sampler.check_horizon(horizon)

    def draw(self, key: Key, episodes: int, context: Context) -> np.ndarray:
        """Times [episodes, m]."""
        last = np.floor(context.horizon / self.dt + 1e-9)
        return np.minimum(np.rint(self.sampler(key, episodes, context) / self.dt), last) * self.dt

"""What a sampler is: the rule that decides WHEN to measure."""

import abc
from collections.abc import Callable
from dataclasses import dataclass, field  # noqa: F401 (the doctest uses them)
from typing import Any, ClassVar, NamedTuple

import numpy as np

from purectrl.core.errors import InputError
from purectrl.core.keys import Key
from purectrl.core.ledger import Ledger
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.prices import Prices
from purectrl.core.settings import Settings
from purectrl.core.uncertainty import Uncertainty


class Selection(NamedTuple):
    """Which of the measurements that a batch of rollouts offers are taken."""

    asked: int
    """How many of them."""
    choose: Callable[[Measurements, int, Key], np.ndarray]
    """(measurements without rewards of some episodes, how many to take, key) -> which [episodes, m]."""


class Context(NamedTuple):
    """What a sampler may read, and what the oracle executes."""

    horizon: float
    """T, the length of an episode."""
    ledger: Ledger = Ledger()
    """What has been spent so far."""
    learner: Any = None
    """The learner's state."""
    plan: Any = None
    """The plan that is about to be executed."""
    data: Dataset = Dataset()
    """All measurements so far."""
    uncertainty: Callable[[np.ndarray, Key], Uncertainty] | None = None
    """(times [n], key) -> what the model does not know at those times under the plan; None unless the sampler needs it."""
    selection: Selection | None = None
    """Which measurements the oracle takes; None takes all."""


class Sampler(Settings, abc.ABC):
    """A rule for measurement times. Subclasses are frozen dataclasses with a field `m` and a method `draw`.

    >>> @dataclass(frozen=True)
    ... class Ends(Sampler):
    ...     m: int = field(default=2, init=False)
    ...     def draw(self, key, episodes, context):
    ...         return np.tile([context.horizon, 0.0], (episodes, 1))
    >>> Ends()(Key.from_seed(0), 1, Context(horizon=5.0))
    array([[0., 5.]])
    """

    m: int
    """Measurements per episode."""
    needs_uncertainty: ClassVar[bool] = False
    """Whether `draw` calls `context.uncertainty`."""
    selects: ClassVar[bool] = False
    """Whether some episodes are measured fewer than m times: `select` decides."""
    needs_bonus: ClassVar[bool] = False
    """Whether `select` uses the bonus of the learner."""

    @abc.abstractmethod
    def draw(self, key: Key, episodes: int, context: Context) -> np.ndarray:
        """Times [episodes, m] inside [0, T], in any order within an episode."""

    def rollouts(self, episodes: int, context: Context) -> int:
        """How many rollouts are made for the measurements of `episodes` whole episodes."""
        return episodes

    def select(
        self, offered: Measurements, asked: int, key: Key, context: Context, bonus: Callable[[Measurements], np.ndarray]
    ) -> np.ndarray:
        """Which `asked` of the offered measurements are taken [episodes, m], if the sampler selects.

        Main arguments:
            offered: what can be measured, without rewards.
            bonus: the uncertainty of the reward model about each [episodes, m].
        """
        raise NotImplementedError(f"{type(self).__name__} takes all measurements")

    def priced(self, prices: Prices) -> "Sampler":
        """The sampler for what measurements and rollouts cost; raises `UnsupportedError` if it cannot work with them."""
        return self

    def check_horizon(self, horizon: float) -> None:
        """Raises `InputError` if the times do not fit into an episode of length `horizon`."""

    def on_grid(self, dt: float) -> "Sampler":
        """The sampler whose times are multiples of `dt`."""
        from purectrl.core.samplers.snapped import Snapped

        return Snapped(self, dt)

    def __call__(self, key: Key, episodes: int, context: Context) -> np.ndarray:
        """Times [episodes, m] inside [0, T], sorted within each episode."""
        times = self.draw(key, episodes, context)
        if times.shape != (episodes, self.m):
            raise InputError(
                f"sampler: {type(self).__name__} returned times of shape {times.shape}, expected {(episodes, self.m)}"
            )
        return np.sort(times, axis=1) if self.m > 1 else times

"""What the learner needs of a dynamics model. There are two: `MechanicalDynamics` and `BlackBoxDynamics`.

The model itself is a pytree, an `ImaginationModel`; a `DynamicsModel` is the value that creates, fits and checks it.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jax import Array

from purectrl.control.imagination import ImaginationModel, Region
from purectrl.control.integrate import Integrator
from purectrl.control.monitor import CusumMonitor
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.schedules import Targets


class Fit(NamedTuple):
    """A fitted model and diagnostics for the record."""

    model: Any
    info: dict[str, Any]


class DynamicsModel(Protocol):
    """How the dynamics, and the reward if it is unknown, are learned."""

    @property
    def integrate(self) -> Integrator:
        """The integrator of imagined rollouts."""
        ...

    def init(self, key: Key) -> ImaginationModel:
        """An untrained model."""
        ...

    def fit(self, model: Any, seen: Measurements, which: Targets, first: bool, key: Key) -> Fit:
        """The parts named by `which`, fitted to all data from `model` on, with scales adapted to the data.

        Main arguments:
            first: whether no policy has been optimized yet.
        """
        ...

    def check_fit(self, before: Any, after: Any, seen: Measurements) -> str:
        """What is wrong with the fit that led from `before` to `after`; empty if nothing is."""
        ...

    def region(self, seen: Measurements) -> Region:
        """The states to plan in."""
        ...

    def feature_scale(self, region: Region) -> Array:
        """What actor and critic divide each feature by [features], fixed at the first update."""
        ...


@runtime_checkable
class MonitoredDynamics(Protocol):
    """Optional capability of a dynamics model: whether it still fits, see `purectrl.control.monitor`."""

    def start_monitor(self, model: Any, seen: Measurements, first_new: int) -> CusumMonitor:
        """The monitor of a model that was just fitted to `seen`; its episodes from number `first_new` on are new to it."""
        ...

    def update_monitor(self, model: Any, monitor: CusumMonitor, seen: Measurements) -> list[CusumMonitor]:
        """The monitor after each episode of `seen`."""
        ...

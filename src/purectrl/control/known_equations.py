"""The true equations in the place of a learned model."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.control.dynamics import Fit
from purectrl.control.imagination import MechanicalTask
from purectrl.control.integrate import Integrator
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.schedules import Targets
from purectrl.systems.mechanical import MechanicalSystem


class Equations(Protocol):
    """The truth about a simulated system, as a problem offers it; a hashable value."""

    def drift(self, x: Array, u: Array) -> Array:
        """dx/dt; x [..., d], u [..., k] -> [..., d]."""
        ...

    def reward(self, x: Array, u: Array) -> Array:
        """The reward rate; x [..., d], u [..., k] -> [...]."""
        ...

    @property
    def sample_initial_state(self) -> Any:
        """(JAX key) -> x(0) [d]."""
        ...


class EquationsTask(NamedTuple):
    """The `TaskModel` of a system whose reward and initial distribution are known."""

    system: Equations
    size: Array
    """The typical size of a reward, in which rewards are planned with."""

    @property
    def reward_range(self) -> tuple[float, Array]:
        """Unknown."""
        return 0.0, jnp.inf / self.size

    @property
    def reward_unit(self) -> Array:
        """The typical size of a reward."""
        return self.size

    def sample_initial_state(self, key: Array) -> Array:
        """x(0) [d]."""
        return self.system.sample_initial_state(key)

    def reward(self, x: Array, u: Array) -> Array:
        """b(x, u)."""
        return self.system.reward(x, u) / self.size

    def log_reward(self, x: Array, u: Array) -> Array:
        """The reward itself: it may be negative."""
        return self.reward(x, u)

    def planning_reward(self, x: Array, u: Array, penalty: Array) -> Array:
        """The reward less the penalty."""
        return self.reward(x, u) - penalty


class EquationsModel(eqx.Module):
    """An `ImaginationModel` with one member: the truth."""

    size: Array
    """The typical size of a reward."""
    system: Equations = eqx.field(static=True)

    @property
    def task(self) -> MechanicalTask | EquationsTask:
        """Reward and initial distribution."""
        system = self.system
        return MechanicalTask(system) if isinstance(system, MechanicalSystem) else EquationsTask(system, self.size)

    @property
    def members(self) -> int:
        """One."""
        return 1

    def drift(self, x: Array, u: Array) -> Array:
        """dx/dt; x [1, rows, d], u [1, rows, k] -> [1, rows, d]."""
        return self.system.drift(x, u)

    def select_members(self, members: Array) -> "EquationsModel":
        """The model itself."""
        return self


@dataclass(frozen=True)
class KnownDynamics:
    """A `FittedDynamics` whose model is the truth.

    Main arguments:
        system: the equations.
        integrate: the integrator of imagined rollouts.
    """

    system: Equations
    integrate: Integrator

    def init(self, key: Key) -> EquationsModel:
        """The truth."""
        return EquationsModel(jnp.ones(()), self.system)

    def fit(self, model: EquationsModel, seen: Measurements, which: Targets, first: bool, key: Key) -> Fit:
        """There is nothing to fit but the typical size of a reward."""
        size = 1.0 if seen.r is None else float(np.sqrt(np.mean(np.square(seen.r[seen.valid]))))
        return Fit(EquationsModel(jnp.asarray(size if size > 0 else 1.0), self.system), {})

    def check_fit(self, before: Any, after: Any, seen: Measurements) -> str:
        """Nothing can be wrong."""
        return ""

"""The learner behind `random`: it draws a control path and never looks at the data."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from purectrl.control.exploration import SmoothNoise
from purectrl.core.keys import Key
from purectrl.core.learner import Update
from purectrl.core.measurement import Dataset
from purectrl.core.plan import Plan
from purectrl.core.schedules import Targets
from purectrl.systems.spec import StateSpec


class RandomPolicy(eqx.Module):
    """A control path that depends on time alone.

    Main arguments:
        knots: the noise before tanh [knots, k].
    """

    knots: np.ndarray | Array
    noise: SmoothNoise = eqx.field(static=True)
    spec: StateSpec = eqx.field(static=True)

    def __call__(self, x: Float[Array, " d"], t: Any = 0.0) -> Float[Array, " k"]:
        """The control at time t."""
        return self.spec.unscale_control(jnp.tanh(self.noise.at(jnp.asarray(self.knots), jnp.asarray(t))))


@dataclass(frozen=True)
class RandomLearner:
    """Draws a new path at each update.

    Main arguments:
        spec: the control limits.
        horizon: length of an episode; the path changes over a twentieth of it.
        size: standard deviation of the noise before tanh.
    """

    spec: StateSpec
    horizon: float
    size: float

    def init(self, key: Key) -> np.ndarray:
        """The knots of the first path [knots, k]."""
        factor = self._noise.factor
        normal = key.child("path").generator().standard_normal((len(factor), self.spec.control_dim), np.float32)
        return np.asarray(self.size * factor @ normal, np.float32)

    def update(self, state: np.ndarray, data: Dataset, which: Targets, key: Key) -> Update:
        """Another path."""
        return Update(self.init(key), {}, {})

    def policy(self, state: np.ndarray) -> Plan:
        """The path as a policy."""
        return Plan(RandomPolicy(state, self._noise, self.spec), None)

    @property
    def _noise(self) -> SmoothNoise:
        return SmoothNoise(self.horizon, length=self.horizon / 20, step=self.horizon / 100)

"""A planned trajectory as a policy: the planned control with time-varying linear feedback."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from purectrl.systems.spec import StateSpec

FIRST_RADIANS = 10.0
"""The phase that the sine of the first episodes runs through in an episode."""


class TrackingPolicy(eqx.Module):
    """u(t) = ū(t) + K_i (x − x̄(t)) within the control limits, i the step of the plan at time t.

    Between steps x̄ is linear, and so is ū, which is taken to hold in the middle of its step. Before the first update the
    control is a sine instead.

    Main arguments:
        x: x̄ [n+1, d].
        u: ū [n, k].
        gains: K [n, k, d].
        first: size of the sine, as a share of half the range of each control; zero after the first update.
        step: length of a step.
        spec: the control limits.
    """

    x: np.ndarray | Array
    u: np.ndarray | Array
    gains: np.ndarray | Array
    first: float | Array
    step: float = eqx.field(static=True)
    spec: StateSpec = eqx.field(static=True)

    def __call__(self, x: Float[Array, " d"], t: Any = 0.0) -> Float[Array, " k"]:
        """The control at state x and time t."""
        u = self.planned(t) + jnp.asarray(self.gains)[self._index(t)] @ (x - self.state(t))
        phases = FIRST_RADIANS / (self.step * len(self.u)) * t + jnp.pi / 2 * jnp.arange(self.spec.control_dim)
        half = jnp.asarray(self.spec.control_half_range)
        u = u + self.first * half * jnp.sin(phases)
        return jnp.clip(u, jnp.asarray(self.spec.control_low), jnp.asarray(self.spec.control_high))

    def state(self, t: Any) -> Float[Array, " d"]:
        """x̄(t)."""
        return _interpolate(jnp.asarray(self.x), t / self.step)

    def planned(self, t: Any) -> Float[Array, " k"]:
        """ū(t)."""
        return _interpolate(jnp.asarray(self.u), t / self.step - 0.5)

    def _index(self, t: Any) -> Array:
        return jnp.clip(jnp.asarray(t / self.step, jnp.int32), 0, len(self.u) - 1)


def _interpolate(values: Array, place: Any) -> Array:
    """Rows of `values` [n, c] at a real number, linear in between."""
    place = jnp.clip(place, 0.0, len(values) - 1.0)
    left = jnp.clip(jnp.asarray(place, jnp.int32), 0, max(len(values) - 2, 0))
    right = jnp.minimum(left + 1, len(values) - 1)
    return values[left] + (place - left) * (values[right] - values[left])

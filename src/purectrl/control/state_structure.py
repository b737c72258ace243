"""What measurements show about the states that can occur: sines and cosines of one angle, and coordinates that hardly ever
change.

Networks do not know that cos² + sin² = 1. In an imagined rollout the two drift apart, into states that cannot occur and that
no control can leave: a model of a double pendulum that is good enough to balance the real one falls over in its own
imagination. So imagined states are projected onto the circles, and coordinates that hardly ever change stay as they are.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

ON_CIRCLE = 1e-3
"""The largest |x_i² + x_j² − 1| of a measured cosine and sine."""
RARE = 0.05
"""Coordinates that change in a smaller share of the measurements, such as forces of contacts, stay as they are: a network
that saw them change once or twice may predict anything."""
LEAST_CHANGE = 1e-3
"""Coordinates with a smaller standard deviation are not the cosine or the sine of an angle that moves."""


class StateStructure(NamedTuple):
    """Circles and constants among the coordinates of a state, as arrays: they may change with the data."""

    partner: Array
    """One where coordinates i and j are cosine and sine of an angle [d, d]."""
    changes: Array
    """Zero for coordinates whose measured drift is nearly always zero [d]."""

    @classmethod
    def unknown(cls, d: int) -> "StateStructure":
        """No circles, no constants."""
        return cls(jnp.zeros((d, d)), jnp.ones(d))

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray) -> "StateStructure":
        """What states [n, d] and their drifts [n, d] show.

        >>> angle = np.linspace(0.0, 3.0, 50)
        >>> x = np.stack([np.cos(angle), np.full(50, 0.7), np.sin(angle)], axis=1)
        >>> found = StateStructure.of(x, np.gradient(x, axis=0))
        >>> found.partner.tolist(), found.changes.tolist()
        ([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]], [1.0, 0.0, 1.0])
        """
        d = x.shape[1]
        partner, moving = np.zeros((d, d), np.float32), x.std(axis=0) > LEAST_CHANGE
        for i in range(d):
            for j in range(i + 1, d):
                free = moving[i] and moving[j] and not partner[[i, j]].any()
                if free and np.abs(x[:, i] ** 2 + x[:, j] ** 2 - 1).max() < ON_CIRCLE:
                    partner[i, j] = partner[j, i] = 1.0
        return cls(jnp.asarray(partner), jnp.asarray(((y != 0).mean(axis=0) >= RARE).astype(np.float32)))

    def project(self, x: Float[Array, "*rows d"]) -> Float[Array, "*rows d"]:
        """The nearest state on all circles."""
        squares = x**2
        length = jnp.sqrt(jnp.maximum(squares + squares @ self.partner, 1e-12))
        return x / jnp.where(self.partner.any(axis=1), length, 1.0)


def project(task: Any, x: Float[Array, "*rows d"]) -> Float[Array, "*rows d"]:
    """The nearest state that can occur, as far as the task model knows."""
    structure: StateStructure | None = getattr(task, "structure", None)
    return x if structure is None else structure.project(x)

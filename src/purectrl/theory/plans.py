"""Policy classes Π and initial-distribution classes Q with continuous parameters.

A class offers `start(key) -> parameters`, a random member, and `apply`: (parameters, x [d]) -> u [k] for a policy,
(parameters, JAX key) -> x(0) [d] for an initial distribution.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.problem import Array


@dataclass(frozen=True)
class LinearPolicies:
    """u = clip(K x + k, −limit, limit).

    >>> policies = LinearPolicies(state_dim=2, control_dim=1, limit=1.0)
    >>> policies.apply({"gain": jnp.ones((1, 2)), "offset": jnp.zeros(1)}, jnp.array([0.25, 0.5])).tolist()
    [0.75]
    """

    state_dim: int
    control_dim: int
    limit: float = 1.0

    def __post_init__(self) -> None:
        require(self.limit > 0, f"limit: controls need a positive limit, not {self.limit}")

    def start(self, key: Key) -> dict[str, Array]:
        """A random member."""
        draws = key.generator()
        gain = draws.normal(size=(self.control_dim, self.state_dim))
        return {"gain": np.float32(gain), "offset": np.float32(draws.normal(size=self.control_dim))}

    def apply(self, parameters: dict[str, Array], x: Array) -> Array:
        """The control u [k]."""
        return jnp.clip(parameters["gain"] @ x + parameters["offset"], -self.limit, self.limit)


@dataclass(frozen=True)
class MlpPolicies:
    """u = limit · tanh(network(features(x))), a network with tanh layers: smooth, and never beyond its limit.

    Main arguments:
        state_dim, control_dim: d and k.
        limit: the largest |u_i|.

    Other arguments:
        hidden: widths of the hidden layers.
        features: x [d] -> what the network sees, [p]; the state itself unless told. Angles are best seen as cos and sin.

    >>> policies = MlpPolicies(state_dim=2, control_dim=1, limit=2.0)
    >>> policies.apply(policies.start(Key.from_seed(0)), jnp.full(2, 100.0)).shape
    (1,)
    """

    state_dim: int
    control_dim: int
    limit: float = 1.0
    hidden: tuple[int, ...] = (32, 32)
    features: Callable[[Array], Array] = lambda x: x

    def __post_init__(self) -> None:
        require(self.limit > 0, f"limit: controls need a positive limit, not {self.limit}")
        require(all(width >= 1 for width in self.hidden), f"hidden: every layer needs a unit, not {self.hidden}")

    def start(self, key: Key) -> list[dict[str, Array]]:
        """A random member."""
        seen = jax.eval_shape(self.features, jax.ShapeDtypeStruct((self.state_dim,), jnp.float32)).shape[0]
        sizes = (seen, *self.hidden, self.control_dim)
        draws = key.generator()
        return [
            {
                "weight": np.float32(draws.normal(size=(after, before)) / np.sqrt(before)),
                "bias": np.zeros(after, np.float32),
            }
            for before, after in itertools.pairwise(sizes)
        ]

    def apply(self, parameters: list[dict[str, Array]], x: Array) -> Array:
        """The control u [k]."""
        z = self.features(x)
        for layer in parameters:
            z = jnp.tanh(layer["weight"] @ z + layer["bias"])
        return self.limit * z


@dataclass(frozen=True)
class GaussianInitials:
    """x(0) ~ N(μ, std² I) with |μ_i| ≤ limit; a limit of zero is one fixed distribution.

    >>> GaussianInitials(state_dim=1, limit=0.0, std=0.0).apply(np.zeros(1), jax.random.key(0)).tolist()
    [0.0]
    """

    state_dim: int
    limit: float
    std: float = 0.1

    def __post_init__(self) -> None:
        require(self.limit >= 0, f"limit: cannot be negative, got {self.limit}")
        require(self.std >= 0, f"std: a standard deviation cannot be negative, got {self.std}")

    def start(self, key: Key) -> Any:
        """A random member; the parameter is μ before it is squashed into its limit [d]."""
        return np.float32(key.generator().normal(size=self.state_dim))

    def apply(self, parameters: Array, key: Array) -> Array:
        """A draw of x(0) [d]."""
        return self.limit * jnp.tanh(parameters) + self.std * jax.random.normal(key, (self.state_dim,))

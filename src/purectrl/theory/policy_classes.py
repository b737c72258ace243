"""Members of function classes as callable pytrees, and classes Π and Q with continuous parameters.

A class has `init(key) -> parameters`, a random member, and `apply`: (parameters, x [d]) -> u [k] for a policy,
(parameters, JAX key) -> x(0) [d] for an initial distribution.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.plan import Plan


class ParametricClass(Protocol):
    """A class of policies or initial distributions with continuous parameters."""

    def init(self, key: Key) -> Any:
        """The parameters of a random member."""
        ...

    def apply(self, parameters: Any, argument: Array, /) -> Array:
        """The control [k] at a state [d], or the initial state [d] for a JAX key."""
        ...


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class Member:
    """One member of a function class, as a callable pytree: an initial distribution `member(key)`, for example.

    Main arguments:
        parameter: its parameter, a pytree; the index in a finite class.
        apply: (parameter, *arguments) -> value; static, so it should be the same object for all members of a class.

    >>> Member(2.0, lambda a, x: a * x)(3.0)
    6.0
    """

    parameter: Any
    apply: Callable[..., Array] = field(metadata={"static": True})

    def __call__(self, *arguments: Any) -> Array:
        """The value at `arguments`."""
        return self.apply(self.parameter, *arguments)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class StationaryPolicy:
    """One member of a class of policies that do not depend on time, as a callable pytree: `policy(x, t)` is π(x).

    Main arguments:
        parameter: its parameter, a pytree; the index in a finite class.
        apply: (parameter, x [d]) -> u [k]; static, so it should be the same object for all members of a class.

    >>> StationaryPolicy(2.0, lambda a, x: a * x)(3.0, 0.5)
    6.0
    """

    parameter: Any
    apply: Callable[..., Array] = field(metadata={"static": True})

    def __call__(self, x: Array, t: Array | float = 0.0) -> Array:
        """The control u [k] at state x [d]; the time t is not used."""
        return self.apply(self.parameter, x)


def make_plan(policies: Any, policy: Any, initials: Any, initial: Any) -> Plan:
    """The plan (π, q) with the given parameters in the classes Π and Q, ready to be executed by any rollout."""
    return Plan(StationaryPolicy(policy, policies.apply), Member(initial, initials.apply))


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

    def init(self, key: Key) -> dict[str, np.ndarray]:
        """A random member."""
        draws = key.generator()
        gain = draws.normal(size=(self.control_dim, self.state_dim))
        offset = draws.normal(size=self.control_dim)
        return {"gain": gain.astype(np.float32), "offset": offset.astype(np.float32)}

    def apply(self, parameters: dict[str, Array], x: Array) -> Array:
        """The control u [k]."""
        return jnp.clip(parameters["gain"] @ x + parameters["offset"], -self.limit, self.limit)


@dataclass(frozen=True)
class MlpPolicies:
    """u = limit · tanh(network(features(x))), a network with tanh layers: smooth, and within its limit.

    Main arguments:
        state_dim, control_dim: d and k.
        limit: the largest |u_i|.

    Other arguments:
        hidden: widths of the hidden layers.
        features: x [d] -> the input of the network [p]; the state itself by default. Angles are best given as cos and sin.

    >>> policies = MlpPolicies(state_dim=2, control_dim=1, limit=2.0)
    >>> policies.apply(policies.init(Key.from_seed(0)), jnp.full(2, 100.0)).shape
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

    def init(self, key: Key) -> list[dict[str, np.ndarray]]:
        """A random member."""
        seen = jax.eval_shape(self.features, jax.ShapeDtypeStruct((self.state_dim,), jnp.float32)).shape[0]
        sizes = (seen, *self.hidden, self.control_dim)
        draws = key.generator()
        return [
            {
                "weight": (draws.normal(size=(after, before)) / np.sqrt(before)).astype(np.float32),
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

    def init(self, key: Key) -> np.ndarray:
        """A random member; the parameter is μ before it is squashed into its limit [d]."""
        return key.generator().normal(size=self.state_dim).astype(np.float32)

    def apply(self, parameters: Array, key: Array) -> Array:
        """A draw of x(0) [d]."""
        return self.limit * jnp.tanh(parameters) + self.std * jax.random.normal(key, (self.state_dim,))

"""Function classes: what the learner believes possible.

One interface serves drifts (x, u) -> [d], rewards (x, u) -> scalar, policies x -> [k] and initial distributions
key -> [d]: `apply(parameter, *arguments)` evaluates one member. Functions are written for one state.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from purectrl.core.errors import InputError, require
from purectrl.core.keys import Key
from purectrl.core.problem import Array, System


class Rows(NamedTuple):
    """Measurements one below the other, as least squares takes them."""

    x: np.ndarray
    """States [n, d]."""
    u: np.ndarray
    """Controls [n, k]."""
    y: np.ndarray
    """What the function should return: drifts [n, d] or rewards [n, 1]."""


class ModelClass(Protocol):
    """A continuous class of drifts or rewards, as `AscentLearner` and `Ascent` use it: `LinearClass`, `NeuralClass`.

    A fit is what the class knows of the data; a region is a confidence set made from one, in which the planner moves
    coordinates w. Both are trees of arrays and numbers.
    """

    def apply(self, parameter: Any, x: Array, u: Array) -> Array:
        """The value of one member at x [d], u [k]."""
        ...

    def start(self, key: Key, state_dim: int, control_dim: int) -> Any:
        """The fit without data."""
        ...

    def observe(self, fit: Any, rows: Rows) -> Any:
        """The fit after new rows; running statistics only."""
        ...

    def refit(self, fit: Any, rows: Rows, thorough: bool = False) -> Any:
        """The fit to all rows: thorough before an update, else just good enough to test for misfit."""
        ...

    def excess(self, fit: Any, parameter: Any, rows: Rows) -> float:
        """L(f) − min L on all rows."""
        ...

    def minimum(self, fit: Any) -> float:
        """min L on the rows that `fit` was fitted to."""
        ...

    def contains(self, fit: Any, rows: Rows, beta: float, truth: Any) -> bool:
        """Whether the truth is in the set of radius β."""
        ...

    def region(self, fit: Any, rows: Rows, beta: float) -> Any:
        """The confidence set {f : L(f) ≤ min L + β}."""
        ...

    def random(self, region: Any, key: Key) -> Any:
        """Coordinates to start from."""
        ...

    def decode(self, region: Any, w: Any) -> Any:
        """The member at coordinates w."""
        ...

    def encode(self, region: Any, parameter: Any) -> Any:
        """The coordinates of a member."""
        ...

    def violation(self, region: Any, w: Any) -> Array:
        """How far w is outside the set, in radii; at most zero inside."""
        ...

    def settle(self, region: Any, w: Any) -> Any:
        """After the last step: into the set, whatever it takes."""
        ...


@dataclass(frozen=True)
class FiniteClass:
    """Finitely many functions; the parameter of a member is its index.

    Main arguments:
        size: the number of members.
        apply: (index, *arguments) -> the member's value.
        table: (*arguments) -> the values of all members [size, ...].

    >>> two = FiniteClass.of([lambda x: x + 1.0, lambda x: 2.0 * x])
    >>> float(two.apply(1, jnp.float32(5.0))), two.table(jnp.float32(5.0)).tolist()
    (10.0, [6.0, 10.0])
    """

    size: int
    apply: Callable[..., Array]
    table: Callable[..., Array]

    def __post_init__(self) -> None:
        require(self.size >= 1, "a function class is empty: it needs at least one member")

    @classmethod
    def of(cls, functions: Sequence[Callable[..., Array]]) -> "FiniteClass":
        """Any list of functions."""
        functions = tuple(functions)
        return cls(
            len(functions),
            lambda index, *arguments: jax.lax.switch(index, functions, *arguments),
            lambda *arguments: jnp.stack([function(*arguments) for function in functions]),
        )

    @classmethod
    def family(cls, function: Callable[..., Array], parameters: Any) -> "FiniteClass":
        """One formula with a list of parameters: arrays [size, ...]. Compiles faster than `of` and runs as one program.

        >>> FiniteClass.family(lambda a, x: a * x, jnp.array([1.0, 3.0])).table(jnp.float32(2.0)).tolist()
        [2.0, 6.0]
        """
        parameters = jax.tree.map(jnp.asarray, parameters)
        sizes = {len(leaf) for leaf in jax.tree.leaves(parameters)}
        require(len(sizes) == 1, f"parameters: every array needs the same length, got {sorted(sizes)}")
        return cls(
            sizes.pop(),
            lambda index, *arguments: function(jax.tree.map(lambda leaf: leaf[index], parameters), *arguments),
            lambda *arguments: jax.vmap(function, (0, *[None] * len(arguments)))(parameters, *arguments),
        )

    def check(self, name: str, shape: tuple[int, ...], *arguments: jax.ShapeDtypeStruct) -> None:
        """Raises unless every member maps `arguments` to an array of `shape`."""
        try:
            found = jax.eval_shape(self.table, *arguments).shape[1:]
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{name}: its functions cannot be evaluated on arguments of shapes "
                f"{[argument.shape for argument in arguments]}: {str(error).splitlines()[0]}"
            ) from error
        require(found == shape, f"{name}: its functions return shape {found}, expected {shape}")


class Classes(NamedTuple):
    """Π, Q, F and R, all finite, in the order in which functions take them: `tabulator(system, *classes, steps, paths)`."""

    policies: FiniteClass
    initials: FiniteClass
    drifts: FiniteClass
    rewards: FiniteClass

    def check(self, system: System) -> None:
        """Raises unless every member fits the system."""
        sizes = system.state_dim, system.control_dim
        state, control = (jax.ShapeDtypeStruct((size,), jnp.float32) for size in sizes)
        self.drifts.check("drifts", (system.state_dim,), state, control)
        self.rewards.check("rewards", (), state, control)
        self.policies.check("policies", (system.control_dim,), state)

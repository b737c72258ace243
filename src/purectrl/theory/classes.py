"""Function classes: what the learner believes possible.

One interface serves drifts (x, u) -> [d], rewards (x, u) -> scalar, policies x -> [k] and initial distributions
key -> [d]: `apply(parameter, *arguments)` evaluates one member. Functions are written for one state.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from purectrl.core.errors import InputError, require
from purectrl.core.problem import Array


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

"""Function classes: the drifts, rewards, policies and initial distributions that a learner considers.

One interface serves drifts (x, u) -> [d], rewards (x, u) -> scalar, policies x -> [k] and initial distributions
key -> [d]: `apply(parameter, *arguments)` evaluates one member. Functions are written for one state.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.errors import InputError, require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.system import System


class RegressionData(NamedTuple):
    """Measurements as the rows of a least-squares problem."""

    x: np.ndarray
    """States [n, d]."""
    u: np.ndarray
    """Controls [n, k]."""
    y: np.ndarray
    """Targets: drifts [n, d] or rewards [n, 1]."""


def regression_data(block: Measurements) -> tuple[RegressionData, RegressionData]:
    """The same measurements as the drift's and the reward's least-squares problem."""
    assert block.y is not None
    assert block.r is not None
    d, k = block.x.shape[-1], block.u.shape[-1]
    x, u = block.x.reshape(-1, d), block.u.reshape(-1, k)
    return RegressionData(x, u, block.y.reshape(-1, d)), RegressionData(x, u, block.r.reshape(-1, 1))


@dataclass(frozen=True)
class TrueFunction:
    """A true function, f* or b*, in the forms in which function classes hold it."""

    function: Callable[[Array, Array], Array]
    """(x [d], u [k]) -> its value."""
    index: int | None = None
    """Its index in a finite class; None if it is not a member."""
    parameter: np.ndarray | None = None
    """Its Θ [p, o] in a linear class; None if it is not a member."""


@dataclass(frozen=True)
class Truth:
    """f* and b*."""

    drift: TrueFunction
    reward: TrueFunction


class ModelClass(Protocol):
    """A continuous class of drifts or rewards, as `ContinuousClassLearner` and `GradientPlanner` use it: `LinearClass`,
    `NeuralClass`.

    A fit holds what the class has learned from the data. A confidence set is computed from a fit, and the planner moves
    coordinates w in it. Both are pytrees of arrays and numbers.
    """

    def apply(self, parameter: Any, x: Array, u: Array, /) -> Array:
        """The value of one member at x [d], u [k]."""
        ...

    def init(self, key: Key, state_dim: int, control_dim: int, /) -> Any:
        """The fit without data."""
        ...

    def observe(self, fit: Any, data: RegressionData, /) -> Any:
        """The fit after new data; running statistics only."""
        ...

    def refit(self, fit: Any, data: RegressionData, /, thorough: bool = False) -> Any:
        """The fit to all data: thorough before an update, otherwise just accurate enough for the excess loss."""
        ...

    def excess_loss(self, fit: Any, parameter: Any, data: RegressionData, /) -> float:
        """L(f) − min L on all data."""
        ...

    def minimum(self, fit: Any, /) -> float:
        """min L on the data that `fit` was fitted to."""
        ...

    def prequential(self, fit: Any, /) -> float:
        """Σ_t ‖f̂_{t−1}(z_t) − y_t‖² of the predictions that `observe` made before it used y_t, if the class makes them."""
        ...

    def truth_excess(self, fit: Any, data: RegressionData, truth: TrueFunction, /) -> float:
        """L(truth) − min L on the data that `fit` was fitted to: the truth is in the confidence set if it is at most β.
        Infinite if the truth is not a member of the class."""
        ...

    def confidence_set(self, fit: Any, data: RegressionData, beta: float, /) -> Any:
        """The confidence set {f : L(f) ≤ min L + β}."""
        ...

    def contains(self, fit: Any, parameter: Any, data: RegressionData, beta: float, /) -> bool:
        """Whether a member is in the set of radius β that `fit` defines by the rows that it was fitted to."""
        ...

    def sample(self, confidence_set: Any, key: Key, /) -> Any:
        """Coordinates from which the planner may start."""
        ...

    def middle(self, confidence_set: Any, /) -> Any:
        """The coordinates of the best fit."""
        ...

    def draw(self, confidence_set: Any, key: Key, /) -> Any:
        """The coordinates of a random member of the set."""
        ...

    def decode(self, confidence_set: Any, w: Any, /) -> Any:
        """The member at coordinates w."""
        ...

    def encode(self, confidence_set: Any, parameter: Any, /) -> Any:
        """The coordinates of a member."""
        ...

    def violation(self, confidence_set: Any, w: Any, /) -> Array:
        """How far w is outside the set, in radii; at most zero inside."""
        ...

    def project(self, confidence_set: Any, w: Any, /) -> Any:
        """Coordinates inside the set, w itself if it is inside; applied after the last step of the planner."""
        ...


@runtime_checkable
class LookaheadClass(Protocol):
    """Optional capability of a `ModelClass`: excess losses after each of several episodes, without refitting."""

    def losses_per_episode(self, fit: Any, parameter: Any, data: RegressionData, m: int, /) -> "EpisodeLosses":
        """The excess loss and the regret after each episode of m rows."""
        ...


class EpisodeLosses(NamedTuple):
    """What decides about an update, after each of several episodes."""

    excess: np.ndarray
    """L(f) − min L [episodes]."""
    regret: np.ndarray
    """Σ_t ‖f̂_{t−1}(z_t) − y_t‖² − min L [episodes]; without meaning if the class makes no predictions."""


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
        """One formula with a list of parameters, arrays [size, ...]. It compiles faster than `of` and runs as one program.

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
    """Π, Q, F and R, all finite, in the order in which functions take them: `value_table(system, *classes, …)`."""

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

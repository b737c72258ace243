"""Neural classes: any Equinox module as a drift or a reward, fitted by gradient descent on all data.

    symbol                        here
    ----------------------------  -------------------------------------------------------------------------------------
    f ∈ F                         the arrays of a module, its structure being fixed
    L_D(f) = Σ ‖f(x, u) − y‖²     `loss`
    min L                         NeuralFit.minimum: the smallest loss that descent has found, so never below the true one
    {f : L(f) ≤ min L + β}        NeuralRegion; `violation` is what the planner's multiplier presses to zero or below, and
                                  `settle` moves what is left over towards the best fit until it is inside

A radius from covering numbers is far too large for a network to be of use at a few thousand measurements (`log_cover`
grows with the number of weights); runs scale it down, and say so.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from purectrl.core.errors import InputError, require
from purectrl.core.keys import Key
from purectrl.core.problem import Array
from purectrl.theory.classes import Rows
from purectrl.theory.complexity import log_cover_linear


class NeuralFit(NamedTuple):
    """The best network found for the first `count` rows of the data, and where descent stands."""

    best: Any
    minimum: float
    current: Any
    memory: Any
    """Adam's moments, so that descent goes on where it stopped."""
    count: int


class NeuralRegion(NamedTuple):
    """A confidence set {f : L(f) ≤ min L + β} as the planner sees it."""

    center: Any
    data: "Padded"
    minimum: Array
    beta: Array


class Padded(NamedTuple):
    """Rows of data with weights that are zero where they only fill the array."""

    x: Array
    u: Array
    y: Array
    weights: Array


@dataclass(frozen=True)
class NeuralClass:
    """All members of one architecture.

    Main arguments:
        make: JAX key -> an Equinox module that maps (x [d], u [k]) to [outputs], or to a scalar.
        outputs: o for a vector (a drift), None for a scalar (a reward).

    Other arguments:
        rate: Adam's step size.
        check_steps, update_steps: descent steps at each look at the misfit, and at each update.
        bound, lipschitz: R on the norm of all weights, and how fast the function moves with them: what the covering number
            needs. They are not enforced.

    >>> class Line(eqx.Module):
    ...     slope: jax.Array
    ...     def __call__(self, x, u):
    ...         return self.slope * x[0]
    >>> lines = NeuralClass(lambda key: Line(jnp.zeros(())), outputs=None, rate=0.1, update_steps=300)
    >>> x = np.linspace(-1, 1, 9, dtype=np.float32)[:, None]
    >>> fit = lines.start(Key.from_seed(0), state_dim=1, control_dim=1)
    >>> fit = lines.refit(fit, Rows(x, 0 * x, 3 * x), thorough=True)
    >>> round(float(fit.best.slope), 2), round(fit.minimum, 3)
    (3.0, 0.0)
    """

    make: Callable[[Array], Any]
    outputs: int | None = None
    rate: float = 3e-3
    check_steps: int = 10
    update_steps: int = 500
    bound: float = 10.0
    lipschitz: float = 1.0
    _static: Any = field(init=False, repr=False, compare=False)
    _descend: Any = field(init=False, repr=False, compare=False)
    _loss: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("rate", "bound", "lipschitz"):
            require(getattr(self, name) > 0, f"{name}: must be positive, not {getattr(self, name)}")
        for name in ("check_steps", "update_steps"):
            require(getattr(self, name) >= 1, f"{name}: at least one step is needed, not {getattr(self, name)}")
        static = eqx.partition(self.make(jax.random.key(0)), eqx.is_inexact_array)[1]
        object.__setattr__(self, "_static", static)
        object.__setattr__(self, "_descend", jax.jit(self._descent, static_argnames="steps"))
        object.__setattr__(self, "_loss", jax.jit(self.loss))

    def apply(self, parameter: Any, x: Array, u: Array) -> Array:
        """The network's value at x [d], u [k]."""
        return eqx.combine(parameter, self._static)(x, u)

    def loss(self, parameter: Any, data: Padded) -> Array:
        """L_D(f)."""
        found = jax.vmap(self.apply, (None, 0, 0))(parameter, data.x, data.u).reshape(data.y.shape)
        return jnp.sum(data.weights[:, None] * (found - data.y) ** 2)

    def log_cover(self, epsilon: float) -> float:
        """Logarithm of the covering number at scale ε for p weights in a ball: p · log(1 + 2RL/ε)."""
        weights = sum(leaf.size for leaf in jax.tree.leaves(self._fresh(Key(0))))
        return log_cover_linear(weights, self.bound, self.lipschitz, epsilon)

    def start(self, key: Key, state_dim: int, control_dim: int) -> NeuralFit:
        """A random network and no data; raises if it does not fit the system."""
        arguments = [jax.ShapeDtypeStruct((n,), jnp.float32) for n in (state_dim, control_dim)]
        parameter = self._fresh(key)
        expected = () if self.outputs is None else (self.outputs,)
        try:
            shape = jax.eval_shape(self.apply, parameter, *arguments).shape
        except (TypeError, ValueError, IndexError) as error:
            raise InputError(
                f"make: the module cannot be evaluated on x [{state_dim}], u [{control_dim}]: {error}"
            ) from error
        require(shape == expected, f"make: the module returns shape {shape}, expected {expected}")
        return NeuralFit(parameter, 0.0, parameter, self._optimiser.init(parameter), 0)

    def observe(self, fit: NeuralFit, rows: Rows) -> NeuralFit:
        """Nothing to do: descent reads all data."""
        return fit

    def refit(self, fit: NeuralFit, rows: Rows, thorough: bool = False) -> NeuralFit:
        """Goes on descending on all data and keeps the best network seen."""
        steps = self.update_steps if thorough else self.check_steps
        best, minimum, current, memory = self._descend(fit.best, fit.current, fit.memory, pad(rows), steps=steps)
        arrays = jax.tree.map(np.asarray, (best, current, memory))
        return NeuralFit(arrays[0], float(minimum), arrays[1], arrays[2], len(rows.x))

    def minimum(self, fit: NeuralFit) -> float:
        """min L, as far as descent has come."""
        return fit.minimum

    def excess(self, fit: NeuralFit, parameter: Any, rows: Rows) -> float:
        """L(f) − min L over all rows, which `fit` has been fitted to."""
        return max(0.0, float(self._loss(parameter, pad(rows))) - fit.minimum)

    def region(self, fit: NeuralFit, rows: Rows, beta: float) -> NeuralRegion:
        """The confidence set that the first `fit.count` rows define."""
        data = pad(Rows(*(array[: fit.count] for array in rows)))
        return NeuralRegion(fit.best, data, jnp.float32(fit.minimum), jnp.float32(beta))

    def contains(self, fit: NeuralFit, rows: Rows, beta: float, truth: Callable[[Array, Array], Array]) -> bool:
        """Whether L(truth) ≤ min L + β, for a truth that need not be a network."""
        x, u, y = (array[: fit.count] for array in rows)
        if not fit.count:
            return True
        off = np.asarray(jax.vmap(truth)(x, u)).reshape(y.shape) - y
        return bool((off.astype(np.float64) ** 2).sum() <= fit.minimum + beta)

    def decode(self, region: NeuralRegion, w: Any) -> Any:
        """The planner moves the weights themselves."""
        return w

    def encode(self, region: NeuralRegion, parameter: Any) -> Any:
        """The inverse of `decode`."""
        return parameter

    def violation(self, region: NeuralRegion, w: Any) -> Array:
        """(L(f) − min L)/β − 1: positive outside the set."""
        return (self.loss(w, region.data) - region.minimum) / region.beta - 1.0

    def settle(self, region: NeuralRegion, w: Any) -> Any:
        """A point in the set on the segment from the best fit to w: w itself if it is inside, else by bisection, which ends
        where the segment leaves the set."""
        between = lambda share: jax.tree.map(lambda a, b: a + share * (b - a), region.center, w)  # noqa: E731
        inside = lambda share: self.violation(region, between(share)) <= 0  # noqa: E731

        def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = (low + high) / 2
            good = inside(middle)
            return jnp.where(good, middle, low), jnp.where(good, high, middle)

        low, _ = jax.lax.fori_loop(0, 20, halve, (jnp.float32(0.0), jnp.float32(1.0)))
        return between(jnp.where(inside(1.0), 1.0, low))

    def random(self, region: NeuralRegion, key: Key) -> Any:
        """The best fit with its weights moved a little, so that starts differ."""
        draws = key.generator()
        size = 0.05 * draws.integers(2)
        moved = lambda leaf: np.asarray(leaf) + np.float32(size * draws.normal(size=leaf.shape))  # noqa: E731
        return jax.tree.map(moved, region.center)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.rate)

    def _fresh(self, key: Key) -> Any:
        module = self.make(jax.random.wrap_key_data(key.words()))
        return jax.tree.map(np.asarray, eqx.filter(module, eqx.is_inexact_array))

    def _descent(self, best: Any, current: Any, memory: Any, data: Padded, steps: int) -> tuple[Any, ...]:
        def step(carry: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
            best, minimum, current, memory = carry
            value, slope = jax.value_and_grad(self.loss)(current, data)
            best = jax.tree.map(lambda old, new: jnp.where(value < minimum, new, old), best, current)
            # the mean and not the sum, so that the step size does not depend on how much data there is
            slope = jax.tree.map(lambda leaf: leaf / jnp.maximum(data.weights.sum(), 1.0), slope)
            change, memory = self._optimiser.update(slope, memory)
            return (best, jnp.minimum(minimum, value), optax.apply_updates(current, change), memory), None

        begin = best, self.loss(best, data), current, memory
        (best, minimum, current, memory), _ = jax.lax.scan(step, begin, length=steps)
        return best, minimum, current, memory


def pad(rows: Rows) -> Padded:
    """Rows filled up to 128, 512, 2048, … so that growing data compiles a handful of programs."""
    count = len(rows.x)
    size = 128
    while size < count:
        size *= 4
    fill = lambda array: np.pad(np.asarray(array, np.float32), ((0, size - count), (0, 0)))  # noqa: E731
    return Padded(*(fill(array) for array in rows), np.float32(np.arange(size) < count))

"""Neural classes: any Equinox module as a drift or a reward, fitted by gradient descent on all data.

    symbol                        here
    ----------------------------  -------------------------------------------------------------------------------------
    f ∈ F                         the arrays of a module, its structure being fixed
    L_D(f) = Σ ‖f(x, u) − y‖²     `loss`
    min L                         NeuralFit.minimum: the smallest loss that descent has found, so never below the true one
    {f : L(f) ≤ min L + β}        NeuralConfidenceSet; the planner's multiplier pushes `violation` to zero or below, and
                                  `project` moves the result towards the best fit until it is inside
    f̂_{t−1}                       the best network found before row t; its losses on rows t add up to NeuralFit.prequential

For networks a radius from covering numbers is too large to be useful with a few thousand measurements (`log_cover` grows
with the number of weights). Anytime-valid sets {f : L(f) ≤ Σ_t ‖f̂_{t−1}(z_t) − y_t‖² + 2σ² log(1/δ)} need none. They
are valid however well or badly the descent fits: min L cancels, and f̂ may be any network that earlier rows determine.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from purectrl.core.errors import InputError, require
from purectrl.core.keys import Key
from purectrl.systems.compiled import jax_key
from purectrl.theory.classes import RegressionData, TrueFunction
from purectrl.theory.complexity import log_cover_linear

LEAST_STEPS = 10
"""Gradient steps per test of the excess loss that are always taken."""
SPREAD = 0.5
"""The standard deviation of a random change of weights, before it is shortened to stay in the set."""


class NeuralFit(NamedTuple):
    """The best network found for the first `rows` rows of the data, and the state of the gradient descent."""

    best: Any
    minimum: float
    current: Any
    optimizer_state: Any
    """Adam's moments, so that descent continues from them."""
    rows: int
    prequential: float = 0.0
    """Σ_t ‖f̂_{t−1}(z_t) − y_t‖², where f̂_{t−1} is the best network found before row t."""


class NeuralConfidenceSet(NamedTuple):
    """A confidence set {f : L(f) ≤ min L + β}, in the form that the planner needs."""

    center: Any
    data: "Padded"
    minimum: Array
    beta: Array


class Padded(NamedTuple):
    """Data with weights that are zero on padding."""

    x: Array | np.ndarray
    u: Array | np.ndarray
    y: Array | np.ndarray
    weights: Array | np.ndarray


@dataclass(frozen=True)
class NeuralClass:
    """All members of one architecture.

    Main arguments:
        make: JAX key -> an Equinox module that maps (x [d], u [k]) to [outputs], or to a scalar.
        outputs: o for a vector (a drift), None for a scalar (a reward).

    Other arguments:
        learning_rate: that of Adam.
        check_steps, update_steps: gradient steps per test of the excess loss, and per update. A test takes fewer when there
            are more than 128 rows, in proportion, but at least `LEAST_STEPS` if `check_steps` is no less.
        bound, lipschitz: R, a bound on the norm of all weights, and the Lipschitz constant of the function in them, for the
            covering number. They are not enforced.
        rows: confidence sets are padded to at least so many rows, so that the planner compiles once for all smaller ones.
        predicts: whether `observe` predicts every row before it is used, for anytime-valid sets.

    >>> class Line(eqx.Module):
    ...     slope: jax.Array
    ...     def __call__(self, x, u):
    ...         return self.slope * x[0]
    >>> lines = NeuralClass(lambda key: Line(jnp.zeros(())), outputs=None, learning_rate=0.1, update_steps=300)
    >>> x = np.linspace(-1, 1, 9, dtype=np.float32)[:, None]
    >>> fit = lines.init(Key.from_seed(0), state_dim=1, control_dim=1)
    >>> fit = lines.refit(fit, RegressionData(x, 0 * x, 3 * x), thorough=True)
    >>> round(float(fit.best.slope), 2), round(fit.minimum, 3)
    (3.0, 0.0)
    """

    make: Callable[[Array], Any]
    outputs: int | None = None
    learning_rate: float = 3e-3
    check_steps: int = 10
    update_steps: int = 500
    bound: float = 10.0
    lipschitz: float = 1.0
    rows: int = 128
    predicts: bool = False
    _static: Any = field(init=False, repr=False, compare=False)
    _descend: Any = field(init=False, repr=False, compare=False)
    _loss: Any = field(init=False, repr=False, compare=False)
    _project: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("learning_rate", "bound", "lipschitz"):
            require(getattr(self, name) > 0, f"{name}: must be positive, not {getattr(self, name)}")
        for name in ("check_steps", "update_steps"):
            require(
                getattr(self, name) >= 1, f"{name}: at least one gradient step is needed, not {getattr(self, name)}"
            )
        static = eqx.partition(self.make(jax.random.key(0)), eqx.is_inexact_array)[1]
        object.__setattr__(self, "_static", static)
        object.__setattr__(self, "_descend", jax.jit(self._descent, static_argnames="steps"))
        object.__setattr__(self, "_loss", jax.jit(self.loss))
        object.__setattr__(self, "_project", jax.jit(self.project))

    def apply(self, parameter: Any, x: Array, u: Array) -> Array:
        """The network's value at x [d], u [k]."""
        return eqx.combine(parameter, self._static)(x, u)

    def loss(self, parameter: Any, data: Padded) -> Array:
        """L_D(f)."""
        found = jax.vmap(self.apply, (None, 0, 0))(parameter, jnp.asarray(data.x), jnp.asarray(data.u)).reshape(
            data.y.shape
        )
        return jnp.sum(data.weights[:, None] * (found - data.y) ** 2)

    def log_cover(self, epsilon: float) -> float:
        """Logarithm of the covering number at scale ε for p weights in a ball: p · log(1 + 2RL/ε)."""
        weights = sum(leaf.size for leaf in jax.tree.leaves(self._fresh(Key(0))))
        return log_cover_linear(weights, self.bound, self.lipschitz, epsilon)

    def init(self, key: Key, state_dim: int, control_dim: int) -> NeuralFit:
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
        return NeuralFit(parameter, 0.0, parameter, self._optimizer.init(parameter), 0)

    def observe(self, fit: NeuralFit, data: RegressionData) -> NeuralFit:
        """The same fit, since gradient descent reads all data, with the loss of its predictions of the new rows."""
        if not self.predicts:
            return fit
        loss = fit.prequential + float(self._loss(fit.best, pad(data)))
        return fit._replace(prequential=loss)

    def refit(self, fit: NeuralFit, data: RegressionData, thorough: bool = False) -> NeuralFit:
        """Continues gradient descent on all data and keeps the best network seen."""
        padded = pad(data)
        tested = max(min(LEAST_STEPS, self.check_steps), 128 * self.check_steps // len(padded.x))
        best, minimum, current, optimizer_state = self._descend(
            fit.best, fit.current, fit.optimizer_state, padded, steps=self.update_steps if thorough else tested
        )
        arrays = jax.tree.map(np.asarray, (best, current, optimizer_state))
        return NeuralFit(arrays[0], float(minimum), arrays[1], arrays[2], len(data.x), fit.prequential)

    def minimum(self, fit: NeuralFit) -> float:
        """The smallest loss that gradient descent has found."""
        return fit.minimum

    def prequential(self, fit: NeuralFit) -> float:
        """The loss of the predictions."""
        return fit.prequential

    def excess_loss(self, fit: NeuralFit, parameter: Any, data: RegressionData) -> float:
        """L(f) − min L on all data, to which `fit` was fitted."""
        return max(0.0, float(self._loss(parameter, pad(data))) - fit.minimum)

    def contains(self, fit: NeuralFit, parameter: Any, data: RegressionData, beta: float) -> bool:
        """Whether L(f) ≤ min L + β on the first `fit.rows` rows."""
        rows = RegressionData(*(array[: fit.rows] for array in data))
        return not fit.rows or self.excess_loss(fit, parameter, rows) <= beta * (1 + 1e-5)

    def confidence_set(self, fit: NeuralFit, data: RegressionData, beta: float) -> NeuralConfidenceSet:
        """The confidence set that the first `fit.rows` rows define."""
        padded = pad(RegressionData(*(array[: fit.rows] for array in data)), self.rows)
        return NeuralConfidenceSet(fit.best, padded, jnp.float32(fit.minimum), jnp.float32(beta))

    def truth_excess(self, fit: NeuralFit, data: RegressionData, truth: TrueFunction) -> float:
        """L(truth) − min L on the first `fit.rows` rows; the truth need not be a network."""
        x, u, y = (array[: fit.rows] for array in data)
        if not fit.rows:
            return 0.0
        off = np.asarray(jax.vmap(truth.function)(jnp.asarray(x), jnp.asarray(u))).reshape(y.shape) - y
        return float((off.astype(np.float64) ** 2).sum()) - fit.minimum

    def decode(self, confidence_set: NeuralConfidenceSet, w: Any) -> Any:
        """The same: the planner moves the weights themselves."""
        return w

    def encode(self, confidence_set: NeuralConfidenceSet, parameter: Any) -> Any:
        """The inverse of `decode`."""
        return parameter

    def violation(self, confidence_set: NeuralConfidenceSet, w: Any) -> Array:
        """(L(f) − min L)/β − 1: positive outside the set."""
        return (self.loss(w, confidence_set.data) - confidence_set.minimum) / confidence_set.beta - 1.0

    def project(self, confidence_set: NeuralConfidenceSet, w: Any) -> Any:
        """A point in the set on the segment from the best fit to w: w itself if it is inside, else by bisection, which ends
        where the segment leaves the set."""
        between = lambda share: jax.tree.map(lambda a, b: a + share * (b - a), confidence_set.center, w)  # noqa: E731
        inside = lambda share: self.violation(confidence_set, between(share)) <= 0  # noqa: E731

        def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = (low + high) / 2
            good = inside(middle)
            return jnp.where(good, middle, low), jnp.where(good, high, middle)

        low, _ = jax.lax.fori_loop(0, 20, halve, (jnp.float32(0.0), jnp.float32(1.0)))
        return between(jnp.where(inside(1.0), 1.0, low))

    def middle(self, confidence_set: NeuralConfidenceSet) -> Any:
        """The best fit."""
        return confidence_set.center

    def draw(self, confidence_set: NeuralConfidenceSet, key: Key) -> Any:
        """The best fit with a random change of its weights, as far as the set goes in that direction or as `SPREAD`."""
        draws = key.generator()
        moved = lambda leaf: np.asarray(leaf) + np.float32(SPREAD * draws.normal(size=leaf.shape))  # noqa: E731
        far = jax.tree.map(moved, confidence_set.center)
        return jax.tree.map(np.asarray, self._project(confidence_set, far))

    def sample(self, confidence_set: NeuralConfidenceSet, key: Key) -> Any:
        """The best fit with a small perturbation of its weights, so that starting points differ."""
        draws = key.generator()
        size = 0.05 * draws.integers(2)
        moved = lambda leaf: np.asarray(leaf) + np.float32(size * draws.normal(size=leaf.shape))  # noqa: E731
        return jax.tree.map(moved, confidence_set.center)

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate)

    def _fresh(self, key: Key) -> Any:
        module = self.make(jax_key(key))
        return jax.tree.map(np.asarray, eqx.filter(module, eqx.is_inexact_array))

    def _descent(self, best: Any, current: Any, optimizer_state: Any, data: Padded, steps: int) -> tuple[Any, ...]:
        def step(carry: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
            best, minimum, current, optimizer_state = carry
            value, slope = jax.value_and_grad(self.loss)(current, data)
            best = jax.tree.map(lambda old, new: jnp.where(value < minimum, new, old), best, current)
            # the mean and not the sum, so that the learning rate does not depend on the amount of data
            slope = jax.tree.map(lambda leaf: leaf / jnp.maximum(data.weights.sum(), 1.0), slope)
            change, optimizer_state = self._optimizer.update(slope, optimizer_state)
            return (best, jnp.minimum(minimum, value), optax.apply_updates(current, change), optimizer_state), None

        begin = best, self.loss(best, data), current, optimizer_state
        (best, minimum, current, optimizer_state), _ = jax.lax.scan(step, begin, length=steps)
        return best, minimum, current, optimizer_state


def pad(data: RegressionData, least: int = 128) -> Padded:
    """Data padded to 128, 512, 2048, … rows and at least to `least`, so that growing data compile a handful of programs."""
    count, size = len(data.x), least
    while size < count:
        size *= 4
    fill = lambda array: np.pad(np.asarray(array, np.float32), ((0, size - count), (0, 0)))  # noqa: E731
    return Padded(fill(data.x), fill(data.u), fill(data.y), (np.arange(size) < count).astype(np.float32))

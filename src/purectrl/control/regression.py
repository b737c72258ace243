"""Networks that are fitted to single measurements: functions (x, u) -> outputs, their data and their loss."""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float

from purectrl.control.networks import Layer, glorot, mlp
from purectrl.control.trajectories import CHUNK, time_gaps
from purectrl.core.errors import MeasurementError
from purectrl.core.measurement import Measurements
from purectrl.systems.compiled import pad_rows
from purectrl.systems.spec import StateSpec

MODERATE_UNIT = 30.0
"""Untrained networks absorb units up to this, or one over this."""
SMALLEST_REWARD = 1e-30
"""Rewards whose root mean square is smaller are zero."""
OUTLIERS, SMALLEST_SHARE = 0.9, 0.1
"""The quantile beyond which sizes are clipped, and the least share of the root mean square that is left."""
CONSTANT = 1e-6
"""A coordinate whose standard deviation is smaller is constant, and is not scaled."""


class Networks(eqx.Module):
    """Functions (x, u) -> [outputs], one network per member. Inputs and outputs are scaled to about unit size.

    Main arguments:
        layers: of all members.
        mean, scale: what is subtracted from each feature of x, and what it is divided by [features].
        size: what each output is multiplied by [outputs].
        spec: the features and the control limits.
    """

    layers: tuple[Layer, ...]
    mean: Array
    scale: Array
    size: Array
    spec: StateSpec = eqx.field(static=True)

    @classmethod
    def random(
        cls, generator: np.random.Generator, spec: StateSpec, outputs: int, members: int, hidden: tuple[int, ...]
    ) -> "Networks":
        """Members with random weights, and scales of one."""
        features = spec.feature_dim
        layers = glorot(generator, (features + spec.control_dim, *hidden, outputs), members)
        return cls(layers, jnp.zeros(features), jnp.ones(features), jnp.ones(outputs), spec)

    @property
    def members(self) -> int:
        """Number of networks."""
        return self.layers[0].weight.shape[0]

    def __call__(
        self, x: Float[Array, "*steps members rows d"], u: Float[Array, "*steps members rows k"]
    ) -> Float[Array, "*steps members rows outputs"]:
        """The outputs of each member on its rows."""
        mean, scale, size = map(jax.lax.stop_gradient, (self.mean, self.scale, self.size))
        inputs = jnp.concatenate([(self.spec.featurize(x) - mean) / scale, self.spec.scale_control(u)], axis=-1)
        return mlp(self.layers, inputs, jax.nn.elu) * size

    def select_members(self, members: Array) -> "Networks":
        """Some members, by number."""
        return eqx.tree_at(lambda n: n.layers, self, jax.tree.map(lambda array: array[members], self.layers))

    def rescale(self, mean: Array, scale: Array, size: Array) -> "Networks":
        """The same functions with other scales: the first and the last layer absorb the change."""
        first, *middle, last = self.layers
        d = self.scale.size
        bias = first.bias + ((mean - self.mean) / self.scale)[None] @ first.weight[..., :d, :]
        weight = first.weight.at[..., :d, :].multiply((scale / self.scale)[:, None])
        back = self.size / size
        layers = (Layer(weight, bias), *middle, Layer(last.weight * back, last.bias * back))
        return Networks(layers, mean, scale, size, self.spec)

    def adapt(self, mean: Array, scale: Array, size: Array) -> "Networks":
        """Untrained functions in the units of the data.

        If those are far from one, the same weights with other scales: absorbed by a layer, a unit of a thousand would make
        its weights a thousand times too large, and a fit would have to undo that.
        """
        units = np.concatenate([np.asarray(scale), np.asarray(size)])
        if np.maximum(units, 1 / units).max() <= MODERATE_UNIT:
            return self.rescale(mean, scale, size)
        return Networks(self.layers, mean, scale, size, self.spec)


class RegressionData(NamedTuple):
    """All measurements in order, in arrays whose size does not change as data are added; zero beyond `size`."""

    x: np.ndarray
    """[rows, d]."""
    u: np.ndarray
    """[rows, k]."""
    y: np.ndarray
    """[rows, d]."""
    r: np.ndarray
    """[rows, 1]."""
    size: np.int32
    """The number of measurements."""


def regression_data(seen: Measurements, spec: StateSpec, capacity: int, max_gap: float) -> RegressionData:
    """All measurements. A state that is measured several times in a row contributes once.

    If y was not measured, it is the difference quotient to the next measurement of the episode, if that is at most `max_gap`
    seconds away. If r was not measured, the reward must be known.

    >>> x = np.array([[[0.0], [1.0], [1.0], [1.0]]])
    >>> ended = Measurements(np.arange(4.0)[None], x, 0 * x, y=0 * x, r=np.zeros((1, 4)))
    >>> rows = regression_data(ended, StateSpec(1, 1, (-1.0,), (1.0,)), capacity=5, max_gap=1.0)
    >>> int(rows.size), rows.x[:, 0].tolist()
    (2, [0.0, 1.0, 0.0, 0.0, 0.0])
    """
    used = seen.valid & ~seen.repeated
    y, r = seen.y, seen.r
    if y is None:
        gaps = time_gaps(seen)
        used &= (gaps <= max_gap) & (gaps > 0)
        if not used.any():
            raise MeasurementError(
                f"the drift was not measured, and no two measurements lie within max_gap = {max_gap:g} s of each other; "
                "measure in windows, or allow a longer gap"
            )
        after = np.concatenate([seen.x[:, 1:], seen.x[:, -1:]], axis=1)
        y = (after - seen.x) / np.where(used, gaps, 1.0)[..., None]
    if r is None:
        if spec.reward is None:
            raise MeasurementError("the reward is unknown and was not measured: r is missing")
        r = np.asarray(jnp.vectorize(spec.reward, signature="(d),(k)->()")(seen.x, seen.u))

    def pad(array: np.ndarray) -> np.ndarray:
        kept = array[used].astype(np.float32)
        return np.concatenate([kept, np.zeros((capacity - len(kept), *kept.shape[1:]), np.float32)])

    return RegressionData(pad(seen.x), pad(seen.u), pad(y), pad(r[..., None]), np.int32(used.sum()))


def centre_and_scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Median of each column of [n, c], and the `robust_scale` of the distances from it.

    >>> centre, scale = centre_and_scale(np.array([[1.0, 5.0], [3.0, 5.0], [2.0, 5.0]]))
    >>> centre.tolist(), [round(float(one), 2) for one in scale]
    ([2.0, 5.0], [0.82, 1.0])
    """
    centre = np.median(values, axis=0)
    return centre.astype(np.float32), robust_scale(values - centre)


def robust_scale(values: np.ndarray) -> np.ndarray:
    """The root mean square of each column of [n, c] without its outliers; one for columns of zeros.

    Sizes beyond a quantile are clipped: a system that was once driven fast would otherwise make slow motions small. The
    result is at least a tenth of the root mean square of all.

    >>> robust_scale(np.array([[1.0], [-1.0]] * 50 + [[5.0]])).tolist()
    [1.0]
    """
    sizes = np.abs(values)
    clipped = np.minimum(sizes, np.quantile(sizes, OUTLIERS, axis=0))
    size = np.sqrt(np.mean(np.square(values), axis=0))
    return _one_if_zero(np.maximum(np.sqrt(np.mean(np.square(clipped), axis=0)), SMALLEST_SHARE * size))


def root_mean_square(values: np.ndarray, smallest: float = CONSTANT) -> np.ndarray:
    """The root mean square of each column of [n, c]; one for columns of zeros, in which it is below `smallest`.

    >>> root_mean_square(np.array([[3.0, 0.0], [-3.0, 0.0]])).tolist()
    [3.0, 1.0]
    """
    return _one_if_zero(np.sqrt(np.mean(np.square(values), axis=0)), smallest)


def _one_if_zero(scale: np.ndarray, smallest: float = CONSTANT) -> np.ndarray:
    return np.where(scale > smallest, scale, 1.0).astype(np.float32)


@dataclass(frozen=True)
class RegressionLoss:
    """The objective of a fit to single measurements; see `purectrl.control.fit.Objective`.

    Main arguments:
        batch_size: measurements per step, drawn independently for each member.

    Other arguments:
        huber: errors larger than this, in units of the typical size of what is predicted, count linearly.
        clip: limit of the norm of the gradient, per member on average.
    """

    batch_size: int
    huber: float = 1.0
    clip: float = 10.0

    def draw(self, key: Array, data: tuple[Array, ...], members: int) -> Array:
        """Numbers of rows [members, batch_size]."""
        return jax.random.randint(key, (members, self.batch_size), 0, data[3])

    def loss(self, model: Networks, batch: Array, data: tuple[Array, ...]) -> Array:
        """The sum over members of the mean loss of their rows; `data` is (x, u, targets, size)."""
        x, u, targets, _ = data
        return self.each(model, x[batch], u[batch], targets[batch]).mean() * model.members

    def each(self, model: Networks, x: Array, u: Array, targets: Array) -> Array:
        """The loss of each output of each row [members, rows, outputs]."""
        error = (model(x, u) - targets) / jax.lax.stop_gradient(model.size)
        return 2 * optax.huber_loss(error, delta=self.huber)

    def resample(self, model: Networks, key: Array) -> Networks:
        """The model itself: nothing is latent."""
        return model

    def scale_update(self, update: Networks) -> Networks:
        """One learning rate for all parameters."""
        return update


def mean_loss(
    objective: RegressionLoss, networks: Networks, x: np.ndarray, u: np.ndarray, targets: np.ndarray
) -> float:
    """The mean loss over members, outputs and rows; infinite if it is not a number."""
    (each,) = pad_rows(lambda *rows: (_losses(objective, networks, *rows),), x, u, targets, sizes=(CHUNK,))
    return float(np.nan_to_num(each.mean(dtype=np.float64), nan=np.inf))


@functools.partial(jax.jit, static_argnums=0)
def _losses(objective: RegressionLoss, networks: Networks, x: Array, u: Array, targets: Array) -> Array:
    """x [rows, d], u [rows, k], targets [rows, outputs] -> [rows]."""
    x, u, targets = (jnp.broadcast_to(array, (networks.members, *array.shape)) for array in (x, u, targets))
    return objective.each(networks, x, u, targets).mean(axis=(0, 2))

"""Fitting a mechanical model to trajectories: sub-sequences of measurements, scales, losses.

symbol                   here                  meaning
-----------------------  --------------------  ------------------------------------------------------------------
ELBO                     evidence_loss         log-likelihood of the data minus KL(q ‖ p), see `MechanicalEnsemble`
σ                        noise_loss            noise of a measurement, if it is learned
x(t_i), u(t_i)           Sequences             all measurements, and where runs of consecutive times begin
Δt                       TrajectoryLoss.step   the time between two measurements

The loss is that of ENODE, −log p(x(t_2), …, x(t_n) | x(t_1), f), on short sub-sequences at the measured times. The noise of
a measurement is set to the effect of an acceleration of typical size within Δt, and has Huber's tails. With two points it is
gradient matching: (x(t_2) − x(t_1))/(t_2 − t_1) against the drift, through one step of the integrator.

A model with `log_noise` learns the noise instead, one σ per coordinate of the state, by the likelihood and its log σ. As in
ENODE the first state of a sub-sequence counts as exact. It is measured, too, so σ is up to about √2 times that of one
measurement. For families without a prior the KL term is zero, and the ELBO is the likelihood.
"""

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float

from purectrl.control.ensembles import MechanicalEnsemble
from purectrl.control.integrate import Integrator, path
from purectrl.core.errors import require
from purectrl.core.measurement import Measurements
from purectrl.systems.compiled import pad_rows
from purectrl.systems.mechanical import MechanicalSystem

MIN_SCALE = 0.3
"""No feature and no acceleration is divided by less: noise in a nearly constant coordinate is not amplified."""
OUTLIER_QUANTILE = 0.98
"""Sizes beyond this quantile are clipped before the scales are computed."""
LEARNED_NOISE_HUBER = 3.0
"""Errors beyond this many learned σ count linearly. For Gaussian errors the learned σ is then 0.1 % too small."""
NOISE_LR_MULTIPLIER = 30.0
"""Learning rate of log σ in units of that of the weights. Adam moves a parameter by about its learning rate per step."""
CHUNK = 256
"""Sub-sequences that are evaluated together: one compiled program serves data of any size."""
MAX_LOSS = 1e9
"""Larger losses, and NaN, are replaced by this number."""


class Sequences(NamedTuple):
    """All measurements in order, in arrays whose size does not change as data are added.

    Rows beyond the data are zero, starts beyond `size` are not used.
    """

    x: Array
    """States [rows, 2·nq]."""
    u: Array
    """Controls [rows, k]."""
    gaps: Array
    """Seconds to the next row [rows, 1]."""
    starts: Array
    """Rows at which a sub-sequence may begin [rows]."""
    size: Array
    """How many of them there are."""


@dataclass(frozen=True)
class Pairs:
    """Which neighbouring measurements of an episode a model is fitted to.

    Main arguments:
        max_gap: the longest time between them, in seconds.
        angles: for each position, whether it is an angle.
        max_turn: the furthest that an angle may turn between them, in radians. Where it turns further, one step of the
            integrator is far off, and few such measurements spoil the fit elsewhere. At least half of the pairs are kept.

    >>> t, x = np.array([[0.0, 0.1, 0.2, 0.3]]), np.array([[[0.0, 1.0], [0.1, 1.0], [0.2, 1.0], [1.1, 19.0]]])
    >>> Pairs(max_gap=0.15, angles=(True,), max_turn=1.0).gaps(Measurements(t, x, np.zeros((1, 4, 1)))).round(3).tolist()
    [[0.1, 0.1, inf, inf]]
    """

    max_gap: float
    angles: tuple[bool, ...] = ()
    max_turn: float = math.inf

    @property
    def limited(self) -> bool:
        """Whether pairs are left out because an angle turns too far."""
        return math.isfinite(self.max_turn) and any(self.angles)

    def gaps(self, seen: Measurements) -> np.ndarray:
        """Seconds from each measurement to the next one [episodes, m]; infinite if the two are no pair."""
        gaps = time_gaps(seen)
        gaps[gaps > self.max_gap] = np.inf
        near = np.isfinite(gaps)
        if self.limited and near.any():
            turns = self._turns(seen, gaps)
            gaps[turns > max(self.max_turn, np.median(turns[near]))] = np.inf
        return gaps

    def rows(self, seen: Measurements) -> np.ndarray:
        """The measurements that a model is fitted to [episodes, m]: all, or those of a pair if pairs are left out."""
        if not self.limited:
            return seen.valid
        begins = np.isfinite(self.gaps(seen))
        ends = np.zeros_like(begins)
        ends[:, 1:] = begins[:, :-1]
        return begins | ends

    def _turns(self, seen: Measurements, gaps: np.ndarray) -> np.ndarray:
        """How far the fastest angle turns until the next measurement, by the larger of its two velocities."""
        velocities = np.abs(seen.x[..., len(self.angles) :][..., np.array(self.angles)]).max(axis=-1)
        after = np.concatenate([velocities[:, 1:], velocities[:, -1:]], axis=1)
        return np.maximum(velocities, after) * np.where(np.isfinite(gaps), gaps, 0.0)


def time_gaps(seen: Measurements) -> np.ndarray:
    """Seconds from each measurement to the next one of its episode [episodes, m]; infinite at the last.

    >>> one = Measurements(t=np.array([[0.0, 0.5, 2.0]]), x=np.zeros((1, 3, 2)), u=np.zeros((1, 3, 1)))
    >>> time_gaps(one).tolist()
    [[0.5, 1.5, inf]]
    """
    gaps = np.diff(seen.t, axis=1, append=np.inf)
    if seen.count is not None:
        gaps[:, :-1][~seen.valid[:, 1:]] = np.inf
    return gaps


def sequences(seen: Measurements, length: int, pairs: Pairs, capacity: int) -> Sequences:
    """All runs of `length` measurements of which neighbours are pairs.

    Main arguments:
        seen: the data, with any times.
        capacity: the number of rows to pad to, so that every update of a run uses one compiled program.
    """
    seen = seen.distinct()
    valid = seen.valid
    linked = np.concatenate([np.isfinite(pairs.gaps(seen)[valid]), np.zeros(length, bool)])
    gaps = time_gaps(seen)[valid]
    begins = np.flatnonzero(np.all([linked[i : i + len(gaps)] for i in range(length - 1)], axis=0))
    require(
        len(begins) > 0,
        f"max_gap: no {length} consecutive measurements lie within {pairs.max_gap:g} s of each other; "
        "measure in windows, or allow a longer gap",
    )
    short = np.where(np.isfinite(gaps), gaps, 0.0)

    def pad(rows: np.ndarray) -> Array:
        return jnp.asarray(np.concatenate([rows, np.zeros((capacity - len(rows), *rows.shape[1:]), rows.dtype)]))

    return Sequences(
        pad(seen.x[valid].astype(np.float32)),
        pad(seen.u[valid].astype(np.float32)),
        pad(short.astype(np.float32)[:, None]),
        pad(begins.astype(np.int32)),
        jnp.asarray(len(begins), jnp.int32),
    )


def scales(system: MechanicalSystem, seen: Measurements, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """Typical sizes of the features [features] and of the accelerations [nq] in the data."""
    seen = seen.distinct()
    features = np.asarray(system.featurize(jnp.asarray(seen.x, jnp.float32)))[pairs.rows(seen)]
    gaps = pairs.gaps(seen)[:, :-1]
    used = (gaps > 0) & np.isfinite(gaps)  # a time that was measured twice has no difference quotient
    change = np.diff(seen.x[..., system.nq :], axis=1)[used]
    quotients = change / gaps[used][:, None]
    return typical_size(features), typical_size(quotients)


def typical_size(values: np.ndarray) -> np.ndarray:
    """The root mean square of each column of [n, c], with outliers clipped, not below `MIN_SCALE`.

    >>> typical_size(np.array([[3.0, 0.0]] * 99 + [[3e6, 0.0]])).tolist()
    [3.0, 0.30000001192092896]
    """
    sizes = np.abs(values)
    sizes = np.minimum(sizes, np.quantile(sizes, OUTLIER_QUANTILE, axis=0))
    return np.maximum(np.sqrt((sizes**2).mean(axis=0)), MIN_SCALE).astype(np.float32)


@dataclass(frozen=True)
class TrajectoryLoss:
    """The objective of a fit to sub-sequences; see `purectrl.control.fit.Objective`.

    Main arguments:
        integrate: the integrator of the model.
        sequence_length: measurements in a sub-sequence; two is gradient matching.
        batch_size: sub-sequences per step, drawn independently for each member.
        step: Δt, which sets the scale of the errors.

    Other arguments:
        huber: errors larger than this, in units of the effect of the typical acceleration within Δt, count linearly.
        clip: limit of the norm of the gradient, per member on average.
    """

    integrate: Integrator
    sequence_length: int
    batch_size: int
    step: float
    huber: float = 0.1
    clip: float = 10.0

    def draw(self, key: Array, data: Sequences, members: int) -> tuple[Array, Array, Array]:
        """x, u and gaps [sequence_length, members, batch_size, ...]."""
        chosen = jax.random.randint(key, (members * self.batch_size,), 0, data.size)
        rows = data.starts[chosen] + jnp.arange(self.sequence_length)[:, None]
        shape = (self.sequence_length, members, self.batch_size, -1)
        x, u, gaps = (array[rows].reshape(shape) for array in (data.x, data.u, data.gaps))
        return x, u, gaps

    def loss(self, model: MechanicalEnsemble, batch: tuple[Array, Array, Array], data: Sequences) -> Array:
        """−ELBO per measured number, summed over members."""
        return evidence_loss(self, model, *batch, data.size * data.x.shape[-1])

    def resample(self, model: MechanicalEnsemble, key: Array) -> MechanicalEnsemble:
        """Latent noise drawn anew."""
        return model.resample_latents(key)

    def scale_update(self, update: MechanicalEnsemble) -> MechanicalEnsemble:
        """The update of log σ is `NOISE_LR_MULTIPLIER` times as large."""
        if update.log_noise is None:
            return update
        return eqx.tree_at(lambda model: model.log_noise, update, NOISE_LR_MULTIPLIER * update.log_noise)


def trajectory_loss(
    objective: TrajectoryLoss,
    model: MechanicalEnsemble,
    x: Float[Array, "length members rows d"],
    u: Float[Array, "length members rows k"],
    gaps: Float[Array, "length members rows 1"],
) -> Array:
    """The sum over members of the mean loss of their sub-sequences, with fixed noise.

    Main arguments:
        x, u: measured states and controls.
        gaps: seconds to the next measurement.
    """
    predicted = path(objective.integrate, model.drift, x[0], u, gaps[:-1])
    scale = jax.lax.stop_gradient(error_scale(objective, model))
    return 2 * optax.huber_loss((predicted - x[1:]) / scale, delta=objective.huber).mean() * model.members


def error_scale(objective: TrajectoryLoss, model: MechanicalEnsemble) -> Float[Array, " d"]:
    """What errors are divided by: the effect of the typical acceleration within Δt."""
    velocity = model.acceleration_scale * objective.step
    return jnp.concatenate([velocity / 2, velocity])


def noise_loss(
    objective: TrajectoryLoss, model: MechanicalEnsemble, log_noise: Array, x: Array, u: Array, gaps: Array
) -> Array:
    """The sum over members of the mean of −log p of a measured number, with the noise e^log_noise [2·nq].

    The arrays are those of `trajectory_loss`.
    """
    errors = path(objective.integrate, model.drift, x[0], u, gaps[:-1]) - x[1:]
    huber = optax.huber_loss(errors * jnp.exp(-log_noise), delta=LEARNED_NOISE_HUBER)
    return (huber + log_noise).mean() * model.members


def evidence_loss(
    objective: TrajectoryLoss, model: MechanicalEnsemble, x: Array, u: Array, gaps: Array, numbers: Array | int
) -> Array:
    """The loss of the data plus the share of one measured number in the KL term: −ELBO/numbers.

    Main arguments:
        x, u, gaps: sub-sequences [length, members, rows, ...] as in `trajectory_loss`.
        numbers: how many numbers were measured in total, a scalar.

    The fixed noise is assumed to be where Huber's tails begin, so a nat is 2·huber² in the units of `trajectory_loss`.
    """
    if model.log_noise is None:
        loss, nat = trajectory_loss(objective, model, x, u, gaps), 2 * objective.huber**2
    else:
        loss, nat = noise_loss(objective, model, model.log_noise, x, u, gaps), 1.0
    return loss + nat / numbers * model.kl()


def window_starts(seen: Measurements, length: int, pairs: Pairs) -> np.ndarray:
    """Where a sub-sequence begins: the number of its episode, and of its first measurement there [n, 2].

    >>> one = Measurements(t=np.array([[0.0, 0.1, 0.2, 0.9]]), x=np.zeros((1, 4, 2)), u=np.zeros((1, 4, 1)))
    >>> window_starts(one, 2, Pairs(max_gap=0.15)).tolist()
    [[0, 0], [0, 1]]
    """
    linked = np.isfinite(pairs.gaps(seen))
    return np.argwhere(np.lib.stride_tricks.sliding_window_view(linked, length - 1, axis=1).all(axis=-1))


def subsample(rows: np.ndarray, most: int = CHUNK) -> np.ndarray:
    """At most `most` rows, evenly spaced.

    >>> subsample(np.arange(10), most=4).tolist()
    [0, 3, 6, 9]
    """
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).round().astype(int)]


def mean_loss(
    objective: TrajectoryLoss, model: MechanicalEnsemble, scale: Array, seen: Measurements, starts: np.ndarray
) -> float:
    """The mean loss over members and over the sub-sequences of `seen` that begin at `starts` [n, 2]; zero if n = 0.

    Main arguments:
        scale: what errors are divided by [d], see `error_scale`.
    """
    episodes, rows = starts[:, :1], starts[:, 1:] + np.arange(objective.sequence_length)
    data = [array[episodes, rows].astype(np.float32) for array in (seen.x, seen.u, time_gaps(seen)[..., None])]
    total = 0.0
    for begin in range(0, len(starts), CHUNK):
        some = [array[begin : begin + CHUNK] for array in data]
        (found,) = pad_rows(lambda *some: (_losses(objective, model, scale, *some),), *some, sizes=(CHUNK,))
        total += float(found.sum(dtype=np.float64))
    return min(float(np.nan_to_num(total, nan=np.inf)) / max(len(starts), 1), MAX_LOSS)


@functools.partial(jax.jit, static_argnums=0)
def _losses(
    objective: TrajectoryLoss, model: MechanicalEnsemble, scale: Array, x: Array, u: Array, gaps: Array
) -> Array:
    """x [rows, length, 2·nq], u [rows, length, k], gaps [rows, length, 1] -> [rows]."""
    shared = [jnp.broadcast_to(array, (model.members, *array.shape)) for array in (x, u, gaps)]
    x, u, gaps = (jnp.moveaxis(array, 2, 0) for array in shared)  # [length, members, rows, ...]
    errors = (path(objective.integrate, model.drift, x[0], u, gaps[:-1]) - x[1:]) / scale
    return 2 * optax.huber_loss(errors, delta=objective.huber).mean(axis=(0, 1, 3))

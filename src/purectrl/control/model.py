"""The dynamics model of ENODE: networks for the accelerations of a mechanism, fitted to trajectories.

symbol                   here                  meaning
-----------------------  --------------------  ------------------------------------------------------------------
f ∈ F                    Ensemble              dq/dt = v, dv/dt = network(features of x, u); ten networks at once
ELBO                     evidence_loss         log-likelihood of the data minus KL(q ‖ p) of the family, see `Dynamics`
σ                        noise_loss            noise of a measurement, if it is learned
x(t_i), u(t_i)           Sequences             all measurements, and where runs of consecutive times begin
Δt                       Fitting.step          the time between two measurements

That dq/dt = v is known and not learned; angles enter as cosine and sine. So an imagined angle never leaves the circle.

The loss is that of ENODE, −log p(x(t_2), …, x(t_n) | x(t_1), f), on short sub-sequences at the measured times. The noise of
a measurement is set to what an acceleration of typical size does within Δt, and has Huber's tails. With two points it is
gradient matching: (x(t_2) − x(t_1))/(t_2 − t_1) against the drift, seen through one step of the integrator.

A model with `log_noise` learns the noise instead, one σ for each number of the state, by the likelihood and its log σ. As in
ENODE the first state of a sub-sequence counts as exact. It is measured, too, so σ is up to about √2 times that of one
measurement. Families without a prior have no KL, and what is left of the ELBO is the likelihood.
"""

import functools
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from purectrl.control.dynamics import Dynamics
from purectrl.control.integrate import Integrator, path
from purectrl.control.networks import Layer, glorot, perceptron
from purectrl.core.errors import require
from purectrl.core.measurement import Measurements
from purectrl.core.problem import Array
from purectrl.systems.mechanism import Mechanism

SMALLEST_SCALE = 0.3
"""No feature and no acceleration is divided by less: noise in a number that hardly changes is not blown up."""
OUTLIERS = 0.98
"""Sizes beyond this quantile are cut before the scales are taken."""
TAILS = 3.0
"""Errors beyond this many learned σ count linearly. For Gaussian errors the σ that is learned is then 0.1 % too small."""
HASTE = 30.0
"""How much faster than a weight log σ moves. Adam moves a number by about its rate a step, and log σ has far to go."""
LATENT = 2**32 - 1
"""The child of a fit's key that latent noise is drawn from; the others are the numbers of its steps."""

Family = TypeVar("Family", bound=Dynamics)


class Ensemble(Dynamics):
    """One network a member.

    Main arguments:
        layers: of all members.
    """

    layers: tuple[Layer, ...]
    feature_scale: Array
    acceleration_scale: Array
    mechanism: Mechanism = eqx.field(static=True)
    log_noise: Array | None = None

    @classmethod
    def random(
        cls,
        generator: np.random.Generator,
        mechanism: Mechanism,
        members: int = 10,
        hidden: tuple[int, ...] = (200,) * 3,
    ) -> "Ensemble":
        """Members with random weights, and scales of one."""
        features = mechanism.feature_dim
        layers = glorot(generator, (features + mechanism.control_dim, *hidden, mechanism.nq), members)
        return cls(layers, jnp.ones(features), jnp.ones(mechanism.nq), mechanism)

    @property
    def members(self) -> int:
        """Number of networks."""
        return self.layers[0].weight.shape[0]

    def network(self, inputs: Array) -> Array:
        """Each member's network on its own rows."""
        return perceptron(self.layers, inputs, jax.nn.elu)

    def pick(self, members: Array) -> "Ensemble":
        """Some members, by number."""
        return eqx.tree_at(lambda e: e.layers, self, jax.tree.map(lambda array: array[members], self.layers))

    def redrawn(self, key: Array) -> "Ensemble":
        """Itself: nothing is latent."""
        return self

    def penalty(self) -> Array:
        """Zero: there is no prior."""
        return jnp.zeros(())


class Sequences(NamedTuple):
    """Measurements one after the other, in arrays whose size does not change while data come in.

    Rows beyond the data are zero, starts beyond `count` are not used.
    """

    x: Array
    """States [rows, 2·nq]."""
    u: Array
    """Controls [rows, k]."""
    gaps: Array
    """Seconds to the next row [rows, 1]."""
    starts: Array
    """Rows at which a sub-sequence may begin [rows]."""
    count: Array
    """How many of them there are."""


def gaps_of(seen: Measurements) -> np.ndarray:
    """Seconds from each measurement to the next one of its episode [episodes, m]; infinite at the last.

    >>> one = Measurements(t=np.array([[0.0, 0.5, 2.0]]), x=np.zeros((1, 3, 2)), u=np.zeros((1, 3, 1)))
    >>> gaps_of(one).tolist()
    [[0.5, 1.5, inf]]
    """
    return np.diff(seen.t, axis=1, append=np.inf)


def sequences(seen: Measurements, points: int, longest_gap: float, capacity: int) -> Sequences:
    """All runs of `points` measurements with no gap longer than `longest_gap` between them.

    Main arguments:
        seen: the data, with any times.
        capacity: the number of rows to pad to, so that every update of a run uses one compiled program.
    """
    gaps = gaps_of(seen).ravel()
    linked = np.concatenate([gaps <= longest_gap, np.zeros(points, bool)])
    begins = np.flatnonzero(np.all([linked[i : i + len(gaps)] for i in range(points - 1)], axis=0))
    require(
        len(begins) > 0,
        f"longest_gap: no {points} consecutive measurements lie within {longest_gap:g} s of each other; "
        "measure in windows, or allow a longer gap",
    )
    short = np.where(np.isfinite(gaps), gaps, 0.0)

    def pad(rows: np.ndarray) -> np.ndarray:
        return np.concatenate([rows, np.zeros((capacity - len(rows), *rows.shape[1:]), rows.dtype)])

    return Sequences(
        pad(seen.x.reshape(-1, seen.x.shape[-1]).astype(np.float32)),
        pad(seen.u.reshape(-1, seen.u.shape[-1]).astype(np.float32)),
        pad(short.astype(np.float32)[:, None]),
        pad(begins.astype(np.int32)),
        np.int32(len(begins)),
    )


def scales(mechanism: Mechanism, seen: Measurements, longest_gap: float) -> tuple[np.ndarray, np.ndarray]:
    """Typical sizes of the features [features] and of the accelerations [nq] in the data."""
    features = np.asarray(mechanism.observe(seen.x.astype(np.float32)))
    gaps = gaps_of(seen)[:, :-1]
    change = np.diff(seen.x[..., mechanism.nq :], axis=1)[gaps <= longest_gap]
    quotients = change / gaps[gaps <= longest_gap][:, None]
    return typical(features.reshape(-1, features.shape[-1])), typical(quotients)


def typical(values: np.ndarray) -> np.ndarray:
    """The root mean square of each column of [n, c], outliers cut, not below `SMALLEST_SCALE`.

    >>> typical(np.array([[3.0, 0.0]] * 99 + [[3e6, 0.0]])).tolist()
    [3.0, 0.30000001192092896]
    """
    sizes = np.abs(values)
    sizes = np.minimum(sizes, np.quantile(sizes, OUTLIERS, axis=0))
    return np.maximum(np.sqrt((sizes**2).mean(axis=0)), SMALLEST_SCALE).astype(np.float32)


@dataclass(frozen=True)
class Fitting:
    """How an ensemble is fitted to sub-sequences.

    Main arguments:
        points: measurements in a sub-sequence; two is gradient matching.
        rows: sub-sequences a step, for each member its own.
        step: Δt, which sets the scale of the errors.

    Other arguments:
        huber: errors larger than this, in units of what the typical acceleration does within Δt, count linearly.
        clip: limit of the gradient's norm, for each member on average.
    """

    points: int
    rows: int
    step: float
    huber: float = 0.1
    clip: float = 10.0


def trajectory_loss(
    fitting: Fitting, integrate: Integrator, ensemble: Dynamics, x: Array, u: Array, gaps: Array
) -> Array:
    """The sum over members of the mean loss of their sub-sequences, with fixed noise.

    Main arguments:
        x: measured states [points, members, rows, 2·nq].
        u: measured controls [points, members, rows, k].
        gaps: seconds to the next point [points, members, rows, 1].
    """
    predicted = path(integrate, ensemble.drift, x[0], u, gaps[:-1])
    velocity = ensemble.acceleration_scale * fitting.step
    scale = jax.lax.stop_gradient(jnp.concatenate([velocity / 2, velocity]))
    return 2 * optax.huber_loss((predicted - x[1:]) / scale, delta=fitting.huber).mean() * ensemble.members


def noise_loss(integrate: Integrator, ensemble: Dynamics, log_noise: Array, x: Array, u: Array, gaps: Array) -> Array:
    """The sum over members of the mean of −log p of a measured number, with the noise e^log_noise [2·nq].

    The arrays are those of `trajectory_loss`.
    """
    errors = path(integrate, ensemble.drift, x[0], u, gaps[:-1]) - x[1:]
    return (optax.huber_loss(errors * jnp.exp(-log_noise), delta=TAILS) + log_noise).mean() * ensemble.members


def evidence_loss(
    fitting: Fitting, integrate: Integrator, ensemble: Dynamics, x: Array, u: Array, gaps: Array, numbers: Array
) -> Array:
    """The loss of the data, and the share of one number of `numbers` in the penalty: −ELBO/numbers.

    Main arguments:
        x, u, gaps: sub-sequences [points, members, rows, ...] as `trajectory_loss` takes them.
        numbers: how many numbers were measured in all, a scalar.

    The fixed noise is taken to be where Huber's tails begin, so a nat is 2·huber² in the units of `trajectory_loss`.
    """
    if ensemble.log_noise is None:
        loss, nat = trajectory_loss(fitting, integrate, ensemble, x, u, gaps), 2 * fitting.huber**2
    else:
        loss, nat = noise_loss(integrate, ensemble, ensemble.log_noise, x, u, gaps), 1.0
    return loss + nat / numbers * ensemble.penalty()


@functools.partial(jax.jit, static_argnums=(0, 1))
def fit(
    fitting: Fitting,
    integrate: Integrator,
    ensemble: Family,
    key: Array,
    data: Sequences,
    iterations: Array,
    first_rate: Array,
    last_rate: Array,
) -> tuple[Family, Array]:
    """`iterations` steps of Adam whose rate falls from `first_rate` to `last_rate` along a cosine.

    The members differ by their first weights and by the rows that they see. Latent noise is drawn anew in every step, and
    once more at the end.

    Main arguments:
        key: a JAX key.
        data: all measurements.
        iterations, first_rate, last_rate: scalars, so that one program serves every update.

    Returns:
        The fitted ensemble and its loss, a mean over members and over the last quarter of the steps.
    """
    members = ensemble.members
    optimiser = optax.chain(optax.clip_by_global_norm(fitting.clip * members**0.5), optax.scale_by_adam())
    latent_key = jax.random.fold_in(key, LATENT)
    numbers = data.count * data.x.shape[-1]

    def step(i: Array, carry: tuple) -> tuple:
        ensemble, memory, total = carry
        chosen = jax.random.randint(jax.random.fold_in(key, i), (members * fitting.rows,), 0, data.count)
        rows = data.starts[chosen] + jnp.arange(fitting.points)[:, None]
        x, u, gaps = (
            array[rows].reshape(fitting.points, members, fitting.rows, -1) for array in (data.x, data.u, data.gaps)
        )
        ensemble = ensemble.redrawn(jax.random.fold_in(latent_key, i))
        loss, slope = jax.value_and_grad(lambda e: evidence_loss(fitting, integrate, e, x, u, gaps, numbers))(ensemble)
        change, memory = optimiser.update(slope, memory)
        rate = last_rate + (first_rate - last_rate) * (1 + jnp.cos(jnp.pi * i / iterations)) / 2
        ensemble = optax.apply_updates(ensemble, jax.tree.map(lambda c: -rate * c, hastened(change)))
        return ensemble, memory, total + jnp.where(4 * i >= 3 * iterations, loss / members, 0.0)

    # a loop with a traced length: first and later updates of a run share one compiled program
    ensemble, _, total = jax.lax.fori_loop(0, iterations, step, (ensemble, optimiser.init(ensemble), jnp.zeros(())))
    counted = iterations - (3 * iterations + 3) // 4
    return ensemble.redrawn(jax.random.fold_in(latent_key, iterations)), total / jnp.maximum(counted, 1)


def hastened(change: Family) -> Family:
    """The change of a model, with that of its noise `HASTE` times as large."""
    if change.log_noise is None:
        return change
    return eqx.tree_at(lambda model: model.log_noise, change, HASTE * change.log_noise)

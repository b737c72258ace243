"""Models of a system of which nothing is known: drift and reward are both learned from measurements (x, u, y, r).

symbol             here                       meaning
-----------------  -------------------------  -------------------------------------------------------------------
f ∈ F              ObservedModel.rates        dx/dt of the whole observation, one network a member
b ∈ R              ObservedModel.rewards      the reward, one network a member
y, r               Rows.targets               the measured drift and the measured reward
q                  LearnedWorld.starts        first states of the episodes: nothing else is known about where they begin

Both models are fitted as in Algorithm 1, line 5, by the squared error (with Huber's tails) of each measurement: the times
between measurements do not matter, so any sampler goes. An environment holds the control for dt seconds and measures
y = (x(t + dt) − x(t))/dt, so one Euler step of length dt under f is what it does.
"""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from purectrl.control.integrate import Rate
from purectrl.control.networks import Layer, glorot, perceptron
from purectrl.core.errors import MeasurementError
from purectrl.core.measurement import Measurements
from purectrl.core.problem import Array

HUBER = 1.0
"""Errors larger than this, in units of the typical size of what is predicted, count linearly."""
CLIP = 10.0
"""Limit of the gradient's norm, for each member on average."""
CONSTANT = 1e-6
"""A number that varies less does not vary, and is not scaled."""


@dataclass(frozen=True)
class Observed:
    """What is known of a system from its spaces alone; it stands in the place of a `Mechanism` in actor and critic.

    >>> Observed(state_dim=3, control_dim=1).feature_dim
    3
    """

    state_dim: int
    control_dim: int
    u_max: float = 1.0

    @property
    def feature_dim(self) -> int:
        """Numbers in an observation."""
        return self.state_dim

    def observe(self, x: Array) -> Array:
        """The observation is all there is: x itself."""
        return x


class Networks(eqx.Module):
    """Functions (x, u) -> [outputs], one network a member. Inputs and outputs are scaled to about unit size.

    Main arguments:
        layers: of all members.
        centre, scale: what is subtracted from each number of x, and what it is divided by [d].
        size: what each output is multiplied with [outputs].
    """

    layers: tuple[Layer, ...]
    centre: Array
    scale: Array
    size: Array

    @classmethod
    def random(
        cls, generator: np.random.Generator, observed: Observed, outputs: int, members: int, hidden: tuple[int, ...]
    ) -> "Networks":
        """Members with random weights, and scales of one."""
        d = observed.state_dim
        layers = glorot(generator, (d + observed.control_dim, *hidden, outputs), members)
        return cls(layers, jnp.zeros(d), jnp.ones(d), jnp.ones(outputs))

    @property
    def members(self) -> int:
        """Number of networks."""
        return self.layers[0].weight.shape[0]

    def __call__(self, x: Array, u: Array) -> Array:
        """x [..., members, rows, d], u [..., members, rows, k] -> [..., members, rows, outputs]."""
        centre, scale, size = map(jax.lax.stop_gradient, (self.centre, self.scale, self.size))
        return perceptron(self.layers, jnp.concatenate([(x - centre) / scale, u], axis=-1), jax.nn.elu) * size

    def pick(self, members: Array) -> "Networks":
        """Some members, by number."""
        return eqx.tree_at(lambda n: n.layers, self, jax.tree.map(lambda array: array[members], self.layers))

    def rescaled(self, centre: Array, scale: Array, size: Array) -> "Networks":
        """The same functions with other scales: the first and the last layer take up the change."""
        first, *middle, last = self.layers
        d = self.scale.size
        bias = first.bias + ((centre - self.centre) / self.scale)[None] @ first.weight[..., :d, :]
        weight = first.weight.at[..., :d, :].multiply((scale / self.scale)[:, None])
        back = self.size / size
        layers = (Layer(weight, bias), *middle, Layer(last.weight * back, last.bias * back))
        return Networks(layers, centre, scale, size)


class Rows(NamedTuple):
    """Measurements one after the other, in arrays whose size does not change while data come in; zero beyond `count`."""

    x: Array
    """[rows, d]."""
    u: Array
    """[rows, k]."""
    y: Array
    """[rows, d]."""
    r: Array
    """[rows, 1]."""
    count: Array


def rows_of(seen: Measurements, capacity: int) -> Rows:
    """All measurements, but an episode that has ended, and so repeats its last state, shows that state once.

    >>> x = np.array([[[0.0], [1.0], [1.0], [1.0]]])
    >>> ended = Measurements(np.arange(4.0)[None], x, 0 * x, y=0 * x, r=np.zeros((1, 4)))
    >>> rows = rows_of(ended, capacity=5)
    >>> int(rows.count), rows.x[:, 0].tolist()
    (2, [0.0, 1.0, 0.0, 0.0, 0.0])
    """
    if seen.y is None or seen.r is None:
        raise MeasurementError("drift and reward can only be learned where both are measured: y or r is missing")
    moved = np.ones(seen.t.shape, bool)
    moved[:, 1:] = (seen.x[:, 1:] != seen.x[:, :-1]).any(axis=-1)

    def pad(array: np.ndarray) -> np.ndarray:
        kept = array[moved].astype(np.float32)
        return np.concatenate([kept, np.zeros((capacity - len(kept), *kept.shape[1:]), np.float32)])

    return Rows(pad(seen.x), pad(seen.u), pad(seen.y), pad(seen.r[..., None]), np.int32(moved.sum()))


def spread(values: Array) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column of [n, c]; one where it does not vary.

    >>> [each.tolist() for each in spread(np.array([[1.0, 5.0], [3.0, 5.0]]))]
    [[2.0, 5.0], [1.0, 1.0]]
    """
    deviation = np.std(values, axis=0)
    return np.mean(values, axis=0).astype(np.float32), _unless_constant(deviation)


def size(values: Array) -> np.ndarray:
    """The root mean square of each column of [n, c]; one where all is zero.

    >>> size(np.array([[3.0, 0.0], [-3.0, 0.0]])).tolist()
    [3.0, 1.0]
    """
    return _unless_constant(np.sqrt(np.mean(np.square(values), axis=0)))


def _unless_constant(scale: np.ndarray) -> np.ndarray:
    return np.where(scale > CONSTANT, scale, 1.0).astype(np.float32)


@functools.partial(jax.jit, static_argnums=0)
def regress(
    batch: int,
    networks: Networks,
    key: Array,
    data: tuple[Array, Array, Array, Array],
    iterations: Array,
    first_rate: Array,
    last_rate: Array,
) -> tuple[Networks, Array]:
    """`iterations` steps of Adam on `batch` rows for each member; the rate falls along a cosine.

    The members differ by their first weights and by the rows that they see.

    Main arguments:
        data: x [rows, d], u [rows, k], what to predict [rows, outputs], and how many rows there are.

    Returns:
        The fitted networks and their loss, a mean over members and over the last quarter of the steps.
    """
    x, u, targets, count = data
    members = networks.members
    optimiser = optax.chain(optax.clip_by_global_norm(CLIP * members**0.5), optax.scale_by_adam())

    def loss(networks: Networks, rows: Array) -> Array:
        error = (networks(x[rows], u[rows]) - targets[rows]) / jax.lax.stop_gradient(networks.size)
        return 2 * optax.huber_loss(error, delta=HUBER).mean() * members

    def step(i: Array, carry: tuple) -> tuple:
        networks, memory, total = carry
        rows = jax.random.randint(jax.random.fold_in(key, i), (members, batch), 0, count)
        value, slope = jax.value_and_grad(loss)(networks, rows)
        change, memory = optimiser.update(slope, memory)
        rate = last_rate + (first_rate - last_rate) * (1 + jnp.cos(jnp.pi * i / iterations)) / 2
        networks = optax.apply_updates(networks, jax.tree.map(lambda c: -rate * c, change))
        return networks, memory, total + jnp.where(4 * i >= 3 * iterations, value / members, 0.0)

    # a loop with a traced length: first and later updates of a run share one compiled program
    networks, _, total = jax.lax.fori_loop(0, iterations, step, (networks, optimiser.init(networks), jnp.zeros(())))
    counted = iterations - (3 * iterations + 3) // 4
    return networks, total / jnp.maximum(counted, 1)


class LearnedWorld(eqx.Module):
    """Where episodes start and what is rewarded, as far as it was measured. Rewards are in units of their typical size.

    No imagined reward is larger than the largest measured one: where there are no data a network may promise anything, and
    a policy would go there.
    """

    rewards: Networks
    best: Array
    """The largest measured reward, in the unit of the measurements."""
    starts: Array
    """First states of the episodes [rows, d], zero beyond `count`."""
    count: Array
    control_cost: float = eqx.field(static=True, default=0.0)

    def start(self, key: Array) -> Array:
        """x(0) [d], one of those that were seen."""
        return self.starts[jax.random.randint(key, (), 0, self.count)]

    def log_reward(self, x: Array, u: Array) -> Array:
        """The reward itself: it may be negative, and has a slope where its network has one."""
        return self.reward(x, u)

    def reward(self, x: Array, u: Array) -> Array:
        """x [..., members, rows, d] -> [..., members, rows]. For x [rows, d] the members are averaged -> [rows]."""
        if x.ndim > 2:
            return (jnp.minimum(self.rewards(x, u), self.best) / self.rewards.size)[..., 0]
        shared = (jnp.broadcast_to(array, (self.rewards.members, *array.shape)) for array in (x, u))
        return self.reward(*shared).mean(axis=0)


class ObservedModel(eqx.Module):
    """What imagination works with: drift, reward and starts, all of them learned."""

    rates: Networks
    mechanism: LearnedWorld

    @property
    def members(self) -> int:
        """Number of members."""
        return self.rates.members

    def drift(self, x: Array, u: Array) -> Array:
        """dx/dt under each member; x [members, rows, d], u [members, rows, k] -> [members, rows, d]."""
        return self.rates(x, u)

    def pick(self, members: Array) -> "ObservedModel":
        """Some members, by number, with their rewards."""
        picked = eqx.tree_at(lambda world: world.rewards, self.mechanism, self.mechanism.rewards.pick(members))
        return ObservedModel(self.rates.pick(members), picked)


def euler(rate: Rate, x: Array, gap: Array) -> Array:
    """One Euler step, x [..., d] -> [..., d], which inverts y = (x(t + dt) − x(t))/dt exactly."""
    return x + gap * rate(x, jnp.asarray(0.0))


def as_it_is(reward: Array) -> Array:
    """The learned reward is what is planned with: nothing says that it is a logarithm of anything."""
    return reward

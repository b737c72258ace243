"""Actor and critic, and what an episode executes: the actor with smooth noise."""

from typing import NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from purectrl.control.networks import Layer, glorot, perceptron
from purectrl.core.problem import Array


class Interface(Protocol):
    """What actor and critic know of a system: how it is seen and how far it can be pushed. A `Mechanism` says it."""

    @property
    def feature_dim(self) -> int:
        """Numbers in an observation."""
        ...

    @property
    def control_dim(self) -> int:
        """Numbers in a control."""
        ...

    @property
    def u_max(self) -> float:
        """Their limit."""
        ...

    def observe(self, x: Array) -> Array:
        """x [..., d] -> features [..., feature_dim]."""
        ...


class Actor(eqx.Module):
    """π(x) = u_max · tanh(network(features of x / scale)), with ReLU layers."""

    layers: tuple[Layer, ...]
    scale: Array
    """What each feature is divided by [features]."""
    mechanism: Interface = eqx.field(static=True)

    @classmethod
    def random(
        cls, generator: np.random.Generator, mechanism: Interface, hidden: tuple[int, ...] = (200,) * 2
    ) -> "Actor":
        """A policy that does little at first: its last layer is a tenth of Glorot's."""
        *layers, last = glorot(generator, (mechanism.feature_dim, *hidden, mechanism.control_dim))
        return cls((*layers, Layer(0.1 * last.weight, last.bias)), jnp.ones(mechanism.feature_dim), mechanism)

    def before_tanh(self, x: Array) -> Array:
        """x [..., 2·nq] -> [..., k]."""
        features = self.mechanism.observe(x) / jax.lax.stop_gradient(self.scale)
        return perceptron(self.layers, features, jax.nn.relu)

    def __call__(self, x: Array) -> Array:
        """x [..., 2·nq] -> u [..., k]."""
        return self.squash(self.before_tanh(x))

    def squash(self, z: Array) -> Array:
        """Controls within their limits."""
        return self.mechanism.u_max * jnp.tanh(z)


class Critic(eqx.Module):
    """V(x) = network(features of x / scale), with tanh layers."""

    layers: tuple[Layer, ...]
    scale: Array
    mechanism: Interface = eqx.field(static=True)

    @classmethod
    def random(
        cls, generator: np.random.Generator, mechanism: Interface, hidden: tuple[int, ...] = (200,) * 2
    ) -> "Critic":
        """A critic with random weights."""
        return cls(glorot(generator, (mechanism.feature_dim, *hidden, 1)), jnp.ones(mechanism.feature_dim), mechanism)

    def __call__(self, x: Array) -> Array:
        """x [..., 2·nq] -> value [...]."""
        features = self.mechanism.observe(x) / jax.lax.stop_gradient(self.scale)
        return perceptron(self.layers, features, jnp.tanh)[..., 0]


class Behaviour(NamedTuple):
    """What an episode executes: u = u_max · tanh(follow · z(x) + amplitude · noise(t)), where z is the actor before tanh."""

    actor: Actor
    follow: float
    """1 follows the actor; 0, before the first update, explores at random."""
    amplitudes: Array
    """Size of the noise in one episode after the other, over and over [levels]."""

    def control(self, x: Array, noise: Array) -> Array:
        """x [2·nq], noise [k], its amplitude in it, -> u [k]."""
        return self.actor.squash(self.follow * self.actor.before_tanh(x) + noise)

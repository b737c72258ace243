"""Actor and critic, and the policy that an episode executes: the actor with smooth exploration noise."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from purectrl.control.exploration import SmoothNoise
from purectrl.control.networks import Layer, glorot, mlp
from purectrl.systems.spec import Control, StateSpec


class Actor(eqx.Module):
    """π(x) = mid + half range · tanh(network(features of x / scale)) within the control limits, with ReLU layers."""

    layers: tuple[Layer, ...]
    scale: Array
    """What each feature is divided by [features]."""
    spec: StateSpec = eqx.field(static=True)

    @classmethod
    def random(cls, generator: np.random.Generator, spec: StateSpec, hidden: tuple[int, ...] = (200,) * 2) -> "Actor":
        """A policy with small controls at first: its last layer is a tenth of Glorot's."""
        *layers, last = glorot(generator, (spec.feature_dim, *hidden, spec.control_dim))
        return cls((*layers, Layer(0.1 * last.weight, last.bias)), jnp.ones(spec.feature_dim), spec)

    def before_tanh(self, x: Float[Array, "*rows d"]) -> Float[Array, "*rows k"]:
        """The control before it is mapped into its limits."""
        features = self.spec.featurize(x) / jax.lax.stop_gradient(self.scale)
        return mlp(self.layers, features, jax.nn.relu)

    def __call__(self, x: Float[Array, "*rows d"]) -> Float[Array, "*rows k"]:
        """The control at state x."""
        return self.squash(self.before_tanh(x))

    def squash(self, z: Float[Array, "*rows k"]) -> Float[Array, "*rows k"]:
        """Controls within their limits."""
        return self.spec.unscale_control(jnp.tanh(z))


class Critic(eqx.Module):
    """V(x) = network(features of x / scale), with tanh layers."""

    layers: tuple[Layer, ...]
    scale: Array
    spec: StateSpec = eqx.field(static=True)

    @classmethod
    def random(cls, generator: np.random.Generator, spec: StateSpec, hidden: tuple[int, ...] = (200,) * 2) -> "Critic":
        """A critic with random weights."""
        return cls(glorot(generator, (spec.feature_dim, *hidden, 1)), jnp.ones(spec.feature_dim), spec)

    def __call__(self, x: Float[Array, "*rows d"]) -> Float[Array, "*rows"]:
        """The value of state x."""
        features = self.spec.featurize(x) / jax.lax.stop_gradient(self.scale)
        return mlp(self.layers, features, jnp.tanh)[..., 0]

    def in_units(self, growth: Array) -> "Critic":
        """The same values after the unit of reward became `growth` times as large."""
        *layers, last = self.layers
        last = Layer(last.weight / growth, last.bias / growth)
        return eqx.tree_at(lambda critic: critic.layers, self, (*layers, last))


class BehaviorPolicy(eqx.Module):
    """What an episode executes: u = mid + half range · tanh(use_actor · z(x) + noise(t)), where z is the actor before tanh.

    Main arguments:
        actor: the policy without noise.
        use_actor: 1 executes the actor; 0, before the first update, explores at random.
        amplitudes: sizes of the noise in one episode after the other, repeated [levels].
        noise: the process that is scaled by them.
    """

    actor: Actor
    use_actor: float
    amplitudes: Any
    noise: SmoothNoise = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*rows d"], t: Any = 0.0) -> Float[Array, "*rows k"]:
        """The actor without noise; it does not depend on the time t."""
        return self.actor(x)

    def explore(self, key: Array, episode: Any) -> Control:
        """(x [d], t) -> u [k] in episode `episode` of a batch, with noise drawn from the JAX key; traceable by JAX."""
        amplitude = jnp.asarray(self.amplitudes)[episode % len(self.amplitudes)]
        knots = amplitude * self.noise.draw(key, self.actor.spec.control_dim)
        return lambda x, t: self.control(x, self.noise.at(knots, t))

    def without_noise(self) -> "BehaviorPolicy":
        """The same policy with amplitudes of zero, for evaluations in a simulator."""
        return BehaviorPolicy(self.actor, self.use_actor, np.zeros(1, np.float32), self.noise)

    def control(self, x: Float[Array, " d"], noise: Float[Array, " k"]) -> Float[Array, " k"]:
        """The control at state x with given noise, its amplitude included."""
        return self.actor.squash(self.use_actor * self.actor.before_tanh(x) + noise)

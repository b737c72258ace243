"""What an episode of PURE-auto executes: the actor, first without noise, then with smooth noise of a random time scale."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from purectrl.control.policy import Actor
from purectrl.systems.spec import Control

WAVES = 32
"""Waves that a noise is the sum of."""


def smooth_noise(key: Array, controls: int, length: Array | float) -> Any:
    """t -> noise [controls]: about Gaussian with variance 1 and covariance exp(−(t − s)²/2ℓ²), for any time t.

    A sum of waves with random phases whose frequencies are N(0, 1/ℓ²).

    >>> noise = smooth_noise(jax.random.key(0), 1, 0.5)
    >>> values = jax.vmap(noise)(jnp.linspace(0.0, 2000.0, 20_000))
    >>> round(float(values.std()), 1)
    1.0
    """
    frequency_key, phase_key = jax.random.split(key)
    frequencies = jax.random.normal(frequency_key, (WAVES, controls)) / length
    phases = jax.random.uniform(phase_key, (WAVES, controls), maxval=2 * math.pi)
    return lambda t: math.sqrt(2 / WAVES) * jnp.cos(frequencies * t + phases).sum(axis=0)


class ExploringActor(eqx.Module):
    """u = mid + half range · tanh(use_actor · z(x) + a(t) · noise(t)), where z is the actor before tanh.

    Main arguments:
        actor: the policy without noise.
        use_actor: 1 executes the actor; 0, before the first update, explores at random.
        amplitude: a(t) after `quiet` seconds; zero before.
        quiet: seconds at the beginning of an episode without noise, which show what the policy is worth.
        shortest, longest: the correlation time of an episode's noise is drawn between these, uniform in its logarithm.
    """

    actor: Actor
    use_actor: float
    amplitude: float
    quiet: float
    shortest: float
    longest: float

    def __call__(self, x: Float[Array, "*rows d"], t: Any = 0.0) -> Float[Array, "*rows k"]:
        """The actor without noise; it does not depend on the time t."""
        return self.actor(x)

    def explore(self, key: Array, episode: Any) -> Control:
        """(x [d], t) -> u [k] in one episode, with noise drawn from the JAX key; traceable by JAX."""
        length_key, noise_key = jax.random.split(key)
        share = jax.random.uniform(length_key)
        length = jnp.exp(jnp.log(self.shortest) + share * (jnp.log(self.longest) - jnp.log(self.shortest)))
        noise = smooth_noise(noise_key, self.actor.spec.control_dim, length)

        def control(x: Any, t: Any) -> Array:
            amplitude = jnp.where(t < self.quiet, 0.0, self.amplitude)
            return self.actor.squash(self.use_actor * self.actor.before_tanh(x) + amplitude * noise(t))

        return control

    def without_noise(self) -> "ExploringActor":
        """The same policy with an amplitude of zero."""
        return eqx.tree_at(lambda policy: policy.amplitude, self, 0.0)

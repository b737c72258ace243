"""The two other families of ENODE's authors: members that share their weights and differ in a few factors.

symbol            here                  meaning
----------------  --------------------  -----------------------------------------------------------------------------
r_i, s_i          Factors.before/after  W_i = W ∘ (r_i s_iᵀ), the weights of member i (Wen, Tran, Ba, 2020: BatchEnsemble)
z = μ + σ ε       Nodes.factors         what every node is multiplied with, ε ~ N(0, 1) (Trinh et al., 2022: node-based
                                        Bayesian networks, an implicit distribution of the weights)
q, p              Nodes, PRIOR_STD      z ~ N(μ, σ²) as learned, and N(1, s²) before anything was seen

An ensemble of ten networks has ten times the weights of one. These have hardly more than one network, and each layer is one
product for all members and rows together.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from purectrl.control.dynamics import Dynamics
from purectrl.control.networks import Layer, glorot
from purectrl.core.problem import Array
from purectrl.systems.mechanism import Mechanism

SPREAD = 0.25
"""Standard deviation about 1 of factors that were not trained, as in the code of ENODE's authors."""
PRIOR_STD = 1.0
"""s, as in their code."""
FIRST_STD = math.exp(-4)
"""σ before training."""


class Factors(NamedTuple):
    """What a layer's inputs and outputs are multiplied with, for each member."""

    before: Array
    """r [members, 1, inputs]."""
    after: Array
    """s [members, 1, outputs]."""


class BatchEnsemble(Dynamics):
    """Members i with the weights W ∘ (r_i s_iᵀ) and their own biases.

    Main arguments:
        layers: shared weights [inputs, outputs], biases [members, 1, outputs].
        factors: r and s of each layer.
    """

    layers: tuple[Layer, ...]
    factors: tuple[Factors, ...]
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
    ) -> "BatchEnsemble":
        """Members with random weights and factors about 1, and scales of one."""
        features = mechanism.feature_dim
        shared = glorot(generator, (features + mechanism.control_dim, *hidden, mechanism.nq))
        layers = tuple(Layer(layer.weight, jnp.zeros((members, 1, layer.bias.size))) for layer in shared)
        factors = tuple(
            Factors(*(_about_one(generator, members, size) for size in layer.weight.shape)) for layer in layers
        )
        return cls(layers, factors, jnp.ones(features), jnp.ones(mechanism.nq), mechanism)

    @property
    def members(self) -> int:
        """Number of members."""
        return self.factors[0].before.shape[0]

    def network(self, inputs: Array) -> Array:
        """((x ∘ r) W) ∘ s + b, with ELU between the layers."""
        x = inputs
        for i, (layer, factor) in enumerate(zip(self.layers, self.factors, strict=True)):
            x = ((jax.nn.elu(x) if i else x) * factor.before) @ layer.weight * factor.after + layer.bias
        return x

    def pick(self, members: Array) -> "BatchEnsemble":
        """Some members, by number; the weights stay shared."""
        layers = tuple(Layer(layer.weight, layer.bias[members]) for layer in self.layers)
        factors = jax.tree.map(lambda array: array[members], self.factors)
        return eqx.tree_at(lambda model: (model.layers, model.factors), self, (layers, factors))

    def redrawn(self, key: Array) -> "BatchEnsemble":
        """Itself: nothing is latent."""
        return self

    def penalty(self) -> Array:
        """Zero: there is no prior."""
        return jnp.zeros(())


class Nodes(NamedTuple):
    """The factors on the inputs of a layer, random ones; each member has its own distribution and its own draw."""

    mean: Array
    """μ [members, 1, inputs]."""
    log_std: Array
    """log σ [members, 1, inputs]."""
    noise: Array
    """ε [members, 1, inputs], the draw; it is not trained."""

    @property
    def factors(self) -> Array:
        """z = μ + σ ε [members, 1, inputs]."""
        return self.mean + jnp.exp(self.log_std) * jax.lax.stop_gradient(self.noise)

    def divergence(self, prior_std: float) -> Array:
        """KL(N(μ, σ²) ‖ N(1, s²)), summed over members and inputs.

        >>> standard = Nodes(jnp.full((2, 1, 3), 3.0), jnp.zeros((2, 1, 3)), jnp.zeros((2, 1, 3)))
        >>> float(standard.divergence(1.0))  # (3 − 1)²/2 for each of six
        12.0
        """
        square = (jnp.exp(2 * self.log_std) + (self.mean - 1) ** 2) / prior_std**2
        return (math.log(prior_std) - self.log_std + (square - 1) / 2).sum()


class Implicit(Dynamics):
    """One network whose nodes are multiplied with latent noise; a member is one draw of it, kept along a trajectory.

    The distribution of the noise is a mixture with one Gaussian a member. The mean of their divergences from the prior is at
    least the divergence of the mixture, so the loss is still a bound on the evidence.

    Main arguments:
        layers: shared weights [inputs, outputs] and biases [outputs].
        nodes: the noise on the inputs of each layer.
    """

    layers: tuple[Layer, ...]
    nodes: tuple[Nodes, ...]
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
    ) -> "Implicit":
        """Random weights, means about 1, small noise, and scales of one."""
        features = mechanism.feature_dim
        layers = glorot(generator, (features + mechanism.control_dim, *hidden, mechanism.nq))
        nodes = []
        for layer in layers:
            mean = _about_one(generator, members, layer.weight.shape[0])
            noise = jnp.asarray(generator.standard_normal(mean.shape, np.float32))
            nodes.append(Nodes(mean, jnp.full(mean.shape, math.log(FIRST_STD)), noise))
        return cls(layers, tuple(nodes), jnp.ones(features), jnp.ones(mechanism.nq), mechanism)

    @property
    def members(self) -> int:
        """Number of draws."""
        return self.nodes[0].mean.shape[0]

    def network(self, inputs: Array) -> Array:
        """(x ∘ z) W + b, with ELU between the layers."""
        x = inputs
        for i, (layer, nodes) in enumerate(zip(self.layers, self.nodes, strict=True)):
            x = ((jax.nn.elu(x) if i else x) * nodes.factors) @ layer.weight + layer.bias
        return x

    def pick(self, members: Array) -> "Implicit":
        """Some draws, by number."""
        return eqx.tree_at(lambda model: model.nodes, self, jax.tree.map(lambda array: array[members], self.nodes))

    def redrawn(self, key: Array) -> "Implicit":
        """The same distribution, and other draws."""
        keys = jax.random.split(key, len(self.nodes))
        draws = [jax.random.normal(k, nodes.noise.shape) for k, nodes in zip(keys, self.nodes, strict=True)]
        return eqx.tree_at(lambda model: [nodes.noise for nodes in model.nodes], self, draws)

    def penalty(self) -> Array:
        """The divergence of the noise from its prior N(1, s²)."""
        return sum((nodes.divergence(PRIOR_STD) for nodes in self.nodes), jnp.zeros(()))


def _about_one(generator: np.random.Generator, members: int, size: int) -> Array:
    """Factors [members, 1, size] that differ a little from 1."""
    return jnp.asarray(1 + SPREAD * generator.standard_normal((members, 1, size), np.float32))

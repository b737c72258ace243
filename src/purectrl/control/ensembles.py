"""Ensembles of networks for the accelerations of a mechanical system: the three families of ENODE's authors.

symbol            here                       meaning
----------------  -------------------------  ------------------------------------------------------------------------
f ∈ F             MechanicalEnsemble         dq/dt = v, dv/dt = network(features of x, u); all members at once
KL(q ‖ p)         MechanicalEnsemble.kl      what the fit adds to the loss; zero for a family without a prior
σ                 exp(log_noise)             noise of a measurement against the prediction, one per coordinate of x
r_i, s_i          Factors.before/after       W_i = W ∘ (r_i s_iᵀ), the weights of member i (Wen, Tran, Ba, 2020:
                                             BatchEnsemble)
z = μ + σ ε       Nodes.factors              what every node is multiplied with, ε ~ N(0, 1) (Trinh et al., 2022:
                                             node-based Bayesian networks, an implicit distribution of the weights)
q, p              Nodes, PRIOR_STD           z ~ N(μ, σ²) as learned, and N(1, s²) before any data

That dq/dt = v is known and not learned; angles enter as cosine and sine, so the model is periodic in them. An ensemble of
ten networks has ten times the weights of one. `BatchEnsemble` and `Implicit` have hardly more than one network, and each
layer is one product for all members and rows together.
"""

import abc
import math
from collections.abc import Callable
from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from numpy.random import Generator

from purectrl.control.imagination import MechanicalTask
from purectrl.control.networks import Layer, glorot, mlp
from purectrl.systems.mechanical import MechanicalSystem

FIRST_NOISE = 0.1
"""σ before training, in the units of the state."""
FACTOR_STD = 0.25
"""Standard deviation about 1 of untrained factors, as in the code of ENODE's authors."""
PRIOR_STD = 1.0
"""s, as in their code."""
FIRST_STD = math.exp(-4)
"""σ of the latent noise before training."""


class MechanicalEnsemble(eqx.Module):
    """q̈ = a(x, u), for several members. Inputs and outputs are scaled to about unit size.

    Main arguments:
        layers: affine maps; each family defines what of them its members share.
        feature_scale: what each feature is divided by [features].
        acceleration_scale: what each output is multiplied by [nq].
        system: angles, reward and initial distribution; its equations are not used.
        log_noise: log σ [2·nq] if the noise is learned, None if it is fixed.
    """

    layers: eqx.AbstractVar[tuple[Layer, ...]]
    feature_scale: eqx.AbstractVar[Array]
    acceleration_scale: eqx.AbstractVar[Array]
    system: eqx.AbstractVar[MechanicalSystem]
    log_noise: eqx.AbstractVar[Array | None]

    @property
    @abc.abstractmethod
    def members(self) -> int:
        """Number of members."""

    @abc.abstractmethod
    def network(self, inputs: Float[Array, "members rows inputs"]) -> Float[Array, "members rows nq"]:
        """The networks; inputs and outputs are in units of their scales."""

    @abc.abstractmethod
    def select_members(self, members: Array) -> Self:
        """Some members, by number."""

    @abc.abstractmethod
    def resample_latents(self, key: Array) -> Self:
        """The model with its latent noise drawn anew; the model itself if it has none."""

    @abc.abstractmethod
    def kl(self) -> Array:
        """The sum over members of KL(q ‖ p), in nats."""

    @property
    def task(self) -> MechanicalTask:
        """Reward and initial distribution, which are known."""
        return MechanicalTask(self.system)

    def drift(
        self, x: Float[Array, "members rows d"], u: Float[Array, "members rows k"]
    ) -> Float[Array, "members rows d"]:
        """dx/dt under each member, d = 2·nq."""
        features = self.system.featurize(x) / jax.lax.stop_gradient(self.feature_scale)
        inputs = jnp.concatenate([features, u / self.system.u_max], axis=-1)
        a = self.network(inputs) * jax.lax.stop_gradient(self.acceleration_scale)
        return jnp.concatenate([x[..., self.system.nq :], a], axis=-1)

    def rescale(self, feature_scale: Array, acceleration_scale: Array) -> Self:
        """The same functions with other scales: the first and the last layer absorb the change."""
        first, *middle, last = self.layers
        change = feature_scale / self.feature_scale
        weight = first.weight.at[..., : change.size, :].multiply(change[:, None])
        back = self.acceleration_scale / acceleration_scale
        layers = (Layer(weight, first.bias), *middle, Layer(last.weight * back, last.bias * back))
        parts = lambda model: (model.layers, model.feature_scale, model.acceleration_scale)  # noqa: E731
        return eqx.tree_at(parts, self, (layers, feature_scale, acceleration_scale))


Hidden = tuple[int, ...]
"""Widths of the hidden layers."""
MakeEnsemble = Callable[[Generator, MechanicalSystem, int, Hidden], MechanicalEnsemble]
"""(generator, system, members, hidden widths) -> an untrained model."""


def learned_noise(make: MakeEnsemble) -> MakeEnsemble:
    """The models of `make`, with a noise that is fitted together with the weights."""

    def noisy(generator: Generator, system: MechanicalSystem, members: int, hidden: Hidden) -> MechanicalEnsemble:
        log_noise = jnp.full(system.state_dim, math.log(FIRST_NOISE))
        model = make(generator, system, members, hidden)
        return eqx.tree_at(lambda model: model.log_noise, model, log_noise, is_leaf=lambda leaf: leaf is None)

    return noisy


def noise_info(model: MechanicalEnsemble) -> dict[str, list[float]]:
    """σ of each coordinate of the state, for records; empty if the noise is fixed."""
    return {} if model.log_noise is None else {"noise": np.exp(np.asarray(model.log_noise)).tolist()}


class Ensemble(MechanicalEnsemble):
    """One network per member.

    Main arguments:
        layers: of all members.
    """

    layers: tuple[Layer, ...]
    feature_scale: Array
    acceleration_scale: Array
    system: MechanicalSystem = eqx.field(static=True)
    log_noise: Array | None = None

    @classmethod
    def random(cls, generator: Generator, system: MechanicalSystem, members: int, hidden: Hidden) -> "Ensemble":
        """Members with random weights, and scales of one."""
        features = system.feature_dim
        layers = glorot(generator, (features + system.control_dim, *hidden, system.nq), members)
        return cls(layers, jnp.ones(features), jnp.ones(system.nq), system)

    @property
    def members(self) -> int:
        """Number of networks."""
        return self.layers[0].weight.shape[0]

    def network(self, inputs: Array) -> Array:
        """The network of each member on its rows."""
        return mlp(self.layers, inputs, jax.nn.elu)

    def select_members(self, members: Array) -> "Ensemble":
        """Some members, by number."""
        return eqx.tree_at(lambda e: e.layers, self, jax.tree.map(lambda array: array[members], self.layers))

    def resample_latents(self, key: Array) -> "Ensemble":
        """The model itself: nothing is latent."""
        return self

    def kl(self) -> Array:
        """Zero: there is no prior."""
        return jnp.zeros(())


class TanhEnsemble(Ensemble):
    """One network per member, with tanh instead of ELU: accelerations are bounded where there are no data, and the same
    number of steps fits the data more closely."""

    def network(self, inputs: Array) -> Array:
        """The network of each member on its rows."""
        return mlp(self.layers, inputs, jnp.tanh)


class Factors(NamedTuple):
    """What the inputs and outputs of a layer are multiplied by, for each member."""

    before: Array
    """r [members, 1, inputs]."""
    after: Array
    """s [members, 1, outputs]."""


class BatchEnsemble(MechanicalEnsemble):
    """Members i with the weights W ∘ (r_i s_iᵀ) and their own biases.

    Main arguments:
        layers: shared weights [inputs, outputs], biases [members, 1, outputs].
        factors: r and s of each layer.
    """

    layers: tuple[Layer, ...]
    factors: tuple[Factors, ...]
    feature_scale: Array
    acceleration_scale: Array
    system: MechanicalSystem = eqx.field(static=True)
    log_noise: Array | None = None

    @classmethod
    def random(cls, generator: Generator, system: MechanicalSystem, members: int, hidden: Hidden) -> "BatchEnsemble":
        """Members with random weights and factors near 1, and scales of one."""
        features = system.feature_dim
        shared = glorot(generator, (features + system.control_dim, *hidden, system.nq))
        layers = tuple(Layer(layer.weight, jnp.zeros((members, 1, layer.bias.size))) for layer in shared)
        factors = tuple(
            Factors(*(_random_factors(generator, members, size) for size in layer.weight.shape)) for layer in layers
        )
        scales = {"feature_scale": jnp.ones(features), "acceleration_scale": jnp.ones(system.nq)}
        return cls(layers=layers, factors=factors, system=system, **scales)

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

    def select_members(self, members: Array) -> "BatchEnsemble":
        """Some members, by number; the weights stay shared."""
        layers = tuple(Layer(layer.weight, layer.bias[members]) for layer in self.layers)
        factors = jax.tree.map(lambda array: array[members], self.factors)
        return eqx.tree_at(lambda model: (model.layers, model.factors), self, (layers, factors))

    def resample_latents(self, key: Array) -> "BatchEnsemble":
        """The model itself: nothing is latent."""
        return self

    def kl(self) -> Array:
        """Zero: there is no prior."""
        return jnp.zeros(())


class Nodes(NamedTuple):
    """The random factors on the inputs of a layer; each member has its own distribution and draw."""

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

    def kl(self, prior_std: float) -> Array:
        """KL(N(μ, σ²) ‖ N(1, s²)), summed over members and inputs.

        >>> standard = Nodes(jnp.full((2, 1, 3), 3.0), jnp.zeros((2, 1, 3)), jnp.zeros((2, 1, 3)))
        >>> float(standard.kl(1.0))  # (3 − 1)²/2 for each of six
        12.0
        """
        square = (jnp.exp(2 * self.log_std) + (self.mean - 1) ** 2) / prior_std**2
        return (math.log(prior_std) - self.log_std + (square - 1) / 2).sum()


class Implicit(MechanicalEnsemble):
    """One network whose nodes are multiplied by latent noise; a member is one draw of it, fixed along a trajectory.

    The distribution of the noise is a mixture with one Gaussian per member. The mean of their KL divergences from the prior
    is at least that of the mixture, so the loss is still a bound on the evidence.

    Main arguments:
        layers: shared weights [inputs, outputs] and biases [outputs].
        nodes: the noise on the inputs of each layer.
    """

    layers: tuple[Layer, ...]
    nodes: tuple[Nodes, ...]
    feature_scale: Array
    acceleration_scale: Array
    system: MechanicalSystem = eqx.field(static=True)
    log_noise: Array | None = None

    @classmethod
    def random(cls, generator: Generator, system: MechanicalSystem, members: int, hidden: Hidden) -> "Implicit":
        """Random weights, means near 1, small noise, and scales of one."""
        features = system.feature_dim
        layers = glorot(generator, (features + system.control_dim, *hidden, system.nq))
        nodes = []
        for layer in layers:
            mean = _random_factors(generator, members, layer.weight.shape[0])
            noise = jnp.asarray(generator.standard_normal(mean.shape, np.float32))
            nodes.append(Nodes(mean, jnp.full(mean.shape, math.log(FIRST_STD)), noise))
        scales = {"feature_scale": jnp.ones(features), "acceleration_scale": jnp.ones(system.nq)}
        return cls(layers=layers, nodes=tuple(nodes), system=system, **scales)

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

    def select_members(self, members: Array) -> "Implicit":
        """Some draws, by number."""
        return eqx.tree_at(lambda model: model.nodes, self, jax.tree.map(lambda array: array[members], self.nodes))

    def resample_latents(self, key: Array) -> "Implicit":
        """The same distribution with new draws."""
        keys = jax.random.split(key, len(self.nodes))
        draws = [jax.random.normal(k, nodes.noise.shape) for k, nodes in zip(keys, self.nodes, strict=True)]
        return eqx.tree_at(lambda model: [nodes.noise for nodes in model.nodes], self, draws)

    def kl(self) -> Array:
        """The KL divergence of the noise from its prior N(1, s²)."""
        return sum((nodes.kl(PRIOR_STD) for nodes in self.nodes), jnp.zeros(()))


def _random_factors(generator: Generator, members: int, size: int) -> Array:
    """Factors [members, 1, size] near 1."""
    return jnp.asarray(1 + FACTOR_STD * generator.standard_normal((members, 1, size), np.float32))

"""What every family of dynamics models offers, and the noise of measurements that a model may learn.

symbol                   here                  meaning
-----------------------  --------------------  ------------------------------------------------------------------
f ∈ F                    Dynamics              dq/dt = v, dv/dt = network(features of x, u); all members at once
KL(q ‖ p)                Dynamics.penalty      what the fit adds to the loss, zero for a family without a prior
σ                        exp(log_noise)        noise of a measurement against the prediction, one for each number of x

ENODE's authors have three families: `Ensemble` (`control/model.py`), `BatchEnsemble` and `Implicit` (`control/families.py`).
Planning and fitting know this interface alone.
"""

import abc
import math
from collections.abc import Callable
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from purectrl.control.networks import Layer
from purectrl.core.problem import Array
from purectrl.systems.mechanism import Mechanism

FIRST_NOISE = 0.1
"""σ before anything was learned, in the units of the state."""


class Dynamics(eqx.Module):
    """q̈ = a(x, u), for several members. Inputs and outputs are scaled to about unit size.

    Main arguments:
        layers: affine maps; a family says what of them its members share.
        feature_scale: what each feature is divided by [features].
        acceleration_scale: what each output is multiplied with [nq].
        mechanism: what the state means; its equations are not used.
        log_noise: log σ [2·nq] if it is to be learned, None if the noise is fixed.
    """

    layers: eqx.AbstractVar[tuple[Layer, ...]]
    feature_scale: eqx.AbstractVar[Array]
    acceleration_scale: eqx.AbstractVar[Array]
    mechanism: eqx.AbstractVar[Mechanism]
    log_noise: eqx.AbstractVar[Array | None]

    @property
    @abc.abstractmethod
    def members(self) -> int:
        """Number of members."""

    @abc.abstractmethod
    def network(self, inputs: Array) -> Array:
        """inputs [members, rows, features + k] -> [members, rows, nq], both in units of their scales."""

    @abc.abstractmethod
    def pick(self, members: Array) -> Self:
        """Some members, by number."""

    @abc.abstractmethod
    def redrawn(self, key: Array) -> Self:
        """The model with its latent noise drawn anew; the model itself if it has none."""

    @abc.abstractmethod
    def penalty(self) -> Array:
        """The sum over members of KL(q ‖ p), in nats."""

    def drift(self, x: Array, u: Array) -> Array:
        """dx/dt under each member; x [members, rows, 2·nq], u [members, rows, k] -> [members, rows, 2·nq]."""
        features = self.mechanism.observe(x) / jax.lax.stop_gradient(self.feature_scale)
        inputs = jnp.concatenate([features, u / self.mechanism.u_max], axis=-1)
        a = self.network(inputs) * jax.lax.stop_gradient(self.acceleration_scale)
        return jnp.concatenate([x[..., self.mechanism.nq :], a], axis=-1)

    def rescaled(self, feature_scale: Array, acceleration_scale: Array) -> Self:
        """The same functions with other scales: the first and the last layer take up the change."""
        first, *middle, last = self.layers
        change = feature_scale / self.feature_scale
        weight = first.weight.at[..., : change.size, :].multiply(change[:, None])
        back = self.acceleration_scale / acceleration_scale
        layers = (Layer(weight, first.bias), *middle, Layer(last.weight * back, last.bias * back))
        parts = lambda model: (model.layers, model.feature_scale, model.acceleration_scale)  # noqa: E731
        return eqx.tree_at(parts, self, (layers, feature_scale, acceleration_scale))


Maker = Callable[[np.random.Generator, Mechanism, int, tuple[int, ...]], Dynamics]
"""(generator, mechanism, members, hidden widths) -> an untrained model."""


def learned_noise(make: Maker) -> Maker:
    """The models of `make`, with a noise that is fitted together with the weights."""

    def noisy(generator: np.random.Generator, mechanism: Mechanism, members: int, hidden: tuple[int, ...]) -> Dynamics:
        log_noise = jnp.full(mechanism.state_dim, math.log(FIRST_NOISE))
        model = make(generator, mechanism, members, hidden)
        return eqx.tree_at(lambda model: model.log_noise, model, log_noise, is_leaf=lambda leaf: leaf is None)

    return noisy


def noise_of(model: Dynamics) -> dict[str, list[float]]:
    """σ of each number of the state, for records; nothing where the noise is fixed."""
    return {} if model.log_noise is None else {"noise": np.exp(np.asarray(model.log_noise)).tolist()}

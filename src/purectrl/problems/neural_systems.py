"""The systems of the problem `neural`: mechanical systems whose drift is learned by networks, and their other classes.

    pendulum    lifted from hanging by a torque that holds it at any angle; d = 2
    swing-up    the same with a torque that lifts it only by swinging; d = 2
    quadrotor   planar, flown to a point and kept upright there; d = 6

Rewards are linear in bumps around several targets, of which the first is the true one.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.keys import Key
from purectrl.systems import pendulum as pendulum_system
from purectrl.systems import quadrotor as quadrotor_system
from purectrl.systems.mechanical import MechanicalSystem, log_distance_reward
from purectrl.theory.linear import LinearClass
from purectrl.theory.policy_classes import MlpPolicies

NeuralSystem = Literal["pendulum", "swing-up", "quadrotor"]
TORQUE, WEAK_TORQUE = 5.0, 3.0
"""The largest torques: 5 outweighs gravity at every angle, 3 up to an angle of 0.64 from the vertical."""
START = 0.1
"""Weights of the last layer at first, relative to the usual ones."""
VELOCITY = 5.0
"""The scale of velocities in the inputs of networks."""
CORNERS = (0.0, 1.0), (1.0, 0.0), (-1.0, 0.0), (0.0, -1.0)
"""Targets of the tip of the pendulum."""
POINTS = (0.0, 0.0), (2.0, 0.0), (1.0, -1.0), (1.0, 1.0)
"""Targets (s, h) of the quadrotor."""


class NeuralParts(NamedTuple):
    """What the problem needs of one system."""

    mechanics: MechanicalSystem
    limit: float
    """The largest |u_i|."""
    rewards: LinearClass
    policies: MlpPolicies
    initials: "OneInitial"
    network: Callable[[Array, int], Any]
    """(JAX key, width) -> a network for the drift."""


class MechanicalNetwork(eqx.Module):
    """The drift (v, q̈) of a mechanical system: dq/dt = v is known, and a network with two hidden layers gives the
    accelerations. Angles enter as cos and sin, and accelerations are bounded by a tanh."""

    layers: eqx.nn.MLP
    scale: tuple[float, ...] = eqx.field(static=True)
    """The size of each feature and of each control [p + k]."""
    featurize: Callable[[Array], Array] = eqx.field(static=True)
    limit: float = eqx.field(static=True)

    def __init__(self, key: Array, width: int, mechanics: MechanicalSystem, u_max: float, limit: float = 30.0) -> None:
        d, k, p = mechanics.state_dim, mechanics.control_dim, mechanics.feature_dim
        self.scale = (*(1.0,) * (p - d // 2), *(VELOCITY,) * (d // 2), *(u_max,) * k)
        layers = eqx.nn.MLP(p + k, d // 2, width, 2, jnp.tanh, key=key)
        last = lambda layers: (layers.layers[-1].weight, layers.layers[-1].bias)  # noqa: E731
        # small predictions at first: the regret of large ones would stay in the radius of an anytime-valid set
        self.layers = eqx.tree_at(last, layers, tuple(START * part for part in last(layers)))
        self.featurize, self.limit = mechanics.featurize, limit

    def __call__(self, x: Array, u: Array) -> Array:
        """dx/dt [d] in state x [d] under control u [k]."""
        features = jnp.concatenate([self.featurize(x), u]) / jnp.array(self.scale)
        return jnp.concatenate([x[len(x) // 2 :], self.limit * jnp.tanh(self.layers(features))])


class OneInitial:
    """One initial distribution: N(mean, 0.1² I)."""

    def __init__(self, mean: tuple[float, ...]) -> None:
        self.mean = np.array(mean, np.float32)

    def init(self, key: Key) -> np.ndarray:
        """No parameters."""
        return np.zeros(0, np.float32)

    def apply(self, parameters: Array | np.ndarray, key: Array) -> Array:
        """A draw of x(0) [d]."""
        return jnp.asarray(self.mean) + 0.1 * jax.random.normal(key, self.mean.shape)


def _bumps(logarithms: list[Callable[[Array, Array], Array]]) -> LinearClass:
    """Rewards that are linear in exp of the given functions; a feature is at most one."""
    features = lambda x, u: jnp.exp(jnp.stack([log(x, u) for log in logarithms]))  # noqa: E731
    return LinearClass(features, bound=1.25, feature_bound=float(np.sqrt(len(logarithms))))


@functools.cache
def neural_parts(name: NeuralSystem) -> NeuralParts:
    """The classes of one system."""
    if name == "quadrotor":
        mechanics, limit = quadrotor_system.quadrotor(), 1.0
        initials = OneInitial((1.0, -0.5, 0.0, 0.0, 0.0, 0.0))
        upright = (0.0, quadrotor_system.TILT_WEIGHT)
        logs = [log_distance_reward(quadrotor_system.pose, (*point, *upright), 1e-2, 1e-2) for point in POINTS]
    else:
        mechanics, limit = pendulum_system.pendulum(), TORQUE if name == "pendulum" else WEAK_TORQUE
        initials = OneInitial((np.pi, 0.0))
        costs = pendulum_system.VELOCITY_COST, pendulum_system.CONTROL_COST
        logs = [log_distance_reward(pendulum_system.tip, corner, *costs) for corner in CORNERS]
    d, k = mechanics.state_dim, mechanics.control_dim
    policies = MlpPolicies(d, k, limit=limit, features=mechanics.featurize)
    network = lambda key, width: MechanicalNetwork(key, width, mechanics, limit)  # noqa: E731
    return NeuralParts(mechanics, limit, _bumps(logs), policies, initials, network)

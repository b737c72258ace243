"""Episodes that terminate: which states end an episode, learned from measurements, and what that means for imagined returns.

symbol     here              meaning
---------  ----------------  ---------------------------------------------------------------------------------------
p(x)       TerminalStates    the probability that an episode terminates in state x
S_k        Survival.before   the probability that an imagined rollout has not terminated before step k: Π_{i<k} (1 − p(x_i))
S_{k+1}    Survival.after    the same after step k, for the value of the state that it leads to
r_end      ending_reward     the mean reward of the steps that terminated episodes, if it was measured

A step k of an imagined rollout is rewarded with S_k b(x, u), or S_{k+1} b(x, u) + (S_k − S_{k+1}) r_end if the step that
ends an episode has a reward of its own. The critic's value after it counts S_{k+1}: nothing is earned after the end. All
have a gradient, so that a policy learns to avoid termination, or to seek it.

Termination is a function of the state, so the boundary between terminal and other states matters, and not how often episodes
end: the classifier sees equally many of both. If the problem declares the function, the classifier is fitted to it, on
measured states and states around them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from purectrl.control.networks import Layer, glorot, mlp
from purectrl.core.measurement import Measurements
from purectrl.systems.spec import StateSpec

WIDTH = 64
"""Units in each of the two hidden layers of the classifier."""
SPREADS = (0.5, 1.0, 2.0, 4.0)
"""Distances around measured states at which a known function is evaluated, in standard deviations of the data."""


class TerminalStates(eqx.Module):
    """p(x) = sigmoid(network(features of x)), in which states an episode terminates.

    Main arguments:
        layers: of one network.
        mean, scale: what is subtracted from each feature, and what it is divided by [features].
    """

    layers: tuple[Layer, ...]
    mean: Array
    scale: Array
    spec: StateSpec = eqx.field(static=True)

    @classmethod
    def random(cls, generator: np.random.Generator, spec: StateSpec) -> "TerminalStates":
        """An untrained classifier."""
        features = spec.feature_dim
        layers = glorot(generator, (features, WIDTH, WIDTH, 1))
        return cls(layers, jnp.zeros(features), jnp.ones(features), spec)

    @property
    def members(self) -> int:
        """One network."""
        return 1

    def logit(self, x: Float[Array, "*rows d"]) -> Float[Array, "*rows"]:
        """log p/(1 − p)."""
        mean, scale = jax.lax.stop_gradient((self.mean, self.scale))
        return mlp(self.layers, (self.spec.featurize(x) - mean) / scale, jax.nn.elu)[..., 0]


class EndData(NamedTuple):
    """States of which it is known whether they are terminal, in arrays of a fixed size."""

    terminal: np.ndarray
    """[rows, d], zero beyond `terminal_size`."""
    other: np.ndarray
    """[rows, d], zero beyond `other_size`."""
    terminal_size: np.int32
    other_size: np.int32


@dataclass(frozen=True)
class EndLoss:
    """The objective of the classifier, the cross-entropy; see `purectrl.control.fit.Objective`.

    Main arguments:
        batch_size: states per step, half of them terminal.
    """

    batch_size: int
    clip: float = 10.0

    def draw(self, key: Array, data: tuple[Array, ...], members: int) -> tuple[Array, Array]:
        """Numbers of terminal and of other states [batch_size / 2]."""
        rows = (max(1, self.batch_size // 2),)
        terminal_key, other_key = jax.random.split(key)
        terminal = jax.random.randint(terminal_key, rows, 0, data[2])
        return terminal, jax.random.randint(other_key, rows, 0, data[3])

    def loss(self, model: TerminalStates, batch: tuple[Array, Array], data: tuple[Array, ...]) -> Array:
        """The mean cross-entropy."""
        terminal, other = (model.logit(states[rows]) for states, rows in zip(data[:2], batch, strict=True))
        return jax.nn.softplus(-terminal).mean() + jax.nn.softplus(other).mean()

    def resample(self, model: TerminalStates, key: Array) -> TerminalStates:
        """The model itself: nothing is latent."""
        return model

    def scale_update(self, update: TerminalStates) -> TerminalStates:
        """One learning rate for all parameters."""
        return update


def end_data(
    seen: Measurements, states: np.ndarray, spec: StateSpec, capacity: int, generator: np.random.Generator
) -> EndData:
    """The data of the classifier: measured ends of episodes, or the known function around measured states.

    Main arguments:
        seen: all measurements.
        states: measured states in which no episode has ended [n, d].
        capacity: rows of the arrays.
    """
    if spec.terminated is None:
        assert seen.final is not None
        return _padded(seen.final[seen.terminated], states, capacity)
    deviation = states.std(axis=0)
    around = [states + spread * deviation * generator.standard_normal(states.shape) for spread in SPREADS]
    drawn = np.concatenate([states, *around]).astype(np.float32)
    terminal = evaluate_terminated(spec.terminated, drawn)
    pick = lambda rows: rows[generator.permutation(len(rows))[:capacity]]  # noqa: E731
    return _padded(pick(drawn[terminal]), pick(drawn[~terminal]), capacity)


def evaluate_terminated(terminated: Callable[[Array], Any], states: np.ndarray) -> np.ndarray:
    """A problem's function x [d] -> bool on states [n, d]."""
    return np.asarray(jax.vmap(lambda x: jnp.asarray(terminated(x), bool))(jnp.asarray(states, jnp.float32)))


def _padded(terminal: np.ndarray, other: np.ndarray, capacity: int) -> EndData:
    arrays = [np.zeros((capacity, other.shape[1]), np.float32) for _ in range(2)]
    for array, rows in zip(arrays, (terminal, other), strict=True):
        array[: len(rows)] = rows
    return EndData(arrays[0], arrays[1], np.int32(len(terminal)), np.int32(len(other)))


class Survival(NamedTuple):
    """The probability that an imagined rollout has not terminated."""

    before: Array
    """Before each step [steps, ...]."""
    after: Array
    """After each step [steps, ...]."""


def survival(task: Any, x: Float[Array, "steps *rows d"]) -> Survival | None:
    """The survival of rollouts that are in state x [steps, ..., d] after each step; None if nothing is known to end them."""
    ends: TerminalStates | None = getattr(task, "ends", None)
    if ends is None:
        return None
    after = jnp.exp(jnp.cumsum(jax.nn.log_sigmoid(-ends.logit(x)), axis=0))
    return Survival(jnp.concatenate([jnp.ones_like(after[:1]), after[:-1]]), after)


def earned(
    task: Any, rewards: Float[Array, "steps *rows"], x: Float[Array, "steps *rows d"]
) -> Float[Array, "steps *rows"]:
    """The expected rewards of rollouts that are in state x [steps, ..., d] after each step, zero after the end."""
    alive = survival(task, x)
    if alive is None:
        return rewards
    ending: Array | None = getattr(task, "ending_reward", None)
    if ending is None:
        return rewards * alive.before
    return rewards * alive.after + ending / task.reward_unit * (alive.before - alive.after)


def without_unseen_ends(model: Any, seen: Measurements) -> Any:
    """The model to plan in: without a classifier as long as no episode has terminated and no function is known."""
    ends: TerminalStates | None = getattr(model.task, "ends", None)
    if ends is None or ends.spec.terminated is not None or seen.terminated.any():
        return model
    return eqx.tree_at(lambda model: model.task.ends, model, None)

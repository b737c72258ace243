"""Soft actor-critic on pairs of consecutive measurements.

symbol   here            meaning
-------  --------------  ------------------------------------------------------------------------------------------
π(·|x)   SacPolicy       u = mid + half range · tanh(z), z ~ N(μ(x), diag σ(x)²), one draw per step of the sampler
Q₁, Q₂   critics         soft action values; the smaller one counts
α        temperature     weight of the entropy
γ        discount        of one step; a transition over Δ seconds has γ^(Δ/step)
r        reward          Δ/step · b(x, u) / unit, where unit is the largest |b| at the first update
"""

import functools
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float

from purectrl.control.divergence import finite
from purectrl.control.networks import Layer, glorot, mlp
from purectrl.control.policy import Actor
from purectrl.control.sac_settings import Sac
from purectrl.core.keys import Key
from purectrl.core.learner import Update
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.plan import Plan
from purectrl.core.schedules import Targets
from purectrl.systems.compiled import jax_key
from purectrl.systems.spec import Control, StateSpec

LOWEST, HIGHEST = -5.0, 2.0
"""Limits of log σ."""
LONGEST_GAP = 1.5
"""Measurements further apart than this, in steps of the sampler, do not form a transition."""


class SacPolicy(eqx.Module):
    """The policy of an episode: random controls before the first update, then the stochastic policy.

    Main arguments:
        actor: x -> the control at μ(x), the policy of evaluations.
        deviation: x -> log σ(x) before it is limited.
        use_actor: 0 draws controls uniformly from their range; 1 executes the policy.
        hold: seconds for which one draw of the noise is kept.
    """

    actor: Actor
    deviation: Actor
    use_actor: float
    hold: float

    def __call__(self, x: Float[Array, "*rows d"], t: Any = 0.0) -> Float[Array, "*rows k"]:
        """The control without noise."""
        return self.actor(x)

    def explore(self, key: Array, episode: Any) -> Control:
        """(x [d], t) -> u [k] in one episode, with noise drawn from the JAX key."""
        k = self.actor.spec.control_dim

        def control(x: Any, t: Any) -> Array:
            drawn = jax.random.fold_in(key, jnp.asarray(t / self.hold + 1e-4, jnp.int32))
            z = self.actor.before_tanh(x) + jnp.exp(log_deviation(self.deviation, x)) * jax.random.normal(drawn, (k,))
            uniform = jax.random.uniform(jax.random.fold_in(drawn, 1), (k,), minval=-1.0, maxval=1.0)
            return self.actor.spec.unscale_control(jnp.where(self.use_actor > 0, jnp.tanh(z), uniform))

        return control

    def without_noise(self) -> "WithoutNoise":
        """The policy that executes μ(x)."""
        return WithoutNoise(self.actor)


class WithoutNoise(eqx.Module):
    """The mean of the policy."""

    actor: Actor

    def __call__(self, x: Float[Array, "*rows d"], t: Any = 0.0) -> Float[Array, "*rows k"]:
        """The control at state x."""
        return self.actor(x)


def log_deviation(deviation: Actor, x: Float[Array, "*rows d"]) -> Float[Array, "*rows k"]:
    """log σ(x), between its limits."""
    return LOWEST + (HIGHEST - LOWEST) / 2 * (1 + jnp.tanh(deviation.before_tanh(x)))


class Networks(NamedTuple):
    """Everything that gradients change."""

    actor: Actor
    deviation: Actor
    critics: tuple[Layer, ...]
    """Both critics as one batched network."""
    log_temperature: Array


class SacState(NamedTuple):
    """Networks, targets and optimizers."""

    networks: Networks
    targets: tuple[Layer, ...]
    optimizer: Any
    """State of Adam."""
    unit: float = 0.0
    """The unit of reward; zero before the first update."""
    learned: int = 0
    """Measurements that gradient steps were taken for."""


class Transitions(NamedTuple):
    """Pairs of consecutive measurements."""

    x: Array
    u: Array
    """Controls in units of half their range [rows, k]."""
    reward: Array
    steps: Array
    """Length in steps of the sampler [rows]."""
    next_x: Array
    alive: Array
    """1, or 0 if the episode terminated in `next_x` [rows]."""


def transitions(
    spec: StateSpec, seen: Measurements, rate: np.ndarray, step: float, capacity: int
) -> tuple[Transitions, int]:
    """All transitions of the data in the first rows of arrays with `capacity` rows, and their number.

    Main arguments:
        rate: reward rates [episodes, m]; a reward is the rate times the length of the transition in steps.
        step: length of a step.
    """
    gaps, valid = np.diff(seen.t, axis=1) / step, seen.valid
    episode, place = np.nonzero(valid[:, 1:] & valid[:, :-1] & (gaps > 0) & (gaps <= LONGEST_GAP))
    ended = np.flatnonzero(seen.terminated & (valid.sum(axis=1) > 0))
    last = valid.sum(axis=1)[ended] - 1
    rows, columns = np.concatenate([episode, ended]), np.concatenate([place, last])
    steps = np.concatenate([gaps[episode, place], np.ones(len(ended))])
    final = np.empty((0, spec.state_dim)) if seen.final is None else seen.final[ended]
    next_x = np.concatenate([seen.x[episode, place + 1], final])
    parts = (
        seen.x[rows, columns],
        np.asarray(spec.scale_control(jnp.asarray(seen.u[rows, columns], jnp.float32))),
        rate[rows, columns] * steps,
        steps,
        next_x,
        np.concatenate([np.ones(len(episode)), np.zeros(len(ended))]),
    )
    empty = capacity - len(rows)
    padded = (np.pad(part, [(0, empty)] + [(0, 0)] * (part.ndim - 1)) for part in parts)
    return Transitions(*(jnp.asarray(part, jnp.float32) for part in padded)), len(rows)


@dataclass(frozen=True)
class SacLearner:
    """Soft actor-critic.

    Main arguments:
        settings: of the algorithm.
        spec: dimensions, features and control limits.
        capacity: N.
        step: seconds between two measurements.
    """

    settings: Sac
    spec: StateSpec
    capacity: int
    step: float

    def init(self, key: Key) -> SacState:
        """Untrained networks; the first policy draws controls uniformly."""
        spec, hidden = self.spec, (self.settings.width,) * 2
        actor = Actor.random(key.child("actor").generator(), spec, hidden)
        deviation = Actor.random(key.child("deviation").generator(), spec, hidden)
        sizes = (spec.feature_dim + spec.control_dim, *hidden, 1)
        critics = glorot(key.child("critics").generator(), sizes, members=2)
        temperature = jnp.log(jnp.asarray(self.settings.initial_temperature, jnp.float32))
        networks = Networks(actor, deviation, critics, temperature)
        return SacState(networks, critics, _optimizer(self.settings).init(eqx.filter(networks, eqx.is_array)))

    def policy(self, state: SacState) -> Plan:
        """The stochastic policy; the problem draws the initial state."""
        networks = state.networks
        return Plan(SacPolicy(networks.actor, networks.deviation, float(state.learned > 0), self.step), None)

    def update(self, state: SacState, data: Dataset, which: Targets, key: Key) -> Update:
        """Gradient steps in proportion to the new measurements."""
        begin, seen = time.perf_counter(), data.all
        rate = self._rewards(seen)
        unit = state.unit or float(np.abs(rate[seen.valid]).max()) or 1.0
        found, count = transitions(self.spec, seen, rate / unit, self.step, self.capacity)
        if not state.unit:
            state = _scaled(state, np.asarray(self.spec.featurize(jnp.asarray(seen.x[seen.valid], jnp.float32))))
        if not count:
            return Update(
                state, {}, {"fit": 0.0}, "no two measurements are consecutive: the networks stay as they were"
            )
        steps = max(1, round(self.settings.gradient_steps * (seen.total - state.learned)))
        before = state.networks, state.targets, state.optimizer
        after, losses = _train(self.settings, before, found, count, steps, jax_key(key))
        seconds = {"plan": time.perf_counter() - begin}
        if not finite(after):
            return Update(state, {}, seconds, "the networks diverged: they stay as they were")
        info = {
            "gradient_steps": steps,
            "critic_loss": float(losses[0]),
            "entropy": float(losses[1]),
            "temperature": float(jnp.exp(after[0].log_temperature)),
        }
        return Update(SacState(*after, unit=unit, learned=seen.total), info, seconds)

    def _rewards(self, seen: Measurements) -> np.ndarray:
        """Measured reward rates [episodes, m], or those of the known reward."""
        if seen.r is not None:
            return seen.r
        assert self.spec.reward is not None
        return np.asarray(jnp.vectorize(self.spec.reward, signature="(d),(k)->()")(seen.x, seen.u))


def _scaled(state: SacState, features: np.ndarray) -> SacState:
    """The state with features in units of their root mean square in the first data."""
    scale = jnp.asarray(np.maximum(np.sqrt((features**2).mean(axis=0)), 1e-3), jnp.float32)
    networks = eqx.tree_at(lambda found: (found.actor.scale, found.deviation.scale), state.networks, (scale, scale))
    return state._replace(networks=networks)


def _optimizer(settings: Sac) -> optax.GradientTransformation:
    return optax.adam(settings.learning_rate)


@functools.partial(jax.jit, static_argnums=0)
def _train(
    settings: Sac, parts: tuple[Networks, Any, Any], data: Transitions, count: int, steps: int, key: Array
) -> tuple[tuple[Networks, Any, Any], Array]:
    """Networks, targets and optimizer after `steps` gradient steps on the first `count` rows of the data, and (critic loss,
    entropy) of the last one."""

    def advance(number: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
        (networks, targets, optimizer), _ = carry
        rows_key, noise_key = jax.random.split(jax.random.fold_in(key, number))
        rows = jax.random.randint(rows_key, (settings.batch_size,), 0, count)
        batch = jax.tree.map(lambda array: array[rows], data)
        gradient, losses = jax.grad(_loss, has_aux=True)(networks, targets, settings, batch, noise_key)
        change, optimizer = _optimizer(settings).update(gradient, optimizer)
        networks = eqx.apply_updates(networks, change)
        rate = settings.target_update_rate
        targets = jax.tree.map(lambda old, new: (1 - rate) * old + rate * new, targets, networks.critics)
        return (networks, targets, optimizer), losses

    return jax.lax.fori_loop(0, steps, advance, (parts, jnp.zeros(2)))


def _loss(networks: Networks, targets: Any, settings: Sac, batch: Transitions, key: Array) -> tuple[Array, Array]:
    """The sum of the losses of critics, actor and temperature, each with gradients for its own parameters only."""
    now_key, next_key = jax.random.split(key)
    frozen = jax.lax.stop_gradient(networks)
    temperature = jnp.exp(frozen.log_temperature)

    next_u, next_log_density = sample(frozen, batch.next_x, next_key)
    value = action_values(targets, frozen.actor, batch.next_x, next_u).min(axis=0) - temperature * next_log_density
    wanted = batch.reward + settings.discount**batch.steps * batch.alive * value
    critic_loss = ((action_values(networks.critics, frozen.actor, batch.x, batch.u) - wanted) ** 2).mean(axis=1).sum()

    u, log_density = sample(networks, batch.x, now_key)
    actor_loss = (
        temperature * log_density - action_values(frozen.critics, frozen.actor, batch.x, u).min(axis=0)
    ).mean()

    entropy = -jax.lax.stop_gradient(log_density).mean()
    wanted_entropy = settings.target_entropy * u.shape[-1]
    temperature_loss = networks.log_temperature * (entropy - wanted_entropy)
    return critic_loss + actor_loss + temperature_loss, jnp.stack([critic_loss, entropy])


def sample(networks: Networks, x: Float[Array, "rows d"], key: Array) -> tuple[Array, Array]:
    """Controls in units of half their range [rows, k], and the logarithm of their density there [rows]."""
    mean, log_sigma = networks.actor.before_tanh(x), log_deviation(networks.deviation, x)
    noise = jax.random.normal(key, mean.shape)
    z = mean + jnp.exp(log_sigma) * noise
    normal = -0.5 * noise**2 - log_sigma - 0.5 * jnp.log(2 * jnp.pi)
    volume = 2 * (jnp.log(2.0) - z - jax.nn.softplus(-2 * z))  # log(1 − tanh²(z)), also for large z
    return jnp.tanh(z), (normal - volume).sum(axis=-1)


def action_values(
    critics: tuple[Layer, ...], actor: Actor, x: Float[Array, "rows d"], u: Float[Array, "rows k"]
) -> Float[Array, "2 rows"]:
    """Both critics; they see the features of the actor and the control in units of half its range."""
    features = actor.spec.featurize(x) / jax.lax.stop_gradient(actor.scale)
    return mlp(critics, jnp.concatenate([features, u], axis=-1), jax.nn.relu)[..., 0]

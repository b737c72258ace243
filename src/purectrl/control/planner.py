"""Planning in rounds: an actor-critic on short imagined rollouts whose clock is the system's own.

symbol    here                       meaning
--------  -------------------------  -----------------------------------------------------------------------------------
H, Δt     TimeScales                 length and step of an imagined rollout, see `purectrl.control.time_scales`
b̃         TaskModel.planning_reward  the reward that is planned with
R_h       cumulative sum             ∫_0^h e^(−t/τ) b̃ dt, with τ = 5 units of time whatever the system
V         critic                     discounted reward from a state onwards, learned by TD(λ)
J         ImaginedTest.whole         mean of b over imagined episodes: what is promised for a policy

It differs from `purectrl.control.actor_critic` in four points. Rollouts are short in units of the system's time, so
that their gradient is bounded, and many; the critic carries the rest. They start near rewarded states, too, at
distances over two decades, which is a curriculum from the goal outwards. Rounds are repeated until an imagined test
is good or no longer improves. The policy that a round started from competes with what came of it, so no round makes
the policy worse in the model.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Float

from purectrl.control.auto_settings import RoundSettings
from purectrl.control.imagination import (
    ImaginationModel,
    Imagined,
    TaskModel,
    clip_state_gradient,
    ornstein_uhlenbeck,
    planned_reward,
)
from purectrl.control.integrate import Integrator
from purectrl.control.networks import Layer, mlp
from purectrl.control.policy import Actor, Critic
from purectrl.control.termination import survival
from purectrl.control.time_scales import TimeScales
from purectrl.systems.spec import StateSpec

DISCOUNT_UNITS = 5.0
"""τ in units of time: values are then of the same size on every system."""
SMALLEST_DISTANCE = 0.01
"""Distances from rewarded states are between this and one, in units of the spread of the data, uniform in their
logarithm."""


class PlanRegion(NamedTuple):
    """Where to plan."""

    states: Array
    """Measured states [rows, d], zero beyond `size`."""
    size: Array
    """The number of states."""
    limits: Array
    """Largest size of each coordinate of the state [d]."""
    goals: Array
    """States with the highest reward [goals, d]."""
    spread: Array
    """The typical distance of measured states from each other, in each coordinate [d]."""
    length: Array | float
    """Length of an imagined episode."""


class Normalized(eqx.Module):
    """A network whose features are shifted by a mean before they are scaled; `Actor` and `Critic` have no shift.

    A room at 20 °C that varies by one degree is otherwise a constant for the network.
    """

    layers: tuple[Layer, ...]
    mean: Array
    """What is subtracted from each feature [features]."""
    scale: Array
    """What each feature is divided by [features]."""
    spec: StateSpec = eqx.field(static=True)

    @classmethod
    def of(cls, network: Actor | Critic, mean: Array) -> "Normalized":
        """The same function as `network`: the first bias absorbs the mean."""
        first, *others = network.layers
        shifted = Layer(first.weight, first.bias + (mean / network.scale) @ first.weight)
        return cls((shifted, *others), mean, network.scale, network.spec)

    def fold(self, like: Any) -> Any:
        """The same function as an `Actor` or `Critic`, as `like` is."""
        first, *others = self.layers
        layers = (Layer(first.weight, first.bias - (self.mean / self.scale) @ first.weight), *others)
        return type(like)(layers, self.scale, self.spec)

    def features(self, x: Float[Array, "*rows d"]) -> Float[Array, "*rows features"]:
        """Features of about unit size."""
        mean, scale = jax.lax.stop_gradient((self.mean, self.scale))
        return (self.spec.featurize(x) - mean) / scale

    def before_tanh(self, x: Float[Array, "*rows d"]) -> Float[Array, "*rows k"]:
        """The control before it is mapped into its limits, for an actor."""
        return mlp(self.layers, self.features(x), jax.nn.relu)

    def squash(self, z: Float[Array, "*rows k"]) -> Float[Array, "*rows k"]:
        """Controls within their limits."""
        return self.spec.unscale_control(jnp.tanh(z))

    def value(self, x: Float[Array, "*rows d"]) -> Float[Array, "*rows"]:
        """The value of state x, for a critic."""
        return mlp(self.layers, self.features(x), jnp.tanh)[..., 0]


class ImaginedTest(NamedTuple):
    """Rewards of imagined episodes without noise, from initial states."""

    whole: Array
    """Mean over time of b, for each member and episode [members, episodes]."""
    late: Array
    """The same over the second half of an episode."""

    @property
    def score(self) -> Array:
        """What snapshots compete by: the mean return, and how the worst episode ends."""
        return self.whole.mean() + self.late.mean(axis=0).min()


def roll_out(
    settings: RoundSettings,
    integrate: Integrator,
    model: ImaginationModel,
    actor: Normalized,
    starts: Array,
    noise: Array,
    step: Array | float,
    limits: Array,
    spread: Array,
) -> Imagined:
    """The actor under the model from `starts` [members, rows, d], with `noise` [steps, members, rows, k].

    As `purectrl.control.imagination.imagine`, with a step that may be traced and gradients clipped in units of the spread.
    Feedback is continuous, as in the system: the actor sees every state that the integrator evaluates the drift in. Euler's
    method, the integrator of problems on a time grid, evaluates it once per step, so that controls are held there.
    """
    limit = settings.state_grad_clip / math.prod(starts.shape[:-1])
    gap = jnp.full((*starts.shape[:-1], 1), step)

    def advance(x: Array, noise: Array) -> tuple[Array, Imagined]:
        scaled: Any = clip_state_gradient(x / spread, limit)
        x = spread * scaled
        x = x + jax.lax.stop_gradient(jnp.clip(x, -2 * limits, 2 * limits) - x)
        z = actor.before_tanh(x) + noise
        rate = lambda x, s: model.drift(x, actor.squash(actor.before_tanh(x) + noise))  # noqa: E731
        x = integrate(rate, x, gap)
        return x, Imagined(x, actor.squash(z), z)

    return jax.lax.scan(advance, starts, noise)[1]


def imagined_test(
    settings: RoundSettings,
    integrate: Integrator,
    model: ImaginationModel,
    actor: Normalized,
    scales: TimeScales,
    region: PlanRegion,
    key: Array,
) -> ImaginedTest:
    """Imagined episodes of `region.length` seconds, or of `test_steps` steps if that is shorter."""
    starts = jax.vmap(model.task.sample_initial_state)(jax.random.split(key, settings.test_episodes))
    starts = jnp.broadcast_to(starts, (model.members, *starts.shape))
    no_noise = jnp.zeros((settings.test_steps, *starts.shape[:-1], actor.spec.control_dim))
    seen = roll_out(settings, integrate, model, actor, starts, no_noise, scales.step, region.limits, region.spread)
    rewards, alive = jnp.nan_to_num(model.task.reward(seen.x, seen.u)), survival(model.task, seen.x)
    rewards = rewards if alive is None else rewards * alive.before
    times = (jnp.arange(settings.test_steps) + 0.5) * scales.step
    end = jnp.minimum(region.length, settings.test_steps * scales.step)
    inside, late = (((times >= begin * end) & (times < end)) for begin in (0.0, 0.5))
    mean = lambda used: jnp.where(used[:, None, None], rewards, 0.0).sum(axis=0) / used.sum()  # noqa: E731
    return ImaginedTest(mean(inside), mean(late))


class TrainState(NamedTuple):
    """What one step passes to the next."""

    actor: Normalized
    critic: Normalized
    target: Normalized
    actor_moments: Any
    critic_moments: Any
    rollout_ends: Array
    """Where the last rollouts ended [rows, d]."""


def draw_starts(
    settings: RoundSettings, key: Array, task: TaskModel, region: PlanRegion, rollout_ends: Array
) -> Float[Array, "rows d"]:
    """Initial states of rollouts in random order: initial, near rewarded states, ends of rollouts, any measured states."""
    rows, d = settings.batch_size, rollout_ends.shape[-1]
    shares = settings.initial_share, settings.goal_share, settings.rollout_end_share
    initial, near, ends = (int(share * rows) for share in shares)
    keys = jax.random.split(key, 6)
    centres = region.goals[jax.random.randint(keys[0], (near,), 0, len(region.goals))]
    size = jnp.exp(jax.random.uniform(keys[1], (near, 1), minval=math.log(SMALLEST_DISTANCE), maxval=0.0))
    starts = [
        jax.vmap(task.sample_initial_state)(jax.random.split(keys[2], initial)),
        centres + size * region.spread * jax.random.normal(keys[3], (near, d)),
        rollout_ends[:ends],
        region.states[jax.random.randint(keys[4], (rows - initial - near - ends,), 0, region.size)],
    ]
    return jax.random.permutation(keys[5], jnp.concatenate(starts))


def td_targets(settings: RoundSettings, rewards: Array, values: Array, step: Any, keep: Any) -> Array:
    """TD(λ) targets of V at the start and after each step but the last [steps, ...].

    y_i = Δt b̃_i + γ ((1 − λ) V(x_{i+1}) + λ y_{i+1}), with y_n = V(x_n).

    Main arguments:
        rewards, values: b̃ of each step and V after it [steps, ...].
        step, keep: Δt and γ = e^(−Δt/τ).
    """

    def backwards(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, value = now
        target = step * reward + keep * ((1 - settings.trace) * value + settings.trace * later)
        return target, target

    return jax.lax.scan(backwards, values[-1], (rewards, values), reverse=True)[1]


def _smooth_noise(settings: RoundSettings, key: Array, shape: tuple[int, ...], scales: TimeScales) -> Array:
    """An Ornstein-Uhlenbeck process for each row [steps, members, rows, k], with a size drawn for each row."""
    keep = jnp.exp(-scales.step / scales.noise)
    return ornstein_uhlenbeck(key, shape, keep, jnp.sqrt(1 - keep**2), settings.noise)


def _train_step(
    settings: RoundSettings,
    integrate: Integrator,
    model: ImaginationModel,
    scales: TimeScales,
    region: PlanRegion,
    optimizers: tuple,
) -> Callable[[TrainState, Array], tuple[TrainState, Array]]:
    """One step of the actor and several of the critic, as a function of the training state and a key."""
    actor_optimizer, critic_optimizer = optimizers
    members = min(settings.ensemble_size, model.members)
    rows, n = settings.batch_size // members, settings.rollout_steps
    step = DISCOUNT_UNITS * scales.step / scales.discount  # in units of time
    keep = jnp.exp(-step / DISCOUNT_UNITS)
    weights = step * keep ** jnp.arange(n)

    def step_actor(now: TrainState, chosen: ImaginationModel, starts: Array, noise: Array) -> tuple:
        def loss(actor: Normalized) -> tuple[Array, tuple[Imagined, Array]]:
            seen = roll_out(
                settings, integrate, chosen, actor, starts, noise, scales.step, region.limits, region.spread
            )
            rewards = planned_reward(chosen.task, seen, region.limits)
            returns = jnp.cumsum(rewards * weights[:, None, None], axis=0)
            values, alive = now.critic.value(seen.x), survival(chosen.task, seen.x)
            values = values if alive is None else values * alive.after
            later = values * (keep ** (jnp.arange(n) + 1))[:, None, None]
            return settings.action_l2 * (seen.z**2).mean() - (returns + later).mean(), (seen, rewards)

        gradient, auxiliary = jax.grad(loss, has_aux=True)(now.actor)
        finite = jnp.isfinite(optax.tree.norm(gradient))
        gradient = jax.tree.map(lambda g: jnp.where(finite, g, 0.0), gradient)
        change, moments = actor_optimizer.update(gradient, now.actor_moments)
        return _apply(now.actor, change), moments, auxiliary

    def step_critic(carry: tuple, key: Array, states: Array, targets: Array) -> tuple:
        critic, moments = carry
        some = jax.random.randint(key, (settings.critic_batch_size,), 0, len(states))
        gradient = jax.grad(lambda critic: ((critic.value(states[some]) - targets[some]) ** 2).mean())(critic)
        change, moments = critic_optimizer.update(gradient, moments)
        return (_apply(critic, change), moments), None

    def train(now: TrainState, key: Array) -> tuple[TrainState, Array]:
        starts_key, members_key, noise_key, critic_key = jax.random.split(key, 4)
        target = jax.tree.map(lambda t, c: t + settings.target_update_rate * (c - t), now.target, now.critic)
        drawn = draw_starts(settings, starts_key, model.task, region, now.rollout_ends)
        starts = drawn[: members * rows].reshape(members, rows, -1)
        chosen = model.select_members(jax.random.permutation(members_key, model.members)[:members])
        noise = _smooth_noise(settings, noise_key, (n, members, rows, now.actor.spec.control_dim), scales)
        actor, actor_moments, (seen, rewards) = step_actor(now, chosen, starts, noise)

        values, alive = target.value(seen.x), survival(chosen.task, seen.x)
        if alive is None:
            targets = td_targets(settings, rewards, values, step, keep).reshape(-1)
        else:  # given that the rollout has not terminated; zero where it has
            targets = td_targets(settings, rewards, values * alive.after, step, keep) / jnp.maximum(alive.before, 0.5)
            targets = jnp.where(alive.before > 0.5, targets, 0.0).reshape(-1)
        states = jnp.concatenate([starts[None], seen.x[:-1]]).reshape(-1, starts.shape[-1])
        valid = jnp.isfinite(states).all(axis=-1) & jnp.isfinite(targets)
        states, targets = jnp.where(valid[:, None], states, 0.0), jnp.where(valid, targets, 0.0)
        critic, critic_moments = jax.lax.scan(
            lambda carry, key: step_critic(carry, key, states, targets),
            (now.critic, now.critic_moments),
            jax.random.split(critic_key, settings.critic_steps),
        )[0]
        last = seen.x[-1].reshape(members * rows, -1)
        sound = (jnp.isfinite(last) & (jnp.abs(last) < 1.5 * region.limits)).all(axis=-1, keepdims=True)
        sound = sound if alive is None else sound & (alive.after[-1].reshape(-1, 1) > 0.5)
        ends = now.rollout_ends.at[: members * rows].set(jnp.where(sound, last, starts.reshape(last.shape)))
        return TrainState(actor, critic, target, actor_moments, critic_moments, ends), rewards.mean()

    return train


def _apply(network: Any, change: Any) -> Any:
    return optax.apply_updates(network, change)


class Round(NamedTuple):
    """The best policy of a round, and what it promises."""

    actor: Actor
    critic: Critic
    test: ImaginedTest
    before: ImaginedTest
    """The test of the policy that the round started from."""
    planned: Array
    """Mean b̃ of the last rollouts."""


@functools.partial(jax.jit, static_argnums=(0, 1))
def plan_round(
    settings: RoundSettings,
    integrate: Integrator,
    model: ImaginationModel,
    actor: Actor,
    critic: Critic,
    mean: Array,
    scales: TimeScales,
    region: PlanRegion,
    keys: tuple[Array, Array],
) -> Round:
    """One round: trains the actor in the model and returns the best of its snapshots and of the actor itself.

    Main arguments:
        model: the dynamics of imagined rollouts.
        actor, critic: what to continue from.
        mean: what is subtracted from the features while training [features].
        scales, region: when and where to plan; traced, so that one compiled program serves every update.
        keys: of the training and of the imagined tests; rounds with the same second key are comparable.
    """
    train_key, test_key = keys
    first_key, train_key = jax.random.split(train_key)
    networks = Normalized.of(actor, mean), Normalized.of(critic, mean)
    schedule = optax.cosine_decay_schedule(settings.actor_learning_rate, settings.steps, 0.05)
    optimizers = (
        optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule)),
        optax.adam(settings.critic_learning_rate),
    )
    parameters: tuple[Any, Any] = networks
    moments = [optimizer.init(network) for optimizer, network in zip(optimizers, parameters, strict=True)]
    ends = region.states[jax.random.randint(first_key, (settings.batch_size,), 0, region.size)]
    train = _train_step(settings, integrate, model, scales, region, optimizers)

    def train_and_snapshot(now: TrainState, key: Array) -> tuple[TrainState, tuple]:
        now, rewards = jax.lax.scan(train, now, jax.random.split(key, settings.steps // settings.snapshots))
        return now, (now.actor, now.critic, rewards.mean())

    begin = TrainState(networks[0], networks[1], networks[1], moments[0], moments[1], ends)
    _, (actors, critics, planned) = jax.lax.scan(
        train_and_snapshot, begin, jax.random.split(train_key, settings.snapshots)
    )
    join = lambda one, many: jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), one, many)  # noqa: E731
    actors, critics = join(networks[0], actors), join(networks[1], critics)
    test = lambda actor: imagined_test(settings, integrate, model, actor, scales, region, test_key)  # noqa: E731
    tests = jax.lax.map(test, actors)
    best = jax.vmap(lambda test: test.score)(tests).argmax()
    pick = lambda tree: jax.tree.map(lambda array: array[best], tree)  # noqa: E731
    found, before = pick(tests), jax.tree.map(lambda array: array[0], tests)
    return Round(pick(actors).fold(actor), pick(critics).fold(critic), found, before, planned[-1])

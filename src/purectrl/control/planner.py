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
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from purectrl.control.auto_settings import RoundSettings
from purectrl.control.imagination import (
    ImaginationModel,
    Imagined,
    clip_state_gradient,
    ornstein_uhlenbeck,
    planned_reward,
)
from purectrl.control.integrate import Integrator
from purectrl.control.networks import Layer, mlp
from purectrl.control.plan_starts import Draws, PlanRegion, draw_starts, index
from purectrl.control.policy import Actor, Critic
from purectrl.control.state_structure import project
from purectrl.control.termination import Survival, earned, survival
from purectrl.control.time_scales import TimeScales
from purectrl.systems.spec import StateSpec

DISCOUNT_UNITS = 5.0
"""τ in units of time: values are then of the same size on every system."""
QUICK_TO_COMPILE = {"xla_backend_optimization_level": 1}
"""On a CPU this compiles in two thirds of the time, and a round takes at most a tenth longer."""
INITIAL_STATES = 1024
"""Samples of x(0) per round, of which each step draws some."""


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
    """The same over the second half of an episode, and what comes after it."""

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
    method, the integrator of problems on a time grid, evaluates it once per step, so that controls are held there. States
    stay among those that can occur, see `StateStructure`.
    """
    limit = settings.state_grad_clip / math.prod(starts.shape[:-1])
    gap = jnp.full((*starts.shape[:-1], 1), step)

    def advance(x: Array, noise: Array) -> tuple[Array, Imagined]:
        scaled: Any = clip_state_gradient(x / spread, limit)
        x = spread * scaled
        x = x + jax.lax.stop_gradient(jnp.clip(x, -2 * limits, 2 * limits) - x)
        first, z = x, actor.before_tanh(x) + noise

        def rate(x: Array, s: Array) -> Array:
            # an integrator evaluates the drift at its first state, too: the actor is not evaluated there again
            return model.drift(x, actor.squash(z if x is first else actor.before_tanh(x) + noise))

        x = project(model.task, integrate(rate, x, gap))
        return x, Imagined(x, actor.squash(z), z)

    return jax.lax.scan(advance, project(model.task, starts), noise)[1]


def imagined_test(
    settings: RoundSettings,
    integrate: Integrator,
    model: ImaginationModel,
    actor: Normalized,
    scales: TimeScales,
    region: PlanRegion,
    key: Array,
) -> ImaginedTest:
    """Imagined episodes of `region.length` seconds that go on to `region.end`, but for at most `test_steps` steps."""
    starts = jax.vmap(model.task.sample_initial_state)(jax.random.split(key, settings.test_episodes))
    starts = jnp.broadcast_to(starts, (model.members, *starts.shape))
    no_noise = jnp.zeros((settings.test_steps, *starts.shape[:-1], actor.spec.control_dim))
    seen = roll_out(settings, integrate, model, actor, starts, no_noise, scales.step, region.limits, region.spread)
    rewards = earned(model.task, jnp.nan_to_num(model.task.reward(seen.x, seen.u)), seen.x)
    times = (jnp.arange(settings.test_steps) + 0.5) * scales.step
    whole, end = (jnp.minimum(length, settings.test_steps * scales.step) for length in (region.length, region.end))
    inside, late = times < whole, (times >= 0.5 * whole) & (times < end)
    mean = lambda used: jnp.where(used[:, None, None], rewards, 0.0).sum(axis=0) / used.sum()  # noqa: E731
    return ImaginedTest(mean(inside), mean(late))


class TrainState(NamedTuple):
    """What one step passes to the next. Networks are vectors of parameters: one array compiles faster than six."""

    actor: Array
    """[parameters]."""
    critic: Array
    """[parameters]."""
    target: Array
    """The slowly following critic that targets are computed with [parameters]."""
    actor_moments: Any
    critic_moments: Any
    rollout_ends: Array
    """Where the last rollouts ended [rows, d]."""


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


class Trainer(NamedTuple):
    """What one step needs besides the training state and its random numbers."""

    settings: RoundSettings
    integrate: Integrator
    model: ImaginationModel
    scales: TimeScales
    region: PlanRegion
    initial_states: Array
    """Samples of x(0) [n, d]."""
    as_actor: Callable[[Array], Normalized]
    """The actor with the given parameters."""
    as_critic: Callable[[Array], Normalized]
    optimizers: tuple[optax.GradientTransformation, optax.GradientTransformation]

    @property
    def step(self) -> Array:
        """Δt in units of time."""
        return DISCOUNT_UNITS * self.scales.step / jnp.asarray(self.scales.discount)

    @property
    def keep(self) -> Array:
        """γ = e^(−Δt/τ)."""
        return jnp.exp(-self.step / DISCOUNT_UNITS)

    def train(self, now: TrainState, draws: Draws) -> tuple[TrainState, Array]:
        """One step of the actor and several of the critic; also returns the mean b̃ of the rollouts."""
        model, settings = self.model, self.settings
        members = min(settings.ensemble_size, model.members)
        rows = settings.batch_size // members
        target = now.target + settings.target_update_rate * (now.critic - now.target)
        drawn = draw_starts(settings, draws, self.initial_states, self.region, now.rollout_ends)
        starts = drawn[: members * rows].reshape(members, rows, -1)
        chosen = model.select_members(jnp.argsort(draws.members)[:members])
        actor, actor_moments, (seen, rewards) = self._step_actor(now, chosen, starts, self._noise(draws))

        alive = survival(chosen.task, seen.x)
        states = jnp.concatenate([starts[None], seen.x[:-1]]).reshape(-1, starts.shape[-1])
        targets = self._targets(self.as_critic(target).value(seen.x), rewards, alive).reshape(-1)
        valid = jnp.isfinite(states).all(axis=-1) & jnp.isfinite(targets)
        states, targets = jnp.where(valid[:, None], states, 0.0), jnp.where(valid, targets, 0.0)
        critic, critic_moments = jax.lax.scan(
            lambda carry, some: self._step_critic(carry, states[some], targets[some]),
            (now.critic, now.critic_moments),
            index(draws.critic, len(states)),
        )[0]
        last = seen.x[-1].reshape(members * rows, -1)
        sound = (jnp.isfinite(last) & (jnp.abs(last) < 1.5 * self.region.limits)).all(axis=-1, keepdims=True)
        sound = sound if alive is None else sound & (alive.after[-1].reshape(-1, 1) > 0.5)
        ends = now.rollout_ends.at[: members * rows].set(jnp.where(sound, last, starts.reshape(last.shape)))
        return TrainState(actor, critic, target, actor_moments, critic_moments, ends), rewards.mean()

    def _noise(self, draws: Draws) -> Array:
        """An Ornstein-Uhlenbeck process for each row [steps, members, rows, k], with a size drawn for each row."""
        keep = jnp.exp(-self.scales.step / jnp.asarray(self.scales.noise))
        noise = ornstein_uhlenbeck(draws.first_noise, jnp.sqrt(1 - keep**2) * draws.kicks, keep)
        return self.settings.noise * draws.noise_size * noise

    def _step_actor(self, now: TrainState, chosen: ImaginationModel, starts: Array, noise: Array) -> tuple:
        """The actor's parameters and moments after one step; what was imagined and its rewards b̃."""
        region, n = self.region, self.settings.rollout_steps
        discounts = self.keep ** jnp.arange(n + 1)

        def loss(parameters: Array) -> tuple[Array, tuple[Imagined, Array]]:
            how = self.settings, self.integrate, chosen, self.as_actor(parameters)
            seen = roll_out(*how, starts, noise, self.scales.step, region.limits, region.spread)
            rewards = planned_reward(chosen.task, seen, region.limits)
            returns = jnp.cumsum(rewards * (self.step * discounts[:-1])[:, None, None], axis=0)
            values, alive = self.as_critic(now.critic).value(seen.x), survival(chosen.task, seen.x)
            values = values if alive is None else values * alive.after
            later = values * discounts[1:, None, None]
            return self.settings.action_l2 * (seen.z**2).mean() - (returns + later).mean(), (seen, rewards)

        gradient, auxiliary = jax.grad(loss, has_aux=True)(now.actor)
        gradient = jnp.where(jnp.isfinite(optax.tree.norm(gradient)), gradient, 0.0)
        change, moments = self.optimizers[0].update(gradient, now.actor_moments)
        return optax.apply_updates(now.actor, change), moments, auxiliary

    def _targets(self, values: Array, rewards: Array, alive: Survival | None) -> Array:
        """What the critic is fitted to [steps, members, rows]."""
        if alive is None:
            return td_targets(self.settings, rewards, values, self.step, self.keep)
        # given that the rollout has not terminated; zero where it has
        targets = td_targets(self.settings, rewards, values * alive.after, self.step, self.keep)
        return jnp.where(alive.before > 0.5, targets / jnp.maximum(alive.before, 0.5), 0.0)

    def _step_critic(self, carry: tuple[Array, Any], states: Array, targets: Array) -> tuple:
        """The critic's parameters and moments after one step of regression."""
        critic, moments = carry
        loss = lambda parameters: ((self.as_critic(parameters).value(states) - targets) ** 2).mean()  # noqa: E731
        change, moments = self.optimizers[1].update(jax.grad(loss)(critic), moments)
        return (optax.apply_updates(critic, change), moments), None


class Round(NamedTuple):
    """The best policy of a round, and what it promises."""

    actor: Actor
    critic: Critic
    test: ImaginedTest
    before: ImaginedTest
    """The test of the policy that the round started from."""
    last: tuple[Actor, Critic]
    """The networks at the end of the round, which may be worse."""
    planned: Array
    """Mean b̃ of the last rollouts."""


@functools.partial(jax.jit, static_argnums=(0, 1), compiler_options=QUICK_TO_COMPILE)
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
    first_key, initial_key, train_key = jax.random.split(train_key, 3)
    schedule = optax.cosine_decay_schedule(settings.actor_learning_rate, settings.steps, 0.05)
    optimizers = (
        optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule)),
        optax.adam(settings.critic_learning_rate),
    )
    actor_parameters, as_actor = ravel_pytree(Normalized.of(actor, mean))
    critic_parameters, as_critic = ravel_pytree(Normalized.of(critic, mean))
    moments = optimizers[0].init(actor_parameters), optimizers[1].init(critic_parameters)
    ends = region.states[jax.random.randint(first_key, (settings.batch_size,), 0, region.size)]
    initial_states = jax.vmap(model.task.sample_initial_state)(jax.random.split(initial_key, INITIAL_STATES))
    trainer = Trainer(settings, integrate, model, scales, region, initial_states, as_actor, as_critic, optimizers)

    def train_and_snapshot(now: TrainState, key: Array) -> tuple[TrainState, tuple]:
        draws = Draws.of(settings, model.members, actor.spec, key, settings.steps // settings.snapshots)
        now, rewards = jax.lax.scan(trainer.train, now, draws)
        return now, (now.actor, now.critic, rewards.mean())

    begin = TrainState(actor_parameters, critic_parameters, critic_parameters, *moments, ends)
    _, (actors, critics, planned) = jax.lax.scan(
        train_and_snapshot, begin, jax.random.split(train_key, settings.snapshots)
    )
    actors, critics = jnp.vstack([actor_parameters, actors]), jnp.vstack([critic_parameters, critics])
    tests = jax.lax.map(
        lambda parameters: imagined_test(settings, integrate, model, as_actor(parameters), scales, region, test_key),
        actors,
    )
    best = jax.vmap(lambda test: test.score)(tests).argmax()
    found, before = (jax.tree.map(lambda array, i=i: array[i], tests) for i in (best, 0))
    networks = lambda i: (as_actor(actors[i]).fold(actor), as_critic(critics[i]).fold(critic))  # noqa: E731
    return Round(*networks(best), found, before, networks(-1), planned[-1])

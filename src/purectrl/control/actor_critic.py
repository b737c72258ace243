"""Policy optimization in the model: the gradient of imagined rewards for the actor, a critic for the time after them.

symbol             here                            meaning
-----------------  ------------------------------- ---------------------------------------------------------------
H, τ               PlanSettings.horizon, .discount length of an imagined rollout; a reward t seconds away counts e^(−t/τ)
b̃                  planned_reward                  the reward that is planned with
R_h                discounted                      ∫_0^h e^(−t/τ) b̃ dt, as a sum over steps
V                  critic                          discounted reward from a state onwards

The objective is the mean over all horizons h ≤ H of R_h + e^(−h/τ) V(x_h), so that the policy learns from near and far
rewards at once. With the end of the horizon alone, CartPole stays in a local optimum.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from purectrl.control.imagination import (
    ImaginationModel,
    Region,
    TaskModel,
    control_noise,
    imagine,
    imagined_test,
    planned_reward,
)
from purectrl.control.integrate import Integrator
from purectrl.control.policy import Actor, Critic
from purectrl.control.settings import PlanSettings
from purectrl.control.termination import Survival, survival

REWARDED_ROOT = 0.3
"""Initial states of rollouts are drawn from the data in proportion to b^(1/0.3)."""


def discounted(plan: PlanSettings, rewards: Array) -> Array:
    """R_h after each step, [steps, ...] -> [steps, ...]."""
    times = jnp.arange(plan.rollout_steps) * plan.step
    weights = plan.step * jnp.exp(-times / plan.discount)
    return jnp.cumsum(rewards * weights.reshape(-1, *[1] * (rewards.ndim - 1)), axis=0)


def objective(plan: PlanSettings, returns: Array, values: Array) -> Array:
    """The mean over horizons of R_h + e^(−h/τ) V(x_h), then over rows, of all members or of the best for each row.

    Main arguments:
        returns: R_h [steps, members, rows].
        values: V(x_h) [steps, members, rows].
    """
    times = (jnp.arange(plan.rollout_steps) + 1) * plan.step
    later = values * jnp.exp(-times / plan.discount)[:, None, None]
    each = (returns + later).mean(axis=0)
    return each.max(axis=0).mean() if plan.objective == "optimistic" else each.mean()


def critic_targets(plan: PlanSettings, returns: Array, last_values: Array) -> Array:
    """The targets of V at the start and after each step but the last [steps, ...]: reward to the end of the horizon, and
    from there on the `last_values` [...] of the target network."""
    before = jnp.concatenate([jnp.zeros_like(returns[:1]), returns[:-1]])
    times = (jnp.arange(plan.rollout_steps) * plan.step).reshape(-1, *[1] * (returns.ndim - 1))
    rest = returns[-1] - before + math.exp(-plan.rollout_steps * plan.step / plan.discount) * last_values
    return rest * jnp.exp(times / plan.discount)


def ending_critic_targets(plan: PlanSettings, rewards: Array, last_values: Array, alive: Survival) -> Array:
    """As `critic_targets`, where rollouts may terminate: the targets given that they have not, and zero where they have.

    Main arguments:
        rewards: b̃ of each step, zero after the end [steps, ...].
        last_values: of the target network after the last step [...].
        alive: the survival of the rollouts.
    """
    keep = math.exp(-plan.step / plan.discount)

    def backwards(later: Array, reward: Array) -> tuple[Array, Array]:
        value = plan.step * reward + keep * later
        return value, value

    _, values = jax.lax.scan(backwards, alive.after[-1] * last_values, rewards, reverse=True)
    return jnp.where(alive.before > 0.5, values / jnp.maximum(alive.before, 0.5), 0.0)


class TrainState(NamedTuple):
    """What one step passes to the next."""

    actor: Actor
    critic: Critic
    target: Critic
    actor_moments: Any
    critic_moments: Any
    rollout_ends: Array
    """Where the last rollouts ended [rows, d]."""


def draw_starts(
    plan: PlanSettings, key: Array, task: TaskModel, region: Region, rewarded: Array, rollout_ends: Array
) -> Array:
    """Initial states of rollouts [members, rows/members, d] in random order: initial, rewarded, ends of rollouts, any."""
    rows, members = plan.batch_size, plan.ensemble_size
    initial, good, ends = (
        int(share * rows) for share in (plan.initial_share, plan.rewarded_share, plan.rollout_end_share)
    )
    initial_key, good_key, any_key, order_key = jax.random.split(key, 4)
    starts = jnp.concatenate(
        [
            jax.vmap(task.sample_initial_state)(jax.random.split(initial_key, initial)),
            rewarded[jax.random.randint(good_key, (good,), 0, len(rewarded))],
            rollout_ends[:ends],
            region.states[jax.random.randint(any_key, (rows - initial - good - ends,), 0, region.size)],
        ]
    )
    starts = jax.random.permutation(order_key, starts).reshape(members, rows // members, -1)
    return jnp.broadcast_to(starts[:1], starts.shape) if plan.objective == "optimistic" else starts


def _train_step(
    plan: PlanSettings,
    integrate: Integrator,
    model: ImaginationModel,
    region: Region,
    rewarded: Array,
    optimizers: tuple,
) -> Callable[[TrainState, Array], tuple[TrainState, Array]]:
    """One step of the actor and several of the critic, as a function of the training state and a key."""
    actor_optimizer, critic_optimizer = optimizers

    def step_actor(now: TrainState, model: ImaginationModel, starts: Array, noise: Array) -> tuple:
        def loss(actor: Actor) -> tuple[Array, tuple]:
            seen = imagine(plan, integrate, model, actor, starts, noise, region.limits)
            rewards = planned_reward(model.task, seen, region.limits)
            returns = discounted(plan, rewards)
            effort = plan.action_l2 * (seen.z**2).mean()
            values, alive = now.critic(seen.x), survival(model.task, seen.x)
            values = values if alive is None else values * alive.after
            return effort - objective(plan, returns, values), (seen, rewards, returns)

        gradient, auxiliary = jax.grad(loss, has_aux=True)(now.actor)
        finite = jnp.isfinite(optax.tree.norm(gradient))
        gradient = jax.tree.map(lambda g: jnp.where(finite, g, 0.0), gradient)
        change, moments = actor_optimizer.update(gradient, now.actor_moments)
        return _apply(now.actor, change), moments, auxiliary

    def step_critic(critic: Critic, moments: Any, key: Array, states: Array, targets: Array) -> tuple:
        def step(carry: tuple, key: Array) -> tuple:
            critic, moments = carry
            rows = jax.random.randint(key, (plan.critic_batch_size,), 0, len(states))
            gradient = jax.grad(lambda critic: ((critic(states[rows]) - targets[rows]) ** 2).mean())(critic)
            change, moments = critic_optimizer.update(gradient, moments)
            return (_apply(critic, change), moments), None

        return jax.lax.scan(step, (critic, moments), jax.random.split(key, plan.critic_steps))[0]

    def train(now: TrainState, key: Array) -> tuple[TrainState, Array]:
        starts_key, members_key, noise_key, critic_key = jax.random.split(key, 4)
        target = jax.tree.map(lambda t, c: t + plan.target_update_rate * (c - t), now.target, now.critic)
        starts = draw_starts(plan, starts_key, model.task, region, rewarded, now.rollout_ends)
        chosen = model.select_members(jax.random.permutation(members_key, model.members)[: plan.ensemble_size])
        shape = (plan.rollout_steps, *starts.shape[:-1], now.actor.spec.control_dim)
        noise = control_noise(plan, noise_key, shape)
        actor, actor_moments, (seen, rewards, returns) = step_actor(now, chosen, starts, noise)

        alive = survival(chosen.task, seen.x)
        if alive is None:
            targets = critic_targets(plan, returns, target(seen.x[-1]))
        else:
            targets = ending_critic_targets(plan, rewards, target(seen.x[-1]), alive)
        states = jnp.concatenate([starts[None], seen.x[:-1]]).reshape(-1, starts.shape[-1])
        critic, critic_moments = step_critic(now.critic, now.critic_moments, critic_key, states, targets.reshape(-1))
        last = seen.x[-1].reshape(plan.batch_size, -1)
        valid = (jnp.isfinite(last) & (jnp.abs(last) < 1.5 * region.limits)).all(axis=-1, keepdims=True)
        if alive is not None:
            valid &= alive.after[-1].reshape(-1, 1) > 0.5
        rollout_ends = jnp.where(valid, last, starts.reshape(plan.batch_size, -1))
        return TrainState(actor, critic, target, actor_moments, critic_moments, rollout_ends), rewards.mean()

    return train


def _apply(network: Any, change: Any) -> Any:
    return optax.apply_updates(network, change)


class OptimizedPolicy(NamedTuple):
    """The best snapshot, and its predicted rewards."""

    actor: Actor
    critic: Critic
    reward: Array
    """Mean b in imagined tests after three seconds, for each member [members]."""
    planned: Array
    """Mean b̃ of the rollouts before each snapshot [snapshots]."""


@functools.partial(jax.jit, static_argnums=(0, 1))
def optimize_policy(
    plan: PlanSettings,
    integrate: Integrator,
    model: ImaginationModel,
    actor: Actor,
    critic: Critic,
    key: Array,
    region: Region,
) -> OptimizedPolicy:
    """Optimizes the actor in the model and returns the snapshot with the highest imagined reward.

    Main arguments:
        model: the dynamics of imagined rollouts.
        actor, critic: what to continue from.
        key: a JAX key.
        region: where to plan.
    """
    train_key, good_key, first_key, test_key = jax.random.split(key, 4)
    optimizers = (
        optax.chain(
            optax.clip_by_global_norm(1.0),
            optax.adam(optax.cosine_decay_schedule(plan.actor_learning_rate, plan.steps, 0.05)),
        ),
        optax.adam(plan.critic_learning_rate),
    )
    idle = jnp.broadcast_to(jnp.asarray(actor.spec.control_mid), (len(region.states), actor.spec.control_dim))
    present = jnp.arange(len(region.states)) < region.size
    weights = jax.nn.softmax(jnp.where(present, model.task.log_reward(region.states, idle) / REWARDED_ROOT, -jnp.inf))
    rewarded = region.states[jax.random.choice(good_key, len(region.states), (2000,), p=weights)]
    rollout_ends = region.states[jax.random.randint(first_key, (plan.batch_size,), 0, region.size)]
    train = _train_step(plan, integrate, model, region, rewarded, optimizers)

    def train_and_snapshot(now: TrainState, key: Array) -> tuple[TrainState, tuple]:
        now, rewards = jax.lax.scan(train, now, jax.random.split(key, plan.steps // plan.snapshots))
        return now, (now.actor, now.critic, rewards.mean())

    networks: tuple[Any, Any] = actor, critic  # modules are trees of parameters
    actor_moments, critic_moments = (
        optimizer.init(network) for optimizer, network in zip(optimizers, networks, strict=True)
    )
    begin = TrainState(actor, critic, critic, actor_moments, critic_moments, rollout_ends)
    _, (actors, critics, planned) = jax.lax.scan(train_and_snapshot, begin, jax.random.split(train_key, plan.snapshots))
    test = lambda actor: imagined_test(plan, integrate, model, actor, test_key, region.limits)  # noqa: E731
    rewards = jax.lax.map(test, actors)
    best = rewards.mean(axis=1).argmax()
    actor, critic = jax.tree.map(lambda array: array[best], (actors, critics))
    return OptimizedPolicy(actor, critic, rewards[best], planned)

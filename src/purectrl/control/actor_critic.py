"""Policy improvement through the model: the gradient of imagined rewards for the actor, a critic for what comes later.

symbol             here                            meaning
-----------------  ------------------------------  ----------------------------------------------------------------
H, τ               Improving.horizon, .discount    length of an imagined rollout; a reward t seconds away counts e^(−t/τ)
b̃                  planned_reward                  the reward that is planned with
R_h                discounted                      ∫_0^h e^(−t/τ) b̃ dt, as a sum over steps
V                  critic                          discounted reward from a state on

The objective is the mean over all horizons h ≤ H of R_h + e^(−h/τ) V(x_h), so that the policy learns from near and far at
once. With the end of the horizon alone, CartPole stays in a local optimum.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purectrl.control.imagination import (
    Improving,
    Model,
    Region,
    World,
    control_noise,
    imagine,
    imagined_test,
    planned_reward,
)
from purectrl.control.integrate import Integrator
from purectrl.control.policy import Actor, Critic
from purectrl.core.problem import Array

REWARDED_ROOT = 0.3
"""Starts are drawn from the data in proportion to b^(1/0.3)."""


def discounted(improving: Improving, rewards: Array) -> Array:
    """R_h after each step, [steps, ...] -> [steps, ...]."""
    times = jnp.arange(improving.steps) * improving.step
    weights = improving.step * jnp.exp(-times / improving.discount)
    return jnp.cumsum(rewards * weights.reshape(-1, *[1] * (rewards.ndim - 1)), axis=0)


def objective(improving: Improving, returns: Array, values: Array) -> Array:
    """The mean over horizons of R_h + e^(−h/τ) V(x_h), then over rows, of all members or of the best for each row.

    Main arguments:
        returns: R_h [steps, members, rows].
        values: V(x_h) [steps, members, rows].
    """
    times = (jnp.arange(improving.steps) + 1) * improving.step
    later = values * jnp.exp(-times / improving.discount)[:, None, None]
    each = (returns + later).mean(axis=0)
    return each.max(axis=0).mean() if improving.optimistic else each.mean()


def critic_targets(improving: Improving, returns: Array, last_values: Array) -> Array:
    """What V should be at the start and after each step but the last [steps, ...]: reward to the end of the horizon, and
    from there on the target's `last_values` [...]."""
    before = jnp.concatenate([jnp.zeros_like(returns[:1]), returns[:-1]])
    times = (jnp.arange(improving.steps) * improving.step).reshape(-1, *[1] * (returns.ndim - 1))
    rest = returns[-1] - before + math.exp(-improving.steps * improving.step / improving.discount) * last_values
    return rest * jnp.exp(times / improving.discount)


class Training(NamedTuple):
    """What one iteration hands to the next."""

    actor: Actor
    critic: Critic
    target: Critic
    actor_memory: Any
    critic_memory: Any
    chained: Array
    """Where the last rollouts ended [rows, 2·nq]."""


def draw_starts(
    improving: Improving, key: Array, world: World, region: Region, rewarded: Array, chained: Array
) -> Array:
    """Starts [members, rows/members, 2·nq] in random order: box, rewarded, chained, any."""
    rows, members = improving.rows, improving.members
    box, good, chain = (int(share * rows) for share in (improving.box, improving.rewarded, improving.chained))
    box_key, good_key, any_key, order_key = jax.random.split(key, 4)
    starts = jnp.concatenate(
        [
            jax.vmap(world.start)(jax.random.split(box_key, box)),
            rewarded[jax.random.randint(good_key, (good,), 0, len(rewarded))],
            chained[:chain],
            region.states[jax.random.randint(any_key, (rows - box - good - chain,), 0, region.count)],
        ]
    )
    starts = jax.random.permutation(order_key, starts).reshape(members, rows // members, -1)
    return jnp.broadcast_to(starts[:1], starts.shape) if improving.optimistic else starts


def _iteration(
    improving: Improving, integrate: Integrator, model: Model, region: Region, rewarded: Array, optimisers: tuple
) -> Callable[[Training, Array], tuple[Training, Array]]:
    """One step of the actor and some of the critic, as a function of what is trained and a key."""
    actor_optimiser, critic_optimiser = optimisers

    def improve_actor(now: Training, model: Model, starts: Array, noise: Array) -> tuple:
        def loss(actor: Actor) -> tuple[Array, tuple]:
            seen = imagine(improving, integrate, model, actor, starts, noise, region.limits)
            rewards = planned_reward(improving, model.mechanism, seen, region.limits)
            returns = discounted(improving, rewards)
            effort = improving.calm * (seen.z**2).mean()
            return effort - objective(improving, returns, now.critic(seen.x)), (seen, rewards, returns)

        slope, aside = jax.grad(loss, has_aux=True)(now.actor)
        finite = jnp.isfinite(optax.tree.norm(slope))
        change, memory = actor_optimiser.update(
            jax.tree.map(lambda s: jnp.where(finite, s, 0.0), slope), now.actor_memory
        )
        return optax.apply_updates(now.actor, change), memory, aside

    def improve_critic(critic: Critic, memory: Any, key: Array, states: Array, targets: Array) -> tuple:
        def step(carry: tuple, key: Array) -> tuple:
            critic, memory = carry
            rows = jax.random.randint(key, (improving.critic_rows,), 0, len(states))
            slope = jax.grad(lambda critic: ((critic(states[rows]) - targets[rows]) ** 2).mean())(critic)
            change, memory = critic_optimiser.update(slope, memory)
            return (optax.apply_updates(critic, change), memory), None

        return jax.lax.scan(step, (critic, memory), jax.random.split(key, improving.critic_steps))[0]

    def iterate(now: Training, key: Array) -> tuple[Training, Array]:
        starts_key, members_key, noise_key, critic_key = jax.random.split(key, 4)
        target = jax.tree.map(lambda t, c: t + improving.target_rate * (c - t), now.target, now.critic)
        starts = draw_starts(improving, starts_key, model.mechanism, region, rewarded, now.chained)
        chosen = model.pick(jax.random.permutation(members_key, model.members)[: improving.members])
        shape = (improving.steps, *starts.shape[:-1], now.actor.mechanism.control_dim)
        noise = control_noise(improving, noise_key, shape)
        actor, actor_memory, (seen, rewards, returns) = improve_actor(now, chosen, starts, noise)

        targets = critic_targets(improving, returns, target(seen.x[-1]))
        states = jnp.concatenate([starts[None], seen.x[:-1]]).reshape(-1, starts.shape[-1])
        critic, critic_memory = improve_critic(now.critic, now.critic_memory, critic_key, states, targets.reshape(-1))
        ends = seen.x[-1].reshape(improving.rows, -1)
        sound = (jnp.isfinite(ends) & (jnp.abs(ends) < 1.5 * region.limits)).all(axis=-1, keepdims=True)
        chained = jnp.where(sound, ends, starts.reshape(improving.rows, -1))
        return Training(actor, critic, target, actor_memory, critic_memory, chained), rewards.mean()

    return iterate


class Improved(NamedTuple):
    """The best snapshot, and what it promises."""

    actor: Actor
    critic: Critic
    reward: Array
    """b in imagined tests after three seconds, for each member [members]."""
    planned: Array
    """Mean b̃ of the rollouts in each fifth of the iterations [snapshots]."""


@functools.partial(jax.jit, static_argnums=(0, 1))
def improve(
    improving: Improving, integrate: Integrator, model: Model, actor: Actor, critic: Critic, key: Array, region: Region
) -> Improved:
    """Improves the actor under the model and returns the snapshot with the highest imagined reward.

    Main arguments:
        model: what imagined rollouts follow.
        actor, critic: where to go on from.
        key: a JAX key.
        region: where to plan.
    """
    train_key, good_key, first_key, test_key = jax.random.split(key, 4)
    optimisers = (
        optax.chain(
            optax.clip_by_global_norm(1.0),
            optax.adam(optax.cosine_decay_schedule(improving.actor_rate, improving.iterations, 0.05)),
        ),
        optax.adam(improving.critic_rate),
    )
    idle = jnp.zeros((len(region.states), actor.mechanism.control_dim))
    there = jnp.arange(len(region.states)) < region.count
    weights = jax.nn.softmax(
        jnp.where(there, model.mechanism.log_reward(region.states, idle) / REWARDED_ROOT, -jnp.inf)
    )
    rewarded = region.states[jax.random.choice(good_key, len(region.states), (2000,), p=weights)]
    chained = region.states[jax.random.randint(first_key, (improving.rows,), 0, region.count)]
    iterate = _iteration(improving, integrate, model, region, rewarded, optimisers)

    def fifth(now: Training, key: Array) -> tuple[Training, tuple]:
        now, rewards = jax.lax.scan(iterate, now, jax.random.split(key, improving.iterations // improving.snapshots))
        return now, (now.actor, now.critic, rewards.mean())

    begin = Training(actor, critic, critic, optimisers[0].init(actor), optimisers[1].init(critic), chained)
    _, (actors, critics, planned) = jax.lax.scan(fifth, begin, jax.random.split(train_key, improving.snapshots))
    test = lambda actor: imagined_test(improving, integrate, model, actor, test_key, region.limits)  # noqa: E731
    rewards = jax.lax.map(test, actors)
    best = rewards.mean(axis=1).argmax()
    actor, critic = jax.tree.map(lambda array: array[best], (actors, critics))
    return Improved(actor, critic, rewards[best], planned)

"""Deep PILCO: the gradient of the reward along particles through an ensemble of transitions, without a critic.

symbol         here                meaning
-------------  ------------------  ----------------------------------------------------------------------------------
p              period              time for which a control is held: from one measurement to the next
f_1 … f_E      model.drift         networks for (x(t + p) − x(t))/p; particle i follows f_i
x_t^i          Particles.x         particle i after t steps: x_{t+1}^i = x_t^i + p f_i(x_t^i, π(x_t^i))
J(π)           particle_return     the mean over particles, initial states and steps of the reward

Gal, McAllister, Rasmussen: Improving PILCO with Bayesian neural network dynamics models, 2016. There a particle follows one
draw of dropout, and after each step all particles are drawn anew from a normal distribution with their moments. Here
ensemble members take the place of draws, and particles are drawn anew if `moment_matching` is set, for each initial state.
"""

import functools
import math
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

from purectrl.control.deep_pilco_settings import DeepPilco, ParticleSettings
from purectrl.control.divergence import MAX_RELATIVE_SIZE, finite, relative_weight_norm
from purectrl.control.dynamics import DynamicsModel
from purectrl.control.imagination import ImaginationModel, Imagined, Region, bounded_state, planned_reward
from purectrl.control.integrate import euler
from purectrl.control.pets import random_control, transition_data, transition_model
from purectrl.control.policy import Actor
from purectrl.control.termination import without_unseen_ends
from purectrl.core.keys import Key
from purectrl.core.learner import Learner, Update
from purectrl.core.ledger import Budget
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.plan import Plan
from purectrl.core.problem import Problem
from purectrl.core.samplers import Sampler
from purectrl.core.schedules import Targets
from purectrl.systems.compiled import jax_key
from purectrl.systems.spec import StateProblem, StateSpec

LEARNING_RATE_DECAY = 0.05
"""The last learning rate, as a share of the first."""


class HeldActor(eqx.Module):
    """A `HeldPolicy`: the actor, whose control is held. Before the first update the controls are smooth noise.

    Main arguments:
        actor: the policy.
        trained: 0 before the first update, then 1.
    """

    actor: Actor
    trained: float
    period: float = eqx.field(static=True)

    def begin(self, key: Array) -> Array:
        """The words of the key of the episode."""
        return jax.random.key_data(key)

    def decide(self, memory: Array, x: Float[Array, " d"], t: Any) -> tuple[Array, Array]:
        """The control at state x; nothing is remembered but the key."""
        noise = random_control(self.actor.spec, memory, t, self.period)
        return jnp.where(jnp.asarray(self.trained) > 0, self.actor(x), noise), memory

    def __call__(self, x: Float[Array, "*rows d"], t: Any = 0.0) -> Float[Array, "*rows k"]:
        """The control at state x."""
        return self.actor(x)


def match_moments(x: Float[Array, "members rows d"], key: Array) -> Float[Array, "members rows d"]:
    """Particles with independent coordinates, drawn from normal distributions with the moments of those of each row."""
    mean, members = x.mean(axis=0), len(x)
    variance = ((x - mean) ** 2).sum(axis=0) / (members - 1)
    return mean + jnp.sqrt(variance + 1e-12) * jax.random.normal(key, x.shape)  # differentiable where particles agree


def particle_return(
    plan: ParticleSettings,
    period: float,
    model: ImaginationModel,
    actor: Actor,
    starts: Float[Array, "rows d"],
    limits: Float[Array, " d"],
    key: Array,
) -> tuple[Array, Imagined]:
    """J(π), less the effort before tanh, and the particles."""
    x = jnp.broadcast_to(starts, (model.members, *starts.shape))
    clip, gap = plan.state_grad_clip / math.prod(x.shape[:-1]), jnp.full((*x.shape[:-1], 1), period)

    def advance(x: Array, key: Array) -> tuple[Array, Imagined]:
        x = bounded_state(x, limits, clip)
        z = actor.before_tanh(x)
        u = actor.squash(z)
        x = euler(lambda x, s: model.drift(x, u), x, gap)
        x = match_moments(x, key) if plan.moment_matching else x
        return x, Imagined(x, u, z)

    _, seen = jax.lax.scan(advance, x, jax.random.split(key, plan.horizon))
    return planned_reward(model.task, seen, limits).mean() - plan.action_l2 * (seen.z**2).mean(), seen


@functools.partial(jax.jit, static_argnums=(0, 1))
def improve(
    plan: ParticleSettings, period: float, model: ImaginationModel, actor: Actor, key: Array, region: Region
) -> tuple[Actor, Array]:
    """The policy after `plan.steps` steps of Adam from `actor` on, and J(π) along them [steps]."""
    schedule = optax.cosine_decay_schedule(plan.learning_rate, plan.steps, LEARNING_RATE_DECAY)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))
    initial = round(plan.initial_share * plan.batch_size)

    def step(carry: tuple[Any, Any], key: Array) -> tuple[tuple[Any, Any], Array]:
        actor, moments = carry
        start_key, any_key, particle_key = jax.random.split(key, 3)
        begins = jax.vmap(model.task.sample_initial_state)(jax.random.split(start_key, max(initial, 1)))[:initial]
        others = region.states[jax.random.randint(any_key, (plan.batch_size - initial,), 0, region.size)]
        starts = jnp.concatenate([begins, others])
        value = lambda actor: particle_return(plan, period, model, actor, starts, region.limits, particle_key)[0]  # noqa: E731
        found, gradient = jax.value_and_grad(value)(actor)
        sound = jnp.isfinite(optax.tree.norm(gradient))
        gradient = jax.tree.map(lambda g: jnp.where(sound, -g, 0.0), gradient)
        change, moments = optimizer.update(gradient, moments)
        return (optax.apply_updates(actor, change), moments), found

    parameters: Any = actor  # a module is a tree of parameters
    (actor, _), returns = jax.lax.scan(
        step, (parameters, optimizer.init(parameters)), jax.random.split(key, plan.steps)
    )
    return actor, returns


class PilcoState(NamedTuple):
    """Everything that was learned."""

    model: Any
    """An `ImaginationModel`."""
    actor: Actor
    trained: float
    """0 before the first update, then 1."""


@dataclass(frozen=True)
class PilcoLearner:
    """Fits the ensemble to all transitions, then improves the policy along particles.

    Main arguments:
        spec: dimensions, features and control limits.
        dynamics: how the ensemble is created, fitted and checked.
        plan: the settings of the optimization.
        period: time between two decisions.

    Other arguments:
        quotients: whether drifts are taken from pairs of measurements even if they were measured, at an instant.
    """

    spec: StateSpec
    dynamics: DynamicsModel
    plan: ParticleSettings
    period: float
    quotients: bool

    def init(self, key: Key) -> PilcoState:
        """Untrained networks; the first controls are random."""
        actor = Actor.random(key.child("actor").generator(), self.spec, (self.plan.width,) * 2)
        return PilcoState(self.dynamics.init(key), actor, 0.0)

    def policy(self, state: PilcoState) -> Plan:
        """The actor; the problem draws the initial state."""
        return Plan(HeldActor(state.actor, state.trained, self.period), None)

    def update(self, state: PilcoState, data: Dataset, which: Targets, key: Key) -> Update:
        """Fits the ensemble, then improves the policy. A part that diverges leaves what was there."""
        begin, seen, first = time.perf_counter(), transition_data(data.all, self.quotients), not state.trained
        model, info = self.dynamics.fit(state.model, seen, which, first, key)
        if diverged := self.dynamics.check_fit(state.model, model, seen):
            reason = f"{diverged}: model and policy stay as they were"
            return Update(state, {}, {"fit": time.perf_counter() - begin}, reason)
        fitted = time.perf_counter()
        actor, returns = self._improve(state.actor, model, seen, first, key)
        seconds = {"fit": fitted - begin, "plan": time.perf_counter() - fitted}
        if not finite(actor) or relative_weight_norm(actor.layers) > MAX_RELATIVE_SIZE:
            return Update(state._replace(model=model), info, seconds, "the policy diverged: it stays as it was")
        tenth = max(1, len(returns) // 10)
        info = {**info, "planned_first": float(returns[:tenth].mean()), "planned_last": float(returns[-tenth:].mean())}
        return Update(PilcoState(model, actor, 1.0), info, seconds)

    def _improve(self, actor: Actor, model: Any, seen: Measurements, first: bool, key: Key) -> tuple[Actor, np.ndarray]:
        """The improved policy, and J(π) along the steps."""
        region = self.dynamics.region(seen)
        if first:
            actor = eqx.tree_at(lambda actor: actor.scale, actor, self.dynamics.feature_scale(region))
        inside = without_unseen_ends(model, seen)
        actor, returns = improve(self.plan, self.period, inside, actor, jax_key(key.child("policy")), region)
        return actor, np.asarray(returns)


def build_learner(settings: DeepPilco, problem: Problem, budget: Budget, sampler: Sampler) -> Learner:
    """The learner that `settings` describe, for a problem with states and controls."""
    assert isinstance(problem, StateProblem)
    spec, dynamics, period = transition_model(problem, budget, sampler, settings.model, settings.fit)
    return PilcoLearner(spec, dynamics, settings.plan, period, quotients=problem.time_grid is None)

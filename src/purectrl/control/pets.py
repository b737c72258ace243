"""PETS: an ensemble of networks for the next state, and model predictive control by the cross-entropy method.

symbol         here                     meaning
-------------  -----------------------  --------------------------------------------------------------------------
p              period                   time for which a control is held: from one measurement to the next
f_1 … f_E      model.drift              networks for (x(t + p) − x(t))/p, which one Euler step of length p inverts
H              plan.horizon             steps of a plan
u_0 … u_{H−1}  PlanningMemory.sequence  the plan; the next decision begins with u_1 … u_{H−1}, u_{H−1}
particles      expected_return          one per network: TS∞ keeps the network of a particle, TS1 exchanges all in each step

Chua, Calandra, McAllister, Levine: Deep reinforcement learning in a handful of trials using probabilistic dynamics models,
2018. Its networks also predict the variance of the next state; those here do not (its "DE" instead of "PE"). With networks
without noise, particles that share one would be equal, so there is one for each.
"""

import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from purectrl.control.black_box import BlackBoxDynamics
from purectrl.control.dynamics import DynamicsModel
from purectrl.control.exploring_policy import smooth_noise
from purectrl.control.imagination import ImaginationModel
from purectrl.control.integrate import euler
from purectrl.control.pets_settings import Pets, ReplanSettings, TransitionModelSettings
from purectrl.control.sequence_search import SearchSettings, search_sequence
from purectrl.control.settings import FitSettings
from purectrl.control.termination import earned
from purectrl.core.keys import Key
from purectrl.core.learner import Learner, Update
from purectrl.core.ledger import Budget
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.plan import Plan
from purectrl.core.problem import Problem
from purectrl.core.samplers import Sampler, Snapped, Windows
from purectrl.core.schedules import Targets
from purectrl.systems.spec import StateProblem, StateSpec

NOISE_PERIODS = 3.0, 30.0
"""The correlation time of the controls of the first episodes is drawn between these, in periods."""
MAX_GAP = 1.5
"""Measurements further apart than this, in periods, do not form a transition."""


class PlanningMemory(NamedTuple):
    """What one decision leaves for the next."""

    sequence: Array
    """Where the next search begins [H, k]."""
    key: Array
    """The words of the JAX key of the episode, for the controls before the first update."""


class Steps(NamedTuple):
    """The steps of a plan in a problem."""

    period: float
    """p."""
    end: float | None
    """When the final state is rewarded; None if it is not."""


class PlanningPolicy(eqx.Module):
    """A `HeldPolicy`: plans at every decision, executes the first control of the plan. Before the first update the controls
    are smooth noise.

    Main arguments:
        model: an `ImaginationModel`.
        words: of the JAX key that the sampled plans are drawn from [2]; they depend on the time, not on the episode.
        trained: 0 before the first update, then 1.
        ends: 1 if it is known in which states episodes terminate, else 0.
    """

    model: Any
    words: Any
    trained: float
    ends: float
    plan: ReplanSettings = eqx.field(static=True)
    steps: Steps = eqx.field(static=True)
    spec: StateSpec = eqx.field(static=True)

    @property
    def period(self) -> float:
        """p."""
        return self.steps.period

    def begin(self, key: Array) -> PlanningMemory:
        """A plan of controls in the middle of their range."""
        middle = jnp.asarray(self.spec.control_mid, jnp.float32)
        return PlanningMemory(jnp.tile(middle, (self.plan.horizon, 1)), jax.random.key_data(key))

    def decide(self, memory: PlanningMemory, x: Float[Array, " d"], t: Any) -> tuple[Array, PlanningMemory]:
        """The first control of a new plan, and the rest of it."""
        number = jnp.asarray(t / self.period + 0.5, jnp.int32)
        key = jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(self.words, jnp.uint32)), number)

        def planned(_: None) -> Array:
            return self._search(memory.sequence, x, t, key)

        def explored(_: None) -> Array:
            return jnp.broadcast_to(random_control(self.spec, memory.key, t, self.period), memory.sequence.shape)

        found = jax.lax.cond(jnp.asarray(self.trained) > 0, planned, explored, None)
        return found[0], memory._replace(sequence=jnp.concatenate([found[1:], found[-1:]]))

    def __call__(self, x: Float[Array, " d"], t: Any = 0.0) -> Float[Array, " k"]:
        """The first control of a plan that is searched without an earlier one."""
        return self.decide(self.begin(jax.random.key(0)), x, t)[0]

    def _search(self, sequence: Array, x: Array, t: Any, key: Array) -> Array:
        """The best plan of the cross-entropy method [H, k]."""
        plan, spec = self.plan, self.spec
        search = SearchSettings("cem", plan.iterations, plan.population, plan.knots, plan.elites / plan.population)
        limits = (jnp.asarray(limit, jnp.float32) for limit in (spec.control_low, spec.control_high))
        search_key, particle_key = jax.random.split(key)
        where = self.steps, spec, x, t
        cost = lambda u: -expected_return(self.model, plan, *where, u, particle_key, self.ends)  # noqa: E731
        std = plan.deviation * jnp.asarray(spec.control_half_range, jnp.float32)
        return search_sequence(search, cost, search_key, sequence, std, *limits)[0]


def random_control(spec: StateSpec, words: Array, t: Any, period: float) -> Float[Array, " k"]:
    """The control at time t of an episode before the first update, smooth with a random correlation time.

    Main arguments:
        words: of the JAX key of the episode [2].
        period: time between two decisions.
    """
    length_key, noise_key = jax.random.split(jax.random.wrap_key_data(words))
    shortest, longest = (periods * period for periods in NOISE_PERIODS)
    length = shortest * (longest / shortest) ** jax.random.uniform(length_key)
    return spec.unscale_control(jnp.tanh(smooth_noise(noise_key, spec.control_dim, length)(t)))


def expected_return(
    model: ImaginationModel,
    plan: ReplanSettings,
    steps: Steps,
    spec: StateSpec,
    x: Float[Array, " d"],
    t: Any,
    u: Float[Array, "H k"],
    key: Array,
    ends: Any = 1.0,
) -> Array:
    """The mean over particles of the reward that a plan collects from state x and time t on, a scalar.

    Problems that reward the final state end at their horizon: nothing counts after it. Where the logarithm of the reward is
    known, the plan maximizes the mixture of its roots that other planners of this package use.
    """
    members, task = model.members, model.task
    gap = jnp.full((members, 1, 1), steps.period)
    orders = jax.vmap(lambda key: jax.random.permutation(key, members))(jax.random.split(key, len(u)))

    def advance(x: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        u, order = inputs
        held = jnp.broadcast_to(u, (members, 1, *u.shape))
        x = euler(lambda x, s: model.drift(x, held), x, gap)
        x = x[order] if plan.trajectory_sampling == "ts-1" else x
        return x, x

    start = jnp.broadcast_to(x, (members, 1, *x.shape))
    _, after = jax.lax.scan(advance, start, (u, orders))
    before = jnp.concatenate([start[None], after[:-1]])
    held = jnp.broadcast_to(u[:, None, None], (*before.shape[:-1], u.shape[-1]))
    rewards = task.planning_reward(before, held, jnp.zeros(before.shape[:-1]))
    rewards = jnp.where(ends > 0, earned(task, rewards, after), rewards).mean(axis=(1, 2))
    rewards = rewards * (jnp.asarray(task.reward_unit) * steps.period)
    if steps.end is None or spec.terminal_reward is None:
        return rewards.sum()
    left = jnp.round((steps.end - t) / steps.period) - jnp.arange(len(u))  # steps to the end, this one included
    final = jnp.vectorize(spec.terminal_reward, signature="(d)->()")(after).mean(axis=(1, 2))
    return jnp.where(left >= 1, rewards, 0.0).sum() + jnp.where(left == 1, final, 0.0).sum()


class PetsState(NamedTuple):
    """Everything that was learned."""

    model: Any
    """An `ImaginationModel`."""
    words: np.ndarray
    """Of the key that plans are drawn from [2]."""
    trained: float
    """0 before the first update, then 1."""
    ends: float
    """Whether the model knows in which states episodes terminate: not before one has."""


@dataclass(frozen=True)
class PetsLearner:
    """Fits the ensemble to all transitions; the policy plans in it.

    Main arguments:
        spec: dimensions and control limits.
        dynamics: how the ensemble is created, fitted and checked.
        plan: the settings of decisions.
        steps: their period, and the end of the problem.

    Other arguments:
        quotients: whether drifts are taken from pairs of measurements even if they were measured, at an instant.
    """

    spec: StateSpec
    dynamics: DynamicsModel
    plan: ReplanSettings
    steps: Steps
    quotients: bool

    def init(self, key: Key) -> PetsState:
        """Untrained networks; the first controls are random."""
        return PetsState(self.dynamics.init(key), np.zeros(2, np.uint32), trained=0.0, ends=0.0)

    def policy(self, state: PetsState) -> Plan:
        """The planner; the problem draws the initial state."""
        return Plan(PlanningPolicy(*state, self.plan, self.steps, self.spec), None)

    def update(self, state: PetsState, data: Dataset, which: Targets, key: Key) -> Update:
        """Fits the ensemble. A fit that diverges leaves the previous one."""
        begin, seen = time.perf_counter(), transition_data(data.all, self.quotients)
        model, info = self.dynamics.fit(state.model, seen, which, not state.trained, key)
        diverged = self.dynamics.check_fit(state.model, model, seen)
        seconds = {"fit": time.perf_counter() - begin}
        if diverged:
            return Update(state, {}, seconds, f"{diverged}: the model stays as it was")
        words = np.asarray(key.child("plans").jax_key_data(), np.uint32)
        ends = float(self.spec.terminated is not None or seen.terminated.any())
        return Update(PetsState(model, words, 1.0, ends), info, seconds)


def transition_data(seen: Measurements, quotients: bool) -> Measurements:
    """The measurements, without drifts that are not those of a whole step."""
    return replace(seen, y=None) if quotients else seen


def transition_model(
    problem: StateProblem, budget: Budget, sampler: Sampler, model: TransitionModelSettings, fit: FitSettings
) -> tuple[StateSpec, BlackBoxDynamics, float]:
    """What a learner of transitions may know, its ensemble, and the time between two decisions.

    That dq/dt = v is not used: it does not hold for the mean velocity of a step.
    """
    inner = sampler.sampler if isinstance(sampler, Snapped) else sampler
    assert isinstance(inner, Windows)
    period = problem.time_grid or inner.step
    spec = replace(problem.spec, velocities=())
    if spec.mechanics is not None:
        spec = replace(spec, log_reward=spec.mechanics.log_reward)
    episodes = spec.most_episodes(budget.measurements, sampler.m)
    fit = replace(fit, max_gap=MAX_GAP * period)
    size = model.ensemble_size, model.width
    return spec, BlackBoxDynamics(spec, fit, budget.measurements, episodes, euler, *size), period


def build_learner(settings: Pets, problem: Problem, budget: Budget, sampler: Sampler) -> Learner:
    """The learner that `settings` describe, for a problem with states and controls."""
    assert isinstance(problem, StateProblem)
    spec, dynamics, period = transition_model(problem, budget, sampler, settings.model, settings.fit)
    steps = Steps(period, None if spec.terminal_reward is None else problem.horizon)
    return PetsLearner(spec, dynamics, settings.plan, steps, quotients=problem.time_grid is None)

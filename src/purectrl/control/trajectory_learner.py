"""The learner of OCoRL and its relatives: a model with uncertainty, an optimistic trajectory, feedback along it.

symbol            here                       meaning
----------------  -------------------------  -----------------------------------------------------------------
μ, σ              predictor(model)           mean and standard deviation of the drift
β                 plan.strength              how many standard deviations are plausible
(x*, u*, η*)      optimize_plan              the best trajectory of all plausible systems
(x̄, ū, K)         optimize_plan              what follows x* best under μ, and its feedback: the policy
Σ_j               uncertainty(...)           posterior covariance of dx_j/dt among times along x̄

The released code solves the tracking problem again every 20 ms. Here it is solved once per update, over the whole episode,
and its time-varying feedback answers deviations, as a new solution would to first order.
"""

import functools
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.control.black_box import BlackBoxDynamics
from purectrl.control.divergence import finite
from purectrl.control.dynamics import DynamicsModel
from purectrl.control.gp_dynamics import GpDynamics, GpModel
from purectrl.control.ilqr import Task, Trajectory, ilqr, rollout
from purectrl.control.integrate import euler, midpoint
from purectrl.control.optimism import Discretization, planning_task, reward_function, tracking_task
from purectrl.control.sequence_search import SearchSettings, search_sequence
from purectrl.control.tracking import TrackingPolicy
from purectrl.control.trajectory_settings import Trajectory as TrajectorySettings
from purectrl.control.trajectory_settings import TrajectoryPlanSettings
from purectrl.core.keys import Key
from purectrl.core.learner import Learner, Update
from purectrl.core.ledger import Budget
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.plan import Plan
from purectrl.core.problem import Problem
from purectrl.core.samplers import Sampler
from purectrl.core.schedules import Targets
from purectrl.core.uncertainty import Uncertainty, interpolated
from purectrl.systems.compiled import jax_key
from purectrl.systems.spec import StateProblem, StateSpec

MAX_ETA = 3.0
"""Limit of hallucinated controls before tanh, which is 0.995 there."""
GUESS_SHARE = 0.3
"""Size of random initial guesses, as a share of half the range of a control."""


class TrajectoryState(NamedTuple):
    """Everything that was learned."""

    model: Any
    """An `ImaginationModel`."""
    policy: TrackingPolicy
    """The plan and its feedback."""
    controls: np.ndarray
    """(u*, η*), where the next optimization begins [n, controls]."""


class OptimizedPlan(NamedTuple):
    """What an update finds."""

    optimistic: Trajectory
    """x* and (u*, η*)."""
    tracked: Trajectory
    """x̄, ū and K."""
    predicted: Array
    """The cost of (x̄, ū)."""


@dataclass(frozen=True)
class TrajectoryLearner:
    """Fits a model, optimizes a trajectory in it, follows it.

    Main arguments:
        grid: the problem and the time steps of a plan.
        dynamics: how the model is created, fitted and checked.
        settings: of the optimization.
    """

    grid: Discretization
    dynamics: DynamicsModel
    settings: TrajectoryPlanSettings

    def init(self, key: Key) -> TrajectoryState:
        """The prior; the first episodes execute a sine."""
        spec, n = self.grid.spec, self.grid.steps
        d, k = spec.state_dim, spec.control_dim
        u = np.tile(np.array(spec.control_mid), (n, 1))
        first = float(self.settings.first_amplitude)
        policy = TrackingPolicy(np.zeros((n + 1, d)), u, np.zeros((n, k, d)), first, self.grid.step, spec)
        eta = np.zeros((n, d if self.settings.exploration == "hallucinated" else 0))
        return TrajectoryState(self.dynamics.init(key), policy, np.concatenate([u, eta], axis=1))

    def policy(self, state: TrajectoryState) -> Plan:
        """The plan with its feedback; the problem draws the initial state."""
        return Plan(state.policy, None)

    def update(self, state: TrajectoryState, data: Dataset, which: Targets, key: Key) -> Update:
        """Fits the model to all data, then optimizes the trajectory in it. A part that diverges leaves what was there."""
        begin, seen = time.perf_counter(), data.all
        first = bool(state.policy.first)
        model, info = self.dynamics.fit(state.model, seen, which, first, key)
        if diverged := self.dynamics.check_fit(state.model, model, seen):
            reason = f"{diverged}: model and plan stay as they were"
            return Update(state, {}, {"fit": time.perf_counter() - begin}, reason)
        fitted = time.perf_counter()
        with jax.enable_x64(True):
            guesses = _guesses(self.settings, self.grid, state.controls, key)
            start = initial_state(self.grid.spec, seen)
            found = optimize_plan(self.settings, self.grid, model, start, guesses, jax_key(key.child("search")))
            found = jax.tree.map(np.asarray, found)
        seconds = {"fit": fitted - begin, "plan": time.perf_counter() - fitted}
        if not finite(found):
            state = state._replace(model=model)
            return Update(state, info, seconds, "the plan diverged: plan and feedback stay as they were")
        x, u, gains = found.tracked[:3]
        policy = TrackingPolicy(x, u, gains, 0.0, self.grid.step, self.grid.spec)
        info |= {
            "planned_return": -float(found.optimistic.cost),
            "predicted_return": -float(found.predicted),
            "plan_iterations": int(found.optimistic.iterations),
        }
        return Update(TrajectoryState(model, policy, found.optimistic.u), info, seconds)

    def uncertainty(self, state: TrajectoryState, times: np.ndarray, key: Key) -> Uncertainty:
        """The covariance of the drift along the trajectory that the mean model predicts, and of the reward under members."""
        with jax.enable_x64(True):
            if isinstance(state.model, GpModel):
                covariance = np.asarray(_covariance(state.model, state.policy, jnp.asarray(times)))
                noise = state.model.noise
            else:
                drifts = np.asarray(_member_drifts(state.model, state.policy, jnp.asarray(times)))
                covariance = Uncertainty.of_members(drifts, drifts[..., 0]).covariance
                noise = np.zeros(covariance.shape[0])
            rewards = np.asarray(_member_rewards(self.grid, state.model, state.policy))
        rewards = np.nan_to_num(rewards, nan=0.0)[..., None]
        rewards = interpolated(rewards, np.arange(rewards.shape[1]) * self.grid.step, times)
        return Uncertainty(covariance, noise, Uncertainty.of_members(rewards, rewards[..., 0]).reward)


def initial_state(spec: StateSpec, seen: Measurements) -> np.ndarray:
    """Where a plan begins [d]: the known initial state, else the mean of those measured at t = 0, or of the first ones."""
    if spec.initial_state is not None:
        return np.array(spec.initial_state)
    at_zero = seen.t[:, 0] <= 1e-9 * max(float(seen.t.max()), 1.0)
    return seen.x[at_zero if at_zero.any() else slice(None), 0].mean(axis=0, dtype=np.float64)


def _guesses(settings: TrajectoryPlanSettings, grid: Discretization, last: np.ndarray, key: Key) -> np.ndarray:
    """Where the optimization begins [restarts, n, controls]: the last plan, no control, smooth random ones."""
    spec, (n, controls) = grid.spec, last.shape
    k = spec.control_dim
    waves = np.cos(np.pi * np.arange(4) * (np.arange(n) + 0.5)[:, None] / n)  # [n, 4]
    random = key.child("guesses").generator().standard_normal((settings.restarts, 4, k))
    guesses = np.zeros((settings.restarts, n, controls))
    guesses[..., :k] = np.array(spec.control_mid) + GUESS_SHARE * np.array(spec.control_half_range) * (waves @ random)
    guesses[0] = last
    if settings.restarts > 1:
        guesses[1, :, :k] = np.array(spec.control_mid)
    return guesses


@functools.partial(jax.jit, static_argnums=(0, 1))
def optimize_plan(
    settings: TrajectoryPlanSettings, grid: Discretization, model: Any, start: Array, guesses: Array, key: Array
) -> OptimizedPlan:
    """The best of the trajectories that are found from the guesses, and what follows it under the mean model.

    Main arguments:
        start: x(0) [d].
        guesses: initial controls [restarts, n, controls].
        key: a JAX key, for searches by sampling.
    """
    spec = grid.spec
    dtype = guesses.dtype
    eta = jnp.full(guesses.shape[-1] - spec.control_dim, MAX_ETA, dtype)
    low = jnp.concatenate([jnp.asarray(spec.control_low, dtype), -eta])
    high = jnp.concatenate([jnp.asarray(spec.control_high, dtype), eta])
    task = planning_task(grid, model, settings.exploration, settings.strength)
    keys = jax.random.split(key, len(guesses))
    found = jax.vmap(lambda guess, key: _solve(settings, task, start, guess, key, low, high))(guesses, keys)
    best = jnp.argmin(jnp.nan_to_num(found.cost, nan=jnp.inf))
    optimistic: Trajectory = jax.tree.map(lambda array: array[best], found)
    k = spec.control_dim
    follow = tracking_task(grid, model, optimistic.x, optimistic.u[:, :k])
    tracked = ilqr(follow, start, optimistic.u[:, :k], low[:k], high[:k], settings.iterations)
    cost = planning_task(grid, model, "mean", 0.0)
    return OptimizedPlan(optimistic, tracked, rollout(cost, start, tracked.u)[1])


def _solve(
    settings: TrajectoryPlanSettings, task: Task, start: Array, guess: Array, key: Array, low: Array, high: Array
) -> Trajectory:
    """One trajectory, by the solver of the settings."""
    if settings.solver != "ilqr":
        rule = "mppi" if settings.solver == "mppi" else "cem"
        search = SearchSettings(rule, settings.search_iterations, settings.samples)
        cost = lambda controls: rollout(task, start, controls)[1]  # noqa: E731
        guess, _ = search_sequence(search, cost, key, guess, GUESS_SHARE * (high - low) / 2, low, high)
    iterations = settings.iterations if settings.solver in ("ilqr", "cem-ilqr") else 0
    return ilqr(task, start, guess, low, high, iterations)


@jax.jit
def _covariance(model: GpModel, policy: TrackingPolicy, times: Array) -> Array:
    """The covariance of the drift among times of the planned trajectory [d, n, n]."""
    return model.covariance(jax.vmap(policy.state)(times), jax.vmap(policy.planned)(times))


@jax.jit
def _member_drifts(model: Any, policy: TrackingPolicy, times: Array) -> Array:
    """The drift of each member at times of the planned trajectory [members, n, d]."""
    rows = jax.vmap(policy.state)(times), jax.vmap(policy.planned)(times)
    return model.drift(*(jnp.broadcast_to(one, (model.members, *one.shape)) for one in rows))


@functools.partial(jax.jit, static_argnums=0)
def _member_rewards(grid: Discretization, model: Any, policy: TrackingPolicy) -> Array:
    """The reward rate on the nodes of the plan when each member is the truth [members, n + 1]."""
    reward, h = jax.vmap(reward_function(grid.spec, model)), grid.step
    start = jnp.broadcast_to(policy.state(0.0), (model.members, grid.spec.state_dim))

    def advance(x: Array, t: Array) -> tuple[Array, Array]:
        u = jax.vmap(lambda x: policy(x, t))(x)
        drift = lambda x: model.drift(x[:, None], u[:, None])[:, 0]  # noqa: E731
        return x + h * drift(x + h / 2 * drift(x)), reward(x, u)

    last, rewards = jax.lax.scan(advance, start, jnp.arange(grid.steps) * h)
    final = reward(last, jax.vmap(lambda x: policy(x, jnp.asarray(grid.horizon)))(last))
    return jnp.concatenate([rewards, final[None]]).T


def build_learner(settings: TrajectorySettings, problem: Problem, budget: Budget, sampler: Sampler) -> Learner:
    """The learner that `settings` describe, for a problem with states and controls."""
    assert isinstance(problem, StateProblem)
    spec, model = problem.spec, settings.model
    episodes = spec.most_episodes(budget.measurements, sampler.m)
    integrate = midpoint if spec.drift_measured and problem.time_grid is None else euler
    size = budget.measurements, episodes, integrate, model.ensemble_size
    if model.kind == "gp":
        noise = None if model.noise is None else (model.noise,) * spec.state_dim
        dynamics = GpDynamics(spec, *size, model.max_rows, settings.fit.max_gap, noise)
    else:
        dynamics = BlackBoxDynamics(spec, settings.fit, *size, model.width)
    return TrajectoryLearner(Discretization(spec, problem.horizon, settings.plan.nodes), dynamics, settings.plan)

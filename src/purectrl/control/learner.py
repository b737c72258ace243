"""The learner of ENODE and PURE_ENODE: fit the model to all data, optimize the policy in it.

Both algorithms are this learner; they differ in the schedule (and, optionally, the sampler) of the loop around it.
"""

import functools
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.control.actor_critic import OptimizedPolicy, optimize_policy
from purectrl.control.black_box import BlackBoxDynamics
from purectrl.control.divergence import check_policy
from purectrl.control.dynamics import DynamicsModel, MonitoredDynamics
from purectrl.control.ensembles import BatchEnsemble, Ensemble, Implicit, MakeEnsemble, learned_noise
from purectrl.control.exploration import SmoothNoise
from purectrl.control.gp_dynamics import GpDynamics
from purectrl.control.imagination import ImaginationModel, Region, imagine
from purectrl.control.integrate import Integrator, dopri5, euler, midpoint
from purectrl.control.mechanical import MechanicalDynamics
from purectrl.control.monitor import CusumMonitor
from purectrl.control.policy import Actor, BehaviorPolicy, Critic
from purectrl.control.settings import Enode, PlanSettings
from purectrl.control.termination import without_unseen_ends
from purectrl.core.errors import StoreError, UnsupportedError
from purectrl.core.keys import Key
from purectrl.core.learner import Learner, Update
from purectrl.core.ledger import Budget
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.plan import Plan
from purectrl.core.problem import Problem
from purectrl.core.samplers import Sampler, Snapped, Windows
from purectrl.core.schedules import ExcessLoss, Targets
from purectrl.core.settings import prefixed
from purectrl.core.uncertainty import Uncertainty, interpolated
from purectrl.systems.compiled import jax_key
from purectrl.systems.spec import StateProblem, StateSpec

AMPLITUDES = (0.0, 0.1, 0.2, 0.3)
"""Sizes of the exploration noise in one episode after the other, after the first update."""
SMALLEST_GROWTH = 0.1
"""If rewards are smaller than this, the untrained critic is not scaled up to their unit: its weights would be too large."""
UNCERTAINTY_EPISODES = 8
"""Initial states over which the predictive uncertainty is averaged."""
MAX_PREDICTION = 1e9
"""The largest predicted number; a member that has diverged predicts this."""


class EnodeState(NamedTuple):
    """Everything that was learned."""

    model: Any
    """An `ImaginationModel`."""
    actor: Actor
    critic: Critic
    use_actor: float
    """0 before the first update, when episodes explore at random; then 1."""
    amplitudes: np.ndarray
    """Sizes of the noise in the next episodes [levels]."""
    explored: int
    """Number of episodes before the first update."""
    monitor: CusumMonitor = CusumMonitor()
    """How well the model fits the episodes since the last update."""


@dataclass(frozen=True)
class EnodeLearner:
    """Algorithm 5, lines 6 and 7.

    Main arguments:
        spec: dimensions, features and control limits of the system.
        dynamics: how the model is created, fitted and checked.
        plan: the settings of the policy optimization, with the time step of the problem.
        noise: the exploration noise, as long as an episode.
        width: units in each of the two hidden layers of actor and critic.
    """

    spec: StateSpec
    dynamics: DynamicsModel
    plan: PlanSettings
    noise: SmoothNoise
    width: int = 200

    def init(self, key: Key) -> EnodeState:
        """Untrained networks (Algorithm 5, line 1); the first policy explores at random."""
        hidden = (self.width,) * 2
        return EnodeState(
            self.dynamics.init(key),
            Actor.random(key.child("actor").generator(), self.spec, hidden),
            Critic.random(key.child("critic").generator(), self.spec, hidden),
            use_actor=0.0,
            amplitudes=np.ones(len(AMPLITUDES), np.float32),
            explored=0,
        )

    def check_state(self, state: EnodeState, data: Dataset) -> None:
        """Raises if a restored state counts more episodes than were measured."""
        counts = state.explored, state.monitor.fitted + state.monitor.since
        if max(counts) > data.episodes:
            raise StoreError(f"its learner counts {max(counts)} episodes, its data have {data.episodes}")

    def check_plan(self, plan: Plan) -> None:
        """Any weights of a policy can be executed."""

    def policy(self, state: EnodeState) -> Plan:
        """The actor with the noise of the next episodes; the problem draws their initial states."""
        return Plan(BehaviorPolicy(state.actor, state.use_actor, state.amplitudes, self.noise), None)

    def update(self, state: EnodeState, data: Dataset, which: Targets, key: Key) -> Update:
        """Fits the model to all data, then optimizes the policy in it (Algorithm 5, lines 6 and 7).

        Both parts are checked (`purectrl.control.divergence`). If the fit has diverged, model and policy stay as they were;
        if the policy has, the policy does, and the new model is kept.
        """
        begin = time.perf_counter()
        seen, first = data.all, not state.use_actor
        if not first:
            state = state._replace(amplitudes=_amplitudes(data.episodes - state.explored))
        with ThreadPoolExecutor(1) as thread:
            # the longest compilation of a run, on another core than the fit
            compiled = thread.submit(self._compile, state, seen, key) if first else None
            model, info = self.dynamics.fit(state.model, seen, which, first, key)
        if compiled is not None:
            compiled.result()
        diverged = self.dynamics.check_fit(state.model, model, seen)
        if diverged:
            reason = f"{diverged}: model and policy stay as they were"
            return Update(state, {}, {"fit": time.perf_counter() - begin}, reason)
        state = self._with_model(state, model, seen, first)
        fitted = time.perf_counter()

        optimized, diverged = self._optimize(state, seen, key)
        seconds = {"fit": fitted - begin, "plan": time.perf_counter() - fitted}
        if diverged:
            return Update(state, info, seconds, f"{diverged}: actor and critic stay as they were")
        state = state._replace(actor=optimized.actor, critic=optimized.critic)
        if first:
            state = state._replace(use_actor=1.0, amplitudes=_amplitudes(0), explored=data.episodes)
        rewards, unit = np.asarray(optimized.reward), float(model.task.reward_unit)
        info |= {
            "planned_reward": unit * float(optimized.planned[-1]),
            "imagined_reward": unit * float(rewards.mean()),
            "imagined_worst": unit * float(rewards.min()),
        }
        return Update(state, info, seconds)

    def _with_model(self, state: EnodeState, model: Any, seen: Measurements, first: bool) -> EnodeState:
        """The state with another model: the critic keeps its values in the unit of the new rewards."""
        if isinstance(self.dynamics, MonitoredDynamics):
            # episodes that explored at random are unlike the next ones
            first_new = seen.episodes if first else state.monitor.fitted
            state = state._replace(monitor=self.dynamics.start_monitor(model, seen, first_new))
        growth = jnp.asarray(model.task.reward_unit / state.model.task.reward_unit)
        if first and float(growth) < SMALLEST_GROWTH:  # an untrained critic has no values to keep
            return state._replace(model=model)
        return state._replace(model=model, critic=state.critic.in_units(growth))

    def _optimize(self, state: EnodeState, seen: Measurements, key: Key) -> tuple[OptimizedPolicy, str]:
        """The optimized policy, and what is wrong with it; empty if nothing is."""
        actor, critic, region = self._before(state, seen)
        how = self.plan, self.dynamics.integrate, without_unseen_ends(state.model, seen)
        optimized = optimize_policy(*how, actor, critic, jax_key(key.child("improve")), region)
        after, check_key = (optimized.actor, optimized.critic), jax_key(key.child("judge"))
        return optimized, check_policy(*how, (actor, critic), after, check_key, region)

    def _before(self, state: EnodeState, seen: Measurements) -> tuple[Actor, Critic, Region]:
        """What the policy optimization starts from. At the first update the data determine the scale of the features."""
        region = self.dynamics.region(seen)
        if state.use_actor:
            return state.actor, state.critic, region
        scale = self.dynamics.feature_scale(region)
        rescale = lambda network: eqx.tree_at(lambda network: network.scale, network, scale)  # noqa: E731
        return rescale(state.actor), rescale(state.critic), region

    def _compile(self, state: EnodeState, seen: Measurements, key: Key) -> None:
        """Compiles the policy optimization in advance; it depends on shapes only."""
        actor, critic, region = self._before(state, seen)
        how = self.plan, self.dynamics.integrate, without_unseen_ends(state.model, seen)
        optimize_policy.lower(*how, actor, critic, jax_key(key.child("improve")), region).compile()

    def uncertainty(self, state: EnodeState, times: np.ndarray, key: Key) -> Uncertainty:
        """The covariance over ensemble members of the state and of the reward at `times` [n] of an episode.

        The members are rolled out under the current policy without noise, from the same initial states; the covariance is
        averaged over those.
        """
        steps = max(1, round(self.noise.horizon / self.plan.step))
        seen = _predictions(self.plan, self.dynamics.integrate, steps, state.model, state.actor, jax_key(key))
        paths = np.nan_to_num(np.asarray(seen), nan=MAX_PREDICTION).clip(-MAX_PREDICTION, MAX_PREDICTION)
        at = interpolated(paths, np.arange(steps + 1) * self.plan.step, times)
        return Uncertainty.of_members(at[..., :-1], at[..., -1])


@dataclass(frozen=True)
class MonitoredEnodeLearner(EnodeLearner):
    """An `EnodeLearner` whose dynamics model can tell how well it still fits: a `LookaheadMonitor`."""

    can_look_ahead = True

    def observe(self, state: EnodeState, block: Measurements) -> EnodeState:
        """Keeps no running statistics."""
        return state

    def excess_loss(self, state: EnodeState, data: Dataset, key: Key) -> tuple[ExcessLoss, EnodeState]:
        """What Algorithm 2 compares with 5 (`purectrl.control.monitor`). The reward is known, so its excess loss is zero."""
        seen, monitored = data.all, state.monitor.fitted + state.monitor.since
        new = seen.after(monitored)
        monitor = [state.monitor, *self._monitors(state, new)][-1]
        return ExcessLoss(monitor.excess_loss, 0.0), state._replace(monitor=monitor)

    def excess_loss_per_episode(self, state: EnodeState, block: Measurements) -> Sequence[ExcessLoss]:
        """The same after each episode of `block`."""
        return [ExcessLoss(monitor.excess_loss, 0.0) for monitor in self._monitors(state, block)]

    def _monitors(self, state: EnodeState, seen: Measurements) -> list[CusumMonitor]:
        assert isinstance(self.dynamics, MonitoredDynamics)
        return self.dynamics.update_monitor(state.model, state.monitor, seen)


def _amplitudes(episodes: int) -> np.ndarray:
    """The sizes of the noise in the next episodes, `episodes` after the first update."""
    return np.roll(np.array(AMPLITUDES, np.float32), -episodes)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _predictions(
    plan: PlanSettings, integrate: Integrator, steps: int, model: ImaginationModel, actor: Actor, key: Array
) -> Array:
    """States and rewards of each member on the time grid 0, step, 2·step, … [members, starts, steps + 1, d + 1]."""
    starts = jax.vmap(model.task.sample_initial_state)(jax.random.split(key, UNCERTAINTY_EPISODES))
    starts = jnp.broadcast_to(starts, (model.members, *starts.shape))
    no_noise = jnp.zeros((steps, *starts.shape[:-1], actor.spec.control_dim))
    limits = jnp.full(starts.shape[-1], jnp.inf)
    x = jnp.concatenate([starts[None], imagine(plan, integrate, model, actor, starts, no_noise, limits).x])
    rewards = model.task.reward(x, actor(x)) * model.task.reward_unit
    return jnp.moveaxis(jnp.concatenate([x, rewards[..., None]], axis=-1), 0, 2)


FAMILIES: dict[str, MakeEnsemble] = {
    "ensemble": Ensemble.random,
    "batch-ensemble": BatchEnsemble.random,
    "implicit": Implicit.random,
}
"""Untrained mechanical models by the name of their family."""


def build_learner(settings: Enode, problem: Problem, budget: Budget, sampler: Sampler) -> Learner:
    """The learner that `settings` describe, for a problem with states and controls."""
    assert isinstance(problem, StateProblem)
    spec, model = problem.spec, settings.model
    step = _time_step(settings.plan, problem, sampler)
    with prefixed("learner.plan"):
        plan = replace(settings.plan, step=step)
    noise = SmoothNoise(problem.horizon)
    kind = model.kind
    if kind == "auto":
        kind = "black-box" if spec.mechanics is None else "mechanical"
    integrate = {"midpoint": midpoint, "dopri5": dopri5()}[model.integrator]
    if kind == "mechanical":
        if spec.mechanics is None:
            raise UnsupportedError(
                f"learner.model.kind: mechanical needs a problem whose mechanics are known, {problem.name!r} declares none; "
                "use black-box"
            )
        make = FAMILIES[model.dynamics] if model.noise == "fixed" else learned_noise(FAMILIES[model.dynamics])
        size = model.ensemble_size, model.width
        fit = settings.fit, budget.measurements, step
        mechanical = MechanicalDynamics(spec.mechanics, *fit, integrate, make, *size)
        return MonitoredEnodeLearner(spec, mechanical, plan, noise, model.width)
    episodes = spec.most_episodes(budget.measurements, sampler.m)
    if kind == "gp":
        # Euler's method inverts a difference quotient; a mechanical problem measures no drift
        rule = integrate if spec.drift_measured and problem.time_grid is None else euler
        gp = GpDynamics(spec, budget.measurements, episodes, rule, model.ensemble_size, max_gap=settings.fit.max_gap)
        return EnodeLearner(spec, gp, plan, noise, model.width)
    for name, value, supported in (("dynamics", model.dynamics, "ensemble"), ("noise", model.noise, "fixed")):
        if value != supported:
            raise UnsupportedError(f"learner.model.{name}: a black-box model does not support {value}; use {supported}")
    if problem.time_grid is not None or not spec.drift_measured:
        integrate = euler  # which inverts the difference quotient over one step
    size = model.ensemble_size, model.width
    black_box = BlackBoxDynamics(spec, settings.fit, budget.measurements, episodes, integrate, *size)
    return EnodeLearner(spec, black_box, plan, noise, model.width)


def _time_step(plan: PlanSettings, problem: Problem, sampler: Sampler) -> float:
    """Seconds between two controls: a step of a problem in discrete time, else the step of windows, else that of `plan`."""
    if problem.time_grid is not None:
        return problem.time_grid
    if isinstance(sampler, Snapped):
        sampler = sampler.sampler
    return sampler.step if isinstance(sampler, Windows) else plan.step

"""The learner of PURE-auto: it decides when to update, which policy to execute, when to stop and which policy to
return.

symbol   here                        meaning
-------  --------------------------  -----------------------------------------------------------------------------------
J        promised return             mean of b over imagined episodes of a policy
c        measured return             mean of b over the noise-free first half of a real episode under the same policy
b₀, b₁   random_reward, best_reward  mean of b under random controls, and the highest b that was planned with or measured
         scale = b₁ − b₀             the unit of all tolerances

After each episode the promise of the executed policy is compared with what was measured, at the same times and from
the same initial state. If they agree and planning had converged to a good policy, nothing is left to learn, and the run
ends. Otherwise the model is fitted to all data and the policy is planned in rounds, from the champion, the best executed
policy by measured returns, and from untrained networks. The champion competes in the new model: another policy is executed
only if it is better there. The champion is returned.
"""

import time
import warnings
from dataclasses import dataclass
from typing import Any, Protocol

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from purectrl.control.auto_settings import RoundSettings
from purectrl.control.auto_state import AutoState, crown
from purectrl.control.divergence import finite
from purectrl.control.dynamics import Fit
from purectrl.control.exploring_policy import ExploringActor
from purectrl.control.integrate import Integrator
from purectrl.control.plan_rounds import RoundPlanner
from purectrl.control.plan_starts import PlanRegion
from purectrl.control.planner import ImaginedTest, Round
from purectrl.control.policy import Actor
from purectrl.control.promised_return import (
    best_reward,
    episode_rewards,
    imagined_rewards,
    rewards_states,
    time_mean,
)
from purectrl.control.termination import without_unseen_ends
from purectrl.control.time_scales import estimate_rate, time_scales
from purectrl.control.working_region import normalization, working_region
from purectrl.core.errors import PlanningWarning
from purectrl.core.keys import Key
from purectrl.core.learner import Update
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.plan import Plan
from purectrl.core.schedules import ExcessLoss, Targets
from purectrl.systems.spec import StateSpec

QUIET_SHARE = 0.5
"""The share of an episode, from its beginning, in which a policy is executed without noise."""
AMPLITUDE = 0.3
"""Size of the noise in the rest of it, before tanh."""
SHORTEST_NOISE, LONGEST_NOISE = 0.005, 0.025
"""Correlation times of random controls before the first update, as shares of an episode."""
SHORTEST_STEPS, LONGEST_STEPS = 1, 10
"""The same at least, in steps of a problem in discrete time."""
NOISE_TIME = 1.5
"""Correlation time of the noise after it, in units of 1/ρ."""
LEAST_NEW = 0.2
"""New measurements that an update needs, in units of a whole episode: more than one episode if episodes end early."""
LEAST_GROWTH = 0.15
"""The same as a share of all measurements before."""
FIRST_PER_INPUT = 50
"""Measurements that the first update needs, per state and control of the system, unless episodes end early: then random
controls only show how they end."""
MOST_REFUSED, MOST_REFUSED_LEARNED = 3, 6
"""The run ends after this many updates in a row without a better policy, if the champion's promise is kept: with a known and
with a learned reward. Each of them has twice the new data of the one before. One update later it also ends if the promise is
not kept, unless imagined episodes of the champion end far from the highest reward."""
CONFIRMATIONS = 3
"""Episodes that the champion needs before the run ends with a kept promise, if episodes can end early: a policy that fails
from one of several initial states does not show it in each of them."""
STALLED = 3
"""Updates without progress of the imagined return after which the planner is reported as the bottleneck."""


class FittedDynamics(Protocol):
    """How the dynamics are learned; the part of `purectrl.control.dynamics.DynamicsModel` that is needed here."""

    @property
    def integrate(self) -> Integrator:
        """The integrator of imagined rollouts."""
        ...

    def init(self, key: Key) -> Any:
        """An untrained `ImaginationModel`."""
        ...

    def fit(self, model: Any, seen: Measurements, which: Targets, first: bool, key: Key) -> Fit:
        """The model fitted to all data."""
        ...

    def check_fit(self, before: Any, after: Any, seen: Measurements) -> str:
        """What is wrong with the fit that led from `before` to `after`; empty if nothing is."""
        ...


@dataclass(frozen=True)
class AutoLearner:
    """The learner of PURE-auto; with the true equations as `dynamics`, that of `known-model`.

    Main arguments:
        spec: dimensions, features and control limits of the system.
        dynamics: how the model is created, fitted and checked.
        plan: the settings of planning.
        tolerance: promised and measured return agree if they differ by less than this many scales.
        horizon: T.
        end: how long imagined episodes go on to show how they end, in seconds.
        time_grid: the step of a problem in discrete time.
        capacity, m: N, the measurements that a run may take, and those of an episode.
    """

    spec: StateSpec
    dynamics: FittedDynamics
    plan: RoundSettings
    tolerance: float
    horizon: float
    end: float
    time_grid: float | None
    capacity: int
    m: int

    @property
    def planner(self) -> RoundPlanner:
        """Planning in rounds."""
        return RoundPlanner(self.spec, self.plan, self.dynamics.integrate, self.time_grid)

    def init(self, key: Key) -> AutoState:
        """Untrained networks; the first policy explores at random."""
        actor, critic = self.planner.networks(key)
        return AutoState(self.dynamics.init(key), actor, critic, actor, critic, jnp.zeros(self.spec.feature_dim))

    def policy(self, state: AutoState) -> Plan:
        """The actor with the noise of the next episode; the problem draws its initial state."""
        if state.use_actor:
            length = NOISE_TIME / state.rate
            noise = (AMPLITUDE, QUIET_SHARE * self.horizon, length, length)
        else:
            grid = self.time_grid or 0.0
            shortest = max(SHORTEST_NOISE * self.horizon, SHORTEST_STEPS * grid)
            noise = (1.0, 0.0, shortest, max(LONGEST_NOISE * self.horizon, LONGEST_STEPS * grid))
        return Plan(ExploringActor(state.actor, state.use_actor, *noise), None)

    def finished(self, state: AutoState) -> bool:
        """Whether nothing is left to learn."""
        return state.ended

    def summarize(self, state: AutoState) -> dict[str, Any]:
        """What the learner adds to the metrics of a finished run."""
        return {"decision": state.decision, "rate": state.rate, "measured_return": state.champion_return}

    def observe(self, state: AutoState, block: Measurements) -> AutoState:
        """Keeps no running statistics."""
        return state

    def excess_loss(self, state: AutoState, data: Dataset, key: Key) -> tuple[ExcessLoss, AutoState]:
        """The difference of promised and measured return in units of the tolerance; at least one if an update is due.

        The executed policy becomes the champion if it measured best, or if it measured no less than promised and more than
        the champion promises from the same initial state: returns from different initial states do not compare. The run ends
        if promised and measured return agree, from an initial state that is not much easier than others, no member of the
        model promised less, and planning had converged to a good policy; if episodes can end early, after several episodes.
        Otherwise an update is due: the model may not know the system well enough, or the planner may be stuck. The run also
        ends with the champion if no other policy could be executed any more.
        """
        due = self._spent(data) or self._enough(state, data.all)
        if not state.use_actor:
            return ExcessLoss(*[np.inf if due else 0.0] * 2), state
        promised, measured = self._promise(state, state.actor, data.all)
        excess = abs(promised - measured) / (self.tolerance * state.scale)
        state = state._replace(promised=promised, measured=measured)
        rival = self._promise(state, state.champion, data.all)[0] if state.champion_episodes else -np.inf
        # a kept promise from an initial state in which little has to be done shows little
        easy = promised > state.imagined + 2 * self.tolerance * state.scale
        error = np.inf if easy else abs(promised - measured)
        # more than was promised is no reason against a policy
        kept = promised - measured < self.tolerance * state.scale
        state = crown(state, measured, error, better=kept and measured > rival)
        solved = state.converged and state.good and state.agreed and state.executes_champion
        enough = state.champion_episodes >= (CONFIRMATIONS if self.spec.may_terminate else 1)
        if excess < 1 and solved and not easy and enough:
            state = state._replace(ended=True, decision="stop: the promise was kept and planning has converged")
        elif self._spent(data) and state.executes_champion:
            state, excess = state._replace(ended=True, decision="stop with the champion: the budget is spent"), 0.0
        elif not due or (excess < 1 and solved):
            excess = 0.0
        elif not excess >= 1:
            excess = 1.0  # planning has not converged to a good policy, a member doubts it, or another measured better
        return ExcessLoss(float(excess), float(excess)), state

    def _spent(self, data: Dataset) -> bool:
        """Whether the budget has no room for another episode."""
        return data.all.total + self.m > self.capacity

    def _enough(self, state: AutoState, seen: Measurements) -> bool:
        """Whether there is enough to learn from.

        After each update that found no better policy, that is twice as much as before. Random controls go on as long as no
        reward depends on the state: a goal has not been found.
        """
        least = max(LEAST_NEW * self.m, LEAST_GROWTH * state.fitted)
        if not state.use_actor and self.spec.reward is None and not rewards_states(seen):
            return False
        if not state.use_actor and not seen.terminated[-1]:
            least = max(least, FIRST_PER_INPUT * (self.spec.state_dim + self.spec.control_dim))
        if state.refused:
            least = max(least, (2 ** (state.refused - 1) - 1 + LEAST_NEW) * self.m)
        return seen.total - state.fitted >= least

    def _promise(self, state: AutoState, actor: Actor, seen: Measurements) -> tuple[float, float]:
        """What is imagined for `actor` in the last episode, and what was measured, over the measured times without noise."""
        step, limit = state.measurement_step, self.plan.test_steps
        end = min(QUIET_SHARE * self.horizon, limit * step)
        quiet = (seen.t[-1] < end) & seen.valid[-1]
        t, measured = seen.t[-1][quiet], episode_rewards(self.spec, seen)[-1][quiet]
        ended = seen.terminated[-1] and t.size < seen.m and t[-1] + step < end
        if ended:  # nothing is earned after the end
            t, measured = np.append(t, (t[-1] + step, end)), np.append(measured, (0.0, 0.0))
        start = jnp.asarray(seen.x[-1, 0], jnp.float32)
        rewards = np.asarray(
            imagined_rewards(
                self.plan, self.dynamics.integrate, without_unseen_ends(state.model, seen), actor, start, step
            )
        )
        times = (np.arange(limit) + 0.5) * step
        if ended:  # the model may end the episode at another time, and a reward for that is earned in one step
            return float(rewards[times < end].mean()), time_mean(t, measured)
        return time_mean(t, np.interp(t, times, rewards)), time_mean(t, measured)

    def update(self, state: AutoState, data: Dataset, which: Targets, key: Key) -> Update:
        """Fits the model to all data, plans in rounds, lets the champion compete, and decides what to execute."""
        begin = time.perf_counter()
        seen, first = data.all, not state.use_actor
        if not first and self._spent(data):  # a new policy could not be executed any more
            decision = "stop with the champion: the budget is spent"
            ended = state._replace(actor=state.champion, critic=state.champion_critic, ended=True, decision=decision)
            return Update(ended, {"promised": state.promised, "measured": state.measured, "decision": decision}, {})
        dynamics = self.dynamics
        model, info = dynamics.fit(state.model, seen, which, first, key)
        if diverged := dynamics.check_fit(state.model, model, seen):
            seconds = {"fit": time.perf_counter() - begin}
            return Update(state, {}, seconds, f"{diverged}: model and policy stay as they were")
        growth = jnp.asarray(model.task.reward_unit / state.model.task.reward_unit)
        critic, champion_critic = (critic.in_units(growth) for critic in (state.critic, state.champion_critic))
        state = state._replace(model=model, fitted=seen.total, critic=critic, champion_critic=champion_critic)
        fitted = time.perf_counter()
        lengths = self.horizon, self.capacity, QUIET_SHARE * self.horizon, self.end
        region = working_region(self.spec, seen, model, *lengths)
        state = self._set_scales(state, seen, region, first)
        found, outcome = self.planner.improve(state, without_unseen_ends(state.model, seen), region, key)
        seconds = {"fit": fitted - begin, "plan": time.perf_counter() - fitted}
        if not finite((found.actor, found.critic)):
            return Update(state, info, seconds, "planning diverged: actor and critic stay as they were")
        state = state._replace(converged=outcome.converged, good=outcome.good)
        state = self._decide(state, found, first)
        unit = float(model.task.reward_unit)
        info |= {
            "rate": state.rate,
            "time_step": state.measurement_step,
            "rounds": outcome.rounds,
            "imagined_reward": unit * float(found.test.whole.mean()),
            "imagined_worst": unit * float(found.test.whole.mean(axis=1).min()),
            "imagined_champion": unit * float(found.before.whole.mean()),
            "best_reward": state.best_reward,
            "promised": state.promised,
            "measured": state.measured,
            "decision": state.decision,
        }
        return Update(state, info, seconds)

    def _set_scales(self, state: AutoState, seen: Measurements, region: PlanRegion, first: bool) -> AutoState:
        """The state with its time scale and with the rewards that are the unit of tolerances."""
        states = np.asarray(region.states)[: int(region.size)]
        estimate = estimate_rate(state.model, self.spec, states, np.asarray(region.goals), self.horizon)
        scales = time_scales(self.plan, estimate.rate, self.time_grid)
        length = QUIET_SHARE * self.horizon
        best = best_reward(self.spec, state.model, seen, region.goals, length, self.time_grid)
        measured = episode_rewards(self.spec, seen)[seen.valid]
        state = state._replace(rate=estimate.rate, measurement_step=float(scales.step), best_reward=best)
        if not first:
            return state
        mean, scale = normalization(self.spec, region)
        set_scale = lambda network: eqx.tree_at(lambda network: network.scale, network, scale)  # noqa: E731
        state = state._replace(actor=set_scale(state.actor), critic=set_scale(state.critic), feature_mean=mean)
        return state._replace(random_reward=float(measured.mean()))

    def _decide(self, state: AutoState, found: Round, first: bool) -> AutoState:
        """Which policy is executed next, or whether the run ends."""
        unit = float(state.model.task.reward_unit)
        new, old = (unit * np.asarray(test.whole) for test in (found.test, found.before))
        state = self._track_progress(state, found.test)
        agreed = lambda j: bool(j.mean() - j.mean(axis=1).min() <= self.tolerance * state.scale)  # noqa: E731
        if first:
            decision = f"execute the first policy, which promises {new.mean():.4g}"
            kept = state._replace(actor=found.actor, critic=found.critic, use_actor=1.0, imagined=float(new.mean()))
            return kept._replace(decision=decision, agreed=agreed(new))
        slack = self.plan.gain * state.scale
        gain = float(new.mean() - old.mean())
        worse = float(old.mean(axis=1).min() - new.mean(axis=1).min())
        good = self.planner.good(state, found.before)
        far = not state.good and self.planner.far(state, found.before)  # then there is little to lose
        safer = gain > 0 and state.good and not good  # the champion fails from some initial states
        if (gain > slack or safer) and (far or worse <= slack):
            decision = (
                f"execute the new policy, which promises {new.mean():.4g}; the champion promises {old.mean():.4g}"
            )
            kept = state._replace(actor=found.actor, critic=found.critic, executes_champion=False, refused=0)
            return kept._replace(decision=decision, imagined=float(new.mean()), agreed=agreed(new))
        champion = state._replace(
            actor=state.champion,
            critic=state.champion_critic,
            executes_champion=True,
            refused=state.refused + 1,
            imagined=float(old.mean()),
            agreed=agreed(old),
            good=good,
        )
        agrees = state.champion_error <= 2 * self.tolerance * state.scale
        reason = "no better policy is predicted" if gain <= slack else "the new policy is worse in one member"
        unsure = far or (not good and self.spec.reward is None)  # a better policy may hide behind the learned reward
        most = MOST_REFUSED if self.spec.reward is not None else MOST_REFUSED_LEARNED
        tried = champion.refused > most and not far  # ever more data have predicted nothing better
        if tried or (agrees and (not unsure or champion.refused >= most)):
            if gain <= slack and far:
                reason += ", also from untrained networks on: the planner is the bottleneck, not the data"
                warnings.warn(reason, PlanningWarning, stacklevel=2)
            return champion._replace(ended=True, decision=f"stop with the champion: {reason}")
        why = "its return is low" if far else "it is not good, and the reward is learned"
        but = why if agrees else "its return is not understood"
        return champion._replace(decision=f"execute the champion once more: {reason}, but {but}")

    def _track_progress(self, state: AutoState, test: ImaginedTest) -> AutoState:
        """Counts updates in which the imagined return has not moved, and reports the planner as the bottleneck."""
        imagined = float(state.model.task.reward_unit) * float(test.whole.mean())
        moved = imagined > state.best_imagined + self.plan.gain * state.scale
        stalled = 0 if moved else state.stalled + 1
        if stalled >= STALLED and self.planner.far(state, test):
            warnings.warn(
                f"the imagined return has not moved for {stalled} updates: the planner is the bottleneck, not the data",
                PlanningWarning,
                stacklevel=2,
            )
        return state._replace(stalled=stalled, best_imagined=max(imagined, state.best_imagined))

"""Rounds of planning until the imagined test is good or no longer improves, and how imagined tests are judged."""

import functools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from purectrl.control.auto_settings import RoundSettings
from purectrl.control.auto_state import AutoState
from purectrl.control.imagination import ImaginationModel
from purectrl.control.integrate import Integrator
from purectrl.control.plan_starts import PlanRegion
from purectrl.control.planner import ImaginedTest, Round, plan_round
from purectrl.control.policy import Actor, Critic
from purectrl.control.time_scales import TimeScales, time_scales
from purectrl.core.keys import Key
from purectrl.systems.compiled import jax_key
from purectrl.systems.spec import StateSpec

PATIENCE = 2
"""Rounds of planning with patience, in units of the largest number of rounds."""
FAR = 0.2
"""Imagined episodes that end this many scales below the highest reward are far from it."""


class Outcome(NamedTuple):
    """How planning ended."""

    converged: bool
    """Whether the imagined return no longer rose."""
    good: bool
    """Whether no imagined episode ends far from the highest reward."""
    rounds: int


@dataclass(frozen=True)
class RoundPlanner:
    """Plans in rounds from the champion on and from untrained networks on.

    Main arguments:
        spec: dimensions, features and control limits of the system.
        settings: of a round, and when rounds end.
        integrate: the integrator of imagined rollouts.
        time_grid: the step of a problem in discrete time.
    """

    spec: StateSpec
    settings: RoundSettings
    integrate: Integrator
    time_grid: float | None

    def networks(self, key: Key) -> tuple[Actor, Critic]:
        """Untrained networks."""
        hidden = (self.settings.width,) * 2
        actor = Actor.random(key.child("actor").generator(), self.spec, hidden)
        return actor, Critic.random(key.child("critic").generator(), self.spec, hidden)

    def improve(self, state: AutoState, model: ImaginationModel, region: PlanRegion, key: Key) -> tuple[Round, Outcome]:
        """Rounds of planning from the champion on and, at the same time, from untrained networks on; the better of both.

        The champion comes from policies that were planned in worse models, which may have led into a local optimum, such as
        a swing-up that takes longer than necessary. If neither adds anything to a champion that is far from good, the
        planner may be stuck, and the second planning goes on with patience.
        """
        known = state.champion_episodes > 0
        networks = (state.champion, state.champion_critic) if known else (state.actor, state.critic)
        scaled = lambda new, old: eqx.tree_at(lambda network: network.scale, new, old.scale)  # noqa: E731
        fresh = key.child("restart")
        untrained = tuple(map(scaled, self.networks(fresh), networks))
        plan_rounds = functools.partial(self._rounds, state, model, region, jax_key(key.child("test")))
        with ThreadPoolExecutor(2) as threads:
            plans = [threads.submit(plan_rounds, *how, False) for how in ((networks, key), (untrained, fresh))]
        (first, outcome), (second, other) = (plan.result() for plan in plans)
        rounds = outcome.rounds + other.rounds
        if float(second.test.score) > float(first.test.score):
            outcome = other
        found = second if outcome is other else first
        stuck = (
            outcome.converged and not outcome.good and self.gain(state, found.test, first.before) <= self.settings.gain
        )
        if known and stuck and self.far(state, found.test):
            patient, how = plan_rounds(second.last, key.child("patience"), True)
            rounds += how.rounds
            if float(patient.test.score) > float(found.test.score):
                found, outcome = patient, how
        return found._replace(before=first.before), outcome._replace(rounds=rounds)

    def _rounds(
        self,
        state: AutoState,
        model: ImaginationModel,
        region: PlanRegion,
        test_key: Array,
        networks: tuple[Actor, Critic],
        key: Key,
        patient: bool,
    ) -> tuple[Round, Outcome]:
        """Rounds of planning from an actor and a critic on, and the best policy of all.

        A round continues from the best networks of the one before, and the rounds end if the imagined return no longer
        rises. With patience, a round continues from the last networks, and the rounds end only with a good policy: a
        swing-up in several swings is found after rounds in which the return falls.
        """
        scales = TimeScales(*map(jnp.asarray, time_scales(self.settings, state.rate, self.time_grid)))
        best, before, flat, good = None, None, 0, False
        rounds = PATIENCE * self.settings.rounds if patient else self.settings.rounds
        for number in range(rounds):
            keys = jax_key(key.child("round", number)), test_key
            how = self.settings, self.integrate, model, *networks
            one = plan_round(*how, state.feature_mean, scales, region, keys)
            before = one.before if before is None else before
            risen = best is None or self.gain(state, one.test, best.test) >= self.settings.gain
            flat = 0 if risen else flat + 1
            if best is None or float(one.test.score) >= float(best.test.score):
                best = one
            best = best._replace(before=before, last=one.last)
            networks = one.last if patient else (one.actor, one.critic)
            good = self.good(state, best.test)
            if flat >= (1 if good else 2) and (good or not patient):
                return best, Outcome(True, good, number + 1)
        assert best is not None
        return best, Outcome(patient, good, rounds)

    def good(self, state: AutoState, test: ImaginedTest) -> bool:
        """Whether no imagined episode ends far from the highest reward."""
        worst = float(state.model.task.reward_unit) * float(test.late.mean(axis=0).min())
        return worst >= state.best_reward - self.settings.good * state.scale

    def gain(self, state: AutoState, new: ImaginedTest, old: ImaginedTest) -> float:
        """What one imagined return is higher than another, in scales."""
        return float(state.model.task.reward_unit) * float(new.whole.mean() - old.whole.mean()) / state.scale

    def far(self, state: AutoState, test: ImaginedTest) -> bool:
        """Whether imagined episodes end far from the highest reward, on average."""
        late = float(state.model.task.reward_unit) * float(test.late.mean())
        return late < state.best_reward - FAR * state.scale

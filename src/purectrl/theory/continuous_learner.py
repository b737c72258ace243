"""The learner of Algorithms 1, 2 and 3 for continuous classes: least squares, confidence sets, joint gradient ascent."""

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from purectrl.core.errors import StoreError
from purectrl.core.keys import Key
from purectrl.core.learner import Update
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.plan import Plan
from purectrl.core.schedules import ExcessLoss, Targets
from purectrl.systems.compiled import pad_rows
from purectrl.theory.classes import LookaheadClass, ModelClass, RegressionData, Truth, regression_data
from purectrl.theory.confidence import Radius, warn_misspecified
from purectrl.theory.gradient_planner import GradientPlanner, Optimum, Variables
from purectrl.theory.linear import LinearClass, Statistics, information_gain
from purectrl.theory.policy_classes import make_plan
from purectrl.theory.quotient import flow_excess

AUDIT = 4
"""How many times more starting points, and more steps, an audit has: sixteen times the computing."""


class ContinuousState(NamedTuple):
    """Fits to all data, those that F_n and R_n were computed from, and the optimistic (π_n, q_n, f_n, b_n)."""

    drift_fit: Any
    reward_fit: Any
    drift_set: Any
    reward_set: Any
    variables: Variables
    """The result of the last ascent; the next one starts from it and from random points."""
    drift: Any
    """The parameter of f_n."""
    reward: Any
    """The parameter of b_n."""
    value: float
    """R(π_n, q_n, f_n, b_n)."""
    value_error: float = 0.0
    """Its standard error."""


class ContinuousClassLearner:
    """Fits by least squares and plans by joint gradient ascent; the cost with growing data depends on the classes.

    Main arguments:
        planner: the planner over Π × Q × F_n × R_n; it holds the four classes.
        radius_drift, radius_reward: the radii β_F and β_R.
        state_dim, control_dim: d and k.

    Other arguments:
        noise_std: standard deviations of y and r, if known; a class that does not explain the data then causes a warning.
        flow_step: Δ, if y is a difference quotient to be compared with the flow of a model over Δ; None compares y with the
            drift itself. For linear drifts only: y is reduced by what the flow of the best fit of the last update differs
            from its drift, which is determined before y is measured, so that the rest is linear in the parameter.
        audited: the share of updates, drawn at random, whose plan is searched again with `AUDIT` times as many starting
            points and steps; the better one is executed.
    """

    def __init__(
        self,
        planner: GradientPlanner,
        radius_drift: Radius,
        radius_reward: Radius,
        state_dim: int,
        control_dim: int,
        noise_std: tuple[float, float] | None = None,
        flow_step: float | None = None,
        audited: float = 0.0,
    ) -> None:
        self.drifts, self.rewards, self.planner = planner.drifts, planner.rewards, planner
        self.flow_step, self.audited, self.auditor = flow_step, audited, planner.larger(AUDIT)
        self.radius_drift, self.radius_reward, self.noise_std = radius_drift, radius_reward, noise_std
        self.sizes = state_dim, control_dim

        step = flow_step or 1.0  # without quotients the function is not called

        @jax.jit
        def difference(theta: Any, policy: Any, x: Array) -> tuple[Array]:
            field = lambda x: self.drifts.apply(theta, x, planner.policies.apply(policy, x))  # noqa: E731
            return (jax.vmap(lambda x: flow_excess(field, x, step))(x),)

        self._difference = difference

    @property
    def can_look_ahead(self) -> bool:
        """Whether both classes compute excess losses episode by episode: linear classes do, neural ones do not."""
        return isinstance(self.drifts, LookaheadClass) and isinstance(self.rewards, LookaheadClass)

    def init(self, key: Key) -> ContinuousState:
        """F_1 = F, R_1 = R (line 1), and the first plan (line 3)."""
        drift = self.drifts.init(key.child("drift"), *self.sizes)
        reward = self.rewards.init(key.child("reward"), *self.sizes)
        d, k = self.sizes
        nothing = (np.zeros((0, 1, *shape)) for shape in ((), (d,), (k,), (d,), ()))
        sets = self._confidence_sets(drift, reward, Measurements(*nothing))
        begin = self.planner.sample(key.child("begin"), *sets)
        found, variables = self.planner(key.child("plan"), *sets, begin)
        return ContinuousState(
            drift, reward, drift, reward, variables, found.drift, found.reward, found.value, found.error
        )

    def observe(self, state: ContinuousState, block: Measurements) -> ContinuousState:
        """Adds the new measurements to running statistics."""
        drift, reward = self.rows(state, block)
        return state._replace(
            drift_fit=self.drifts.observe(state.drift_fit, drift),
            reward_fit=self.rewards.observe(state.reward_fit, reward),
        )

    def rows(self, state: ContinuousState, block: Measurements) -> tuple[RegressionData, RegressionData]:
        """What was measured under the plan of `state`, as the rows of two least-squares problems."""
        drift, reward = regression_data(block)
        if self.flow_step is None:
            return drift, reward
        assert isinstance(self.drifts, LinearClass)
        theta = self.drifts.fit(state.drift_set)[0].astype(np.float32)
        (more,) = pad_rows(lambda x: self._difference(theta, state.variables.policy, x), drift.x)
        return drift._replace(y=drift.y - more), reward

    def excess_loss(self, state: ContinuousState, data: Dataset, key: Key) -> tuple[ExcessLoss, ContinuousState]:
        """(L(f_n) − min L)/β_F and (L(b_n) − min L)/β_R: what Algorithm 2 compares with 5 (lines 6 and 7)."""
        drift, reward = regression_data(data.all)
        state = state._replace(
            drift_fit=self.drifts.refit(state.drift_fit, drift), reward_fit=self.rewards.refit(state.reward_fit, reward)
        )
        found = ExcessLoss(
            self.drifts.excess_loss(state.drift_fit, state.drift, drift) / self.beta_drift(state.drift_fit),
            self.rewards.excess_loss(state.reward_fit, state.reward, reward) / self.beta_reward(state.reward_fit),
        )
        return found, state

    def excess_loss_per_episode(self, state: ContinuousState, block: Measurements) -> Sequence[ExcessLoss]:
        """The same after each episode of `block`, if `can_look_ahead`."""
        assert isinstance(self.drifts, LookaheadClass)
        assert isinstance(self.rewards, LookaheadClass)
        drift, reward = self.rows(state, block)
        drifts = self.drifts.losses_per_episode(state.drift_fit, state.drift, drift, block.m)
        rewards = self.rewards.losses_per_episode(state.reward_fit, state.reward, reward, block.m)
        both = (drifts, self.radius_drift), (rewards, self.radius_reward)
        ratios = [
            [excess / radius(regret) for excess, regret in zip(*map(np.ndarray.tolist, losses), strict=True)]
            for losses, radius in both
        ]
        return [ExcessLoss(*pair) for pair in zip(*ratios, strict=True)]

    def update(self, state: ContinuousState, data: Dataset, which: Targets, key: Key) -> Update:
        """Recomputes the confidence sets named by `which`, then searches the optimistic argmax in both."""
        start, before = time.perf_counter(), state
        seen = data.all
        drift, reward = regression_data(seen)
        if Targets.DRIFT in which:
            fit = self.drifts.refit(state.drift_fit, drift, thorough=True)
            state = state._replace(drift_fit=fit, drift_set=fit)
        if Targets.REWARD in which:
            fit = self.rewards.refit(state.reward_fit, reward, thorough=True)
            state = state._replace(reward_fit=fit, reward_set=fit)
        self.check_fit(state, data)
        sets = self._confidence_sets(state.drift_set, state.reward_set, seen)
        fitted = time.perf_counter()
        begin = state.variables._replace(
            drift=self.drifts.encode(sets[0], state.drift), reward=self.rewards.encode(sets[1], state.reward)
        )
        found, variables = self.planner(key, *sets, begin)
        found, variables, audit = self._audit(key.child("audit"), sets, found, variables)
        models = {"drift": found.drift, "reward": found.reward}
        state = state._replace(variables=variables, **models, value=found.value, value_error=found.error)
        info = {
            "value": found.value,
            "value_error": found.error,
            "search_error": found.search_error,
            "planning_error": found.search_error + found.error,
            "shortfall": self._shortfall(before, state, drift, reward),
            **audit,
            "beta_drift": self.beta_drift(state.drift_set),
            "beta_reward": self.beta_reward(state.reward_set),
        }
        return Update(state, info, {"fit": fitted - start, "plan": time.perf_counter() - fitted})

    def _audit(
        self, key: Key, sets: tuple[Any, Any], found: Optimum, variables: Variables
    ) -> tuple[Optimum, Variables, dict[str, float]]:
        """The better of a plan and of that of a search with a large budget, drawn with the probability `audited`; what the
        large search gained, and the standard error of that."""
        if not self.audited or key.child("whether").uniform_scalar() >= self.audited:
            return found, variables, {}
        larger, where = self.auditor(key.child("search"), *sets, variables)
        gain, error = self.planner.gain(key.child("gain"), *sets, where, variables)
        info = {"audit_gain": gain, "audit_error": error}
        return (larger, where, info) if gain > 0 else (found, variables, info)

    def _shortfall(
        self, before: ContinuousState, after: ContinuousState, drift: RegressionData, reward: RegressionData
    ) -> float:
        """By how much the value of the plan before was at least too small, beyond two standard errors: the new models were
        in its sets, so its maximum was no smaller than the new value. Zero if they were not: sets need not shrink."""
        inside = (
            self.planner.exploration == "optimism"
            and self.drifts.contains(before.drift_set, after.drift, drift, self.beta_drift(before.drift_set))
            and self.rewards.contains(before.reward_set, after.reward, reward, self.beta_reward(before.reward_set))
        )
        margin = 2 * math.hypot(before.value_error, after.value_error)
        return max(0.0, after.value - before.value - margin) if inside else 0.0

    def policy(self, state: ContinuousState) -> Plan:
        """(π_n, q_n)."""
        policies, initials, variables = self.planner.policies, self.planner.initials, state.variables
        return make_plan(policies, variables.policy, initials, variables.initial)

    def covers(self, state: ContinuousState, data: Dataset, truth: Truth) -> bool:
        """Whether f* is in F_n and b* in R_n."""
        return self._needed(state.drift_set, state.reward_set, data, truth) <= 1.0

    def radius_needed(self, state: ContinuousState, data: Dataset, truth: Truth) -> float:
        """The smallest multiple of the radii at which the sets of the last fits contain f* and b*."""
        return self._needed(state.drift_fit, state.reward_fit, data, truth)

    def _needed(self, drift_fit: Any, reward_fit: Any, data: Dataset, truth: Truth) -> float:
        drift, reward = regression_data(data.all)
        return max(
            self.drifts.truth_excess(drift_fit, drift, truth.drift) / self.beta_drift(drift_fit),
            self.rewards.truth_excess(reward_fit, reward, truth.reward) / self.beta_reward(reward_fit),
        )

    def check_fit(self, state: ContinuousState, data: Dataset) -> None:
        """Warns (`MisspecificationWarning`) if the best member of a class does not explain the data."""
        if self.noise_std is not None:
            count, (d, _) = data.all.t.size, self.sizes
            drift, reward = self.drifts.minimum(state.drift_fit), self.rewards.minimum(state.reward_fit)
            warn_misspecified("drift", drift, count, d, self.noise_std[0])
            warn_misspecified("reward", reward, count, 1, self.noise_std[1])

    def check_state(self, state: ContinuousState, data: Dataset) -> None:
        """Raises unless the statistics of linear classes in a restored state are finite, as sums of measurements are."""
        for fit in (state.drift_fit, state.reward_fit, state.drift_set, state.reward_set):
            if isinstance(fit, Statistics) and not all(np.isfinite(part).all() for part in fit):
                raise StoreError("the statistics of the checkpoint are not finite")

    def check_plan(self, plan: Plan) -> None:
        """Any parameters of a plan can be executed."""

    def summarize(self, state: ContinuousState) -> dict[str, Any]:
        """How often the determinants of the ridge regressions of linear classes have doubled, 2γ_n / log 2 for both
        together: the updates of an algorithm that waits for that. Empty for other classes."""
        gain = 0.0
        for members, fit in ((self.drifts, state.drift_fit), (self.rewards, state.reward_fit)):
            if not isinstance(members, LinearClass) or members.ridge is None:
                return {}
            gain += information_gain(fit, members.ridge) * fit.cross.shape[1]  # the same for every output
        return {"determinant_doublings": 2 * gain / math.log(2)}

    def _confidence_sets(self, drift: Any, reward: Any, block: Measurements) -> tuple[Any, Any]:
        """F_n and R_n for the planner, from the fits that define them."""
        drift_data, reward_data = regression_data(block)
        return (
            self.drifts.confidence_set(drift, drift_data, self.beta_drift(drift)),
            self.rewards.confidence_set(reward, reward_data, self.beta_reward(reward)),
        )

    def beta_drift(self, fit: Any) -> float:
        """β_F of the set that `fit` defines."""
        return _beta(self.drifts, self.radius_drift, fit)

    def beta_reward(self, fit: Any) -> float:
        """β_R of the set that `fit` defines."""
        return _beta(self.rewards, self.radius_reward, fit)


def _beta(members: ModelClass, radius: Radius, fit: Any) -> float:
    """β_n; the regret of the predictions is computed only where the radius depends on it."""
    return radius(members.prequential(fit) - members.minimum(fit)) if radius.adds_regret else radius.constant

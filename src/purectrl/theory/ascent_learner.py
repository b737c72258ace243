"""The learner of Algorithms 1, 2 and 3 for continuous classes: least squares, confidence sets, joint optimistic ascent."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from purectrl.core.keys import Key
from purectrl.core.learner import Update
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.problem import Plan
from purectrl.core.schedules import Excess, Which
from purectrl.theory.ascent import Ascent, Variables
from purectrl.theory.classes import Rows
from purectrl.theory.confidence import warn_of_misfit


class AscentState(NamedTuple):
    """Fits to all data, those that F_n and R_n were made from, and the optimistic (π_n, q_n, f_n, b_n)."""

    drift_fit: Any
    reward_fit: Any
    drift_set: Any
    reward_set: Any
    variables: Variables
    """Where the last ascent ended; the next one starts there, among other places."""
    drift: Any
    """The parameter of f_n."""
    reward: Any
    """The parameter of b_n."""
    value: float
    """R(π_n, q_n, f_n, b_n)."""


class AscentLearner:
    """Fits by least squares, plans by joint ascent; what that costs with growing data is up to the classes.

    Main arguments:
        ascent: the planner over Π × Q × F_n × R_n; it holds the four classes.
        beta_drift, beta_reward: the radii β_F and β_R.
        state_dim, control_dim: d and k.

    Other arguments:
        noise: standard deviations of y and r, if known: then a class that cannot explain the data is warned of.
    """

    def __init__(
        self,
        ascent: Ascent,
        beta_drift: float,
        beta_reward: float,
        state_dim: int,
        control_dim: int,
        noise: tuple[float, float] | None = None,
    ) -> None:
        self.drifts, self.rewards, self.ascent = ascent.drifts, ascent.rewards, ascent
        self.beta_drift, self.beta_reward, self.noise = beta_drift, beta_reward, noise
        self.sizes = state_dim, control_dim

    def init(self, key: Key) -> AscentState:
        """F_1 = F, R_1 = R (line 1), and the first plan (line 3)."""
        drift = self.drifts.start(key.child("drift"), *self.sizes)
        reward = self.rewards.start(key.child("reward"), *self.sizes)
        d, k = self.sizes
        nothing = (np.zeros((0, 1, *shape)) for shape in ((), (d,), (k,), (d,), ()))
        regions = self._regions(drift, reward, Measurements(*nothing))
        begin = self.ascent.random(key.child("begin"), *regions)
        found, variables = self.ascent(key.child("plan"), *regions, begin)
        return AscentState(drift, reward, drift, reward, variables, found.drift, found.reward, found.value)

    def observe(self, state: AscentState, block: Measurements) -> AscentState:
        """Adds the new measurements to running statistics."""
        drift, reward = rows(block)
        return state._replace(
            drift_fit=self.drifts.observe(state.drift_fit, drift),
            reward_fit=self.rewards.observe(state.reward_fit, reward),
        )

    def excess(self, state: AscentState, data: Dataset, key: Key) -> tuple[Excess, AscentState]:
        """(L(f_n) − min L)/β_F and (L(b_n) − min L)/β_R: what Algorithm 2 compares with 5 (lines 6 and 7)."""
        drift, reward = rows(data.view)
        state = state._replace(
            drift_fit=self.drifts.refit(state.drift_fit, drift), reward_fit=self.rewards.refit(state.reward_fit, reward)
        )
        found = Excess(
            self.drifts.excess(state.drift_fit, state.drift, drift) / self.beta_drift,
            self.rewards.excess(state.reward_fit, state.reward, reward) / self.beta_reward,
        )
        return found, state

    def excesses(self, state: AscentState, block: Measurements) -> Sequence[Excess]:
        """The same after each episode of `block`; only linear classes can tell, from running statistics."""
        drift, reward = rows(block)
        drifts = self.drifts.excesses(state.drift_fit, state.drift, drift, block.m) / self.beta_drift
        rewards = self.rewards.excesses(state.reward_fit, state.reward, reward, block.m) / self.beta_reward
        return [Excess(*pair) for pair in zip(drifts.tolist(), rewards.tolist(), strict=True)]

    def update(self, state: AscentState, data: Dataset, which: Which, key: Key) -> Update:
        """The named confidence sets anew, then the optimistic argmax in both."""
        start = time.perf_counter()
        seen = data.view
        drift, reward = rows(seen)
        if Which.DRIFT in which:
            fit = self.drifts.refit(state.drift_fit, drift, thorough=True)
            state = state._replace(drift_fit=fit, drift_set=fit)
        if Which.REWARD in which:
            fit = self.rewards.refit(state.reward_fit, reward, thorough=True)
            state = state._replace(reward_fit=fit, reward_set=fit)
        self.check_fit(state, data)
        regions = self._regions(state.drift_set, state.reward_set, seen)
        fitted = time.perf_counter()
        begin = state.variables._replace(
            drift=self.drifts.encode(regions[0], state.drift), reward=self.rewards.encode(regions[1], state.reward)
        )
        found, variables = self.ascent(key, *regions, begin)
        state = state._replace(variables=variables, drift=found.drift, reward=found.reward, value=found.value)
        info = {"value": found.value, "value_error": found.error}
        return Update(state, info, {"fit": fitted - start, "plan": time.perf_counter() - fitted})

    def check_fit(self, state: AscentState, data: Dataset) -> None:
        """Warns of a class whose best member does not explain the data."""
        if self.noise is not None:
            seen, paid = rows(data.view)
            drift, reward = self.drifts.minimum(state.drift_fit), self.rewards.minimum(state.reward_fit)
            warn_of_misfit("drift", drift, len(seen.x), self.sizes[0], self.noise[0])
            warn_of_misfit("reward", reward, len(paid.x), 1, self.noise[1])

    def plan(self, state: AscentState) -> Plan:
        """(π_n, q_n) as parameters."""
        return Plan(state.variables.policy, state.variables.initial)

    def covers(self, state: AscentState, data: Dataset, drift: Any, reward: Any) -> bool:
        """Whether the truth, in the form that each class takes it, is in F_n and R_n."""
        seen, paid = rows(data.view)
        return self.drifts.contains(state.drift_set, seen, self.beta_drift, drift) and self.rewards.contains(
            state.reward_set, paid, self.beta_reward, reward
        )

    def _regions(self, drift: Any, reward: Any, block: Measurements) -> tuple[Any, Any]:
        seen, paid = rows(block)
        return self.drifts.region(drift, seen, self.beta_drift), self.rewards.region(reward, paid, self.beta_reward)


def rows(block: Measurements) -> tuple[Rows, Rows]:
    """The same measurements as the drift's and the reward's least-squares problem."""
    assert block.y is not None
    assert block.r is not None
    d, k = block.x.shape[-1], block.u.shape[-1]
    x, u = block.x.reshape(-1, d), block.u.reshape(-1, k)
    return Rows(x, u, block.y.reshape(-1, d)), Rows(x, u, block.r.reshape(-1, 1))

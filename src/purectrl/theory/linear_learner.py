"""The learner of Algorithms 1, 2 and 3 for linear classes: sufficient statistics, ellipsoids, joint optimistic ascent."""

import time
from typing import NamedTuple

import jax
import numpy as np

from purectrl.core.errors import MeasurementError
from purectrl.core.keys import Key
from purectrl.core.learner import Update
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.problem import Array, Plan
from purectrl.core.schedules import Excess, Which
from purectrl.systems.simulation import pad_rows
from purectrl.theory.ascent import Ascent, Variables
from purectrl.theory.linear import LinearClass, Region, Statistics


class LinearState(NamedTuple):
    """Statistics of all data, those that F_n and R_n were made from, and the optimistic (π_n, q_n, f_n, b_n)."""

    drift_data: Statistics
    reward_data: Statistics
    drift_set: Statistics
    reward_set: Statistics
    variables: Variables
    """Where the last ascent ended; the next one starts there, among other places."""
    drift: np.ndarray
    """Θ of f_n [p, d]."""
    reward: np.ndarray
    """θ of b_n [p, 1]."""
    value: float
    """R(π_n, q_n, f_n, b_n)."""


class LinearLearner:
    """Fits by least squares, plans by joint ascent; fitting costs the same at any number of measurements.

    Main arguments:
        drifts, rewards: the classes F and R.
        ascent: the planner over Π × Q × F_n × R_n.
        beta_drift, beta_reward: the radii β_F and β_R.
        state_dim, control_dim: d and k.
    """

    def __init__(
        self,
        drifts: LinearClass,
        rewards: LinearClass,
        ascent: Ascent,
        beta_drift: float,
        beta_reward: float,
        state_dim: int,
        control_dim: int,
    ) -> None:
        self.drifts, self.rewards, self.ascent = drifts, rewards, ascent
        self.beta_drift, self.beta_reward = beta_drift, beta_reward
        self.sizes = drifts.size(state_dim, control_dim), rewards.size(state_dim, control_dim)

        @jax.jit
        def features(x: Array, u: Array) -> tuple[Array, Array]:
            return jax.vmap(drifts.features)(x, u), jax.vmap(rewards.features)(x, u)

        self._features = features

    def init(self, key: Key) -> LinearState:
        """F_1 = F, R_1 = R (line 1), and the first plan (line 3)."""
        drift, reward = self.drifts.start(self.sizes[0]), self.rewards.start(self.sizes[1])
        regions = self._regions(drift, reward)
        begin = self.ascent.random(key.child("begin"), *regions)
        found, variables = self.ascent(key.child("plan"), *regions, begin)
        return LinearState(drift, reward, drift, reward, variables, found.drift, found.reward, found.value)

    def observe(self, state: LinearState, block: Measurements) -> LinearState:
        """Adds the new measurements to A, B and c."""
        rows = block.rows()
        assert rows.y is not None
        assert rows.r is not None
        drift, reward = pad_rows(self._features, rows.x[:, 0], rows.u[:, 0])
        for name, found in (("drift", drift), ("reward", reward)):
            if not np.isfinite(found).all():
                row = np.argwhere(~np.isfinite(found))[0][0]
                raise MeasurementError(
                    f"the {name} features are not finite at x = {rows.x[row, 0]}, u = {rows.u[row, 0]}"
                )
        return state._replace(
            drift_data=_add(state.drift_data, drift, rows.y[:, 0]),
            reward_data=_add(state.reward_data, reward, rows.r),
        )

    def excess(self, state: LinearState, data: Dataset, key: Key) -> tuple[Excess, LinearState]:
        """(L(f_n) − min L)/β_F and (L(b_n) − min L)/β_R: what Algorithm 2 compares with 5 (lines 6 and 7)."""
        drift = state.drift_data.loss(state.drift) - self.drifts.fit(state.drift_data)[1]
        reward = state.reward_data.loss(state.reward) - self.rewards.fit(state.reward_data)[1]
        return Excess(drift / self.beta_drift, reward / self.beta_reward), state

    def update(self, state: LinearState, data: Dataset, which: Which, key: Key) -> Update:
        """The named confidence sets anew, then the optimistic argmax in both."""
        start = time.perf_counter()
        if Which.DRIFT in which:
            state = state._replace(drift_set=state.drift_data)
        if Which.REWARD in which:
            state = state._replace(reward_set=state.reward_data)
        drift, reward = self._regions(state.drift_set, state.reward_set)
        fitted = time.perf_counter()
        begin = state.variables._replace(
            drift=coordinates(drift, state.drift), reward=coordinates(reward, state.reward)
        )
        found, variables = self.ascent(key, drift, reward, begin)
        state = state._replace(variables=variables, drift=found.drift, reward=found.reward, value=found.value)
        info = {"value": found.value, "value_error": found.error}
        return Update(state, info, {"fit": fitted - start, "plan": time.perf_counter() - fitted})

    def plan(self, state: LinearState) -> Plan:
        """(π_n, q_n) as parameters."""
        return Plan(state.variables.policy, state.variables.initial)

    def covers(self, state: LinearState, drift: np.ndarray, reward: np.ndarray) -> bool:
        """Whether Θ and θ are in F_n and R_n."""
        return all(
            statistics.loss(theta) <= found.fit(statistics)[1] + beta and np.linalg.norm(theta) <= found.bound
            for statistics, theta, found, beta in (
                (state.drift_set, drift, self.drifts, self.beta_drift),
                (state.reward_set, reward, self.rewards, self.beta_reward),
            )
        )

    def _regions(self, drift: Statistics, reward: Statistics) -> tuple[Region, Region]:
        return self.drifts.region(drift, self.beta_drift), self.rewards.region(reward, self.beta_reward)


def coordinates(region: Region, theta: np.ndarray) -> np.ndarray:
    """W with decode(region, W) = Θ."""
    return np.linalg.solve(np.asarray(region.shape, np.float64), theta - np.asarray(region.center)).astype(np.float32)


def _add(statistics: Statistics, features: np.ndarray, targets: np.ndarray) -> Statistics:
    wide, target = features.astype(np.float64), targets.astype(np.float64)
    return Statistics(
        statistics.gram + wide.T @ wide,
        statistics.cross + wide.T @ target,
        statistics.square + float((target**2).sum()),
    )

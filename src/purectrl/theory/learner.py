"""The learner of Algorithms 1, 2 and 3 for finite classes, exact: least squares, confidence sets, enumeration."""

import time
from typing import NamedTuple

import jax
import numpy as np

from purectrl.core.keys import Key
from purectrl.core.learner import Update
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.problem import Array, Plan
from purectrl.core.schedules import Excess, Which
from purectrl.systems.simulation import pad_rows
from purectrl.theory.classes import FiniteClass
from purectrl.theory.confidence import members, warn_of_misfit
from purectrl.theory.planning import Optimist


class FiniteState(NamedTuple):
    """Running losses, confidence sets, and the optimistic (π_n, q_n, f_n, b_n)."""

    drift_loss: np.ndarray
    """L(f) for every f [F]."""
    reward_loss: np.ndarray
    """L(b) for every b [R]."""
    drift_set: np.ndarray
    """F_n as a mask [F]."""
    reward_set: np.ndarray
    """R_n as a mask [R]."""
    policy: int
    initial: int
    drift: int
    reward: int
    value: float
    """R(π_n, q_n, f_n, b_n)."""


class FiniteLearner:
    """Fits by keeping the loss of every member, plans by enumeration; both cost the same at any number of measurements.

    Main arguments:
        drifts, rewards: the classes F and R.
        optimist: the planner over Π × Q × F × R.
        beta_drift, beta_reward: the radii β_F and β_R.

    Other arguments:
        noise: standard deviations of y and r, if known: then a class that cannot explain the data is warned of.
    """

    def __init__(
        self,
        drifts: FiniteClass,
        rewards: FiniteClass,
        optimist: Optimist,
        beta_drift: float,
        beta_reward: float,
        noise: tuple[float, float] | None = None,
    ) -> None:
        self.drifts, self.rewards, self.optimist = drifts, rewards, optimist
        self.beta_drift, self.beta_reward, self.noise = beta_drift, beta_reward, noise

        @jax.jit
        def losses(x: Array, u: Array, y: Array, r: Array) -> tuple[Array, Array]:
            off = jax.vmap(lambda x, u, y: drifts.table(x, u) - y)(x, u, y)
            return (off**2).sum(axis=-1), (jax.vmap(rewards.table)(x, u) - r[:, None]) ** 2

        self._losses = losses

    def init(self, key: Key) -> FiniteState:
        """F_1 = F, R_1 = R (line 1), and the first plan (line 3)."""
        F, R = self.drifts.size, self.rewards.size
        everything = np.ones(F, bool), np.ones(R, bool)
        return FiniteState(np.zeros(F), np.zeros(R), *everything, *self.optimist(*everything))

    def observe(self, state: FiniteState, block: Measurements) -> FiniteState:
        """Adds the squared errors of every member on the new measurements."""
        drift, reward = self._errors(block)
        return state._replace(
            drift_loss=state.drift_loss + drift.sum(axis=0), reward_loss=state.reward_loss + reward.sum(axis=0)
        )

    def excess(self, state: FiniteState, data: Dataset, key: Key) -> tuple[Excess, FiniteState]:
        """(L(f_n) − min L)/β_F and (L(b_n) − min L)/β_R: what Algorithm 2 compares with 5 (lines 6 and 7)."""
        drift = state.drift_loss[state.drift] - state.drift_loss.min()
        reward = state.reward_loss[state.reward] - state.reward_loss.min()
        return Excess(float(drift) / self.beta_drift, float(reward) / self.beta_reward), state

    def excesses(self, state: FiniteState, block: Measurements) -> list[Excess]:
        """The same after each episode of `block`."""
        found = []
        for before, errors, chosen, beta in zip(
            (state.drift_loss, state.reward_loss),
            self._errors(block),
            (state.drift, state.reward),
            (self.beta_drift, self.beta_reward),
            strict=True,
        ):
            losses = before + np.cumsum(errors, axis=0)
            found.append((losses[:, chosen] - losses.min(axis=1)) / beta)
        return [Excess(*pair) for pair in zip(*(each.tolist() for each in found), strict=True)]

    def _errors(self, block: Measurements) -> list[np.ndarray]:
        """Squared errors of every drift [episodes, F] and every reward [episodes, R], summed over each episode."""
        rows = block.rows()
        assert rows.y is not None
        assert rows.r is not None
        found = pad_rows(self._losses, rows.x[:, 0], rows.u[:, 0], rows.y[:, 0], rows.r[:, 0])
        return [part.reshape(block.episodes, block.m, -1).sum(axis=1, dtype=np.float64) for part in found]

    def update(self, state: FiniteState, data: Dataset, which: Which, key: Key) -> Update:
        """The named confidence sets anew, then the optimistic argmax in both."""
        start = time.perf_counter()
        self.check_fit(state, data)
        if Which.DRIFT in which:
            state = state._replace(drift_set=members(state.drift_loss, self.beta_drift))
        if Which.REWARD in which:
            state = state._replace(reward_set=members(state.reward_loss, self.beta_reward))
        fitted = time.perf_counter()
        policy, initial, drift, reward, value = self.optimist(state.drift_set, state.reward_set)
        state = state._replace(policy=policy, initial=initial, drift=drift, reward=reward, value=value)
        info = {"value": value, "drifts": int(state.drift_set.sum()), "rewards": int(state.reward_set.sum())}
        return Update(state, info, {"fit": fitted - start, "plan": time.perf_counter() - fitted})

    def check_fit(self, state: FiniteState, data: Dataset) -> None:
        """Warns of a class whose best member does not explain the data."""
        if self.noise is not None:
            seen = data.view
            warn_of_misfit("drift", state.drift_loss.min(), seen.t.size, seen.x.shape[-1], self.noise[0])
            warn_of_misfit("reward", state.reward_loss.min(), seen.t.size, 1, self.noise[1])

    def plan(self, state: FiniteState) -> Plan:
        """(π_n, q_n) as indices into Π and Q."""
        return Plan(state.policy, state.initial)

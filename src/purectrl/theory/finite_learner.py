"""The learner of Algorithms 1, 2 and 3 for finite classes, exact: least squares, confidence sets, enumeration."""

import math
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.errors import StoreError
from purectrl.core.keys import Key
from purectrl.core.learner import Update
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.plan import Plan
from purectrl.core.schedules import ExcessLoss, Targets
from purectrl.systems.compiled import pad_rows
from purectrl.theory.classes import Classes, Truth
from purectrl.theory.confidence import confidence_mask, warn_misspecified
from purectrl.theory.planning import OptimisticPlanner
from purectrl.theory.policy_classes import make_plan
from purectrl.theory.quotient import flow_quotient


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
    """Keeps the loss of every member and plans by enumeration; both cost the same at any number of measurements.

    Main arguments:
        classes: Π, Q, F and R.
        planner: the planner over Π × Q × F × R.
        beta_drift, beta_reward: the radii β_F and β_R.

    Other arguments:
        noise_std: standard deviations of y and r, if known; a class that does not explain the data then causes a warning.
        planning_error: the largest standard error of the planner's values, for the metrics of a run.
        flow_step: Δ, if y is a difference quotient to be compared with the flow of every drift over Δ; None compares y with
            the drifts themselves.
    """

    can_look_ahead = True

    def __init__(
        self,
        classes: Classes,
        planner: OptimisticPlanner,
        beta_drift: float,
        beta_reward: float,
        noise_std: tuple[float, float] | None = None,
        planning_error: float = 0.0,
        flow_step: float | None = None,
    ) -> None:
        self.classes, self.planner, self.planning_error = classes, planner, planning_error
        self.beta_drift, self.beta_reward, self.noise_std = beta_drift, beta_reward, noise_std

        def predicted(x: Array, u: Array, policy: Array) -> Array:
            if flow_step is None:
                return classes.drifts.table(x, u)
            step, act = flow_step, lambda x: classes.policies.apply(policy, x)
            each = lambda f: flow_quotient(lambda x: classes.drifts.apply(f, x, act(x)), x, step)  # noqa: E731
            return jax.vmap(each)(jnp.arange(classes.drifts.size))

        @jax.jit
        def losses(x: Array, u: Array, y: Array, r: Array, policy: Array) -> tuple[Array, Array]:
            off = jax.vmap(predicted)(x, u, policy) - y[:, None]
            return (off**2).sum(axis=-1), (jax.vmap(classes.rewards.table)(x, u) - r[:, None]) ** 2

        self._losses = losses

    def init(self, key: Key) -> FiniteState:
        """F_1 = F, R_1 = R (line 1), and the first plan (line 3)."""
        F, R = self.classes.drifts.size, self.classes.rewards.size
        everything = np.ones(F, bool), np.ones(R, bool)
        return FiniteState(np.zeros(F), np.zeros(R), *everything, *self.planner(*everything))

    def observe(self, state: FiniteState, block: Measurements) -> FiniteState:
        """Adds the squared errors of every member on the new measurements."""
        drift, reward = self.episode_errors(block, state.policy)
        return state._replace(
            drift_loss=state.drift_loss + drift.sum(axis=0), reward_loss=state.reward_loss + reward.sum(axis=0)
        )

    def excess_loss(self, state: FiniteState, data: Dataset, key: Key) -> tuple[ExcessLoss, FiniteState]:
        """(L(f_n) − min L)/β_F and (L(b_n) − min L)/β_R: what Algorithm 2 compares with 5 (lines 6 and 7)."""
        drift = state.drift_loss[state.drift] - state.drift_loss.min()
        reward = state.reward_loss[state.reward] - state.reward_loss.min()
        return ExcessLoss(float(drift) / self.beta_drift, float(reward) / self.beta_reward), state

    def excess_loss_per_episode(self, state: FiniteState, block: Measurements) -> list[ExcessLoss]:
        """The same after each episode of `block`."""
        found = []
        for before, errors, chosen, beta in zip(
            (state.drift_loss, state.reward_loss),
            self.episode_errors(block, state.policy),
            (state.drift, state.reward),
            (self.beta_drift, self.beta_reward),
            strict=True,
        ):
            losses = before + np.cumsum(errors, axis=0)
            found.append((losses[:, chosen] - losses.min(axis=1)) / beta)
        return [ExcessLoss(*pair) for pair in zip(*(each.tolist() for each in found), strict=True)]

    def episode_errors(self, block: Measurements, policy: int | np.ndarray) -> list[np.ndarray]:
        """Squared errors of every drift [episodes, F] and every reward [episodes, R], summed over each episode.

        `policy` is the index of the executed policy, or those of the episodes [episodes].
        """
        rows = block.rows()
        assert rows.y is not None
        assert rows.r is not None
        executed = np.repeat(np.broadcast_to(np.asarray(policy, np.int32), (block.episodes,)), block.m)
        found = pad_rows(self._losses, rows.x[:, 0], rows.u[:, 0], rows.y[:, 0], rows.r[:, 0], executed)
        return [part.reshape(block.episodes, block.m, -1).sum(axis=1, dtype=np.float64) for part in found]

    def update(self, state: FiniteState, data: Dataset, which: Targets, key: Key) -> Update:
        """Recomputes the confidence sets named by `which`, then takes the optimistic argmax in both."""
        start = time.perf_counter()
        self.check_fit(state, data)
        if Targets.DRIFT in which:
            state = state._replace(drift_set=confidence_mask(state.drift_loss, self.beta_drift))
        if Targets.REWARD in which:
            state = state._replace(reward_set=confidence_mask(state.reward_loss, self.beta_reward))
        fitted = time.perf_counter()
        policy, initial, drift, reward, value = self.planner(state.drift_set, state.reward_set)
        state = state._replace(policy=policy, initial=initial, drift=drift, reward=reward, value=value)
        info = {"value": value, "drifts": int(state.drift_set.sum()), "rewards": int(state.reward_set.sum())}
        return Update(state, info, {"fit": fitted - start, "plan": time.perf_counter() - fitted})

    def policy(self, state: FiniteState) -> Plan:
        """(π_n, q_n)."""
        return make_plan(self.classes.policies, state.policy, self.classes.initials, state.initial)

    def covers(self, state: FiniteState, data: Dataset, truth: Truth) -> bool:
        """Whether f* is in F_n and b* in R_n."""
        sets = (state.drift_set, truth.drift.index), (state.reward_set, truth.reward.index)
        return all(index is not None and bool(mask[index]) for mask, index in sets)

    def radius_needed(self, state: FiniteState, data: Dataset, truth: Truth) -> float:
        """The smallest multiple of the radii at which the sets of all data contain f* and b*; infinite if a list has not."""
        parts = (
            (state.drift_loss, truth.drift.index, self.beta_drift),
            (state.reward_loss, truth.reward.index, self.beta_reward),
        )
        return max(
            math.inf if index is None else float(losses[index] - losses.min()) / beta for losses, index, beta in parts
        )

    def check_fit(self, state: FiniteState, data: Dataset) -> None:
        """Warns (`MisspecificationWarning`) if the best member of a class does not explain the data."""
        if self.noise_std is not None:
            seen = data.all
            drift, reward = float(state.drift_loss.min()), float(state.reward_loss.min())
            warn_misspecified("drift", drift, seen.t.size, seen.x.shape[-1], self.noise_std[0])
            warn_misspecified("reward", reward, seen.t.size, 1, self.noise_std[1])

    def check_state(self, state: FiniteState, data: Dataset) -> None:
        """Raises unless every index of a restored state is one of its class, and both confidence sets have members."""
        names = ("policies", "initials", "drifts", "rewards")
        for name, index in zip(names, (state.policy, state.initial, state.drift, state.reward), strict=True):
            _check_index(name, index, getattr(self.classes, name).size)
        if not (np.isfinite(state.drift_loss).all() and np.isfinite(state.reward_loss).all()):
            raise StoreError("a loss of the checkpoint is not finite")
        if not (state.drift_set.any() and state.reward_set.any()):
            raise StoreError("a confidence set of the checkpoint is empty")

    def check_plan(self, plan: Plan) -> None:
        """Raises unless the policy and the initial distribution of a restored plan are members of their classes."""
        _check_index("policies", plan.policy.parameter, self.classes.policies.size)
        _check_index("initials", plan.initial.parameter, self.classes.initials.size)

    def summarize(self, state: FiniteState) -> dict[str, Any]:
        """What the learner adds to the metrics of a finished run."""
        return {"planning_error": self.planning_error}


def _check_index(name: str, index: int, size: int) -> None:
    if not 0 <= index < size:
        raise StoreError(f"it refers to member {index} of the {name}, of which there are {size}")

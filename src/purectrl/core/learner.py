"""What a learner is, its optional capabilities, and what the loop passes from step to step."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from purectrl.core.keys import Key
from purectrl.core.ledger import Ledger
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.output_rules import Output
from purectrl.core.plan import Plan
from purectrl.core.schedules import ExcessLoss, Targets
from purectrl.core.uncertainty import Uncertainty


class Update(NamedTuple):
    """What `Learner.update` returns: the new state, diagnostics, and the seconds of each phase."""

    state: Any
    info: dict[str, Any]
    """Diagnostics: columns of `records.jsonl`."""
    seconds: dict[str, float]
    """Seconds per phase, "fit" and "plan"."""
    diverged: str = ""
    """If part of the update diverged, which part and how; `state` then holds what was there before that part."""


class Learner(Protocol):
    """HOW to learn: models, confidence, planner. Its state is a pytree of arrays and numbers of fixed structure."""

    def init(self, key: Key) -> Any:
        """The state before any measurement, with a first policy in it."""
        ...

    def update(self, state: Any, data: Dataset, which: Targets, key: Key) -> Update:
        """Refits the models named by `which` to all data and plans again."""
        ...

    def policy(self, state: Any) -> Plan:
        """The pair (π, q) to execute."""
        ...


@runtime_checkable
class FitMonitor(Protocol):
    """Optional capability: the excess loss that Algorithm 2's test needs."""

    def observe(self, state: Any, block: Measurements) -> Any:
        """The state after new measurements (running statistics); the policy does not change."""
        ...

    def excess_loss(self, state: Any, data: Dataset, key: Key) -> tuple[ExcessLoss, Any]:
        """The excess loss of the models behind the current policy on all data, in units of their confidence radii, and the
        state, which may keep the fit that was made to compute it; the policy does not change."""
        ...


@runtime_checkable
class LookaheadMonitor(FitMonitor, Protocol):
    """Optional capability: excess losses after each of several episodes, so that a simulator can look ahead."""

    @property
    def can_look_ahead(self) -> bool:
        """Whether the models of this learner allow it."""
        ...

    def excess_loss_per_episode(self, state: Any, block: Measurements) -> Sequence[ExcessLoss]:
        """What `excess_loss` would return after each episode of `block`."""
        ...


@runtime_checkable
class SelfEnding(Protocol):
    """Optional capability: the learner decides when the run ends, with the rest of the budget unspent."""

    def finished(self, state: Any) -> bool:
        """Whether nothing is left to learn; asked after every step, and nothing is updated once it is true."""
        ...


@runtime_checkable
class UncertaintyEstimator(Protocol):
    """Optional capability: the predictive uncertainty that adaptive samplers need."""

    def uncertainty(self, state: Any, times: np.ndarray, key: Key) -> Uncertainty:
        """What the model does not know about an episode under the current policy, at increasing `times` [n]."""
        ...


@runtime_checkable
class BonusEstimator(Protocol):
    """Optional capability: how uncertain the reward model is about measurements that could be taken."""

    def bonus(self, state: Any, offered: Measurements) -> np.ndarray:
        """The bonus of each of the offered measurements, which have no rewards [episodes, m]."""
        ...


@runtime_checkable
class RestorationCheck(Protocol):
    """Optional capability: whether a state or a plan from a file has possible values, such as indices in range.

    Its structure, types and shapes have been checked against a new state already.
    """

    def check_state(self, state: Any, data: Dataset) -> None:
        """Raises `StoreError` unless `state` can follow from `data`."""
        ...

    def check_plan(self, plan: Plan) -> None:
        """Raises `StoreError` unless `plan` can be executed."""
        ...


class State(NamedTuple):
    """The whole state of a run. Saved and restored, it continues bit for bit."""

    key: Key
    steps: int
    ledger: Ledger
    data: Dataset
    learner: Any
    output: Output


class Record(NamedTuple):
    """What one step of the loop did."""

    step: int
    plan: Plan
    """The plan that was executed."""
    block: Measurements
    """The new measurements."""
    updated: Targets
    """The models that were updated afterwards."""
    excess_loss: ExcessLoss | None
    """The excess loss before the update, if the schedule needs it."""
    info: dict[str, Any]
    """The learner's diagnostics."""

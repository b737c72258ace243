"""What a learner is, and what the loop passes from step to step."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from purectrl.core.keys import Key
from purectrl.core.ledger import Ledger
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.outputs import Output
from purectrl.core.problem import Plan
from purectrl.core.schedules import Excess, Which


class Update(NamedTuple):
    """What `Learner.update` returns: the new state, and beside it what happened and how long each phase took."""

    state: Any
    info: dict[str, Any]
    seconds: dict[str, float]


class Learner(Protocol):
    """HOW to learn: models, confidence, planner. Its state is a tree of arrays and numbers of fixed structure."""

    def init(self, key: Key) -> Any:
        """The state before any measurement, with a first plan in it."""
        ...

    def observe(self, state: Any, block: Measurements) -> Any:
        """Takes in new measurements (running statistics); never changes the plan."""
        ...

    def excess(self, state: Any, data: Dataset, key: Key) -> tuple[Excess, Any]:
        """How badly the models behind the current plan fit all data, in units of their confidence radii, and the state,
        in which a learner may keep the fit that it made to find out; never changes the plan."""
        ...

    def excesses(self, state: Any, block: Measurements) -> Sequence[Excess]:
        """What `excess` would say after each episode of `block`, one for each. Only asked where the oracle runs ahead."""
        ...

    def update(self, state: Any, data: Dataset, which: Which, key: Key) -> Update:
        """Refits the models named by `which` and plans anew."""
        ...

    def plan(self, state: Any) -> Plan:
        """The pair (π, q) to execute."""
        ...


class State(NamedTuple):
    """All there is to a run. Saved and restored, it continues bit for bit."""

    key: Key
    steps: int
    ledger: Ledger
    data: Dataset
    learner: Any
    output: Output


class Record(NamedTuple):
    """What one step did."""

    step: int
    plan: Plan
    """What was executed."""
    block: Measurements
    """What was measured."""
    updated: Which
    """What was learned afterwards."""
    excess: Excess | None
    """How badly the models fitted before that, if the schedule asked."""
    info: dict[str, Any]
    """What the learner has to say about its update."""

"""What is to be solved: the true system, what a learner may know of it, and how a policy is evaluated.

A `Problem` contains no setting of an algorithm. The loop sees its `rollout`; the learner sees what it declares as known; the
runner calls `evaluate`, `columns`, `summarize` and `artifacts`. A problem is immutable: `open` returns a copy that holds the
files of one run.
"""

import abc
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from purectrl.core.errors import StoreError
from purectrl.core.keys import Key
from purectrl.core.learner import Record
from purectrl.core.ledger import Budget
from purectrl.core.measurement import Measurements
from purectrl.core.plan import Plan
from purectrl.core.prices import Prices
from purectrl.core.samplers import Sampler, Selection

if TYPE_CHECKING:
    from purectrl.core.loop import Loop

Metrics = dict[str, Any]
"""Names and JSON values."""


def record_numbers(
    records: Iterable[Mapping[str, Any]], *names: str, most: float = sys.float_info.max
) -> Iterator[tuple[float, ...]]:
    """The numbers called `names` of each record; raises `StoreError` if a record has none, or one larger than `most`.

    >>> list(record_numbers([{"gap": 0.5, "step": 1}, {"gap": True, "step": 2}], "gap", "step"))
    [(0.5, 1), (True, 2)]
    """
    for number, record in enumerate(records, 1):
        for name in names:
            if not isinstance(value := record.get(name), bool | int | float) or not abs(value) <= most:
                raise StoreError(f"line {number} of records.jsonl has {name} = {value!r:.40}, expected a finite number")
        yield tuple([record[name] for name in names])


class Criterion(NamedTuple):
    """When a problem counts as solved; the problem states it.

    >>> Criterion("return", -200.0, "mean return of at least -200").met({"return": -150.0})
    True
    """

    metric: str
    """A metric of its evaluations."""
    least: float
    """The smallest value of it that is enough."""
    about: str
    """The same in words, for reports."""

    def met(self, metrics: Mapping[str, Any]) -> bool | None:
        """Whether these metrics satisfy it; None if they do not contain a number for it."""
        value = metrics.get(self.metric)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        return value >= self.least


SHOWN_EPISODES, SHOWN_TIMES = 4, 300
"""How many episodes of an evaluation are kept for reports, and at how many times each."""


class Evaluation(NamedTuple):
    """The result of evaluating a policy."""

    metrics: Metrics
    episodes: Measurements | None = None
    """The first episodes, which reports show; None if the problem has no states."""
    labels: tuple[str, ...] = ()
    """What the coordinates of their states are called; x[0], x[1], … if there are none."""


@runtime_checkable
class SelectiveProblem(Protocol):
    """Optional capability of a problem: of the measurements of its rollouts, only some are taken."""

    def selective_rollout(self, key: Key, plan: Plan, times: np.ndarray, selection: Selection) -> Measurements:
        """As `rollout`, with the measurements that `selection` chooses; the result has a `count`."""
        ...


class Source(NamedTuple):
    """Where a problem comes from, so that a run directory can name it: a function and its keyword arguments."""

    reference: str
    """A shipped name such as `cartpole`, `module:function` or `path/to/file.py:function`."""
    arguments: Mapping[str, Any]
    """The keyword arguments that differ from the function's defaults; plain values."""


class Problem(abc.ABC):
    """What is to be solved."""

    name: str
    """The name in reports and run directories."""
    family: ClassVar[str | None] = None
    """The name of the family of problems that shares settings, such as `gymnasium`; None if it has none."""
    horizon: float
    """T, the length of an episode."""
    source: Source | None = None
    """Where it comes from; None for a problem that was built in Python and cannot be named."""

    kind: ClassVar[str] = "custom"
    """What learners can use: "states" for states and controls, "images" for diffusion models."""
    measurements: int = 4096
    """The measurement budget if the user gives none."""
    eval_episodes: int = 0
    """Episodes of the evaluation after each update; 0 evaluates on request only."""
    lookahead: int = 1
    """How many episodes a simulator may run before a schedule decides; 1 where episodes cannot be taken back."""
    time_grid: float | None = None
    """If given, measurements are taken at multiples of it."""
    evaluate_episodes: int = 100
    """Episodes of an evaluation on request if the user gives no number."""
    prices: Prices = Prices()
    """What measurements, rollouts and updates cost, in the unit of the return."""
    logs: Measurements | None = None
    """Measurements from before a run, the first data of its learner; they are not charged to its budget."""
    abort_reward: float = 0.0
    """The reward rate from the end of an aborted episode to its horizon; rewards of learners are relative to it."""
    truth: Any = None
    """f* and b* as function classes represent them, for coverage tests; None if unknown. Learners never see it."""
    criterion: Criterion | None = None
    """When it counts as solved; None if it does not say."""
    default_algorithm: ClassVar[str | None] = None
    """The name of the algorithm that is run if the user names none; None if one must be named."""
    result_metric: ClassVar[str] = "return"
    """The metric by which policies are compared."""
    packages: tuple[str, ...] = ("numpy", "jax", "equinox", "diffrax", "optax")
    """The packages whose versions determine the numbers of a run."""

    @abc.abstractmethod
    def rollout(self, key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        """Executes `plan` in as many episodes as `times` [episodes, m] has rows and measures at those times."""

    @abc.abstractmethod
    def evaluate(self, plan: Plan, key: Key, episodes: int) -> Metrics:
        """Metrics of `plan` on new episodes, without exploration noise."""

    def evaluation(self, plan: Plan, key: Key, episodes: int) -> Evaluation:
        """`evaluate`, and the first of its episodes."""
        return Evaluation(self.evaluate(plan, key, episodes))

    def evaluate_update(self, plan: Plan, key: Key, updates: int) -> Evaluation:
        """The evaluation after an update, `updates` of which there have been, on `eval_episodes` new episodes."""
        return self.evaluation(plan, key, self.eval_episodes)

    def evaluation_key(self, key: Key, steps: int) -> Key:
        """The key of the evaluation after step `steps` of a run with root key `key`."""
        return key.child("test", steps)

    def open(self, directory: Path | None) -> Self:
        """The problem with the files of one run, such as a log of paid queries, in `directory`."""
        return self

    def check_data(self, data: Measurements) -> None:  # noqa: B027 (problems without such a condition need none)
        """Raises `StoreError` unless measurements from a file, which are finite, can be some of this problem."""

    def estimate(self, loop: "Loop") -> str | None:
        """What a run of `loop` will cost, in one or two lines that are shown before it starts; None if it is not known."""
        return None

    def columns(self, record: Record) -> Metrics:
        """What the problem adds to a line of `records.jsonl`: quantities that need no rollout."""
        return {}

    def summarize(self, plan: Plan, last: Plan, key: Key, records: Sequence[Mapping[str, Any]]) -> Metrics:
        """What the problem adds to the metrics of a finished run that returns `plan`; `last` is the final policy."""
        return {}

    def memory_bytes(self, budget: Budget, sampler: Sampler) -> Mapping[str, float]:
        """An estimate of the largest arrays of a run on this problem: bytes by the settings that they depend on."""
        return {}

    def update_bytes(self, loop: "Loop") -> float:
        """An estimate of the main memory of an update of `loop`, where only the composed parts know it; else 0."""
        return 0.0

    def artifacts(self, plan: Plan, key: Key, directory: Path) -> list[Path]:
        """Writes what a finished run leaves besides its policy, such as images, and returns the files."""
        return []

    def video(self, plan: Plan, key: Key, directory: Path) -> list[Path] | None:
        """Writes a video of the policy and returns the files; None if the problem has nothing to render."""
        return None

"""What is to be solved: the true system, what a learner may know of it, and how a policy is evaluated.

A `Problem` contains no setting of an algorithm. The loop sees its `rollout`; the learner sees what it declares as known; the
runner calls `evaluate`, `columns`, `summarize` and `artifacts`. A problem is immutable: `open` returns a copy that holds the
files of one run.
"""

import abc
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from purectrl.core.errors import StoreError
from purectrl.core.keys import Key
from purectrl.core.learner import Record
from purectrl.core.ledger import Budget
from purectrl.core.measurement import Measurements
from purectrl.core.plan import Plan
from purectrl.core.prices import Prices
from purectrl.core.samplers import Sampler

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
    truth: Any = None
    """f* and b* as function classes represent them, for coverage tests; None if unknown. Learners never see it."""
    packages: tuple[str, ...] = ("numpy", "jax", "equinox", "diffrax", "optax")
    """The packages whose versions determine the numbers of a run."""

    @abc.abstractmethod
    def rollout(self, key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        """Executes `plan` in as many episodes as `times` [episodes, m] has rows and measures at those times."""

    @abc.abstractmethod
    def evaluate(self, plan: Plan, key: Key, episodes: int) -> Metrics:
        """Metrics of `plan` on new episodes, without exploration noise."""

    def evaluate_update(self, plan: Plan, key: Key, updates: int) -> Metrics:
        """The evaluation after an update, `updates` of which there have been, on `eval_episodes` new episodes."""
        return self.evaluate(plan, key, self.eval_episodes)

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

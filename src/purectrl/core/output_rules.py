"""WHICH policy a run returns: the pair (π̂, q̂), selected while the run goes on so that no history of policies is kept.

A rule is called as `rule(key, chosen, executed, current, block, ledger) -> Output`. `executed` is the plan of the episodes
that were just measured, `current` the one that follows: the same object unless there was an update.
"""

import abc
import dataclasses
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from purectrl.core.keys import Key
from purectrl.core.ledger import Ledger
from purectrl.core.measurement import Measurements
from purectrl.core.plan import Plan
from purectrl.core.settings import Settings


class Output(NamedTuple):
    """The plan selected so far, and the statistics of `BestMeasured`."""

    plan: Plan
    best: Plan
    """The best plan among those that are no longer executed."""
    best_score: float = -np.inf
    rewards: int = 0
    """Number of rewards measured under the executed plan, and their sum."""
    total: float = 0.0
    all_rewards: int = 0
    """Number of all rewards measured so far, their sum and the sum of their squares."""
    all_total: float = 0.0
    all_squares: float = 0.0


class OutputRule(Settings, abc.ABC):
    """A rule that selects the policy that a run returns."""

    @abc.abstractmethod
    def __call__(
        self, key: Key, chosen: Output, executed: Plan, current: Plan, block: Measurements, ledger: Ledger
    ) -> Output:
        """The selection after the episodes of `block`."""


@dataclasses.dataclass(frozen=True)
class UniformEpisode(OutputRule):
    """(π_n, q_n) for n uniform over all episodes: the paper's output (Algorithms 1 to 3, "Ensure").

    Reservoir sampling: after n episodes each of them has been kept with probability 1/n.
    """

    def __call__(
        self, key: Key, chosen: Output, executed: Plan, current: Plan, block: Measurements, ledger: Ledger
    ) -> Output:
        """Takes the executed plan with probability (episodes of the block)/(episodes so far)."""
        takes = key.uniform_scalar() * ledger.rollouts < block.episodes
        return Output(executed, executed) if takes else chosen


@dataclasses.dataclass(frozen=True)
class LastPolicy(OutputRule):
    """The policy of the final learner state, executed or not (Algorithms 4 and 5, "Output")."""

    def __call__(
        self, key: Key, chosen: Output, executed: Plan, current: Plan, block: Measurements, ledger: Ledger
    ) -> Output:
        """Takes the current plan."""
        return Output(current, current)


@dataclasses.dataclass(frozen=True)
class BestMeasured(OutputRule):
    """The executed policy with the highest mean measured reward minus two standard errors.

    The variance of a reward is estimated from all measurements of the run, so that a policy measured once has a score, too;
    a policy that an update leaves unchanged keeps its rewards.
    """

    def __call__(
        self, key: Key, chosen: Output, executed: Plan, current: Plan, block: Measurements, ledger: Ledger
    ) -> Output:
        """Scores the executed plan and keeps the better one."""
        if block.r is None:
            return Output(current, current)
        rewards = block.r if block.count is None else block.r[block.valid]
        count, total = chosen.rewards + rewards.size, chosen.total + float(rewards.sum())
        all_count, all_total = chosen.all_rewards + rewards.size, chosen.all_total + float(rewards.sum())
        all_squares = chosen.all_squares + float((rewards**2).sum())
        variance = max(all_squares / all_count - (all_total / all_count) ** 2, 0.0)
        score = float(total / count - 2 * np.sqrt(variance / count))
        best, best_score = (executed, score) if score > chosen.best_score else (chosen.best, chosen.best_score)
        if same(executed, current):
            return Output(best, chosen.best, chosen.best_score, count, total, all_count, all_total, all_squares)
        return Output(best, best, best_score, 0, 0.0, all_count, all_total, all_squares)


OUTPUT_RULES: dict[str, type[OutputRule]] = {
    "uniform": UniformEpisode,
    "last": LastPolicy,
    "best-measured": BestMeasured,
}
"""The names that `--output` takes."""


def same(one: Any, other: Any) -> bool:
    """Whether two plans are equal number by number, as a plan and its copy restored from a checkpoint are.

    >>> same(Plan(1, np.ones(2)), Plan(1, np.ones(2))), same(Plan(1, 0), Plan(2, 0))
    (True, False)
    """
    if one is other:
        return True
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if dataclasses.is_dataclass(one) and type(one) is type(other):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one))
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return _is_numeric(one) and _is_numeric(other) and np.array_equal(_as_numpy(one), _as_numpy(other), equal_nan=True)


def _is_numeric(value: Any) -> TypeGuard[Any]:
    """Whether `value` is a number or an array: of NumPy, JAX or torch."""
    return isinstance(value, int | float) or hasattr(value, "__array__")


def _as_numpy(value: Any) -> np.ndarray:
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)

"""WHAT to hand over: the plan (π̂, q̂) that a run ends with, chosen while it runs so that no history of plans is kept.

A rule is a plain function `rule(key, chosen, executed, current, block, ledger) -> Output`. `executed` is the plan of the
block that has just been measured, `current` the one that follows it: the same object unless there was an update.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from purectrl.core.keys import Key
from purectrl.core.ledger import Ledger
from purectrl.core.measurement import Measurements
from purectrl.core.problem import Plan


class Output(NamedTuple):
    """The plan chosen so far, and what `best_measured` remembers."""

    plan: Plan
    champion: Plan
    """The best plan among those that are no longer executed."""
    score: float = -np.inf
    """The champion's score."""
    taken: int = 0
    """Rewards measured under the executed plan, and their sum."""
    total: float = 0.0
    all_taken: int = 0
    """All rewards measured so far, their sum and the sum of their squares."""
    all_total: float = 0.0
    all_squares: float = 0.0


OutputRule = Callable[[Key, Output, Plan, Plan, Measurements, Ledger], Output]


def uniform(key: Key, chosen: Output, executed: Plan, current: Plan, block: Measurements, ledger: Ledger) -> Output:
    """(π_n, q_n) for n uniform over all episodes: the paper's output (Algorithms 1 to 3, "Ensure").

    Reservoir sampling: after n episodes each of them has been kept with probability 1/n.
    """
    takes = key.fraction() * ledger.rollouts < block.episodes
    return Output(executed, executed) if takes else chosen


def last(key: Key, chosen: Output, executed: Plan, current: Plan, block: Measurements, ledger: Ledger) -> Output:
    """The plan of the final learner state, executed or not (Algorithms 4 and 5, "Output")."""
    return Output(current, current)


def best_measured(
    key: Key, chosen: Output, executed: Plan, current: Plan, block: Measurements, ledger: Ledger
) -> Output:
    """The executed plan with the highest mean measured reward, less two standard errors so that luck does not win.

    The spread of a reward is taken from all measurements of the run, so that a plan measured once is judged, too; a plan
    that an update leaves as it was goes on with the rewards it has.
    """
    if block.r is None:
        return last(key, chosen, executed, current, block, ledger)
    taken, total = chosen.taken + block.r.size, chosen.total + float(block.r.sum())
    all_taken, all_total = chosen.all_taken + block.r.size, chosen.all_total + float(block.r.sum())
    all_squares = chosen.all_squares + float((block.r**2).sum())
    variance = max(all_squares / all_taken - (all_total / all_taken) ** 2, 0.0)
    score = float(total / taken - 2 * np.sqrt(variance / taken))
    best, height = (executed, score) if score > chosen.score else (chosen.champion, chosen.score)
    if same(executed, current):
        return Output(best, chosen.champion, chosen.score, taken, total, all_taken, all_total, all_squares)
    return Output(best, best, height, 0, 0.0, all_taken, all_total, all_squares)


def same(one: Any, other: Any) -> bool:
    """Whether two plans are equal number by number.

    >>> same(Plan(1, np.ones(2)), Plan(1, np.ones(2))), same(Plan(1, 0), Plan(2, 0))
    (True, False)
    """
    if one is other:
        return True
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    numeric = (int, float, np.ndarray, np.generic)
    return isinstance(one, numeric) and isinstance(other, numeric) and np.array_equal(one, other)

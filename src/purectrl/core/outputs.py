"""WHAT to hand over: the plan (π̂, q̂) that a run ends with, chosen while it runs so that no history of plans is kept.

A rule is a plain function `rule(key, chosen, executed, current, block, ledger) -> Output`. `executed` is the plan of the
block that has just been measured, `current` the one that follows it: the same object unless there was an update.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from purectrl.core.keys import Key
from purectrl.core.ledger import Ledger
from purectrl.core.measurement import Measurements
from purectrl.core.problem import Plan


class Output(NamedTuple):
    """The plan chosen so far, and what `best_measured` remembers: its score and the rewards of the executed plan."""

    plan: Plan
    score: float = -np.inf
    taken: int = 0
    total: float = 0.0
    squares: float = 0.0


OutputRule = Callable[[Key, Output, Plan, Plan, Measurements, Ledger], Output]


def uniform(key: Key, chosen: Output, executed: Plan, current: Plan, block: Measurements, ledger: Ledger) -> Output:
    """(π_n, q_n) for n uniform over all episodes: the paper's output (Algorithms 1 to 3, "Ensure").

    Reservoir sampling: after n episodes each of them has been kept with probability 1/n.
    """
    takes = key.fraction() * ledger.rollouts < block.episodes
    return Output(executed) if takes else chosen


def last(key: Key, chosen: Output, executed: Plan, current: Plan, block: Measurements, ledger: Ledger) -> Output:
    """The plan of the final learner state, executed or not (Algorithms 4 and 5, "Output")."""
    return Output(current)


def best_measured(
    key: Key, chosen: Output, executed: Plan, current: Plan, block: Measurements, ledger: Ledger
) -> Output:
    """The executed plan with the highest mean measured reward, less one standard error so that luck does not win."""
    if block.r is None:
        return last(key, chosen, executed, current, block, ledger)
    count = chosen.taken + block.r.size
    total = chosen.total + float(block.r.sum())
    squares = chosen.squares + float((block.r**2).sum())
    mean = total / count
    error = np.sqrt(max(squares / count - mean**2, 0.0) / (count - 1)) if count > 1 else np.inf
    better = mean - error > chosen.score
    plan, score = (executed, float(mean - error)) if better else (chosen.plan, chosen.score)
    if current is not executed:  # an update ends the executed plan's tenure
        count, total, squares = 0, 0.0, 0.0
    return Output(plan, score, count, total, squares)

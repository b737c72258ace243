"""Coverage as a criterion: every theorem assumes that the truth is in both confidence sets for all n."""

from collections.abc import Mapping

import numpy as np

from purectrl.paper.load import Runs
from purectrl.paper.results import Check
from purectrl.paper.statistics import wilson

DELTA = 0.1
"""δ, the probability with which the confidence sets may fail; the default of all learners with confidence sets."""


def covered(runs: Runs) -> np.ndarray:
    """Whether the truth was in both sets for all n, for every run of a group [seeds]."""
    return runs.metric("covered").astype(bool)


def coverage_check(found: Mapping[str, Runs], delta: float = DELTA) -> Check:
    """The share of covered runs among all runs of an item, with Wilson's interval."""
    every = np.concatenate([covered(runs) for runs in found.values()])
    share = wilson(int(every.sum()), len(every))
    criterion = f"truth in both confidence sets for all n in at least 1 − δ = {1 - delta:g} of the runs"
    return Check(criterion, f"{every.sum()} of {len(every)}, {share:.3f}", share.value >= 1 - delta)

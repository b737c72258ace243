"""What samplers and schedules need of a learner, checked before anything runs."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from purectrl.core.errors import UnsupportedError
from purectrl.core.keys import Key
from purectrl.core.learner import FitMonitor, Learner, UncertaintyEstimator
from purectrl.core.samplers import Sampler
from purectrl.core.schedules import Schedule
from purectrl.core.uncertainty import Uncertainty


def check_capabilities(sampler: Sampler, schedule: Schedule, learner: Learner) -> None:
    """Raises `UnsupportedError`, which says what would work, unless the learner offers what the other two need."""
    name = type(learner).__name__
    if schedule.needs_excess_loss and not isinstance(learner, FitMonitor):
        raise UnsupportedError(
            f"schedule: {type(schedule).__name__} needs the excess loss of the models, which {name} does not compute; "
            "use batches, every or geometric"
        )
    if sampler.needs_uncertainty and not isinstance(learner, UncertaintyEstimator):
        raise UnsupportedError(
            f"sampler: {type(sampler).__name__} needs the predictive uncertainty of the model, which {name} does not "
            "compute; use uniform, stratified or equidistant"
        )


def uncertainty(sampler: Sampler, learner: Learner, state: Any) -> Callable[[np.ndarray, Key], Uncertainty] | None:
    """What an adaptive sampler may ask of the model in `state`; None for other samplers."""
    if not sampler.needs_uncertainty:
        return None
    assert isinstance(learner, UncertaintyEstimator)
    return functools.partial(learner.uncertainty, state)

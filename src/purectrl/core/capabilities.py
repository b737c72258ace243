"""What samplers and schedules need of a learner, checked before anything runs."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from purectrl.core.errors import UnsupportedError
from purectrl.core.keys import Key
from purectrl.core.learner import BonusEstimator, FitMonitor, Learner, UncertaintyEstimator
from purectrl.core.lookahead import Lookahead
from purectrl.core.measurement import Measurements
from purectrl.core.oracle import Oracle
from purectrl.core.samplers import Context, Sampler, Selection
from purectrl.core.schedules import Schedule
from purectrl.core.uncertainty import Uncertainty


def check_capabilities(sampler: Sampler, schedule: Schedule, learner: Learner, oracle: Oracle | Lookahead) -> None:
    """Raises `UnsupportedError`, which says what would work, unless learner and system offer what the others need."""
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
    selective = isinstance(oracle, Oracle) and oracle.selective is not None
    if sampler.selects and not (selective and isinstance(learner, BonusEstimator)):
        raise UnsupportedError(
            f"sampler: {type(sampler).__name__} takes some of the measurements of a rollout, which works with a reward "
            "model on images (seiko, pure-seiko) only; use equidistant, geometric or final"
        )
    if sampler.selects and oracle.budget.rollouts is not None:
        raise UnsupportedError(
            f"rollouts: {type(sampler).__name__} decides how many rollouts the measurements need; limit measurements alone"
        )


def selection(sampler: Sampler, learner: Learner, context: Context, episodes: int) -> tuple[int, Selection | None]:
    """The number of rollouts for the measurements of `episodes` whole episodes, and which measurements are taken of them."""
    if not sampler.selects:
        return episodes, None
    assert isinstance(learner, BonusEstimator)
    bonus = functools.partial(learner.bonus, context.learner)

    def choose(offered: Measurements, asked: int, key: Key) -> np.ndarray:
        """Which measurements are taken."""
        return sampler.select(offered, asked, key, context, bonus)

    return sampler.rollouts(episodes, context), Selection(episodes * sampler.m, choose)


def uncertainty(sampler: Sampler, learner: Learner, state: Any) -> Callable[[np.ndarray, Key], Uncertainty] | None:
    """What an adaptive sampler may ask of the model in `state`; None for other samplers."""
    if not sampler.needs_uncertainty:
        return None
    assert isinstance(learner, UncertaintyEstimator)
    return functools.partial(learner.uncertainty, state)

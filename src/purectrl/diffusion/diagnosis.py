"""Whether a fine-tuned model exploits its reward model: predictions beside evaluations."""

import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from purectrl.core.problem import Metrics, record_numbers


class ExploitationWarning(UserWarning):
    """A fine-tuned model seems to exploit errors of its reward model."""


def overestimation(records: Sequence[Mapping[str, Any]]) -> Metrics:
    """By how much the reward model's prediction for the last update exceeded the evaluation after it.

    >>> overestimation([{"predicted_reward": 0.75, "eval_reward": 0.5}])
    {'overestimation': 0.25}
    """
    both = _numbers(records, "predicted_reward", "eval_reward")
    return {"overestimation": both[-1][0] - both[-1][1]} if both else {}


def warn_of_exploitation(records: Sequence[Mapping[str, Any]]) -> None:
    """Warns of the last update after which the evaluation fell although the reward model predicted a gain."""
    names = ("predicted_reward_before", "predicted_reward", "eval_reward", "updates")
    for before, after in reversed(list(pairwise(_numbers(records, *names)))):
        gain, real = after[1] - after[0], after[2] - before[2]
        if gain > 0 > real:
            warnings.warn(
                f"update {after[3]:g}: the reward model predicted a gain of {gain:.3g}, the evaluation fell by {-real:.3g}: "
                "the model may exploit errors of its reward model; use a larger learner.finetune.alpha, more measurements, "
                "or fewer updates",
                ExploitationWarning,
                stacklevel=3,
            )
            return


def _numbers(records: Sequence[Mapping[str, Any]], *names: str) -> list[tuple[float, ...]]:
    """The numbers called `names` of the records that have all of them."""
    return list(record_numbers([one for one in records if all(name in one for name in names)], *names))

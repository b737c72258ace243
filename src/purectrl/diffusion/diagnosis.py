"""Whether a fine-tuned model exploits its reward model or its reward: predictions beside measurements and evaluations.

promised_reward   what the reward model predicted, at the last update, for the model that it made
asked_reward      what was then measured on final images of that model
overestimation    the same for the evaluation after the last update
second opinion    classifier accuracy and diversity, which no update sees
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from purectrl.core.measurement import Measurements
from purectrl.core.problem import Metrics, record_numbers


class ExploitationWarning(UserWarning):
    """A fine-tuned model seems to exploit errors of its reward model."""


LEAST = 8
"""Fewer measured rewards of final images than this are not compared."""
ERRORS = 3.0
"""Standard errors by which a measured reward must have fallen."""
LIMITS: Mapping[str, float] = {"classifier_accuracy": 0.9, "diversity": 0.5}
"""Shares of the pretrained model's values below which a second opinion has parted from the reward."""


def final_rewards(measured: Measurements, horizon: float) -> np.ndarray:
    """The measured rewards of final images [n]."""
    assert measured.r is not None
    return measured.r[measured.valid & (measured.t >= horizon - 1e-6)]


def compare(promised: float, before: float, rewards: np.ndarray) -> dict[str, float]:
    """Columns that compare the measured rewards of final images [n] with what the last update promised.

    Main arguments:
        promised: what the reward model predicted for the model; infinite before the first update.
        before: the mean measured reward of the model before that update.
        rewards: what was measured.

    >>> found = compare(promised=0.9, before=0.5, rewards=np.array([0.1, 0.3] * 8))
    >>> round(found["asked_reward"], 3), round(found["shortfall"], 3), found["measured_reward_fell"]
    (0.2, 0.7, True)
    """
    if not len(rewards):
        return {}
    found = {"asked_reward": float(rewards.mean())}
    if not math.isfinite(promised):
        return found
    found |= {"promised_reward": promised, "shortfall": promised - found["asked_reward"]}
    if len(rewards) < LEAST or not math.isfinite(before):
        return found
    error = float(rewards.std(ddof=1)) / len(rewards) ** 0.5
    fell = promised > before and found["asked_reward"] < before - ERRORS * max(error, 1e-12)
    return found | {"asked_reward_before": before, "measured_reward_fell": fell}


def warn_of_fall(update: int, found: Mapping[str, float], ends: bool, regularised: bool = True) -> None:
    """Warns that the measured reward fell after an update that promised a gain.

    Main arguments:
        ends: whether the run ends there.
        regularised: whether the update pays for its divergence from the pretrained model.
    """
    instead = "" if regularised else ", and a positive learner.finetune.alpha keeps the model near the pretrained one"
    warnings.warn(
        f"update {update} promised a reward of {found['promised_reward']:.3g}; the measured reward fell from "
        f"{found['asked_reward_before']:.3g} to {found['asked_reward']:.3g}: the model may exploit errors of its reward "
        + ("model; the run ends" if ends else f"model; learner.stop_when_worse ends a run there{instead}"),
        ExploitationWarning,
        stacklevel=4,
    )


def warn_of_parting(before: Metrics, after: Metrics) -> None:
    """Warns if the reward rose while what no update sees, a second opinion, fell far below the pretrained model's.

    >>> warn_of_parting({"reward": 0.5, "diversity": 0.2}, {"reward": 0.9, "diversity": 0.15})  # no warning
    """
    if after.get("reward", math.inf) <= before.get("reward", -math.inf):
        return
    for name, share in LIMITS.items():
        if name in before and after[name] < share * before[name]:
            warnings.warn(
                f"{name.replace('_', ' ')} fell from {before[name]:.3g} to {after[name]:.3g}: the model may exploit the "
                "reward itself; look at the images, and use a larger learner.finetune.alpha or fewer updates",
                ExploitationWarning,
                stacklevel=3,
            )
            return


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

"""Tests of a policy on the true mechanism: ten episodes of 30 s, without noise, that count after 3 s."""

from collections.abc import Callable
from typing import Any

import numpy as np

from purectrl.control.exploration import SmoothNoise
from purectrl.control.policy import Behaviour
from purectrl.control.rollout import feedback
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.problem import Plan
from purectrl.systems.mechanism import Mechanism

EPISODES, SECONDS, STEP = 10, 30.0, 0.1
SETTLED, LATE = 3.0, 5.0
"""Seconds that a swing-up may take: those of the ENODE code, and those that every system leaves time for."""
GOOD = 0.8
"""A task is solved when no reward of any test is smaller, once it counts."""


def trial(mechanism: Mechanism, diffusion: float = 0.0) -> Callable[[Key, Plan, np.ndarray], Measurements]:
    """(key, plan, times [episodes, n]) -> what tests of the plan's actor see at those times."""
    rollout = feedback(mechanism, SmoothNoise(SECONDS), diffusion, sizes=(1, EPISODES))
    return lambda key, plan, times: rollout(key, Plan(without_noise(plan.policy), ()), times)


def without_noise(behaviour: Behaviour) -> Behaviour:
    """The actor alone."""
    return behaviour._replace(amplitudes=np.zeros(1, np.float32))


def times_of_tests(episodes: int, step: float = STEP, seconds: float = SECONDS) -> np.ndarray:
    """Times [episodes, seconds/step]."""
    return np.tile(np.arange(round(seconds / step)) * step, (episodes, 1))


def judged(seen: Measurements) -> dict[str, Any]:
    """What tests say about a policy.

    >>> x, u = np.zeros((1, 3, 2)), np.zeros((1, 3, 1))
    >>> up = Measurements(np.array([[0.0, 3.0, 6.0]]), x, u, r=np.array([[0.1, 0.7, 0.9]]))
    >>> found = judged(up)
    >>> round(found["reward"], 3), found["reward_min"], found["solved"], found["reward_after_5"]
    (0.8, 0.7, False, 0.9)
    """
    assert seen.r is not None
    settled, late = (seen.r[seen.t >= after - 1e-9] for after in (SETTLED, LATE))
    return {
        "reward": float(settled.mean()),
        "reward_min": float(settled.min()),
        "solved": bool(settled.min() >= GOOD),
        "reward_after_5": float(late.mean()),
        "reward_min_after_5": float(late.min()),
    }

"""Measurements from before a run, such as logs, as the first data of its learner. They are not charged to the budget.

A data set has rows of one length, so the longest log, or an episode of the run if that is longer, determines it; shorter
rows are padded and carry the number of their measurements.
"""

from typing import Any

import numpy as np

from purectrl.core.errors import MeasurementError
from purectrl.core.measurement import NAMES, Measurements


def widened(block: Measurements, m: int) -> Measurements:
    """The same measurements in rows of at least `m` places, with the number of measurements of each episode.

    >>> t = np.array([[0.0, 0.1]])
    >>> wide = widened(Measurements(t, t[..., None], t[..., None]), m=3)
    >>> wide.t.tolist(), wide.count.tolist(), wide.terminated.tolist()
    ([[0.0, 0.1, 0.1]], [2], [False])
    """
    missing = max(0, m - block.m)
    pad = lambda array: np.concatenate([array, np.repeat(array[:, -1:], missing, axis=1)], axis=1)  # noqa: E731
    y, r = (None if array is None else pad(array) for array in (block.y, block.r))
    count = np.full(block.episodes, block.m) if block.count is None else block.count
    final = np.full((block.episodes, *block.x.shape[2:]), np.nan) if block.final is None else block.final
    return Measurements(pad(block.t), pad(block.x), pad(block.u), y, r, count.astype(np.int64), final)


def conforming(block: Measurements, first: Measurements) -> Measurements:
    """New measurements in rows like those of the first data, so that both fit into one data set."""
    if block.m > first.m:
        raise MeasurementError(f"an episode has {block.m} measurements, but rows of the first data have {first.m}")
    wide = widened(block, first.m)

    def like(name: str) -> Any:
        found, logged = getattr(wide, name), getattr(first, name)
        if (found is None) != (logged is None):
            which = ("logs", "run") if found is None else ("run", "logs")
            raise MeasurementError(f"{name}: the episodes of the {which[0]} contain it, those of the {which[1]} do not")
        return None if found is None else found.astype(logged.dtype)

    return Measurements(**{name: like(name) for name in NAMES})

"""Measurements from before a run, such as logs, as the first data of its learner. They are not charged to the budget.

A data set has rows of one length, so the longest log, or an episode of the run if that is longer, determines it; shorter
rows are padded and carry the number of their measurements.
"""

import numpy as np

from purectrl.core.errors import MeasurementError
from purectrl.core.measurement import Measurements


def widened(block: Measurements, m: int) -> Measurements:
    """The same measurements in rows of at least `m` places, with the number of measurements of each episode.

    >>> t = np.array([[0.0, 0.1]])
    >>> wide = widened(Measurements(t, t[..., None], t[..., None]), m=3)
    >>> wide.t.tolist(), wide.count.tolist(), wide.terminated.tolist()
    ([[0.0, 0.1, 0.1]], [2], [False])
    """
    missing = max(0, m - block.m)
    pad = lambda array: np.concatenate([array, np.repeat(array[:, -1:], missing, axis=1)], axis=1)  # noqa: E731
    arrays = {"t": block.t, "x": block.x, "u": block.u, "y": block.y, "r": block.r}
    count = np.full(block.episodes, block.m) if block.count is None else block.count
    final = np.full((block.episodes, *block.x.shape[2:]), np.nan) if block.final is None else block.final
    padded = {name: None if array is None else pad(array) for name, array in arrays.items()}
    return Measurements(**padded, count=count.astype(np.int64), final=final)


def conforming(block: Measurements, first: Measurements) -> Measurements:
    """New measurements in rows like those of the first data, so that both fit into one data set."""
    if block.m > first.m:
        raise MeasurementError(f"an episode has {block.m} measurements, but rows of the first data have {first.m}")
    wide = widened(block, first.m)
    like = {"t": first.t, "x": first.x, "u": first.u, "y": first.y, "r": first.r, "final": first.final}
    arrays = {}
    for name, array in like.items():
        found = getattr(wide, name)
        if (found is None) != (array is None):
            state = ("measure", "do not measure") if array is None else ("do not measure", "measure")
            raise MeasurementError(f"{name}: the episodes of the run {state[0]} it, the logs {state[1]} it")
        arrays[name] = None if found is None or array is None else found.astype(array.dtype)
    return Measurements(**arrays, count=wide.count)

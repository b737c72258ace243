"""The evaluation episodes that a run directory keeps for reports: a few of the newest evaluation, at some of their times.

DIR/episodes.safetensors      of the newest evaluation of a run
DIR/evaluation.safetensors    of `purectrl evaluate`

Each has the arrays t [episodes, n], x [episodes, n, d], u [episodes, n, k], r [episodes, n] and count [episodes], the number
of times of each episode; what follows them in a row repeats the last one.
"""

from pathlib import Path

import numpy as np

from purectrl.core.io import write_checksummed
from purectrl.core.measurement import Measurements
from purectrl.core.problem import SHOWN_TIMES, Evaluation

EPISODES, EVALUATION = "episodes.safetensors", "evaluation.safetensors"
"""The files."""


def write_episodes(path: Path, evaluation: Evaluation, **about: int) -> None:
    """Writes the episodes of an evaluation, if it has any, at no more than `SHOWN_TIMES` of their times."""
    if evaluation.episodes is not None:
        write_checksummed(path, thinned(evaluation.episodes), {**about, "labels": list(evaluation.labels)})


def thinned(seen: Measurements) -> dict[str, np.ndarray]:
    """The arrays of some episodes at evenly spaced ones of their times, which include the first and the last.

    >>> t = np.arange(600.0)[None]
    >>> short = thinned(Measurements(t, t[..., None], t[..., None], count=np.array([500])))
    >>> short["t"].shape, short["count"].tolist(), short["t"][0, [0, -1]].tolist()
    ((1, 300), [300], [0.0, 499.0])
    """
    count = np.full(seen.episodes, seen.m) if seen.count is None else np.asarray(seen.count)
    kept = np.minimum(count, SHOWN_TIMES)
    places = np.zeros((seen.episodes, max(1, int(kept.max(initial=0)))), int)
    for row, (whole, few) in enumerate(zip(count, kept, strict=True)):
        places[row, :few] = np.linspace(0, whole - 1, few).round().astype(int)
        places[row, few:] = max(whole - 1, 0)
    row = np.arange(seen.episodes)[:, None]
    arrays = {"t": seen.t, "x": seen.x, "u": seen.u} | ({} if seen.r is None else {"r": seen.r})
    return {name: array[row, places].astype(np.float32) for name, array in arrays.items()} | {
        "count": kept.astype(np.int64)
    }

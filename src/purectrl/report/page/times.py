"""When a run measured: the times along its episodes, from what its newest checkpoint refers to."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from purectrl.core.errors import StoreError
from purectrl.experiments.segments import Segment

BINS = 50
"""Of the histogram over all episodes."""
TICKS = 10_000
"""Times are written as whole numbers of so many parts of an episode: finer than a screen."""


def measured_times(place: Path) -> np.ndarray | None:
    """All times [episodes, m] in the order of the episodes; None if the run has saved none yet."""
    folder = place / "checkpoint"
    found = sorted(folder.glob("[0-9]*.safetensors")) if folder.is_dir() else []
    if not found:
        return None
    tail, content = _read(found[-1], "data.t")
    early = [_read(place / "data" / segment.name, "t")[0] for segment in _segments(found[-1], content)]
    parts = [part for part in (*early, tail) if part is not None]
    if len({part.shape[1] for part in parts}) > 1:
        raise StoreError(f"{place}: its episodes differ in their number of measurements, so their times are not shown")
    return np.concatenate(parts) if parts else None


def _segments(path: Path, content: Any) -> list[Segment]:
    """The files that a checkpoint refers to."""
    listed = content.get("segments", []) if isinstance(content, dict) else None
    if not isinstance(listed, list) or not all(_is_segment(entry) for entry in listed):
        raise StoreError(f"{path} does not list its measurements as this version does, so their times are not shown")
    return [Segment(*entry) for entry in listed]


def _is_segment(entry: Any) -> bool:
    return isinstance(entry, list) and [type(part) for part in entry] == [int, int, str]


def _read(path: Path, name: str) -> tuple[np.ndarray | None, Any]:
    """One array of a file and the JSON beside it. The rest, which may be a whole network, stays on disk."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            content = json.loads((file.metadata() or {})["content"])
            array = file.get_tensor(name) if name in file.keys() else None  # noqa: SIM118
    except (OSError, KeyError, TypeError, ValueError, RecursionError, safetensors.SafetensorError) as error:
        raise StoreError(f"{path} cannot be read, so its times are not shown: {error}") from None
    if array is not None and (array.ndim != 2 or not np.isfinite(array).all()):
        raise StoreError(f"{path}: {name} should be times [episodes, m], so they are not shown")
    return array, content


def strip(times: np.ndarray, horizon: float, points: int) -> dict[str, Any]:
    """What the page draws: how often each part of an episode was looked at, and some episodes time by time.

    Main arguments:
        times: [episodes, m].
        horizon: the length T of an episode.
        points: how many times to write out at most, but at least those of two episodes.

    >>> found = strip(np.array([[0.0, 1.0], [0.5, 2.0]]), horizon=2.0, points=100)
    >>> found["episodes"], found["times"], sum(found["histogram"])
    ([1, 2], [[0, 5000], [2500, 10000]], 4)
    """
    count, m = times.shape
    horizon = max(horizon, float(times.max(initial=0.0)), 1e-9)
    shown = np.unique(np.linspace(0, count - 1, min(count, max(2, points // m))).round().astype(int))
    histogram, _ = np.histogram(times, bins=BINS, range=(0.0, horizon))
    return {
        "horizon": horizon,
        "ticks": TICKS,
        "total": count,
        "m": m,
        "episodes": (shown + 1).tolist(),
        "times": (times[shown] / horizon * TICKS).round().astype(int).tolist(),
        "histogram": histogram.tolist(),
    }

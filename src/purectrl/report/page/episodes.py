"""Evaluation episodes of a run, reduced to what a chart can show."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from purectrl.core.errors import StoreError
from purectrl.core.io import exists, read_checksummed
from purectrl.core.text import VALUE, printable
from purectrl.report.page.curves import rounded
from purectrl.runs.episodes import EPISODES, EVALUATION

MAX_BYTES = 20_000_000
"""Size of a file that is read."""
MAX_COORDINATES, MAX_CONTROLS = 12, 6
"""How many coordinates of the state, and how many controls, are shown."""
MIN_TIMES = 50
"""An episode is shown at no fewer times, if it has so many."""


def evaluation_episodes(directory: Path, limit: int) -> dict[str, Any] | None:
    """The episodes of the newest evaluation during a run, else of `purectrl evaluate`, in at most about `limit` numbers.

    Returns t, x, u and r of each episode, by coordinate, what evaluated it, and the numbers of all coordinates.
    """
    for name, about in ((EPISODES, "update"), (EVALUATION, "seed")):
        if exists(directory / name):
            return _reduced(*_read(directory / name), about, limit)
    return None


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of a file; raises `StoreError` unless they are those of `purectrl.runs.episodes`."""
    try:
        if (size := path.lstat().st_size) > MAX_BYTES:
            raise StoreError(f"{path} has {size:,} bytes; at most {MAX_BYTES:,} are read")
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    arrays, content = read_checksummed(path)
    if not {"t", "x", "u", "count"} <= arrays.keys():
        raise StoreError(f"{path} does not hold episodes")
    t, x, u, count = (arrays[name] for name in ("t", "x", "u", "count"))
    r, lead = arrays.get("r", t), t.shape
    shapes = t.ndim == 2 and t.size and r.shape == lead and all(a.ndim == 3 and a.shape[:2] == lead for a in (x, u))
    if (
        not shapes
        or count.shape != lead[:1]
        or count.dtype.kind != "i"
        or not 0 <= count.min() <= count.max() <= lead[1]
    ):
        raise StoreError(f"{path} does not hold episodes of matching shapes")
    if not all(array.dtype.kind == "f" and np.isfinite(array).all() for array in (t, x, u, r)):
        raise StoreError(f"{path} holds numbers that are not finite")
    return arrays, content


def _reduced(arrays: dict[str, np.ndarray], content: dict[str, Any], about: str, limit: int) -> dict[str, Any]:
    x, u = arrays["x"][..., :MAX_COORDINATES], arrays["u"][..., :MAX_CONTROLS]
    columns = 2 + x.shape[-1] + u.shape[-1]
    episodes = int(np.clip(limit // (columns * MIN_TIMES), 1, len(x)))
    times = max(MIN_TIMES, limit // (columns * episodes))
    shown = []
    for number in range(episodes):
        count = int(arrays["count"][number])
        step = max(1, math.ceil(count / times))
        rows = np.unique(np.append(np.arange(0, count, step), max(count - 1, 0)))[:count]
        episode = {"t": _numbers(arrays["t"][number, rows])}
        episode |= {
            name: [_numbers(column) for column in array[number, rows].T] for name, array in (("x", x), ("u", u))
        }
        episode |= {"r": _numbers(arrays["r"][number, rows])} if "r" in arrays else {}
        shown.append(episode)
    value, found = content.get(about), content.get("labels")
    labels = [f"x[{i}]" for i in range(arrays["x"].shape[-1])]
    if isinstance(found, list) and len(found) == len(labels):
        labels = [printable(str(label), VALUE) for label in found]
    return {
        "episodes": shown,
        "labels": labels[: x.shape[-1]],
        about: value if type(value) is int else None,
        "coordinates": int(arrays["x"].shape[-1]),
        "controls": int(arrays["u"].shape[-1]),
    }


def _numbers(values: np.ndarray) -> list[float | None]:
    return [rounded(float(f"{value:.5g}")) for value in values.tolist()]

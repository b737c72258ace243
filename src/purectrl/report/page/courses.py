"""The course of a run as columns, thinned to what a screen can show.

A run may have a hundred thousand records. Some rows of them are kept: the first, the last, those with an update, and others
evenly in the count of records and in its logarithm. A kept row stands for itself and for those that were left out before
it, each column in its own way: counts as they are, rewards as the mean over the episodes, misfits as the largest, coverage
as whether it held in all of them.
"""

from collections.abc import Callable, Mapping

import numpy as np

from purectrl.report.page.records import Records

Column = np.ndarray
"""Numbers [records], NaN where a record says nothing."""


def course(records: Records, limit: int) -> dict[str, list[float | None]]:
    """The columns of at most `limit` rows, by name.

    >>> gaps = {"episodes": np.ones(3), "rollouts": np.arange(1.0, 4.0), "gap": np.array([2.0, 1.0, 0.0])}
    >>> found = course(Records(gaps, updated=np.zeros(3, int)), limit=2)
    >>> found["rollouts"], found["average_gap"]
    ([1, 3], [2, 1])
    """
    if not len(records):
        return {}
    columns = {**records.columns, **_derived(records.columns)}
    rows = kept_rows(records.updated > 0, limit)
    starts = np.concatenate([[0], rows[:-1] + 1])
    found = {}
    for name, column in columns.items():
        sum_up = SUMMED_UP.get(name, last)
        found[name] = [shorten(value) for value in sum_up(column, columns["episodes"], starts, rows).tolist()]
    return found | {"updated": np.bitwise_or.reduceat(records.updated, starts).tolist()}


def kept_rows(important: np.ndarray, limit: int) -> np.ndarray:
    """At most `limit` row numbers: both ends, the important ones while they fit, others evenly and logarithmically.

    Main arguments:
        important: whether a row should be kept [records].

    >>> kept_rows(np.arange(1000) == 500, limit=5).tolist()
    [0, 32, 500, 999]
    """
    count = len(important)
    if count <= limit:
        return np.arange(count)
    marks = _spread(np.flatnonzero(important), limit // 2)
    room = max(limit - len(marks) - 2, 0) // 2
    ratios = (np.arange(room) + 1) / (room + 1)
    even, early = ratios * (count - 1), (count - 1) ** ratios
    return np.unique(np.concatenate([[0, count - 1], marks, even.round(), early.round()]).astype(int))


def _spread(values: np.ndarray, limit: int) -> np.ndarray:
    """At most `limit` of `values`, its ends among them."""
    if len(values) <= limit:
        return values
    return values[np.linspace(0, len(values) - 1, limit).round().astype(int)]


def mean(column: Column, episodes: Column, starts: np.ndarray, rows: np.ndarray) -> Column:
    """The mean over all episodes of each row and those left out before it."""
    known = ~np.isnan(column)
    weights = np.add.reduceat(episodes * known, starts)
    total = np.add.reduceat(np.where(known, column * episodes, 0.0), starts)
    return np.divide(total, weights, out=np.full(len(rows), np.nan), where=weights > 0)


def largest(column: Column, episodes: Column, starts: np.ndarray, rows: np.ndarray) -> Column:
    """The largest of each row and those left out before it."""
    return np.fmax.reduceat(column, starts)


def smallest(column: Column, episodes: Column, starts: np.ndarray, rows: np.ndarray) -> Column:
    """The smallest of each row and those left out before it."""
    return np.fmin.reduceat(column, starts)


def last(column: Column, episodes: Column, starts: np.ndarray, rows: np.ndarray) -> Column:
    """The newest that is known in each row and those left out before it."""
    newest = np.maximum.accumulate(np.where(np.isnan(column), -1, np.arange(len(column))))[rows]
    return np.where(newest >= starts, column[newest], np.nan)


SUMMED_UP: Mapping[str, Callable[[Column, Column, np.ndarray, np.ndarray], Column]] = {
    "reward": mean,
    "gap": mean,
    "excess_drift": largest,
    "excess_reward": largest,
    "covered": smallest,
}
"""How a kept row stands for those left out before it; every other column as `last`."""


def _derived(columns: Mapping[str, Column]) -> dict[str, Column]:
    """Averages from the start: what the theorems speak of."""
    found = {}
    episodes = columns["episodes"]
    if "gap" in columns and not np.isnan(columns["gap"]).any():
        found["average_gap"] = np.cumsum(columns["gap"] * episodes) / np.cumsum(episodes)
    if "covered" in columns and not np.isnan(columns["covered"]).any():
        found["covered_so_far"] = np.minimum.accumulate(columns["covered"])
    return found


def shorten(value: float) -> float | None:
    """Six digits are more than a screen shows; whole numbers stay whole, and what is unknown becomes None.

    >>> shorten(65536.0), shorten(0.123456789), shorten(float("nan"))
    (65536, 0.123457, None)
    """
    if value != value or value in (float("inf"), float("-inf")):
        return None
    return int(value) if value == int(value) and abs(value) < 1e15 else float(f"{value:.6g}")

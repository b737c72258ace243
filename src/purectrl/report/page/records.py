"""`records.jsonl` as columns of numbers, read with suspicion: a line may be half written, or of another version."""

import gc
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from purectrl.core.errors import StoreError

COUNTERS = ("rollouts", "measurements", "updates", "seconds")
"""What every record counts: the currencies of a run."""
UPDATED = {"neither": 0, "drift": 1, "reward": 2, "both": 3}
"""What a record says was updated, as two bits."""
CHUNK = 4096
"""Lines that are held as Python objects at a time: a run may have a hundred thousand, and a page may have many runs."""
NUMBERS = {int, float, bool, type(None)}
"""What a column may hold; null stands for numbers that JSON does not know."""


@dataclass(frozen=True)
class Records:
    """The records of a run.

    Main arguments:
        columns: the numbers of each name [records], NaN where a record says nothing; booleans are 0 and 1.
        updated: what each record updated [records], as in `UPDATED`.
    """

    columns: Mapping[str, np.ndarray]
    updated: np.ndarray

    def __len__(self) -> int:
        return len(self.updated)

    def last(self, name: str) -> float:
        """A counter at the end; 0 before anything was recorded."""
        return float(self.columns[name][-1]) if len(self) else 0.0

    def total(self, name: str) -> float:
        """The sum of a column over all records that have it."""
        return float(np.nansum(self.columns[name])) if name in self.columns else 0.0


NONE = Records({}, np.zeros(0, int))
"""Of a run that has not recorded anything."""


def read_records(file: Path, finished: bool) -> tuple[Records, list[str]]:
    """All records of `file` and what a reader should know about them.

    The last line of a run that goes on may be half written: it is left out, and that is noted. Anything else that is wrong
    raises `StoreError`.
    """
    try:
        lines = file.read_bytes().split(b"\n")
    except FileNotFoundError:
        if finished:
            raise StoreError(f"{file} does not exist, although the run has finished") from None
        return NONE, [f"{file.parent} has no records yet"]
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from None
    rest = lines.pop()
    if rest and finished:
        raise StoreError(f"{file} ends in the middle of line {len(lines) + 1}, although the run has finished")
    notes = [f"{file}: line {len(lines) + 1} is half written and was left out"] if rest else []
    with _no_collector():
        parts = [_columns(file, first, chunk) for first, chunk in _chunks(file, lines)]
    return (_joined(file, parts) if parts else NONE), notes


@contextmanager
def _no_collector() -> Iterator[None]:
    """Keeps Python from looking for cycles: JSON has none, and looking costs a fifth of the reading."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _chunks(file: Path, lines: Sequence[bytes]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The number of the first line of each chunk, and its records."""
    for start in range(0, len(lines), CHUNK):
        chunk = lines[start : start + CHUNK]
        try:
            found = json.loads(b"[" + b",".join(chunk) + b"]")  # several times as fast as line by line
        except (ValueError, RecursionError):
            found = []
        if len(found) != len(chunk) or not all(type(record) is dict for record in found):
            raise _unreadable(file, start, chunk)
        yield start + 1, found


def _unreadable(file: Path, start: int, lines: Sequence[bytes]) -> StoreError:
    """Names the line that is no record."""
    for number, line in enumerate(lines, start + 1):
        try:
            if type(json.loads(line)) is not dict:
                return StoreError(f"{file}: line {number} is not a record: it should hold names and values")
        except (ValueError, RecursionError) as error:
            return StoreError(f"{file}: line {number} is not JSON: {error}")
    return StoreError(f"{file}: a line between {start + 1} and {start + len(lines)} holds more than one record")


def _columns(file: Path, first: int, records: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """The columns of one chunk; raises unless each record counts what every run counts."""
    values = _turned(records)
    for name in (*COUNTERS, "episodes"):
        found = values.get(name, (None,) * len(records))
        if not set(map(type, found)) <= {int, float}:
            wrong = next(n for n, value in enumerate(found) if type(value) not in (int, float))
            raise StoreError(f"{file}: line {first + wrong} has {name} = {found[wrong]!r}, which should be a number")
    told = values.pop("updated", (None,) * len(records))
    if not all(map(UPDATED.__contains__, map(str, told))):
        wrong = next(n for n, value in enumerate(told) if str(value) not in UPDATED)
        raise StoreError(f"{file}: line {first + wrong} has updated = {told[wrong]!r}, not one of {', '.join(UPDATED)}")
    columns = {name: _numbers(file, name, column) for name, column in values.items()}
    few = np.flatnonzero(~(columns["episodes"] >= 1))  # so written, it finds NaN, too
    if few.size:
        found = values["episodes"][few[0]]
        raise StoreError(f"{file}: line {first + few[0]} has episodes = {found!r}, which should be 1 or more")
    return columns | {"updated": np.array([UPDATED[value] for value in told])}


def _turned(records: Sequence[Mapping[str, Any]]) -> dict[str, Sequence[Any]]:
    """Values by name, None where a record has none of that name."""
    shapes = list(dict.fromkeys(map(tuple, records)))
    if len(shapes) == 1:  # most chunks: all records have the same names in the same order
        return dict(zip(shapes[0], zip(*(record.values() for record in records), strict=True), strict=True))
    names = dict.fromkeys(name for shape in shapes for name in shape)
    return {name: [record.get(name) for record in records] for name in names}


def _numbers(file: Path, name: str, values: Sequence[Any]) -> np.ndarray:
    """The column as numbers; what is none, or is infinite, becomes NaN."""
    if not set(map(type, values)) <= NUMBERS:
        values = [value if type(value) in NUMBERS else None for value in values]
    try:
        numbers = np.array(values, float)
    except OverflowError:
        raise StoreError(f"{file}: {name} holds a number that no computer calculates with") from None
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _joined(file: Path, parts: Sequence[Mapping[str, np.ndarray]]) -> Records:
    """All chunks together, without the columns that hold no number; raises if a counter ever falls."""
    names = dict.fromkeys(name for part in parts for name in part)
    sizes = [len(part["updated"]) for part in parts]
    columns = {
        name: np.concatenate([part.get(name, np.full(size, np.nan)) for part, size in zip(parts, sizes, strict=True)])
        for name in names
    }
    for name in COUNTERS:
        fallen = np.flatnonzero(~(np.diff(columns[name], prepend=0.0) >= 0))  # so written, it finds NaN, too
        if fallen.size:
            raise StoreError(f"{file}: line {fallen[0] + 1} counts fewer {name} than the line before")
    updated = columns.pop("updated")
    return Records({name: column for name, column in columns.items() if not np.isnan(column).all()}, updated)

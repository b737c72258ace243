"""Reads what a run recorded: `records.jsonl` as columns of numbers, and the measurement times from its checkpoint.

A file can be incomplete, damaged or of another version. Each error names the file and, if possible, the line.
"""

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from purectrl.core.errors import StoreError
from purectrl.core.io import MAX_LINES, open_tensors, parse_json, read_bytes, read_checksummed, subdirectory
from purectrl.core.text import printable
from purectrl.runs.data_shards import read_shards
from purectrl.runs.directory import checkpoints, config_digest

COUNTERS = ("rollouts", "measurements", "updates", "seconds")
"""The costs that every record counts."""
MAX_COLUMNS, MAX_CELLS = 200, 40_000_000
"""Columns of the records of a run, and numbers in all of them together."""
MAX_TIME = 1e12
"""No measurement is taken as late as this."""
UPDATED = {"neither": 0, "drift": 1, "reward": 2, "both": 3}
"""The values of `updated`, as two bits."""
TEXTS, MAX_TEXT, MAX_TEXTS = ("decision", "rolled_back"), 400, 2_000
"""Columns of words: what a learner decided, and why an update was rolled back. Their length and number are limited."""


@dataclass(frozen=True)
class Records:
    """The records of a run.

    Main arguments:
        columns: numbers by name [records], NaN where a record has no finite number; booleans are 0 and 1.
        updated: which models each record updated [records], as in `UPDATED`.
        texts: the values of `TEXTS` by row and name.
    """

    columns: Mapping[str, np.ndarray]
    updated: np.ndarray
    texts: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.updated)

    def last(self, name: str) -> float:
        """The last value of a counter; 0 without records."""
        return float(self.columns[name][-1]) if len(self) else 0.0

    def newest(self, prefix: str) -> dict[str, float]:
        """The last known value of each column whose name starts with `prefix`, by the rest of its name."""
        found = {name: column[~np.isnan(column)] for name, column in self.columns.items() if name.startswith(prefix)}
        return {name.removeprefix(prefix): float(column[-1]) for name, column in found.items() if len(column)}


def read_records(file: Path, finished: bool) -> tuple[Records, list[str]]:
    """All records of `file`, and notes about them.

    Of an unfinished run these are the records up to its newest checkpoint, which has their checksum, and which `resume`
    would continue from. Without a checkpoint, an incomplete last line is skipped with a note. Any other defect raises
    `StoreError`.
    """
    try:
        content, notes = read_bytes(file, MAX_LINES), list[str]()
        if not finished:
            content, notes = _saved(file, content)
        lines = content.split(b"\n")
    except FileNotFoundError:
        if finished:
            raise StoreError(f"{file} does not exist, although the run has finished") from None
        return Records({}, np.zeros(0, int)), [f"{file.parent} has no records yet"]
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from None
    incomplete = lines.pop()
    if incomplete and finished:
        raise StoreError(f"{file} ends in the middle of line {len(lines) + 1}, although the run has finished")
    if incomplete:
        notes.append(f"{file}: line {len(lines) + 1} is incomplete and was skipped")
    values: dict[str, list[float]] = {}
    updated = np.zeros(len(lines), int)
    texts: dict[int, dict[str, str]] = {}
    for row, line in enumerate(lines):
        record = _parse(file, row + 1, line)
        updated[row] = UPDATED[record["updated"]]
        words = {name: printable(record[name], MAX_TEXT) for name in TEXTS if isinstance(record.get(name), str)}
        if words and len(texts) < MAX_TEXTS:
            texts[row] = words
        for name, value in record.items():
            name = f"eval_{name[5:]}" if name.startswith("test_") else name  # the name in version 0.1
            if type(value) in (float, int, bool):
                if name not in values:
                    if len(values) == MAX_COLUMNS or (len(values) + 1) * len(lines) > MAX_CELLS:
                        raise StoreError(f"{file}: line {row + 1} has too many columns: {len(values) + 1:,}")
                    values[name] = [np.nan] * len(lines)
                values[name][row] = value
    columns = {name: _finite(file, name, column) for name, column in values.items()}
    _check_counters(file, columns)
    known = {name: column for name, column in columns.items() if not np.isnan(column).all()}
    return Records(known, updated, texts), notes


def _saved(file: Path, content: bytes) -> tuple[bytes, list[str]]:
    """The part of the records that belongs to the newest checkpoint that can be read, and notes about those that cannot be.

    These are all records if there is no checkpoint. Raises `StoreError` if they, or the configuration, are not those that
    the checkpoint was saved with.
    """
    run, notes = file.parent, list[str]()
    for checkpoint in checkpoints(run):
        try:
            _, state = read_checksummed(checkpoint)
        except StoreError as error:
            if checkpoint.exists():  # otherwise it was replaced by a newer one in the meantime
                notes.append(f"{checkpoint} cannot be read, so later records are not shown: {error}")
            continue
        saved, config = state.get("records"), state.get("config")
        if not isinstance(saved, dict) or type(saved.get("bytes")) is not int or not isinstance(config, str):
            continue  # of version 0.1
        if config != config_digest(run):
            raise StoreError(f"{run / 'config.json'} is damaged: it is not what {checkpoint.name} was saved with")
        kept = content[: saved["bytes"]]
        if len(kept) != saved["bytes"] or zlib.crc32(kept) != saved.get("checksum"):
            raise StoreError(f"{file} is damaged: it is not what {checkpoint.name} was saved with")
        return kept, notes
    return content, notes


def _parse(file: Path, number: int, line: bytes) -> dict[str, Any]:
    """One record; raises unless it counts what every record counts."""
    record = parse_json(line, f"{file}: line {number}")
    if not isinstance(record, dict):
        raise StoreError(f"{file}: line {number} is not a record: expected a JSON object")
    for name in (*COUNTERS, "episodes"):
        if type(record.get(name)) not in (int, float):
            raise StoreError(f"{file}: line {number} has {name} = {record.get(name)!r}, expected a number")
    if not 1 <= record["episodes"] < np.inf:
        raise StoreError(f"{file}: line {number} has episodes = {record['episodes']!r}, expected at least 1")
    if str(record.get("updated")) not in UPDATED:
        expected = ", ".join(UPDATED)
        raise StoreError(f"{file}: line {number} has updated = {record.get('updated')!r}, expected one of {expected}")
    return record


def _finite(file: Path, name: str, values: list[float]) -> np.ndarray:
    """A column as float64, NaN where it is not finite."""
    try:
        column = np.array(values, float)
    except OverflowError:
        raise StoreError(f"{file}: {name} exceeds the range of float64") from None
    return np.where(np.isfinite(column), column, np.nan)


def _check_counters(file: Path, columns: Mapping[str, np.ndarray]) -> None:
    """Raises if a counter decreases or is not finite."""
    for name in COUNTERS:
        if name in columns:
            decreased = np.flatnonzero(~(np.diff(columns[name], prepend=0.0) >= 0))  # this form also finds NaN
            if decreased.size:
                raise StoreError(f"{file}: line {decreased[0] + 1} counts fewer {name} than the line before")


def read_measurement_times(directory: Path) -> np.ndarray | None:
    """All measurement times of a run [episodes, m], NaN after the end of an episode; None if it has not saved a checkpoint.

    They are in the newest checkpoint and in the data shards that it refers to.
    """
    found = checkpoints(directory)
    if not found:
        return None
    newest, content = _read_times(found[0], "data.")
    listed = content.get("shards", content.get("segments", []))
    try:
        shards = read_shards(listed)
    except StoreError as error:
        raise StoreError(f"{found[0]}: {error}, so their times are not shown") from None
    folder = subdirectory(directory, "data")
    parts = [] if newest is None else [newest]
    total = 0
    for number, shard in enumerate(shards):
        array, _ = _read_times(folder / shard.name, "", shard.digest)
        if array is not None:
            parts.insert(number, array)
            total += array.size
        if total > MAX_CELLS:
            raise StoreError(f"{directory} has more than {MAX_CELLS:,} measurements, so their times are not shown")
    if len({part.shape[1] for part in parts}) > 1:
        raise StoreError(
            f"{directory}: its episodes differ in their number of measurements, so their times are not shown"
        )
    return np.concatenate(parts) if parts else None


def _read_times(path: Path, prefix: str, digest: str | None = None) -> tuple[np.ndarray | None, Any]:
    """The times in a file with a checksum, which is verified, NaN after the end of an episode; and its JSON content."""
    try:
        with open_tensors(path) as (file, _):
            cells = sum(math.prod(file.get_slice(key).get_shape()) for key in file.keys())  # noqa: SIM118
        if cells > MAX_CELLS:
            raise StoreError(f"it has more than {MAX_CELLS:,} numbers")
        arrays, content = read_checksummed(path, digest)
    except StoreError as error:
        raise StoreError(f"{path} cannot be read, so its times are not shown: {error}") from None
    times, count = arrays.get(f"{prefix}t"), arrays.get(f"{prefix}count")
    if times is None:
        return None, content
    if times.ndim != 2 or times.dtype.kind != "f" or not (np.abs(times) < MAX_TIME).all():
        raise StoreError(f"{path}: {prefix}t is not an array of times [episodes, m], so its times are not shown")
    if count is not None:
        if count.shape != times.shape[:1] or count.dtype.kind != "i":
            raise StoreError(f"{path}: {prefix}count is not one integer per episode, so its times are not shown")
        times = np.where(np.arange(times.shape[1]) < count[:, None], times, np.nan)
    return times, content

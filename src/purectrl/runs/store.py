"""One run directory, written by one process.

A checkpoint records how many bytes of `records.jsonl` belong to it and their checksum, so that a run that was killed between
two checkpoints resumes exactly from the older one.
"""

import contextlib
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

from purectrl.core.errors import StoreError
from purectrl.core.io import (
    MAX_LINES,
    encode,
    lock_directory,
    open_file,
    read_checksummed,
    remove_temporary,
    subdirectory,
    to_json,
    with_checksum,
    write_checksummed,
    write_json,
)
from purectrl.core.learner import State
from purectrl.core.plan import Plan
from purectrl.core.problem import Evaluation
from purectrl.runs import serialization
from purectrl.runs.data_shards import DataShards, join
from purectrl.runs.directory import (
    StoredRecords,
    check_free,
    checkpoints,
    checksums,
    config_digest,
    parse_records,
    read_config,
)
from purectrl.runs.episodes import EPISODES, write_episodes

CHECKPOINTS_KEPT = 2
"""The newest checkpoint, and the one before in case the newest is damaged."""
CHECKPOINTS_TRIED = 5
"""How many are tried, from the newest, before a run is refused; a killed process leaves at most one more than are kept."""
FOLDERS = ("checkpoint", "data", "policy", "media")
"""Folders of a run directory that this package writes to."""
Check = Callable[[State], None]
"""Raises `StoreError` if a state, whose structure is right, is not one of the run."""


class Store:
    """A run directory that this process has locked. Use as a context manager."""

    def __init__(self, path: Path, lock: BinaryIO) -> None:
        self.path, self._lock = path, lock
        self._records: BinaryIO | None = None
        self._bytes, self._checksum, self._count = 0, 0, 0
        self._config = config_digest(path)
        self._shards = DataShards(path)

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any]) -> "Store":
        """A new run in an empty or absent directory."""
        check_free(path)
        made = [place for place in (path, *path.parents) if not place.exists()]
        held: BinaryIO | None = None
        try:
            path.mkdir(parents=True, exist_ok=True)
            held = lock_directory(path)
            check_free(path)  # again, now that the directory is locked
            write_json(path / "config.json", config)
            return cls(path, held)
        except BaseException:
            if held is not None and not (path / "config.json").exists():
                (path / ".lock").unlink()
            for place in made:
                with contextlib.suppress(OSError):  # absent, or another process has written to it
                    place.rmdir()
            if held is not None:
                held.close()
            raise

    @classmethod
    def open(cls, path: Path) -> "Store":
        """The run in `path`, to continue it."""
        read_config(path)
        return cls(path, lock_directory(path))

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # after a failure (a full disk) closing may fail again; the first failure is the one to report
        with contextlib.suppress(*([OSError] if kind else [])):
            self.close()

    def close(self) -> None:
        """Releases the directory."""
        try:
            if self._records is not None:
                self._records.close()
        finally:
            self._lock.close()

    def restore(self, fresh: State, warn: Callable[[str], None], check: Check | None = None) -> State:
        """The newest valid state, or `fresh` if the run has not saved any; later records are dropped.

        Main arguments:
            fresh: a new state of the same run, whose structure the restored one must have.
            warn: is told which checkpoints are damaged.
            check: what else a state must satisfy.
        """
        for place in (self.path, *(subdirectory(self.path, name) for name in FOLDERS)):
            remove_temporary(place)
        found = newest_checkpoint(self.path, fresh, self._shards, warn, check)
        self._bytes, self._checksum = len(found.lines), zlib.crc32(found.lines)
        self._count = found.lines.count(b"\n")
        self._records = open_file(self.path / "records.jsonl", "append")
        self._records.truncate(self._bytes)
        return found.state

    def append(self, record: Mapping[str, Any]) -> None:
        """Adds one line to `records.jsonl`; the next checkpoint makes it durable."""
        assert self._records is not None
        line = encode(to_json(record, indent=None) + "\n")
        self._records.write(line)
        self._bytes += len(line)
        self._count += 1
        self._checksum = zlib.crc32(line, self._checksum)

    def checkpoint(self, state: State) -> None:
        """Saves `state`; the checkpoint before is kept until this one is on disk."""
        assert self._records is not None
        self._records.flush()
        os.fsync(self._records.fileno())
        folder = subdirectory(self.path, "checkpoint", create=True)
        self._shards.save(state.data)
        arrays, scalars = serialization.pack_state(state, self._shards.episodes)
        records = {"bytes": self._bytes, "checksum": self._checksum}
        shards = self._shards.listed()
        content = {"state": scalars, "records": records, "shards": shards, "config": self._config}
        write_checksummed(folder / f"{state.steps:012d}.safetensors", arrays, content)
        for old in checkpoints(self.path)[CHECKPOINTS_KEPT:]:
            old.unlink()

    def save_plan(self, plan: Plan, update: int | None = None) -> None:
        """Writes the policy that the run returns, or that of an update."""
        subdirectory(self.path, "policy", create=True)
        place = plan_file(self.path, update)
        arrays, scalars = serialization.pack(plan, "plan")
        write_checksummed(place, arrays, {"plan": scalars, "config": self._config})

    def save_episodes(self, evaluation: Evaluation, update: int) -> None:
        """Writes evaluation episodes of the policy after `update` updates, in the place of earlier ones."""
        write_episodes(self.path / EPISODES, evaluation, update=update)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Writes `summary.json`, with checksums of what else the report shows: the run has finished."""
        write_json(self.path / "summary.json", with_checksum({**summary, "checksums": checksums(self.path)}))

    def records(self) -> StoredRecords:
        """All records so far."""
        assert self._records is not None
        self._records.flush()
        return StoredRecords(self.path, self._count)


class MemoryStore:
    """The interface of `Store` without files: for runs without a directory, and for all but the first of several processes.

    Main arguments:
        path: a run directory whose newest checkpoint is restored, if there is one; nothing is written to it.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._lines: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def restore(self, fresh: State, warn: Callable[[str], None], check: Check | None = None) -> State:
        """The newest valid state in `path`, or `fresh`."""
        if self.path is None or not checkpoints(self.path):
            return fresh
        found = newest_checkpoint(self.path, fresh, DataShards(self.path), warn, check)
        self._lines = list(parse_records(BytesIO(found.lines), self.path / "records.jsonl"))
        return found.state

    def append(self, record: Mapping[str, Any]) -> None:
        """Keeps one record."""
        self._lines.append(dict(record))

    def records(self) -> Sequence[dict[str, Any]]:
        """All records so far."""
        return self._lines

    def checkpoint(self, state: State) -> None:
        """Nothing is saved."""

    def save_plan(self, plan: Plan, update: int | None = None) -> None:
        """Nothing is saved."""

    def save_episodes(self, evaluation: Evaluation, update: int) -> None:
        """Nothing is saved."""

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Nothing is saved."""


class Checkpoint(NamedTuple):
    """A state, and the lines of `records.jsonl` that belong to it."""

    state: State
    lines: bytes = b""


def newest_checkpoint(
    run: Path, fresh: State, shards: DataShards, warn: Callable[[str], None], check: Check | None = None
) -> Checkpoint:
    """The newest valid checkpoint of a run; one with the state `fresh` if the run has not saved any."""
    damage, config = [], config_digest(run)
    for file in checkpoints(run)[:CHECKPOINTS_TRIED]:
        try:
            found = _read_checkpoint(file, fresh, shards, config)
            if check is not None:
                check(found.state)
        except StoreError as error:
            damage.append(str(error) if str(file) in str(error) else f"{file} is damaged: {error}")
            continue
        for message in damage:
            warn(f"{message}; resuming from the checkpoint before it")
        return found
    if damage:
        raise StoreError(f"no checkpoint of {run} can be used: {'; '.join(damage)}")
    return Checkpoint(fresh)


def _read_checkpoint(file: Path, fresh: State, shards: DataShards, config: str) -> Checkpoint:
    """The state in a checkpoint, given a new one of the same run; raises `StoreError` if anything in it is wrong."""
    arrays, content = read_checksummed(file)
    if content.get("config") != config:
        raise StoreError(f"{file} was saved with another config.json")
    scalars, expected = content.get("state"), content.get("records")
    if not isinstance(scalars, dict) or not isinstance(expected, dict):
        raise StoreError(f"{file} does not hold the state of a run")
    early = shards.restore(content.get("shards"))
    if early:
        late = {name.removeprefix("data."): array for name, array in arrays.items() if name.startswith("data.")}
        arrays |= {f"data.{name}": array for name, array in join([early, late]).items()}
    state = serialization.unpack_state(fresh, arrays, scalars)
    if file.name != f"{state.steps:012d}.safetensors":
        raise StoreError(f"{file} holds the state after {state.steps} steps")
    lines, counts = _matching_lines(file, expected), (0, 0, 0, 0)
    for record in parse_records(BytesIO(lines), file.parent.parent / "records.jsonl"):
        counts = record["step"], record["rollouts"], record["measurements"], record["updates"]
    if counts != (state.steps, *state.ledger[:3]):
        raise StoreError(f"{file} does not match records.jsonl: they count different steps, rollouts or updates")
    return Checkpoint(state, lines)


def _matching_lines(checkpoint: Path, expected: Mapping[str, Any]) -> bytes:
    """The lines of records that belong to a checkpoint; raises `StoreError` unless they are those it was saved with."""
    file = checkpoint.parent.parent / "records.jsonl"
    size = expected.get("bytes")
    if type(size) is not int or not 0 <= size <= MAX_LINES:
        raise StoreError(f"{checkpoint} refers to {size!r:.40} bytes of records, expected between 0 and {MAX_LINES:,}")
    try:
        with open_file(file) as stream:
            kept = stream.read(size)
    except FileNotFoundError:
        kept = b""
    if len(kept) != size or zlib.crc32(kept) != expected.get("checksum"):
        raise StoreError(f"{file} is damaged: it is not what {checkpoint.name} was saved with")
    return kept


def plan_file(path: Path, update: int | None = None) -> Path:
    """Where the policy that a run returns is stored, or that of an update."""
    name = "plan.safetensors" if update is None else f"update-{update:06d}.safetensors"
    return subdirectory(path, "policy") / name


def stored_updates(path: Path) -> list[int]:
    """The updates of a run whose policies are stored, in order."""
    names = (place.stem.removeprefix("update-") for place in subdirectory(path, "policy").glob("update-*.safetensors"))
    return sorted(int(name) for name in names if name.isdecimal())


def load_plan(path: Path, template: Plan, update: int | None = None) -> Plan:
    """The policy that a run returned, or that of an update, in the structure of `template`."""
    file = plan_file(path, update)
    arrays, content = read_checksummed(file)
    if content.get("config") != config_digest(path):
        raise StoreError(f"{file} was saved with another config.json")
    if not isinstance(scalars := content.get("plan"), dict):
        raise StoreError(f"{file} does not hold a policy")
    try:
        return serialization.unpack(template, "plan", arrays, scalars)
    except StoreError as error:
        raise StoreError(f"{file} holds another policy: {error}") from None

"""One run directory, held by one process.

    DIR/config.json      every setting, resolved        DIR/records.jsonl    one line a step
    DIR/summary.json     written last, atomically       DIR/checkpoint/      what resume needs
    DIR/policy/          what evaluate needs            DIR/media/           pictures, video
    DIR/data/            measurements that checkpoints refer to, if there are many

A checkpoint says how many bytes of `records.jsonl` belong to it and what their checksum is, so that a run that was killed
between two checkpoints goes back to exactly where the older one was.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import socket
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from purectrl.core.errors import StoreError
from purectrl.core.learner import State
from purectrl.core.problem import Plan
from purectrl.experiments import codec
from purectrl.experiments.files import TEMPORARY, read_json, read_sealed, to_json, write_json, write_sealed
from purectrl.experiments.segments import Segments

FORMAT = 1
"""Version of the layout; a directory of another version is refused."""
KEPT = 2
"""Checkpoints kept: the newest, and the one before in case it is damaged."""


class Store:
    """A run directory that this process has locked. Use as a context manager."""

    def __init__(self, path: Path, lock: BinaryIO) -> None:
        self.path, self._lock = path, lock
        self._records: BinaryIO | None = None
        self._bytes, self._checksum = 0, 0
        self._config = digest(path)
        self._segments = Segments(path / "data")

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any]) -> "Store":
        """A new run in an empty or absent directory."""
        check_free(path)
        made = [place for place in (path, *path.parents) if not place.exists()]
        path.mkdir(parents=True, exist_ok=True)
        lock = _lock(path)
        try:
            check_free(path)  # once more, now that nobody else can come between
            write_json(path / "config.json", {"format": FORMAT, **config})
            return cls(path, lock)
        except BaseException:
            if not (path / "config.json").exists():
                (path / ".lock").unlink()
                for place in made:
                    place.rmdir()
            lock.close()
            raise

    @classmethod
    def open(cls, path: Path) -> "Store":
        """The run that `path` holds, to go on with."""
        read_config(path)
        return cls(path, _lock(path))

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # after a failure (a full disk) the buffered lines may fail once more; the first failure is the one to report
        with contextlib.suppress(*([OSError] if kind else [])):
            self.close()

    def close(self) -> None:
        """Gives the directory back."""
        try:
            if self._records is not None:
                self._records.close()
        finally:
            self._lock.close()

    def restore(self, fresh: State, warn: Callable[[str], None]) -> State:
        """The newest state that can be trusted, or `fresh` if the run had not saved any; records beyond it are dropped."""
        folder = self.path / "checkpoint"
        for place in (self.path, folder, self._segments.folder):
            for unfinished in place.glob(TEMPORARY):
                unfinished.unlink()
        found = sorted(folder.glob("[0-9]*.safetensors"), reverse=True) if folder.is_dir() else []
        state, damage = None, []
        for path in found:
            try:
                arrays, content = read_sealed(path)
                if content["config"] != self._config:
                    raise StoreError(f"{path} was saved with another config.json")
                self._check_records(path, content)
                for name, early in self._segments.restore(content.get("segments", [])).items():
                    arrays[f"data.{name}"] = np.concatenate([early, arrays[f"data.{name}"]])
                state = codec.unpack_state(fresh, arrays, content["state"])
                break
            except StoreError as error:
                damage.append(str(error))
        if state is None and damage:
            raise StoreError(f"no checkpoint of {self.path} can be used: {'; '.join(damage)}")
        for message in damage:
            warn(f"{message}; going on from the checkpoint before it")
        self._records = open(self.path / "records.jsonl", "ab")  # noqa: SIM115
        self._records.truncate(self._bytes)
        return fresh if state is None else state

    def _check_records(self, path: Path, content: Mapping[str, Any]) -> None:
        self._bytes, self._checksum = 0, 0
        expected = content["records"]
        records = self.path / "records.jsonl"
        kept = records.read_bytes()[: expected["bytes"]] if records.exists() else b""
        if len(kept) != expected["bytes"] or zlib.crc32(kept) != expected["checksum"]:
            raise StoreError(f"{records} is damaged: it is not what {path.name} was saved with")
        self._bytes, self._checksum = expected["bytes"], expected["checksum"]

    def append(self, record: Mapping[str, Any]) -> None:
        """Adds one line to `records.jsonl`; it is on disk for good with the next checkpoint."""
        assert self._records is not None
        line = to_json(record, indent=None).encode() + b"\n"
        self._records.write(line)
        self._bytes += len(line)
        self._checksum = zlib.crc32(line, self._checksum)

    def checkpoint(self, state: State) -> None:
        """Saves `state`; what was saved before stays until this is safely on disk."""
        assert self._records is not None
        self._records.flush()
        os.fsync(self._records.fileno())
        folder = self.path / "checkpoint"
        folder.mkdir(exist_ok=True)
        self._segments.save(state.data)
        arrays, scalars = codec.pack_state(state, self._segments.episodes)
        records = {"bytes": self._bytes, "checksum": self._checksum}
        segments = self._segments.listed()
        content = {"state": scalars, "records": records, "segments": segments, "config": self._config}
        write_sealed(folder / f"{state.steps:012d}.safetensors", arrays, content)
        for old in sorted(folder.glob("[0-9]*.safetensors"))[:-KEPT]:
            old.unlink()

    def save_plan(self, plan: Plan) -> None:
        """Writes the plan that the run hands over."""
        folder = self.path / "policy"
        folder.mkdir(exist_ok=True)
        arrays, scalars = codec.pack(plan, "plan")
        write_sealed(folder / "plan.safetensors", arrays, {"plan": scalars, "config": self._config})

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Writes `summary.json`: the run is over."""
        write_json(self.path / "summary.json", summary)


def check_free(path: Path) -> None:
    """Raises unless a new run may be written to `path`."""
    try:
        if path.is_symlink() and not path.exists():
            raise StoreError(f"{path} is a link that leads nowhere; take another --out")
        if path.exists() and not path.is_dir():
            raise StoreError(f"{path} is a file; --out takes a directory")
        if (path / "config.json").exists():
            raise StoreError(f"{path} already holds a run: `purectrl resume {path}` goes on, or take another --out")
        if path.exists() and any(not (entry.name == ".lock" or entry.match(TEMPORARY)) for entry in path.iterdir()):
            raise StoreError(f"{path} is not empty and holds no run; take another --out")
        nearest = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise StoreError(f"{path} cannot be written: {nearest} is not a directory that you may write to")
    except OSError as error:  # a name that is too long, a directory that may not be read
        raise StoreError(f"{path} cannot be used: {error.strerror}") from None


def _lock(path: Path) -> BinaryIO:
    """Locks the directory for this process; the lock ends with the process, however it ends."""
    file = open(path / ".lock", "a+b")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().decode(errors="replace").strip() or "another process"
        file.close()
        raise StoreError(f"{path} is being written by {holder}; wait for it or stop it first") from None
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
    file.flush()
    return file


def read_config(path: Path) -> dict[str, Any]:
    """`config.json` of a run directory, checked to be ours."""
    try:
        if not path.is_dir():
            raise StoreError(f"{path} is not a directory" if path.exists() else f"{path} does not exist")
        if not any(entry.name == "config.json" for entry in path.iterdir()):
            raise StoreError(f"{path} holds no run: it has no config.json")
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    config = read_json(path / "config.json")
    if (
        not isinstance(config, dict)
        or not {"format", "experiment", "algorithm", "seed", "settings", "versions"} <= config.keys()
    ):
        raise StoreError(f"{path / 'config.json'} is not the configuration of a purectrl run")
    if not isinstance(config["experiment"], str) or not isinstance(config["algorithm"], str):
        raise StoreError(f"{path / 'config.json'}: experiment and algorithm should be names")
    if config["format"] != FORMAT:
        raise StoreError(f"{path} has format {config['format']!r}, this version reads format {FORMAT}")
    return config


def read_summary(path: Path) -> dict[str, Any] | None:
    """`summary.json` of a run directory, or None if the run has not finished."""
    if not (path / "summary.json").exists():
        return None
    summary = read_json(path / "summary.json")
    good = isinstance(summary, dict) and {"experiment", "algorithm", "seed", "status", "metrics"} <= summary.keys()
    if not good or not isinstance(summary.get("ledger"), dict) or not isinstance(summary["metrics"], dict):
        raise StoreError(
            f"{path / 'summary.json'} is not the summary of a run: remove it, then `purectrl resume {path}`"
        )
    return summary


def read_records(path: Path) -> list[dict[str, Any]]:
    """All lines of `records.jsonl`."""
    records = []
    with open(path / "records.jsonl", encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                records.append(json.loads(line))
            except ValueError:
                raise StoreError(f"{file.name}: line {number} is no record; was the file changed?") from None
    return records


def load_plan(path: Path, template: Plan) -> Plan:
    """The plan that a finished run hands over, in the shape of `template`."""
    file = path / "policy" / "plan.safetensors"
    arrays, content = read_sealed(file)
    if content.get("config") != digest(path):
        raise StoreError(f"{file} was saved with another config.json")
    return codec.unpack(template, "plan", arrays, content["plan"])


def digest(path: Path) -> str:
    """What binds a checkpoint or a plan to the settings it was made with."""
    return hashlib.blake2b((path / "config.json").read_bytes(), digest_size=16).hexdigest()

"""Reading run directories: the only module that interprets `config.json`, `summary.json` and `records.jsonl`.

DIR/config.json      problem, algorithm, budget, seed   DIR/records.jsonl    one line per step
DIR/summary.json     written last, atomically           DIR/checkpoint/      what `resume` needs
DIR/policy/          what `evaluate` needs              DIR/media/           images, video
DIR/data/            measurements that checkpoints refer to, if there are many
"""

import hashlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, overload

from purectrl.core.errors import StoreError
from purectrl.core.io import (
    MAX_JSON,
    MAX_LINES,
    TEMPORARY,
    check_below,
    exists,
    file_digest,
    open_file,
    parse_json,
    read_bytes,
    read_json,
    subdirectory,
    without_checksum,
)
from purectrl.core.ledger import Ledger
from purectrl.core.output_paths import require_creatable

FORMAT = 2
"""Version of the layout. Runs of format 1 (version 0.1) can be reported."""


def check_free(path: Path) -> None:
    """Raises unless a new run can be written to `path`."""
    try:
        if path.is_symlink() and not path.exists():
            raise StoreError(f"{path} is a broken link; use another directory")
        if path.exists() and not path.is_dir():
            raise StoreError(f"{path} is a file, not a directory")
        if (path / "config.json").exists():
            raise StoreError(
                f"{path} already holds a run: continue it with `purectrl resume {path}`, or use another directory"
            )
        if path.exists() and any(not (entry.name == ".lock" or entry.match(TEMPORARY)) for entry in path.iterdir()):
            raise StoreError(f"{path} is not empty and holds no run; use another directory")
    except OSError as error:  # a name that is too long, a directory that may not be read
        raise StoreError(f"{path} cannot be created: {error.strerror}") from None
    require_creatable(path)


def read_config(path: Path, formats: tuple[int, ...] = (FORMAT,)) -> dict[str, Any]:
    """`config.json` of a run directory, checked to be one of a supported format."""
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
        or not isinstance(config.get("versions"), dict)
        or type(config.get("seed")) is not int
    ):
        raise StoreError(f"{path / 'config.json'} is not the configuration of a purectrl run")
    if config.get("format") == 1 and 1 in formats:
        return config
    if config.get("format") == 1:
        raise StoreError(
            f"{path} was written by purectrl 0.1, whose settings this version does not read; `purectrl report` shows it"
        )
    if config.get("format") != FORMAT:
        raise StoreError(f"{path} has format {config.get('format')!r:.20}, this version reads format {FORMAT}")
    if not all(isinstance(config.get(name), dict) for name in ("problem", "algorithm", "budget")):
        raise StoreError(f"{path / 'config.json'} is not the configuration of a purectrl run")
    return config


def with_trust(path: Path) -> str:
    """The directory of a run as an argument of a command, with --trust if its configuration names code of the user's own."""
    return f"{path} --trust" if read_config(path).get("code") else str(path)


class Description(NamedTuple):
    """What a configuration of any supported format says about a run."""

    problem: str
    algorithm: str
    settings: dict[str, Any]
    """Every setting by its path, such as `sampler.m`; those of version 0.1 by their names."""
    schedule: dict[str, Any]
    """The schedule's name and parameters."""
    horizon: Any
    """The length of an episode; None if it is unknown."""


def describe(config: Mapping[str, Any]) -> Description:
    """The problem, the algorithm and all settings of a run; raises `StoreError` if they are missing."""
    try:
        if config["format"] == 1:
            settings = dict(config["settings"])
            horizon = settings.get("horizon", settings.get("denoising_steps"))
            return Description(
                str(config["experiment"]), str(config["algorithm"]), settings, _old_schedule(settings), horizon
            )
        problem, algorithm = config["problem"], dict(config["algorithm"])
        name = str(algorithm.pop("name"))
        arguments = problem.get("arguments", {})
        settings = {**config["budget"], **_flat("problem", arguments), **_flat("", algorithm)}
        title = str(problem["name"])
        if title == "gymnasium":  # runs of earlier versions did not name the environment
            title = str(arguments.get("env", title))
        return Description(title, name, settings, dict(algorithm["schedule"]), problem.get("horizon"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"the configuration is not that of a purectrl run: {error!r:.80}") from None


def _flat(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings by path; the name of a component is the value of its own path."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        path = prefix if name == "name" and prefix != "problem" else f"{prefix}.{name}" if prefix else name
        flat |= _flat(path, value) if isinstance(value, dict) else {path: value}
    return flat


def _old_schedule(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The schedule of a run of version 0.1 under its present name."""
    name = settings.get("schedule")
    batches = {"sizes": settings.get("batches"), "update": settings.get("update"), "initial": settings.get("initial")}
    growing = {"name": "growing-batches", "updates": settings.get("updates"), "growth": settings.get("growth")}
    found = {
        "every": {"name": "every", "k": settings.get("every", 1)},
        "batches": {"name": "batches", **batches} if settings.get("batches") else growing,
        "on-misfit": {"name": "on-excess-loss", "threshold": settings.get("factor")},
        "geometric": {"name": "geometric", **{key: settings.get(key) for key in ("first", "growth", "initial")}},
    }
    return found.get(str(name), {"name": str(name)})


CHECKED = ("config.json", "records.jsonl", "policy/plan.safetensors")
"""The files whose checksums are in `summary.json`, besides its own."""


def checksums(path: Path) -> dict[str, str]:
    """The checksums of the files of a finished run."""
    return {name: file_digest(path / name) for name in CHECKED if exists(path / name)}


def read_summary(path: Path) -> dict[str, Any] | None:
    """`summary.json` of a run directory without its checksums, or None if the run has not finished."""
    if not exists(path / "summary.json"):
        return None
    summary = read_json(path / "summary.json")
    try:
        if not isinstance(summary, dict):
            raise StoreError("it is not an object")
        if type(summary.get("seed")) is not int:
            raise StoreError("it has no seed")
        for name in ("experiment", "algorithm", "status"):
            if not isinstance(summary.get(name), str):
                raise StoreError(f"{name} is missing")
        if not isinstance(summary.get("metrics"), dict):
            raise StoreError("it has no metrics")
        Ledger.from_dict(summary["ledger"] if isinstance(summary.get("ledger"), dict) else {})
        summary = without_checksum(summary, "summary.json")
    except StoreError as error:
        raise StoreError(
            f"{path / 'summary.json'} is not the summary of a run ({error}): remove it, then `purectrl resume {path}`"
        ) from None
    return {name: value for name, value in summary.items() if name != "checksums"}


def verify_finished(path: Path) -> None:
    """Raises `StoreError` if a file of a finished run is not the one with which it finished.

    A policy that was removed is not missed, and runs of earlier versions have no checksums.
    """
    summary = read_json(path / "summary.json")
    expected = summary.get("checksums", {}) if isinstance(summary, dict) else {}
    if not isinstance(expected, dict):
        raise StoreError(f"{path / 'summary.json'} is damaged: its checksums are not an object")
    for name in CHECKED:
        file = path / name
        if name not in expected or (name.startswith("policy/") and not exists(file)):
            continue
        check_below(path, file.parent)
        try:
            found = file_digest(file)
        except OSError as error:
            raise StoreError(f"{file} cannot be read: {error.strerror}") from None
        if found != expected[name]:
            raise StoreError(f"{file} is damaged: it is not the file with which the run finished")


def read_records(path: Path) -> list[dict[str, Any]]:
    """All lines of `records.jsonl`; none if the file does not exist yet."""
    if not exists(path / "records.jsonl"):
        return []
    with open_file(path / "records.jsonl") as file:
        if (size := os.fstat(file.fileno()).st_size) > MAX_LINES:
            raise StoreError(f"{path / 'records.jsonl'} has {size:,} bytes; at most {MAX_LINES:,} are read")
        return list(parse_records(file, path / "records.jsonl"))


class StoredRecords(Sequence[dict[str, Any]]):
    """The lines of `records.jsonl` as a sequence. They are read while it is iterated over and not kept: those of a million
    steps would take a gigabyte of memory.

    Main arguments:
        path: the run directory.
        count: the number of lines.
    """

    def __init__(self, path: Path, count: int) -> None:
        self.path, self._count = path, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self._count:
            with open_file(self.path / "records.jsonl") as file:
                yield from itertools.islice(parse_records(file, self.path / "records.jsonl"), self._count)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return list(self)[index]
        place = range(self._count)[index]
        return next(itertools.islice(self, place, None))


def parse_records(file: BinaryIO, name: Path) -> Iterator[dict[str, Any]]:
    """The records in the lines of `file`; raises `StoreError` unless they count steps, episodes, costs and updates."""
    before = {"rollouts": 0, "measurements": 0, "updates": 0}
    number = 0
    while line := file.readline(MAX_JSON):
        number += 1
        where = f"{name}: line {number}"
        try:
            record = parse_json(line, where)
        except StoreError as error:
            raise StoreError(f"{error}; was the file changed?") from None
        if not isinstance(record, dict) or record.get("step") != number:
            raise StoreError(f"{where} is not the record of step {number}; was the file changed?")
        for count, least in before.items():
            if type(record.get(count)) is not int or not least <= record[count]:
                raise StoreError(f"{where} has {count} = {record.get(count)!r:.40}, expected at least {least}")
        episodes = record["rollouts"] - before["rollouts"]
        if record.get("episodes") != episodes or episodes < 1 or record["updates"] > before["updates"] + 1:
            raise StoreError(f"{where} does not continue the line before it; was the file changed?")
        if type(record.get("seconds")) not in (int, float) or not isinstance(record.get("updated"), str):
            raise StoreError(f"{where} lacks its seconds or what was updated; was the file changed?")
        before = {count: record[count] for count in before}
        yield record


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints in a run directory, the newest first."""
    folder = subdirectory(run, "checkpoint")
    try:
        names = [entry.name for entry in os.scandir(folder) if not entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(names, reverse=True) if re.fullmatch(r"[0-9]{12}\.safetensors", name)]


def config_digest(path: Path) -> str:
    """The checksum of `config.json`, which binds checkpoints and policies to the configuration."""
    return hashlib.blake2b(read_bytes(path / "config.json", MAX_JSON), digest_size=16).hexdigest()

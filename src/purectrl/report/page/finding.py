"""Which runs there are below some directories. What is no run is named, so that nobody misses one without knowing."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from purectrl.core.errors import StoreError
from purectrl.report.page.run import Run, read_run

LEFT = ("config.json", "summary.json", "records.jsonl")
"""What a run leaves: a directory with one of these is one, or was."""
INSIDE = ("checkpoint", "data", "media", "policy")
"""Directories of a run, in which there are no other runs."""


@dataclass(frozen=True)
class Found:
    """What some directories hold.

    Main arguments:
        runs: those that can be shown.
        problems: what cannot, each with its place and the reason.
    """

    runs: tuple[Run, ...]
    problems: tuple[str, ...]


def find(directories: Sequence[Path]) -> Found:
    """Reads every run in and below `directories`, each once, however often it is named."""
    runs: dict[Path, Run] = {}
    problems: list[str] = []
    for directory in directories:
        for place in _places(directory, problems):
            if place.resolve() in runs:
                continue
            try:
                runs[place.resolve()] = read_run(place)
            except StoreError as error:
                problems.append(str(error))
    single, twice = _once(runs.values())
    return Found(tuple(single), tuple(dict.fromkeys([*problems, *twice])))


def _places(directory: Path, problems: list[str]) -> list[Path]:
    """The run directories in or below `directory`, in the order of their names; what is in the way goes to `problems`."""
    if not directory.is_dir():
        problems.append(
            f"{directory} is a file, not a directory" if directory.exists() else f"{directory} does not exist"
        )
        return []
    found, seen, before = [], set[Path](), len(problems)
    unreadable = lambda error: problems.append(f"{error.filename} cannot be read: {error.strerror}")  # noqa: E731
    for path, folders, files in os.walk(directory, onerror=unreadable, followlinks=True):
        if (place := Path(path).resolve()) in seen:  # links may go round in circles
            folders.clear()
            continue
        seen.add(place)
        if any(name in LEFT for name in (*files, *folders)):
            found.append(Path(path))
            folders[:] = [name for name in folders if name not in INSIDE]
        folders.sort(key=_natural)
    if not found and len(problems) == before:
        problems.append(f"{directory} holds no run: neither it nor a directory below it has a config.json")
    return found


def _natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts seed2 before seed10.

    >>> sorted(["seed10", "seed2"], key=_natural)
    ['seed2', 'seed10']
    """
    parts, digits = [], ""
    for letter in f"{name}\0":  # the last letter ends a number that stands at the end
        if letter.isdecimal():
            digits += letter
            continue
        if digits:
            parts.append((int(digits), ""))
            digits = ""
        parts.append((-1, letter))
    return parts


def _once(runs: Iterable[Run]) -> tuple[list[Run], list[str]]:
    """The runs without copies of each other: a run that is there twice would count twice in a mean."""
    first: dict[tuple[str, int], Run] = {}
    twice = []
    for run in runs:
        other = first.setdefault((run.kind, run.seed), run)
        if other is not run:
            twice.append(f"{run.place} has the settings and the seed of {other.place}: in a mean it would count twice")
    return list(first.values()), twice

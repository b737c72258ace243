"""Finds the runs below some directories. Whatever cannot be read is reported, so that no run is missing silently."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from purectrl.core.errors import InputError, StoreError
from purectrl.report.page.run import Run, read_run

RUN_FILES = {"config.json", "summary.json", "records.jsonl"}
"""A directory that contains one of these is, or was, a run."""
RUN_FOLDERS = {"checkpoint", "data", "media", "policy", "tensorboard", "wandb"}
"""Directories of a run, which contain no other runs."""
MAX_DIRECTORIES, MAX_ENTRIES = 50_000, 1_000_000
"""How many directories, and entries in them, are searched below one argument."""


class Found(NamedTuple):
    """The runs, remarks about the search, and what cannot be included and why."""

    runs: list[Run]
    notes: list[str]
    problems: list[str]


def discover(directories: Sequence[Path]) -> Found:
    """Reads every run in and below `directories` once. Links are not followed, except the given directories themselves.

    The search is complete before the first run is read: a directory that is too large is refused at once.
    """
    notes: list[str] = []
    problems: list[str] = []
    places: dict[Path, Path] = {}
    for directory in directories:
        before = len(problems)
        found = [*_run_directories(directory, notes, problems)]
        for place in found:
            places.setdefault(place.resolve(), place)
        if not found and len(problems) == before:
            problems.append(f"{directory} contains no run: no config.json in it or below it")
    runs: dict[Path, Run] = {}
    for resolved, place in places.items():
        try:
            runs[resolved] = read_run(place)
        except StoreError as error:
            problems.append(str(error))
    unique: dict[tuple[str, int], Run] = {}
    for run in runs.values():
        first = unique.setdefault((run.kind, run.seed), run)
        if first is not run:
            problems.append(
                f"{run.directory} has the same settings and seed as {first.directory} and would count twice"
            )
    return Found(list(unique.values()), list(dict.fromkeys(notes)), list(dict.fromkeys(problems)))


def _run_directories(directory: Path, notes: list[str], problems: list[str]) -> Iterator[Path]:
    """The run directories in and below `directory`, sorted by name."""
    if not directory.is_dir():
        reason = "is a file, not a directory" if directory.exists() else "does not exist"
        problems.append(f"{directory} {reason}")
        return
    stack, directories, entries, links = [directory], 0, 0, 0
    while stack:
        path, folders, is_run = stack.pop(), [], False
        directories += 1
        try:
            with os.scandir(path) as found:
                for entry in found:
                    entries += 1
                    if max(directories / MAX_DIRECTORIES, entries / MAX_ENTRIES) > 1:
                        raise InputError(
                            f"{directory} has more than {MAX_DIRECTORIES:,} directories or {MAX_ENTRIES:,} entries; name "
                            "the directories that contain the runs"
                        )
                    is_run = is_run or entry.name in RUN_FILES
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    elif entry.is_symlink() and entry.name not in RUN_FOLDERS and entry.is_dir():
                        links += 1
                        if links == 1:
                            notes.append(
                                f"{entry.path} is a link to a directory, which is searched only if you name it"
                            )
        except OSError as error:
            problems.append(f"{path} cannot be read: {error.strerror}")
            continue
        if is_run:
            yield path
            folders = [name for name in folders if name not in RUN_FOLDERS]
        stack += [path / name for name in sorted(folders, key=_natural, reverse=True)]
    if links > 1:
        notes.append(f"{directory} has {links - 1} more links to directories, which were not searched either")


def _natural(name: str) -> list[str | int]:
    """A sort key by which seed2 precedes seed10.

    >>> sorted(["seed10", "seed2"], key=_natural)
    ['seed2', 'seed10']
    """
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]

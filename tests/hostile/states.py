"""Crash states: what a run leaves on disk at every moment at which it could have been interrupted is resumed and compared.

The directory is copied before every opening for writing, renaming, removal, truncation and creation of a directory, and
around every fsync. Only states that differ are counted.
"""

import contextlib
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from hostile import samples
from hostile.attack import Verdict, chance
from hostile.console import objections, program
from hostile.outcome import difference, leftovers, outcome

OPERATIONS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
"""What Python reports before it does it, besides opening a file."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_observers: list[Callable[[str, str], None]] = []


def _hook(event: str, arguments: tuple) -> None:
    if not _observers:
        return
    if event == "open":
        path, mode, flags = arguments
        if isinstance(path, int) or not (flags & WRITING or (mode and set(str(mode)) & set("wax+"))):
            return
    elif event not in OPERATIONS:
        return
    observers, _observers[:] = list(_observers), []  # what an observer does itself is not observed
    try:
        for observer in observers:
            observer(event, os.fsdecode(arguments[0]) if not isinstance(arguments[0], int) else "")
    finally:
        _observers[:] = observers


_installed: list[bool] = []


@contextlib.contextmanager
def observed_files(observer: Callable[[str, str], None]) -> Iterator[None]:
    """Calls `observer` with (operation, path) before every operation that changes files, and around every fsync."""
    if not _installed:
        sys.addaudithook(_hook)  # cannot be removed, but has no effect without observers
        _installed.append(True)
    original = os.fsync

    def fsync(descriptor: object) -> None:
        for moment in ("before", "after"):
            observers, _observers[:] = list(_observers), []
            for one in observers:
                one(f"{moment} fsync", "")
            _observers[:] = observers
            if moment == "before":
                original(descriptor)  # type: ignore[arg-type]

    _observers.append(observer)
    os.fsync = fsync  # type: ignore[assignment]
    try:
        yield
    finally:
        os.fsync = original
        _observers.remove(observer)


def fingerprint(folder: Path) -> str:
    """A checksum of all names and contents; temporary names count without their random part."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.rglob("*")):
        name = re.sub(r"\.[0-9a-f]{8,}\.part$", ".part", str(path.relative_to(folder)))
        content = path.read_bytes() if path.is_file() and path.name != ".lock" else b""
        digest.update(f"{name} {path.is_dir()} {len(content)} ".encode() + content)
    return digest.hexdigest()


class CrashStates:
    """One trial is one distinct state. The states are made run by run, and each run is used up before the next."""

    name, shows = "states", "distinct on-disk states of interrupted runs and resumes, each resumed"
    short, slow, full, limit = 40, 1000, 1000, 120.0
    unit = "trials"
    kinds = ("finite", "finite-switch", "finite-rollout", "lqr", "neural", "pendulum", "digits")
    shares = (8, 4, 6, 3, 3, 3, 1)
    at_once = 40
    """States that are taken from one run, chosen at random among those that it goes through."""

    def prepare(self, base: Path) -> None:
        """Nothing: runs are made when they are needed."""
        self.base = base
        self.made: tuple[int, list[Path], dict, list[str]] | None = None

    def trial(self, number: int, folder: Path) -> Verdict:
        """Resumes one state."""
        group = number // self.at_once
        if self.made is None or self.made[0] != group:
            self.made = (group, *self._states(group))
        _, states, expected, words = self.made
        if number % self.at_once >= len(states):
            return Verdict(f"run {group} has only {len(states)} states", "too few distinct states")
        state = states[number % self.at_once]
        kind, seed = self._chosen(group)
        run = samples.copy(state, folder / "run") if state.exists() else folder / "run"
        with samples.patched(samples.data_shards, "SHARD_BYTES", 200):
            if (run / "config.json").exists():
                answer = program("resume", run, "--quiet")
            else:  # interrupted before there was a run: the same call again
                answer = program(*samples.run_words(kind, seed, run))
        failures = objections(answer, 0)
        if answer.status == 0:
            if where := difference(outcome(run), expected):
                failures.append(f"differs in {where}")
            if left := leftovers(run):
                failures.append(f"left behind: {left[0]}")
        return Verdict(f"{kind}, seed {seed}: {words[number % self.at_once]}", "; ".join(failures) or None, kind)

    def _chosen(self, group: int) -> tuple[str, int]:
        draw = chance("states", group)
        if group == 0:
            return "finite", 0  # the short selection compiles little
        return draw.choices(self.kinds, self.shares)[0], draw.randrange(1000)

    def _states(self, group: int) -> tuple[list[Path], dict, list[str]]:
        """Distinct states of one run, and of one resume of it, with what an uninterrupted run leaves."""
        kind, seed = self._chosen(group)
        draw = chance("states", group, "which")
        store = self.base / "states"
        shutil.rmtree(store, ignore_errors=True)
        store.mkdir()
        run = store / "run"
        seen: dict[str, tuple[Path, str]] = {}

        def keep(operation: str, path: str) -> None:
            if path and run.name not in path and Path(path).is_absolute():
                return  # a cache of compiled programs, for example
            key = fingerprint(run) if run.exists() else "absent"
            if key not in seen:
                place = store / f"state-{len(seen)}"
                if run.exists():
                    shutil.copytree(run, place)
                seen[key] = (place, f"state {len(seen)}, at {operation} {Path(path).name}".strip())

        with samples.always_checkpoint(), samples.patched(samples.data_shards, "SHARD_BYTES", 200):
            with observed_files(keep):
                answer = program(*samples.run_words(kind, seed, run))
            assert answer.status == 0, answer.err
            expected = outcome(run)
            middle = [place for place, _ in seen.values() if (place / "checkpoint").is_dir()]
            begin = draw.choice(middle)
            shutil.rmtree(run)
            shutil.copytree(begin, run)
            with observed_files(keep):
                answer = program("resume", run, "--quiet")
            assert answer.status == 0, answer.err
        chosen = draw.sample(sorted(seen.values()), min(self.at_once, len(seen)))
        for place, _ in seen.values():
            if place not in {place for place, _ in chosen}:
                shutil.rmtree(place, ignore_errors=True)
        return [place for place, _ in chosen], expected, [words for _, words in chosen]

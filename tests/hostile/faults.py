"""I/O errors: the k-th file operation of a run, a resume, an evaluation or a report fails, once or from then on.

Afterwards the command must have ended with one short message, and the same or the next command must give what it would
have given without the error, with nothing left behind.
"""

import builtins
import contextlib
import errno
import io
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hostile import samples
from hostile.attack import Verdict, chance
from hostile.console import LONGEST_LINE, MOST_LINES, Answer, objections, program
from hostile.outcome import difference, leftovers, outcome

ERRORS = {name: getattr(errno, name) for name in ("ENOSPC", "EIO", "EMFILE", "EROFS", "EDQUOT", "EACCES")}
FITTING = {
    "open": ("ENOSPC", "EIO", "EMFILE", "EROFS", "EDQUOT", "EACCES"),
    "mkdir": ("ENOSPC", "EIO", "EROFS", "EDQUOT", "EACCES"),
    "rename": ("ENOSPC", "EIO", "EROFS", "EACCES"),
    "write": ("ENOSPC", "EIO", "EDQUOT"),
    "flush": ("ENOSPC", "EIO", "EDQUOT"),
    "fsync": ("ENOSPC", "EIO", "EDQUOT"),
    "truncate": ("EIO", "ENOSPC"),
    "read": ("EIO",),
}
"""The errors that an operation can have."""
EVENTS = {"os.rename": "rename", "os.mkdir": "mkdir", "os.truncate": "truncate"}


class Injector:
    """Counts the operations on files below the working directory, and makes one of them fail."""

    def __init__(self, at: int | None = None, number: int = 0, lasting: bool = False, only: str | None = None) -> None:
        self.at, self.number, self.lasting, self.only = at, number, lasting, only
        self.count, self.operations = 0, list[str]()
        self.fired: str | None = None

    def __call__(self, operation: str, name: Any = "") -> None:
        """Called before every operation; raises at the chosen one."""
        failed = self.fired is not None
        if self.only is not None and operation != self.only and not failed:
            return
        if self.at is None:
            self.operations.append(operation)
        elif self.count == self.at or (failed and self.lasting and operation in self._same()):
            if not failed:
                self.fired = (
                    f"{operation} {Path(os.fsdecode(name)).name if isinstance(name, str | bytes) else ''}".strip()
                )
            self.count += 1
            raise OSError(self.number, os.strerror(self.number), name if isinstance(name, str) and name else None)
        self.count += 1

    def _same(self) -> set[str]:
        """The operations that fail from then on: those that the error concerns."""
        if self.number == errno.EMFILE:
            return {"open"}
        if self.number in (errno.EROFS, errno.EACCES):
            return {"open", "mkdir", "rename", "truncate"}
        return {"write", "flush", "fsync", "mkdir"}


_active: list[Injector] = []
_here: list[Path] = []


def _concerned(path: Any) -> bool:
    """Whether a path is in the trial's directory; what is relative to a directory descriptor is."""
    if isinstance(path, int) or path is None:
        return False
    text = os.fsdecode(path)
    return not Path(text).is_absolute() or text.startswith(str(_here[0]))


def _name_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


def _hook(event: str, arguments: tuple) -> None:
    if not _active:
        return
    if event == "open":
        path, _, flags = arguments
        if _concerned(path):
            writing = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            _active[0]("open" if writing else "read", path)
    elif event in EVENTS and _concerned(arguments[0]):
        _active[0](EVENTS[event], arguments[0])


class _File:
    """A file opened for writing whose writes can fail."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "_File":
        self._file.__enter__()
        return self

    def __exit__(self, *arguments: Any) -> None:
        self._file.__exit__(*arguments)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)

    def write(self, data: Any) -> int:
        """Fails before it writes, or after half of it."""
        if _active:
            try:
                _active[0]("write", self._file.name)
            except OSError:
                self._file.write(data[: len(data) // 2])
                raise
        return self._file.write(data)

    def flush(self) -> None:
        """Fails before it flushes."""
        if _active:
            _active[0]("flush", self._file.name)
        self._file.flush()

    def truncate(self, *arguments: Any) -> int:
        """Fails before it truncates."""
        if _active:
            _active[0]("truncate", self._file.name)
        return self._file.truncate(*arguments)


_installed: list[bool] = []


@contextlib.contextmanager
def injected(injector: Injector, here: Path) -> Iterator[None]:
    """File operations in `here` go through `injector` within the context."""
    if not _installed:
        sys.addaudithook(_hook)
        _installed.append(True)
    opener, fsync, write = builtins.open, os.fsync, os.write

    def open_file(file: Any, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
        opened = opener(file, mode, *arguments, **keywords)
        inside = not isinstance(file, int) and _concerned(file)
        if isinstance(file, int):
            inside = file > 2 and _concerned(_name_of(file))
        return _File(opened) if inside and set(mode) & set("wax+") else opened

    def sync(descriptor: Any) -> None:
        if _active:
            _active[0]("fsync")
        fsync(descriptor)

    def write_to(descriptor: int, data: bytes) -> int:
        if _active and descriptor > 2 and _concerned(_name_of(descriptor)):
            _active[0]("write")
        return write(descriptor, data)

    _here[:] = [here]
    with (
        samples.patched(builtins, "open", open_file),
        samples.patched(io, "open", open_file),
        samples.patched(os, "fsync", sync),
        samples.patched(os, "write", write_to),
    ):
        _active.append(injector)
        try:
            yield
        finally:
            _active.clear()


class Faults:
    """One trial is one command with one error at one operation, then what repairs it."""

    name, shows = "faults", "injected ENOSPC, EIO, EMFILE, EROFS, EDQUOT, EACCES at one file operation, then resumed"
    short, slow, full, limit = 40, 1000, 1000, 120.0
    unit = "trials"
    kinds = ("finite", "finite-switch", "finite-rollout", "lqr", "neural", "pendulum", "digits")
    shares = (8, 4, 6, 3, 3, 3, 1)
    seeds, quick = 2, 3

    def prepare(self, base: Path) -> None:
        """Runs are made when they are needed."""
        self.base = base
        self.expected: dict[tuple[str, int], dict] = {}
        self.operations: dict[tuple, list[str]] = {}

    def trial(self, number: int, folder: Path) -> Verdict:
        """One command with one error."""
        draw = chance("faults", number)
        kinds = len(self.kinds) if number >= self.short else self.quick  # those that compile little come first
        kind = draw.choices(self.kinds[:kinds], self.shares[:kinds])[0]
        seed = draw.randrange(self.seeds)
        command = draw.choices(["run", "resume", "evaluate", "report"], [5, 4, 1, 1])[0]
        if command == "evaluate" and kind not in samples.EVALUATED:
            command = "resume"
        operations = self._operations(command, kind, seed)
        # every kind of operation is hit, also those of which there are few
        operation = draw.choice(sorted(set(operations)))
        at = draw.randrange(operations.count(operation))
        name = draw.choice(FITTING[operation])
        lasting = draw.random() < 0.5
        injector = Injector(at, ERRORS[name], lasting, operation)
        run = self._start(command, kind, seed, folder)
        with samples.always_checkpoint(), samples.patched(samples.data_shards, "SHARD_BYTES", 200):
            with injected(injector, folder):
                answer = program(*self._words(command, kind, seed, run))
            failures = self._ending(command, answer, injector, run)
            failures += self._repair(command, kind, seed, run)
        words = f"{kind}, seed {seed}, {command}: {name} at {operation} {at}{' and from then on' if lasting else ''}"
        counts = {
            "errors that ended the command": int(answer.status != 0),
            "errors without effect": int(answer.status == 0),
        }
        return Verdict(f"{words} ({injector.fired})", "; ".join(failures) or None, command, counts)

    def _operations(self, command: str, kind: str, seed: int) -> list[str]:
        """The operations of a command without errors; and what the run leaves, the first time."""
        key = (command, kind, seed)
        if key not in self.operations:
            folder = self.base / "count"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            run = self._start(command, kind, seed, folder)
            injector = Injector()
            with (
                samples.always_checkpoint(),
                samples.patched(samples.data_shards, "SHARD_BYTES", 200),
                injected(injector, folder),
            ):
                answer = program(*self._words(command, kind, seed, run))
            assert answer.status == 0, answer.err
            if command in ("run", "resume"):
                self.expected.setdefault((kind, seed), outcome(run))
            self.operations[key] = injector.operations
        return self.operations[key]

    def _start(self, command: str, kind: str, seed: int, folder: Path) -> Path:
        """The directory before the command."""
        if command == "run":
            return folder / "new" / "run"
        finished, stopped = samples.prepare(self.base / f"seed{seed}", kind, seed, steps=3)
        source = stopped if command == "resume" else finished
        return samples.copy(source, folder / "run")

    def _words(self, command: str, kind: str, seed: int, run: Path) -> list[Any]:
        return {
            "run": samples.run_words(kind, seed, run),
            "resume": ["resume", run, "--quiet"],
            "evaluate": ["evaluate", run, "--episodes", "2"],
            "report": ["report", run, "--out", run.parent / "page.html"],
        }[command]

    def _ending(self, command: str, answer: Answer, injector: Injector, run: Path) -> list[str]:
        """What is wrong with how the command ended."""
        found = objections(answer, 0, 1, 2)
        if injector.fired is None:
            found.append("the error was not injected: the command did fewer operations than before")
        if answer.status not in (0, None):
            lines = answer.err.strip().splitlines()
            own = [line for line in lines if not line.startswith("warning:") and ": compiling" not in line]
            if not 1 <= len(own) <= MOST_LINES or max(map(len, own)) > LONGEST_LINE:
                found.append(f"{len(own)} lines: {answer.err:.160}")
        if command == "run" and answer.status != 0 and not (run / "config.json").exists() and run.parent.exists():
            found.append(f"left behind: {[path.name for path in run.parent.rglob('*')]}")
        pages = (
            [path.name for path in run.parent.iterdir() if path.name.endswith(".part")] if run.parent.exists() else []
        )
        if pages:
            found.append(f"left behind: {pages[0]}")
        return found

    def _repair(self, command: str, kind: str, seed: int, run: Path) -> list[str]:
        """What is wrong after the same command, or `resume`, was called without errors."""
        if command == "run" and (run / "config.json").exists():
            command = "resume"
        answer = program(*self._words(command, kind, seed, run))
        if answer.status != 0:
            return [f"afterwards: {text}" for text in objections(answer, 0)]
        found = []
        self._operations("run", kind, seed)
        if where := difference(outcome(run), self.expected[kind, seed]):
            found.append(f"afterwards different in {where}")
        if left := leftovers(run):
            found.append(f"afterwards left behind: {left[0]}")
        return found

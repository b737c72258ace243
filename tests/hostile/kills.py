"""kill -9 of real runs, resumed until they finish: what is left equals an uninterrupted run bit for bit.

The attack's process imports the package and starts no computation. Every run is a fork of it, in which JAX starts anew, and
is killed at a random moment after its first record; so are most resumes of it.
"""

import contextlib
import json
import os
import shutil
import signal
import time
from pathlib import Path

from hostile import samples
from hostile.attack import Verdict, chance
from hostile.outcome import difference, leftovers, outcomes

SWEEP = ("sweep", "finite", "--algorithms", "pure-base", "pure-low-rollout", "--seeds", "0:2", "--workers", "2")
LENGTH = {"finite": "300", "finite-switch": "600", "finite-rollout": "600", "lqr": "60", "neural": "24"}
"""Measurements of the runs that are killed: they last about a second."""
PREDECESSORS = 3
"""A run is killed at most this many times."""


class Kills:
    """One trial is one run, killed one to three times; the kills are counted."""

    name, shows = "kills", "kill -9 of runs and of resumes at a random moment after the first record, resumed"
    short, slow, full, limit = 3, 40, 1000, 600.0
    unit = "kills"
    kinds = ("finite", "finite-switch", "finite-rollout", "lqr", "neural", "pendulum", "digits", "sweep")
    shares = (5, 3, 3, 3, 2, 2, 1, 1)
    seeds = 2

    def prepare(self, base: Path) -> None:
        """Imports what a run imports, without starting a backend."""
        import purectrl.control.learner
        import purectrl.problems.mechanical_systems
        import purectrl.problems.theory
        import purectrl.report.page
        import purectrl.runs.store
        import purectrl.runs.sweep
        import purectrl.theory.build  # noqa: F401

        self.base = base

    def trial(self, number: int, folder: Path) -> Verdict:
        """One run with its kills."""
        draw = chance("kills", number)
        kind = draw.choices(self.kinds, self.shares)[0]
        seed = draw.randrange(self.seeds)
        expected, seconds = self._whole(kind, seed)
        out, failures = folder / "run", list[str]()
        counts = {"kills": 0, "kills between a checkpoint and the end": 0, "kills of a resume": 0}
        for attempt in range(1 + draw.randrange(PREDECESSORS)):
            # what is left of the run gets shorter with every kill that fell after a checkpoint
            moment = draw.random() * seconds * (1 - attempt / (PREDECESSORS + 1))
            if self._killed(kind, seed, out, moment):
                counts["kills"] += 1
                counts["kills of a resume"] += attempt > 0
                begun = list(out.rglob("checkpoint/[0-9]*.safetensors"))
                ended = all((place.parent.parent / "summary.json").exists() for place in begun)
                counts["kills between a checkpoint and the end"] += bool(begun) and not ended
        status, message = self._finish(kind, seed, out)
        if status != 0:
            failures.append(f"status {status}: {message:.300}")
        elif where := difference(outcomes(out), expected):
            failures.append(f"differs in {where}")
        else:
            failures += [
                f"left behind: {name}" for place in out.rglob("summary.json") for name in leftovers(place.parent)
            ]
        return Verdict(f"{kind}, seed {seed}, {counts['kills']} kills", "; ".join(failures) or None, kind, counts)

    def _whole(self, kind: str, seed: int) -> tuple[dict, float]:
        """What an uninterrupted run leaves, and its seconds from the first record to the end with everything compiled."""
        file = self.base / f"{kind}-{seed}.json"
        if not file.exists():
            out = self.base / "whole"
            for _ in range(2):  # the first compiles
                shutil.rmtree(out, ignore_errors=True)
                child = _start(_words(kind, seed, out))
                begin = _wait_for_record(child, out)
                _, status = os.waitpid(child, 0)
                seconds = time.monotonic() - begin
                assert os.waitstatus_to_exitcode(status) == 0, f"{kind}: {_message(out)}"
            file.write_text(json.dumps([outcomes(out), seconds]))
        expected, seconds = json.loads(file.read_text())
        return expected, seconds

    def _killed(self, kind: str, seed: int, out: Path, moment: float) -> bool:
        """Starts or resumes the run and kills it `moment` seconds after a new record; False if it had ended."""
        if out.exists() and outcomes_complete(out, kind):
            return False
        known = _sizes(out)
        child = _start(_words(kind, seed, out))
        _wait_for_record(child, out, known)
        time.sleep(moment)
        done, _ = os.waitpid(child, os.WNOHANG)
        if done:
            return False
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if kind == "sweep":
            _wait_for_locks(out)
        return True

    def _finish(self, kind: str, seed: int, out: Path) -> tuple[int, str]:
        child = _start(_words(kind, seed, out))
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status), _message(out)


def _words(kind: str, seed: int, out: Path) -> list[str]:
    """The call that begins or continues a run."""
    if kind == "sweep":
        return [*SWEEP, "--measurements", "300", *samples.THEORY, "--out", str(out), "--quiet"]
    if (out / "config.json").exists():
        return ["resume", str(out), "--quiet"]
    longer = ["--measurements", LENGTH[kind]] if kind in LENGTH else []
    return [*samples.run_words(kind, seed, out), *longer]


def _start(words: list[str]) -> int:
    """Forks a process that runs the program with `words`; its messages go to a file beside the run."""
    child = os.fork()
    if child:
        return child
    status = 70
    with contextlib.suppress(BaseException):
        from purectrl import cli

        log = os.open(
            _log(Path(words[words.index("--out") + 1] if "--out" in words else words[1])), os.O_WRONLY | os.O_CREAT
        )
        os.dup2(log, 1)
        os.dup2(log, 2)
        status = cli.main(words)
    os._exit(status)


def _log(out: Path) -> Path:
    return out.with_name(f"{out.name}.log")


def _message(out: Path) -> str:
    return _log(out).read_text(errors="replace") if _log(out).exists() else ""


def _sizes(out: Path) -> dict[Path, tuple[int, int]]:
    """The checkpoints of all runs in `out`; a new one shows that records were added."""
    found = {}
    for path in out.rglob("checkpoint/[0-9]*.safetensors"):
        with contextlib.suppress(FileNotFoundError):
            state = path.stat()
            found[path] = (state.st_size, state.st_mtime_ns)
    return found


def _wait_for_record(child: int, out: Path, known: dict | None = None) -> float:
    """Waits until the run has a new checkpoint, which follows its first record at once, or has ended."""
    while _sizes(out) == (known or {}):
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break
        time.sleep(0.002)
    return time.monotonic()


def outcomes_complete(out: Path, kind: str) -> bool:
    """Whether all runs in `out` have finished."""
    return len(list(out.rglob("summary.json"))) == (4 if kind == "sweep" else 1)


def _wait_for_locks(out: Path) -> None:
    """Waits until the workers of a killed sweep have ended, which they do by themselves."""
    import fcntl

    for lock in out.rglob(".lock"):
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)

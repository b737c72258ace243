"""kill -9 of real runs, resumed until they finish: what is left equals an uninterrupted run bit for bit.

Every run is a process that is killed at a random moment after its first record; so are most resumes of it. The processes
are forks of one that has imported the package and started no computation (`Kills`), in which JAX starts anew, or that has
made such a run before (`QuickKills`), at a tenth of the cost. The threads of JAX are not forked: there, a process can
run small programs, but not compile. Where a resume needs a program that is not in JAX's cache, it ends, its parent makes
the same call on a copy of the directory, which compiles it, and the call is repeated.
"""

import contextlib
import os
import shutil
import signal
import time
import warnings
from pathlib import Path

from hostile import samples
from hostile.attack import Verdict, chance
from hostile.console import program
from hostile.outcome import difference, leftovers, outcomes

SWEEP = ("sweep", "finite", "--algorithms", "pure-base", "pure-low-rollout", "--seeds", "0:2", "--workers", "2")
LENGTH = {"finite": 120, "finite-switch": 200, "finite-rollout": 300, "lqr": 24, "neural": 24, "sweep": 100}
"""Measurements of the runs that are killed, where they are not those of `samples`."""
MUST_COMPILE = 71
"""The exit status of a fork that would have to compile."""


class Kills:
    """One trial is one run, killed one to `most_kills` times; the kills are counted."""

    name, shows = "kills", "kill -9 of runs and of resumes at a random moment after the first record, resumed"
    short, slow, full, limit = 1, 40, 150, 600.0
    unit = "kills"
    kinds = ("finite-rollout", "lqr", "neural", "pendulum", "finite-switch", "digits", "sweep")
    shares = (1, 3, 3, 3, 1, 2, 2)
    seeds, most_kills = 1, 5
    forks_compile = True

    def prepare(self, base: Path) -> None:
        """Imports what a run imports, without starting a backend."""
        import purectrl.control.learner
        import purectrl.problems.mechanical_systems
        import purectrl.problems.theory
        import purectrl.report.page
        import purectrl.runs.store
        import purectrl.runs.sweep
        import purectrl.theory.build  # noqa: F401
        from purectrl.runs import process

        process.CACHED_FROM = 0.0  # every program, for the next process
        self.base = base
        self.expected: dict[tuple[str, int], dict] = {}

    def trial(self, number: int, folder: Path) -> Verdict:
        """One run with its kills."""
        draw = chance(self.name, number)
        kind = draw.choices(self.kinds, self.shares)[0] if number >= len(self.kinds) else self.kinds[number]
        seed = draw.randrange(self.seeds)
        expected = self._whole(kind, seed)
        steps = max(len(one["records"]) for one in expected.values())
        out, failures = folder / "run", list[str]()
        system = kind.partition("-")[0]
        counts = {"kills": 0, "kills between a checkpoint and the end": 0, "kills of a resume": 0}
        counts[f"kills of {system}"] = 0
        for attempt in range(1 + draw.randrange(self.most_kills)):
            # anywhere in what is left of the run; after its last step, the policy and the summary are written
            left = max(1, steps - _records(out))
            target, pause = _records(out) + 1 + draw.randrange(left), draw.random() * 0.02
            if self._killed(kind, seed, out, target, pause):
                counts["kills"] += 1
                counts[f"kills of {system}"] += 1
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

    def _whole(self, kind: str, seed: int) -> dict:
        """What an uninterrupted run leaves."""
        if kind == "digits":  # here, so that a fork does not import it, which takes longer than the run
            import purectrl.diffusion.digits.problem
            import purectrl.diffusion.learner
            import purectrl.diffusion.rewards.ocr  # noqa: F401
        if (kind, seed) not in self.expected:
            out = self.base / "whole"
            shutil.rmtree(out, ignore_errors=True)
            status, message = self._uninterrupted(kind, seed, out)
            assert status == 0, f"{kind}: {message}"
            self.expected[kind, seed] = outcomes(out)
        return self.expected[kind, seed]

    def _uninterrupted(self, kind: str, seed: int, out: Path) -> tuple[int | None, str]:
        return self._finish(kind, seed, out)

    def _killed(self, kind: str, seed: int, out: Path, target: int, pause: float) -> bool:
        """Starts or resumes the run and kills it `pause` seconds after a checkpoint of step `target`, which is a new one, or
        of a later step; False if it had ended."""
        if out.exists() and outcomes_complete(out, kind):
            return False
        while True:
            child = _start(_words(kind, seed, out), self.forks_compile)
            while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                if _records(out) >= target:
                    time.sleep(pause)
                    break
                time.sleep(0.005)
            done, status = os.waitpid(child, os.WNOHANG)
            if not done:
                break
            if os.waitstatus_to_exitcode(status) != MUST_COMPILE:
                return False
            self._compile(kind, seed, out)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if kind == "sweep":
            _wait_for_locks(out)
        return True

    def _finish(self, kind: str, seed: int, out: Path) -> tuple[int, str]:
        while True:
            child = _start(_words(kind, seed, out), self.forks_compile)
            _, status = os.waitpid(child, 0)
            if (code := os.waitstatus_to_exitcode(status)) != MUST_COMPILE:
                return code, _message(out)
            self._compile(kind, seed, out)

    def _compile(self, kind: str, seed: int, out: Path) -> None:
        """Makes the same call on a copy in this process, which puts its programs into the cache."""
        place = self.base / "copy"
        shutil.rmtree(place, ignore_errors=True)
        if out.exists():
            shutil.copytree(out, place)
        answer = program(*_words(kind, seed, place))
        assert answer.status == 0, f"{kind}: {answer.err}"


class QuickKills(Kills):
    """The same with processes that start with everything compiled."""

    name, shows = "quick-kills", "the same, in processes that start with everything compiled"
    short, slow, full = 5, 100, 850
    kinds, shares = ("finite",), (1,)
    seeds, most_kills = 3, 3
    forks_compile = False

    def prepare(self, base: Path) -> None:
        """Sets JAX up so that programs run in the thread that calls them."""
        import jax

        super().prepare(base)
        jax.config.update("jax_cpu_enable_async_dispatch", False)

    def _uninterrupted(self, kind: str, seed: int, out: Path) -> tuple[int | None, str]:
        """In this process, whose compiled programs the forks inherit."""
        answer = program(*_words(kind, seed, out))
        return answer.status, answer.err


def _words(kind: str, seed: int, out: Path) -> list[str]:
    """The call that begins or continues a run."""
    longer = ["--measurements", str(LENGTH[kind])] if kind in LENGTH else []
    if kind == "sweep":
        return [*SWEEP, *longer, *samples.THEORY, "--out", str(out), "--quiet"]
    if (out / "config.json").exists():
        return ["resume", str(out), "--quiet"]
    return [*samples.run_words(kind, seed, out), *longer]


def _start(words: list[str], compiles: bool) -> int:
    """Forks a process that runs the program with `words`; its messages go to a file beside the run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of JAX, about its threads
        child = os.fork()
    if child:
        return child
    status = 70
    with contextlib.suppress(BaseException):
        from purectrl import cli

        if not compiles:
            import jax._src.compiler

            jax._src.compiler.backend_compile_and_load = lambda *_, **__: os._exit(MUST_COMPILE)
        out = Path(words[words.index("--out") + 1] if "--out" in words else words[1])
        log = os.open(_log(out), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        status = cli.main(words)
    os._exit(status)


def _log(out: Path) -> Path:
    return out.with_name(f"{out.name}.log")


def _message(out: Path) -> str:
    return _log(out).read_text(errors="replace") if _log(out).exists() else ""


def _records(out: Path) -> int:
    """The number of steps up to the newest checkpoint of the runs in `out`."""
    folders = [out / "checkpoint"] if (out / "checkpoint").exists() else out.rglob("checkpoint")
    names = []
    with contextlib.suppress(FileNotFoundError):  # a temporary directory that the run has removed in the meantime
        names = [path.stem for folder in folders for path in folder.glob("[0-9]*.safetensors")]
    return max(map(int, names), default=0)


def outcomes_complete(out: Path, kind: str) -> bool:
    """Whether all runs in `out` have finished."""
    return len(list(out.rglob("summary.json"))) == (4 if kind == "sweep" else 1)


def _wait_for_locks(out: Path) -> None:
    """Waits until the workers of a killed sweep have ended, which they do by themselves."""
    import fcntl

    for lock in out.rglob(".lock"):
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)

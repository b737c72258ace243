"""Runs the trials of an attack in a warm process that is watched from outside, and counts."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from hostile.attack import CASE

ROOT = Path(__file__).parents[2]
STARTING = 600.0
"""Seconds of computing, or of waiting, that a worker has to start."""
PATIENCE = 3600.0
"""Seconds on the clock after which a trial is ended even if it computes: on a shared machine, a minute of computing can
take half an hour."""
QUICK_TO_COMPILE = (
    "--xla_cpu_multi_thread_eigen=false",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_backend_optimization_level=0",
)
"""Flags of XLA: a trial compiles more than it computes."""
AHEAD = 8
"""Trials that a worker is told at once, so that it never waits on a busy machine."""
CLOCK = os.sysconf("SC_CLK_TCK")


class Worker:
    """A warm process for one attack. A trial that does not end is ended together with the process, which is replaced."""

    def __init__(self, attack, base: Path, ahead: int = AHEAD) -> None:
        self.attack, self.base, self.ahead = attack, base, ahead
        self._process: subprocess.Popen | None = None
        self._buffer, self._next = b"", 0

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process and everything that it started."""
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)  # its own session, started below
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                pipe.close()
            self._process = None

    def trial(self, number: int) -> dict:
        """The verdict of a trial as a dictionary, with its number and its seconds of computing.

        Numbers are consecutive, unless `ahead` is 1.
        """
        if self._process is None:
            self._start()
            self._next = number
        for ahead in range(max(self._next, number), number + self.ahead):
            self._process.stdin.write(f"{ahead}\n".encode())
        self._process.stdin.flush()
        self._next = number + self.ahead
        answer, reason, spent = self._answer(self.attack.limit)
        if answer is not None:
            return answer
        self.close()
        note = self.base / CASE
        case = note.read_text() if note.exists() else f"trial {number}"
        return {"number": number, "case": case, "failure": reason, "kind": "", "counts": {}, "cpu": spent}

    def _start(self) -> None:
        paths = [str(ROOT / "tests"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "OMP_NUM_THREADS": "1",
            "XLA_FLAGS": " ".join(QUICK_TO_COMPILE),
            "HF_HUB_OFFLINE": "1",
        }
        environment.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".pytest_cache" / "jax"))
        command = [sys.executable, "-m", "hostile.worker", self.attack.name, str(self.base)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )
        self._buffer = b""
        answer, reason, _ = self._answer(STARTING)
        if answer is None:
            self.close()
            raise RuntimeError(f"the worker of {self.attack.name} did not start: {reason}")

    def _answer(self, limit: float) -> tuple[dict | None, str, float]:
        """The next line of the worker, or why there is none, and the seconds of computing so far."""
        begin, (first, _) = time.monotonic(), self._usage()
        seen, still = first, begin
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._process.stdout], [], [], 1.0)
            now = time.monotonic()
            if ready:
                block = os.read(self._process.stdout.fileno(), 65536)
                if not block:
                    return None, f"the process ended with {self._process.wait()}", seen - first
                self._buffer += block
                continue
            used, runnable = self._usage()
            if used != seen or runnable:
                seen, still = used, now
            if seen - first > limit:
                return None, f"hang: {limit:.0f} s of computing", seen - first
            if now - still > limit:
                return None, f"hang: {limit:.0f} s of waiting", seen - first
            if now - begin > PATIENCE:
                return None, f"hang: {PATIENCE:.0f} s", seen - first
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line), "", seen - first

    def _usage(self) -> tuple[float, bool]:
        """Seconds of computing of the worker, of the processes of its session and of those that they have waited for, and
        whether one of them waits for a processor."""
        ticks, runnable = 0, False
        for place in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                state, _, _, session, *fields = place.read_text().rpartition(")")[2].split()
                if int(session) == self._process.pid:
                    ticks += sum(map(int, fields[7:11]))
                    runnable = runnable or state == "R"
        return ticks / CLOCK, runnable


class Tally:
    """The counts of an attack, as JSON has them."""

    def __init__(self, name: str, found: dict | None = None) -> None:
        empty = {
            "attack": name,
            "trials": 0,
            "failed": 0,
            "failures": [],
            "kinds": {},
            "counts": {},
            "cpu_seconds": 0.0,
        }
        self.values: dict = found or empty

    def add(self, verdict: dict) -> None:
        """Counts one trial."""
        values = self.values
        values["trials"] += 1
        values["cpu_seconds"] += verdict["cpu"]
        kinds = Counter(values["kinds"])
        kinds[verdict["kind"] or "-"] += 1
        values["kinds"] = dict(sorted(kinds.items()))
        for name, number in verdict["counts"].items():
            values["counts"][name] = values["counts"].get(name, 0) + number
        if verdict["failure"] is not None:
            values["failed"] += 1
            values["failures"].append({name: verdict[name] for name in ("number", "kind", "case", "failure")})

    def amount(self, unit: str) -> float:
        """How many trials there were, or how much of another count."""
        return self.values["trials"] if unit == "trials" else self.values["counts"].get(unit, 0)

    def line(self) -> str:
        """One line that says how the attack went."""
        values = self.values
        more = "".join(f", {number:g} {name}" for name, number in values["counts"].items())
        cost = values["cpu_seconds"] / max(1, values["trials"])
        return (
            f"hostile {values['attack']}: {values['trials']} trials, {values['failed']} failures{more} "
            f"({cost:.2f} s of computing per trial)"
        )


def run(attack, numbers: Iterable[int], base: Path) -> Iterator[dict]:
    """The verdicts of the trials `numbers`."""
    with Worker(attack, base) as worker:
        for number in numbers:
            yield worker.trial(number)

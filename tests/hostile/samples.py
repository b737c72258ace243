"""Small runs that the attacks start from, made once and copied."""

import base64
import contextlib
import itertools
import shutil
import time
from pathlib import Path

from hostile import console
from purectrl.runs import data_shards, process, runner
from purectrl.runs.store import Store

THEORY = ("--learner.paths", "8", "--problem.steps", "8")
LINEAR = (*THEORY, "--problem.dimension", "1", "--learner", "linear-sets")
GRADIENT = ("--learner.num-restarts", "2", "--learner.iterations", "4")
NEURAL = ("--learner.width", "4", "--learner.update-steps", "20", "--schedule.threshold", "0.5")
FIT = ("--learner.fit.gradient-matching-steps", "2", "--learner.fit.steps", "2", "--learner.fit.finetune-steps", "2")
PLAN = ("--learner.plan.steps", "5", "--learner.plan.horizon", "0.2", "--learner.plan.snapshots", "1")
SMALL = ("--learner.model.width", "8", "--learner.model.ensemble-size", "2", "--learner.plan.ensemble-size", "1")
WINDOWS = ("--sampler.count", "1", "--sampler.length", "1", "--sampler.step", "0.1", "--problem.horizon", "4")
TUNING = (
    "--learner.reward-model.steps",
    "2",
    "--learner.finetune.iterations",
    "1",
    "--learner.finetune.batch-size",
    "2",
)
IMAGES = ("--problem.denoising-steps", "2", "--problem.eval-images", "2", "--schedule.updates", "3")

RUNS = {
    "finite": ("finite", "--algorithm", "pure-base", "--measurements", "24", *THEORY),
    "finite-switch": ("finite", "--algorithm", "pure-low-switch", "--measurements", "24", *THEORY),
    "finite-rollout": ("finite", "--algorithm", "pure-low-rollout", "--measurements", "64", *THEORY),
    "lqr": ("lqr", "--algorithm", "pure-base", "--measurements", "12", *LINEAR, *GRADIENT),
    "neural": ("neural", "--algorithm", "pure-low-switch", "--measurements", "12", *THEORY, *GRADIENT, *NEURAL),
    "pendulum": ("pendulum", "--algorithm", "enode", "--measurements", "99", *WINDOWS, *FIT, *PLAN, *SMALL),
    "digits": ("digits", "--algorithm", "pure-seiko", "--measurements", "32", *IMAGES, *TUNING),
}
"""Settings that make every kind of run short, by name. The seed is chosen by the trial."""


class Stop(BaseException):
    """Ends a run from the inside, as a kill would."""


def run_words(kind: str, seed: int, out: Path) -> list[str]:
    """The call that makes a run."""
    return ["run", *RUNS[kind], "--seed", str(seed), "--out", str(out), "--quiet"]


def stop_after(steps: int):
    """A replacement of `Store.append` under which a run stops like a killed one while it writes line `steps`."""
    original, count = Store.append, 0

    def append(self, record):
        nonlocal count
        count += 1
        original(self, record)
        if count == steps:
            assert self._records is not None
            self._records.flush()
            raise Stop

    return append


@contextlib.contextmanager
def patched(owner, name: str, value):
    """Replaces an attribute within the context."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def always_checkpoint():
    """A checkpoint after every step."""
    return patched(runner, "CHECKPOINT_SHARE", 1e9)


def copy(source: Path, target: Path) -> Path:
    """A copy of a run directory; links and special files are copied as such."""
    shutil.copytree(source, target, symlinks=True)
    return target


@contextlib.contextmanager
def steady_clock():
    """A clock that advances by a millisecond at every look, so that a run leaves the same bytes every time."""
    looks = itertools.count()

    @contextlib.contextmanager
    def no_compilation(uses_jax: bool):
        with process.compile_clock(uses_jax):
            yield []

    with (
        patched(time, "perf_counter", lambda: next(looks) / 1000),
        patched(runner, "compile_clock", no_compilation),
        patched(data_shards, "SHARD_BYTES", 200),
    ):
        yield


def prepare(base: Path, kind: str = "finite", seed: int = 0, steps: int = 15) -> tuple[Path, Path]:
    """A finished run with an evaluation, media and data shards, and the same run stopped after `steps` steps.

    They are made once and have the same bytes every time. The stopped run has two checkpoints and one record beyond them.
    """
    finished, stopped = base / f"{kind}-finished", base / f"{kind}-stopped"
    if not (base / f"{kind}-made").exists():
        for place in (finished, stopped):
            shutil.rmtree(place, ignore_errors=True)
        with steady_clock(), always_checkpoint():
            answer = console.program(*run_words(kind, seed, finished))
            assert answer.status == 0, answer.err
        stopping = patched(Store, "append", stop_after(steps))
        with steady_clock(), always_checkpoint(), stopping, contextlib.suppress(Stop):
            console.program(*run_words(kind, seed, stopped))
        (finished / "media").mkdir(exist_ok=True)
        (finished / "media" / "picture.png").write_bytes(PICTURE)
        if kind in EVALUATED:
            answer = console.program("evaluate", finished, "--episodes", "2")
            assert answer.status == 0, answer.err
        (base / f"{kind}-made").touch()
    return finished, stopped


EVALUATED = ("finite", "lqr", "neural", "pendulum")
"""Kinds of runs whose evaluation takes no noticeable time."""
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A picture of one pixel."""

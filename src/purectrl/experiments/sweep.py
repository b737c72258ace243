"""Many runs: every algorithm with every seed, on all cores or on a cluster. A sweep that was stopped goes on."""

import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from purectrl.core.errors import InputError, PurectrlError, StoreError, require
from purectrl.experiments.runner import Spec, resume, run
from purectrl.experiments.store import read_summary
from purectrl.experiments.tracking import Tracking


@dataclass(frozen=True)
class Job:
    """One run of a sweep."""

    spec: Spec
    out: Path
    track: tuple[Tracking, ...] = ()

    def finished(self) -> bool:
        """Whether its directory holds a finished run; raises if it holds a run of something else."""
        if not (self.out / "config.json").exists():
            return False
        found = Spec.read(self.out)
        if found != self.spec:
            raise StoreError(
                f"{self.out} was run with other settings: {difference(found, self.spec)}; take another --out"
            )
        return read_summary(self.out) is not None


@dataclass(frozen=True)
class Outcome:
    """How a job ended: with a summary or with an error in words."""

    job: Job
    summary: dict[str, Any] | None
    error: str | None = None


Engine = Callable[[Sequence[Job]], Iterator[Outcome]]


def parse_seeds(text: str) -> list[int]:
    """The seeds that `text` names: a range `0:5` (without its end), or numbers with commas.

    >>> parse_seeds("0:3"), parse_seeds("4"), parse_seeds("1,5")
    ([0, 1, 2], [4], [1, 5])
    """
    try:
        if ":" in text:
            first, last = (int(part) for part in text.split(":"))
            require(last - first <= 100_000, f"seeds: {text} are more than 100,000 runs; sweep them in parts")
            seeds = list(range(first, last))
        else:
            seeds = [int(part) for part in text.split(",")]
    except InputError:
        raise
    except ValueError:
        raise InputError(f"seeds: {text!r} is neither a range such as 0:5 nor numbers such as 1,4,7") from None
    require(len(seeds) > 0, f"seeds: the range {text} is empty; write first:last with last beyond first, such as 0:5")
    require(min(seeds) >= 0, f"seeds: must not be negative, got {text}")
    require(len(set(seeds)) == len(seeds), f"seeds: {text} names a seed twice")
    return seeds


def difference(found: Spec, wanted: Spec) -> str:
    """The first setting in which two specs differ, in words."""
    for name in ("experiment", "algorithm", "seed"):
        if getattr(found, name) != getattr(wanted, name):
            return f"{name} {getattr(found, name)!r} there, {getattr(wanted, name)!r} here"
    there, here = vars(found.settings), vars(wanted.settings)
    name = next(name for name in here if there.get(name) != here[name])
    return f"{name} = {there.get(name)!r} there, {here[name]!r} here"


def perform(job: Job) -> Outcome:
    """Runs or resumes one job. An error of this job is its outcome: the others go on."""
    try:
        if (job.out / "config.json").exists():
            return Outcome(job, resume(job.out, quiet=True, track=job.track))
        return Outcome(job, run(job.spec, job.out, quiet=True, track=job.track))
    except KeyboardInterrupt:
        return Outcome(job, None, "stopped; what was done is saved")
    except Exception as error:  # whatever it is, it is this job's, and the others go on
        words = str(error) if isinstance(error, PurectrlError) else f"{type(error).__name__}: {error}"
        return Outcome(job, None, words)


def local(workers: int | None = None) -> Engine:
    """As many processes as cores, or as told. They end with this process, however it ends."""
    require(workers is None or workers >= 1, f"workers: at least one is needed, not {workers}")

    def engine(jobs: Sequence[Job]) -> Iterator[Outcome]:
        waiting = list(reversed(jobs))
        while waiting:  # once, and once more for every pool that lost a worker
            yield from _pool(waiting, min(workers or os.cpu_count() or 1, len(waiting)))

    return engine


def _pool(waiting: list[Job], count: int) -> Iterator[Outcome]:
    """Takes jobs off the end of `waiting` until none is left or a worker dies."""
    running: dict[Future[Outcome], Job] = {}
    threads = max(1, (os.cpu_count() or 1) // count)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context, initializer=_start_worker, initargs=(threads,)) as pool:
        try:
            while waiting or running:
                while waiting and len(running) < count:  # no more than can run, so that stopping starts none
                    with _ignoring_interrupts():  # for the worker that this may start, until it is ready
                        running[pool.submit(perform, waiting[-1])] = waiting[-1]
                    waiting.pop()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield _outcome(running.pop(future), future.result)
        except BrokenProcessPool:
            for future, job in running.items():
                yield _outcome(job, future.result)
        except BaseException:
            for worker in multiprocessing.active_children():
                worker.terminate()  # SIGTERM: it saves and stops
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _outcome(job: Job, result: Callable[[], Outcome]) -> Outcome:
    """What a worker returned, or that it died (out of memory, a lost node)."""
    try:
        found = result()
    except Exception as error:
        return Outcome(job, None, f"its worker died: {type(error).__name__}: {error}")
    if found.summary is not None and read_summary(job.out) is None:
        return Outcome(job, None, f"finished elsewhere, but {job.out} is not there: the directory must be shared")
    return found


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _start_worker(threads: int) -> None:
    """Leaves Ctrl-C to the sweep, and ends this worker when the sweep is killed, so that nothing writes behind its back."""
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # or every worker's PyTorch would want all cores
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def on_ray(workers: int | None = None) -> Engine:
    """Ray: a cluster if `RAY_ADDRESS` names one (the output directory must be shared), else this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # or Ray reports its use over the network, unasked
    try:
        import ray
    except ImportError:
        raise InputError(
            "engine: ray is not installed; `pip install -c constraints.txt '.[ray]'` installs it"
        ) from None
    require(workers is None or workers >= 1, f"workers: at least one is needed, not {workers}")

    def engine(jobs: Sequence[Job]) -> Iterator[Outcome]:
        ours = not ray.is_initialized()
        if ours:
            place = {} if "RAY_ADDRESS" in os.environ else {"address": "local", "num_cpus": workers}
            ray.init(include_dashboard=False, log_to_driver=False, **place)
        try:
            submit = ray.remote(perform).options(num_cpus=1, max_retries=0).remote
            running = {submit(job): job for job in jobs}
            while running:
                (done, *_), _ = ray.wait(list(running))
                yield _outcome(running.pop(done), functools.partial(ray.get, done))
        finally:
            if ours:
                ray.shutdown()

    return engine


def sweep(specs: Sequence[Spec], out: Path, engine: Engine, track: tuple[Tracking, ...] = ()) -> Iterator[Outcome]:
    """Yields the outcome of every run, those that were finished before first. Each of `track` draws every run."""
    if out.exists() and not out.is_dir():
        raise StoreError(f"{out} is a file; --out takes a directory")
    jobs = [Job(spec, out.absolute() / f"{spec.algorithm}-seed{spec.seed}", track) for spec in specs]
    yield from complete(jobs, engine)


def complete(jobs: Sequence[Job], engine: Engine) -> Iterator[Outcome]:
    """Yields the outcome of every job, wherever it writes, those that were finished before first."""
    missing = []
    finished = [job.finished() for job in jobs]  # all of them first: a wrong directory is refused before anything runs
    for job, done in zip(jobs, finished, strict=True):
        if done:
            yield Outcome(job, read_summary(job.out))
        else:
            missing.append(job)
    if missing:
        yield from engine(missing)

"""Many runs: every algorithm with every seed, on all cores or on a cluster. A sweep that was stopped goes on."""

import functools
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from purectrl.core.errors import InputError, PurectrlError, StoreError, require
from purectrl.experiments.runner import Spec, resume, run
from purectrl.experiments.store import read_summary


@dataclass(frozen=True)
class Job:
    """One run of a sweep."""

    spec: Spec
    out: Path

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
            seeds = list(range(first, last))
        else:
            seeds = [int(part) for part in text.split(",")]
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
        exists = (job.out / "config.json").exists()
        return Outcome(job, resume(job.out, quiet=True) if exists else run(job.spec, job.out, quiet=True))
    except Exception as error:  # whatever it is, it is this job's, and the others go on
        words = str(error) if isinstance(error, PurectrlError) else f"{type(error).__name__}: {error}"
        return Outcome(job, None, words)


def local(workers: int | None = None) -> Engine:
    """As many processes as cores, or as told. They end with this process, however it ends."""
    require(workers is None or workers >= 1, f"workers: at least one is needed, not {workers}")

    def engine(jobs: Sequence[Job]) -> Iterator[Outcome]:
        count = min(workers or os.cpu_count() or 1, len(jobs))
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(count, mp_context=context, initializer=_end_with_parent) as pool:
            try:
                running = {pool.submit(perform, job): job for job in jobs}
                for future in as_completed(running):
                    yield _outcome(running[future], future.result)
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    return engine


def _outcome(job: Job, result: Callable[[], Outcome]) -> Outcome:
    """What a worker returned, or that it died (out of memory, a lost node)."""
    try:
        found = result()
    except Exception as error:
        return Outcome(job, None, f"its worker died: {type(error).__name__}: {error}")
    if found.summary is not None and read_summary(job.out) is None:
        return Outcome(job, None, f"finished elsewhere, but {job.out} is not there: the directory must be shared")
    return found


def _end_with_parent() -> None:
    """Ends this worker when the sweep is killed, so that nothing keeps writing behind its back."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def on_ray(workers: int | None = None) -> Engine:
    """Ray: a cluster if `RAY_ADDRESS` names one (the output directory must be shared), else this machine."""
    try:
        import ray
    except ImportError:
        raise InputError("engine: ray is not installed; `pip install 'purectrl[ray]'` installs it") from None
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


def sweep(specs: Sequence[Spec], out: Path, engine: Engine) -> Iterator[Outcome]:
    """Yields the outcome of every run, those that were finished before first."""
    jobs = [Job(spec, out.absolute() / f"{spec.algorithm}-seed{spec.seed}") for spec in specs]
    missing = []
    finished = [job.finished() for job in jobs]  # all of them first: a wrong directory is refused before anything runs
    for job, done in zip(jobs, finished, strict=True):
        if done:
            yield Outcome(job, read_summary(job.out))
        else:
            missing.append(job)
    if missing:
        yield from engine(missing)

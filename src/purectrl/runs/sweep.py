"""Many runs: every problem with every algorithm and every seed, on all cores or on a cluster. A sweep can be resumed."""

import functools
import json
import multiprocessing
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from purectrl import signals
from purectrl.core.errors import InputError, PurectrlError, StoreError, require
from purectrl.core.io import check_below
from purectrl.core.ledger import Budget
from purectrl.core.output_paths import require_creatable
from purectrl.core.problem import Source
from purectrl.runs.directory import read_config, read_summary
from purectrl.runs.process import graceful_shutdown
from purectrl.runs.progress import log
from purectrl.runs.runner import resume, run
from purectrl.runs.spec import RunSpec, algorithm_from_plain, algorithm_to_plain
from purectrl.runs.tracking import TrackerKind

MAX_RUNS = 100_000
"""The largest number of seeds in a sweep."""
POLL_SECONDS = 0.2
"""How often a sweep looks whether it was told to stop."""


@dataclass(frozen=True)
class Job:
    """One run of a sweep."""

    spec: RunSpec
    out: Path
    track: tuple[TrackerKind, ...] = ()

    def finished(self) -> bool:
        """Whether its directory holds the finished run; raises if it holds a run with other settings."""
        if not (self.out / "config.json").exists():
            return False
        if found := difference(read_config(self.out), self.spec.as_dict()):
            raise StoreError(f"{self.out} holds a run with other settings: {found}; use another directory")
        return read_summary(self.out) is not None

    def __reduce__(self) -> tuple[Callable[..., "Job"], tuple[Any, ...]]:
        """Pickled as plain values: a worker imports a user's own classes by their references."""
        algorithm = algorithm_to_plain(self.spec.algorithm)
        return _job, (self.spec.problem, algorithm, self.spec.budget, self.spec.seed, self.out, self.track)


def _job(problem: Source, algorithm: Any, budget: Budget, seed: int, out: Path, track: tuple[TrackerKind, ...]) -> Job:
    return Job(RunSpec(problem, algorithm_from_plain(algorithm), budget, seed), out, track)


@dataclass(frozen=True)
class Outcome:
    """The result of a job: a summary, or the message of an error."""

    job: Job
    summary: dict[str, Any] | None
    error: str | None = None


Engine = Callable[[Sequence[Job]], Iterator[Outcome]]
"""Runs jobs and yields their outcomes in the order in which they end."""


def parse_seeds(text: str) -> list[int]:
    """The seeds of a range `first:last` (without `last`), or of a list with commas.

    >>> parse_seeds("0:3"), parse_seeds("4"), parse_seeds("1,5")
    ([0, 1, 2], [4], [1, 5])
    """
    number = "[0-9]{1,18}"
    if re.fullmatch(f"{number}:{number}", text):
        first, last = map(int, text.split(":"))
        require(last - first <= MAX_RUNS, f"seeds: {text} has more than {MAX_RUNS:,} seeds; split the sweep")
        require(last > first, f"seeds: the range {text} is empty; `first:last` excludes `last`, as in 0:5")
        return list(range(first, last))
    valid = re.fullmatch(f"{number}(,{number})*", text) is not None
    require(valid, f"seeds: must be a range such as 0:5 or a list such as 1,4,7, not {text!r:.60}")
    seeds = [int(part) for part in text.split(",")]
    require(len(seeds) <= MAX_RUNS, f"seeds: the list has more than {MAX_RUNS:,} seeds; split the sweep")
    require(len(set(seeds)) == len(seeds), f"seeds: {text:.60} contains a seed twice")
    return seeds


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """The first setting in which two configurations differ, apart from versions and code; None if they agree.

    >>> difference({"seed": 0, "budget": {"measurements": 50}}, {"seed": 0, "budget": {"measurements": 60}})
    'budget.measurements is 50 there and 60 here'
    """
    compared = [dict(config, versions=None, code=None) for config in (found, wanted)]
    there, here = (_flat(json.loads(json.dumps(config))) for config in compared)
    for path in dict.fromkeys([*here, *there]):
        if (one := there.get(path)) != (other := here.get(path)):
            return f"{'.'.join(path)} is {_named(one)} there and {_named(other)} here"
    return None


def _flat(config: Mapping[str, Any], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """The values of a nested configuration by their paths; an empty object is a value."""
    flat: dict[tuple[str, ...], Any] = {}
    for name, value in config.items():
        nested = isinstance(value, Mapping) and len(value) > 0
        flat |= _flat(value, (*path, name)) if nested else {(*path, name): [value]}
    return flat


def _named(value: list[Any] | None) -> str:
    return "missing" if value is None else f"{value[0]!r:.60}"


def run_job(job: Job) -> Outcome:
    """Runs or resumes one job. An error becomes the outcome of this job, and the other jobs continue."""
    try:
        if (job.out / "config.json").exists():
            # trusted: the directory names the same code as the spec, which `finished` has checked
            return Outcome(job, resume(job.out, quiet=True, track=job.track, trust=True, force=True))
        return Outcome(job, run(job.spec, job.out, quiet=True, track=job.track, force=True).summary)
    except KeyboardInterrupt:
        return Outcome(job, None, "stopped; its progress is saved")
    except Exception as error:  # reported as the outcome
        message = str(error) if isinstance(error, PurectrlError) else f"{type(error).__name__}: {error}"
        return Outcome(job, None, message)


def run_jobs(jobs: Sequence[Job]) -> list[Outcome]:
    """Runs jobs of one setting, in one program where that is possible: see `purectrl.runs.batched`."""
    from purectrl.runs.batched import run_batch

    if not all(map(_batched, jobs)):
        return [run_job(job) for job in jobs]
    try:
        summaries = run_batch([job.spec for job in jobs], [job.out for job in jobs])
    except KeyboardInterrupt:
        return [Outcome(job, None, "stopped; its progress is saved") for job in jobs]
    except Exception:  # one by one, the run that failed says so, and the others finish
        return [run_job(job) for job in jobs]
    return [Outcome(job, summary) for job, summary in zip(jobs, summaries, strict=True)]


def batches(jobs: Sequence[Job], workers: int) -> list[list[Job]]:
    """Jobs that one worker computes together: new runs of one setting that can be batched, spread over all workers."""
    from purectrl.runs.batched import MOST

    settings: dict[str, list[Job]] = {}
    for number, job in enumerate(jobs):
        settings.setdefault(job.spec.identity() if _batched(job) else f"{number}", []).append(job)
    found = []
    for group in settings.values():
        count = max(-(-len(group) // MOST), min(workers, len(group)) if len(group) >= 4 else 1)
        found += [group[start::count] for start in range(count)]
    return found


def _batched(job: Job) -> bool:
    """Whether a job is computed with others of its setting: a new run that can be."""
    from purectrl.runs.batched import can_batch

    return not job.track and not (job.out / "config.json").exists() and can_batch(job.spec)


def local(workers: int | None = None, batch: bool = False) -> Engine:
    """Runs jobs in `workers` processes, by default one per core. They end with this process, even if it is killed.

    With `batch`, the seeds of a setting are computed together where that is possible, see `purectrl.runs.batched`.
    """
    require(workers is None or workers >= 1, f"workers: must be at least 1, not {workers}")

    def engine(jobs: Sequence[Job]) -> Iterator[Outcome]:
        count = workers or os.cpu_count() or 1
        waiting = list(reversed(batches(jobs, count) if batch else [[job] for job in jobs]))
        compute = run_jobs if batch else _alone
        with graceful_shutdown(_kill_workers) as stopped:
            while waiting and not stopped:  # a pool that lost a worker is replaced
                yield from _pool(waiting, min(count, len(waiting)), compute, stopped)
            if stopped:
                raise KeyboardInterrupt("finished runs are kept, the others are saved: the same command continues")

    return engine


def _alone(jobs: Sequence[Job]) -> list[Outcome]:
    return [run_job(job) for job in jobs]


def _pool(
    waiting: list[list[Job]],
    count: int,
    compute: Callable[[Sequence[Job]], list[Outcome]],
    stopped: Sequence[int],
) -> Iterator[Outcome]:
    """Runs batches of jobs from the end of `waiting` until none is left, a worker dies, or `stopped` holds a signal."""
    running: dict[Future[list[Outcome]], list[Job]] = {}
    threads = max(1, (os.cpu_count() or 1) // count)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context, initializer=_start_worker, initargs=(threads,)) as pool:
        try:
            while (waiting or running) and not stopped:
                while waiting and len(running) < count:  # only as many as can run, so that none starts after a stop
                    with _blocked(signal.SIGINT):  # inherited by the worker that this may start
                        running[pool.submit(compute, waiting[-1])] = waiting[-1]
                    waiting.pop()
                for future in wait(running, POLL_SECONDS, return_when=FIRST_COMPLETED).done:
                    for outcome in outcomes_of(running.pop(future), future.result):
                        if outcome.summary is not None or not stopped:  # the terminal signals workers, too
                            yield outcome
        except BrokenProcessPool:
            for future, batch in running.items() if not stopped else ():
                yield from outcomes_of(batch, future.result)
        finally:
            if running:  # the sweep was stopped, or whoever follows it has failed
                for worker in multiprocessing.active_children():
                    worker.terminate()  # SIGTERM: the worker saves its run and stops
                pool.shutdown(wait=True, cancel_futures=True)


def _kill_workers() -> None:
    """Ends all workers at once, for a user who does not want to wait until their runs are saved."""
    for worker in multiprocessing.active_children():
        worker.kill()


def outcomes_of(jobs: Sequence[Job], result: Callable[[], list[Outcome]]) -> Iterator[Outcome]:
    """The outcomes that a worker returned, or that the worker failed (out of memory, a lost node)."""
    try:
        outcomes = result()
    except Exception as error:
        yield from (Outcome(job, None, f"its worker failed: {type(error).__name__}: {error}") for job in jobs)
        return
    for found in outcomes:
        missing = found.summary is not None and read_summary(found.job.out) is None
        where = f"finished on another machine, but {found.job.out} is missing here: use a shared directory"
        yield Outcome(found.job, None, where) if missing else found


@contextmanager
def _blocked(number: signal.Signals) -> Iterator[None]:
    """Delays a signal until the end of the block; processes that are started inside never receive it."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def _start_worker(threads: int) -> None:
    """Leaves Ctrl-C to the sweep, and ends this worker if the sweep is killed, so that no run continues unattended."""
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # or PyTorch would use all cores in every worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signals.install(message="")  # SIGTERM, which the sweep sends
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def on_ray(workers: int | None = None, batch: bool = False) -> Engine:
    """Runs jobs with Ray: on the cluster that RAY_ADDRESS names (with a shared output directory), else on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # or Ray reports its use over the network
    try:
        import ray
    except ImportError:
        raise InputError("engine: ray is not installed; `pip install 'purectrl[ray]'` installs it") from None
    require(workers is None or workers >= 1, f"workers: must be at least 1, not {workers}")

    def engine(jobs: Sequence[Job]) -> Iterator[Outcome]:
        own_cluster = not ray.is_initialized()
        if own_cluster:
            options = {} if "RAY_ADDRESS" in os.environ else {"address": "local", "num_cpus": workers}
            terminate = signal.getsignal(signal.SIGTERM)
            ray.init(include_dashboard=False, log_to_driver=False, **options)
            signal.signal(signal.SIGTERM, terminate)  # Ray replaces the handler
        try:
            submit = ray.remote(run_jobs if batch else _alone).options(num_cpus=1, max_retries=0).remote
            count = int(ray.cluster_resources().get("CPU", 1))
            running = {submit(group): group for group in (batches(jobs, count) if batch else [[job] for job in jobs])}
            while running:
                (done, *_), _ = ray.wait(list(running))
                yield from outcomes_of(running.pop(done), functools.partial(ray.get, done))
        finally:
            if own_cluster:
                ray.shutdown()

    return engine


def sweep(specs: Sequence[RunSpec], out: Path, engine: Engine, track: Sequence[TrackerKind] = ()) -> Iterator[Outcome]:
    """Runs every spec in `out/PROBLEM/ALGORITHM-seedS` and yields the outcomes, those of finished runs first.

    Main arguments:
        specs: what to run.
        out: directory of the sweep. Runs that it holds already are resumed; finished ones are not repeated.
        engine: where the runs are computed, `local()`, `on_ray()` or `on_submitit()`.
        track: trackers of every run.
    """
    require(len(specs) > 0, "specs: a sweep needs at least one run")
    for spec in specs:
        importable = isinstance(spec.problem, Source)
        require(importable, f"problem: the workers cannot import {spec.name}; refer to it as path/file.py:function")
    paths = [_directory(spec) for spec in specs]
    for path, count in Counter(paths).items():
        require(count == 1, f"specs: {count} runs of the sweep would be written to {path}; sweep them separately")
    require_creatable(out / max(paths, key=lambda path: len(str(path))))
    jobs = [Job(spec, out.absolute() / path, tuple(track)) for spec, path in zip(specs, paths, strict=True)]
    for job in jobs:
        check_below(out.absolute(), job.out)
    return run_missing(jobs, engine)


def _directory(spec: RunSpec) -> Path:
    """Where a sweep writes a run, relative to its own directory."""
    return Path(_safe(spec.name), f"{_safe(spec.algorithm.name)}-seed{spec.seed}")


def _safe(name: str) -> str:
    """A name that is valid as the name of a directory.

    >>> _safe("ALE/Pong-v5"), _safe("my system"), _safe("../x")
    ('ALE-Pong-v5', 'my-system', 'x')
    """
    return re.sub(r"[^\w.-]+", "-", name).strip(".-")[:100] or "unnamed"


def run_missing(jobs: Sequence[Job], engine: Engine) -> Iterator[Outcome]:
    """Runs the jobs that are not finished and yields the outcome of every job, those of finished ones first.

    Every directory is checked at once: one that holds another run is refused before anything runs.
    """
    finished = [job.finished() for job in jobs]

    def outcomes() -> Iterator[Outcome]:
        for job, done in zip(jobs, finished, strict=True):
            if done:
                if read_config(job.out).get("code") != job.spec.as_dict()["code"]:
                    log(f"warning: the code of the run in {job.out} has changed since it finished")
                yield Outcome(job, read_summary(job.out))
        if missing := [job for job, done in zip(jobs, finished, strict=True) if not done]:
            yield from engine(missing)

    return outcomes()

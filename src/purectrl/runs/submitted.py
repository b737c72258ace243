"""`--engine submitit`: the runs of a sweep as jobs of a Slurm cluster, or as processes of this machine where there is none.

Jobs are submitted as one array. A job that Slurm preempts or that reaches its time limit is queued again and resumes its run
from the last checkpoint. submitit hands jobs and outcomes over as pickles, in a new directory below that of the runs which
other users cannot read or write; it is removed at the end, unless a run has failed.
"""

import functools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from purectrl.core.errors import InputError, require
from purectrl.runs.process import graceful_shutdown
from purectrl.runs.sweep import Engine, Job, Outcome, batches, outcomes_of, run_job, run_jobs

POLL_SECONDS = 0.5
"""How often the state of the jobs is read."""
TIME_LIMIT = 24 * 60
"""Minutes after which a job is queued again, unless SBATCH_TIMELIMIT says otherwise."""
CANCEL_SECONDS = 60.0
"""How long cancelled jobs may take to save their runs."""


class Submitted(Protocol):
    """What is used of a job of submitit."""

    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        ...

    def result(self) -> list[Outcome]:
        """What it returned; raises if it failed."""
        ...

    def cancel(self, check: bool = True) -> None:
        """Ends it."""
        ...


class RunGroup:
    """What a job computes: some runs, one after the other or in one program.

    Main arguments:
        batch: whether runs that differ in their seeds are computed together where that is possible.
    """

    def __init__(self, batch: bool) -> None:
        self.batch = batch

    def __call__(self, jobs: Sequence[Job]) -> list[Outcome]:
        """The outcomes of the runs."""
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # a job has one core
        return run_jobs(jobs) if self.batch else [run_job(job) for job in jobs]

    def checkpoint(self, jobs: Sequence[Job]) -> Any:
        """What is queued when the job is preempted: the same runs, which resume from their checkpoints."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(RunGroup(self.batch), jobs)


def on_submitit(workers: int | None = None, batch: bool = False) -> Engine:
    """Runs jobs with submitit: on Slurm if there is `sbatch` (with a shared output directory), else on this machine.

    Slurm reads partition, account and time limit from SBATCH_PARTITION, SBATCH_ACCOUNT and SBATCH_TIMELIMIT.

    Main arguments:
        workers: the largest number of jobs at the same time. By default as many as Slurm admits, or one per core here.
        batch: whether the seeds of a setting are computed together where that is possible.
    """
    try:
        import submitit
    except ImportError:
        raise InputError("engine: submitit is not installed; `pip install 'purectrl[submitit]'` installs it") from None
    require(workers is None or workers >= 1, f"workers: must be at least 1, not {workers}")

    def engine(jobs: Sequence[Job]) -> Iterator[Outcome]:
        if not jobs:
            return
        shared = Path(os.path.commonpath([job.out.parent for job in jobs]))
        shared.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(prefix=".submitit-", dir=shared)  # readable and writable by this user only
        executor = submitit.AutoExecutor(folder)
        slurm = executor.cluster == "slurm"
        executor.update_parameters(name="purectrl", cpus_per_task=1, timeout_min=TIME_LIMIT)
        count = workers or (len(jobs) if slurm else os.cpu_count() or 1)
        if slurm:
            executor.update_parameters(slurm_array_parallelism=count)
        groups = batches(jobs, count) if batch else [[job] for job in jobs]
        submit = functools.partial(executor.map_array, RunGroup(batch))
        failed = False
        try:
            for outcome in _follow(groups, submit, len(groups) if slurm else count):
                failed |= outcome.error is not None
                yield outcome
        finally:
            if not failed:  # otherwise it holds the logs
                shutil.rmtree(folder, ignore_errors=True)  # a job that was cancelled may still write to it

    return engine


def _follow(
    groups: Sequence[list[Job]], submit: Callable[[list[list[Job]]], Sequence[Submitted]], count: int
) -> Iterator[Outcome]:
    """Submits groups, at most `count` at the same time, and yields their outcomes; cancels what runs if it is stopped."""
    waiting, running = list(groups), list[tuple[Submitted, list[Job]]]()
    with graceful_shutdown() as stopped:
        try:
            while (waiting or running) and not stopped:
                some = [waiting.pop(0) for _ in range(min(len(waiting), count - len(running)))]
                running += zip(submit(some) if some else [], some, strict=True)
                done = [(job, group) for job, group in running if job.done()]
                running = [(job, group) for job, group in running if all(job is not one for one, _ in done)]
                for job, group in done:
                    yield from outcomes_of(group, job.result)
                if not done:
                    time.sleep(POLL_SECONDS)
        finally:
            _cancel([job for job, _ in running])
        if stopped:
            raise KeyboardInterrupt("finished runs are kept, the others are saved: the same command continues")


def _cancel(jobs: Sequence[Submitted]) -> None:
    """Ends jobs and waits until they have: a run that is still being written cannot be resumed."""
    for job in jobs:
        job.cancel(check=False)
    deadline = time.monotonic() + CANCEL_SECONDS
    while not all(job.done() for job in jobs) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)

"""Runs: start, resume, evaluate, load the policy."""

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from purectrl import signals
from purectrl.core.errors import InputError, StoreError, TimeLimit, UnsupportedError, require
from purectrl.core.io import subdirectory, with_checksum, write_json
from purectrl.core.keys import Key
from purectrl.core.learner import RestorationCheck, State
from purectrl.core.loop import Loop
from purectrl.core.plan import Plan
from purectrl.core.problem import Problem
from purectrl.runs.directory import check_free, read_config, read_records, read_summary, verify_finished, with_trust
from purectrl.runs.episodes import EVALUATION, write_episodes
from purectrl.runs.memory import require_memory, require_update_memory
from purectrl.runs.process import compile_clock, graceful_shutdown, versions
from purectrl.runs.progress import log, progress, warnings_on_one_line
from purectrl.runs.results import EVALUATED, CoverageTest, criterion_met, final_metrics, record_line
from purectrl.runs.spec import RunSpec

if TYPE_CHECKING:
    from purectrl.runs.store import MemoryStore, Store
    from purectrl.runs.tracking import LiveLogger, TrackerKind

CHECKPOINT_SHARE = 0.05
"""At most this share of a run's time is spent on checkpoints."""


class Finished(NamedTuple):
    """A run that has finished: its summary and the policy that it returns."""

    summary: dict[str, Any]
    plan: Plan
    records: Sequence[dict[str, Any]]
    """Of a run with files, read when they are used."""


@runtime_checkable
class LearnerMetrics(Protocol):
    """Optional capability of a learner: metrics of a finished run."""

    def summarize(self, state: Any) -> dict[str, Any]:
        """What the learner adds to the metrics of a finished run."""
        ...


def run(
    spec: RunSpec,
    out: Path | None,
    quiet: bool = False,
    track: "Sequence[TrackerKind]" = (),
    force: bool = False,
    max_seconds: float | None = None,
) -> Finished:
    """Runs `spec` in the directory `out`, which must be new or empty, or without files if it is None.

    A run that needs more memory than is available is refused before anything is built, unless `force`. After `max_seconds`
    the run is stopped at the end of a step and saved, and `TimeLimit` is raised.
    """
    require(max_seconds is None or max_seconds > 0, f"max_seconds: must be positive, not {max_seconds}")
    from purectrl.runs.store import MemoryStore, Store
    from purectrl.runs.tracking import tracking

    if out is not None and _is_main_process():
        check_free(out)
    problem = spec.load_problem()
    require_memory(spec, force, in_memory=out is None)
    config = spec.as_dict()
    with compile_clock("jax" in problem.packages) as compiled, warnings_on_one_line():
        start = time.perf_counter()
        _, loop = spec.compose()  # a wrong setting is refused before the directory exists
        require_update_memory(problem, loop, force)
        if not quiet and _is_main_process() and (cost := problem.estimate(loop)):
            log(cost)
        if not quiet and "jax" in problem.packages:
            log(f"{problem.name}: compiling, which takes longest the first time")
        if out is None or not _is_main_process():
            return _drive(spec, MemoryStore(out), quiet, compiled, start, None, max_seconds)
        with (
            signals.unwinding(),
            Store.create(out, config) as store,
            _advice(out),
            tracking(track, out, config) as live,
        ):
            return _drive(spec, store, quiet, compiled, start, live, max_seconds)


def resume(
    out: Path,
    quiet: bool = False,
    track: "Sequence[TrackerKind]" = (),
    trust: bool = False,
    problem: Problem | None = None,
    force: bool = False,
    max_seconds: float | None = None,
) -> dict[str, Any]:
    """Continues the run in `out`, bit for bit as if it had never stopped, and returns the summary."""
    from purectrl.runs.store import MemoryStore, Store
    from purectrl.runs.tracking import tracking

    spec = RunSpec.read(out, trust, problem)
    if not _is_main_process():
        with compile_clock(uses_jax=False) as compiled:
            return _drive(spec, MemoryStore(out), quiet, compiled, time.perf_counter(), None).summary
    if (summary := read_summary(out)) is not None:
        verify_finished(out)
        if not track:
            return summary
    with signals.unwinding(), Store.open(out) as store, _advice(out), tracking(track, out, read_config(out)) as live:
        if summary is not None:
            live.catch_up(read_records(out))
            live.summary(summary)
            return summary
        packages = spec.load_problem().packages
        require_memory(spec, force)
        if (found := read_config(out)["versions"]) != (now := versions(packages)):
            other = [f"{name} {found.get(name)}" for name, version in now.items() if found.get(name) != version]
            _warn(f"the run in {out} was started with {', '.join(other)}: results may differ in the last bits")
        with compile_clock("jax" in packages) as compiled, warnings_on_one_line():
            return _drive(spec, store, quiet, compiled, time.perf_counter(), live, max_seconds).summary


def evaluate(
    out: Path,
    episodes: int | None = None,
    seed: int = 0,
    video: bool = False,
    trust: bool = False,
    problem: Problem | None = None,
    update: int | None = None,
) -> dict[str, Any]:
    """Evaluates the policy of a run on new episodes; also written to `evaluation.json`.

    Where the directory cannot be written, as on a read-only disk, the result is returned all the same, and a note is logged.
    """
    require(
        episodes is None or 1 <= episodes <= 1_000_000, f"episodes: must be between 1 and 1,000,000, not {episodes}"
    )
    require(seed >= 0, f"seed: must be a non-negative integer, not {seed}")
    found, plan = learned(out, trust, problem, update)
    episodes = episodes or found.evaluate_episodes
    key = Key.from_seed(seed)
    result: dict[str, Any] = {"episodes": episodes, "seed": seed}
    if update is not None:
        result["update"] = update
    evaluation = found.evaluation(plan, key.child("evaluate"), episodes)
    result["metrics"] = evaluation.metrics | criterion_met(found, evaluation.metrics)
    try:
        with signals.unwinding():
            write_episodes(out / EVALUATION, evaluation, seed=seed)
            write_json(
                out / "evaluation.json", with_checksum(result)
            )  # a video that cannot be rendered does not cost the numbers
            if video:
                files = found.video(plan, key.child("film"), subdirectory(out, "media", create=True))
                if files is None:
                    raise UnsupportedError(f"video: the problem {found.name} has nothing to render")
                result["media"] = [str(path.relative_to(out)) for path in files]
                write_json(out / "evaluation.json", with_checksum(result))
    except OSError as error:
        log(f"note: the result is not written to {out}: {error.strerror}")
        return {**result, "written": False}
    return {**result, "written": True}


def learned(
    out: Path, trust: bool = False, problem: Problem | None = None, update: int | None = None
) -> tuple[Problem, Plan]:
    """The problem of a run and a policy of it: that of `update`, else what the run returned, else its newest."""
    from purectrl.runs.store import load_plan, stored_updates

    spec = RunSpec.read(out, trust, problem)
    updates = stored_updates(out)
    if update is not None and update not in updates:
        stored = f"those of the updates {updates[0]} to {updates[-1]} are" if updates else "none is"
        raise InputError(f"update: the policy of update {update} is not stored in {out}; {stored}")
    if update is None and read_summary(out) is None:
        if not updates:
            raise StoreError(
                f"the run in {out} has not finished: continue it with `purectrl resume {with_trust(out)}`; it has no "
                "policy yet"
            )
        update = updates[-1]
        _warn(f"the run in {out} has not finished: this is its policy after update {update}")
    opened, loop = spec.compose(out if os.access(out, os.W_OK) else None)  # the problem may log paid queries
    plan = load_plan(out, loop.init(Key.from_seed(spec.seed)).output.plan, update)
    if isinstance(loop.learner, RestorationCheck):
        loop.learner.check_plan(plan)
    return opened, plan


def load_policy(
    out: str | Path, trust: bool = False, problem: Problem | None = None, update: int | None = None
) -> Callable[..., np.ndarray]:
    """The policy of a run: a compiled function (state [d], time) -> control [k]; see `purectrl.load_policy`."""
    found, plan = learned(Path(out), trust, problem, update)
    controller = getattr(found, "controller", None)
    if controller is None:
        raise UnsupportedError(
            f"the policy of the run in {out} is not a function of a state: {found.name} has no states"
        )
    return controller(plan)


def _keep_policy(store: "Store | MemoryStore", problem: Problem, loop: Loop, state: State) -> None:
    """Stores the policy of the newest update, if it is that of a control learner, which is small and seldom updated."""
    if store.path is None or problem.kind != "states":
        return
    from purectrl.systems.held_policy import HeldPolicy
    from purectrl.systems.spec import ExploringPolicy

    plan = loop.learner.policy(state.learner)
    if isinstance(plan.policy, ExploringPolicy | HeldPolicy):
        store.save_plan(plan, state.ledger.updates)


def _drive(
    spec: RunSpec,
    store: "Store | MemoryStore",
    quiet: bool,
    compiled: list[float],
    start: float,
    live: "LiveLogger | None",
    max_seconds: float | None = None,
) -> Finished:
    """Steps the loop until the budget or the time is spent, evaluates, saves."""
    from purectrl.runs.serialization import check_restored, pack_state

    problem, loop = spec.compose(store.path)
    fresh = loop.init(Key.from_seed(spec.seed))
    pack_state(fresh)  # a state that cannot be saved is refused now and not at the first checkpoint
    state = store.restore(fresh, _warn, functools.partial(check_restored, problem, loop))
    built = saved = time.perf_counter()
    cost, before = 0.0, state.ledger.seconds.total + built - start
    label = f"{problem.name} {spec.algorithm.name} seed {spec.seed}"

    def book_seconds(state: State) -> State:
        """Adds the seconds outside of steps, so that the total is the wall-clock time, and all compilations."""
        total = before + time.perf_counter() - built - state.ledger.seconds.total
        compiling = sum(compiled)
        compiled.clear()
        return state._replace(ledger=state.ledger.add_seconds(total=total, compile=compiling))

    def save(state: State) -> State:
        state = book_seconds(state)
        store.checkpoint(state)
        if live is not None:
            live.saved()
        return state

    state = book_seconds(state)
    if live is not None:
        live.catch_up(store.records())
    with graceful_shutdown() as stopped, progress(label, loop.oracle.budget.measurements, quiet) as show:
        show(state.ledger)
        over = lambda: max_seconds is not None and time.perf_counter() - start >= max_seconds  # noqa: E731
        while not (loop.finished(state) or _any_process(problem, bool(stopped) or over())):
            previous = state.output.plan
            state, record = loop.step(state)
            if record.updated:
                _keep_policy(store, problem, loop, state)
            line, evaluation = record_line(problem, loop.learner, state, record, previous)
            if evaluation is not None:
                store.save_episodes(evaluation, state.ledger.updates)
            state = state._replace(ledger=state.ledger.count_evaluation(line.get(EVALUATED, 0)))
            store.append(line)
            if live is not None:
                live.record(line)
            show(state.ledger)
            if (now := time.perf_counter()) - saved > cost / CHECKPOINT_SHARE:
                state = save(state)
                saved = time.perf_counter()
                cost = saved - now
        state = save(state)
    if not loop.finished(state):
        if stopped:
            raise KeyboardInterrupt
        if store.path is None:
            raise TimeLimit(f"{max_seconds:g} s are over; nothing was saved")
        rest = f"progress is saved: continue with `purectrl resume {with_trust(store.path)}`"
        raise TimeLimit(f"{max_seconds:g} s are over; {rest}")
    records = store.records()
    summary = finish(spec, problem, loop, store, state, records)
    if live is not None:
        live.summary(summary)
    return Finished(summary, state.output.plan, records)


def finish(
    spec: RunSpec,
    problem: Problem,
    loop: Loop,
    store: "Store | MemoryStore",
    state: State,
    records: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Saves the policy and the artifacts of a run whose budget is spent, and writes and returns its summary."""
    plan = state.output.plan
    store.save_plan(plan)
    if store.path is not None:
        problem.artifacts(plan, Key.from_seed(spec.seed), store.path)
    if isinstance(loop.learner, CoverageTest):
        loop.learner.check_fit(state.learner, state.data)
    metrics = final_metrics(problem, state, loop.learner.policy(state.learner), records)
    if isinstance(loop.learner, LearnerMetrics):
        metrics |= loop.learner.summarize(state.learner)
    summary = {
        "experiment": problem.name,
        "algorithm": spec.algorithm.name,
        "seed": spec.seed,
        "status": "finished",
        "ledger": state.ledger.as_dict(),
        "metrics": metrics,
        "versions": versions(problem.packages),
    }
    store.finish(summary)
    return summary


def _is_main_process() -> bool:
    """Whether this process writes files: the first of several that `accelerate launch` started."""
    return os.environ.get("RANK", "0") == "0"


def _any_process(problem: Problem, stopped: bool) -> bool:
    """Whether this or another process of the same run was told to stop; then all of them stop after the same step."""
    if problem.kind != "images" or os.environ.get("WORLD_SIZE", "1") == "1":
        return stopped
    from purectrl.diffusion.distributed import any_rank

    return any_rank(stopped)


def _warn(message: str) -> None:
    log(f"warning: {message}")


@contextmanager
def _advice(out: Path) -> Iterator[None]:
    """Adds to a failure of the disk, or to a signal, how the run is continued."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"progress is saved: continue with `purectrl resume {with_trust(out)}`") from None
    except OSError as error:
        error.add_note(f"earlier files are intact: resolve it, then continue with `purectrl resume {out}`")
        raise

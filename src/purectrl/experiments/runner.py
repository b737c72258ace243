"""Runs that survive: start, resume, evaluate."""

import dataclasses
import functools
import importlib.metadata
import os
import platform
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from purectrl.core.errors import InputError, StoreError, require
from purectrl.core.keys import Key
from purectrl.core.learner import Record, State
from purectrl.core.problem import Plan
from purectrl.experiments.config import MOST, LoopConfig
from purectrl.experiments.progress import progress, say
from purectrl.experiments.registry import COMPUTING, EVALUATED, Task, experiment
from purectrl.experiments.settings import from_json

if TYPE_CHECKING:
    from purectrl.experiments.tracking import Live, Tracking

CHECKPOINT_SHARE = 0.05
"""At most this share of a run goes into checkpoints: the next one waits until the last one's cost is no more than that."""


@dataclass(frozen=True)
class Spec:
    """What to run: everything that `config.json` holds."""

    experiment: str
    algorithm: str
    seed: int
    settings: LoopConfig

    def __post_init__(self) -> None:
        require(type(self.seed) is int and self.seed >= 0, f"seed: must be a non-negative integer, not {self.seed!r}")
        self.settings.check()

    def as_dict(self) -> dict[str, Any]:
        """As it stands in `config.json`."""
        return {**dataclasses.asdict(self), "versions": versions(experiment(self.experiment).packages)}

    @classmethod
    def of(cls, name: str, algorithm: str, seed: int = 0, **settings: Any) -> "Spec":
        """The named experiment and algorithm, with some settings changed."""
        return cls(name, algorithm, seed, dataclasses.replace(experiment(name).config(algorithm), **settings))

    @classmethod
    def read(cls, directory: Path) -> "Spec":
        """From the `config.json` of a run directory."""
        from purectrl.experiments.store import read_config

        found = read_config(directory)
        config = experiment(found["experiment"]).config(found["algorithm"])
        seed = found["seed"]
        if type(seed) is not int:
            raise StoreError(f"{directory / 'config.json'}: seed should be an integer, it is {seed!r}")
        return cls(found["experiment"], found["algorithm"], seed, from_json(config, found["settings"], directory))

    def build(self) -> Task:
        """The task, ready to run."""
        return _task(self.experiment, self.settings)


@functools.lru_cache(maxsize=8)
def _task(name: str, settings: LoopConfig) -> Task:
    """A task does not know its seed, so that the seeds of a sweep share it; what belongs to a run it is told by `attach`."""
    versions(experiment(name).packages)  # what is missing is named before anything tries to import it
    return experiment(name).build(settings)


def versions(packages: tuple[str, ...] = COMPUTING) -> dict[str, str]:
    """Versions of what computes."""
    found = {"python": platform.python_version()}
    for name in ("purectrl", *packages):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise InputError(
                f"{name} is not installed; `pip install -c constraints.txt '.[diffusion]'` installs it"
            ) from None
    return found


def run(spec: Spec, out: Path, quiet: bool = False, track: "Sequence[Tracking]" = ()) -> dict[str, Any]:
    """Runs `spec` into the directory `out`, which must be new or empty, and returns the summary.

    Each of `track` draws the run while it goes on: `to_tensorboard()`, `to_wandb()` of `purectrl.experiments.tracking`.
    """
    from purectrl.experiments.store import Store, check_free
    from purectrl.experiments.tracking import tracking

    out = Path(out)
    check_free(out)
    with compile_clock() as compiled, told_warnings():
        start = time.perf_counter()
        task = _build(spec, quiet)  # before the directory exists: a wrong setting leaves nothing behind
        _serve(task)
        config = spec.as_dict()
        with Store.create(out, config) as store, advising(out), tracking(track, out, config) as live:
            return _drive(spec, task, store, quiet, compiled, start, live)


def resume(out: Path, quiet: bool = False, track: "Sequence[Tracking]" = ()) -> dict[str, Any]:
    """Goes on with the run in `out`, bit for bit as if it had never stopped, and returns the summary.

    Each of `track` draws all of the run, what came before this part of it, too, and no step twice.
    """
    from purectrl.experiments.store import Store, read_config, read_records, read_summary
    from purectrl.experiments.tracking import tracking

    out = Path(out)
    spec = Spec.read(out)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # only the first of several processes may hold the directory
        _serve(spec.build())
    with Store.open(out) as store, tracking(track, out, read_config(out)) as live:
        if (summary := read_summary(out)) is not None:
            live.catch_up(read_records(out) if track else [])
            live.summary(summary)
            return summary
        if (found := read_config(out)["versions"]) != (now := versions(experiment(spec.experiment).packages)):
            other = [f"{name} {found.get(name)}" for name, version in now.items() if found.get(name) != version]
            _warn(f"the run in {out} was started with {', '.join(other)}: what follows may differ in the last bits")
        with compile_clock() as compiled, told_warnings(), advising(out):
            start = time.perf_counter()
            return _drive(spec, _build(spec, quiet), store, quiet, compiled, start, live)


def evaluate(out: Path, episodes: int | None = None, seed: int = 0, video: bool = False) -> dict[str, Any]:
    """The learned plan of a finished run on fresh episodes; written to `evaluation.json` on its own account."""
    from purectrl.experiments.files import write_json

    out = Path(out)
    require(episodes is None or 1 <= episodes <= MOST, f"episodes: must lie between 1 and {MOST:,}, not {episodes}")
    require(seed >= 0, f"seed: must be a non-negative integer, not {seed}")
    task, plan = learned(out)
    if video and task.film is None:
        raise InputError("video: this experiment has nothing to draw; pendulum, cartpole and acrobot have")
    episodes = episodes or task.episodes
    task.attach(out)
    metrics = task.evaluate(plan, seed, episodes)
    result = {"episodes": episodes, "seed": seed, "metrics": metrics}
    if video and task.film is not None:
        (out / "media").mkdir(exist_ok=True)
        result["media"] = [str(path.relative_to(out)) for path in task.film(plan, seed, out / "media")]
    write_json(out / "evaluation.json", result)
    return result


def learned(out: Path) -> tuple[Task, Plan]:
    """The task of a finished run and the plan that it handed over."""
    from purectrl.experiments.store import load_plan, read_summary

    spec = Spec.read(out)
    if read_summary(out) is None:
        raise StoreError(f"the run in {out} has not finished: `purectrl resume {out}` goes on with it")
    task = spec.build()
    _serve(task)
    return task, load_plan(out, task.loop.init(Key.from_seed(spec.seed)).output.plan)


def load_policy(out: str | Path) -> Callable[..., np.ndarray]:
    """The learned policy of a finished run: a function (state [d], time) -> control [k]. Three lines do:

        from purectrl.experiments import load_policy
        policy = load_policy("runs/pendulum")
        policy([3.1, 0.0], 0.0)  # the torque at θ = 3.1, at rest

    Leading axes are welcome: states [..., d] give controls [..., k].
    """
    task, plan = learned(Path(out))
    if task.policy is None:
        raise InputError(
            f"the policy of the run in {out} is not a function of the state; pendulum, cartpole, acrobot have one"
        )
    return task.policy(plan)


def _build(spec: Spec, quiet: bool) -> Task:
    """The task; who watches is told why nothing moves for some seconds."""
    if not quiet:
        compiles = " (the first time, it compiles)" if "jax" in experiment(spec.experiment).packages else ""
        say(f"{spec.experiment}: building the experiment{compiles}")
    return spec.build()


def _serve(task: Task) -> None:
    """In a process that only helps another one with this run, does that, and ends."""
    if task.serve is not None:
        with stop_gently():  # the other one decides when to stop
            task.serve()
        raise SystemExit(0)


def _drive(
    spec: Spec, task: Task, store: Any, quiet: bool, compiled: list[float], start: float, live: "Live"
) -> dict[str, Any]:
    from purectrl.experiments.codec import pack_state
    from purectrl.experiments.store import read_records

    loop = task.loop
    fresh = loop.init(Key.from_seed(spec.seed))
    pack_state(fresh)  # a state that cannot be saved is found out now and not at the first checkpoint
    state = store.restore(fresh, _warn)
    task.attach(store.path)
    built = saved = time.perf_counter()
    cost, before = 0.0, state.ledger.seconds.total + built - start
    label = f"{spec.experiment} {spec.algorithm} seed {spec.seed}"

    def settle(state: State) -> State:
        """Books the seconds outside of steps, so that the total is the time on the clock until now, and all compilations."""
        total = before + time.perf_counter() - built - state.ledger.seconds.total
        compiling = sum(compiled)
        compiled.clear()
        return state._replace(ledger=state.ledger.spent(total=total, compile=compiling))

    state = settle(state)
    records = read_records(store.path)
    live.catch_up(records)
    line = (records or [{}])[-1]
    ended = lambda: loop.finished(state) or task.stop(line)  # noqa: E731
    with stop_gently() as stopped, progress(label, loop.oracle.budget.measurements, quiet) as show:
        show(state.ledger)
        while not (ended() or stopped):
            state, record = loop.step(state)
            line = _line(state, record, task)
            state = state._replace(ledger=state.ledger.evaluated(line.get(EVALUATED, 0)))
            store.append(line)
            live.record(line)
            show(state.ledger)
            if (now := time.perf_counter()) - saved > cost / CHECKPOINT_SHARE:
                state = settle(state)
                store.checkpoint(state)
                live.saved()
                saved = time.perf_counter()
                cost = saved - now
        state = settle(state)
        store.checkpoint(state)
        live.saved()
    if not ended():
        raise KeyboardInterrupt
    store.save_plan(state.output.plan)
    task.leave(state.output.plan, spec.seed, store.path)
    summary = {
        "experiment": spec.experiment,
        "algorithm": spec.algorithm,
        "seed": spec.seed,
        "status": "finished",
        "ledger": state.ledger.as_dict(),
        "metrics": task.metrics(state, read_records(store.path)),
        "versions": versions(experiment(spec.experiment).packages),
    }
    store.finish(summary)
    live.summary(summary)
    return summary


def _line(state: State, record: Record, task: Task) -> dict[str, Any]:
    """One step as a line of `records.jsonl`."""
    ledger, block = state.ledger, record.block
    line = {
        "step": record.step,
        "episodes": block.episodes,
        "rollouts": ledger.rollouts,
        "measurements": ledger.measurements,
        "updates": ledger.updates,
        "updated": (record.updated.name or "neither").lower(),
        "reward": None if block.r is None else float(block.r.mean()),
    }
    if record.excess is not None:
        line |= {"excess_drift": record.excess.drift, "excess_reward": record.excess.reward}
    line["seconds"] = round(ledger.seconds.total, 6)
    for more in (record.info, task.probe(state, record)):
        if taken := line.keys() & more.keys():
            raise InputError(f"records: {min(taken)!r} is a column of every run; give the learner's another name")
        line |= more
    return line


def _warn(message: str) -> None:
    say(f"warning: {message}")


@contextmanager
def told_warnings() -> Iterator[None]:
    """Shows Python's warnings as this program shows its own: one line, no source code."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: _warn(str(message))
        yield


@contextmanager
def stop_gently() -> Iterator[list[int]]:
    """Collects SIGINT and SIGTERM, so that a step in progress ends and is saved; a second one stops at once."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield received
        return

    def note(number: int, _: Any) -> None:
        if received:
            os._exit(128 + number)  # the last checkpoint is safe; nothing else needs an orderly end
        received.append(number)

    # the workers of a sweep ignore SIGINT, which the terminal sends to them, too: the sweep tells them
    handled = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, note) for number in handled}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def advising(out: Path) -> Iterator[None]:
    """Adds to a failure of the disk what can be done about it."""
    try:
        yield
    except OSError as error:
        error.add_note(f"earlier files are intact: mend it, then `purectrl resume {out}` goes on")
        raise


@contextmanager
def compile_clock() -> Iterator[list[float]]:
    """Collects the seconds of every compilation, and keeps JAX's persistent compilation cache on.

    What is compiled on another thread, beside other work, costs the run no seconds.
    """
    import jax

    if jax.config.jax_compilation_cache_dir is None and (cache := _cache_directory()) is not None:
        jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    seconds: list[float] = []
    own = threading.get_ident()

    def note(event: str, duration: float, **_: Any) -> None:
        if event.endswith("backend_compile_duration") and threading.get_ident() == own:
            seconds.append(duration)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield seconds
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


def _cache_directory() -> Path | None:
    """Where compiled programs are kept, or None where there is no place for them."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 (no home is no error here)
    cache = Path(base) / "purectrl" / "jax"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return cache if cache.is_absolute() and os.access(cache, os.W_OK) else None

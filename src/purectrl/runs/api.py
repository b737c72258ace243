"""Running algorithms from Python: `run`, `resume`, `evaluate`, `load_policy`, `export`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from purectrl import algorithms, problems
from purectrl.core.algorithm import Algorithm
from purectrl.core.errors import InputError, UnsupportedError
from purectrl.core.ledger import Budget, Ledger
from purectrl.core.plan import Plan
from purectrl.core.problem import Problem, Source
from purectrl.core.references import is_reference, normalized
from purectrl.runs import runner
from purectrl.runs.export import ExportFormat, export_policy
from purectrl.runs.spec import RunSpec

__all__ = ["Result", "evaluate", "export", "load_policy", "resume", "run"]


@dataclass(frozen=True)
class Result:
    """A finished run.

    Main arguments:
        metrics: as in `summary.json`.
        ledger: what was spent.
        records: one dictionary per step, as in `records.jsonl`, from which those of a run with files are read when needed.
        plan: the policy that the run returned, with its initial distribution.
        out: the run directory; None for a run without files.
    """

    metrics: dict[str, Any]
    ledger: Ledger
    records: Sequence[dict[str, Any]] = field(repr=False)
    plan: Plan = field(repr=False)
    problem: Problem = field(repr=False)
    out: Path | None = None

    @property
    def policy(self) -> Callable[..., np.ndarray]:
        """The learned policy, a function (state [d], time) -> control [k]."""
        controller = getattr(self.problem, "controller", None)
        if controller is None:
            raise UnsupportedError(
                f"policy: {self.problem.name} has no states, so its policy is not a function of a state"
            )
        return controller(self.plan)


def run(
    problem: Problem | str,
    algorithm: Algorithm | str | Callable[[Problem], Algorithm] | None = None,
    *,
    measurements: int | None = None,
    rollouts: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    max_seconds: float | None = None,
    quiet: bool = True,
    force: bool = False,
) -> Result:
    """Runs `algorithm` on `problem` until the budget is spent, or the algorithm ends the run.

        import purectrl as pc
        result = pc.run(pc.problems.pendulum(), pc.pure_enode, measurements=2250, seed=0, out="runs/swing")
        result.metrics["reward"], result.policy([3.1, 0.0], 0.0)

    Main arguments:
        problem: a problem, a shipped name, or a reference such as `tank.py:problem`.
        algorithm: an algorithm; or a function such as `pc.pure_enode` or its name, which gives the settings for the problem,
            as does `pc.pure_enode()` unless it was changed; none takes `pc.pure_auto` on systems with states and controls.
        measurements, rollouts: the budget; by default the problem's number of measurements, and no limit on rollouts.
        seed: the same seed gives the same numbers.
        out: directory of the run, new or empty; without one, nothing is written.

    Other arguments:
        max_seconds: stop after this many seconds, at the end of a step, and raise `TimeLimit`; `resume` continues the run.
        quiet: whether to show no progress.
        force: whether to run even if the estimated memory is more than the machine has.
    """
    if isinstance(problem, str):
        problem = problems.build(Source(normalized(problem) if is_reference(problem) else problem, {}))
    if algorithm is None:
        algorithm = problem.default_algorithm
        if algorithm is None:
            raise InputError(
                f"algorithm: {problem.name} has no default algorithm; name one, such as pc.pure_low_switch"
            )
    if isinstance(algorithm, str):
        algorithm = algorithms.named(algorithm, problem)
    elif not isinstance(algorithm, Algorithm):
        algorithm = algorithm(problem)
    elif algorithm.name in algorithms.ALGORITHMS and algorithm == algorithms.named(algorithm.name):
        algorithm = algorithms.named(algorithm.name, problem)
    budget = Budget(problem.measurements if measurements is None else measurements, rollouts)
    place = None if out is None else Path(out)
    spec = RunSpec(problem.source or problem, algorithm, budget, seed)
    done = runner.run(spec, place, quiet, force=force, max_seconds=max_seconds)
    return Result(
        done.summary["metrics"], Ledger.from_dict(done.summary["ledger"]), done.records, done.plan, problem, place
    )


def resume(
    out: str | Path,
    *,
    trust: bool = False,
    problem: Problem | None = None,
    max_seconds: float | None = None,
    quiet: bool = True,
    force: bool = False,
) -> dict[str, Any]:
    """Continues the run in `out` bit for bit and returns its summary.

    Main arguments:
        trust: whether code that the run's `config.json` names may be imported.
        problem: the problem, for a run whose problem was built in Python.
        max_seconds: as in `run`.

    Other arguments:
        force: whether to continue even if the estimated memory is more than the machine has.
    """
    return runner.resume(Path(out), quiet, trust=trust, problem=problem, force=force, max_seconds=max_seconds)


def evaluate(
    out: str | Path,
    *,
    episodes: int | None = None,
    seed: int = 0,
    video: bool = False,
    trust: bool = False,
    problem: Problem | None = None,
    update: int | None = None,
) -> dict[str, Any]:
    """Evaluates the policy of the run in `out`, or that of an update, on new episodes; also written to `evaluation.json`."""
    return runner.evaluate(Path(out), episodes, seed, video, trust, problem, update)


def load_policy(
    out: str | Path, *, update: int | None = None, trust: bool = False, problem: Problem | None = None
) -> Callable[..., np.ndarray]:
    """The policy of the run in `out`: a compiled function (state [..., d], time) -> control [..., k].

        policy = purectrl.load_policy("runs/swing")
        policy([3.1, 0.0], 0.0)  # the torque at θ = 3.1, at rest

    Main arguments:
        update: the number of an update, 1 for the first; by default the policy that the run returned, or the newest one if
            the run has not finished.

    Other arguments:
        trust: whether code that the run's `config.json` names may be imported.
        problem: the problem, for a run whose problem was built in Python.

    Controls lie within their limits. A state that is not finite raises `InputError`.
    """
    return runner.load_policy(out, trust, problem, update)


def export(
    out: str | Path,
    to: ExportFormat = "numpy",
    *,
    update: int | None = None,
    file: str | Path | None = None,
    trust: bool = False,
    problem: Problem | None = None,
) -> list[Path]:
    """Writes the policy of the run in `out` to files that can be used without this package, and returns their paths.

        purectrl.export("runs/swing", to="numpy", file="robot/policy.py")  # and robot/policy.npz

    Main arguments:
        to: "numpy", "onnx" or "jax"; see `docs/deployment.md`.
        update: as in `load_policy`.
        file: where to write it; by default `policy.py`, `policy.onnx` or `policy.jax` in the directory `policy` of the run.

    Other arguments:
        trust, problem: as in `load_policy`.
    """
    return export_policy(Path(out), to, update, None if file is None else Path(file), trust, problem)

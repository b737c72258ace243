"""The cost of ENODE's fit and plan, as ratios.

    python benchmarks/control_speed.py

Writes docs/results/control_speed.json and docs/results/control_speed.png and prints the numbers: the rate of floating-point
operations of a fit step and of a plan step over that of plain float32 products with the same operations; seconds of
compilation in a second process over those in a first one, and the peak memory; how the time of a step grows with ensemble
size, batch size and horizon.

The arithmetic of a step runs on one thread: products of 16 to 64 rows are too small for several. They are therefore compared
with products on one thread; those of large matrices on all threads are measured, too.
"""

import dataclasses
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from page import RESULTS, write_result

from purectrl.control.actor_critic import optimize_policy
from purectrl.control.fit import fit_ensemble
from purectrl.control.imagination import Region
from purectrl.control.settings import PlanSettings
from purectrl.control.trajectories import Sequences, TrajectoryLoss
from purectrl.core.keys import Key
from purectrl.paper.figures import COLOURS, MARKERS, panels
from purectrl.runs.spec import RunSpec

ROWS = 20_000
"""Measurements in the data that steps are timed on."""
STEPS = 8
"""Steps that are timed together."""
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def fastest(function: Callable[[], Any], repeats: int = 3) -> float:
    """Seconds of the fastest of some calls, after one that compiles: other programs on the machine can only add time."""
    jax.block_until_ready(function())
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function())
        found.append(time.perf_counter() - start)
    return min(found)


class Steps:
    """Fit and plan steps of `cartpole` on random data, with any settings."""

    def __init__(self) -> None:
        x, u = (np.random.default_rng(n).standard_normal((ROWS, n), np.float32) for n in (4, 1))
        gaps, starts = np.full((ROWS, 1), 0.1, np.float32), np.arange(ROWS, dtype=np.int32)
        self.data = Sequences(x, u, gaps, starts, np.int32(ROWS - 10))
        self.region = Region(x, np.int32(ROWS), np.full(4, 5.0, np.float32))

    def learner(self, overrides: dict[str, Any] | None = None) -> Any:
        """The learner of PURE_ENODE with other settings."""
        return RunSpec.of("cartpole", "pure-enode", overrides=overrides).compose()[1].learner

    def fit(self, overrides: dict[str, Any] | None = None) -> float:
        """Seconds per step of the fit to trajectories."""
        learner = self.learner(overrides)
        model, key = learner.init(Key.from_seed(0)).model, jax.random.key(0)
        objective = learner.dynamics.objective
        return fastest(lambda: fit_ensemble(objective, model, key, self.data, STEPS, 1e-3, 1e-3)) / STEPS

    def plan(self, overrides: dict[str, Any] | None = None) -> float:
        """Seconds per step of the actor with those of the critic; the difference of two lengths excludes the tests."""
        learner = self.learner(overrides)
        state = learner.init(Key.from_seed(0))
        rest = learner.dynamics.integrate, state.model, state.actor, state.critic, jax.random.key(0), self.region
        short, long = (dataclasses.replace(learner.plan, steps=n * STEPS) for n in (1, 3))
        seconds = fastest(lambda: optimize_policy(long, *rest)) - fastest(lambda: optimize_policy(short, *rest))
        return seconds / (2 * STEPS)


def products(sizes: tuple[int, ...]) -> int:
    """Multiplications for one row through a network with these widths."""
    return sum(a * b for a, b in itertools.pairwise(sizes))


def fit_operations(objective: TrajectoryLoss, members: int, width: int, inputs: int, outputs: int) -> float:
    """Of one step: two evaluations of the network per interval, each forward and twice backward."""
    rows = members * objective.batch_size * (objective.sequence_length - 1)
    return 2.0 * 3 * 2 * rows * products((inputs, width, width, width, outputs))


def plan_operations(plan: PlanSettings, width: int, features: int, controls: int, outputs: int) -> float:
    """Of one step: the model forward and back to its inputs, the actor forward and twice backward; the critic in the
    objective, then in its own steps."""
    states = plan.batch_size * plan.rollout_steps
    model = 2 * 2 * states * products((features + controls, width, width, width, outputs))
    actor = 3 * states * products((features, width, width, controls))
    critic = products((features, width, width, 1))
    return 2.0 * (model + actor + (2 * states + 3 * plan.critic_steps * plan.critic_batch_size) * critic)


def plain_rate(rows: int, width: int = 200, length: int = 200) -> float:
    """Operations per second of products [rows, width] × [width, width], one after the other."""
    chain = jax.jit(lambda x, w: jax.lax.scan(lambda x, _: (x @ w, None), x, None, length=length)[0])
    x, w = jnp.ones((rows, width)), jnp.eye(width)
    return 2.0 * length * rows * width * width / fastest(lambda: chain(x, w), 20)


def rates() -> dict[str, float]:
    """Rates of a fit step, a plan step, and plain products of as many rows, in 10⁹ operations per second."""
    steps = Steps()
    learner = steps.learner()
    dynamics, objective = learner.dynamics, learner.dynamics.objective
    features, shape = dynamics.system.feature_dim, {"width": learner.width, "outputs": dynamics.system.nq}
    fitted = fit_operations(objective, dynamics.members, inputs=features + 1, **shape) / steps.fit()
    planned = plan_operations(learner.plan, features=features, controls=1, **shape) / steps.plan()
    plain = plain_rate(dynamics.members * objective.batch_size)
    return {name: rate / 1e9 for name, rate in (("fit", fitted), ("plan", planned), ("plain", plain))}


def growth() -> dict[str, dict[str, list[float]]]:
    """Milliseconds per step over ensemble size, batch size and horizon."""
    steps = Steps()
    sizes, batches, horizons = (2, 5, 10, 20), (24, 48, 96, 192), (1.5, 3.0, 6.0, 12.0)
    # planning draws distinct members, so no more than the smallest ensemble has
    ensembles = [{"learner.plan.ensemble_size": 2, "learner.model.ensemble_size": size} for size in sizes]
    return {
        "ensemble size": _curve(sizes, map(steps.fit, ensembles)),
        "batch size of the fit": _curve(batches, (steps.fit({"learner.fit.batch_size": n}) for n in batches)),
        "batch size of the plan": _curve(batches, (steps.plan({"learner.plan.batch_size": n}) for n in batches)),
        "planning horizon": _curve(horizons, (steps.plan({"learner.plan.horizon": s}) for s in horizons)),
    }


def _curve(x: tuple[float, ...], seconds: Iterable[float]) -> dict[str, list[float]]:
    return {"x": list(x), "milliseconds": [1e3 * value for value in seconds]}


def two_processes() -> dict[str, Any]:
    """A whole run of `pendulum` with an empty compilation cache, then a second one with the cache of the first."""
    with tempfile.TemporaryDirectory() as folder:
        before = {**os.environ, "JAX_COMPILATION_CACHE_DIR": f"{folder}/cache"}
        found = []
        for run in ("first", "second"):
            flags = ["--algorithm", "pure-enode", "--out", f"{folder}/{run}", "--quiet"]
            command = [sys.executable, "-m", "purectrl", "run", "pendulum", *flags]
            subprocess.run(command, check=True, capture_output=True, env=before)  # noqa: S603
            summary = json.loads(Path(folder, run, "summary.json").read_text())
            found.append(summary["ledger"]["seconds"])
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return {
        "compile_seconds": [seconds["compile"] for seconds in found],
        "total_seconds": [seconds["total"] for seconds in found],
        "peak_gib": peak,
    }


def draw(curves: dict[str, dict[str, list[float]]]) -> None:
    """Each curve, and the line of a proportional cost through its first point."""
    with panels(2, height=4.0) as (figure, axes):
        for axis, title, names in zip(
            axes, ("fit step", "plan step"), (list(curves)[:2], list(curves)[2:]), strict=True
        ):
            for index, name in enumerate(names):
                x, y = (np.array(curves[name][key]) for key in ("x", "milliseconds"))
                axis.plot(x / x[0], y, marker=MARKERS[index], color=COLOURS[index], label=f"{name}, from {x[0]:g}")
                axis.plot(x / x[0], y[0] * x / x[0], color=COLOURS[index], linestyle=":", linewidth=1)
            axis.set_title(f"{title} (dotted: proportional)")
            axis.set_xlabel("multiple of the smallest value")
            axis.set_ylabel("milliseconds")
            axis.legend(frameon=False)
        figure.savefig(RESULTS / "control_speed.png", dpi=110)


if __name__ == "__main__":
    if "--rates" in sys.argv:
        print(json.dumps(rates()))
        sys.exit()
    if "--plain" in sys.argv:
        print(plain_rate(2048, 2048, 5) / 1e9)
        sys.exit()

    def measured(flag: str, flags: str) -> Any:
        """The output of this program in a process of its own with other flags of XLA."""
        before = {**os.environ, "XLA_FLAGS": flags}
        done = subprocess.run([sys.executable, __file__, flag], check=True, capture_output=True, text=True, env=before)  # noqa: S603
        return json.loads(done.stdout)

    result = {
        "rates": measured("--rates", ONE_THREAD),
        "plain_all_threads": measured("--plain", ""),
        "pendulum": two_processes(),
        "growth": growth(),
    }
    draw(result["growth"])
    write_result("control_speed", result)

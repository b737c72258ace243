"""What ENODE's fit and plan cost, as ratios.

    python benchmarks/control_speed.py

Writes docs/results/control_speed.json and docs/results/control_speed.png and prints the numbers: the rate of floating-point
operations of a fit step and of a plan step over that of plain float32 products with the same operations; seconds of
compiling in a second process over those in a first one, and its peak of memory; how the time of a step grows with ensemble,
batch and horizon.

One thread does the arithmetic of a step: products of 16 to 64 rows are too small to share. So the products that it is
compared with have one thread, too; those of large matrices with all threads are measured beside.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from page import RESULTS, write_result

from purectrl.control.actor_critic import improve
from purectrl.control.imagination import Improving, Region
from purectrl.control.learner import ControlLearner
from purectrl.control.model import Fitting, Sequences, fit
from purectrl.core.keys import Key
from purectrl.experiments import Spec
from purectrl.experiments.control import make_learner
from purectrl.report.figures import COLOURS, MARKERS, panels
from purectrl.systems.catalogue import mechanism

ROWS = 20_000
"""Measurements in the data that steps are timed on."""
STEPS = 8
"""Steps that are timed at once."""
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def fastest(function: Callable[[], Any], repeats: int = 3) -> float:
    """Seconds of the fastest of some calls, after one that compiles: what others do on the machine only adds."""
    jax.block_until_ready(function())
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function())
        found.append(time.perf_counter() - start)
    return min(found)


class Steps:
    """Fit and plan steps of `cartpole` on made-up data, with any settings."""

    def __init__(self) -> None:
        self.mechanism = mechanism("cartpole", "paper")
        self.settings: Any = Spec.of("cartpole", "pure-enode", seed=0).settings
        x, u = (np.random.default_rng(n).standard_normal((ROWS, n), np.float32) for n in (4, 1))
        gaps, starts = np.full((ROWS, 1), 0.1, np.float32), np.arange(ROWS, dtype=np.int32)
        self.data = Sequences(x, u, gaps, starts, np.int32(ROWS - 10))
        self.region = Region(x, np.int32(ROWS), np.full(4, 5.0, np.float32))

    def learner(self, **changes: Any) -> ControlLearner:
        """That of PURE_ENODE with other settings."""
        return make_learner(self.mechanism, dataclasses.replace(self.settings, **changes))

    def fit(self, **changes: Any) -> float:
        """Seconds of a step on trajectories."""
        learner = self.learner(**changes)
        state = learner.init(Key.from_seed(0))
        rates = STEPS, 1e-3, 1e-3
        arguments = learner.fitting, learner.integrate, state.ensemble, jax.random.key(0), self.data, *rates
        return fastest(lambda: fit(*arguments)) / STEPS

    def plan(self, **changes: Any) -> float:
        """Seconds of a step of the actor with those of the critic; the difference of two lengths leaves out the tests."""
        learner = self.learner(**changes)
        state = learner.init(Key.from_seed(0))
        rest = learner.integrate, state.ensemble, state.actor, state.critic, jax.random.key(0), self.region
        short, long = (dataclasses.replace(learner.improving, iterations=n * STEPS) for n in (1, 3))
        return (fastest(lambda: improve(long, *rest)) - fastest(lambda: improve(short, *rest))) / (2 * STEPS)


def products(sizes: tuple[int, ...]) -> int:
    """Multiplications for one row through a network with these widths."""
    return sum(a * b for a, b in itertools.pairwise(sizes))


def fit_operations(fitting: Fitting, members: int, width: int, inputs: int, outputs: int) -> float:
    """Of one step: two evaluations of the network an interval, each forward and twice backward."""
    rows = members * fitting.rows * (fitting.points - 1)
    return 2.0 * 3 * 2 * rows * products((inputs, width, width, width, outputs))


def plan_operations(improving: Improving, width: int, features: int, controls: int, outputs: int) -> float:
    """Of one step: the model forward and back to its inputs, the actor forward and twice back; the critic in the objective,
    then in its own steps."""
    states = improving.rows * improving.steps
    model = 2 * 2 * states * products((features + controls, width, width, width, outputs))
    actor = 3 * states * products((features, width, width, controls))
    critic = products((features, width, width, 1))
    return 2.0 * (model + actor + (2 * states + 3 * improving.critic_steps * improving.critic_rows) * critic)


def plain_rate(rows: int, width: int = 200, length: int = 200) -> float:
    """Operations a second of products [rows, width] × [width, width], one after the other."""
    chain = jax.jit(lambda x, w: jax.lax.scan(lambda x, _: (x @ w, None), x, None, length=length)[0])
    x, w = jnp.ones((rows, width)), jnp.eye(width)
    return 2.0 * length * rows * width * width / fastest(lambda: chain(x, w), 20)


def rates() -> dict[str, float]:
    """Rates of a fit step, a plan step, and plain products of as many rows, in 10⁹ operations a second."""
    steps = Steps()
    learner, features = steps.learner(), steps.mechanism.feature_dim
    fitting, improving = learner.fitting, learner.improving
    shape = {"width": learner.width, "outputs": steps.mechanism.nq}
    fitted = fit_operations(fitting, learner.members, inputs=features + 1, **shape) / steps.fit()
    planned = plan_operations(improving, features=features, controls=1, **shape) / steps.plan()
    plain = plain_rate(learner.members * fitting.rows)
    return {name: rate / 1e9 for name, rate in (("fit", fitted), ("plan", planned), ("plain", plain))}


def growth() -> dict[str, dict[str, list[float]]]:
    """Milliseconds of a step over ensemble size, batch and horizon."""
    steps = Steps()
    members, rows, horizons = (2, 5, 10, 20), (24, 48, 96, 192), (1.5, 3.0, 6.0, 12.0)
    return {
        "members of the ensemble": _curve(members, [steps.fit(members=n, plan_members=2) for n in members]),
        "rows of a fit step, a member": _curve(rows, [steps.fit(fit_rows=n) for n in rows]),
        "rows of a plan step": _curve(rows, [steps.plan(plan_rows=n) for n in rows]),
        "seconds of the horizon": _curve(horizons, [steps.plan(plan_horizon=s) for s in horizons]),
    }


def _curve(x: tuple[float, ...], seconds: list[float]) -> dict[str, list[float]]:
    return {"x": list(x), "milliseconds": [1e3 * value for value in seconds]}


def two_processes() -> dict[str, Any]:
    """A whole run of `pendulum` with an empty cache of compiled programs, then a second one with what it left."""
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
    """Each curve beside the line of a cost in proportion, from its first point."""
    with panels(2, height=4.0) as (figure, axes):
        for axis, title, names in zip(
            axes, ("fit step", "plan step"), (list(curves)[:2], list(curves)[2:]), strict=True
        ):
            for index, name in enumerate(names):
                x, y = (np.array(curves[name][key]) for key in ("x", "milliseconds"))
                axis.plot(x / x[0], y, marker=MARKERS[index], color=COLOURS[index], label=f"{name}, from {x[0]:g}")
                axis.plot(x / x[0], y[0] * x / x[0], color=COLOURS[index], linestyle=":", linewidth=1)
            axis.set_title(f"{title} (dotted: in proportion)")
            axis.set_xlabel("times as large")
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
        """What this program prints in a process of its own with other flags of XLA."""
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

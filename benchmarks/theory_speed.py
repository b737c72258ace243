"""The cost of Algorithms 1 to 3, as ratios.

    python benchmarks/theory_speed.py

Writes docs/results/theory_speed.json and prints it: the cost of a step at 65,536 measurements over that at 1,024, with
finite and linear classes, measured alternately; a plain NumPy double loop over the exact planner; and a whole run of
`purectrl run finite --algorithm pure-low-switch --measurements 65536`, start and compilation included, over a product of two
4,096 × 4,096 float32 matrices; 16 runs one by one over the same runs as one batch.
"""

import dataclasses
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from page import write_result

from purectrl import core, problems
from purectrl.runs.batched import run_batch
from purectrl.runs.runner import run
from purectrl.runs.spec import RunSpec
from purectrl.theory import OptimisticPlanner

SMALL, LARGE = 1_024, 65_536
SETTINGS: dict[str, dict[str, Any]] = {
    "finite": {"problem": "finite"},
    "linear": {
        "problem": "lqr",
        "arguments": {"dimension": 1},
        "overrides": {"learner": "linear-sets", "learner.radius": "anytime", "learner.paths": 64},
    },
}


def seconds(function: Callable[[], Any]) -> float:
    """The seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def growth(problem: str, pairs: int = 600, **settings: Any) -> float:
    """Median cost of a step of one episode at LARGE measurements over that at SMALL; steps with an update do not count."""
    _, fast = RunSpec.of(problem, "pure-low-switch", measurements=2 * LARGE, **settings).compose()
    loop = dataclasses.replace(fast, oracle=dataclasses.replace(fast.oracle, lookahead=1))
    states = {}
    for state, _ in fast.run(fast.init(core.Key.from_seed(0))):
        for size in (SMALL, LARGE):
            if state.ledger.measurements >= size:
                states.setdefault(size, state)
        if len(states) == 2:
            break
    costs: dict[int, list[float]] = {SMALL: [], LARGE: []}
    for _ in range(pairs):
        for size in costs:
            start = time.perf_counter()
            states[size], record = loop.step(states[size])
            if not record.updated:
                costs[size].append(time.perf_counter() - start)
    # the first steps compile, and copy the data once where two states share it
    return statistics.median(costs[LARGE][20:]) / statistics.median(costs[SMALL][20:])


def double_loop(table: np.ndarray, drifts: np.ndarray, rewards: np.ndarray) -> tuple[float, int, int]:
    """The optimistic argmax without a table: a loop over f and b, the best (π, q) of each."""
    best = (-np.inf, 0, 0)
    for f in np.flatnonzero(drifts):
        for b in np.flatnonzero(rewards):
            best = max(best, (table[:, :, f, b].max(), f, b))
    return best


def planner(paths: int, **arguments: Any) -> float:
    """Seconds of the double loop over seconds of the planner, on the table of `finite`."""
    models = problems.finite(**arguments).finite
    values = models.values(paths)
    plan = OptimisticPlanner.of(values.mean)
    sets = np.ones(values.mean.shape[2], bool), np.ones(values.mean.shape[3], bool)
    assert np.isclose(double_loop(values.mean, *sets)[0], plan(*sets)[-1])
    slow = statistics.median(seconds(lambda: double_loop(values.mean, *sets)) for _ in range(5))
    return slow / statistics.median(seconds(lambda: plan(*sets)) for _ in range(200))


def long_run() -> dict[str, float]:
    """A whole run from the command line with cached compilations, and a product of large matrices, alternately."""
    one = np.random.default_rng(0).random((4_096, 4_096), np.float32)
    products, runs = [], []
    for _ in range(4):
        products += [seconds(lambda: one @ one) for _ in range(3)]
        with tempfile.TemporaryDirectory() as folder:
            flags = ["--measurements", str(LARGE), "--out", f"{folder}/run", "--quiet"]
            command = [sys.executable, "-m", "purectrl", "run", "finite", "--algorithm", "pure-low-switch", *flags]
            runs.append(seconds(lambda: subprocess.run(command, check=True, capture_output=True)))  # noqa: B023, S603
    return {
        "products": statistics.median(runs[1:]) / statistics.median(products),
        "product_seconds": statistics.median(products),
        "run_seconds": statistics.median(runs[1:]),
    }


def batch(measurements: int = 4_096, seeds: int = 16) -> dict[str, float]:
    """Runs of `finite` with pure-base one by one over the same runs as one batch, files included; compiled before."""
    spec = RunSpec.of("finite", "pure-base", measurements=measurements)
    specs = [spec.with_seed(seed) for seed in range(seeds)]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run(spec, place / "warm", quiet=True)
        run_batch(specs[:2], [place / "warm0", place / "warm1"])
        alone = seconds(lambda: [run(one, place / f"alone{one.seed}", quiet=True) for one in specs])
        together = seconds(lambda: run_batch(specs, [place / f"batch{one.seed}" for one in specs]))
    return {
        "one_by_one_over_batch": alone / together,
        "microseconds_per_episode": together / seeds / measurements * 1e6,
    }


if __name__ == "__main__":
    result = {
        "step_at_65536_over_1024": {name: growth(**settings) for name, settings in SETTINGS.items()},
        "double_loop_over_planner": {
            "even": planner(paths=256),
            "dyadic": planner(paths=32, grid="dyadic", a=0.2, c=0.3, goal=0.5),
        },
        "run": long_run(),
        "batch": batch(),
    }
    write_result("theory_speed", result)

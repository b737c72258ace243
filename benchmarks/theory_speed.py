"""What the theory's algorithms cost, as ratios.

    python benchmarks/theory_speed.py

Writes docs/results/theory_speed.json and prints it: the cost of a step at 65,536 measurements over that at 1,024, with
finite and linear classes, the two taken in turns; a plain NumPy double loop over the exact planner; and a whole run of
`purectrl run finite --algorithm pure-low-switch --measurements 65536`, start and compilation included, over a product of two
4,096 × 4,096 float32 matrices.
"""

import dataclasses
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from page import write_result

from purectrl import core
from purectrl.experiments import Spec
from purectrl.experiments.config import FiniteConfig
from purectrl.experiments.theory import finite_setting, relevant, simulated_values
from purectrl.theory import Optimist

SMALL, LARGE = 1_024, 65_536
SETTINGS: dict[str, dict[str, Any]] = {
    "finite": {"experiment": "finite"},
    "linear": {"experiment": "lqr", "classes": "linear", "dimension": 1, "radius_scale": 0.1},
}


def seconds(function: Callable[[], Any]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def growth(experiment: str, pairs: int = 600, **settings: Any) -> float:
    """Median cost of a step of one episode at LARGE measurements over that at SMALL; steps with an update are left out."""
    task = Spec.of(experiment, "pure-low-switch", measurements=2 * LARGE, **settings).build()
    loop = dataclasses.replace(task.loop, oracle=dataclasses.replace(task.loop.oracle, ahead=1))
    states = {}
    for state, _ in task.loop.run(task.loop.init(core.Key.from_seed(0))):
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
    """The optimistic argmax as one would first write it: over f and b, the best (π, q) of each."""
    best = (-np.inf, 0, 0)
    for f in np.flatnonzero(drifts):
        for b in np.flatnonzero(rewards):
            best = max(best, (table[:, :, f, b].max(), f, b))
    return best


def planner(config: FiniteConfig) -> float:
    """Seconds of the double loop over seconds of the planner, on the table of `finite`."""
    values, _ = simulated_values(finite_setting, relevant(config))
    optimist = Optimist.of(values.mean)
    sets = np.ones(values.mean.shape[2], bool), np.ones(values.mean.shape[3], bool)
    plain, ours = double_loop(values.mean, *sets), optimist(*sets)
    assert np.isclose(plain[0], ours[-1])
    slow = statistics.median(seconds(lambda: double_loop(values.mean, *sets)) for _ in range(5))
    return slow / statistics.median(seconds(lambda: optimist(*sets)) for _ in range(200))


def long_run() -> dict[str, float]:
    """A whole run from the command line, compilations cached, beside a product of large matrices; three of each in turns."""
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


if __name__ == "__main__":
    result = {
        "step_at_65536_over_1024": {name: growth(**settings) for name, settings in SETTINGS.items()},
        "double_loop_over_planner": {
            "even": planner(FiniteConfig()),
            "dyadic": planner(FiniteConfig(grid="dyadic", a=0.2, c=0.3, goal=0.5, paths=32)),
        },
        "run": long_run(),
    }
    write_result("theory_speed", result)

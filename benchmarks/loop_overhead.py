"""What the loop itself costs: everything in a step that is neither oracle nor learner.

    python benchmarks/loop_overhead.py

Writes docs/results/loop_overhead.json and prints it: microseconds a step and their share of a whole `finite` run (building
it included, compilations cached after the first), for each of several runs; and, with an oracle and a learner that do
nothing, the cost of a step at 100,000 measurements over that at 1,000. The cost of the timers themselves, measured on an
empty function, is taken off.
"""

import dataclasses
import statistics
import time
from typing import Any

import numpy as np
from page import write_result

from purectrl import core
from purectrl.core.samplers import uniform
from purectrl.core.schedules import every
from purectrl.experiments.registry import experiment

REPEATS = 7
"""Runs of each algorithm; one run near a mark says little on a shared machine."""


class Clock:
    """Adds up the time spent inside wrapped functions."""

    def __init__(self) -> None:
        self.seconds, self.calls = 0.0, 0

    def wrap(self, function: Any) -> Any:
        """The same function, on the clock."""

        def call(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = function(*arguments)
            self.seconds += time.perf_counter() - start
            self.calls += 1
            return result

        return call

    def own_cost(self, calls: int = 20_000) -> float:
        """Seconds that wrapping adds to a call beyond those it books: no part of the loop."""
        empty = self.wrap(lambda: None)
        start, before = time.perf_counter(), self.seconds
        for _ in range(calls):
            empty()
        return (time.perf_counter() - start - (self.seconds - before)) / calls


class Timed:
    """An oracle on the clock."""

    def __init__(self, oracle: core.Oracle, clock: Clock) -> None:
        self.budget, self.horizon, self.call = oracle.budget, oracle.horizon, clock.wrap(oracle)
        self.ahead = 1  # one episode a step, as with a real system

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)


class Idle:
    """A learner that does nothing."""

    def init(self, key: core.Key) -> int:
        return 0

    def observe(self, state: int, block: core.Measurements) -> int:
        return state

    def excess(self, state: int, data: core.Dataset, key: core.Key) -> tuple[core.Excess, int]:
        return core.Excess(0.0, 0.0), state

    def update(self, state: int, data: core.Dataset, which: core.Which, key: core.Key) -> core.Update:
        return core.Update(state, {}, {})

    def plan(self, state: int) -> core.Plan:
        return core.Plan(0, 0)


def finite_run(algorithm: str, measurements: int) -> dict[str, float]:
    """Loop overhead inside a real run."""
    chosen = experiment("finite")
    config = dataclasses.replace(chosen.config(algorithm), measurements=measurements)
    start = time.perf_counter()
    loop = chosen.build(config).loop
    clock = Clock()
    for name in ("init", "observe", "excess", "update", "plan"):
        setattr(loop.learner, name, clock.wrap(getattr(loop.learner, name)))
    loop = dataclasses.replace(loop, oracle=Timed(loop.oracle, clock))
    state = loop.init(core.Key.from_seed(0))
    inside, clock.seconds, clock.calls = time.perf_counter(), 0.0, 0
    while not loop.finished(state):
        state, _ = loop.step(state)
    end = time.perf_counter()
    seconds, calls = clock.seconds, clock.calls
    own = end - inside - seconds - calls * clock.own_cost()
    return {"microseconds": own / state.steps * 1e6, "share_of_run": own / (end - start)}


def growth(small: int = 1_000, large: int = 100_000, pairs: int = 2_000) -> float:
    """Median cost of a step at `large` measurements divided by that at `small`, the two taken in turns."""
    block = {name: np.zeros((1, 1, 2)) for name in "xuy"} | {"r": np.zeros((1, 1))}
    rollout = lambda key, plan, times: core.Measurements(t=times, **block)  # noqa: E731
    oracle = core.Oracle(rollout, horizon=1.0, budget=core.Budget(2 * large))
    loop = core.Loop(oracle, uniform(), every(), Idle())
    states, costs = {}, {small: [], large: []}
    for state, _ in loop.run(loop.init(core.Key.from_seed(0))):
        if state.steps in costs:
            states[state.steps] = state
        if state.steps == large:
            break
    states[small] = loop.step(states[small])[0]  # branches off, which copies once
    for _ in range(pairs):
        for size in costs:
            start = time.perf_counter()
            states[size], _ = loop.step(states[size])
            costs[size].append(time.perf_counter() - start)
    return statistics.median(costs[large]) / statistics.median(costs[small])


if __name__ == "__main__":
    algorithms = ("pure-base", "pure-low-switch", "pure-low-rollout")
    runs = {algorithm: [finite_run(algorithm, 4096) for _ in range(REPEATS)] for algorithm in algorithms}
    result = {
        algorithm: {name: sorted(run[name] for run in found) for name in ("microseconds", "share_of_run")}
        for algorithm, found in runs.items()
    }
    write_result("loop_overhead", {**result, "step_at_100000_over_1000": growth()})

"""The cost of the loop: everything in a step that is neither oracle nor learner.

    python benchmarks/loop_overhead.py

Writes docs/results/loop_overhead.json and prints it: microseconds per step and their share of a whole run of `finite`
(construction and compilation included, the table of values computed in the first run only), for each of several runs; and,
with an oracle and a learner that do nothing, the ratio of the cost of a step at 100,000 measurements to that at 1,000. The
cost of the timers, measured on an empty function, is subtracted.
"""

import copy
import dataclasses
import statistics
import time
from typing import Any

import jax
import numpy as np
from page import write_result

from purectrl import core
from purectrl.core.samplers import Uniform
from purectrl.core.schedules import Every
from purectrl.runs.spec import RunSpec

REPEATS = 7
"""Runs of each algorithm; on a shared machine, a single run is not enough to decide a criterion."""


class Clock:
    """Adds up the time spent inside wrapped functions."""

    def __init__(self) -> None:
        self.seconds, self.calls = 0.0, 0

    def wrap(self, function: Any) -> Any:
        """The same function, timed."""

        def call(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = function(*arguments)
            self.seconds += time.perf_counter() - start
            self.calls += 1
            return result

        return call

    def own_cost(self, calls: int = 20_000) -> float:
        """Seconds that the wrapper adds to a call beyond those that it counts: they are not part of the loop."""
        empty = self.wrap(lambda: None)
        start, before = time.perf_counter(), self.seconds
        for _ in range(calls):
            empty()
        return (time.perf_counter() - start - (self.seconds - before)) / calls


class Timed:
    """A timed oracle."""

    def __init__(self, oracle: core.Oracle | core.Lookahead, clock: Clock) -> None:
        self.budget, self.horizon, self.call = oracle.budget, oracle.horizon, clock.wrap(oracle)
        self.lookahead = 1  # one episode per step, as with a real system

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)


class Idle:
    """A learner that does nothing."""

    def init(self, key: core.Key) -> int:
        return 0

    def observe(self, state: int, block: core.Measurements) -> int:
        return state

    def excess_loss(self, state: int, data: core.Dataset, key: core.Key) -> tuple[core.ExcessLoss, int]:
        return core.ExcessLoss(0.0, 0.0), state

    def update(self, state: int, data: core.Dataset, which: core.Targets, key: core.Key) -> core.Update:
        return core.Update(state, {}, {})

    def policy(self, state: int) -> core.Plan:
        return core.Plan(0, 0)


def finite_run(algorithm: str, measurements: int) -> dict[str, float]:
    """Loop overhead inside a real run."""
    spec = RunSpec.of("finite", algorithm, measurements=measurements)
    jax.clear_caches()  # problems and learners are shared within a process; a run in a new process compiles its own
    start = time.perf_counter()
    _, loop = spec.compose()
    clock, learner = Clock(), copy.copy(loop.learner)  # a copy, since the next run has the same learner
    for name in ("init", "observe", "excess_loss", "update", "policy"):
        setattr(learner, name, clock.wrap(getattr(learner, name)))
    loop = dataclasses.replace(loop, oracle=Timed(loop.oracle, clock), learner=learner)
    state = loop.init(core.Key.from_seed(0))
    inside, clock.seconds, clock.calls = time.perf_counter(), 0.0, 0
    while not loop.finished(state):
        state, _ = loop.step(state)
    end = time.perf_counter()
    seconds, calls = clock.seconds, clock.calls
    own = end - inside - seconds - calls * clock.own_cost()
    return {"microseconds": own / state.steps * 1e6, "share_of_run": own / (end - start)}


def growth(small: int = 1_000, large: int = 100_000, pairs: int = 2_000) -> float:
    """Median cost of a step at `large` measurements divided by that at `small`, measured alternately."""
    block = {name: np.zeros((1, 1, 2)) for name in "xuy"} | {"r": np.zeros((1, 1))}
    rollout = lambda key, plan, times: core.Measurements(t=times, **block)  # noqa: E731
    oracle = core.Oracle(rollout, horizon=1.0, budget=core.Budget(2 * large))
    loop = core.Loop(oracle, Uniform(), Every(), Idle())
    states, costs = {}, {small: [], large: []}
    for state, _ in loop.run(loop.init(core.Key.from_seed(0))):
        if state.steps in costs:
            states[state.steps] = state
        if state.steps == large:
            break
    states[small] = loop.step(states[small])[0]  # copies the data once, since both states share it
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

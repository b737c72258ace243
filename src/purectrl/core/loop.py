"""Every algorithm of the paper is one loop and four choices. This is the loop.

It does not know which algorithm it runs: the oracle is the system, the sampler says when to measure, the schedule when to
update, the learner how to learn. A run is a value: `step` maps a `State` to the next one, and nothing hides elsewhere.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.learner import Learner, Record, State
from purectrl.core.ledger import Ledger
from purectrl.core.measurement import Dataset
from purectrl.core.oracle import Oracle
from purectrl.core.outputs import Output, OutputRule, uniform
from purectrl.core.samplers import Context, Sampler
from purectrl.core.schedules import Schedule


@dataclass(frozen=True)
class Loop:
    """The loop of Algorithms 1 to 5: `init`, then `step` until the budget is spent, as `run` does."""

    oracle: Oracle
    sampler: Sampler
    schedule: Schedule
    learner: Learner
    output: OutputRule = uniform

    def __post_init__(self) -> None:
        N, m = self.oracle.budget.measurements, self.sampler.m
        require(m <= N, f"m: one episode takes m = {m} measurements, more than the whole budget N = {N}")

    def init(self, key: Key) -> State:
        """The state before the first episode (Algorithm 1, line 1, and line 3 for n = 1)."""
        learner = self.learner.init(key.child("init"))
        plan = self.learner.plan(learner)
        return State(key, 0, Ledger(), Dataset(), learner, Output(plan, plan))

    def finished(self, state: State) -> bool:
        """Whether the budget has no room for another episode."""
        return self.oracle.budget.episodes_left(state.ledger, self.sampler.m) <= 0

    def step(self, state: State) -> tuple[State, Record]:
        """One block of episodes under one plan, then, if it is due, one update."""
        start = time.perf_counter()
        times_key, rollout_key, update_key, output_key = state.key.split(state.steps)
        plan, ledger, m = self.learner.plan(state.learner), state.ledger, self.sampler.m
        episodes, keep = min(self.schedule.block(ledger, m), self.oracle.budget.episodes_left(ledger, m)), None
        if self.schedule.watches_fit and (episodes := min(episodes, self.oracle.ahead)) > 1:
            keep = lambda seen: self.schedule.first_due(ledger, self.learner.excesses(state.learner, seen))  # noqa: E731

        # Algorithm 1, line 4: sample t_n, execute (q_n, π_n), measure, D_{n+1} ← D_n ∪ {(x, u, y, r)}
        times = self.sampler(times_key, episodes, Context(self.oracle.horizon, ledger, state.learner, plan, state.data))
        block, ledger = self.oracle(rollout_key, plan, times, ledger, keep)
        data = state.data.append(block)

        # Algorithm 1, line 5; Algorithm 2, lines 6 and 7: whether F_{n+1} and R_{n+1} are due
        measured = time.perf_counter()
        learner, excess, info, seconds = self.learner.observe(state.learner, block), None, {}, {}
        if self.schedule.watches_fit:
            excess, learner = self.learner.excess(learner, data, update_key.child("excess"))
        which = self.schedule.due(ledger, excess)
        fitted = time.perf_counter()
        if which:  # update them; Algorithm 1, line 3 of episode n+1: plan optimistically in them
            learner, info, seconds = self.learner.update(learner, data, which, update_key)
            ledger = ledger.updated()

        output = self.output(output_key, state.output, plan, self.learner.plan(learner), block, ledger)
        seconds = {**seconds, "fit": fitted - measured + seconds.get("fit", 0.0), "total": time.perf_counter() - start}
        record = Record(state.steps + 1, plan, block, which, excess, info)
        return State(state.key, state.steps + 1, ledger.spent(**seconds), data, learner, output), record

    def run(self, state: State) -> Iterator[tuple[State, Record]]:
        """Steps from `state` until the budget is spent."""
        while not self.finished(state):
            state, record = self.step(state)
            yield state, record

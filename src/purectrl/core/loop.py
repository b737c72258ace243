"""Every algorithm of the paper is one loop and four choices. This is the loop.

It is the same for every algorithm: the oracle is the system, the sampler decides when to measure, the schedule when to
update, the learner how to learn. A run is a value: `step` maps a `State` to the next one.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from purectrl.core.capabilities import check_capabilities, selection, uncertainty
from purectrl.core.errors import require, warn_of_divergence
from purectrl.core.first_data import conforming
from purectrl.core.keys import Key
from purectrl.core.learner import FitMonitor, Learner, Record, SelfEnding, State
from purectrl.core.ledger import Ledger
from purectrl.core.lookahead import Lookahead
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.oracle import Oracle
from purectrl.core.output_rules import Output, OutputRule, UniformEpisode, same
from purectrl.core.samplers import Context, Sampler
from purectrl.core.schedules import Schedule


@dataclass(frozen=True)
class Loop:
    """The loop of Algorithms 1 to 5: `init`, then `step` until it is finished, as `run` does."""

    oracle: Oracle | Lookahead
    sampler: Sampler
    schedule: Schedule
    learner: Learner
    output: OutputRule = UniformEpisode()
    first: Measurements | None = None
    """Measurements from before the run, with which the data set begins; see `purectrl.core.first_data`."""
    _monitor: FitMonitor | None = field(init=False, repr=False, compare=False)
    """The learner, if it computes the excess loss; tested once, since a test against a protocol takes 5 µs."""

    def __post_init__(self) -> None:
        budget, m, N = self.oracle.budget, self.sampler.m, self.oracle.budget.measurements
        require(m <= N, f"m: one episode takes m = {m} measurements, more than the whole budget N = {N}")
        object.__setattr__(self, "schedule", self.schedule.prepare(budget, m))
        object.__setattr__(self, "_monitor", self.learner if isinstance(self.learner, FitMonitor) else None)
        check_capabilities(self.sampler, self.schedule, self.learner, self.oracle)
        self.sampler.check_horizon(self.oracle.horizon)

    def init(self, key: Key) -> State:
        """The state before the first episode (Algorithm 1, line 1, and line 3 for n = 1)."""
        learner = self.learner.init(key.child("init"))
        plan = self.learner.policy(learner)
        return State(key, 0, Ledger(), Dataset(self.first), learner, Output(plan, plan))

    def finished(self, state: State) -> bool:
        """Whether the budget has no room for another episode, or the learner has ended the run."""
        ended = isinstance(self.learner, SelfEnding) and self.learner.finished(state.learner)
        return ended or self.oracle.budget.episodes_left(state.ledger, self.sampler.m) <= 0

    def step(self, state: State) -> tuple[State, Record]:
        """Some episodes under one plan, then, if it is due, one update."""
        start = time.perf_counter()
        times_key, rollout_key, update_key, output_key = state.key.split(state.steps)
        plan, m = self.learner.policy(state.learner), self.sampler.m
        ask = uncertainty(self.sampler, self.learner, state.learner)
        context = Context(self.oracle.horizon, state.ledger, state.learner, plan, state.data, ask)
        episodes = min(self.schedule.episodes(state.ledger, m), self.oracle.budget.episodes_left(state.ledger, m))
        if self.schedule.needs_excess_loss:  # which is tested after every episode
            episodes = min(episodes, self.oracle.lookahead)
        rollouts, chosen = selection(self.sampler, self.learner, context, episodes)

        # Algorithm 1, line 4: sample t_n, execute (q_n, π_n), measure, D_{n+1} ← D_n ∪ {(x, u, y, r)}
        times = self.sampler(times_key, rollouts, context)
        block, ledger = self.oracle(rollout_key, times, context._replace(selection=chosen))
        data = state.data.append(block if self.first is None else conforming(block, self.first))

        # Algorithm 1, line 5; Algorithm 2, lines 6 and 7: whether F_{n+1} and R_{n+1} are due
        measured = time.perf_counter()
        learner, excess_loss = state.learner, None
        if self._monitor is not None:
            learner = self._monitor.observe(learner, block)
            if self.schedule.needs_excess_loss:
                excess_loss, learner = self._monitor.excess_loss(learner, data, update_key.child("excess"))
        which = self.schedule.due(ledger, excess_loss)
        fit, info, seconds, following = time.perf_counter() - measured, {}, {}, plan

        # Algorithm 1, line 5, and line 3 of episode n+1: renew the sets, plan optimistically in them
        if which:
            learner, info, seconds, diverged = self.learner.update(learner, data, which, update_key)
            following = self.learner.policy(learner)
            ledger = ledger.count_update(changed=not same(plan, following))
            if diverged:
                info = {**info, "rolled_back": warn_of_divergence(diverged, ledger.updates, ledger.rollouts)}

        output = self.output(output_key, state.output, plan, following, block, ledger)
        seconds = {**seconds, "fit": fit + seconds.get("fit", 0.0), "total": time.perf_counter() - start}
        record = Record(state.steps + 1, plan, block, which, excess_loss, info)
        return State(state.key, state.steps + 1, ledger.add_seconds(**seconds), data, learner, output), record

    def run(self, state: State) -> Iterator[tuple[State, Record]]:
        """Steps from `state` until the budget is spent or the learner has ended the run."""
        while not self.finished(state):
            state, record = self.step(state)
            yield state, record

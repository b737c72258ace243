"""Many runs of Algorithm 1 or 3 with finite classes at once, each with the numbers that it has alone.

Runs that differ in their seeds share one compiled program. Algorithm 1 updates after every episode, but the plan seldom
changes. So every run simulates several episodes under its current plan ahead of the updates, one row of the program each;
those after the first change of the plan are discarded and simulated again under the new one. Times and random keys of an
episode depend on its number only, so what is kept is what a run of one episode at a time would have seen.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from purectrl.core.keys import Key
from purectrl.core.learner import State
from purectrl.core.ledger import Ledger
from purectrl.core.loop import Loop
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.output_rules import Output
from purectrl.core.plan import Plan
from purectrl.core.samplers import Context
from purectrl.theory.classes import Truth
from purectrl.theory.confidence import warn_misspecified
from purectrl.theory.finite_learner import FiniteLearner, FiniteState
from purectrl.theory.problem import TheoryProblem

LONGEST = 256
"""The most episodes that a run simulates ahead."""
ROWS = 256
"""Episodes per call of the compiled program. It is the same for every batch, since XLA rounds programs of other sizes
differently, and a run must not depend on the others in its batch."""

Append = Callable[[Mapping[str, Any]], None]
"""Receives the lines of `records.jsonl` of one run."""


@dataclass
class _Run:
    """One of the runs: its state, and what it will draw."""

    key: Key
    append: Append
    learner: FiniteState
    output: tuple[int, int]
    done: int = 0
    """Episodes so far."""
    ahead: int = 1
    """Episodes to simulate ahead."""
    policy_changes: int = 0
    draws: list[tuple[np.ndarray, np.ndarray, float]] = field(default_factory=list)
    """Times [m], words [2] and the number that decides about the output, of the episodes to come."""
    blocks: list[list[np.ndarray]] = field(default_factory=list)
    """Arrays t, x, u, y, r of the episodes so far."""
    gaps: list[dict[str, Any]] = field(default_factory=list)
    """What `regret` reads of the records."""


class BatchedRuns:
    """Runs of one setting with several seeds.

    Main arguments:
        problem: a problem with finite classes.
        loop: the loop of the setting; its learner has finite classes, its schedule updates after every episode.
        keys: the root key of every run.
        appends: where the records of every run go.
    """

    def __init__(self, problem: TheoryProblem, loop: Loop, keys: Sequence[Key], appends: Sequence[Append]) -> None:
        assert isinstance(loop.learner, FiniteLearner)
        self.problem, self.loop, self.learner, self.truth = problem, loop, loop.learner, problem.truth
        self.episodes = loop.oracle.budget.episodes_left(Ledger(), loop.sampler.m)
        self.context, self.seconds = Context(loop.oracle.horizon), 0.0
        fresh = [self.learner.init(key.child("init")) for key in keys]
        self.runs = [
            _Run(key, append, state, (state.policy, state.initial))
            for key, append, state in zip(keys, appends, fresh, strict=True)
        ]

    def finished(self) -> bool:
        """Whether the budget of every run is spent."""
        return all(run.done == self.episodes for run in self.runs)

    def advance(self, seconds: float) -> None:
        """Simulates the next episodes of every run in one call, and updates each after each of its episodes.

        `seconds` is the time that the records state.
        """
        active = [run for run in self.runs if run.done < self.episodes]
        counts = [min(run.ahead, self.episodes - run.done) for run in active]
        drawn = [self._draw(run, count) for run, count in zip(active, counts, strict=True)]
        times, words = (np.concatenate(arrays) for arrays in zip(*drawn, strict=True))
        chosen = ([run.learner.policy for run in active], [run.learner.initial for run in active])
        arrays, errors = self._simulate(times, words, *(np.repeat(part, counts) for part in chosen))
        ends = np.cumsum(counts)
        for run, begin, end in zip(active, ends - counts, ends, strict=True):
            rows = slice(begin, end)
            self._update(run, [array[rows] for array in arrays], [part[rows] for part in errors], seconds)

    def _simulate(
        self, times: np.ndarray, words: np.ndarray, policies: np.ndarray, initials: np.ndarray
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Arrays t, x, u, y, r of the given episodes, and the squared errors of all members, in calls of equal size."""
        begun, rows = time.perf_counter(), len(times)
        found: list[list[np.ndarray]] = []
        for start in range(0, rows, ROWS):
            index = np.minimum(np.arange(start, start + ROWS), rows - 1)
            plans = self._plans(policies[index], initials[index])
            block = self.problem.rollout_rows(words[index], plans, times[index])
            block.check()
            assert block.y is not None
            assert block.r is not None
            found.append(
                [block.t, block.x, block.u, block.y, block.r, *self.learner.episode_errors(block, policies[index])]
            )
        joined = [np.concatenate(parts)[:rows] for parts in zip(*found, strict=True)]
        self.seconds += time.perf_counter() - begun
        return joined[:5], joined[5:]

    def _draw(self, run: _Run, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Times [count, m] and words [count, 2] of the next episodes of a run."""
        for step in range(run.done + len(run.draws), run.done + count):
            times_key, rollout_key, _, output_key = run.key.split(step)
            times = self.loop.sampler(times_key, 1, self.context)[0]
            run.draws.append((times, rollout_key.jax_key_data(), output_key.uniform_scalar()))
        times, words, _ = zip(*run.draws[:count], strict=True)
        return np.stack(times), np.stack(words)

    def _plans(self, policies: np.ndarray, initials: np.ndarray) -> Plan:
        """Plans with a leading axis."""
        empty = self.learner.init(Key(0))
        return self.learner.policy(empty._replace(policy=policies, initial=initials))

    def _update(self, run: _Run, arrays: list[np.ndarray], errors: list[np.ndarray], seconds: float) -> None:
        """Algorithm 1, line 5, after each of the new episodes up to the first that changes the plan."""
        state, planner = run.learner, self.learner.planner
        losses = [
            np.cumsum(np.concatenate([before[None], new]), axis=0)[1:]
            for before, new in zip((state.drift_loss, state.reward_loss), errors, strict=True)
        ]
        betas = self.learner.beta_drift, self.learner.beta_reward
        masks = [loss <= loss.min(axis=1, keepdims=True) + beta for loss, beta in zip(losses, betas, strict=True)]
        before = [
            np.concatenate([old[None], mask[:-1]])
            for old, mask in zip((state.drift_set, state.reward_set), masks, strict=True)
        ]
        differs = [(old != new).any(axis=1) for old, new in zip(before, masks, strict=True)]
        kept, values, found = len(masks[0]), np.full(len(masks[0]), state.value), None
        executed = state.policy, state.initial
        for row in np.flatnonzero(differs[0] | differs[1]):
            found = planner(masks[0][row], masks[1][row])
            values[row:] = found[4]
            if found[:2] != executed:
                kept = int(row) + 1
                run.policy_changes += 1
                break
        needed = np.max([self._needed(loss, place) for place, loss in enumerate(losses)], axis=0)
        self._record(run, arrays[4][:kept], [mask[:kept] for mask in masks], values[:kept], needed[:kept], seconds)
        takes = np.array([draw[2] for draw in run.draws[:kept]]) * np.arange(run.done + 1, run.done + kept + 1) < 1
        run.output = executed if takes.any() else run.output
        run.learner = FiniteState(
            losses[0][kept - 1],
            losses[1][kept - 1],
            masks[0][kept - 1],
            masks[1][kept - 1],
            *(found or (state.policy, state.initial, state.drift, state.reward, state.value)),
        )
        run.blocks.append([array[:kept] for array in arrays])
        run.ahead = min(LONGEST, 2 * run.ahead) if kept == len(masks[0]) else max(1, min(run.ahead, kept) // 2)
        run.done += kept
        del run.draws[:kept]
        self._check_fit(run, arrays[1].shape[-1])

    def _needed(self, losses: np.ndarray, place: int) -> np.ndarray:
        """The smallest multiple of the radius at which a set contains the truth [episodes]."""
        index = (self.truth.drift.index, self.truth.reward.index)[place]
        beta = (self.learner.beta_drift, self.learner.beta_reward)[place]
        return np.full(len(losses), np.inf) if index is None else (losses[:, index] - losses.min(axis=1)) / beta

    def _record(
        self,
        run: _Run,
        r: np.ndarray,
        masks: list[np.ndarray],
        values: np.ndarray,
        needed: np.ndarray,
        seconds: float,
    ) -> None:
        """The lines of the new episodes, as a run alone writes them."""
        gap = self.problem.gap(self.learner.policy(run.learner))
        m = r.shape[1]
        sizes = [mask.sum(axis=1).tolist() for mask in masks]
        covered = _contains(masks, self.truth).tolist()
        worst = float(needed.max())  # of the block: regret takes the largest of all
        same = {flag: {"episodes": 1, "gap": gap, "covered": flag, "radius_needed": worst} for flag in (False, True)}
        rewards = r.mean(axis=1).tolist()
        columns = zip(rewards, values.tolist(), *sizes, covered, needed.tolist(), strict=True)
        for n, (reward, value, drifts, goals, inside, multiple) in enumerate(columns, run.done + 1):
            run.append(
                {
                    "step": n,
                    "episodes": 1,
                    "rollouts": n,
                    "measurements": n * m,
                    "updates": n,
                    "updated": "both",
                    "reward": reward,
                    "seconds": seconds,
                    "value": value,
                    "drifts": drifts,
                    "rewards": goals,
                    "gap": gap,
                    "covered": inside,
                    "radius_needed": multiple,
                }
            )
            run.gaps.append(same[inside])

    def _check_fit(self, run: _Run, outputs: int) -> None:
        """Warns as a run alone does, once per block."""
        if self.learner.noise_std is not None:
            losses, count = (run.learner.drift_loss, run.learner.reward_loss), run.done * self.loop.sampler.m
            warn_misspecified("drift", float(losses[0].min()), count, outputs, self.learner.noise_std[0])
            warn_misspecified("reward", float(losses[1].min()), count, 1, self.learner.noise_std[1])

    def gaps(self, number: int) -> Sequence[Mapping[str, Any]]:
        """The gap and coverage of every episode of a run: what metrics need of its records."""
        return self.runs[number].gaps

    def state(self, number: int) -> State:
        """The state of a run, as the loop would have it; its seconds are not counted."""
        run = self.runs[number]
        joined = [np.concatenate(parts) for parts in zip(*run.blocks, strict=True)]
        executed = self.learner.policy(run.learner._replace(policy=run.output[0], initial=run.output[1]))
        ledger = Ledger(run.done, run.done * self.loop.sampler.m, run.done, policy_changes=run.policy_changes)
        data = Dataset(Measurements(*joined))
        return State(run.key, run.done, ledger, data, run.learner, Output(executed, executed))


def _contains(masks: list[np.ndarray], truth: Truth) -> np.ndarray:
    """Whether the truth is in both sets [episodes]."""
    inside = np.ones(len(masks[0]), bool)
    for mask, index in zip(masks, (truth.drift.index, truth.reward.index), strict=True):
        inside &= mask[:, index] if index is not None else False
    return inside

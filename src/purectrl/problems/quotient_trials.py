"""Coverage of the drift's confidence set over many measurements by difference quotients, without planning.

Three ways to measure and to compare: y drawn as in the paper's model; y = (x(t+Δ) − x(t))/Δ compared with the drift at t;
the same compared with the flow over Δ. Every episode executes a random policy and is measured once, since intervals of one
episode may overlap. The truth is a stochastic Runge-Kutta path on a grid that is finer than the planner's.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import jax
import numpy as np

from purectrl.core.keys import Key
from purectrl.core.ledger import Budget
from purectrl.core.measurement import Measurements
from purectrl.core.plan import Plan
from purectrl.core.samplers import Uniform
from purectrl.problems.coverage_trials import random_plans
from purectrl.problems.theory import finite, lqr
from purectrl.theory.classes import regression_data
from purectrl.theory.continuous_learner import ContinuousClassLearner
from purectrl.theory.finite_learner import FiniteLearner
from purectrl.theory.linear import LinearClass
from purectrl.theory.policy_classes import make_plan
from purectrl.theory.problem import TheoryProblem
from purectrl.theory.quotient import flow_excess
from purectrl.theory.settings import FiniteSets, LinearSets

ClassKind = Literal["lists", "linear"]
Way = Literal["drawn", "drift", "flow"]
"""How y is measured and what it is compared with: drawn; a quotient, with the drift; a quotient, with the flow."""
FIRST, BLOCK = 256, 4096
"""The number of measurements in the first block, and in the others."""
STEPS, SUBSTEPS = 10, 4
"""Steps of the planner per episode, and of the truth in each of them."""


def multiples_by_size(
    members: ClassKind, way: Way, runs: int, sizes: Sequence[int], delta: float, step: float, first: int = 0
) -> list[list[float]]:
    """The smallest multiple of β_F at which the set contains f* for all n up to each size, one list per run.

    Main arguments:
        members: the class of drifts: a fine list around the truth of `finite`, or the linear one of `lqr`.
        way: how y is measured and compared.
        runs: sequences of measurements.
        sizes: numbers of measurements, increasing.
        delta: δ of a run, half of it for the drift.
        step: Δ.
        first: the seed of the first sequence.
    """
    trial = {"lists": _lists, "linear": _linear}[members](way, max(sizes), delta, step)
    found = []
    for seed in range(first, first + runs):
        multiples = np.concatenate([*trial(Key.from_seed(seed).child("quotient", members))])
        worst = np.maximum.accumulate(multiples)
        found.append([round(float(worst[size - 1]), 5) for size in sizes])
    return found


Trial = Callable[[Key], Iterator[np.ndarray]]
"""(key) -> (L(f*) − min L)/β_F after each measurement of a block, block after block."""


def _blocks(total: int) -> Iterator[tuple[int, int]]:
    """The number and the size of each block."""
    starts = [0, *range(FIRST, total, BLOCK)]
    for number, (start, end) in enumerate(itertools.pairwise([*starts, total])):
        yield number, end - start


def _arguments(way: Way, step: float) -> dict[str, Any]:
    kind = "drawn" if way == "drawn" else "quotient"
    return {"drift": kind, "step": step, "steps": STEPS, "substeps": SUBSTEPS}


def _measure(
    problem: TheoryProblem, key: Key, plans: Plan, count: int, episodes: int
) -> tuple[np.ndarray, Measurements]:
    """The executed plans, each one of `count`, and one measurement of each episode at a uniform time in [0, T − Δ]."""
    draws = key.generator()
    chosen = draws.integers(count, size=episodes)
    words = draws.integers(2**32, size=(episodes, 2), dtype=np.uint32)
    times = draws.uniform(0.0, problem.horizon - problem.measuring.step, size=(episodes, 1))
    return chosen, problem.rollout_rows(words, jax.tree.map(lambda leaf: leaf[chosen], plans), times)


def _lists(way: Way, total: int, delta: float, step: float) -> Trial:
    problem = finite(grid="dyadic", a=0.2, c=0.3, goal=0.5, **_arguments(way, step))
    settings = FiniteSets(radius="anytime", delta=delta, paths=2, quotient="drift" if way == "drift" else "flow")
    learner = settings.build(problem, Budget(measurements=total), Uniform(1))
    assert isinstance(learner, FiniteLearner)
    truth, pairs = problem.truth.drift.index, (learner.classes.policies, learner.classes.initials)
    numbers = np.arange(pairs[0].size, dtype=np.int32)
    plans = make_plan(pairs[0], numbers, pairs[1], np.zeros_like(numbers))
    assert truth is not None

    def trial(key: Key) -> Iterator[np.ndarray]:
        before = np.zeros(learner.classes.drifts.size)
        for number, size in _blocks(total):
            chosen, block = _measure(problem, key.child(number), plans, len(numbers), size)
            losses = before + np.cumsum(learner.episode_errors(block, chosen)[0], axis=0)
            before = losses[-1]
            yield (losses[:, truth] - losses.min(axis=1)) / learner.beta_drift

    return trial


def _linear(way: Way, total: int, delta: float, step: float) -> Trial:
    problem = lqr(dimension=1, **_arguments(way, step))
    settings = LinearSets(radius="anytime", delta=delta)
    learner = settings.build(problem, Budget(measurements=total), Uniform(1))
    assert isinstance(learner, ContinuousClassLearner)
    members, plans, count = learner.drifts, *random_plans(problem)
    assert isinstance(members, LinearClass)
    truth = members.true_parameter(problem.truth.drift)
    correction = _corrections(learner, members, step)
    assert truth is not None

    def trial(key: Key) -> Iterator[np.ndarray]:
        fit = members.init(key, *learner.sizes)
        for number, size in _blocks(total):
            chosen, block = _measure(problem, key.child(number), plans, count, size)
            data = regression_data(block)[0]
            if way == "flow":  # the best fit to the blocks before, as a learner takes that of its last update
                policies = jax.tree.map(lambda leaf, chosen=chosen: leaf[chosen], plans.policy.parameter)
                more = correction(np.float32(members.fit(fit)[0]), policies, data.x)
                data = data._replace(y=data.y - np.asarray(more))
            losses = members.losses_per_episode(fit, truth, data, 1)
            radius = learner.radius_drift
            yield losses.excess / (radius.constant + np.maximum(losses.regret, 0.0))
            fit = members.observe(fit, data)

    return trial


def _corrections(learner: ContinuousClassLearner, members: LinearClass, step: float) -> Callable[..., Any]:
    """(Θ, parameters of policies [n, ...], x [n, d]) -> by how much the flow of every row differs from its drift [n, d]."""

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(None, 0, 0))
    def correction(theta: Any, policy: Any, x: Any) -> Any:
        field = lambda x: members.apply(theta, x, learner.planner.policies.apply(policy, x))  # noqa: E731
        return flow_excess(field, x, step)

    return correction

"""Coverage of confidence sets in linear and kernel classes over many sequences of measurements, without planning.

Both kinds of radii are valid for any policies and any times. So the sequences here are measured under policies drawn at
random, on `lqr` in one dimension; everything is computed from the same statistics as in a run, after every measurement.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import jax
import numpy as np

from purectrl.core.keys import Key
from purectrl.core.ledger import Budget
from purectrl.core.measurement import Measurements
from purectrl.core.plan import Plan
from purectrl.core.samplers import Uniform
from purectrl.problems.theory import lqr
from purectrl.theory.classes import TrueFunction, regression_data
from purectrl.theory.confidence import Radius
from purectrl.theory.continuous_learner import ContinuousClassLearner
from purectrl.theory.linear import LinearClass
from purectrl.theory.policy_classes import make_plan
from purectrl.theory.problem import TheoryProblem
from purectrl.theory.settings import KernelSets, LinearSets, RadiusKind

ClassKind = Literal["linear", "kernel"]
POLICIES = 64
"""Random policies, of which every episode executes one."""
BLOCK = 1024
"""Measurements whose statistics are computed at once."""
Losses = tuple[np.ndarray, np.ndarray, int]
"""L(truth) − min L [n], the regret of the predictions [n], and the class: 0 for the drift, 1 for the reward."""
KINDS: tuple[RadiusKind, RadiusKind] = ("theorem", "anytime")


def multiples_needed(members: ClassKind, runs: int, N: int, delta: float, steps: int = 10) -> dict[str, list[float]]:
    """For each kind of radius and each run, the smallest multiple of the radii at which both sets contain the truth for all
    n ≤ N.

    Main arguments:
        members: the function classes.
        runs: sequences of measurements.
        N: measurements in each.
        delta: δ, for both sets together.
        steps: Euler-Maruyama steps per episode.
    """
    problem = lqr(dimension=1, steps=steps)
    learners = {kind: _learner(problem, members, kind, N, delta) for kind in KINDS}
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for run in range(runs):
        worst = dict.fromkeys(KINDS, 0.0)
        for excess, regret, part in _losses(problem, learners["anytime"], Key.from_seed(run).child(members), N):
            for kind in KINDS:
                beta = _betas(_radii(learners[kind])[part], regret)
                worst[kind] = max(worst[kind], float((excess / beta).max()))
        for kind in KINDS:
            found[kind].append(round(worst[kind], 5))
    return found


def radius_shares(
    members: ClassKind, runs: int, sizes: Sequence[int], delta: float, steps: int = 10
) -> dict[str, list[float]]:
    """The anytime-valid radius after N measurements as a share of the theorem's for that N, mean over runs, for drift
    and reward."""
    problem = lqr(dimension=1, steps=steps)
    anytime = _learner(problem, members, "anytime", max(sizes), delta)
    theorem = [_radii(_learner(problem, members, "theorem", N, delta)) for N in sizes]
    totals = np.zeros((2, len(sizes)))
    for run in range(runs):
        key = Key.from_seed(run).child(members, "radius")
        regrets: tuple[list[np.ndarray], list[np.ndarray]] = [], []
        for _, regret, part in _losses(problem, anytime, key, max(sizes)):
            regrets[part].append(regret)
        for part in (0, 1):
            betas = _betas(_radii(anytime)[part], np.concatenate(regrets[part]))
            totals[part] += [betas[N - 1] / theorem[place][part].constant for place, N in enumerate(sizes)]
    return {"drift": (totals[0] / runs).tolist(), "reward": (totals[1] / runs).tolist()}


def _learner(
    problem: TheoryProblem, members: ClassKind, kind: RadiusKind, N: int, delta: float
) -> ContinuousClassLearner:
    settings = {"linear": LinearSets, "kernel": KernelSets}[members](radius=kind, delta=delta)
    return settings.build(problem, Budget(measurements=N), Uniform(1))


def _radii(learner: ContinuousClassLearner) -> tuple[Radius, Radius]:
    return learner.radius_drift, learner.radius_reward


def _betas(radius: Radius, regret: np.ndarray) -> np.ndarray:
    """β_n after each measurement [n]."""
    return radius.constant + (np.maximum(regret, 0.0) if radius.adds_regret else np.zeros_like(regret))


def _losses(problem: TheoryProblem, learner: ContinuousClassLearner, key: Key, N: int) -> Iterator[Losses]:
    """Yields the losses after each measurement of a block, for both classes, block after block."""
    classes, truths = (learner.drifts, learner.rewards), (problem.truth.drift, problem.truth.reward)
    fits = [members.init(key, *learner.sizes) for members in classes]
    for number, begin in enumerate(range(0, N, BLOCK)):
        block = _measure(problem, key.child("block", number), min(BLOCK, N - begin))
        for part, data in enumerate(regression_data(block)):
            members = classes[part]
            assert isinstance(members, LinearClass)
            losses = members.losses_per_episode(fits[part], _parameter(members, truths[part]), data, 1)
            yield losses.excess, losses.regret, part
            fits[part] = members.observe(fits[part], data)


def _parameter(members: LinearClass, truth: TrueFunction) -> np.ndarray:
    theta = members.true_parameter(truth)
    assert theta is not None
    return theta


def _measure(problem: TheoryProblem, key: Key, episodes: int) -> Measurements:
    """One measurement at a uniform time in each of some episodes, each under one of the random policies."""
    draws = key.child("draws").generator()
    plans, count = random_plans(problem)
    chosen = draws.integers(count, size=episodes)
    plan = jax.tree.map(lambda leaf: leaf[chosen], plans)
    words = draws.integers(2**32, size=(episodes, 2), dtype=np.uint32)
    return problem.rollout_rows(words, plan, draws.uniform(0.0, problem.horizon, size=(episodes, 1)))


def random_plans(problem: TheoryProblem) -> tuple[Plan, int]:
    """Random plans with a leading axis, and their number."""
    models, key = problem.continuous, Key.from_seed(0).child("policies")
    assert models is not None
    plans = [
        make_plan(
            models.policies,
            models.policies.init(key.child("p", i)),
            models.initials,
            models.initials.init(key.child("q", i)),
        )
        for i in range(POLICIES)
    ]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *plans), POLICIES

"""Learners from their settings and the function classes of a problem.

Learners are immutable and hold compiled functions, so those with equal settings on equal problems are shared: the seeds of a
sweep compile once.
"""

import dataclasses
import functools
import math
import warnings

from jax import Array

from purectrl.core.keys import Key
from purectrl.core.system import System
from purectrl.theory.classes import ModelClass
from purectrl.theory.confidence import (
    MisspecificationWarning,
    Radius,
    prequential_radius,
    radius,
    radius_of_list,
    ville_radius,
)
from purectrl.theory.continuous_learner import ContinuousClassLearner
from purectrl.theory.eluder import expectations
from purectrl.theory.finite_learner import FiniteLearner
from purectrl.theory.gradient_planner import GradientPlanner
from purectrl.theory.linear import LinearClass
from purectrl.theory.neural import NeuralClass
from purectrl.theory.planning import OptimisticPlanner
from purectrl.theory.problem import ContinuousModels, FiniteModels, TheoryProblem
from purectrl.theory.settings import FiniteSets, KernelSets, LinearSets, NeuralSets

Noise = tuple[float, float]
"""Standard deviations of y, in each direction, and of r."""
ROUNDING = 1e-6
"""The least standard deviation: measurements without noise differ from the truth by the rounding of float32."""


def list_radii(
    settings: FiniteSets, noise_std: Noise, state_dim: int, drifts: int, rewards: int
) -> tuple[float, float]:
    """β_F and β_R for lists of `drifts` and `rewards` members; each set may fail with probability δ/2.

    G of the theorem is the scale of y's noise, sqrt(d) · g*/sqrt(Δ) (Assumption 1; see docs/deviations.md).
    """
    y, r = (max(std, ROUNDING) for std in noise_std)
    if settings.radius == "anytime":
        return ville_radius(drifts, settings.delta / 2, y), ville_radius(rewards, settings.delta / 2, r)
    drift = radius_of_list(drifts, settings.delta / 2, math.sqrt(state_dim) * y)
    return drift, radius_of_list(rewards, settings.delta / 2, r)


def net_radii(
    settings: LinearSets | KernelSets | NeuralSets,
    noise_std: Noise,
    state_dim: int,
    total: int,
    drift_cover: float,
    reward_cover: float,
) -> tuple[Radius, Radius]:
    """β_F and β_R for infinite classes, from the logarithms of their covering numbers.

    Each set may fail with probability δ/2. The theorem's lemma has two events of probability δ per class, one for the net
    and one for the distance to it, so it takes δ/4.
    """
    y, r = (max(std, ROUNDING) for std in noise_std)
    if settings.radius == "anytime":
        return prequential_radius(settings.delta / 2, y), prequential_radius(settings.delta / 2, r)
    drift = radius(drift_cover, total, settings.delta / 4, math.sqrt(state_dim) * y)
    return Radius(drift), Radius(radius(reward_cover, total, settings.delta / 4, r))


def predicting(members: LinearClass, parameters: int, std: float) -> LinearClass:
    """The class with the sequence of ridge regressions that anytime-valid sets need: λ = σ²·dim/R² is the prior
    N(0, R²/dim) on every entry of Θ, whose squared norm is R² on average."""
    return dataclasses.replace(members, ridge=max(std**2 * parameters / float(members.bound) ** 2, 1e-12))


def flow_step(settings: FiniteSets | LinearSets | KernelSets, problem: TheoryProblem) -> float | None:
    """Δ, if quotients are measured and to be compared with the flow of a model; otherwise None."""
    flow = problem.measuring.drift == "quotient" and settings.quotient == "flow"
    return problem.measuring.step if flow else None


@functools.lru_cache(maxsize=8)
def finite_learner(
    settings: FiniteSets,
    models: FiniteModels,
    noise_std: Noise,
    state_dim: int,
    total: int,
    step: float | None = None,
) -> FiniteLearner:
    """The learner with finite classes for a budget of `total` measurements; `step` is that of `flow_step`."""
    betas = list_radii(settings, noise_std, state_dim, models.classes.drifts.size, models.classes.rewards.size)
    values = models.values(settings.paths)
    return FiniteLearner(models.classes, OptimisticPlanner.of(values.mean), *betas, noise_std, values.error, step)


@functools.lru_cache(maxsize=8)
def linear_learner(
    settings: LinearSets | KernelSets,
    models: ContinuousModels,
    system: System,
    steps: int,
    noise_std: Noise,
    total: int,
    step: float | None = None,
) -> ContinuousClassLearner:
    """The learner with linear or kernel classes for a budget of `total` measurements; `step` is that of `flow_step`."""
    drifts, rewards, (d, k) = models.drifts, models.rewards, (system.state_dim, system.control_dim)
    assert drifts is not None
    p, q = drifts.size(d, k), rewards.size(d, k)
    betas = net_radii(
        settings, noise_std, d, total, drifts.log_cover(p, total**-2.0), rewards.log_cover(q, total**-2.0)
    )
    if settings.radius == "anytime":
        drifts, rewards = predicting(drifts, p * d, noise_std[0]), predicting(rewards, q, noise_std[1])
    planner = _planner(settings, models, drifts, rewards, system, steps)
    return ContinuousClassLearner(planner, *betas, d, k, noise_std, step, settings.audited)


@functools.lru_cache(maxsize=8)
def kernel_models(models: ContinuousModels) -> ContinuousModels:
    """The same problem with its kernel classes in the place of its linear ones."""
    assert models.kernels is not None
    drifts, rewards = models.kernels()
    return dataclasses.replace(models, drifts=drifts, rewards=rewards)


@functools.lru_cache(maxsize=8)
def neural_learner(
    settings: NeuralSets, models: ContinuousModels, system: System, steps: int, noise_std: Noise, total: int
) -> ContinuousClassLearner:
    """The learner with networks for the drift for a budget of `total` measurements."""
    network, rewards, (d, k) = models.network, models.rewards, (system.state_dim, system.control_dim)
    assert network is not None

    def make(key: Array) -> object:
        return network(key, settings.width)

    drifts = NeuralClass(make, d, settings.learning_rate, settings.check_steps, settings.update_steps)
    # one program of the planner for all updates of a short run; long ones compile one more per factor of four
    drifts = dataclasses.replace(drifts, rows=min(2048, 1 << (max(total, 128) - 1).bit_length()))
    q = rewards.size(d, k)
    betas = net_radii(settings, noise_std, d, total, drifts.log_cover(total**-2.0), rewards.log_cover(q, total**-2.0))
    if settings.radius == "anytime":
        drifts = dataclasses.replace(drifts, predicts=True)
        rewards = predicting(rewards, q, noise_std[1])
    planner = _planner(settings, models, drifts, rewards, system, steps, dual_learning_rate=settings.dual_learning_rate)
    return ContinuousClassLearner(planner, *betas, d, k, noise_std, audited=settings.audited)


def warn_if_truth_outside(problem: TheoryProblem, models: FiniteModels) -> None:
    """Warns (`MisspecificationWarning`) if f* or b* is in no list, with the distance to the nearest member under the plan
    that reveals it most."""
    places = {"drift": problem.truth.drift.index, "reward": problem.truth.reward.index}
    if None not in places.values():
        return
    found = expectations(Key.from_seed(0), problem.system, *models.classes, steps=problem.steps, paths=64)
    for (name, place), errors in zip(places.items(), found, strict=True):
        if place is None:
            worst = errors.max(axis=0)
            nearest = int(worst.argmin())
            message = f"its nearest member, number {nearest}, has RMSE {math.sqrt(worst[nearest]):.2g}"
            warnings.warn(f"the truth is outside the {name} class: {message}", MisspecificationWarning, stacklevel=4)


def _planner(
    settings: LinearSets | KernelSets | NeuralSets,
    models: ContinuousModels,
    drifts: ModelClass,
    rewards: ModelClass,
    system: System,
    steps: int,
    **more: float,
) -> GradientPlanner:
    """The planner with the settings of a learner."""
    return GradientPlanner(
        system,
        models.policies,
        models.initials,
        drifts,
        rewards,
        steps,
        settings.paths,
        settings.num_restarts,
        settings.iterations,
        settings.plan_learning_rate,
        exploration=settings.exploration,
        **more,
    )

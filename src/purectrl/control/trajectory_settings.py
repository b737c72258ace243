"""The settings of the learner that optimizes one trajectory in its model and follows it: OCoRL and its relatives."""

from dataclasses import dataclass
from typing import Literal

from purectrl.control.settings import FitSettings
from purectrl.core.algorithm import LearnerSettings
from purectrl.core.errors import UnsupportedError
from purectrl.core.learner import Learner
from purectrl.core.ledger import Budget
from purectrl.core.problem import Problem
from purectrl.core.samplers import Sampler
from purectrl.core.settings import Settings, check_counts, check_not_negative, check_positive

ENSEMBLE_FIT = FitSettings(steps=2000, finetune_steps=2000, batch_size=64, learning_rate=2e-3)
"""The fit of an ensemble to single measurements."""


@dataclass(frozen=True)
class PredictorSettings(Settings):
    """The model of the drift, with its uncertainty."""

    kind: Literal["gp", "ensemble"] = "gp"
    """A Gaussian process per coordinate, or an ensemble of networks."""
    ensemble_size: int = 10
    """Number of networks, or of functions that are drawn from the Gaussian process."""
    width: int = 64
    """Units in each hidden layer of a network."""
    max_rows: int = 2000
    """Measurements that a Gaussian process uses at most."""
    noise: float | None = None
    """Standard deviation of the noise of a measured drift if it is known; otherwise a Gaussian process learns it."""

    def check(self) -> None:
        """Positive numbers."""
        check_counts(self, "ensemble_size", "width", "max_rows")
        check_positive(self, "noise")


@dataclass(frozen=True)
class TrajectoryPlanSettings(Settings):
    """The optimization of the trajectory at each update."""

    exploration: Literal["hallucinated", "bonus", "mean"] = "hallucinated"
    """Optimism by hallucinated control, dx/dt = μ + β tanh(η) σ; a bonus λ Σ σ on the reward; or the mean model."""
    strength: float = 1.0
    """β or λ."""
    solver: Literal["ilqr", "cem", "mppi", "cem-ilqr"] = "ilqr"
    """Derivatives, sampling, or sampling whose result is improved by derivatives."""
    nodes: int = 100
    """Steps of a plan, during which the control is held."""
    iterations: int = 100
    """Largest number of iterations of iLQR."""
    restarts: int = 4
    """Initial guesses: the last plan, no control, and random smooth controls."""
    search_iterations: int = 10
    """Iterations of the search by sampling."""
    samples: int = 200
    """Sampled plans per iteration."""
    first_amplitude: float = 0.1
    """Size of the sine that the first episodes execute, as a share of half the range of the control."""

    def check(self) -> None:
        """Positive counts; a strength that is not negative."""
        check_counts(self, "nodes", "iterations", "restarts", "search_iterations", "samples", most=100_000)
        check_not_negative(self, "strength", "first_amplitude")


@dataclass(frozen=True)
class Trajectory(LearnerSettings):
    """Fits a model with uncertainty, optimizes a trajectory in it, and follows it with feedback.

    For problems whose episodes begin near one state. An ensemble learns the reward, too, where it is unknown.
    """

    model: PredictorSettings = PredictorSettings()
    """The model."""
    fit: FitSettings = ENSEMBLE_FIT
    """Its fit, if it is an ensemble; max_gap is used by both."""
    plan: TrajectoryPlanSettings = TrajectoryPlanSettings()
    """The optimization of the trajectory."""

    def build(self, problem: Problem, budget: Budget, sampler: Sampler) -> Learner:
        """The learner for a problem with states and controls."""
        if problem.kind != "states":
            what = "is a diffusion model; use seiko or pure-seiko" if problem.kind == "images" else "has none"
            raise UnsupportedError(f"trajectory needs a problem with states and controls; {problem.name!r} {what}")
        from purectrl.control.trajectory_learner import build_learner  # imports JAX

        return build_learner(self, problem, budget, sampler)

"""The settings of PETS: an ensemble of networks, and planning by the cross-entropy method at every decision."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from purectrl.control.settings import FitSettings
from purectrl.core.algorithm import LearnerSettings
from purectrl.core.errors import UnsupportedError, require
from purectrl.core.learner import Learner
from purectrl.core.ledger import Budget
from purectrl.core.problem import Problem
from purectrl.core.samplers import Sampler, Snapped, Windows
from purectrl.core.settings import Settings, check_counts, check_positive


@dataclass(frozen=True)
class TransitionModelSettings(Settings):
    """The ensemble that predicts the state after one step."""

    ensemble_size: int = 5
    """Number of networks."""
    width: int = 64
    """Units in each of the two hidden layers of a network."""

    def check(self) -> None:
        """Positive counts."""
        check_counts(self, "ensemble_size", "width")


@dataclass(frozen=True)
class ReplanSettings(Settings):
    """The plan of every decision."""

    horizon: int = 25
    """Steps of a plan."""
    population: int = 64
    """Sampled plans per iteration of the cross-entropy method."""
    elites: int = 8
    """The best of them, to whose mean and spread the next iteration moves."""
    iterations: int = 4
    """Iterations per decision. The first one begins at the last plan, moved on by one step."""
    knots: int = 8
    """Sampled plans are linear between this many values."""
    deviation: float = 0.5
    """Standard deviation of the first samples, as a share of half the range of each control."""
    trajectory_sampling: Literal["ts-inf", "ts-1"] = "ts-inf"
    """Each particle follows one network along the whole plan (TS∞), or another one in each step (TS1). There is one particle
    per network."""

    def check(self) -> None:
        """Positive counts; fewer elites than samples."""
        check_counts(self, "horizon", "population", "elites", "iterations", "knots", most=100_000)
        check_positive(self, "deviation")
        require(
            self.elites < self.population,
            f"elites: must be fewer than population = {self.population}, got {self.elites}",
        )


TRANSITION_MODEL = TransitionModelSettings()
TRANSITION_FIT = FitSettings(steps=3000, finetune_steps=1500, batch_size=64, learning_rate=2e-3)
"""The fit of an ensemble to transitions."""
UNUSED_FIT = ("fit.gradient_matching_steps", "fit.sequence_length", "fit.max_gap")
"""Settings of the fit that a model of transitions does not use."""


@dataclass(frozen=True)
class Pets(LearnerSettings):
    """Probabilistic ensembles with trajectory sampling (Chua et al., 2018): model predictive control with an ensemble.

    The networks predict the next state and have no noise of their own, so that particles differ by their networks alone. The
    reward is known or learned. Controls are held from one measurement to the next, so all steps of an episode are measured.
    The default settings were not tuned.
    """

    model: TransitionModelSettings = TRANSITION_MODEL
    """The ensemble."""
    fit: FitSettings = TRANSITION_FIT
    """Its fit to all transitions at each update."""
    plan: ReplanSettings = ReplanSettings()
    """The plan of every decision."""

    def unused(self, problem: Problem, sampler: Sampler) -> Mapping[str, str]:
        """What a model of transitions does not use."""
        return dict.fromkeys(UNUSED_FIT, "a model of transitions does not use it")

    def memory_bytes(self, problem: Problem, budget: Budget, sampler: Sampler) -> Mapping[str, float]:
        """Hidden units of all sampled plans and networks in one step, of ten evaluation episodes at once."""
        rows = 10.0 * self.plan.population * self.model.ensemble_size
        states = 8.0 * self.plan.horizon * rows
        return {
            "learner.plan.population, learner.plan.horizon, learner.model.ensemble_size, learner.model.width": (
                4.0 * (3 * self.model.width * rows + 3 * states)
            )
        }

    def build(self, problem: Problem, budget: Budget, sampler: Sampler) -> Learner:
        """The learner for a problem with states and controls."""
        require_transitions("pets", problem, sampler)
        from purectrl.control.pets import build_learner  # imports JAX

        return build_learner(self, problem, budget, sampler)


def require_transitions(name: str, problem: Problem, sampler: Sampler) -> None:
    """Raises unless the problem has states and the sampler measures all steps of an episode from its beginning."""
    if problem.kind != "states":
        what = "is a diffusion model; use seiko or pure-seiko" if problem.kind == "images" else "has none"
        raise UnsupportedError(f"{name} needs a problem with states and controls; {problem.name!r} {what}")
    if not getattr(problem, "holds_controls", False):
        raise UnsupportedError(
            f"{name} needs a problem that executes held controls; {problem.name!r} evaluates policies on thousands of paths "
            "at every instant; use pure-base or pure-enode"
        )
    inner = sampler.sampler if isinstance(sampler, Snapped) else sampler
    if not isinstance(inner, Windows):
        raise UnsupportedError(f"{name} needs consecutive measurements; use the sampler windows")
    if problem.time_grid is None and not (inner.count == 1 and inner.from_start):
        raise UnsupportedError(
            f"{name} holds a control from one measurement to the next: use windows with --sampler.count 1 "
            "--sampler.from-start"
        )

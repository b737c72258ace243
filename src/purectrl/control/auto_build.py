"""How the learners of PURE-auto and of planning with known equations are built for a problem."""

from dataclasses import replace

from purectrl.control.auto_learner import QUIET_SHARE, AutoLearner, FittedDynamics
from purectrl.control.auto_settings import Auto, KnownModel
from purectrl.control.black_box import BlackBoxDynamics
from purectrl.control.ensembles import TanhEnsemble
from purectrl.control.integrate import euler, midpoint, midpoint_in
from purectrl.control.known_equations import KnownDynamics
from purectrl.control.mechanical import MechanicalDynamics
from purectrl.control.settings import FitSettings
from purectrl.core.learner import Learner
from purectrl.core.ledger import Budget
from purectrl.core.problem import Problem
from purectrl.core.samplers import PacedWindows, Sampler, Snapped
from purectrl.systems.spec import StateProblem

MAX_TURN = 1.0
"""Measurements between which an angle turns further, in radians, are not fitted: an arm that was once driven fast would
spoil the model of slow motions."""
LONGEST_TEST = 1000
"""The largest number of steps of an imagined episode of a problem in discrete time."""


def auto_learner(settings: Auto, problem: Problem, budget: Budget, sampler: Sampler) -> Learner:
    """The learner that fits an ensemble: accelerations of a mechanical system, else the whole drift."""
    assert isinstance(problem, StateProblem)
    return _learner(settings, problem, budget, sampler, _ensemble(settings, problem, budget, sampler))


def known_model_learner(settings: KnownModel, problem: Problem, budget: Budget, sampler: Sampler) -> Learner:
    """The learner that plans with the equations of `problem`."""
    assert isinstance(problem, StateProblem)
    integrate = midpoint_in(2) if problem.time_grid is None else euler
    return _learner(settings, problem, budget, sampler, KnownDynamics(problem.equations, integrate))


def _learner(
    settings: Auto | KnownModel, problem: StateProblem, budget: Budget, sampler: Sampler, dynamics: FittedDynamics
) -> AutoLearner:
    grid, size, plan, horizon = problem.time_grid, budget.measurements, settings.plan, problem.horizon
    end = QUIET_SHARE * horizon
    if grid is not None:  # a policy may fail late in an evaluation episode, which may be longer than a measured one
        end = problem.evaluation_length
        plan = replace(plan, test_steps=max(plan.test_steps, min(LONGEST_TEST, round(end / grid))))
    return AutoLearner(problem.spec, dynamics, plan, settings.tolerance, horizon, end, grid, size, sampler.m)


def _ensemble(settings: Auto, problem: StateProblem, budget: Budget, sampler: Sampler) -> FittedDynamics:
    """The dynamics model for what the problem declares as known."""
    model, spec = settings.model, problem.spec
    first_step, longest_step = _steps(problem, sampler)
    fit = FitSettings(
        gradient_matching_steps=model.gradient_matching_steps,
        steps=model.steps,
        finetune_steps=model.finetune_steps,
        sequence_length=model.sequence_length,
        batch_size=model.batch_size,
        learning_rate=model.learning_rate,
        max_gap=1.01 * longest_step,
        epochs=model.epochs,
    )
    size = model.ensemble_size, model.width
    if spec.mechanics is not None:
        parts = spec.mechanics, fit, budget.measurements, first_step, midpoint, TanhEnsemble.random
        return MechanicalDynamics(*parts, *size, depth=2, max_turn=MAX_TURN, refit=True)
    # Euler's method inverts the difference quotient over one step
    integrate = euler if problem.time_grid is not None or not spec.drift_measured else midpoint
    episodes = spec.most_episodes(budget.measurements, sampler.m)
    return BlackBoxDynamics(spec, fit, budget.measurements, episodes, integrate, *size)


def _steps(problem: Problem, sampler: Sampler) -> tuple[float, float]:
    """Time between two measurements before the time scale of the system is known, and the longest that there can be."""
    longest = problem.horizon / sampler.m
    if problem.time_grid is not None:
        return problem.time_grid, max(longest, problem.time_grid)
    inner = sampler.sampler if isinstance(sampler, Snapped) else sampler
    first = inner.first_step * problem.horizon if isinstance(inner, PacedWindows) else longest
    return min(first, longest), longest

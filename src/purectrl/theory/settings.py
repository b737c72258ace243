"""Settings of the learners of Algorithms 1 to 3. Importing this module does not load JAX."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from purectrl.core.algorithm import LearnerSettings
from purectrl.core.errors import UnsupportedError, require
from purectrl.core.ledger import Budget
from purectrl.core.problem import Problem
from purectrl.core.samplers import Sampler
from purectrl.core.settings import check_counts, check_positive

if TYPE_CHECKING:
    from purectrl.theory.continuous_learner import ContinuousClassLearner
    from purectrl.theory.finite_learner import FiniteLearner


RadiusKind = Literal["theorem", "anytime"]
Prediction = Literal["flow", "drift"]
Exploration = Literal["optimism", "greedy", "thompson"]


def check_share(audited: float) -> None:
    """Raises unless the share of audited updates is one."""
    require(0 <= audited <= 1, f"audited: the share of audited updates must lie between 0 and 1, not {audited}")


@dataclass(frozen=True)
class _ConfidenceSets(LearnerSettings):
    """What all learners with confidence sets have in common."""

    delta: float = 0.1
    """δ, the probability with which the confidence sets may fail, for drift and reward together."""
    radius: RadiusKind = "theorem"
    """theorem: the radii of Theorem 1. anytime: likelihood-ratio sets for noise of known scale, smaller, valid for all n."""

    def check(self) -> None:
        """δ is a probability."""
        require(0 < self.delta < 1, f"delta: the failure probability δ must lie between 0 and 1, not {self.delta}")


@dataclass(frozen=True)
class _QuotientSets(_ConfidenceSets):
    """What learners have in common that can compare difference quotients with the flow of their models."""

    quotient: Prediction = "flow"
    """What a difference quotient over Δ is compared with. flow: the way of the model over Δ under the executed policy.
    drift: its drift at the begin of Δ, which is off by O(Δ), so that with many measurements the truth leaves the sets."""

    def unused(self, problem: Problem, sampler: Sampler) -> Mapping[str, str]:
        """What quotients are compared with, where there are none."""
        from purectrl.theory.problem import TheoryProblem

        drawn = isinstance(problem, TheoryProblem) and problem.measuring.drift == "drawn"
        return {"quotient": "y is drawn as in the measurement model, see --problem.drift"} if drawn else {}


@dataclass(frozen=True)
class FiniteSets(_QuotientSets):
    """Confidence sets in finite lists of candidates; exact enumeration."""

    paths: int = 256
    """Simulated paths per value R(π, q, f, b); values that are known exactly need none."""

    def check(self) -> None:
        """Enough paths for a standard error."""
        super().check()
        check_counts(self, "paths")
        require(self.paths >= 2, f"paths: at least 2 are needed for the Monte-Carlo error, not {self.paths}")

    def memory_bytes(self, problem: Problem, budget: Budget, sampler: Sampler) -> Mapping[str, float]:
        """The simulated paths of one (π, q, f): those of all others follow one after the other."""
        from purectrl.theory.problem import TheoryProblem, simulated_bytes

        if not isinstance(problem, TheoryProblem) or problem.finite is None or problem.finite.exact:
            return {}
        rewards = problem.finite.classes.rewards.size
        count = simulated_bytes(problem.spec.state_dim, rewards, self.paths, problem.steps)
        return {"learner.paths, problem.steps": count}

    def unused(self, problem: Problem, sampler: Sampler) -> Mapping[str, str]:
        """Simulated paths, where values are known exactly."""
        from purectrl.theory.problem import TheoryProblem

        exact = isinstance(problem, TheoryProblem) and problem.finite is not None and problem.finite.exact
        more = {"paths": f"the values of {problem.name} are known exactly"} if exact else {}
        return {**super().unused(problem, sampler), **more}

    def build(self, problem: Problem, budget: Budget, sampler: Sampler) -> "FiniteLearner":
        """The learner; `problem` must offer finite classes."""
        from purectrl.theory.build import finite_learner, flow_step, warn_if_truth_outside
        from purectrl.theory.problem import TheoryProblem

        if not isinstance(problem, TheoryProblem) or problem.finite is None:
            raise _unsupported("finite-sets", "lists of candidate drifts and rewards", problem, "finite, lqr, ou")
        warn_if_truth_outside(problem, problem.finite)
        noise, d = problem.noise_std, problem.spec.state_dim
        return finite_learner(self, problem.finite, noise, d, budget.measurements, flow_step(self, problem))


@dataclass(frozen=True)
class _AscentSets(_QuotientSets):
    """What learners with closed-form fits and gradient ascent have in common."""

    paths: int = 64
    """Simulated paths in the gradient ascent; its results are compared on eight times as many."""
    num_restarts: int = 8
    """Starting points of the gradient ascent."""
    iterations: int = 150
    """Steps of the gradient ascent."""
    plan_learning_rate: float = 0.05
    """Learning rate of the gradient ascent."""
    audited: float = 0.0
    """Share of the updates whose plan is searched again with four times as many starting points and steps."""
    exploration: Exploration = "optimism"
    """Which models are planned with. optimism: those of the sets with the largest value. greedy: the best fits. thompson:
    random members of the sets."""

    def check(self) -> None:
        """Positive counts and rates."""
        super().check()
        check_share(self.audited)
        check_counts(self, "paths", "iterations")
        check_counts(self, "num_restarts", most=1000)
        check_positive(self, "plan_learning_rate")

    def memory_bytes(self, problem: Problem, budget: Budget, sampler: Sampler) -> Mapping[str, float]:
        """The paths of the gradient ascent."""
        return _ascent_bytes(problem, self.paths, self.num_restarts, hidden=0)


@dataclass(frozen=True)
class LinearSets(_AscentSets):
    """Confidence sets in linear classes of drifts and rewards; joint gradient ascent over plan and models."""

    def build(self, problem: Problem, budget: Budget, sampler: Sampler) -> "ContinuousClassLearner":
        """The learner; `problem` must offer linear classes."""
        from purectrl.theory.build import flow_step, linear_learner
        from purectrl.theory.problem import TheoryProblem

        models = problem.continuous if isinstance(problem, TheoryProblem) else None
        if not isinstance(problem, TheoryProblem) or models is None or models.drifts is None:
            raise _unsupported("linear-sets", "linear classes of drifts and rewards", problem, "lqr, circle")
        noise, step = problem.noise_std, flow_step(self, problem)
        return linear_learner(self, models, problem.system, problem.steps, noise, budget.measurements, step)


@dataclass(frozen=True)
class KernelSets(_AscentSets):
    """Confidence sets in balls of reproducing-kernel Hilbert spaces; joint gradient ascent over plan and models."""

    radius: RadiusKind = "anytime"
    """anytime: likelihood-ratio sets for noise of known scale. theorem: the radii of Theorem 1, from a covering number of
    the span of the chosen points."""

    def build(self, problem: Problem, budget: Budget, sampler: Sampler) -> "ContinuousClassLearner":
        """The learner; `problem` must offer kernel classes."""
        from purectrl.theory.build import flow_step, kernel_models, linear_learner
        from purectrl.theory.problem import TheoryProblem

        models = problem.continuous if isinstance(problem, TheoryProblem) else None
        if not isinstance(problem, TheoryProblem) or models is None or models.kernels is None:
            raise _unsupported(
                "kernel-sets", "kernel classes of drifts and rewards", problem, "circle, lqr with --problem.dimension 1"
            )
        found = kernel_models(models)
        noise, step = problem.noise_std, flow_step(self, problem)
        return linear_learner(self, found, problem.system, problem.steps, noise, budget.measurements, step)


@dataclass(frozen=True)
class NeuralSets(_ConfidenceSets):
    """Confidence sets in a class of neural networks for the drift; joint gradient ascent over plan and models."""

    radius: RadiusKind = "anytime"
    """anytime: likelihood-ratio sets for noise of known scale. theorem: the radii of Theorem 1, so large for networks that
    thousands of measurements exclude nothing."""
    width: int = 32
    """Width of the two hidden layers of the networks."""
    learning_rate: float = 3e-3
    """Learning rate of the fit."""
    check_steps: int = 10
    """Gradient steps of the fit per test of the excess loss, up to 128 measurements; then fewer, but at least 10."""
    update_steps: int = 1000
    """Gradient steps of the fit per update."""
    paths: int = 32
    """Simulated paths in the gradient ascent; its results are compared on eight times as many."""
    num_restarts: int = 8
    """Starting points of the gradient ascent."""
    iterations: int = 300
    """Steps of the gradient ascent."""
    plan_learning_rate: float = 0.01
    """Learning rate of the gradient ascent."""
    dual_learning_rate: float = 0.1
    """Growth of the multiplier of a violated confidence set, per step and radius."""
    audited: float = 0.0
    """Share of the updates whose plan is searched again with four times as many starting points and steps."""
    exploration: Exploration = "optimism"
    """Which models are planned with. optimism: those of the sets with the largest value. greedy: the best fits. thompson:
    random members of the sets."""

    def check(self) -> None:
        """Positive counts and rates."""
        super().check()
        check_share(self.audited)
        check_counts(self, "width", "check_steps", "update_steps", "paths", "iterations")
        check_counts(self, "num_restarts", most=1000)
        check_positive(self, "learning_rate", "plan_learning_rate", "dual_learning_rate")

    def memory_bytes(self, problem: Problem, budget: Budget, sampler: Sampler) -> Mapping[str, float]:
        """The paths of the gradient ascent, and the weights with their gradients and moments, one set per restart."""
        weights = 4.0 * self.width**2 * (4 * self.num_restarts + 8)
        ascent = _ascent_bytes(problem, self.paths, self.num_restarts, hidden=2 * self.width)
        return {"learner.width, learner.num_restarts": weights, **ascent}

    def build(self, problem: Problem, budget: Budget, sampler: Sampler) -> "ContinuousClassLearner":
        """The learner; `problem` must offer networks for the drift."""
        from purectrl.theory.build import neural_learner
        from purectrl.theory.problem import TheoryProblem

        models = problem.continuous if isinstance(problem, TheoryProblem) else None
        if not isinstance(problem, TheoryProblem) or models is None or models.network is None:
            raise _unsupported("neural-sets", "a network architecture for the drift", problem, "neural")
        return neural_learner(self, models, problem.system, problem.steps, problem.noise_std, budget.measurements)


def _ascent_bytes(problem: Problem, paths: int, restarts: int, hidden: int) -> dict[str, float]:
    """Every state, control and hidden unit along the paths of a gradient ascent, which backpropagation keeps."""
    from purectrl.theory.problem import TheoryProblem

    if not isinstance(problem, TheoryProblem):
        return {}
    numbers = 4 * problem.spec.state_dim + 2 * problem.spec.control_dim + 2 * hidden + 64
    count = 4.0 * paths * restarts * problem.steps * numbers
    return {f"learner.paths, learner.num_restarts, problem.steps{', learner.width' if hidden else ''}": count}


def _unsupported(name: str, needed: str, problem: Problem, problems: str) -> UnsupportedError:
    """The error for a problem that does not offer the function classes that a learner needs."""
    other = "pure-seiko" if problem.kind == "images" else "pure-enode"
    one = f"one of the problems {problems}" if "," in problems else f"the problem {problems}"
    return UnsupportedError(f"{name} needs {needed}; {problem.name!r} offers none; use {other}, or {one}")

"""The floor of comparisons: smooth random control that never learns."""

from dataclasses import dataclass

from purectrl.core.algorithm import LearnerSettings
from purectrl.core.errors import UnsupportedError
from purectrl.core.learner import Learner
from purectrl.core.ledger import Budget
from purectrl.core.problem import Problem
from purectrl.core.samplers import Sampler
from purectrl.core.settings import check_positive


@dataclass(frozen=True)
class RandomControl(LearnerSettings):
    """Executes u(t) = mid + half range · tanh(size · noise(t)), a new smooth path at each update; nothing is learned."""

    size: float = 1.0
    """Standard deviation of the noise before tanh."""

    def check(self) -> None:
        """A positive size."""
        check_positive(self, "size")

    def build(self, problem: Problem, budget: Budget, sampler: Sampler) -> Learner:
        """The learner for a problem with states and controls."""
        if problem.kind != "states":
            what = "is a diffusion model; use seiko or pure-seiko" if problem.kind == "images" else "has none"
            raise UnsupportedError(f"random needs a problem with states and controls; {problem.name!r} {what}")
        from purectrl.control.random_learner import RandomLearner  # imports JAX
        from purectrl.systems.spec import StateProblem

        assert isinstance(problem, StateProblem)
        return RandomLearner(problem.spec, problem.horizon, self.size)

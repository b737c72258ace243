"""The settings of soft actor-critic (SAC), the model-free baseline."""

from dataclasses import dataclass

from purectrl.core.algorithm import LearnerSettings
from purectrl.core.errors import UnsupportedError, require
from purectrl.core.learner import Learner
from purectrl.core.ledger import Budget
from purectrl.core.problem import Problem
from purectrl.core.samplers import Sampler, Snapped, Windows
from purectrl.core.settings import check_counts, check_not_negative, check_positive


@dataclass(frozen=True)
class Sac(LearnerSettings):
    """Soft actor-critic with two critics and a learned temperature (Haarnoja et al., 2018). Nothing is modelled.

    Transitions are pairs of consecutive measurements, so it needs windows, best of the whole episode. The defaults are
    those that are common for SAC.
    """

    width: int = 256
    """Units in each of the two hidden layers of all networks."""
    learning_rate: float = 3e-4
    """Adam's learning rate on actor, critics and temperature."""
    batch_size: int = 256
    """Transitions per gradient step."""
    gradient_steps: float = 1.0
    """Gradient steps per new measurement."""
    discount: float = 0.99
    """Discount per step of the sampler."""
    target_update_rate: float = 0.005
    """Rate at which the target networks follow the critics."""
    target_entropy: float = -1.0
    """The entropy per control that the temperature is adapted to."""
    initial_temperature: float = 0.2
    """The weight of the entropy at first, for rewards of unit size."""

    def check(self) -> None:
        """Positive numbers; a discount below 1."""
        check_counts(self, "width", "batch_size")
        check_positive(self, "learning_rate", "gradient_steps", "target_update_rate", "initial_temperature")
        check_not_negative(self, "discount")
        require(self.discount < 1, f"discount: must be below 1, not {self.discount}")

    def build(self, problem: Problem, budget: Budget, sampler: Sampler) -> Learner:
        """The learner for a problem with states and controls."""
        if problem.kind != "states":
            what = "is a diffusion model; use seiko or pure-seiko" if problem.kind == "images" else "has none"
            raise UnsupportedError(f"sac needs a problem with states and controls; {problem.name!r} {what}")
        inner = sampler.sampler if isinstance(sampler, Snapped) else sampler
        if not isinstance(inner, Windows):
            raise UnsupportedError("sac needs consecutive measurements; use the sampler windows")
        from purectrl.control.sac import SacLearner  # imports JAX
        from purectrl.systems.spec import StateProblem

        assert isinstance(problem, StateProblem)
        return SacLearner(self, problem.spec, budget.measurements, inner.step)

"""The settings of deep PILCO: a policy that is improved along particles through an ensemble, without a critic."""

from collections.abc import Mapping
from dataclasses import dataclass

from purectrl.control.pets_settings import (
    TRANSITION_FIT,
    TRANSITION_MODEL,
    UNUSED_FIT,
    TransitionModelSettings,
    require_transitions,
)
from purectrl.control.settings import FitSettings
from purectrl.core.algorithm import LearnerSettings
from purectrl.core.errors import require
from purectrl.core.learner import Learner
from purectrl.core.ledger import Budget
from purectrl.core.problem import Problem
from purectrl.core.samplers import Sampler
from purectrl.core.settings import Settings, check_counts, check_not_negative, check_positive


@dataclass(frozen=True)
class ParticleSettings(Settings):
    """The optimization of the policy at each update."""

    steps: int = 400
    """Steps of Adam."""
    learning_rate: float = 2e-3
    """Adam's learning rate on the policy; it decays to a twentieth along a cosine."""
    horizon: int = 30
    """Steps of the control along which particles are followed."""
    batch_size: int = 16
    """Initial states per step of Adam. From each begins one particle per network."""
    initial_share: float = 0.5
    """Share of initial states from the beginnings of episodes; the others are any measured states."""
    moment_matching: bool = False
    """Whether, after each step, the particles from one initial state are drawn anew from the normal distribution with their
    means and standard deviations, as in the published algorithm."""
    width: int = 64
    """Units in each of the two hidden layers of the policy."""
    state_grad_clip: float = 10.0
    """Limit of the gradient that flows back through one state, in units of an equal share."""
    action_l2: float = 0.003
    """Weight of the squared control before tanh, which keeps tanh from saturating."""

    def check(self) -> None:
        """Positive counts and rates; a share of at most one."""
        check_counts(self, "steps", "horizon", "batch_size", "width", most=100_000)
        check_positive(self, "learning_rate", "state_grad_clip")
        check_not_negative(self, "initial_share", "action_l2")
        require(self.initial_share <= 1, f"initial_share: must be at most 1, not {self.initial_share:g}")


@dataclass(frozen=True)
class DeepPilco(LearnerSettings):
    """Deep PILCO (Gal, McAllister, Rasmussen, 2016) with an ensemble in the place of dropout.

    Particles follow the policy, each through a network of its own. The gradient of their mean reward improves the policy;
    there is no critic. Controls are held from one measurement to the next, so all steps of an episode are measured.
    The default settings were not tuned.
    """

    model: TransitionModelSettings = TRANSITION_MODEL
    """The ensemble."""
    fit: FitSettings = TRANSITION_FIT
    """Its fit to all transitions at each update."""
    plan: ParticleSettings = ParticleSettings()
    """The optimization of the policy."""

    def check(self) -> None:
        """Moments need several particles."""
        require(
            not self.plan.moment_matching or self.model.ensemble_size > 1,
            "plan.moment_matching: needs at least 2 networks, one per particle; set model.ensemble_size",
        )

    def unused(self, problem: Problem, sampler: Sampler) -> Mapping[str, str]:
        """What a model of transitions does not use."""
        return dict.fromkeys(UNUSED_FIT, "a model of transitions does not use it")

    def memory_bytes(self, problem: Problem, budget: Budget, sampler: Sampler) -> Mapping[str, float]:
        """Hidden units of model and policy that backpropagation keeps along all particles."""
        rows = float(self.plan.batch_size * self.model.ensemble_size * self.plan.horizon)
        return {
            "learner.plan.batch_size, learner.plan.horizon, learner.model.ensemble_size, learner.model.width": (
                4.0 * 4 * rows * (self.model.width + self.plan.width)
            )
        }

    def build(self, problem: Problem, budget: Budget, sampler: Sampler) -> Learner:
        """The learner for a problem with states and controls."""
        require_transitions("deep-pilco", problem, sampler)
        from purectrl.control.deep_pilco import build_learner  # imports JAX

        return build_learner(self, problem, budget, sampler)

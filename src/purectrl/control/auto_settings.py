"""The settings of PURE-auto and of planning with known equations. None of them is a time: times come from the system."""

from dataclasses import dataclass

from purectrl.core.algorithm import LearnerSettings
from purectrl.core.errors import UnsupportedError, require
from purectrl.core.learner import Learner
from purectrl.core.ledger import Budget
from purectrl.core.problem import Problem
from purectrl.core.samplers import Sampler
from purectrl.core.settings import Settings, check_counts, check_not_negative, check_positive


@dataclass(frozen=True)
class RoundSettings(Settings):
    """Planning in rounds: short imagined rollouts, a critic for the time after them, until the imagined test is good."""

    steps: int = 500
    """Steps of the actor per round."""
    rounds: int = 10
    """The largest number of rounds per update."""
    snapshots: int = 4
    """Policies per round that compete in imagined tests, together with the one that the round started from."""
    batch_size: int = 64
    """Imagined rollouts per step."""
    ensemble_size: int = 4
    """Ensemble members that share them, drawn anew in each step; fewer if the model has fewer."""
    rollout_steps: int = 20
    """Steps of an imagined rollout; their length follows from the time scale of the system."""
    horizon: float = 5.0
    """Length of an imagined rollout, in units of the time scale 1/ρ."""
    discount: float = 20.0
    """Time constant of the discount, in the same unit."""
    noise_time: float = 1.2
    """Correlation time of the noise on imagined controls, in the same unit."""
    noise: float = 0.3
    """Largest size of that noise, before tanh."""
    width: int = 64
    """Units in each of the two hidden layers of actor and critic."""
    actor_learning_rate: float = 2e-3
    """Adam's learning rate on the actor; it decays to a twentieth along a cosine in each round."""
    critic_learning_rate: float = 1e-3
    """Adam's learning rate on the critic."""
    critic_steps: int = 4
    """Steps of the critic per step of the actor."""
    critic_batch_size: int = 256
    """Imagined states per step of the critic."""
    trace: float = 0.95
    """λ of the critic's TD(λ) targets."""
    target_update_rate: float = 0.05
    """Rate at which the target network of the critic follows it."""
    state_grad_clip: float = 10.0
    """Limit of the gradient that flows back through one state of a rollout, in units of an equal share."""
    action_l2: float = 0.003
    """Weight of the squared control before tanh, which keeps tanh from saturating."""
    initial_share: float = 0.2
    """Share of rollouts that begin in the initial distribution."""
    goal_share: float = 0.3
    """Share of rollouts that begin near states with the highest reward, at distances over two decades."""
    rollout_end_share: float = 0.4
    """Share of rollouts that begin where earlier ones ended; the remaining ones begin in any measured states."""
    test_episodes: int = 32
    """Imagined episodes of a test."""
    test_steps: int = 400
    """The largest number of steps of an imagined episode."""
    good: float = 0.05
    """A policy is good if no imagined episode ends further than this from the highest reward, in units of the distance
    between the highest reward and that of random controls."""
    gain: float = 0.02
    """A round that adds less to the imagined return, in the same unit, has not helped. Two of them end the rounds; one does
    if the policy is good."""

    def check(self) -> None:
        """Counts and rates are positive; rollouts can be shared out."""
        check_counts(self, "steps", "rounds", "snapshots", "batch_size", "ensemble_size", "rollout_steps", "width")
        check_counts(self, "critic_steps", "critic_batch_size", "test_episodes", "test_steps")
        check_positive(self, "horizon", "discount", "noise_time", "actor_learning_rate", "critic_learning_rate", "good")
        check_positive(self, "target_update_rate", "state_grad_clip")
        check_not_negative(self, "noise", "action_l2", "initial_share", "goal_share", "rollout_end_share", "gain")
        require(0 <= self.trace <= 1, f"trace: must be between 0 and 1, not {self.trace}")
        require(self.steps >= self.snapshots, f"steps: must be at least {self.snapshots}, not {self.steps}")
        divides = self.batch_size % self.ensemble_size == 0
        require(divides, f"ensemble_size: must divide batch_size = {self.batch_size}, got {self.ensemble_size}")
        shares = self.initial_share + self.goal_share + self.rollout_end_share
        require(shares <= 1 + 1e-9, f"initial_share: the shares of rollouts add up to {shares:g}, more than 1")


@dataclass(frozen=True)
class EnsembleSettings(Settings):
    """The learned model: an ensemble of networks for the drift, and its fit to all data at each update."""

    ensemble_size: int = 5
    """Number of networks."""
    width: int = 64
    """Units in each of the two hidden layers."""
    gradient_matching_steps: int = 0
    """Steps of gradient matching before the first fit to trajectories (mechanical models)."""
    steps: int = 3000
    """Steps of Adam at the first update."""
    finetune_steps: int = 3000
    """Steps of Adam at each later update."""
    sequence_length: int = 2
    """Measurements in a sub-sequence that the model is fitted to (mechanical models); two is gradient matching."""
    batch_size: int = 128
    """Sub-sequences, or measurements of a black-box model, per step and ensemble member."""
    learning_rate: float = 5e-3
    """Adam's learning rate; it decays to a fiftieth along a cosine."""
    epochs: int = 300
    """A fit takes at least the steps of this many passes over the data, and at most four times the steps set above."""

    def check(self) -> None:
        """Positive counts and rates."""
        check_counts(self, "ensemble_size", "width", "steps", "finetune_steps", "batch_size")
        check_not_negative(self, "gradient_matching_steps", "epochs")
        check_positive(self, "learning_rate")
        length = self.sequence_length
        require(length >= 2, f"sequence_length: a sub-sequence has at least 2 measurements, not {length}")


@dataclass(frozen=True)
class Auto(LearnerSettings):
    """The learner of PURE-auto: an ensemble, planning in rounds, and decisions by promised and measured returns."""

    model: EnsembleSettings = EnsembleSettings()
    """The learned model."""
    plan: RoundSettings = RoundSettings()
    """The optimization of the policy."""
    tolerance: float = 0.03
    """Promised and measured return agree if they differ by less, in units of the distance between the highest reward and
    that of random controls."""

    def check(self) -> None:
        """A positive tolerance."""
        check_positive(self, "tolerance")

    def build(self, problem: Problem, budget: Budget, sampler: Sampler) -> Learner:
        """The learner for a problem with states and controls."""
        _check_states("pure-auto", problem)
        from purectrl.control.auto_build import auto_learner  # imports JAX

        return auto_learner(self, problem, budget, sampler)


@dataclass(frozen=True)
class KnownModel(LearnerSettings):
    """Plans with the true equations: what the planner can reach, and so the ceiling of every learner that uses it."""

    plan: RoundSettings = RoundSettings(gain=0.01)
    """The optimization of the policy."""
    tolerance: float = 0.03
    """Promised and measured return agree if they differ by less, in units of the distance between the highest reward and
    that of random controls."""

    def check(self) -> None:
        """A positive tolerance."""
        check_positive(self, "tolerance")

    def build(self, problem: Problem, budget: Budget, sampler: Sampler) -> Learner:
        """The learner for a problem that offers its equations."""
        _check_states("known-model", problem)
        if getattr(problem, "equations", None) is None:
            raise UnsupportedError(
                f"known-model needs a problem that offers its equations; {problem.name!r} does not; use pure-auto"
            )
        from purectrl.control.auto_build import known_model_learner  # imports JAX

        return known_model_learner(self, problem, budget, sampler)


def _check_states(name: str, problem: Problem) -> None:
    """Raises unless `problem` has states and controls."""
    if problem.kind != "states":
        what = "is a diffusion model; use seiko or pure-seiko" if problem.kind == "images" else "has none; use another"
        raise UnsupportedError(f"{name} needs a problem with states and controls; {problem.name!r} {what}")

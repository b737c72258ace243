"""The settings of ENODE and PURE_ENODE. Both are this learner; they differ in the schedule of the loop around it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from purectrl.core.algorithm import LearnerSettings
from purectrl.core.errors import UnsupportedError, require
from purectrl.core.learner import Learner
from purectrl.core.ledger import Budget
from purectrl.core.problem import Problem
from purectrl.core.samplers import Sampler, Windows
from purectrl.core.settings import Settings, check_counts, check_not_negative, check_positive

MOST_STEPS = 4
"""A fit of many measurements takes at most this many times the steps of a fit of few."""


@dataclass(frozen=True)
class ModelSettings(Settings):
    """The dynamics model."""

    kind: Literal["auto", "mechanical", "black-box", "gp"] = "auto"
    """What is known: dq/dt = v and the reward (mechanical), or only the spaces (black-box); auto uses what the problem
    declares. With gp, the drift is a Gaussian process and the members are draws from its posterior."""
    dynamics: Literal["ensemble", "batch-ensemble", "implicit"] = "ensemble"
    """Separate networks, networks that share weights up to factors of rank one, or draws of latent noise on the nodes of one
    network. A black-box model supports ensemble only."""
    noise: Literal["fixed", "learned"] = "fixed"
    """Noise of the measurements in the likelihood: set from the size of accelerations, or learned. A black-box model
    supports fixed only."""
    ensemble_size: int = 10
    """Number of networks, or of draws of an implicit model."""
    width: int = 200
    """Units in each hidden layer of model, actor and critic."""
    integrator: Literal["midpoint", "dopri5"] = "midpoint"
    """How the model is integrated: one midpoint step per measurement, or adaptively as in the paper."""

    def check(self) -> None:
        """Positive counts."""
        check_counts(self, "ensemble_size", "width")


@dataclass(frozen=True)
class FitSettings(Settings):
    """The fit of the model to all data at each update."""

    gradient_matching_steps: int = 600
    """Steps of gradient matching before the first fit to trajectories (mechanical models)."""
    steps: int = 400
    """Steps of Adam at the first update."""
    finetune_steps: int = 300
    """Steps of Adam at each later update."""
    sequence_length: int = 4
    """Measurements in a sub-sequence that the model is fitted to (mechanical models)."""
    batch_size: int = 48
    """Sub-sequences, or measurements of a black-box model, per step and ensemble member."""
    learning_rate: float = 1e-3
    """Adam's learning rate on the model; it decays to a fiftieth along a cosine."""
    max_gap: float = 0.15
    """Two measurements with more seconds between them are not fitted as neighbours."""
    epochs: int = 0
    """A fit takes at least the steps of this many passes over the data, and at most four times the steps set above."""

    def check(self) -> None:
        """Positive counts and rates."""
        check_not_negative(self, "gradient_matching_steps", "epochs")
        check_counts(self, "steps", "finetune_steps", "batch_size")
        check_positive(self, "learning_rate", "max_gap")
        require(
            self.sequence_length >= 2,
            f"sequence_length: a sub-sequence has at least 2 measurements, not {self.sequence_length}",
        )

    def count(self, size: int, first: bool) -> int:
        """Steps of Adam for `size` sub-sequences or measurements.

        >>> fit = FitSettings(finetune_steps=100, batch_size=10, epochs=20)
        >>> [fit.count(size, first=False) for size in (10, 100, 1000)]
        [100, 200, 400]
        """
        least = self.steps if first else self.finetune_steps
        return min(max(least, self.epochs * size // self.batch_size), MOST_STEPS * least)


@dataclass(frozen=True)
class PlanSettings(Settings):
    """The optimization of the policy in the model at each update."""

    steps: int = 450
    """Steps of the actor."""
    batch_size: int = 48
    """Imagined rollouts per step."""
    ensemble_size: int = 3
    """Ensemble members that share them, drawn anew in each step."""
    horizon: float = 3.0
    """H, the length of an imagined rollout in seconds."""
    discount: float = 5.0
    """τ: a reward t seconds away has the weight e^(−t/τ)."""
    objective: Literal["mean", "optimistic"] = "mean"
    """Mean over ensemble members; or, for each initial state, the best of them: the optimistic plan of Algorithm 1, line 3,
    with the ensemble as F_n."""
    step: float = 0.1
    """Seconds for which an imagined control is held. Samplers and problems with a time grid set it to theirs."""
    actor_learning_rate: float = 2e-3
    """Adam's learning rate on the actor; it decays to a twentieth along a cosine."""
    critic_learning_rate: float = 1e-3
    """Adam's learning rate on the critic."""
    critic_steps: int = 4
    """Steps of the critic per step of the actor."""
    critic_batch_size: int = 256
    """Imagined states per step of the critic."""
    target_update_rate: float = 0.03
    """Rate at which the target network of the critic follows it."""
    state_grad_clip: float = 10.0
    """Limit of the gradient that flows back through one state of a rollout, in units of an equal share."""
    noise: float = 0.3
    """Largest size of the noise on imagined controls, before tanh."""
    noise_time: float = 0.4
    """Correlation time of that noise, in seconds."""
    action_l2: float = 0.003
    """Weight of the squared control before tanh, which keeps tanh from saturating."""
    initial_share: float = 0.4
    """Share of rollouts that begin in the initial distribution."""
    rewarded_share: float = 0.2
    """Share of rollouts that begin in measured states with high reward."""
    rollout_end_share: float = 0.3
    """Share of rollouts that begin where earlier ones ended; the remaining ones begin in any measured states."""
    snapshots: int = 5
    """Number of snapshots of the policy, of which the one with the highest imagined reward is returned."""

    def check(self) -> None:
        """Counts and rates are positive; rollouts can be shared out."""
        counts = ("steps", "batch_size", "ensemble_size", "critic_steps", "critic_batch_size", "snapshots")
        check_counts(self, *counts)
        check_positive(self, "horizon", "discount", "step", "actor_learning_rate", "critic_learning_rate", "noise_time")
        check_positive(self, "target_update_rate", "state_grad_clip")
        check_not_negative(self, "noise", "action_l2", "initial_share", "rewarded_share", "rollout_end_share")
        require(self.steps >= self.snapshots, f"steps: must be at least {self.snapshots}, not {self.steps}")
        require(
            self.batch_size % self.ensemble_size == 0,
            f"ensemble_size: must divide batch_size = {self.batch_size}, got {self.ensemble_size}",
        )
        require(self.horizon >= self.step, f"horizon: must hold a step of {self.step:g} s, not {self.horizon:g}")
        shares = self.initial_share + self.rewarded_share + self.rollout_end_share
        require(shares <= 1 + 1e-9, f"initial_share: the shares of rollouts add up to {shares:g}, more than 1")

    @property
    def rollout_steps(self) -> int:
        """Steps of an imagined rollout."""
        return round(self.horizon / self.step)


WEIGHT_COPIES = 8
"""Arrays of the size of the weights: old and new weights, their gradient, two moments, and what a checkpoint copies."""
ACTIVATION_COPIES = 4
"""Arrays of the size of the hidden units that backpropagation keeps: before and after the activation, of both stages."""

UNUSED = {
    "black-box": ("fit.gradient_matching_steps", "fit.sequence_length"),
    "gp": (
        "model.dynamics",
        "model.noise",
        *(
            f"fit.{name}"
            for name in (
                "gradient_matching_steps",
                "steps",
                "finetune_steps",
                "sequence_length",
                "batch_size",
                "learning_rate",
            )
        ),
    ),
}
"""Settings that a kind of model does not use."""


@dataclass(frozen=True)
class Enode(LearnerSettings):
    """The learner of Algorithm 5: fit an ensemble of neural ODEs to all data, optimize the policy in it."""

    model: ModelSettings = ModelSettings()
    """The dynamics model."""
    fit: FitSettings = FitSettings()
    """Its fit to the data."""
    plan: PlanSettings = PlanSettings()
    """The optimization of the policy."""

    def check(self) -> None:
        """Planning draws distinct members."""
        require(
            self.plan.ensemble_size <= self.model.ensemble_size,
            f"plan.ensemble_size: must not exceed model.ensemble_size = {self.model.ensemble_size}, "
            f"got {self.plan.ensemble_size}",
        )

    @classmethod
    def mechanical(cls) -> "Enode":
        """The defaults for mechanical systems: cartpole and acrobot."""
        return cls()

    @classmethod
    def pendulum(cls) -> "Enode":
        """Fewer steps, which suffice for the pendulum."""
        fit = FitSettings(gradient_matching_steps=300, steps=200, finetune_steps=150, batch_size=32)
        return cls(fit=fit, plan=PlanSettings(steps=300))

    @classmethod
    def black_box(cls) -> "Enode":
        """The defaults for systems of which only the spaces are known, such as Gymnasium environments."""
        return cls(
            ModelSettings(ensemble_size=5, width=128),
            FitSettings(steps=4000, finetune_steps=3000, batch_size=64, learning_rate=2e-3),
            PlanSettings(steps=600),
        )

    def memory_bytes(self, problem: Problem, budget: Budget, sampler: Sampler) -> Mapping[str, float]:
        """Weights with gradients, moments and copies; hidden units that backpropagation keeps; the exploration noise."""
        model, fit, plan, width = self.model, self.fit, self.plan, self.model.width
        weights = (2 * model.ensemble_size + 2) * width * (width + 8)
        fitted = model.ensemble_size * fit.batch_size * fit.sequence_length * 3 * width
        planned = plan.batch_size * plan.rollout_steps * 5 * width
        knots = problem.horizon / 0.1
        return {
            "learner.model.width, learner.model.ensemble_size": 4.0 * WEIGHT_COPIES * weights,
            "learner.fit.batch_size, learner.fit.sequence_length, learner.model.ensemble_size, learner.model.width": (
                4.0 * ACTIVATION_COPIES * fitted
            ),
            "learner.plan.batch_size, learner.plan.horizon, learner.model.width": 4.0 * ACTIVATION_COPIES * planned,
            "problem.horizon": 2 * 8.0 * knots**2,
        }

    def unused(self, problem: Problem, sampler: Sampler) -> Mapping[str, str]:
        """What the kind of model does not use, and the step of imagined controls where it is given."""
        kind, known = self.model.kind, getattr(getattr(problem, "spec", None), "mechanics", None) is not None
        if kind == "auto":
            kind = "mechanical" if known else "black-box"
        found = dict.fromkeys(UNUSED.get(kind, ()), f"a {kind} model does not use it")
        if problem.time_grid is not None:
            found["plan.step"] = f"the step of {problem.name} is used"
            found |= {"model.integrator": "a problem in discrete time is integrated step by step"} if not known else {}
        elif isinstance(sampler, Windows):
            found["plan.step"] = "the step of the sampler is used: sampler.step"
        return found

    def build(self, problem: Problem, budget: Budget, sampler: Sampler) -> Learner:
        """The learner for a problem with states and controls."""
        if problem.kind != "states":
            what = "is a diffusion model; use seiko or pure-seiko" if problem.kind == "images" else "has none"
            raise UnsupportedError(f"enode needs a problem with states and controls; {problem.name!r} {what}")
        from purectrl.control.learner import build_learner  # imports JAX

        return build_learner(self, problem, budget, sampler)

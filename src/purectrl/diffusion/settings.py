"""Settings of the learner of SEIKO and PURE_SEIKO. Importing this module does not import PyTorch.

Defaults are those of the paper's table of hyper-parameters where it has them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from purectrl.core.algorithm import LearnerSettings
from purectrl.core.errors import UnsupportedError, require
from purectrl.core.ledger import Budget
from purectrl.core.problem import Problem
from purectrl.core.samplers import Sampler
from purectrl.core.settings import Settings, check_counts, check_not_negative, check_positive

if TYPE_CHECKING:
    from purectrl.diffusion.chain import ChainLearner
    from purectrl.diffusion.learner import SeikoLearner
    from purectrl.diffusion.problem import DiffusionProblem


@dataclass(frozen=True)
class RewardModelSettings(Settings):
    """How the reward model r̂ is fitted to the measurements at each update, and its optimism."""

    fit: Literal["network", "ridge"] = "network"
    """`network`: AdamW on features and last layer. `ridge`: ridge regression on the embedding of an image, λ by generalised
    cross-validation, with the confidence ellipsoid of a linear model as uncertainty."""
    steps: int = 600
    """Optimizer steps (AdamW) at each update."""
    batch_size: int = 64
    """Measurements per optimizer step."""
    learning_rate: float = 1.5e-3
    """Learning rate; it decays to a twentieth along a cosine."""
    weight_decay: float = 1e-2
    """Weight decay of AdamW."""
    loss: Literal["bce", "mse"] = "bce"
    """`bce`: binary cross-entropy, for rewards in [0, 1]; `mse`: squared error, for any reward."""
    held_out: float = 0.1
    """Fraction of the trajectories that are held out of training; they select the best weights and give the error."""
    selection: Literal["final", "all"] = "final"
    """Held-out measurements whose error selects the weights: those at t = T, where the update evaluates r̂, or all."""
    check_every: int = 50
    """Optimizer steps between two evaluations of the held-out error."""
    uncertainty: Literal["ucb", "bootstrap", "thompson", "greedy"] = "ucb"
    """How the reward model is optimistic: an upper confidence bound, the spread of bootstrapped heads, a Thompson sample of
    the last layer, or not at all."""
    bonus_scale: float = 0.002
    """Multiplier of the optimism bonus: C₁ of the upper confidence bound."""
    num_heads: int = 8
    """Last layers of the reward model (bootstrap only)."""
    ridge: float = 1.0
    """λ in λI + Σφφᵀ."""
    confidence: float = 0.95
    """Probability that the ellipsoid contains the true last layer (ridge only)."""

    def check(self) -> None:
        """Ranges of the parameters."""
        check_counts(self, "steps", "batch_size", "check_every")
        check_positive(self, "learning_rate", "ridge")
        check_not_negative(self, "bonus_scale", "weight_decay")
        require(0 < self.confidence < 1, f"confidence: must lie in (0, 1), not {self.confidence}")
        require(0 <= self.held_out < 1, f"held_out: must lie in [0, 1), not {self.held_out}")
        require(self.num_heads >= 2, f"num_heads: a spread needs at least two heads, not {self.num_heads}")


@dataclass(frozen=True)
class FinetuneSettings(Settings):
    """How (f, q) is fine-tuned at each update by backpropagation through the sampler (Algorithm 4, line 8)."""

    iterations: int = 100
    """Optimizer steps (AdamW) at each update; the table's epochs."""
    batch_size: int = 128
    """Simulated trajectories per iteration."""
    chunk_size: int | None = None
    """Simulated trajectories in memory at once, each chunk with its own truncation; by default all of an iteration."""
    chunk_trial: bool = False
    """Whether `chunk_size` is halved, before each update, until the gradient of a chunk fits into the memory of the GPU. The
    random numbers of an update depend on the size that is found."""
    learning_rate: float = 1e-4
    """Learning rate of the denoiser's weights."""
    initial_learning_rate: float = 1e-3
    """Learning rate of the initial distribution q; 0 keeps q fixed."""
    learning_rate_schedule: Literal["warmup-decay", "constant"] = "warmup-decay"
    """Whether both learning rates warm up and decay to a fifth within an update, or stay constant."""
    weight_decay: float = 0.0
    """Weight decay of AdamW."""
    adam_beta2: float = 0.99
    """Decay rate of AdamW's second moments; that of the first is 0.9."""
    alpha: float = 0.001
    """α, the weight of the divergence from the pretrained model, in reward per nat; the paper's table does not give it."""
    beta: float = 0.01
    """β, the weight of the divergence from the model before the update, in reward per nat."""
    reward_points: int = 1
    """Times iT/n, i = 1 … n, at which the update evaluates r̂; it maximises their mean, a Riemann sum over the trajectory
    (the appendix). 1 is r̂(x(T)) (Algorithm 4)."""
    gradient_clip: float = 1.0
    """Largest norm of the gradient."""
    min_backprop_steps: int = 1
    """The smallest number of final denoising steps that gradients pass through; it is drawn once per chunk."""
    max_backprop_steps: int | None = None
    """The largest number of them; by default all steps."""
    kl_samples: int | None = 4
    """Denoising steps at which the divergence is evaluated per iteration; None evaluates it at all steps."""
    checkpointing: bool = False
    """Whether activations are recomputed instead of stored."""

    def check(self) -> None:
        """Ranges of the parameters."""
        check_counts(self, "iterations", "batch_size", "chunk_size", "min_backprop_steps", "max_backprop_steps")
        check_counts(self, "kl_samples", "reward_points")
        check_positive(self, "learning_rate", "gradient_clip")
        require(0 <= self.adam_beta2 < 1, f"adam_beta2: must lie in [0, 1), not {self.adam_beta2}")
        check_not_negative(self, "initial_learning_rate", "weight_decay", "alpha", "beta")
        require(
            self.max_backprop_steps is None or self.max_backprop_steps >= self.min_backprop_steps,
            f"max_backprop_steps: must be at least min_backprop_steps, {self.min_backprop_steps}, "
            f"not {self.max_backprop_steps}",
        )


def diffusion_problem(problem: Problem, learner: str) -> "DiffusionProblem":
    """`problem` as a diffusion model with a reward on images; raises `UnsupportedError` if it is something else."""
    if problem.kind != "images":
        has = "has states and controls; use pure-enode" if problem.kind == "states" else "is of another kind"
        raise UnsupportedError(f"{learner} needs a diffusion model; {problem.name!r} {has}")
    from purectrl.diffusion.problem import DiffusionProblem

    if not isinstance(problem, DiffusionProblem):
        raise UnsupportedError(
            f"{learner} needs a DiffusionProblem; {problem.name!r} is a {type(problem).__name__}, not derived from it"
        )
    return problem


@dataclass(frozen=True)
class Chain(LearnerSettings):
    """The learner of DDPO, GRPO and best-of-n: the denoising chain as a policy, without a reward model.

    >>> Chain(baseline="group", alpha=1e-3).epochs
    1
    """

    objective: Literal["importance", "likelihood"] = "importance"
    """`importance`: clipped importance weights times advantages; `likelihood`: weighted log-likelihood of trajectories."""
    baseline: Literal["condition", "group", "best"] = "condition"
    """How rewards become advantages: standardised by all rewards of the condition so far, by those since the last update, or
    1 for the best of `best_of` trajectories and 0 for the others."""
    best_of: int = 4
    """n of best-of-n."""
    epochs: int = 1
    """Passes over the trajectories since the last update, with a step of AdamW per batch that was rolled out together."""
    chunk_size: int | None = None
    """Trajectories whose steps are backpropagated through at once; by default a whole batch."""
    clip: float = 0.2
    """Importance weights outside 1 ± this have no gradient that would move them further."""
    learning_rate: float = 3e-4
    """Learning rate of the denoiser's weights."""
    weight_decay: float = 0.0
    """Weight decay of AdamW."""
    alpha: float = 0.0
    """Weight of the divergence from the pretrained model, per nat, in units of standardised rewards."""
    gradient_clip: float = 1.0
    """Largest norm of the gradient."""

    def check(self) -> None:
        """Ranges of the parameters."""
        check_counts(self, "epochs", "best_of", "chunk_size")
        check_positive(self, "learning_rate", "gradient_clip", "clip")
        check_not_negative(self, "weight_decay", "alpha")
        require(
            self.objective == "importance" or self.baseline == "best",
            f"baseline: the likelihood needs weights that are not negative; use best, not {self.baseline}",
        )

    def build(self, problem: Problem, budget: Budget, sampler: Sampler) -> "ChainLearner":
        """The learner for `problem`, which must be a diffusion model with a reward on images."""
        found = diffusion_problem(problem, "chain")
        from purectrl.diffusion.chain import build_chain_learner

        return build_chain_learner(self, found)


@dataclass(frozen=True)
class Seiko(LearnerSettings):
    """The learner of SEIKO and PURE_SEIKO: a reward model with a bonus, and KL-regularised fine-tuning of a diffusion model.

    >>> Seiko(reward_model=RewardModelSettings(loss="mse")).finetune.iterations
    100
    """

    reward_model: RewardModelSettings = RewardModelSettings()
    """How the reward model is fitted."""
    finetune: FinetuneSettings = FinetuneSettings()
    """How the diffusion model is updated."""
    gradient: Literal["model", "reward"] = "model"
    """Whether the update follows the gradient of the reward model, or that of the reward itself, if it is differentiable;
    then no reward model is fitted, and every simulated trajectory is a query, counted as `reward_gradients`."""
    stop_when_worse: bool = False
    """Whether the run ends when the measured reward of final images fell by more than three standard errors after an update
    that promised a gain. `--output best-measured` then returns the better model."""

    def unused(self, problem: Problem, sampler: Sampler) -> Mapping[str, str]:
        """What the chosen uncertainty does not use, and what concerns terms that are switched off."""
        model, finetune, found = self.reward_model, self.finetune, {}
        if model.uncertainty != "bootstrap":
            found["reward_model.num_heads"] = "it is for uncertainty = bootstrap"
        if model.uncertainty == "greedy":
            found["reward_model.bonus_scale"] = "uncertainty = greedy has no bonus"
        if model.uncertainty in ("greedy", "bootstrap"):
            found["reward_model.ridge"] = "it is for uncertainty = ucb or thompson"
        if model.held_out == 0:
            found["reward_model.check_every"] = "nothing is held out; use a positive held_out"
        if finetune.alpha == finetune.beta == 0:
            found["finetune.kl_samples"] = "alpha and beta are 0"
        return found

    def build(self, problem: Problem, budget: Budget, sampler: Sampler) -> "SeikoLearner":
        """The learner for `problem`, which must be a diffusion model with a reward on images."""
        problem = diffusion_problem(problem, "seiko")
        from purectrl.diffusion.learner import build_learner

        if self.gradient == "reward" and problem.reward_gradient is None:
            raise UnsupportedError(
                f"learner.gradient: the reward {problem.reward.name!r} has no gradient; use model, which learns it"
            )
        if self.reward_model.fit == "ridge" and problem.reward_input.trunk.inputs is None:
            raise UnsupportedError(
                f"learner.reward_model.fit: ridge needs an embedding of images, {problem.name!r} has none for this reward; "
                "use network"
            )
        certain = self.reward_model.uncertainty in ("greedy", "thompson") or self.reward_model.bonus_scale == 0
        if sampler.needs_bonus and (certain or self.gradient == "reward"):
            raise UnsupportedError(
                f"sampler: {type(sampler).__name__} needs a bonus; use learner.reward_model.uncertainty ucb or bootstrap, "
                "with a positive bonus_scale, and learner.gradient model"
            )
        if self.reward_model.fit == "ridge" and self.reward_model.loss != "mse":
            raise UnsupportedError("learner.reward_model.loss: ridge regression minimises squared errors; use mse")
        low, high = problem.reward.range or (0.0, 1.0)  # an unknown range is checked when the model is fitted
        if self.gradient == "model" and self.reward_model.loss == "bce" and not 0 <= low <= high <= 1:
            raise UnsupportedError(
                f"learner.reward_model.loss: bce needs rewards in [0, 1]; {problem.reward.name!r} has values in "
                f"[{low:g}, {high:g}]; use mse"
            )
        steps, longest = problem.diffusion.process.steps, self.finetune.max_backprop_steps
        if longest is not None and longest < steps and self.finetune.initial_learning_rate > 0:
            raise UnsupportedError(
                f"learner.finetune.max_backprop_steps: with {longest} of {steps} steps no gradient of the reward reaches "
                "the initial distribution; use all steps, or initial_learning_rate 0"
            )
        return build_learner(self, problem, representative=not sampler.needs_bonus)

"""The named fine-tuners of diffusion models, each a few lines that return an `Algorithm`; they load no PyTorch.

They differ in what is measured and in how a measurement becomes an update; budgets and evaluations are those of the problem.
"""

from collections.abc import Callable, Mapping
from typing import Any

from purectrl.core.algorithm import Algorithm
from purectrl.core.output_rules import LastPolicy
from purectrl.core.problem import Problem
from purectrl.core.samplers import Final, Geometric, Sampler
from purectrl.core.schedules import EqualBatches, GrowingBatches
from purectrl.diffusion.settings import Chain, FinetuneSettings, RewardModelSettings, Seiko


def _digits() -> Seiko:
    finetune = FinetuneSettings(
        iterations=24,
        batch_size=16,
        learning_rate=4.5e-4,
        initial_learning_rate=4.5e-3,
        kl_samples=2,
        alpha=2e-3,
        beta=5e-4,
    )
    return Seiko(RewardModelSettings(steps=300, bonus_scale=0.1), finetune)


def _taste() -> Seiko:
    linear = RewardModelSettings(fit="ridge", loss="mse", bonus_scale=0.05)
    finetune = FinetuneSettings(
        iterations=25, batch_size=32, learning_rate=3e-4, initial_learning_rate=3e-3, alpha=1e-2, beta=2.5e-3
    )
    return Seiko(linear, finetune)


LEARNERS: Mapping[str, Callable[[], Seiko]] = {"digits": _digits, "taste": _taste}
"""The settings of the learner of SEIKO by problem; those of other problems are the paper's table."""


def _fine_tuning(problem: Problem | None, sampler: Sampler, name: str) -> Algorithm:
    learner = LEARNERS.get("" if problem is None else problem.name, Seiko)()
    return Algorithm(sampler, GrowingBatches(), learner, LastPolicy(), name)


def seiko(problem: Problem | None = None) -> Algorithm:
    """SEIKO: reward measured on final images, optimistic fine-tuning of a diffusion model."""
    return _fine_tuning(problem, Final(), "seiko")


def pure_seiko(problem: Problem | None = None) -> Algorithm:
    """PURE_SEIKO, Algorithm 4: the same learner, m measurements along each trajectory."""
    return _fine_tuning(problem, Geometric(m=4, lam=6.0), "pure-seiko")


def _unregularised(problem: Problem | None, name: str, max_backprop_steps: int | None) -> Algorithm:
    """Final labels, a reward without a bonus, no divergence, and q as it was."""
    differentiable = getattr(problem, "reward_gradient", None) is not None
    # through the last steps alone, q gets no gradient
    base = _fine_tuning(problem, Final(), name).with_settings({"learner.finetune.initial_learning_rate": 0.0})
    return base.with_settings(
        {
            "learner.gradient": "reward" if differentiable else "model",
            "learner.reward_model.uncertainty": "greedy",
            "learner.finetune.max_backprop_steps": max_backprop_steps,
            "learner.finetune.alpha": 0.0,
            "learner.finetune.beta": 0.0,
        }
    )


def draft(problem: Problem | None = None) -> Algorithm:
    """DRaFT-K: backpropagation through the last K steps, of a differentiable reward, otherwise of a reward model."""
    return _unregularised(problem, "draft", max_backprop_steps=1)


def alignprop(problem: Problem | None = None) -> Algorithm:
    """AlignProp: DRaFT-K with K drawn from 1 to all steps for each chunk."""
    return _unregularised(problem, "alignprop", max_backprop_steps=None)


def _on_chain(name: str, learner: Chain) -> Algorithm:
    return Algorithm(Final(), EqualBatches(size=320, initial=0, update="after"), learner, LastPolicy(), name)


def ddpo(problem: Problem | None = None) -> Algorithm:
    """DDPO: policy gradient on the denoising chain, importance-weighted and clipped."""
    return _on_chain("ddpo", Chain())


def grpo(problem: Problem | None = None) -> Algorithm:
    """GRPO on the denoising chain: rewards standardised within a group, divergence from the pretrained model."""
    return _on_chain("grpo", Chain(baseline="group", alpha=1e-3))


def best_of_n(problem: Problem | None = None) -> Algorithm:
    """Best-of-n with distillation: the likelihood of the best of n trajectories is raised."""
    return _on_chain("best-of-n", Chain(objective="likelihood", baseline="best", best_of=4))


_STABLE_DIFFUSION: Mapping[str, Any] = {
    "learner.reward_model.loss": "mse",
    "learner.finetune.chunk_size": 8,
    "learner.finetune.chunk_trial": True,
    "learner.finetune.checkpointing": True,
}

STABLE_DIFFUSION_PRESETS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "released": (
        "the settings of the released code, which explain the paper's hours",
        {
            **_STABLE_DIFFUSION,
            "learner.reward_model.bonus_scale": 0.07,
            "learner.finetune.iterations": 10,
            "learner.finetune.batch_size": 32,
            "learner.finetune.learning_rate": 1e-3,
            "learner.finetune.learning_rate_schedule": "constant",
            "learner.finetune.weight_decay": 0.1,
            "learner.finetune.adam_beta2": 0.999,
            "learner.finetune.gradient_clip": 5.0,
            "learner.finetune.alpha": 6e-6,
            "learner.finetune.beta": 5.5e-5,
        },
    ),
    "paper": (
        "the paper's table, read literally: 100 iterations of 128 trajectories, β = 0.01 per nat",
        _STABLE_DIFFUSION,
    ),
}
"""Presets of `stable-diffusion`: a line about each, and values by path."""

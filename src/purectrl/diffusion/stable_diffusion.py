"""Stable Diffusion and FLUX with low-rank adapters, fine-tuned by a black-box reward (appendix E)."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from purectrl.core.errors import require
from purectrl.core.prices import Prices
from purectrl.core.problem import Metrics
from purectrl.diffusion import image_grid
from purectrl.diffusion.distributed import current_ranks
from purectrl.diffusion.images import Samples, diversity
from purectrl.diffusion.models import GuidedDiffusion, Params
from purectrl.diffusion.pipeline import NAME, PipelineModel, load_pipeline
from purectrl.diffusion.problem import DiffusionProblem, RewardInput
from purectrl.diffusion.reward_networks import ImageTrunk, VectorTrunk, cell_statistics
from purectrl.diffusion.rewards import (
    RewardOptions,
    RewardSpec,
    Scorer,
    black_box,
    evaluation_reward,
    reward_spec,
)
from purectrl.diffusion.rollout import MEASURES
from purectrl.diffusion.views import prompt_vectors, view_input

PRECISIONS = {"no": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
CELLS = 16
"""Without an embedding, the reward model sees the statistics of an image in this many cells in each direction."""
ROWS = 8
"""Prompts in an image grid."""


@dataclass(frozen=True, eq=False, kw_only=True)
class StableDiffusionProblem(DiffusionProblem):
    """Stable Diffusion with prompts."""

    packages: tuple[str, ...] = ("numpy", "torch", "diffusers", "transformers", "peft")
    grid_columns: ClassVar[int] = 4

    def metrics(self, samples: Samples) -> Metrics:
        """Mean reward of measured and of held-out prompts, diversity."""
        measured = np.isin(samples.conditions, self.conditions)
        return {
            "reward": float(samples.scores[measured].mean()),
            "reward_held_out": float(samples.scores[~measured].mean()),
            "diversity": diversity(samples.images, samples.conditions),
        }

    def reward_by_condition(self, samples: Samples) -> Metrics:
        """Mean reward of each prompt."""
        return {"reward_by_prompt": samples.mean_scores()}

    def save_images(self, name: str, groups: Mapping[str, Samples], directory: Path) -> list[Path]:
        """One grid of the first measured prompts and one of the first held-out prompts."""
        held_out = self.eval_conditions[len(self.conditions) :]
        files = []
        for kind, prompts in (("training", self.conditions[:ROWS]), ("held-out", held_out[:ROWS])):
            shown = {title: samples.of(prompts) for title, samples in groups.items()}
            counts = [int((samples.conditions == prompts[0]).sum()) for samples in shown.values()]
            files.append(directory / f"{name}-{kind}.png")
            image_grid.save_png(image_grid.side_by_side(shown, columns=min(self.grid_columns, *counts)), files[-1])
        return files

    def save_policy(self, params: Params, directory: Path) -> list[Path]:
        """The adapters as diffusers loads them, and q."""
        model = self.diffusion.model
        assert isinstance(model, PipelineModel)
        return model.save_lora(params, directory)


def choose_device(device: str) -> str:
    """The device that a name means: "cuda" if "auto" finds a GPU."""
    available = torch.cuda.is_available()
    require(available or device != "cuda", "device: there is no GPU that torch can use; use cpu")
    return "cuda" if available and device != "cpu" else "cpu"


@functools.lru_cache(maxsize=2)
def _model(
    place: str, precision: str, rank: int, size: int | None, device: torch.device, guidance: float
) -> PipelineModel:
    """The pipeline with adapters; runs of one process share it."""
    pipeline = load_pipeline(place, PRECISIONS[precision])
    return PipelineModel(pipeline, rank, size=size, device=device, guidance=guidance)


def reward_input(spec: RewardSpec, prompts: int | torch.Tensor) -> RewardInput:
    """The reward's own embedding if it has one, otherwise mean and variation of the image in each cell; for this number of
    prompts, or for what is known of each [prompts, d]."""
    if spec.embed is not None:
        return RewardInput(VectorTrunk(spec.width, prompts), spec.embed)
    return RewardInput(ImageTrunk(6, CELLS, prompts), lambda images: cell_statistics(images, CELLS))


def build(
    model: str | None,
    reward: str | Scorer,
    *,
    eval_reward: str | Scorer | None,
    label_levels: int,
    view: str | None,
    view_model: str | None,
    prompt_view: str,
    aesthetic_clip: str | None,
    aesthetic_head: str | None,
    prompts: tuple[str, ...],
    held_out_prompts: tuple[str, ...],
    denoising_steps: int,
    measure: str,
    guidance: float,
    flow_noise: float,
    rank: int,
    size: int | None,
    precision: str,
    device: str,
    eval_images: int,
    reward_timeout: float,
    stochastic_reward: bool,
    prices: Prices,
    rollout_batch_size: int,
    threads: int,
) -> StableDiffusionProblem:
    """The problem that `purectrl.problems.stable_diffusion_images` documents."""
    require(
        model is not None,
        "model: a Stable Diffusion pipeline is needed: its directory, or its name on the Hugging Face hub to download 4 GB, "
        f"such as {NAME}",
    )
    assert model is not None
    _check_prompts(prompts, held_out_prompts)
    require(size is None or 1 <= size <= 4096, f"size: must be between 1 and 4096 pixels, not {size}")
    require(1 <= rank <= 1_000_000, f"rank: must be between 1 and 1,000,000, not {rank}")
    kind = choose_device(device)
    require(precision != "fp16" or kind != "cpu", "precision: fp16 needs a GPU; use bf16 or no on a CPU")
    ranks = current_ranks(kind)
    options = RewardOptions(str(ranks.device), aesthetic_clip, aesthetic_head, label_levels)
    name, spec = reward_spec(reward, options)
    pipeline = _model(model, precision, rank, size, torch.device(ranks.device), guidance)
    known = prompt_vectors(pipeline.encode(prompts)) if prompt_view == "text" else len(prompts)
    if pipeline.family.embedded_guidance:  # it is an input of the network
        guidance = 1.0
    return StableDiffusionProblem(
        name="stable-diffusion",
        diffusion=GuidedDiffusion(pipeline, pipeline.process(denoising_steps, flow_noise), guidance),
        conditions=prompts,
        eval_conditions=(*prompts, *held_out_prompts),
        reward=black_box(name, spec, reward_timeout, stochastic_reward),
        eval_reward=evaluation_reward(eval_reward, options, reward_timeout),
        reward_input=reward_input(spec, known)
        if view is None
        else view_input(view, pipeline, known, view_model, ranks.device),
        measure=MEASURES[measure],
        reward_gradient=spec.gradient,
        kl_conditions=prompts[:rollout_batch_size],
        eval_images=eval_images,
        prices=prices,
        rollout_batch_size=rollout_batch_size,
        threads=threads,
        ranks=ranks,
    )


def _check_prompts(prompts: tuple[str, ...], held_out: tuple[str, ...]) -> None:
    for name, given in (("prompts", prompts), ("held_out_prompts", held_out)):
        require(len(given) >= 1, f"{name}: at least one is needed")
        require(all(prompt.strip() for prompt in given), f"{name}: must not be empty, got {given!r:.60}")
        require(len(set(given)) == len(given), f"{name}: must be distinct, got {given!r:.60}")
    both = set(prompts) & set(held_out)
    require(not both, f"held_out_prompts: {min(both, default='')!r} is measured; remove it from one of the lists")

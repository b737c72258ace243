"""Families of text-to-image pipelines of diffusers: how each encodes prompts, is called, and takes its steps.

family                     network       conditions                    steps
-------------------------  ------------  ----------------------------  --------------------------------------------
Stable Diffusion 1.x, 2.x  U-Net         tokens                        DDIM, the network predicts the noise or v
Stable Diffusion XL        U-Net         tokens, pooled                DDIM
Stable Diffusion 3         transformer   tokens, pooled                flow matching
FLUX.1                     transformer   tokens, pooled                flow matching; guidance is an input of the network

A new family is a subclass of `Family` and a line in `FAMILIES`.
"""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from diffusers.pipelines.flux.pipeline_flux import FluxPipeline, calculate_shift
from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion import StableDiffusionPipeline
from diffusers.pipelines.stable_diffusion_3.pipeline_stable_diffusion_3 import StableDiffusion3Pipeline
from diffusers.pipelines.stable_diffusion_xl.pipeline_stable_diffusion_xl import StableDiffusionXLPipeline
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from torch import Tensor

from purectrl.core.errors import require
from purectrl.diffusion.models import Encoded
from purectrl.diffusion.process import AffineSteps

TOKENS = 512
"""Largest number of tokens of the T5 encoder of Stable Diffusion 3 and FLUX."""


@dataclass(frozen=True, eq=False)
class Family(abc.ABC):
    """A loaded pipeline of one family."""

    kind: ClassVar[type]
    """The pipeline's class."""
    denoiser: ClassVar[str] = "unet"
    """The network that is fine-tuned."""
    networks: ClassVar[tuple[str, ...]]
    """All networks; those that are missing in a pipeline are optional in it."""
    others: ClassVar[tuple[str, ...]]
    """Other parts of the pipeline."""
    tokenizer: ClassVar[str] = "tokenizer"
    """The tokenizer whose length limits a prompt."""
    patch: ClassVar[int] = 1
    """Height and width of a latent must be multiples of it."""
    packed: ClassVar[int] = 1
    """Channels of the network's input per channel of a latent."""
    embedded_guidance: ClassVar[bool] = False
    """Whether guidance is an input of the network instead of a combination of two evaluations."""

    pipeline: Any

    @abc.abstractmethod
    def encode(self, prompts: list[str], device: torch.device) -> Encoded:
        """Encoded prompts."""

    @abc.abstractmethod
    def arguments(
        self, x: Tensor, steps: Tensor, condition: Encoded, guidance: float
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """The arguments of the network, positional ones and others."""

    @abc.abstractmethod
    def process(self, steps: int, shape: tuple[int, ...], noise: float) -> AffineSteps:
        """The denoising steps on the pipeline's own noise schedule, for latents of this shape; flows take `noise`."""

    def output(self, found: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The network's output as a state."""
        return found

    def empty(self, device: torch.device) -> Encoded:
        """The encoded empty condition [1, ...]."""
        return self.encode([""], device)


class _Ddim(Family):
    """U-Nets with DDIM."""

    networks = ("unet", "vae", "text_encoder")
    others = ("tokenizer", "scheduler")

    def process(self, steps: int, shape: tuple[int, ...], noise: float) -> AffineSteps:
        """DDIM on the pipeline's own noise schedule."""
        scheduler: Any = DDIMScheduler.from_config(self.pipeline.scheduler.config, clip_sample=False)
        most = scheduler.config["num_train_timesteps"] - 1
        require(1 <= steps <= most, f"denoising_steps: must lie between 1 and {most} for this model, not {steps}")
        return AffineSteps.ddim_from_scheduler(scheduler, steps)


class StableDiffusion(_Ddim):
    """Stable Diffusion 1.x and 2.x."""

    kind = StableDiffusionPipeline

    def encode(self, prompts: list[str], device: torch.device) -> Encoded:
        """Token embeddings [n, tokens, width]."""
        encoded, _ = self.pipeline.encode_prompt(prompts, device, 1, do_classifier_free_guidance=False)
        return encoded

    def arguments(
        self, x: Tensor, steps: Tensor, condition: Encoded, guidance: float
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """The token embeddings as `encoder_hidden_states`."""
        return (x, steps), {"encoder_hidden_states": condition}


class StableDiffusionXL(_Ddim):
    """Stable Diffusion XL."""

    kind = StableDiffusionXLPipeline
    networks = ("unet", "vae", "text_encoder", "text_encoder_2")
    others = ("tokenizer", "tokenizer_2", "scheduler")

    def encode(self, prompts: list[str], device: torch.device) -> Encoded:
        """Token embeddings of both encoders, and the pooled embedding of the second."""
        tokens, _, pooled, _ = self.pipeline.encode_prompt(
            prompts, device=device, num_images_per_prompt=1, do_classifier_free_guidance=False
        )
        return {"tokens": tokens, "pooled": pooled}

    def empty(self, device: torch.device) -> Encoded:
        """Zeros where the pipeline was trained with them."""
        encoded = self.encode([""], device)
        assert isinstance(encoded, dict)
        if not self.pipeline.config.force_zeros_for_empty_prompt:
            return encoded
        return {name: torch.zeros_like(tensor) for name, tensor in encoded.items()}

    def arguments(
        self, x: Tensor, steps: Tensor, condition: Encoded, guidance: float
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Also the pooled embedding and the size of the image: original size, corner of the crop, target size."""
        assert isinstance(condition, dict)
        height, width = (side * self.pipeline.vae_scale_factor for side in x.shape[-2:])
        sizes = torch.tensor([[height, width, 0, 0, height, width]], dtype=x.dtype, device=x.device)
        added = {"text_embeds": condition["pooled"], "time_ids": sizes.expand(len(x), -1)}
        return (x, steps), {"encoder_hidden_states": condition["tokens"], "added_cond_kwargs": added}


class _Flow(Family):
    """Transformers with flow matching."""

    denoiser = "transformer"
    patch = 2

    def process(self, steps: int, shape: tuple[int, ...], noise: float) -> AffineSteps:
        """Stochastic flow matching on the pipeline's own noise levels."""
        require(1 <= steps <= 1000, f"denoising_steps: must lie between 1 and 1000 for this model, not {steps}")
        scheduler, config = self.pipeline.scheduler, self.pipeline.scheduler.config
        given = (
            {"sigmas": np.linspace(1.0, 1 / steps, steps).tolist()}
            if self.uniform_levels
            else {"num_inference_steps": steps}
        )
        if config.get("use_dynamic_shifting", False):
            tokens = shape[-1] * shape[-2] // self.patch**2
            names = ("base_image_seq_len", "max_image_seq_len", "base_shift", "max_shift")
            defaults = (256, 4096, 0.5, 1.15)
            shift = calculate_shift(tokens, *(config.get(n, d) for n, d in zip(names, defaults, strict=True)))
            given["mu"] = shift
        return AffineSteps.flow_from_scheduler(scheduler, noise, **given)

    uniform_levels: ClassVar[bool] = False
    """Whether the pipeline spaces its noise levels uniformly before it shifts them."""


class StableDiffusion3(_Flow):
    """Stable Diffusion 3 and 3.5."""

    kind = StableDiffusion3Pipeline
    networks = ("transformer", "vae", "text_encoder", "text_encoder_2", "text_encoder_3")
    others = ("tokenizer", "tokenizer_2", "scheduler")

    def encode(self, prompts: list[str], device: torch.device) -> Encoded:
        """Token embeddings of all encoders, and the pooled embeddings of the first two."""
        tokens, _, pooled, _ = self.pipeline.encode_prompt(
            prompts, prompts, prompts, device=device, do_classifier_free_guidance=False
        )
        return {"tokens": tokens, "pooled": pooled}

    def arguments(
        self, x: Tensor, steps: Tensor, condition: Encoded, guidance: float
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Both embeddings."""
        assert isinstance(condition, dict)
        tokens, pooled = condition["tokens"], condition["pooled"]
        return (x,), {"timestep": steps, "encoder_hidden_states": tokens, "pooled_projections": pooled}


class Flux(_Flow):
    """FLUX.1: states are latents; the network sees them as a sequence of 2×2 patches."""

    kind = FluxPipeline
    networks = ("transformer", "vae", "text_encoder", "text_encoder_2")
    others = ("tokenizer", "tokenizer_2", "scheduler")
    tokenizer = "tokenizer_2"
    packed = 4
    embedded_guidance = True
    uniform_levels = True

    def encode(self, prompts: list[str], device: torch.device) -> Encoded:
        """Token embeddings of T5 and the pooled embedding of CLIP."""
        length = min(TOKENS, self.pipeline.tokenizer_2.model_max_length)
        tokens, pooled, _ = self.pipeline.encode_prompt(prompts, prompts, device, max_sequence_length=length)
        return {"tokens": tokens, "pooled": pooled}

    def arguments(
        self, x: Tensor, steps: Tensor, condition: Encoded, guidance: float
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Patches with their positions; guidance for the networks that were distilled with it."""
        assert isinstance(condition, dict)
        n, channels, height, width = x.shape
        patches = (
            x.reshape(n, channels, height // 2, 2, width // 2, 2).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        )
        rows, columns = torch.meshgrid(torch.arange(height // 2), torch.arange(width // 2), indexing="ij")
        positions = torch.stack([torch.zeros_like(rows), rows, columns], dim=-1).flatten(0, 1).to(x)
        given = {
            "timestep": steps / 1000,
            "encoder_hidden_states": condition["tokens"],
            "pooled_projections": condition["pooled"],
            "txt_ids": torch.zeros(condition["tokens"].shape[1], 3, dtype=x.dtype, device=x.device),
            "img_ids": positions,
        }
        if self.pipeline.transformer.config.guidance_embeds:
            given["guidance"] = torch.full((n,), guidance, dtype=torch.float32, device=x.device)
        return (patches,), given

    def output(self, found: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Patches [n, h/2·w/2, 4c] as latents [n, c, h, w]."""
        channels, height, width = shape
        patches = found.reshape(len(found), height // 2, width // 2, channels, 2, 2)
        return patches.permute(0, 3, 1, 4, 2, 5).reshape(len(found), channels, height, width)


FAMILIES: Sequence[type[Family]] = (StableDiffusion, StableDiffusionXL, StableDiffusion3, Flux)
"""The families that can be fine-tuned."""


def family_named(pipeline: str) -> type[Family] | None:
    """The family of pipelines of the class with this name.

    >>> family_named("FluxPipeline").denoiser
    'transformer'
    """
    return next((family for family in FAMILIES if family.kind.__name__ == pipeline), None)

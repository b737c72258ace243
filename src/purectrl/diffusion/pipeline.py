"""Stable Diffusion as a `DiffusionModel`: diffusers' pipeline, of which the U-Net's adapters are tuned.

in the paper  here                          meaning
------------  ----------------------------  ---------------------------------------------------------------
x(t)          [n, 4, size/8, size/8]        latents, whose standard deviation is about one
f^pre         the U-Net with fresh adapters  a fresh adapter adds nothing
f_n           the same U-Net, adapters of n  low-rank matrices beside the queries, keys, values and outputs of attention
condition     [n, 77, 768]                  the prompt as CLIP's text encoder sees it; the empty prompt is none

Adapters, latents and all arithmetic of the process are in single precision. The networks may be in half of it: then what is
inside a network is computed in half precision, and nothing else.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from diffusers import DDIMScheduler, StableDiffusionPipeline
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from purectrl.core.errors import InputError, StoreError, require
from purectrl.core.keys import Key
from purectrl.diffusion.lora import ADAPTER, add_lora
from purectrl.diffusion.models import Condition, Iterate, Weights, clip_straight_through
from purectrl.diffusion.process import Ddim, Gaussian

NAME = "stable-diffusion-v1-5/stable-diffusion-v1-5"
"""Stable Diffusion 1.5 on the Hugging Face hub."""
FETCH = (
    f"hf download {NAME} --local-dir DIR "
    "--include '*.json' --include '*.txt' --include '*/*model.safetensors' --exclude 'safety_checker/*'"
)
"""What fetches everything that is needed, 4 GB, and nothing else."""
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
NETWORKS, OTHERS = ("unet", "vae", "text_encoder"), ("tokenizer", "scheduler")
TARGETS = ("to_q", "to_k", "to_v", "to_out.0")
"""The layers of attention that get adapters."""
DECODED = 4
"""Images that pass the decoder at once."""


class PipelineModel:
    """A Stable Diffusion pipeline whose U-Net is tuned by adapters. The pipeline is changed: it gets adapters and DDIM.

    Main arguments:
        pipeline: diffusers' `StableDiffusionPipeline`, such as `load_pipeline` returns.
        rank: of the adapters.

    Other arguments:
        size: height and width of an image; 0 is what the pipeline was trained on, 512 for Stable Diffusion 1.5.
        device: where everything lives.
    """

    def __init__(self, pipeline: Any, rank: int = 4, *, size: int = 0, device: torch.device | str = "cpu") -> None:
        fresh = not hasattr(pipeline.unet, "peft_config")
        require(fresh, "pipeline: its U-Net has adapters already; load the pipeline anew, or unload them")
        self.pipeline, self.device, self._dtype = pipeline, torch.device(device), pipeline.unet.dtype
        self.shape = _shape(pipeline, size)
        for name in NETWORKS:
            getattr(pipeline, name).to(self.device).eval().requires_grad_(False)
        pipeline.scheduler = DDIMScheduler.from_config(pipeline.scheduler.config, clip_sample=False)
        # adapters start alike in every run, so that f^pre is one model
        self._unet = add_lora(pipeline.unet, rank, TARGETS, Key.from_seed(0)).eval()
        self._tunable = _adapters(self._unet)
        self._unet.requires_grad_(False)
        self._encoded: dict[str, Tensor] = {}

    def process(self, steps: int) -> Ddim:
        """The denoising steps, on the pipeline's own noise schedule."""
        most = self.pipeline.scheduler.config.num_train_timesteps - 1
        require(1 <= steps <= most, f"denoising_steps: must lie between 1 and {most} for this model, not {steps}")
        return Ddim.from_scheduler(self.pipeline.scheduler, steps)

    def pretrained(self) -> Iterate:
        """f^pre and q = N(0, I)."""
        return Iterate(dict(self._tunable), Gaussian.standard(self.shape, self.device))

    def encode(self, conditions: Sequence[Condition | None]) -> Tensor:
        """Prompts as the text encoder sees them [n, tokens, width]; each is looked at once."""
        wrong = [condition for condition in conditions if isinstance(condition, int)]
        require(not wrong, f"conditions: Stable Diffusion takes prompts, which are strings, not {wrong[:3]}")
        prompts = [condition or "" for condition in conditions]
        new = sorted({str(prompt) for prompt in prompts} - self._encoded.keys())
        if new:
            self._check_length(new)
            with torch.no_grad():
                found, _ = self.pipeline.encode_prompt(new, self.device, 1, do_classifier_free_guidance=False)
            self._encoded.update(zip(new, found.float(), strict=True))
        return torch.stack([self._encoded[str(prompt)] for prompt in prompts])

    def denoise(self, weights: Weights, x: Tensor, steps: Tensor, condition: Tensor) -> Tensor:
        """The noise in x [n, *shape]."""
        with self._half():
            given = {"encoder_hidden_states": condition.to(self._dtype)}
            noise = functional_call(self._unet, weights, (x.to(self._dtype), steps), given).sample
        return noise.to(x.dtype)

    def decode(self, x: Tensor) -> Tensor:
        """Images [n, 3, size, size] in [0, 1]; the gradient passes the clipping, and activations are computed twice."""
        parts = x.split(DECODED)
        if torch.is_grad_enabled() and x.requires_grad:
            again = {"use_reentrant": False, "preserve_rng_state": False}
            return torch.cat([checkpoint(self._decode, part, **again) for part in parts])  # type: ignore[arg-type]
        return torch.cat([self._decode(part) for part in parts])

    def _decode(self, x: Tensor) -> Tensor:
        vae = self.pipeline.vae
        with self._half():
            found = vae.decode((x / vae.config.scaling_factor).to(self._dtype)).sample
        return clip_straight_through((found.to(x.dtype) + 1) / 2)

    def _half(self) -> torch.autocast:
        """Lets single-precision adapters meet half-precision layers."""
        return torch.autocast(self.device.type, self._dtype, enabled=self._dtype in (torch.float16, torch.bfloat16))

    def _check_length(self, prompts: Sequence[str]) -> None:
        tokenizer = self.pipeline.tokenizer
        for prompt in prompts:
            count = len(tokenizer(prompt, truncation=False).input_ids)
            most = tokenizer.model_max_length
            require(count <= most, f"conditions: {prompt!r} has {count} tokens, the text encoder reads {most}")


def _shape(pipeline: Any, size: int) -> tuple[int, int, int]:
    """Of latents, for images of `size`."""
    config, scale = pipeline.unet.config, pipeline.vae_scale_factor
    size = size or config.sample_size * scale
    channels = pipeline.vae.config.latent_channels
    require(size > 0 and size % scale == 0, f"size: must be a multiple of {scale}, not {size}")
    require(
        config.in_channels == channels,
        f"model: its U-Net takes {config.in_channels} channels, its images have {channels}: one that paints from noise "
        f"is needed, such as {NAME}",
    )
    return channels, size // scale, size // scale


def _adapters(unet: nn.Module) -> Weights:
    """The adapters by name, in single precision whatever the network's."""
    found = {name: p.detach().float().clone() for name, p in unet.named_parameters() if "lora_" in name}
    return dict(sorted(found.items()))


def save_lora(iterate: Iterate, folder: Path) -> list[Path]:
    """Writes (f, q) into `folder`: adapters as diffusers has them, and the mean and the logarithm of the scale of x(0).

    Plain diffusers paints what was learned:

        pipeline.scheduler = DDIMScheduler.from_config(pipeline.scheduler.config, clip_sample=False)
        pipeline.load_lora_weights(folder)
        q = safetensors.torch.load_file(folder / "initial.safetensors")
        pipeline("cat", latents=q["mean"] + q["log_scale"].exp() * torch.randn(1, 4, 64, 64), eta=1.0)
    """
    layers = {name.replace(f".{ADAPTER}.", "."): w.detach().cpu().contiguous() for name, w in iterate.weights.items()}
    StableDiffusionPipeline.save_lora_weights(folder, unet_lora_layers=layers)
    initial = {name: tensor.detach().cpu().contiguous() for name, tensor in iterate.initial._asdict().items()}
    save_file(initial, folder / "initial.safetensors")
    return [folder / "pytorch_lora_weights.safetensors", folder / "initial.safetensors"]


def load_pipeline(place: Path | str, dtype: torch.dtype = torch.float32) -> StableDiffusionPipeline:
    """The pipeline in a directory, or that of a name on the hub; the network is asked for names alone.

    Weights are read from safetensors files: loading runs no code.

    Main arguments:
        dtype: of all weights: float32, or on a GPU half of it, float16 or bfloat16.
    """
    folder = Path(place).expanduser()
    local = folder.is_dir()
    if local:
        _check_folder(folder)
    elif not HUB_NAME.fullmatch(str(place)):
        raise InputError(
            f"model: {str(place)!r} is no directory, and no name on the hub such as {NAME}; fetch one with: {FETCH}"
        )
    try:
        return StableDiffusionPipeline.from_pretrained(
            folder if local else str(place),
            local_files_only=local,
            use_safetensors=True,
            dtype=dtype,
            safety_checker=None,
            requires_safety_checker=False,
        )
    except Exception as error:  # diffusers, transformers, safetensors and the hub each raise their own
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        where = (
            f"the weights in {folder} are damaged, or of another kind"
            if local
            else f"{str(place)!r} is neither a directory that exists nor a name that the hub can be asked for here"
        )
        raise StoreError(f"model: {where} ({reason}); fetch it with: {FETCH}") from None


def _check_folder(folder: Path) -> None:
    """Raises if a part of the pipeline is missing, and says which."""
    try:
        index = json.loads((folder / "model_index.json").read_text(encoding="utf-8"))
        kind = index["_class_name"]
    except (OSError, ValueError, KeyError, TypeError):
        raise StoreError(
            f"model: {folder} holds no pipeline of diffusers: it has no model_index.json that can be read; "
            f"fetch one with: {FETCH}"
        ) from None
    require(kind == "StableDiffusionPipeline", f"model: {folder} holds a {kind}, a StableDiffusionPipeline is needed")
    wanted = [(name, "config.json") for name in NETWORKS] + [(name, "*.safetensors") for name in NETWORKS]
    wanted += [(name, "*.json") for name in OTHERS]
    missing = [f"{name}/{pattern}" for name, pattern in wanted if not any((folder / name).glob(pattern))]
    if missing:
        raise StoreError(f"model: {folder} is incomplete, it lacks {', '.join(missing)}; fetch it with: {FETCH}")

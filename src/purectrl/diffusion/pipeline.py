"""Text-to-image pipelines of diffusers as a `DiffusionModel`, of which adapters of the denoiser are fine-tuned.

in the paper  here                              meaning
------------  --------------------------------  -----------------------------------------------------------------------
x(t)          [n, channels, size/8, size/8]     latents, whose standard deviation is about one
f^pre         the denoiser with new adapters    a new adapter adds nothing
f_n           the same network, adapters of n   low-rank matrices beside the queries, keys, values and outputs of attention
condition     by family                         the prompt, encoded; the empty prompt is no condition

`pipeline_families` has what differs between Stable Diffusion 1.x and 2.x, XL, 3 and FLUX. Adapters, latents and all
arithmetic of the process are in single precision. The networks may be in half precision: then only what is inside a network
is computed in half precision.
"""

import functools
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from purectrl.core.errors import InputError, StoreError, require
from purectrl.core.io import read_json, write_files
from purectrl.core.keys import Key
from purectrl.diffusion.lora import ADAPTER, add_lora
from purectrl.diffusion.models import (
    Condition,
    Encoded,
    Params,
    Weights,
    clip_straight_through,
    each_tensor,
    parameter_bytes,
    save_initial,
)
from purectrl.diffusion.pipeline_families import FAMILIES, Family, family_named
from purectrl.diffusion.process import AffineSteps, Gaussian

NAME = "stable-diffusion-v1-5/stable-diffusion-v1-5"
"""Stable Diffusion 1.5 on the Hugging Face hub."""
DOWNLOAD = (
    f"hf download {NAME} --local-dir DIR "
    "--include '*.json' --include '*.txt' --include '*/*model.safetensors' --exclude 'safety_checker/*'"
)
"""The command that downloads what is needed, 4 GB."""
WITHOUT_CHECKER: dict[str, Any] = {"safety_checker": None, "requires_safety_checker": False}
"""The safety checker of Stable Diffusion 1.x and 2.x is neither downloaded nor loaded."""
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
LIBRARIES = ("diffusers", "transformers", "stable_diffusion")
"""The libraries that a pipeline may take its parts from; the last one is the name of diffusers for parts of its own."""
TARGETS = ("to_q", "to_k", "to_v", "to_out.0")
"""The attention layers with adapters, in U-Nets and in transformers."""
DECODE_BATCH_SIZE = 4
"""Images per call of the decoder."""


class PipelineModel:
    """A pipeline with adapters in its denoiser. The given pipeline is modified: it gets adapters.

    Main arguments:
        pipeline: a pipeline of one of the `FAMILIES`, such as `load_pipeline` returns.
        rank: rank of the adapters.

    Other arguments:
        size: height and width of an image; by default what the pipeline was trained on, 512 for Stable Diffusion 1.5.
        device: where everything is computed.
        guidance: what a network is told that has guidance as an input (FLUX).
    """

    def __init__(
        self,
        pipeline: Any,
        rank: int = 4,
        *,
        size: int | None = None,
        device: torch.device | str = "cpu",
        guidance: float = 3.5,
    ) -> None:
        self.family, self.device, self.guidance = _family(pipeline), torch.device(device), guidance
        self.pipeline, name = pipeline, self.family.denoiser
        network = getattr(pipeline, name)
        without_adapters = not hasattr(network, "peft_config")
        require(without_adapters, f"pipeline: its {name} already has adapters; load the pipeline again, or unload them")
        self._dtype = network.dtype
        self.shape = _shape(self.family, size)
        for network in self._networks():
            network.to(self.device).eval().requires_grad_(False)
        # adapters are the same in every run, so that f^pre is one model
        self._denoiser = add_lora(getattr(pipeline, name), rank, TARGETS, Key.from_seed(0)).eval()
        self._trainable = _adapters(self._denoiser)
        self._denoiser.requires_grad_(False)
        self._encoded: dict[str | None, Encoded] = {}

    def _networks(self) -> list[nn.Module]:
        found = [getattr(self.pipeline, name, None) for name in self.family.networks]
        return [network for network in found if network is not None]

    @property
    def loss_scale(self) -> float:
        """Factor that keeps small gradients above zero in half precision."""
        return 1024.0 if self._dtype == torch.float16 else 1.0

    @property
    def weight_bytes(self) -> int:
        """Memory of denoiser, decoder and text encoders."""
        return parameter_bytes(*self._networks())

    def process(self, steps: int, flow_noise: float = 0.7) -> AffineSteps:
        """The denoising steps, on the pipeline's own noise schedule; `flow_noise` is the noise of flow matching."""
        return self.family.process(steps, self.shape, flow_noise)

    def pretrained(self) -> Params:
        """f^pre and q = N(0, I)."""
        return Params(dict(self._trainable), Gaussian.standard(self.shape, self.device))

    def encode(self, conditions: Sequence[Condition | None]) -> Encoded:
        """Encoded prompts; each is encoded once."""
        integers = [condition for condition in conditions if isinstance(condition, int)]
        require(not integers, f"conditions: must be prompts, which are strings, not {integers[:3]}")
        prompts = [None if condition is None else str(condition) for condition in conditions]
        new = sorted({prompt for prompt in prompts if prompt is not None} - self._encoded.keys())
        with torch.no_grad():
            if new:
                self._check_length(new)
                self._keep(new, self.family.encode(new, self.device))
            if None in prompts and None not in self._encoded:
                self._keep([None], self.family.empty(self.device))
        return _stack([self._encoded[prompt] for prompt in prompts])

    def _keep(self, prompts: Sequence[str | None], encoded: Encoded) -> None:
        for i, prompt in enumerate(prompts):
            self._encoded[prompt] = each_tensor(encoded, lambda tensor, i=i: tensor[i].float())

    def denoise(self, weights: Weights, x: Tensor, steps: Tensor, condition: Encoded) -> Tensor:
        """The network's output for x [n, *shape]."""
        with self._half():
            given = each_tensor(condition, lambda tensor: tensor.to(self._dtype))
            arguments, others = self.family.arguments(x.to(self._dtype), steps, given, self.guidance)
            found = functional_call(self._denoiser, weights, arguments, {**others, "return_dict": False})[0]
        return self.family.output(found.to(x.dtype), self.shape)

    def decode(self, x: Tensor) -> Tensor:
        """Images [n, 3, size, size] in [0, 1]; the gradient passes through the clipping, activations are recomputed."""
        parts = x.split(DECODE_BATCH_SIZE)
        if torch.is_grad_enabled() and x.requires_grad:
            decode = functools.partial(checkpoint, self._decode, use_reentrant=False, preserve_rng_state=False)
            return torch.cat([decode(part) for part in parts])  # pyright: ignore[reportArgumentType] (untyped in torch)
        return torch.cat([self._decode(part) for part in parts])

    def _decode(self, x: Tensor) -> Tensor:
        vae = self.pipeline.vae
        latents = x / vae.config.scaling_factor
        if (shift := getattr(vae.config, "shift_factor", None)) is not None:
            latents = latents + shift
        with self._half():
            images = vae.decode(latents.to(self._dtype)).sample
        return clip_straight_through((images.to(x.dtype) + 1) / 2)

    def _half(self) -> AbstractContextManager[Any]:
        """Casts between single-precision adapters and half-precision layers."""
        if self._dtype not in (torch.float16, torch.bfloat16):
            return nullcontext()
        return torch.autocast(self.device.type, self._dtype)

    def _check_length(self, prompts: Sequence[str]) -> None:
        tokenizer = getattr(self.pipeline, self.family.tokenizer)
        for prompt in prompts:
            count = len(tokenizer(prompt, truncation=False).input_ids)
            most = tokenizer.model_max_length
            require(count <= most, f"conditions: {prompt!r} has {count} tokens, the text encoder accepts {most}")

    def save_lora(self, params: Params, folder: Path) -> list[Path]:
        """Writes (f, q) into `folder`: adapters in diffusers' format, and the mean and log scale of x(0).

        Plain diffusers generates from them, here for Stable Diffusion 1.5:

            pipeline.scheduler = DDIMScheduler.from_config(pipeline.scheduler.config, clip_sample=False)
            pipeline.load_lora_weights(folder)
            q = safetensors.torch.load_file(folder / "initial.safetensors")
            pipeline("cat", latents=q["mean"] + q["log_scale"].exp() * torch.randn(1, 4, 64, 64), eta=1.0)
        """
        layers = {
            name.replace(f".{ADAPTER}.", "."): w.detach().cpu().contiguous() for name, w in params.weights.items()
        }
        kind: Any = self.family.kind
        given = {f"{self.family.denoiser}_lora_layers": layers}
        write_files(folder, lambda place: kind.save_lora_weights(place, **given))
        save_initial(params, folder / "initial.safetensors")
        return [folder / "pytorch_lora_weights.safetensors", folder / "initial.safetensors"]


_SUPPORTED = f"use one of {', '.join(family.kind.__name__ for family in FAMILIES)}"


def _stack(parts: Sequence[Encoded]) -> Encoded:
    """Encoded conditions of one each as encoded conditions of all."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.stack([part for part in parts if isinstance(part, Tensor)])
    return {name: torch.stack([part[name] for part in parts if isinstance(part, dict)]) for name in first}


def _family(pipeline: Any) -> Family:
    family = next((one for one in FAMILIES if isinstance(pipeline, one.kind)), None)
    if family is None:
        raise InputError(f"pipeline: a {type(pipeline).__name__} cannot be fine-tuned; {_SUPPORTED}")
    return family(pipeline)


def _shape(family: Family, size: int | None) -> tuple[int, int, int]:
    """The shape of latents for images of `size`."""
    pipeline = family.pipeline
    config, scale = getattr(pipeline, family.denoiser).config, pipeline.vae_scale_factor
    trained = getattr(config, "sample_size", None) or getattr(pipeline, "default_sample_size", 64)
    size = int(trained * scale) if size is None else size
    channels, multiple = pipeline.vae.config.latent_channels, scale * family.patch
    require(size > 0 and size % multiple == 0, f"size: must be a multiple of {multiple}, not {size}")
    require(
        config.in_channels == family.packed * channels,
        f"model: its denoiser needs {config.in_channels} channels, its latents have {channels}; use a text-to-image model "
        f"such as {NAME}",
    )
    return channels, size // scale, size // scale


def _adapters(network: nn.Module) -> Weights:
    """The adapters by name, always in single precision."""
    found = {name: p.detach().float().clone() for name, p in network.named_parameters() if "lora_" in name}
    return dict(sorted(found.items()))


def load_pipeline(place: Path | str, dtype: torch.dtype = torch.float32) -> Any:
    """The pipeline in a directory, or with a name on the hub; only names are downloaded.

    Weights are read from safetensors files: loading runs no code.

    Main arguments:
        dtype: type of all weights: float32, float16 (GPU only) or bfloat16.
    """
    folder = Path(place).expanduser()
    local = folder.exists()
    if local:
        _check_folder(folder)
    elif not HUB_NAME.fullmatch(str(place)):
        raise InputError(
            f"model: {str(place)!r} is neither a directory nor a name on the hub such as {NAME}; "
            f"download one with: {DOWNLOAD}"
        )
    try:
        optional = _left_out(folder) if local else WITHOUT_CHECKER
        found: Any = DiffusionPipeline.from_pretrained(
            folder if local else str(place), local_files_only=local, use_safetensors=True, dtype=dtype, **optional
        )
    except Exception as error:  # diffusers, transformers, safetensors and the hub each raise their own types
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        where = (
            f"the weights in {folder} are damaged or of another kind"
            if local
            else f"{str(place)!r} is neither an existing directory nor a name that can be downloaded from the hub here"
        )
        raise StoreError(f"model: {where} ({reason}); download it with: {DOWNLOAD}") from None
    _family(found)
    return found


def _left_out(folder: Path) -> dict[str, Any]:
    """Arguments for parts that are not loaded: the safety checker, and those that the pipeline was saved without."""
    index = read_json(folder / "model_index.json", follow=True)
    absent = {name: None for name, part in index.items() if isinstance(part, list) and part[:1] == [None]}
    return absent | (WITHOUT_CHECKER if index["_class_name"] == "StableDiffusionPipeline" else {})


def _check_folder(folder: Path) -> None:
    """Raises if a part of the pipeline is missing and names it."""
    try:
        index = read_json(folder / "model_index.json", follow=True)
    except StoreError as error:
        raise StoreError(
            f"model: {folder} is not a pipeline of diffusers: it has no readable model_index.json ({error}); "
            f"download one with: {DOWNLOAD}"
        ) from None
    kind = index.get("_class_name") if isinstance(index, dict) else None
    family = family_named(str(kind))
    if family is None:
        raise InputError(f"model: {folder} is a {kind!s:.60}, which cannot be fine-tuned; {_SUPPORTED}")
    for name, part in index.items():  # diffusers imports the library that a part names
        if isinstance(part, list) and part[:1] != [None] and part[:1] not in [[library] for library in LIBRARIES]:
            raise StoreError(
                f"model: {folder} takes its {name} from {part[0]!r:.60}, expected {' or '.join(LIBRARIES)}"
            )
    networks = [name for name in family.networks if isinstance(index.get(name), list) and index[name][:1] != [None]]
    wanted = [(name, "config.json") for name in networks] + [(name, "*.safetensors") for name in networks]
    wanted += [(name, "*.json") for name in family.others]
    missing = [f"{name}/{pattern}" for name, pattern in wanted if not any((folder / name).glob(pattern))]
    if missing:
        raise StoreError(f"model: {folder} is incomplete, it lacks {', '.join(missing)}; download it with: {DOWNLOAD}")

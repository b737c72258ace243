"""What a reward model sees of an image: the reward's own embedding, a network's, or a function of yours.

A reward model learns from some thousand labels, so that it should see an embedding in which the reward is simple: CLIP's or
DINO's for what an image shows, 16 × 16 cells for brightness and contrast.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from purectrl.core.errors import InputError, StoreError, choose, require
from purectrl.core.references import load_reference
from purectrl.diffusion.models import DiffusionModel, Encoded
from purectrl.diffusion.problem import RewardInput
from purectrl.diffusion.reward_networks import VectorTrunk
from purectrl.diffusion.rollout import Embed

NAMES = {"clip": "openai/clip-vit-large-patch14", "dino": "facebook/dinov2-base"}
"""Networks that `view` can name, with their names on the Hugging Face hub."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of the pixels that DINO was trained on, by channel."""


def view_input(
    view: str,
    model: DiffusionModel,
    conditions: int | Tensor,
    place: str | None = None,
    device: torch.device | str = "cpu",
) -> RewardInput:
    """The input of the reward model that `view` names, and a network for it.

    Main arguments:
        view: `clip`, `dino`, or `module:function` or `path/file.py:function`, called with images as a torch tensor
            [n, channels, height, width] in [0, 1], returning embeddings [n, width]; differentiable.
        model: the diffusion model, whose images are embedded.
        conditions: the number of conditions, or what is known of each [conditions, d].
        place: directory of the network, or its name on the hub (`clip`, `dino`).
    """
    embed: Embed
    if ":" in view:
        found: Any = load_reference(view)
        require(callable(found), f"view: {view!r} is not callable; it must be a function of images [n, channels, h, w]")
        embed = found
    else:
        embed = NETWORKS[choose("view", view, NETWORKS)](place, str(device))
    with torch.no_grad():
        example = embed(model.decode(torch.zeros(2, *model.shape, device=model.device)))
    if not isinstance(example, Tensor) or example.ndim != 2 or len(example) != 2:
        shape = list(example.shape) if isinstance(example, Tensor) else type(example).__name__
        raise InputError(f"view: {view!r} returned {shape} for 2 images, expected embeddings [2, width]")
    return RewardInput(VectorTrunk(example.shape[1], conditions), embed)


def clip(place: str | None, device: str) -> Embed:
    """CLIP's image embedding, of length √width."""
    from purectrl.diffusion.rewards.aesthetic import load_clip, preprocess

    network: Any = load_clip(_place("clip", place)).float().to(device).eval().requires_grad_(False)

    def embed(images: Tensor) -> Tensor:
        found = network(pixel_values=preprocess(images, network.config.image_size)).image_embeds
        return found.shape[1] ** 0.5 * found / found.norm(dim=1, keepdim=True)

    return embed


def dino(place: str | None, device: str) -> Embed:
    """The class token of DINO, of length √width."""
    from transformers import AutoModel

    from purectrl.diffusion.rewards.aesthetic import preprocess

    chosen = _place("dino", place)
    try:
        network: Any = AutoModel.from_pretrained(
            chosen, trust_remote_code=False, use_safetensors=True, local_files_only=Path(chosen).exists()
        )
    except Exception as error:  # transformers, safetensors and the hub each raise their own types
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise StoreError(
            f"view_model: {chosen} cannot be loaded ({reason}); download it with: hf download {NAMES['dino']}"
        ) from None
    network = network.float().to(device).eval().requires_grad_(False)
    size = min(int(network.config.image_size), 224)  # DINO accepts any size; it was trained on 518 at the end

    def embed(images: Tensor) -> Tensor:
        found = network(pixel_values=preprocess(images, size, MEAN, STD)).pooler_output
        return found.shape[1] ** 0.5 * found / found.norm(dim=1, keepdim=True)

    return embed


def _place(view: str, place: str | None) -> str:
    if place is None:
        raise InputError(
            f"view_model: the view {view!r} needs a network; give its directory or its name on the hub, {NAMES[view]}"
        )
    return place


def prompt_vectors(encoded: Encoded) -> Tensor:
    """What a reward model knows of each prompt [n, d]: its pooled text embedding, or the mean of its tokens' embeddings,
    without what all prompts have in common; the mean of their squares is 1.

    >>> prompt_vectors({"tokens": torch.zeros(2, 5, 3), "pooled": torch.tensor([[1.0, 4.0], [1.0, 0.0]])}).norm(dim=1)
    tensor([1.4142, 1.4142])
    """
    vectors = encoded.mean(1) if isinstance(encoded, Tensor) else encoded["pooled"]
    centred = vectors - vectors.mean(0)
    return centred / centred.square().mean().sqrt().clamp(min=1e-8)


NETWORKS: dict[str, Callable[[str | None, str], Embed]] = {"clip": clip, "dino": dino}
"""Views by the names that a problem's `view` takes. A new one is a function and a line here."""

"""The LAION Aesthetics V2 predictor: a rating of an image by people, from about 1 to 10, from a head on CLIP ViT-L/14.

The head is a chain of affine layers on CLIP's image embedding, normalised to length one. The weights are not part of this
package: CLIP is `openai/clip-vit-large-patch14` on the Hugging Face hub, the head `sac+logos+ava1-l14-linearMSE.pth` of the
repository christophschuhmann/improved-aesthetic-predictor, which is also on the hub. Both may be paths.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import CLIPVisionModelWithProjection

from purectrl.core.errors import StoreError, require
from purectrl.diffusion.rewards.reward import Condition

CLIP = "openai/clip-vit-large-patch14"
HEAD = "trl-lib/ddpo-aesthetic-predictor"
HEAD_FILE = "aesthetic-model.pth"
MEAN = (0.48145466, 0.4578275, 0.40821073)
"""Mean and standard deviation of the pixels that CLIP was trained on, by channel."""
STD = (0.26862954, 0.26130258, 0.27577711)


class Aesthetic:
    """`(images, conditions) -> scores`; conditions are not used.

    Main arguments:
        clip: directory with a CLIP vision model as transformers saves it, or its name on the hub.
        head: file with the head (.safetensors or .pth), or the name of a repository on the hub that has `HEAD_FILE`.

    Other arguments:
        device: where to compute.
        batch_size: images per forward pass.
    """

    def __init__(
        self, clip: Path | str = CLIP, head: Path | str = HEAD, *, device: str = "cpu", batch_size: int = 32
    ) -> None:
        require(batch_size >= 1, f"batch_size: must be at least 1, not {batch_size}")
        self._clip: Any = load_clip(clip).float().to(device).eval().requires_grad_(False)
        self._layers = [(w.to(device), b.to(device)) for w, b in _load_head(head)]
        self._device, self._batch_size = device, batch_size
        width, wanted = self._clip.config.projection_dim, self._layers[0][0].shape[1]
        require(width == wanted, f"head: needs {wanted} features, {clip} has {width}; ViT-L/14 has 768")

    @property
    def width(self) -> int:
        """The dimension of the embedding."""
        return self._clip.config.projection_dim

    @torch.no_grad()
    def __call__(self, images: np.ndarray, conditions: Sequence[Condition]) -> np.ndarray:
        """images [n, 1 or 3, h, w] in [0, 1] -> scores [n]."""
        scores = [self._score(images[i : i + self._batch_size]) for i in range(0, len(images), self._batch_size)]
        return torch.cat(scores).double().cpu().numpy()

    def _score(self, images: np.ndarray) -> Tensor:
        return self.differentiable(torch.from_numpy(images).to(self._device))

    def differentiable(self, images: Tensor) -> Tensor:
        """images [n, 1 or 3, h, w] in [0, 1] -> scores [n], differentiable in the images."""
        x = self.embed(images)
        for weight, bias in self._layers:
            x = torch.nn.functional.linear(x, weight, bias)
        return x[:, 0]

    def embed(self, images: Tensor) -> Tensor:
        """images [n, 1 or 3, h, w] in [0, 1] -> CLIP's embeddings of length one [n, width]; differentiable."""
        x = self._clip(pixel_values=preprocess(images, self._clip.config.image_size)).image_embeds
        return x / x.norm(dim=1, keepdim=True)


def preprocess(images: Tensor, size: int, mean: Sequence[float] = MEAN, std: Sequence[float] = STD) -> Tensor:
    """images [n, 1 or 3, h, w] in [0, 1] -> CLIP's input [n, 3, size, size]: scaled by the shorter side, cropped."""
    n, channels, height, width = images.shape
    require(channels in (1, 3), f"images: must have 1 or 3 channels, not {channels}")
    scale = size / min(height, width)
    shape = (max(size, round(scale * height)), max(size, round(scale * width)))
    images = torch.nn.functional.interpolate(images, shape, mode="bicubic", antialias=True).clamp(0, 1)
    top, left = (shape[0] - size) // 2, (shape[1] - size) // 2
    images = images[:, :, top : top + size, left : left + size].expand(n, 3, size, size)
    centre, scales = (torch.tensor(row, device=images.device)[:, None, None] for row in (mean, std))
    return (images - centre) / scales


def load_clip(place: Path | str) -> nn.Module:
    """CLIP's vision model in a directory, or with a name on the hub."""
    if Path(place).exists() and not (Path(place) / "config.json").is_file():
        raise StoreError(f"clip: {place} is not a directory that transformers saved: it has no config.json")
    try:
        return CLIPVisionModelWithProjection.from_pretrained(str(place), local_files_only=Path(place).exists())
    except Exception as error:  # transformers, safetensors and the hub each raise their own types
        raise StoreError(f"clip: {_cause(place, error)}; download it with: hf download {CLIP}") from None


def _load_head(place: Path | str) -> list[tuple[Tensor, Tensor]]:
    """The affine layers, (weight, bias) each, in order."""
    try:
        file = Path(place) if Path(place).exists() else _from_hub(str(place))
        state = load_file(file) if file.suffix == ".safetensors" else torch.load(file, "cpu", weights_only=True)
    except Exception as error:
        raise StoreError(f"head: {_cause(place, error)}; download it with: hf download {HEAD} {HEAD_FILE}") from None
    try:
        numbers = sorted(int(name.split(".")[1]) for name in state if name.endswith(".weight"))
        layers = [(state[f"layers.{i}.weight"].float(), state[f"layers.{i}.bias"].float()) for i in numbers]
    except (AttributeError, IndexError, KeyError, ValueError):
        raise StoreError(f"head: {file} has no layers named layers.0.weight, layers.0.bias, ...") from None
    chained = all(b[0].shape[1] == a[0].shape[0] for a, b in pairwise(layers))
    if not layers or not chained or layers[-1][0].shape[0] != 1:
        raise StoreError(f"head: the layers in {file} do not form a chain that ends in one output")
    return layers


def _from_hub(name: str) -> Path:
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(name, HEAD_FILE))


def _cause(place: Path | str, error: Exception) -> str:
    """Why the weights at `place` cannot be loaded, with the first line of the reason."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if Path(place).exists():
        return f"the weights in {place} are damaged or of another kind ({reason})"
    return f"{str(place)!r} is neither an existing path nor a name that can be downloaded from the hub here ({reason})"

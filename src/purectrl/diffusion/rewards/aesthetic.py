"""The LAION Aesthetics V2 predictor: how much people like an image, from about 1 to 10, by a head on CLIP ViT-L/14.

The head is a chain of affine layers on CLIP's image embedding, scaled to length one. Neither comes with this package:
CLIP is `openai/clip-vit-large-patch14` on the Hugging Face hub, the head `sac+logos+ava1-l14-linearMSE.pth` of the
repository christophschuhmann/improved-aesthetic-predictor, which the hub has, too. Both may be paths.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import CLIPVisionModelWithProjection

from purectrl.core.errors import StoreError, require
from purectrl.diffusion.rewards.reward import Condition

CLIP = "openai/clip-vit-large-patch14"
HEAD = "trl-lib/ddpo-aesthetic-predictor"
HEAD_FILE = "aesthetic-model.pth"
MEAN = (0.48145466, 0.4578275, 0.40821073)
"""Of the pixels that CLIP was trained on, by channel; and their spread."""
SPREAD = (0.26862954, 0.26130258, 0.27577711)


class Aesthetic:
    """`(images, conditions) -> scores`; conditions do not matter.

    Main arguments:
        clip: directory with a CLIP vision model as transformers saves it, or its name on the hub.
        head: file with the head (.safetensors or .pth), or the name of a repository on the hub that has `HEAD_FILE`.

    Other arguments:
        device: where to compute.
        batch: images at once.
    """

    def __init__(
        self, clip: Path | str = CLIP, head: Path | str = HEAD, *, device: str = "cpu", batch: int = 32
    ) -> None:
        require(batch >= 1, f"batch: at least 1, not {batch}")
        self._clip = _load_clip(clip).float().to(device).eval().requires_grad_(False)
        self._layers = [(w.to(device), b.to(device)) for w, b in _load_head(head)]
        self._device, self._batch = device, batch
        width, wanted = self._clip.config.projection_dim, self._layers[0][0].shape[1]
        require(width == wanted, f"head: takes {wanted} features, and {clip} gives {width}; ViT-L/14 gives 768")

    @property
    def width(self) -> int:
        """Numbers in an embedding."""
        return self._clip.config.projection_dim

    @torch.no_grad()
    def __call__(self, images: np.ndarray, conditions: Sequence[Condition]) -> np.ndarray:
        """images [n, 1 or 3, h, w] in [0, 1] -> scores [n]."""
        scores = [self._score(images[i : i + self._batch]) for i in range(0, len(images), self._batch)]
        return torch.cat(scores).double().cpu().numpy()

    def _score(self, images: np.ndarray) -> Tensor:
        x = self.embed(torch.from_numpy(images).to(self._device))
        for weight, bias in self._layers:
            x = torch.nn.functional.linear(x, weight, bias)
        return x[:, 0]

    def embed(self, images: Tensor) -> Tensor:
        """images [n, 1 or 3, h, w] in [0, 1] -> CLIP's embeddings of length one [n, width]; differentiable."""
        x = self._clip(pixel_values=preprocess(images, self._clip.config.image_size)).image_embeds
        return x / x.norm(dim=1, keepdim=True)


def preprocess(images: Tensor, size: int) -> Tensor:
    """images [n, 1 or 3, h, w] in [0, 1] -> [n, 3, size, size] as CLIP takes them: shorter side scaled, middle cut out."""
    n, channels, height, width = images.shape
    require(channels in (1, 3), f"images: 1 or 3 channels, not {channels}")
    scale = size / min(height, width)
    shape = (max(size, round(scale * height)), max(size, round(scale * width)))
    images = torch.nn.functional.interpolate(images, shape, mode="bicubic", antialias=True).clamp(0, 1)
    top, left = (shape[0] - size) // 2, (shape[1] - size) // 2
    images = images[:, :, top : top + size, left : left + size].expand(n, 3, size, size)
    mean, spread = (torch.tensor(row, device=images.device)[:, None, None] for row in (MEAN, SPREAD))
    return (images - mean) / spread


def _load_clip(place: Path | str) -> CLIPVisionModelWithProjection:
    if Path(place).exists() and not (Path(place) / "config.json").is_file():
        raise StoreError(f"clip: {place} is no directory that transformers saved: it has no config.json")
    try:
        return CLIPVisionModelWithProjection.from_pretrained(str(place))
    except Exception as error:  # transformers, safetensors and the hub each raise their own
        raise StoreError(f"clip: {_cause(place, error)}; fetch it with: hf download {CLIP}") from None


def _load_head(place: Path | str) -> list[tuple[Tensor, Tensor]]:
    """The affine layers, (weight, bias) each, in order."""
    try:
        file = Path(place) if Path(place).is_file() else _from_hub(str(place))
        state = load_file(file) if file.suffix == ".safetensors" else torch.load(file, "cpu", weights_only=True)
    except Exception as error:
        raise StoreError(f"head: {_cause(place, error)}; fetch it with: hf download {HEAD} {HEAD_FILE}") from None
    try:
        numbers = sorted(int(name.split(".")[1]) for name in state if name.endswith(".weight"))
        layers = [(state[f"layers.{i}.weight"].float(), state[f"layers.{i}.bias"].float()) for i in numbers]
    except (AttributeError, IndexError, KeyError, ValueError):
        raise StoreError(f"head: {file} holds no chain of layers named layers.0.weight, layers.0.bias, ...") from None
    chained = all(b[0].shape[1] == a[0].shape[0] for a, b in pairwise(layers))
    if not layers or not chained or layers[-1][0].shape[0] != 1:
        raise StoreError(f"head: the layers in {file} do not form a chain that ends in one number")
    return layers


def _from_hub(name: str) -> Path:
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(name, HEAD_FILE))


def _cause(place: Path | str, error: Exception) -> str:
    """What went wrong with weights that are at `place`, or should be; the first line of the reason is the one that tells."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if Path(place).exists():
        return f"the weights in {place} are damaged, or of another kind ({reason})"
    return f"{str(place)!r} is neither a path that exists nor a name that the hub can be asked for here ({reason})"

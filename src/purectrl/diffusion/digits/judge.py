"""A second opinion on digits: a classifier that learned from the half of the data which the denoiser has never seen.

A tuned model that pleases the reward and not the judge has learned to please the reward. How alike its samples have
become is the other sign of it: `diversity`.
"""

from pathlib import Path

import numpy as np
import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from purectrl.core.errors import StoreError, require
from purectrl.diffusion.digits.data import CLASSES, SIZE
from purectrl.diffusion.digits.network import REMEDY, WEIGHTS, redraw
from purectrl.diffusion.pictures import spread_within


class Judge(nn.Module):
    """Two convolutions and two layers, 0.08 million weights: images in [0, 1] -> logits [n, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(24, 48, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(48 * (SIZE // 4) ** 2, 96),
            nn.ReLU(),
            nn.Linear(96, CLASSES),
        )

    def forward(self, images: Tensor) -> Tensor:
        """images [n, 1, 16, 16] in [0, 1] -> logits [n, 10]."""
        return self.layers(2 * images - 1)

    @torch.no_grad()
    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """images [n, 1, 16, 16] in [0, 1] -> [n, 10], rows that sum to one."""
        check_images(images)
        logits = [self(rows) for rows in torch.from_numpy(np.ascontiguousarray(images, np.float32)).split(256)]
        return torch.cat(logits).softmax(dim=1).numpy()

    def agrees(self, images: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """Whether each image shows its class, in the judge's opinion: [n] bool; the mean is the accuracy."""
        require(
            len(images) == len(classes), f"classes: {len(images)} images and {len(classes)} classes do not go together"
        )
        return self.probabilities(images).argmax(axis=1) == np.asarray(classes)


def untrained(generator: torch.Generator) -> Judge:
    """A judge with random weights, drawn from `generator` alone."""
    with torch.random.fork_rng(devices=[]):  # layers draw from the global generator when they are built
        judge = Judge()
    for module in judge.modules():
        redraw(module, generator)
    return judge


def pretrained(file: Path | str | None = None) -> Judge:
    """The judge in a safetensors file, ready to ask; without `file`, the one that comes with the package."""
    file = WEIGHTS / "judge.safetensors" if file is None else Path(file)
    if not file.is_file():
        raise StoreError(f"the weights of the judge are missing: {file} does not exist; {REMEDY}")
    judge = Judge()
    try:
        judge.load_state_dict({name: value.float() for name, value in load_file(file).items()})
    except (safetensors.SafetensorError, RuntimeError) as error:
        raise StoreError(f"the weights of the judge in {file} are damaged ({error}); {REMEDY}") from None
    return judge.eval()


def diversity(images: np.ndarray, classes: np.ndarray) -> float:
    """How different the images of one class are: the standard deviation of a pixel within a class, averaged.

    Zero if all images of a class are the same.

    Main arguments:
        images: [n, 1, 16, 16] in [0, 1].
        classes: [n], each at least twice.

    >>> half = np.stack([np.zeros((1, 16, 16)), np.ones((1, 16, 16))])
    >>> round(diversity(half, np.array([4, 4])), 3), diversity(half[[0, 0]], np.array([4, 4]))
    (0.707, 0.0)
    """
    check_images(images)
    require(len(images) == len(classes), f"classes: {len(images)} images and {len(classes)} classes do not go together")
    return spread_within(images, np.asarray(classes))


def check_images(images: np.ndarray) -> None:
    """Raises unless the images are digits of ours: [n, 1, 16, 16] with values in [0, 1]."""
    require(
        images.ndim == 4 and images.shape[1:] == (1, SIZE, SIZE) and len(images) > 0,
        f"images: must have shape [n, 1, 16, 16], not {list(images.shape)}",
    )
    low, high = float(images.min()), float(images.max())
    require(low >= 0 and high <= 1, f"images: values must lie in [0, 1], not in [{low:.3g}, {high:.3g}]")

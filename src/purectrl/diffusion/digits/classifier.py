"""An independent classifier of digits, trained on images that the denoiser was not trained on.

A fine-tuned model whose reward rises while the accuracy of this classifier falls exploits the reward.
"""

from pathlib import Path

import numpy as np
import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from purectrl.core.errors import StoreError, require
from purectrl.diffusion.digits.network import CLASSES, REMEDY, SIZE, WEIGHTS
from purectrl.diffusion.images import check_images


class Classifier(nn.Module):
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
        """images [n, 1, 16, 16] in [0, 1] -> class probabilities [n, 10]."""
        images = check_images(images, (1, SIZE, SIZE))
        logits = [self(batch) for batch in torch.from_numpy(images).split(256)]
        return torch.cat(logits).softmax(dim=1).numpy()

    def is_correct(self, images: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """Whether each image is classified as its class: [n] bool; the mean is the accuracy."""
        require(len(images) == len(classes), f"classes: {len(images)} images need as many classes, not {len(classes)}")
        return self.probabilities(images).argmax(axis=1) == np.asarray(classes)


def pretrained(file: Path | str | None = None) -> Classifier:
    """The classifier in a safetensors file; by default the one of the package."""
    file = WEIGHTS / "classifier.safetensors" if file is None else Path(file)
    if not file.is_file():
        raise StoreError(f"the weights of the classifier are missing: {file} does not exist; {REMEDY}")
    classifier = Classifier()
    try:
        classifier.load_state_dict({name: value.float() for name, value in load_file(file).items()})
    except (safetensors.SafetensorError, RuntimeError) as error:
        raise StoreError(f"the weights of the classifier in {file} are damaged ({error}); {REMEDY}") from None
    return classifier.eval()

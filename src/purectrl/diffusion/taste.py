"""A hidden preference: a reward that is linear in a frozen embedding of an image, the same at all times, with noisy labels.

It stands for people who rate images. The class of rewards is that of the theory, so that the reward model can be exact: a
ridge regression on the embedding, with its confidence ellipsoid. LAION's aesthetic score, a chain of affine layers on CLIP,
is of the same class.
"""

import functools
import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.prices import Prices
from purectrl.diffusion.digits import network
from purectrl.diffusion.digits.problem import DigitsProblem, pretrained_classifier, pretrained_model
from purectrl.diffusion.distributed import current_ranks
from purectrl.diffusion.models import GuidedDiffusion
from purectrl.diffusion.problem import RewardInput
from purectrl.diffusion.process import AffineSteps, torch_generator
from purectrl.diffusion.reward_networks import FixedTrunk
from purectrl.diffusion.rewards import Condition, Reward
from purectrl.diffusion.rollout import MEASURES, final_images

WIDTH = 256
"""Dimension of the embedding."""
CALIBRATION = 16
"""Images per class whose rewards have mean 0 and standard deviation 1 by definition."""


class Embedding(nn.Module):
    """A frozen random convolutional network: images [n, 1, 16, 16] in [0, 1] -> [n, 256] of length √256."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch_generator(Key.from_seed(0).child("embedding"))
        shapes = {"first": (32, 1, 3, 3), "second": (64, 32, 3, 3), "last": (WIDTH, 64 * 4 * 4)}
        for name, shape in shapes.items():
            weights = torch.randn(shape, generator=generator) * (2 / np.prod(shape[1:])) ** 0.5
            self.register_buffer(name, weights.float())

    first: Tensor
    second: Tensor
    last: Tensor

    def forward(self, images: Tensor) -> Tensor:
        """Differentiable in the images."""
        hidden = functional.avg_pool2d(functional.relu(functional.conv2d(2 * images - 1, self.first, padding=1)), 2)
        hidden = functional.avg_pool2d(functional.relu(functional.conv2d(hidden, self.second, padding=1)), 2)
        found = functional.linear(hidden.flatten(1), self.last)
        return WIDTH**0.5 * found / found.norm(dim=1, keepdim=True)


@functools.cache
def embedding() -> Embedding:
    """The embedding, which is always the same."""
    return Embedding().eval()


class Taste:
    """`(images, conditions) -> scores`: w·φ(image) with a hidden w, scaled so that final images of the pretrained model have
    mean 0 and standard deviation 1, plus Gaussian noise.

    The noise is a function of the image and of how often it occurs in a call, so that a resumed run sees the same labels.

    Main arguments:
        seed: which preference.
        noise: standard deviation of a label.
    """

    def __init__(self, seed: int, noise: float) -> None:
        require(noise >= 0, f"label_noise: must not be negative, got {noise}")
        direction = torch.randn(WIDTH, generator=torch_generator(Key.from_seed(seed).child("taste")))
        values = calibration_embeddings() @ direction
        self.weights = direction / values.std()
        self.offset, self.noise = float(values.mean() / values.std()), noise

    def __call__(self, images: np.ndarray, conditions: Sequence[Condition]) -> np.ndarray:
        """Noisy labels of images [n, 1, 16, 16]."""
        return self.true(images) + (self.noise * _label_noise(images) if self.noise else 0.0)

    @torch.no_grad()
    def true(self, images: np.ndarray, conditions: Sequence[Condition] = ()) -> np.ndarray:
        """The preference itself."""
        return self.differentiable(torch.from_numpy(np.ascontiguousarray(images))).double().numpy()

    def differentiable(self, images: Tensor) -> Tensor:
        """The preference itself [n], differentiable in the images."""
        return embedding()(images) @ self.weights - self.offset


def _label_noise(images: np.ndarray) -> np.ndarray:
    """Standard normal numbers [n]; images that are equal have different ones."""
    seen, found = Counter[bytes](), np.empty(len(images))
    for i, image in enumerate(images):
        digest = hashlib.blake2b(np.ascontiguousarray(image).tobytes(), digest_size=16).digest()
        key = Key(int.from_bytes(digest, "little")).child("label", seen[digest])
        found[i] = key.generator().standard_normal()
        seen[digest] += 1
    return found


@functools.cache
def calibration_embeddings() -> Tensor:
    """Embeddings of final images of the pretrained model, always the same [n, 256]."""
    model = pretrained_model()
    diffusion = GuidedDiffusion(model, AffineSteps.ddim_from_scheduler(network.schedule(), 12))
    conditions = list(network.TRAINING) * CALIBRATION
    with torch.no_grad():
        plan, key = model.pretrained().plan(), Key.from_seed(0).child("calibration")
        return torch.cat([embedding()(part) for part in final_images(diffusion, plan, conditions, key)])


def build(
    preference: int,
    *,
    label_noise: float,
    denoising_steps: int,
    measure: str,
    eval_images: int,
    prices: Prices,
    rollout_batch_size: int,
    threads: int,
) -> DigitsProblem:
    """The problem that `purectrl.problems.taste_images` documents."""
    require(preference >= 0, f"preference: must be a non-negative integer, not {preference}")
    most = network.TRAINING_STEPS
    require(1 <= denoising_steps <= most, f"denoising_steps: must be between 1 and {most}, not {denoising_steps}")
    torch.set_num_threads(threads)
    taste = Taste(preference, label_noise)
    limits = (-np.inf, np.inf)
    return DigitsProblem(
        name="taste",
        diffusion=GuidedDiffusion(
            pretrained_model(), AffineSteps.ddim_from_scheduler(network.schedule(), denoising_steps)
        ),
        conditions=network.TRAINING,
        eval_conditions=tuple(range(network.CLASSES)),
        reward=Reward(taste, name="taste", range=limits, stochastic=label_noise > 0),
        eval_reward=Reward(taste.true, name="taste", range=limits),
        reward_gradient=lambda images, _: taste.differentiable(images),
        reward_input=RewardInput(FixedTrunk(WIDTH), embedding()),
        measure=MEASURES[measure],
        kl_conditions=network.TRAINING * 8,
        eval_images=eval_images,
        prices=prices,
        rollout_batch_size=rollout_batch_size,
        threads=threads,
        ranks=current_ranks(),
        classifier=pretrained_classifier(),
        measurements=1200,
    )

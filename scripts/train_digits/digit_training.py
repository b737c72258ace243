"""Training of the denoiser and of the classifier. A seed determines the weights; a stopped training can be resumed.

Every step derives its random numbers from its own key, so the state of a training is the weights, their average and Adam's
moments.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors
import torch
from diffusers.models.unets.unet_2d import UNet2DModel
from digit_data import Digits
from safetensors.torch import save as to_safetensors
from torch import Tensor, nn

from purectrl.core.errors import StoreError
from purectrl.core.io import write_atomically
from purectrl.core.keys import Key
from purectrl.diffusion.digits import network
from purectrl.diffusion.digits.classifier import Classifier
from purectrl.diffusion.digits.network import CLASSES, SIZE

BATCH_SIZE = 64
LEARNING_RATE = 2e-3
"""Largest learning rate of the denoiser: reached after `WARMUP` steps, then a cosine decay to a twentieth."""
WARMUP = 100
CLASS_DROPOUT = 0.1
"""Fraction of the digits whose class is replaced by `UNCONDITIONAL`, for guidance."""
EMA_DECAY = 0.997
"""Decay of the averaged weights, which are shipped: they denoise better than the last ones."""


class Training(NamedTuple):
    """The state of a training: everything that the next step needs."""

    step: int
    denoiser: network.Denoiser
    average: dict[str, Tensor]
    optimizer: torch.optim.AdamW


def untrained_denoiser(generator: torch.Generator, widths: tuple[int, ...] = (16, 32, 64)) -> network.Denoiser:
    """A denoiser with random weights, drawn from `generator` alone.

    Main arguments:
        widths: channels at 16×16, 8×8 and 4×4; the default has 0.62 million weights.
    """
    levels = len(widths)
    with torch.random.fork_rng(devices=[]):  # layers draw from the global generator when they are built
        unet = UNet2DModel(
            sample_size=SIZE,
            in_channels=1,
            out_channels=1,
            block_out_channels=widths,
            layers_per_block=1,
            norm_num_groups=8,
            down_block_types=("DownBlock2D",) * levels,
            up_block_types=("UpBlock2D",) * levels,
            add_attention=False,
            num_class_embeds=CLASSES + 1,
        )
    for module in unet.modules():
        reinitialize(module, generator)
    nn.init.zeros_(unet.conv_out.weight)  # ε̂ = 0 at first: the loss starts at 1
    return network.Denoiser(unet)


def reinitialize(module: nn.Module, generator: torch.Generator) -> None:
    """Draws the weights of one layer from `generator`; torch's own initialisation uses the global one."""
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.kaiming_uniform_(module.weight, a=5**0.5, generator=generator)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, generator=generator)


def untrained_classifier(generator: torch.Generator) -> Classifier:
    """A classifier with random weights, drawn from `generator` alone."""
    with torch.random.fork_rng(devices=[]):  # layers draw from the global generator when they are built
        classifier = Classifier()
    for module in classifier.modules():
        reinitialize(module, generator)
    return classifier


def half_precision(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights in half precision, as they are shipped: samples do not change visibly, files are half as large."""
    return {name: value.detach().half().contiguous() for name, value in state.items()}


def start(seed: int) -> Training:
    """The state before the first step."""
    generator = torch.Generator().manual_seed(Key.from_seed(seed).child("weights").bits & 0x7FFFFFFF)
    denoiser = untrained_denoiser(generator)
    denoiser.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue] (missing in torch's types)
    average = {name: value.detach().clone() for name, value in denoiser.named_parameters()}
    return Training(0, denoiser, average, torch.optim.AdamW(denoiser.parameters(), lr=LEARNING_RATE, weight_decay=1e-4))


def train(
    training: Training,
    digits: Digits,
    seed: int,
    steps: int,
    *,
    stop: Callable[[int], bool] = lambda step: False,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> Training:
    """Trains up to `steps` steps, the length of the learning-rate schedule, or until `stop`.

    Other arguments:
        stop: called before each step; whether to stop there.
        report: called with (step, mean loss of the last hundred steps) every hundred steps.
    """
    x = 2 * torch.from_numpy(digits.images) - 1
    classes = torch.from_numpy(digits.classes)
    alphas = network.schedule().alphas_cumprod
    step, losses = training.step, []
    while step < steps and not stop(step):
        for group in training.optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        losses.append(
            gradient_step(training, *noisy_batch(Key.from_seed(seed).child("batch", step), x, classes, alphas))
        )
        step += 1
        update_average(training, min(EMA_DECAY, step / (step + 10)))
        if step % 100 == 0:
            report(step, float(np.mean(losses)))
            losses = []
    return training._replace(step=step)


def learning_rate(step: int, steps: int) -> float:
    """The learning rate of a step.

    >>> [round(learning_rate(step, 1000), 5) for step in (0, 99, 1000)]
    [2e-05, 0.00195, 0.0001]
    """
    cosine = (1 + math.cos(math.pi * step / steps)) / 2
    return LEARNING_RATE * min(1.0, (step + 1) / WARMUP) * (0.05 + 0.95 * cosine)


def noisy_batch(key: Key, x: Tensor, classes: Tensor, alphas: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A batch (x_t, t, classes, ε) with x_t = √ᾱ x + √(1 − ᾱ) ε; `alphas` is ᾱ [1000]."""
    generator = key.generator()
    rows = torch.from_numpy(generator.integers(len(x), size=BATCH_SIZE))
    t = torch.from_numpy(generator.integers(len(alphas), size=BATCH_SIZE))
    noise = torch.from_numpy(generator.standard_normal((BATCH_SIZE, *x.shape[1:]), np.float32))
    dropped = torch.from_numpy(generator.random(BATCH_SIZE) < CLASS_DROPOUT)
    alpha = alphas[t][:, None, None, None]
    labels = torch.where(dropped, network.UNCONDITIONAL, classes[rows])
    return alpha.sqrt() * x[rows] + (1 - alpha).sqrt() * noise, t, labels, noise


def gradient_step(training: Training, x: Tensor, t: Tensor, classes: Tensor, noise: Tensor) -> float:
    """One step of AdamW on the mean squared error of the predicted noise; returns the loss before it."""
    loss = (training.denoiser(x, t, classes) - noise).square().mean()
    training.optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(training.denoiser.parameters(), 1.0)
    training.optimizer.step()
    return loss.item()


@torch.no_grad()
def update_average(training: Training, decay: float) -> None:
    """One step of the exponential moving average of the weights."""
    for name, value in training.denoiser.named_parameters():
        training.average[name].lerp_(value, 1 - decay)


@torch.no_grad()
def finished(training: Training) -> network.Denoiser:
    """The denoiser with its averaged weights, in half precision."""
    training.denoiser.load_state_dict(training.average)
    return training.denoiser.half().eval()


def save(training: Training, seed: int, steps: int, file: Path) -> None:
    """Writes the state that `restore` reads, atomically."""
    metadata = {"step": str(training.step), "seed": str(seed), "steps": str(steps)}
    tensors = {name: value.contiguous() for name, value in _tensors(training)}
    write_atomically(file, to_safetensors(tensors, metadata))


def restore(file: Path, seed: int, steps: int) -> Training:
    """The state that `save` wrote."""
    training = start(seed)
    try:
        with safetensors.safe_open(file, framework="pt") as saved:
            metadata = saved.metadata()
            if (metadata["seed"], metadata["steps"]) != (str(seed), str(steps)):
                raise StoreError(
                    f"{file} was saved with --seed {metadata['seed']} --steps {metadata['steps']}; use another --out"
                )
            _create_moments(training.optimizer)
            for name, value in _tensors(training):
                value.data.copy_(saved.get_tensor(name))
            return training._replace(step=int(metadata["step"]))
    except (safetensors.SafetensorError, KeyError, RuntimeError) as error:
        raise StoreError(f"{file} is damaged ({error}); remove it to start again") from None


def _tensors(training: Training) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors of weights, average and Adam's moments."""
    for name, value in training.denoiser.named_parameters():
        yield f"weights.{name}", value
        yield f"average.{name}", training.average[name]
        for moment, tensor in training.optimizer.state[value].items():
            yield f"{moment}.{name}", tensor


def _create_moments(optimizer: torch.optim.AdamW) -> None:
    """Creates Adam's moments, which torch creates at the first step, so that they can be read."""
    for parameter in optimizer.param_groups[0]["params"]:
        optimizer.state[parameter] = {
            "step": torch.zeros(()),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }


def train_classifier(digits: Digits, seed: int, steps: int = 1000) -> Classifier:
    """A classifier trained on `steps` batches, shifted by up to a pixel and with a little noise."""
    key = Key.from_seed(seed).child("judge")  # the name that the shipped weights were trained with
    classifier = untrained_classifier(torch.Generator().manual_seed(key.bits & 0x7FFFFFFF))
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=1e-3, weight_decay=1e-2)
    images, classes = torch.from_numpy(digits.images), torch.from_numpy(digits.classes)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 1.5e-3 * (0.02 + 0.98 * (1 + math.cos(math.pi * step / steps)) / 2)
        generator = key.child(step).generator()
        rows = torch.from_numpy(generator.integers(len(images), size=BATCH_SIZE))
        shifted = torch.roll(images[rows], tuple(generator.integers(-1, 2, size=2).tolist()), dims=(2, 3))
        noise = torch.from_numpy(generator.standard_normal(shifted.shape, np.float32))
        loss = nn.functional.cross_entropy(classifier(shifted + 0.03 * noise), classes[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return classifier.eval()

"""Training of the denoiser and of the judge. One seed gives the same weights again; a stopped training goes on.

Every step draws its numbers from a key of its own, so what is to be saved between two steps is the weights, their average
and Adam's moments.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from purectrl.core.errors import StoreError
from purectrl.core.keys import Key
from purectrl.diffusion.digits import judge as judges
from purectrl.diffusion.digits import network
from purectrl.diffusion.digits.data import Digits

BATCH = 64
PEAK = 2e-3
"""Highest learning rate of the denoiser: reached after `WARMUP` steps, then a cosine down to a twentieth."""
WARMUP = 100
UNTOLD = 0.1
"""Share of the digits whose class the denoiser is not told, so that it can be guided."""
MEMORY = 0.997
"""Of the averaged weights, which are the ones that are kept: they denoise better than the last ones."""


class Training(NamedTuple):
    """A denoiser on its way: everything that the next step needs."""

    step: int
    denoiser: network.Denoiser
    average: dict[str, Tensor]
    optimizer: torch.optim.AdamW


def start(seed: int) -> Training:
    """A training before its first step."""
    generator = torch.Generator().manual_seed(Key.from_seed(seed).child("weights").bits & 0x7FFFFFFF)
    denoiser = network.untrained(generator).to(memory_format=torch.channels_last)
    average = {name: value.detach().clone() for name, value in denoiser.named_parameters()}
    return Training(0, denoiser, average, torch.optim.AdamW(denoiser.parameters(), lr=PEAK, weight_decay=1e-4))


def train(
    training: Training,
    digits: Digits,
    seed: int,
    steps: int,
    *,
    stop: Callable[[int], bool] = lambda step: False,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> Training:
    """Goes on to `steps` steps, which the learning rate is laid out for, or until told to stop.

    Other arguments:
        stop: asked before each step whether to stop there.
        report: told (step, mean loss since the last time) every hundred steps.
    """
    x = 2 * torch.from_numpy(digits.images) - 1
    classes = torch.from_numpy(digits.classes)
    kept = network.schedule().alphas_cumprod
    step, losses = training.step, []
    while step < steps and not stop(step):
        for group in training.optimizer.param_groups:
            group["lr"] = rate(step, steps)
        losses.append(descend(training, *noisy(Key.from_seed(seed).child("batch", step), x, classes, kept)))
        step += 1
        remember(training, min(MEMORY, step / (step + 10)))
        if step % 100 == 0:
            report(step, float(np.mean(losses)))
            losses = []
    return training._replace(step=step)


def rate(step: int, steps: int) -> float:
    """Learning rate of a step.

    >>> [round(rate(step, 1000), 5) for step in (0, 99, 1000)]
    [2e-05, 0.00195, 0.0001]
    """
    cosine = (1 + math.cos(math.pi * step / steps)) / 2
    return PEAK * min(1.0, (step + 1) / WARMUP) * (0.05 + 0.95 * cosine)


def noisy(key: Key, x: Tensor, classes: Tensor, kept: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A batch (x_t, t, classes, ε) with x_t = √ᾱ x + √(1 − ᾱ) ε; `kept` is ᾱ [1000]."""
    generator = key.generator()
    rows = torch.from_numpy(generator.integers(len(x), size=BATCH))
    t = torch.from_numpy(generator.integers(len(kept), size=BATCH))
    noise = torch.from_numpy(generator.standard_normal((BATCH, *x.shape[1:]), np.float32))
    untold = torch.from_numpy(generator.random(BATCH) < UNTOLD)
    share = kept[t][:, None, None, None]
    told = torch.where(untold, network.UNCONDITIONAL, classes[rows])
    return share.sqrt() * x[rows] + (1 - share).sqrt() * noise, t, told, noise


def descend(training: Training, x: Tensor, t: Tensor, classes: Tensor, noise: Tensor) -> float:
    """One step of AdamW on the mean squared error of the predicted noise; the loss before it."""
    loss = (training.denoiser(x, t, classes) - noise).square().mean()
    training.optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(training.denoiser.parameters(), 1.0)
    training.optimizer.step()
    return loss.item()


@torch.no_grad()
def remember(training: Training, memory: float) -> None:
    """Moves the averaged weights a little towards the present ones."""
    for name, value in training.denoiser.named_parameters():
        training.average[name].lerp_(value, 1 - memory)


@torch.no_grad()
def finished(training: Training) -> network.Denoiser:
    """The denoiser with its averaged weights, at half precision."""
    training.denoiser.load_state_dict(training.average)
    return training.denoiser.half().eval()


def save(training: Training, seed: int, steps: int, file: Path) -> None:
    """Writes everything that `restore` needs, whole or not at all."""
    temporary = file.with_name(f".{file.name}.part")
    metadata = {"step": str(training.step), "seed": str(seed), "steps": str(steps)}
    save_file({name: value.contiguous() for name, value in _tensors(training)}, temporary, metadata)
    temporary.replace(file)


def restore(file: Path, seed: int, steps: int) -> Training:
    """The training that `save` wrote."""
    training = start(seed)
    try:
        with safetensors.safe_open(file, framework="pt") as saved:
            metadata = saved.metadata()
            if (metadata["seed"], metadata["steps"]) != (str(seed), str(steps)):
                raise StoreError(
                    f"{file} was saved with --seed {metadata['seed']} --steps {metadata['steps']}; take another --out"
                )
            _begin_moments(training.optimizer)
            for name, value in _tensors(training):
                value.data.copy_(saved.get_tensor(name))
            return training._replace(step=int(metadata["step"]))
    except (safetensors.SafetensorError, KeyError, RuntimeError) as error:
        raise StoreError(f"{file} is damaged ({error}); remove it to begin again") from None


def _tensors(training: Training) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors of weights, average and Adam's moments."""
    for name, value in training.denoiser.named_parameters():
        yield f"weights.{name}", value
        yield f"average.{name}", training.average[name]
        for moment, tensor in training.optimizer.state[value].items():
            yield f"{moment}.{name}", tensor


def _begin_moments(optimizer: torch.optim.AdamW) -> None:
    """Makes Adam's moments, which torch makes at the first step only, so that there is something to read into."""
    for parameter in optimizer.param_groups[0]["params"]:
        optimizer.state[parameter] = {
            "step": torch.zeros(()),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }


def train_judge(digits: Digits, seed: int, steps: int = 1000) -> judges.Judge:
    """A judge that has seen `steps` batches, moved by up to a pixel and with a little noise."""
    key = Key.from_seed(seed).child("judge")
    judge = judges.untrained(torch.Generator().manual_seed(key.bits & 0x7FFFFFFF))
    optimizer = torch.optim.AdamW(judge.parameters(), lr=1e-3, weight_decay=1e-2)
    images, classes = torch.from_numpy(digits.images), torch.from_numpy(digits.classes)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 1.5e-3 * (0.02 + 0.98 * (1 + math.cos(math.pi * step / steps)) / 2)
        generator = key.child(step).generator()
        rows = torch.from_numpy(generator.integers(len(images), size=BATCH))
        moved = torch.roll(images[rows], tuple(generator.integers(-1, 2, size=2).tolist()), dims=(2, 3))
        noise = torch.from_numpy(generator.standard_normal(moved.shape, np.float32))
        loss = nn.functional.cross_entropy(judge(moved + 0.03 * noise), classes[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return judge.eval()

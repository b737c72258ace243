"""Trains the weights of the package: the denoiser of the digits and the classifier. About ten minutes on one core.

    python scripts/train_digits/train.py --out DIR

A seed determines the weights on a given machine. With --minutes 5 the training stops after five minutes, and the same
command resumes it. It writes

    DIR/denoiser/  DIR/scheduler/   directories in diffusers' format
    DIR/classifier.safetensors
    DIR/report.json                 metrics on data that were not used for training
    DIR/samples.png                 samples of the denoiser
"""

import dataclasses
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import digit_training as training
import numpy as np
import torch
import tyro
from digit_data import Digits, halves, load
from digit_sampling import STEPS, sample
from safetensors.torch import save_file

from purectrl.core.errors import PurectrlError, require
from purectrl.core.io import to_json, write_json
from purectrl.core.keys import Key
from purectrl.diffusion import image_grid
from purectrl.diffusion.digits import classifier as classifiers
from purectrl.diffusion.digits import network
from purectrl.diffusion.digits.network import CLASSES, HELD_OUT, TRAINING
from purectrl.diffusion.images import Samples, diversity
from purectrl.diffusion.rewards.ocr import Legibility

LARGEST = 2_000_000
"""Largest total size of the weights in bytes."""


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Trains the denoiser and the classifier of the digits."""

    out: Path
    """Output directory."""
    steps: int = 3600
    """Optimizer steps of the denoiser, with batches of 64."""
    seed: int = 0
    """Determines the weights."""
    minutes: float = math.inf
    """Stop after this time; the same command resumes."""
    samples: int = 50
    """Samples per class for the report."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; returns the exit status."""
    try:
        return train(tyro.cli(Arguments, args=arguments, description=__doc__))
    except PurectrlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def train(arguments: Arguments) -> int:
    """Trains, then reports; 0 when everything is written, 1 when the same command should be run again."""
    require(arguments.steps > 0, f"steps: must be at least 1, not {arguments.steps}")
    require(arguments.samples >= 2, f"samples: must be at least 2 per class, not {arguments.samples}")
    torch.set_num_threads(1)  # the weights depend on the order of summation
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    denoiser_half, classifier_half = halves(load())
    if not (out / "denoiser").exists() and not train_denoiser(arguments, denoiser_half):
        return 1
    classifier = training.train_classifier(classifier_half, arguments.seed)
    save_file(training.half_precision(classifier.state_dict()), out / "classifier.safetensors")
    report = evaluate(out, denoiser_half, arguments)
    write_json(out / "report.json", report)
    print(to_json(report))
    return 0


def train_denoiser(arguments: Arguments, digits: Digits) -> bool:
    """Trains until the time limit; returns whether the denoiser is finished, and then writes it."""
    begin, seed, steps, state = time.monotonic(), arguments.seed, arguments.steps, arguments.out / "state.safetensors"
    current = training.restore(state, seed, steps) if state.exists() else training.start(seed)

    def report(step: int, loss: float) -> None:
        print(f"step {step} of {steps}: loss {loss:.4f}, {time.monotonic() - begin:.0f} s", flush=True)

    def stop(step: int) -> bool:
        return time.monotonic() - begin > 60 * arguments.minutes

    current = training.train(current, digits, seed, steps, stop=stop, report=report)
    if current.step < steps:
        training.save(current, seed, steps, state)
        print(f"stopped at step {current.step}; the same command resumes")
        return False
    network.schedule().save_pretrained(arguments.out / "scheduler")
    training.finished(current).save(arguments.out / "denoiser")
    state.unlink(missing_ok=True)
    return True


def evaluate(out: Path, unseen: Digits, arguments: Arguments) -> dict[str, Any]:
    """Metrics of the weights in `out`: legibility, classifier accuracy and diversity of samples and of real digits.

    Main arguments:
        unseen: real digits that the classifier was not trained on.
    """
    denoiser = network.pretrained(out / "denoiser")
    classifier = classifiers.pretrained(out / "classifier.safetensors")
    legibility = Legibility()
    classes = np.repeat(np.arange(CLASSES), arguments.samples)
    generator = torch.Generator().manual_seed(Key.from_seed(arguments.seed).child("look").bits & 0x7FFFFFFF)
    images = sample(denoiser, classes.tolist(), generator)
    scores = legibility(images, classes.tolist())
    image_grid.save_png(image_grid.grid(Samples(images, classes, scores), columns=12), out / "samples.png")
    some = slice(None, None, 5)
    real = legibility(unseen.images[some], unseen.classes[some].tolist())
    correct = classifier.is_correct(images, classes)
    size = sum(file.stat().st_size for name in ("denoiser", "classifier.safetensors") for file in _files(out / name))
    require(size <= LARGEST, f"the weights have {size} bytes; the package may contain at most {LARGEST}")
    return {
        "seed": arguments.seed,
        "steps": arguments.steps,
        "ddim_steps": STEPS,
        "bytes": size,
        "parameters": sum(parameter.numel() for parameter in denoiser.parameters()),
        "classifier_accuracy_real": float(classifier.is_correct(unseen.images, unseen.classes).mean()),
        "classifier_accuracy_samples": float(correct.mean()),
        "legibility_real": float(real.mean()),
        "legibility_training_classes": float(scores[np.isin(classes, TRAINING)].mean()),
        "legibility_held_out_classes": float(scores[np.isin(classes, HELD_OUT)].mean()),
        "legibility_by_class": [round(float(scores[classes == c].mean()), 3) for c in range(CLASSES)],
        "classifier_accuracy_by_class": [round(float(correct[classes == c].mean()), 3) for c in range(CLASSES)],
        "diversity_real": diversity(unseen.images, unseen.classes),
        "diversity_samples": diversity(images, classes),
    }


def _files(path: Path) -> list[Path]:
    return list(path.iterdir()) if path.is_dir() else [path]


if __name__ == "__main__":
    sys.exit(main())

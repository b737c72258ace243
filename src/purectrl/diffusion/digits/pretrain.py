"""Makes the weights that come with the package: the denoiser, its schedule and the judge. About ten minutes on one core.

    python -m purectrl.diffusion.digits.pretrain --out DIR

One seed gives the same weights again on the same machine. With --minutes 5 it stops after five, and the same command goes
on where it stopped. It leaves

    DIR/denoiser/  DIR/scheduler/   directories as diffusers writes them
    DIR/judge.safetensors
    DIR/report.json                 what the two have learned, measured on data that they have not seen
    DIR/samples.png                 a look at it
"""

import dataclasses
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from safetensors.torch import save_file

from purectrl.core.errors import PurectrlError, require
from purectrl.core.keys import Key
from purectrl.diffusion import pictures
from purectrl.diffusion.digits import judge as judges
from purectrl.diffusion.digits import network, training
from purectrl.diffusion.digits.data import CLASSES, HELD_OUT, TRAINING, Digits, halves, load
from purectrl.diffusion.digits.sampling import STEPS, sample
from purectrl.diffusion.rewards.ocr import Legibility

LARGEST = 2_000_000
"""Bytes that all weights together may have."""


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Trains the denoiser and the judge of the digits."""

    out: Path
    """Directory for what it makes."""
    steps: int = 3600
    """Batches of 64 for the denoiser."""
    seed: int = 0
    """One seed gives the same weights again."""
    minutes: float = math.inf
    """Stop after this long; the same command goes on."""
    samples: int = 50
    """Samples of each class that the report looks at."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; returns the exit status."""
    try:
        return pretrain(tyro.cli(Arguments, args=arguments, description=__doc__))
    except PurectrlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def pretrain(arguments: Arguments) -> int:
    """Trains, then reports; 0 when all is there, 1 when the same command should be given again."""
    require(arguments.steps > 0, f"steps: at least 1, not {arguments.steps}")
    require(arguments.samples >= 2, f"samples: at least 2 of each class, not {arguments.samples}")
    torch.set_num_threads(1)  # sums in another order are other weights
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    ours, theirs = halves(load())
    if not (out / "denoiser").exists() and not train_denoiser(arguments, ours):
        return 1
    judge = training.train_judge(theirs, arguments.seed)
    save_file(network.halved(judge.state_dict()), out / "judge.safetensors")
    report = look(out, ours, arguments)
    (out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))
    return 0


def train_denoiser(arguments: Arguments, digits: Digits) -> bool:
    """Trains for as long as it may; whether the denoiser is finished, and then written."""
    begin, seed, steps, state = time.monotonic(), arguments.seed, arguments.steps, arguments.out / "state.safetensors"
    going = training.restore(state, seed, steps) if state.exists() else training.start(seed)

    def report(step: int, loss: float) -> None:
        print(f"step {step} of {steps}: loss {loss:.4f}, {time.monotonic() - begin:.0f} s", flush=True)

    def stop(step: int) -> bool:
        return time.monotonic() - begin > 60 * arguments.minutes

    going = training.train(going, digits, seed, steps, stop=stop, report=report)
    if going.step < steps:
        training.save(going, seed, steps, state)
        print(f"stopped at step {going.step}; the same command goes on")
        return False
    network.schedule().save_pretrained(arguments.out / "scheduler")
    training.finished(going).save(arguments.out / "denoiser")
    state.unlink(missing_ok=True)
    return True


def look(out: Path, unseen: Digits, arguments: Arguments) -> dict[str, Any]:
    """What the weights in `out` are worth: samples as the reward, the judge and the eye see them.

    Main arguments:
        unseen: real digits that the judge has not learned from.
    """
    denoiser, judge = network.pretrained(out / "denoiser"), judges.pretrained(out / "judge.safetensors")
    legibility = Legibility()
    classes = np.repeat(np.arange(CLASSES), arguments.samples)
    generator = torch.Generator().manual_seed(Key.from_seed(arguments.seed).child("look").bits & 0x7FFFFFFF)
    images = sample(denoiser, classes.tolist(), generator)
    scores = legibility(images, classes.tolist())
    pictures.save(pictures.by_class(images, classes, scores, columns=12), out / "samples.png")
    some = slice(None, None, 5)
    real = legibility(unseen.images[some], unseen.classes[some].tolist())
    size = sum(file.stat().st_size for name in ("denoiser", "judge.safetensors") for file in _files(out / name))
    require(size <= LARGEST, f"the weights take {size} bytes, and {LARGEST} is the most that the package may carry")
    return {
        "seed": arguments.seed,
        "steps": arguments.steps,
        "ddim_steps": STEPS,
        "bytes": size,
        "parameters": sum(parameter.numel() for parameter in denoiser.parameters()),
        "judge_accuracy_real": float(judge.agrees(unseen.images, unseen.classes).mean()),
        "judge_accuracy_samples": float(judge.agrees(images, classes).mean()),
        "legibility_real": float(real.mean()),
        "legibility_training_classes": float(scores[np.isin(classes, TRAINING)].mean()),
        "legibility_held_out_classes": float(scores[np.isin(classes, HELD_OUT)].mean()),
        "legibility_by_class": [round(float(scores[classes == c].mean()), 3) for c in range(CLASSES)],
        "judge_by_class": [round(float(judge.agrees(images, classes)[classes == c].mean()), 3) for c in range(CLASSES)],
        "diversity_real": judges.diversity(unseen.images, unseen.classes),
        "diversity_samples": judges.diversity(images, classes),
    }


def _files(path: Path) -> list[Path]:
    return list(path.iterdir()) if path.is_dir() else [path]


if __name__ == "__main__":
    sys.exit(main())

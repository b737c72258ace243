"""Plain DDIM with diffusers' scheduler: what the denoiser makes of noise, without anything of the learner's.

Small enough to be sure of, so the learner's own process can be tested against it.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from purectrl.core.errors import require
from purectrl.diffusion.digits.data import CLASSES, SIZE
from purectrl.diffusion.digits.network import UNCONDITIONAL, schedule

STEPS = 12
"""Steps from noise to image, unless told otherwise."""


@torch.no_grad()
def sample(
    denoiser: Callable[[Tensor, Tensor, Tensor], Tensor],
    classes: Sequence[int],
    generator: torch.Generator,
    *,
    steps: int = STEPS,
    guidance: float = 1.0,
    batch: int = 64,
) -> np.ndarray:
    """Images of the given classes: [n, 1, 16, 16] float32 in [0, 1].

    Main arguments:
        classes: what to draw, 0..9, or `UNCONDITIONAL`.
        guidance: w in ε̂(x, none) + w·(ε̂(x, class) − ε̂(x, none)); at 1 the second evaluation is saved.
    """
    require(len(classes) > 0, "classes: at least one image must be asked for")
    require(
        all(0 <= c <= CLASSES for c in classes), f"classes: 0..9, or 10 for none of them, not {sorted(set(classes))}"
    )
    rows = torch.tensor(classes).split(batch)
    return np.concatenate([_batch(denoiser, row, generator, steps, guidance) for row in rows])


def _batch(
    denoiser: Callable[[Tensor, Tensor, Tensor], Tensor],
    classes: Tensor,
    generator: torch.Generator,
    steps: int,
    guidance: float,
) -> np.ndarray:
    scheduler = schedule()
    scheduler.set_timesteps(steps)
    x = torch.randn(len(classes), 1, SIZE, SIZE, generator=generator)
    for step in scheduler.timesteps:
        t = step.expand(len(classes))
        noise = denoiser(x, t, classes)
        if guidance != 1.0:
            free = denoiser(x, t, torch.full_like(classes, UNCONDITIONAL))
            noise = free + guidance * (noise - free)
        x = scheduler.step(noise, int(step), x, eta=1.0, generator=generator).prev_sample
    return ((x + 1) / 2).clamp(0, 1).numpy()

"""Plain DDIM with diffusers' scheduler, independent of the package's own process, which is tested against it."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from purectrl.core.errors import require
from purectrl.diffusion.digits.network import CLASSES, SIZE, UNCONDITIONAL, schedule

STEPS = 12
"""The default number of denoising steps."""


@torch.no_grad()
def sample(
    denoiser: Callable[[Tensor, Tensor, Tensor], Tensor],
    classes: Sequence[int],
    generator: torch.Generator,
    *,
    steps: int = STEPS,
    guidance: float = 1.0,
    batch_size: int = 64,
) -> np.ndarray:
    """Images of the given classes: [n, 1, 16, 16] float32 in [0, 1].

    Main arguments:
        classes: 0..9, or `UNCONDITIONAL`.
        guidance: w in ε̂(x, none) + w·(ε̂(x, class) − ε̂(x, none)); 1 needs no second evaluation.
    """
    require(len(classes) > 0, "classes: at least one is needed")
    require(
        all(0 <= c <= CLASSES for c in classes),
        f"classes: must be 0..9, or 10 for none of them, not {sorted(set(classes))}",
    )
    batches = torch.tensor(classes).split(batch_size)
    return np.concatenate([_sample_batch(denoiser, batch, generator, steps, guidance) for batch in batches])


def _sample_batch(
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
            unconditional = denoiser(x, t, torch.full_like(classes, UNCONDITIONAL))
            noise = unconditional + guidance * (noise - unconditional)
        (x, *_) = scheduler.step(noise, int(step), x, eta=1.0, generator=generator, return_dict=False)
    return ((x + 1) / 2).clamp(0, 1).numpy()

"""How well a reward model that was fitted to some labels points along the true reward, without any fine-tuning.

The update follows ∇r̂ at final images. Different labels on trajectories of the pretrained model are compared by the cosine
between ∇r̂ and ∇r at new final images, for hidden preferences of `purectrl.diffusion.taste`.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from purectrl.core.keys import Key
from purectrl.core.samplers import Context, Geometric
from purectrl.diffusion.digits import network
from purectrl.diffusion.digits.problem import pretrained_model
from purectrl.diffusion.models import GuidedDiffusion
from purectrl.diffusion.process import AffineSteps, path, torch_generator
from purectrl.diffusion.rollout import MEASURES, step_of
from purectrl.diffusion.taste import Taste, embedding
from purectrl.diffusion.uncertainty import fit_ridge

STEPS, TIMES, TESTED = 12, 4, 64
"""Denoising steps, measured times per trajectory, new final images."""
ARMS = {
    "finals": "n final images",
    "finals-repeated": "n final images, each asked four times",
    "sampler": "n trajectories, λ = 6, predicted image",
    "predicted": "n trajectories, four times, predicted image",
    "states": "n trajectories, four times, x(t)",
    "more-finals": "4n final images (SEIKO)",
}
"""What is labelled. All but the first have 4n labels."""
REWARDS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda value: value,
    "saturating": torch.tanh,
}
"""From the preference to the reward: of the reward model's class, or not."""


@torch.no_grad()
def trajectories(count: int, key: Key) -> dict[str, Tensor]:
    """Images of `count` trajectories of the pretrained model at four times [count, 4, 1, 16, 16], by what is measured."""
    model, process = pretrained_model(), AffineSteps.ddim_from_scheduler(network.schedule(), STEPS)
    classes = [network.TRAINING[i % len(network.TRAINING)] for i in range(count)]
    found: dict[str, list[Tensor]] = {name: [] for name in MEASURES}
    for start in range(0, count, 64):
        generator, some = torch_generator(key.child(start)), classes[start : start + 64]
        denoise = GuidedDiffusion(model, process).denoiser(model.pretrained().weights, model.encode(some))
        states = path(process, denoise, model.pretrained().initial.sample(len(some), generator), generator)
        chosen = [step for step in states if step.k and step.k % (STEPS // TIMES) == 0]
        for name, measure in MEASURES.items():
            found[name].append(torch.stack([model.decode(measure(process, step)) for step in chosen], dim=1))
    return {name: torch.cat(parts) for name, parts in found.items()}


def chosen_images(arm: str, images: dict[str, Tensor], n: int, key: Key) -> Tensor:
    """The labelled images of an arm, repeated ones as often as they are labelled [labels, 1, 16, 16]."""
    if arm in ("finals", "more-finals"):
        return images["x_t"][: n if arm == "finals" else 4 * n, -1]
    if arm == "finals-repeated":
        return images["x_t"][:n, -1].repeat_interleave(TIMES, dim=0)
    if arm == "sampler":
        times = step_of(Geometric(m=TIMES, lam=6.0)(key, n, Context(horizon=float(STEPS))))
        index = torch.from_numpy(times // (STEPS // TIMES) - 1)
        return images["predicted_x0"][:n][torch.arange(n)[:, None], index].flatten(0, 1)
    return images["x_t" if arm == "states" else "predicted_x0"][:n].flatten(0, 1)


def alignment(reward: str, n: int, noise: float, preferences: int) -> dict[str, list[float]]:
    """The cosine between ∇r̂ and ∇r at new final images, per preference, by arm."""
    torch.set_num_threads(1)
    key = Key.from_seed(0).child("alignment")
    images, shape = trajectories(4 * n, key.child("train")), REWARDS[reward]
    tested = trajectories(TESTED, key.child("test"))["x_t"][:, -1].clone().requires_grad_()
    labelled = {arm: chosen_images(arm, images, n, key.child("times")) for arm in ARMS}
    features = {arm: constant_and_embedding(chosen) for arm, chosen in labelled.items()}
    found: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for number in range(preferences):
        taste = Taste(number, 0.0)
        (true,) = torch.autograd.grad(shape(taste.differentiable(tested)).sum(), tested)
        for arm, chosen in labelled.items():
            with torch.no_grad():
                labels = shape(taste.differentiable(chosen)).double().numpy()
            labels = labels + noise * key.child("noise", number, arm).generator().standard_normal(len(labels))
            theta = fit_ridge(features[arm], torch.from_numpy(labels - labels.mean())).theta[:-1].float()
            (model,) = torch.autograd.grad((embedding()(tested) @ theta).sum(), tested)
            cosine = torch.nn.functional.cosine_similarity(model.flatten(1), true.flatten(1), dim=1)
            found[arm].append(float(cosine.mean()))
    return found


@torch.no_grad()
def constant_and_embedding(images: Tensor) -> Tensor:
    """Embeddings and the constant 1 [n, d]."""
    embedded = torch.cat([embedding()(part) for part in images.split(512)]).double()
    return torch.cat([embedded, torch.ones(len(embedded), 1, dtype=torch.float64)], dim=1)


def mean_and_error(values: list[float]) -> tuple[float, float]:
    """Mean and its standard error.

    >>> mean_and_error([1.0, 3.0])
    (2.0, 1.0)
    """
    return float(np.mean(values)), float(np.std(values, ddof=1) / len(values) ** 0.5)

"""The exact solution of an update for a reward model: what labels are worth, apart from how well an optimizer works.

    argmax_P  E[r̂(x(T))] − λ KL(P | P^pre)    is    dP/dP^pre ∝ exp(r̂(x(T))/λ)    for each condition,

a tilt that depends on the final image alone. On images of the pretrained model it is a vector of weights for each
condition, and λ is found for a given divergence. Its true reward compares reward models at equal divergence.
"""

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.diffusion.alignment import chosen_images, constant_and_embedding, trajectories
from purectrl.diffusion.digits import network
from purectrl.diffusion.taste import Taste
from purectrl.diffusion.uncertainty import fit_ridge

LABELLED = ("finals", "sampler", "predicted", "states")
"""The arms of `alignment` that are compared; more final images are `finals` for a larger n."""


def tilted(predicted: Tensor, nats: float) -> Tensor:
    """Weights ∝ exp(η r̂) of images [conditions, images], each row with sum 1. At this η ≥ 0, the mean over conditions of
    KL(weights | uniform) is `nats`.

    >>> tilted(torch.tensor([[0.0, 1.0]]), nats=0.2).float().mul(100).round()
    tensor([[19., 81.]])
    """
    most = math.log(predicted.shape[1])
    require(0 < nats < most, f"nats: must be positive and below log(images), {most:.2f}, not {nats}")
    predicted, low, high = predicted.double(), 0.0, 1.0
    while high < 1e12 and _divergence(predicted, high) < nats:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _divergence(predicted, middle) < nats else (low, middle)
    return (high * predicted).softmax(dim=1)


def _divergence(predicted: Tensor, slope: float) -> float:
    log_weights = (slope * predicted).log_softmax(dim=1)
    return float((log_weights.exp() * (log_weights + math.log(predicted.shape[1]))).sum(dim=1).mean())


@functools.cache
def _pool(count: int, purpose: str) -> dict[str, Tensor]:
    """Trajectories of the pretrained model, the same for all comparisons of a process."""
    return trajectories(count, Key.from_seed(0).child("tilting", purpose))


def tilted_rewards(
    sizes: Sequence[int], noise: float, preferences: Sequence[int], images: int, nats: float
) -> dict[str, dict[str, list[float]]]:
    """The true reward at `nats` of the solution for reward models that were fitted to labels, per preference, by arm and n.
    `truth` is the solution for the reward itself.

    Main arguments:
        sizes: numbers of trajectories n.
        noise: standard deviation of a label.
        preferences: hidden preferences of `taste`.
        images: images of the pretrained model per condition, which are weighted.
        nats: the divergence from the pretrained model.
    """
    torch.set_num_threads(1)
    key, conditions = Key.from_seed(0).child("tilting"), len(network.TRAINING)
    train, tested = _pool(max(sizes), "train"), _pool(images * conditions, "test")["x_t"][:, -1]
    features = {
        (arm, n): constant_and_embedding(chosen_images(arm, train, n, key.child("times", n)))
        for n in sizes
        for arm in LABELLED
    }
    seen = constant_and_embedding(tested)
    found: dict[str, dict[str, list[float]]] = {arm: {str(n): [] for n in sizes} for arm in LABELLED}
    found["truth"] = {str(n): [] for n in sizes}
    for preference in preferences:
        direction, offset = Taste(preference, 0.0).weights.double(), Taste(preference, 0.0).offset
        true = _by_condition(seen[:, :-1] @ direction - offset, conditions)
        best = float((tilted(true, nats) * true).sum(1).mean())
        for (arm, n), known in features.items():
            labels = (known[:, :-1] @ direction - offset).numpy()
            labels = labels + noise * key.child("noise", preference, arm, n).generator().standard_normal(len(labels))
            theta = fit_ridge(known, torch.from_numpy(labels)).theta
            weights = tilted(_by_condition(seen @ theta, conditions), nats)
            found[arm][str(n)].append(float((weights * true).sum(1).mean()))
        for n in sizes:
            found["truth"][str(n)].append(best)
    return found


def _by_condition(values: Tensor, conditions: int) -> Tensor:
    """Values of images whose conditions are cyclic [n] as [conditions, n/conditions]."""
    return values.reshape(-1, conditions).T

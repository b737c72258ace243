"""Models between a pretrained and a fine-tuned one, and the one with a given divergence.

Fine-tuners move differently far, and the reward is larger for a model that moved farther. To compare them at equal
divergence, each update is scaled: θ(s) = θ^pre + s (θ − θ^pre), for f and q, with the s at which the divergence of
P^{f(s),q(s)} from P^pre is the given one.
"""

import math
from typing import NamedTuple

import torch

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.diffusion.finetune import path_kl
from purectrl.diffusion.models import Encoded, GuidedDiffusion, Params, equal
from purectrl.diffusion.process import Gaussian

LARGEST = 1.5
"""The largest s: beyond it, the linear path says little about further updates."""


class Scaled(NamedTuple):
    """A model on the line from the pretrained to the fine-tuned one."""

    params: Params
    scale: float
    """s."""
    divergence: float
    """From the pretrained model, in nats."""
    whole: float
    """The same for s = 1."""


def between(pretrained: Params, finetuned: Params, scale: float) -> Params:
    """θ^pre + s (θ − θ^pre), for all weights, the mean and the log scale of q."""
    weights = {name: torch.lerp(start, finetuned.weights[name], scale) for name, start in pretrained.weights.items()}
    initial = (torch.lerp(*pair, scale) for pair in zip(pretrained.initial, finetuned.initial, strict=True))
    return Params(weights, Gaussian(*initial))


def at_divergence(
    diffusion: GuidedDiffusion, finetuned: Params, condition: Encoded, key: Key, divergence: float, rounds: int = 2
) -> Scaled:
    """The model with this divergence from the pretrained one, as near as `rounds` steps come and s ≤ 1.5 allows.

    The divergence is nearly proportional to s², so each step is s ← s √(target/KL(s)). All use the same noise.
    """
    require(divergence > 0, f"divergence: must be positive, not {divergence}")
    pretrained = diffusion.model.pretrained()
    require(not equal(pretrained, finetuned), "finetuned: equals the pretrained model, which has no divergence")
    whole = path_kl(diffusion, finetuned, pretrained, condition, key)
    found = Scaled(finetuned, 1.0, whole, whole)
    for _ in range(rounds):
        scale = min(LARGEST, found.scale * math.sqrt(divergence / found.divergence))
        params = between(pretrained, finetuned, scale)
        found = Scaled(params, scale, path_kl(diffusion, params, pretrained, condition, key), whole)
    return found

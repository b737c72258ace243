"""Adapters: how a large network is fine-tuned without copies of it."""

import pytest
import torch
from tiny import CLASSES, SHAPE, Network, finetune_settings, process, seeded
from torch.func import functional_call

from purectrl.core import InputError, Key
from purectrl.diffusion.finetune import finetune, path_kl
from purectrl.diffusion.lora import add_lora
from purectrl.diffusion.models import GuidedDiffusion, PixelModel
from purectrl.diffusion.reward_model import Score

KEY = Key.from_seed(0)


def adapted(seed=0):
    network = add_lora(seeded(Network()), rank=2, targets=["first", "last"], key=Key.from_seed(seed))
    return PixelModel.conditional(network, SHAPE, empty=CLASSES)


def guided(model):
    return GuidedDiffusion(model, process())


def bright(x, condition, t):
    return Score(x.flatten(1).mean(1), torch.zeros(len(x)))


def test_only_adapters_are_trainable_and_a_new_one_adds_nothing():
    plain, model = seeded(Network()), adapted()
    weights = model.pretrained().weights
    assert weights
    assert all("lora_" in name for name in weights)
    assert sum(tensor.numel() for tensor in weights.values()) < sum(p.numel() for p in plain.parameters())
    x, steps, classes = (
        torch.randn(2, *SHAPE, generator=torch.Generator()),
        torch.tensor([5, 900]),
        torch.tensor([0, 1]),
    )
    assert torch.allclose(model.denoise(weights, x, steps, classes), functional_call(plain, {}, (x, steps, classes)))


def test_current_previous_and_pretrained_are_three_dictionaries_on_one_network():
    model = adapted()
    pretrained = model.pretrained()
    conditions = model.encode(range(CLASSES))
    settings, diffusion = finetune_settings(iterations=8, learning_rate=3e-2, checkpointing=True), guided(model)
    first = finetune(settings, diffusion, bright, pretrained, pretrained, conditions, KEY).params
    second = finetune(settings, diffusion, bright, first, pretrained, conditions, KEY.child(1))
    assert second.info["divergence_previous"] != second.info["divergence_pretrained"]
    far, near = (path_kl(diffusion, second.params, reference, conditions, KEY) for reference in (pretrained, first))
    assert far > 0
    assert near > 0
    x = torch.ones(2, *SHAPE)
    found = [
        diffusion.denoiser(params.weights, conditions[:2])(x, 500)
        for params in (pretrained, first, second.params, pretrained)
    ]
    assert torch.equal(found[0], found[3])
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[1], found[2])


def test_adapters_come_from_their_key():
    one, same, other = (adapted(seed).pretrained().weights for seed in (0, 0, 1))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_targets_that_match_nothing_are_named():
    with pytest.raises(InputError, match=r"targets: no layer of the network matches \['nowhere'\]"):
        add_lora(Network(), 2, ["nowhere"], KEY)

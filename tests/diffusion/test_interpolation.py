"""Models between a pretrained and a fine-tuned one, on a Gaussian chain whose divergence has a closed form."""

import math

import pytest
import tiny
import torch
from test_chain import NOISY, Shift

from purectrl.core import InputError, Key
from purectrl.diffusion.finetune import path_kl
from purectrl.diffusion.interpolation import LARGEST, at_divergence, between
from purectrl.diffusion.models import GuidedDiffusion, Params, equal
from purectrl.diffusion.process import Gaussian

KEY = Key.from_seed(0)
PIXELS = math.prod(tiny.SHAPE)


def shifted(by):
    """A chain with the same output everywhere, and one whose output is larger by `by`."""
    diffusion = GuidedDiffusion(tiny.model(network=Shift), NOISY)
    pretrained = diffusion.model.pretrained()
    return diffusion, Params({name: w + by for name, w in pretrained.weights.items()}, pretrained.initial)


def closed_form(by):
    """The means of step k differ by gain_k · by in each pixel."""
    return sum((g * by) ** 2 / (2 * s**2) for g, s in zip(NOISY.gain, NOISY.sigma, strict=True)) * PIXELS


def test_on_a_gaussian_chain_the_divergence_is_met_exactly():
    diffusion, finetuned = shifted(0.7)
    condition = diffusion.model.encode([0, 1])
    found = at_divergence(diffusion, finetuned, condition, KEY, closed_form(0.7) / 9, rounds=1)
    assert found.whole == pytest.approx(closed_form(0.7), rel=1e-4)
    assert found.scale == pytest.approx(1 / 3, rel=1e-4)
    assert found.divergence == pytest.approx(closed_form(0.7) / 9, rel=1e-4)
    (level,), (start,) = (params.weights.values() for params in (found.params, diffusion.model.pretrained()))
    assert (level - start).item() == pytest.approx(0.7 / 3, rel=1e-4)


def test_an_update_that_is_too_small_is_not_stretched_far():
    diffusion, finetuned = shifted(0.1)
    found = at_divergence(diffusion, finetuned, diffusion.model.encode([0]), KEY, closed_form(10.0))
    assert found.scale == LARGEST
    assert found.divergence == pytest.approx(LARGEST**2 * found.whole, rel=1e-4)


def test_a_network_and_its_initial_distribution_come_nearer_with_every_round():
    diffusion = tiny.diffusion()
    pretrained, condition = diffusion.model.pretrained(), diffusion.model.encode([0, 1, 2] * 4)
    moved = tiny.moved(pretrained, size=0.3)
    finetuned = moved._replace(initial=Gaussian(moved.initial.mean + 0.5, moved.initial.log_scale - 0.2))
    whole = path_kl(diffusion, finetuned, pretrained, condition, KEY)
    found = [at_divergence(diffusion, finetuned, condition, KEY, whole / 4, rounds) for rounds in (1, 2, 6)]
    errors = [abs(4 * one.divergence / whole - 1) for one in found]
    assert errors == sorted(errors, reverse=True)
    assert errors[1] < 0.1
    assert errors[2] < 1e-3
    assert all(0 < one.scale < 1 for one in found)


def test_the_ends_of_the_line_are_the_two_models():
    diffusion, finetuned = shifted(0.7)
    pretrained = diffusion.model.pretrained()
    assert equal(between(pretrained, finetuned, 0.0), pretrained)
    assert all(map(torch.allclose, *(p.weights.values() for p in (between(pretrained, finetuned, 1.0), finetuned))))


def test_wrong_arguments_are_named():
    diffusion, finetuned = shifted(0.7)
    condition = diffusion.model.encode([0])
    with pytest.raises(InputError, match="divergence: must be positive, not 0"):
        at_divergence(diffusion, finetuned, condition, KEY, 0.0)
    with pytest.raises(InputError, match="finetuned: equals the pretrained model"):
        at_divergence(diffusion, diffusion.model.pretrained(), condition, KEY, 1.0)

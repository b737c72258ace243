"""The exact update for a reward model: closed forms, optimality, and the reward model that is exact."""

import math

import pytest
import torch

from purectrl.core import InputError
from purectrl.diffusion.tilting import tilted, tilted_rewards


def divergence(weights):
    """Mean over conditions of KL(weights | uniform)."""
    return float((weights * (weights * weights.shape[1]).log()).sum(1).mean())


def test_two_images_have_a_closed_form():
    """The better one has the probability p with log 2 − H(p) = nats."""
    p = 0.9
    nats = math.log(2) + p * math.log(p) + (1 - p) * math.log(1 - p)
    assert tilted(torch.tensor([[0.0, 3.0]]).double(), nats).tolist() == [pytest.approx([1 - p, p])]


@pytest.mark.parametrize("nats", [0.05, 0.5, 1.5])
def test_no_weights_with_that_divergence_have_a_higher_prediction(nats):
    generator = torch.Generator().manual_seed(0)
    predicted = torch.randn(3, 40, generator=generator, dtype=torch.float64)
    best = tilted(predicted, nats)
    assert divergence(best) == pytest.approx(nats, abs=1e-6)
    assert best.sum(1).tolist() == pytest.approx([1.0] * 3)
    for _ in range(20):  # the best for another reward has the same divergence
        other = tilted(predicted + 0.3 * torch.randn(predicted.shape, generator=generator), nats)
        assert (other * predicted).sum() < (best * predicted).sum()


def test_the_scale_of_a_reward_model_does_not_matter_and_conditions_keep_their_share():
    predicted = torch.randn(4, 30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.allclose(tilted(1000 * predicted, 0.7), tilted(predicted, 0.7), atol=1e-6)
    shifted = predicted + torch.arange(4.0)[:, None]
    assert torch.allclose(tilted(shifted, 0.7), tilted(predicted, 0.7), atol=1e-6)


def test_almost_without_divergence_almost_nothing_is_tilted():
    assert torch.allclose(tilted(torch.rand(2, 5), 1e-9), torch.full((2, 5), 0.2).double(), atol=1e-4)


@pytest.mark.parametrize("nats", [0, 2])
def test_a_divergence_that_no_weights_have_is_refused(nats):
    with pytest.raises(InputError, match=rf"nats: must be positive and below log\(images\), 1.61, not {nats}"):
        tilted(torch.rand(2, 5), nats)


def test_without_noise_a_linear_reward_is_found_exactly_from_as_many_labels_as_it_has_dimensions():
    """80 trajectories have 320 labels of x(t), above the 257 dimensions, and 80 final ones, below them."""
    found = tilted_rewards([80], 0.0, [0, 1], images=8, nats=0.5)
    assert found["states"]["80"] == pytest.approx(found["truth"]["80"], abs=1e-3)
    assert all(a < b - 1e-2 for a, b in zip(found["finals"]["80"], found["truth"]["80"], strict=True))

"""What a reward model sees, and the warning that it was exploited."""

import warnings

import pytest
import torch
from short_runs import lines_of, loop_of, seiko
from tiny import model, save_clip

from purectrl.core import InputError
from purectrl.core.samplers import Final
from purectrl.diffusion.diagnosis import ExploitationWarning, overestimation, warn_of_exploitation
from purectrl.diffusion.reward_networks import VectorTrunk, random_weights
from purectrl.diffusion.views import prompt_vectors, view_input
from purectrl.problems.digit_images import digits

VIEW = """
def quarters(images):
    return images.unflatten(2, (2, 8)).unflatten(4, (2, 8)).mean((3, 5)).flatten(1)

def wrong(images):
    return images
"""


def save_dino(folder):
    from transformers import Dinov2Config, Dinov2Model

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "mlp_ratio": 2}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        Dinov2Model(Dinov2Config(**sizes, image_size=14, patch_size=7)).save_pretrained(folder)
    return folder


def test_a_view_of_your_own_is_what_the_reward_model_learns_from(tmp_path):
    (tmp_path / "view.py").write_text(VIEW)
    black_box = lambda images, conditions: images.mean((1, 2, 3))  # noqa: E731
    small = {"denoising_steps": 2, "eval_images": 2}
    problem = digits(black_box, view=f"{tmp_path}/view.py:quarters", **small)
    loop = loop_of(problem, 6, 1, Final(), seiko({"fit": "ridge", "loss": "mse"}))
    state, lines = lines_of(problem, loop)
    assert state.data.all.x.shape == (6, 1, 4)
    assert "ridge" in lines[0]
    with pytest.raises(InputError, match=r"returned \[2, 1, 16, 16\] for 2 images, expected embeddings \[2, width\]"):
        digits(black_box, view=f"{tmp_path}/view.py:wrong", **small)


@pytest.mark.parametrize(("name", "save"), [("clip", save_clip), ("dino", save_dino)])
def test_a_network_s_view_has_unit_coordinates_and_a_gradient(name, save, tmp_path):
    found = view_input(name, model(), conditions=3, place=str(save(tmp_path / name)))
    images = torch.rand(2, 3, 20, 20, requires_grad=True)
    embedded = found.embed(images)
    assert embedded.norm(dim=1).tolist() == pytest.approx([8**0.5] * 2, rel=1e-4)
    embedded[:, 0].sum().backward()
    assert images.grad.abs().max() > 0
    assert found.trunk.inputs == 8


def test_views_that_cannot_be_used_are_named():
    with pytest.raises(InputError, match=r"unknown view 'clop': did you mean 'clip'\?"):
        view_input("clop", model(), 3)
    with pytest.raises(InputError, match="view_model: the view 'dino' needs a network; give its directory"):
        view_input("dino", model(), 3)


def test_prompts_with_the_same_text_embedding_share_what_is_learned():
    tokens = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]], [[-1.0, 3.0]]]).expand(3, 4, 2)
    trunk = VectorTrunk(2, prompt_vectors(tokens))
    weights = random_weights(trunk, torch.Generator().manual_seed(0))
    given = (torch.ones(3, 2), torch.ones(3), torch.arange(3))
    one, other, another = torch.func.functional_call(trunk, weights, given)
    assert torch.allclose(one, other, atol=1e-6)
    assert (one - another).abs().max() > 1e-3
    own = VectorTrunk(2, 3)
    one, other, _ = torch.func.functional_call(own, random_weights(own, torch.Generator().manual_seed(0)), given)
    assert (one - other).abs().max() > 1e-3


def record(update, before, predicted, evaluated):
    return {
        "updates": update,
        "predicted_reward_before": before,
        "predicted_reward": predicted,
        "eval_reward": evaluated,
    }


def test_a_prediction_that_rises_while_the_evaluation_falls_is_reported():
    good = [record(1, 0.5, 0.7, 0.6), record(2, 0.6, 0.8, 0.7)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_exploitation(good)
    with pytest.warns(ExploitationWarning, match=r"update 3: .* predicted a gain of 0.2, the evaluation fell by 0.3"):
        warn_of_exploitation([*good, record(3, 0.7, 0.9, 0.4)])
    assert overestimation([record(3, 0.7, 0.9, 0.4)])["overestimation"] == pytest.approx(0.5)
    assert overestimation([{"eval_reward": 1.0}]) == {}

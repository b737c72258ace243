"""The aesthetic predictor, on a tiny CLIP with random weights."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

from purectrl.core import InputError, StoreError
from purectrl.diffusion.rewards.aesthetic import MEAN, SPREAD, Aesthetic, preprocess

WIDTHS = (8, 6, 1)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = CLIPVisionConfig(**sizes, image_size=16, patch_size=8, projection_dim=WIDTHS[0])
    CLIPVisionModelWithProjection(config).save_pretrained(folder)
    return folder


def head(file, widths=WIDTHS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for i, (inputs, outputs) in zip((0, 2), pairwise(widths), strict=True):
        state[f"layers.{i}.weight"] = torch.randn(outputs, inputs, generator=generator)
        state[f"layers.{i}.bias"] = torch.randn(outputs, generator=generator)
    save_file(state, file)
    return state


def test_the_score_is_affine_in_the_direction_of_the_embedding(clip, tmp_path):
    """Σ W₂(W₁ e/|e| + b₁) + b₂, with no bend in between; a .pth file of the same numbers gives the same."""
    state = head(tmp_path / "head.safetensors")
    images = np.random.default_rng(0).random((5, 3, 20, 24), np.float32)
    scores = Aesthetic(clip, tmp_path / "head.safetensors", batch=2)(images, ["cat"] * 5)
    model = CLIPVisionModelWithProjection.from_pretrained(clip).eval()
    with torch.no_grad():
        e = model(pixel_values=preprocess(torch.from_numpy(images), 16)).image_embeds
    e = e / e.norm(dim=1, keepdim=True)
    weight = state["layers.2.weight"] @ state["layers.0.weight"]
    bias = state["layers.2.weight"] @ state["layers.0.bias"] + state["layers.2.bias"]
    assert np.allclose(scores, (e @ weight.T + bias)[:, 0].numpy(), atol=1e-5)
    torch.save(state, tmp_path / "head.pth")
    assert np.array_equal(Aesthetic(clip, tmp_path / "head.pth", batch=2)(images, ["cat"] * 5), scores)


def test_preprocessing_keeps_the_middle_and_gives_grey_three_channels():
    grey = torch.full((1, 1, 32, 64), 0.5)
    seen = preprocess(grey, 16)
    assert seen.shape == (1, 3, 16, 16)
    assert torch.allclose(seen[0, :, 3, 3], (0.5 - torch.tensor(MEAN)) / torch.tensor(SPREAD))
    wide = torch.zeros(1, 3, 16, 48)
    wide[..., 16:32] = 1.0
    assert (preprocess(wide, 16)[..., 2:-2] > 1.0).all(), "the middle third of a wide image"


def test_weights_that_are_missing_truncated_or_of_another_kind_are_named(clip, tmp_path):
    good = tmp_path / "head.safetensors"
    head(good)
    with pytest.raises(StoreError, match=r"clip: .* has no config.json"):
        Aesthetic(tmp_path, good)
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(good.read_bytes()[:-8])
    with pytest.raises(StoreError, match=r"head: the weights in .*cut.safetensors are damaged"):
        Aesthetic(clip, cut)
    (tmp_path / "cut.pth").write_bytes(b"\x80\x02")
    with pytest.raises(StoreError, match=r"head: the weights in .*cut.pth are damaged"):
        Aesthetic(clip, tmp_path / "cut.pth")
    save_file({"something.else": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(StoreError, match="do not form a chain"):
        Aesthetic(clip, tmp_path / "other.safetensors")
    head(tmp_path / "wide.safetensors", widths=(9, 6, 1))
    with pytest.raises(InputError, match=r"head: takes 9 features, and .* gives 8; ViT-L/14 gives 768"):
        Aesthetic(clip, tmp_path / "wide.safetensors")


def test_truncated_clip_weights_are_named(clip, tmp_path):
    head(tmp_path / "head.safetensors")
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in clip.iterdir():
        content = file.read_bytes()
        (broken / file.name).write_bytes(content[:-100] if file.suffix == ".safetensors" else content)
    with pytest.raises(StoreError, match=r"clip: the weights in .*broken are damaged"):
        Aesthetic(broken, tmp_path / "head.safetensors")


def test_a_hub_name_without_network_says_what_to_fetch(clip, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    head(tmp_path / "head.safetensors")
    with pytest.raises(StoreError, match=r"clip: 'nobody/none' is neither a path .* hf download openai/clip-vit-large"):
        Aesthetic("nobody/none", tmp_path / "head.safetensors")
    with pytest.raises(
        StoreError, match=r"head: 'nobody/none' is neither a path .* hf download trl-lib/ddpo-aesthetic"
    ):
        Aesthetic(clip, "nobody/none")

"""The aesthetic predictor, on a tiny CLIP with random weights."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tiny import save_clip
from tiny import save_head as head
from transformers import CLIPVisionModelWithProjection

from purectrl.core import InputError, StoreError
from purectrl.diffusion.rewards.aesthetic import MEAN, STD, Aesthetic, preprocess


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return save_clip(tmp_path_factory.mktemp("clip"))


def test_the_score_is_affine_in_the_direction_of_the_embedding(clip, tmp_path):
    """Σ W₂(W₁ e/|e| + b₁) + b₂, with no bend in between; a .pth file of the same numbers gives the same."""
    state = head(tmp_path / "head.safetensors")
    images = np.random.default_rng(0).random((5, 3, 20, 24), np.float32)
    scores = Aesthetic(clip, tmp_path / "head.safetensors", batch_size=2)(images, ["cat"] * 5)
    model = CLIPVisionModelWithProjection.from_pretrained(clip).eval()
    with torch.no_grad():
        e = model(pixel_values=preprocess(torch.from_numpy(images), 16)).image_embeds
    e = e / e.norm(dim=1, keepdim=True)
    weight = state["layers.2.weight"] @ state["layers.0.weight"]
    bias = state["layers.2.weight"] @ state["layers.0.bias"] + state["layers.2.bias"]
    assert np.allclose(scores, (e @ weight.T + bias)[:, 0].numpy(), atol=1e-5)
    torch.save(state, tmp_path / "head.pth")
    assert np.array_equal(Aesthetic(clip, tmp_path / "head.pth", batch_size=2)(images, ["cat"] * 5), scores)


def test_embeddings_have_length_one_and_a_gradient(clip, tmp_path):
    """The derivative along a direction, against central differences."""
    head(tmp_path / "head.safetensors")
    aesthetic = Aesthetic(clip, tmp_path / "head.safetensors")
    draw = lambda seed: torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(seed))  # noqa: E731
    images, direction, weights = 0.2 + 0.6 * draw(0), draw(1) - 0.5, draw(2)[:, 0, 0, : aesthetic.width]
    leaf = images.clone().requires_grad_()
    found = aesthetic.embed(leaf)
    assert found.shape == (2, aesthetic.width)
    assert torch.allclose(found.norm(dim=1), torch.ones(2))
    (weights * found).sum().backward()
    slope = float((leaf.grad * direction).sum())
    one, other = ((weights * aesthetic.embed(images + h * direction)).sum().item() for h in (1e-2, -1e-2))
    assert slope == pytest.approx((one - other) / 2e-2, rel=2e-2)
    assert all(parameter.grad is None for parameter in aesthetic._clip.parameters())


def test_preprocessing_keeps_the_middle_and_gives_grey_three_channels():
    grey = torch.full((1, 1, 32, 64), 0.5)
    seen = preprocess(grey, 16)
    assert seen.shape == (1, 3, 16, 16)
    assert torch.allclose(seen[0, :, 3, 3], (0.5 - torch.tensor(MEAN)) / torch.tensor(STD))
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
    with pytest.raises(InputError, match=r"head: needs 9 features, .* has 8; ViT-L/14 has 768"):
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


def test_a_hub_name_without_network_says_what_to_download(clip, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    head(tmp_path / "head.safetensors")
    with pytest.raises(
        StoreError, match=r"clip: 'nobody/none' is neither an existing path .* hf download openai/clip-vit-large"
    ):
        Aesthetic("nobody/none", tmp_path / "head.safetensors")
    with pytest.raises(
        StoreError, match=r"head: 'nobody/none' is neither an existing path .* hf download trl-lib/ddpo-aesthetic"
    ):
        Aesthetic(clip, "nobody/none")

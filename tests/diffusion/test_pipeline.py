"""Stable Diffusion as a model, on a tiny pipeline with random weights that is built here."""

import gc
import json
import shutil

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler, PNDMScheduler, StableDiffusionPipeline
from safetensors.torch import load_file
from tiny import moved, save_pipeline

from purectrl.core import InputError, Key, StoreError
from purectrl.core.problem import Plan
from purectrl.diffusion import Tuning, itself, path_divergence, tune
from purectrl.diffusion.animals import ADDED, PUBLISHED, TRAINING, UNSEEN
from purectrl.diffusion.models import Iterate, leaves, same_numbers, tensors
from purectrl.diffusion.pipeline import NETWORKS, PipelineModel, load_pipeline, save_lora
from purectrl.diffusion.process import generator_of
from purectrl.diffusion.reward_model import Score
from purectrl.diffusion.rollout import measured_images
from purectrl.diffusion.update import anchors_of, imagine

KEY = Key.from_seed(0)
STEPS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_pipeline(tmp_path_factory.mktemp("pipeline"))


@pytest.fixture(scope="module")
def model(folder):
    return PipelineModel(load_pipeline(folder), rank=2)


def plain(folder):
    """What a user of diffusers has, without any of ours."""
    pipeline = StableDiffusionPipeline.from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.scheduler = DDIMScheduler.from_config(pipeline.scheduler.config, clip_sample=False)
    return pipeline


def noise(count=2, seed=0):
    return torch.randn(count, 4, 4, 4, generator=torch.Generator().manual_seed(seed))


def darkness(model):
    """A judge: the darker the image, the better."""
    return lambda x, condition: Score(-model.decode(x).flatten(1).mean(1), torch.zeros(len(x)))


def ours(model, iterate, prompts, key, guidance):
    plan, end = Plan(iterate.weights, iterate.initial), np.full((len(prompts), 1), STEPS)
    return measured_images(model, model.process(STEPS), plan, model.encode(prompts), end, itself, guidance, key)[:, 0]


def theirs(pipeline, iterate, prompts, key, guidance):
    """The same with plain diffusers, from the same x(0) and with the same noise on the way."""
    generator = generator_of(key)
    given = {"latents": iterate.initial.draw(len(prompts), generator), "generator": generator}
    settings = {"num_inference_steps": STEPS, "guidance_scale": guidance, "eta": 1.0, "output_type": "pt"}
    return pipeline(prompts, **given, **settings).images


def test_fresh_adapters_add_nothing(model, folder):
    x, steps, condition = noise(), torch.tensor([1, 981]), model.encode(["cat", "dog"])
    found = model.denoise(model.pretrained().weights, x, steps, condition)
    assert torch.allclose(found, plain(folder).unet(x, steps, condition).sample, atol=1e-6)
    assert all("lora_" in name for name in model.pretrained().weights)


@pytest.mark.parametrize("guidance", [1.0, 5.0])
def test_tuned_adapters_load_into_plain_diffusers_and_paint_the_same(model, folder, tmp_path, guidance):
    tuned = moved(model.pretrained())
    lora, initial = save_lora(tuned, tmp_path)
    assert lora.name == "pytorch_lora_weights.safetensors"
    pipeline, prompts = plain(folder), ["cat", "dog"]
    before = theirs(pipeline, tuned, prompts, KEY, guidance)
    pipeline.load_lora_weights(tmp_path)
    after = theirs(pipeline, tuned, prompts, KEY, guidance)
    assert torch.allclose(after, ours(model, tuned, prompts, KEY, guidance), atol=1e-5)
    assert (after - before).abs().max() > 0.01
    q = load_file(initial)
    assert torch.equal(q["mean"], tuned.initial.mean)
    assert torch.equal(q["log_scale"], tuned.initial.log_scale)


def test_each_prompt_is_encoded_once_and_none_is_the_empty_one(folder):
    fresh, calls = PipelineModel(load_pipeline(folder), rank=1), []
    asked = fresh.pipeline.encode_prompt
    fresh.pipeline.encode_prompt = lambda prompts, *rest, **more: calls.append(prompts) or asked(prompts, *rest, **more)
    first = fresh.encode(["cat", "dog", "cat"])
    assert torch.equal(first[0], first[2])
    assert not torch.equal(first[0], first[1])
    assert torch.equal(fresh.encode(["dog"])[0], first[1])
    assert torch.equal(fresh.encode([None]), fresh.encode([""]))
    assert calls == [["cat", "dog"], [""]]


def test_what_is_no_prompt_is_refused(model):
    with pytest.raises(InputError, match=r"conditions: Stable Diffusion takes prompts, which are strings, not \[3\]"):
        model.encode([3])
    with pytest.raises(InputError, match=r"has 42 tokens, the text encoder reads 16"):
        model.encode(["x" * 40])


def test_images_are_the_decoder_s_and_their_gradient_is_the_derivative(folder):
    """Against central differences in double precision, for more latents than pass the decoder at once."""
    double = PipelineModel(load_pipeline(folder, torch.float64), rank=1)
    x, direction = noise(6).double() * 0.1, noise(6, seed=1).double()
    vae = double.pipeline.vae
    images = double.decode(x)
    assert images.shape == (6, 3, 16, 16)
    assert torch.allclose(images, ((vae.decode(x / 0.18215).sample + 1) / 2).clamp(0, 1))
    weights = torch.randn(images.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    value = lambda x: float((weights * vae.decode(x / 0.18215).sample / 2).sum())  # noqa: E731 (not clipped)
    leaf = x.clone().requires_grad_()
    (weights * double.decode(leaf)).sum().backward()
    slope = float((leaf.grad * direction).sum())
    assert slope == pytest.approx((value(x + 1e-5 * direction) - value(x - 1e-5 * direction)) / 2e-5, rel=1e-5)


def test_gradients_with_and_without_checkpointing_agree(model):
    process, pretrained = model.process(STEPS), model.pretrained()
    anchors = anchors_of(pretrained, moved(pretrained, seed=1), 0.1, 0.2)
    found = []
    for on in (False, True):
        current, tuning = leaves(moved(pretrained, seed=2)), Tuning(checkpointing=on, guidance=3.0, shortest=STEPS)
        seen = imagine(tuning, model, process, current, anchors, model.encode(["cat", "dog"]), generator_of(KEY))
        (darkness(model)(seen.x, None).mean.mean() - sum(0.01 * kl for kl in seen.divergences)).backward()
        found.append([tensor.grad for tensor in tensors(current)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert all(gradient.abs().max() > 0 for gradient in found[0])


def test_the_number_of_backbones_does_not_grow_with_the_number_of_updates(model):
    """What is in memory after an update is what was there after the first: adapters are replaced, nothing is copied."""
    process, pretrained, conditions = model.process(2), model.pretrained(), model.encode(["cat"])
    tuning, previous, numbers = Tuning(iterations=1, batch=2, checkpointing=True), model.pretrained(), []
    for updates in range(3):
        found = tune(tuning, model, process, darkness(model), previous, pretrained, conditions, updates, KEY)
        assert found.finite
        previous = found.iterate
        del found
        gc.collect()
        alive = {t.data_ptr(): t.numel() for t in gc.get_objects() if type(t) in (torch.Tensor, torch.nn.Parameter)}
        numbers.append(sum(alive.values()))
    assert numbers[1] == numbers[2]
    backbone = sum(parameter.numel() for parameter in model.pipeline.unet.parameters())
    assert sum(tensor.numel() for tensor in tensors(previous)) < backbone / 4
    assert not same_numbers(previous, pretrained)


def test_half_precision_stays_inside_the_networks(model, folder):
    half = PipelineModel(load_pipeline(folder, torch.bfloat16), rank=2)
    assert {parameter.dtype for name in NETWORKS for parameter in getattr(half.pipeline, name).parameters()} >= {
        torch.bfloat16
    }
    start, slopes, prompts = moved(model.pretrained()), [], ["cat", "dog"]
    assert {tensor.dtype for tensor in tensors(half.pretrained())} == {torch.float32}
    for one in (model, half):
        current, tuning = leaves(start), Tuning(shortest=2, divergence_draws=None, checkpointing=True)
        seen = imagine(tuning, one, one.process(2), current, [], one.encode(prompts), generator_of(KEY))
        images = one.decode(seen.x)
        assert (seen.x.dtype, images.dtype) == (torch.float32, torch.float32)
        images.mean().backward()
        slopes.append(torch.cat([tensor.grad.flatten() for tensor in tensors(current)]))
        assert slopes[-1].dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(*slopes, dim=0) > 0.99


def test_the_process_is_ddim_on_the_pipeline_s_own_schedule(folder):
    pipeline = load_pipeline(folder)
    assert isinstance(pipeline.scheduler, PNDMScheduler)
    fresh = PipelineModel(pipeline, rank=1)
    process = fresh.process(50)
    assert process.timesteps == tuple(range(981, 0, -20))
    assert process.sigma[-1] > 0
    with pytest.raises(InputError, match="denoising_steps: must lie between 1 and 999 for this model, not 1000"):
        fresh.process(1000)
    with pytest.raises(InputError, match="pipeline: its U-Net has adapters already; load the pipeline anew"):
        PipelineModel(pipeline, rank=1)


def test_an_update_moves_images_where_the_judge_wants_them_and_divergence_says_how_far(model):
    process, pretrained, conditions = model.process(2), model.pretrained(), model.encode(["cat", "dog"])
    tuning = Tuning(iterations=8, batch=4, rate=1e-2, initial_rate=1e-1, alpha=0.0, beta=lambda n: 0.0, chunk=2)
    found = tune(tuning, model, process, darkness(model), pretrained, pretrained, conditions, 0, KEY)
    assert found.info["imagined_reward"] > found.info["imagined_reward_before"]
    assert path_divergence(model, process, found.iterate, pretrained, conditions, KEY) > 0
    assert path_divergence(model, process, pretrained, Iterate(*pretrained), conditions, KEY) == 0


@pytest.mark.parametrize("size", [24, 0])
def test_images_have_the_size_that_was_asked_for(folder, size):
    other = PipelineModel(load_pipeline(folder), rank=1, size=size)
    assert other.shape == ((4, 6, 6) if size else (4, 4, 4))
    assert ours(other, other.pretrained(), ["cat"], KEY, 1.0).shape == (1, 3, size or 16, size or 16)


def test_a_size_that_does_not_divide_is_refused(folder):
    with pytest.raises(InputError, match="size: must be a multiple of 4, not 18"):
        PipelineModel(load_pipeline(folder), size=18)


def copied(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def changed(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_a_model_of_another_kind_is_refused(folder, tmp_path):
    other = copied(folder, tmp_path)
    changed(other / "scheduler" / "scheduler_config.json", prediction_type="v_prediction")
    with pytest.raises(InputError, match=r"scheduler: the denoiser must predict the noise \('epsilon'\)"):
        PipelineModel(load_pipeline(other)).process(2)
    changed(other / "model_index.json", _class_name="StableDiffusionXLPipeline")
    with pytest.raises(InputError, match="holds a StableDiffusionXLPipeline, a StableDiffusionPipeline is needed"):
        load_pipeline(other)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("model_index.json", "holds no pipeline of diffusers: it has no model_index.json"),
        ("unet/diffusion_pytorch_model.safetensors", r"is incomplete, it lacks unet/\*.safetensors; fetch it with: hf"),
        ("vae/config.json", r"is incomplete, it lacks vae/config.json; fetch it with: hf download stable-diffusion-v1"),
    ],
)
def test_what_a_directory_lacks_is_named(folder, tmp_path, missing, message):
    other = copied(folder, tmp_path)
    (other / missing).unlink()
    with pytest.raises(StoreError, match=message):
        load_pipeline(other)


@pytest.mark.parametrize("part", ["unet/diffusion_pytorch_model", "vae/diffusion_pytorch_model", "text_encoder/model"])
def test_truncated_weights_are_named(folder, tmp_path, part):
    file = copied(folder, tmp_path) / f"{part}.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(StoreError, match=r"model: the weights in .*copy are damaged.*fetch it with: hf download"):
        load_pipeline(tmp_path / "copy")


@pytest.mark.parametrize("place", ["/nowhere/at/all", "./here", "models", "a/b/c"])
def test_a_directory_that_is_not_there_is_not_asked_for_on_the_hub(place, monkeypatch):
    monkeypatch.setattr(StableDiffusionPipeline, "from_pretrained", lambda *_, **__: pytest.fail("asked"))
    with pytest.raises(InputError, match=r"is no directory, and no name on the hub .* fetch one with: hf download"):
        load_pipeline(place)


def test_a_hub_name_without_network_says_what_to_fetch(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(StoreError, match=r"model: 'nobody/none' is neither a directory .* hf download stable-diff"):
        load_pipeline("nobody/none")


def test_there_are_fifty_animals_and_six_that_are_never_measured():
    assert (len(PUBLISHED), len(ADDED), len(set(TRAINING)), len(set(UNSEEN))) == (45, 5, 50, 6)
    assert not set(TRAINING) & set(UNSEEN)

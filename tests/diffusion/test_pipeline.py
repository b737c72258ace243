"""Stable Diffusion as a model, on a tiny pipeline with random weights."""

import gc
import json
import shutil

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler, DiffusionPipeline, PNDMScheduler, StableDiffusionPipeline
from safetensors.torch import load_file
from tiny import finetune_settings, moved, save_pipeline

from purectrl.core import InputError, Key, StoreError
from purectrl.diffusion import FinetuneSettings
from purectrl.diffusion.finetune import finetune, kl_references, path_kl, simulate
from purectrl.diffusion.models import GuidedDiffusion, Params, equal, tensors, trainable_copy
from purectrl.diffusion.pipeline import PipelineModel, load_pipeline
from purectrl.diffusion.process import torch_generator
from purectrl.diffusion.prompts import ADDED, PUBLISHED, TRAINING, UNSEEN
from purectrl.diffusion.reward_model import Score
from purectrl.diffusion.rollout import measured_images, noisy_state

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
    """A score: the darker the image, the better."""
    return lambda x, condition, t=1.0: Score(-model.decode(x).flatten(1).mean(1), torch.zeros(len(x)))


def ours(model, params, prompts, key, guidance):
    diffusion, end = GuidedDiffusion(model, model.process(STEPS), guidance), np.full((len(prompts), 1), STEPS)
    return measured_images(diffusion, params.plan(), model.encode(prompts), end, noisy_state, key)[:, 0]


def theirs(pipeline, params, prompts, key, guidance):
    """The same with plain diffusers, from the same x(0) and with the same noise on the way."""
    generator = torch_generator(key)
    given = {"latents": params.initial.sample(len(prompts), generator), "generator": generator}
    settings = {"num_inference_steps": STEPS, "guidance_scale": guidance, "eta": 1.0, "output_type": "pt"}
    return pipeline(prompts, **given, **settings).images


def test_new_adapters_add_nothing(model, folder):
    x, steps, condition = noise(), torch.tensor([1, 981]), model.encode(["cat", "dog"])
    found = model.denoise(model.pretrained().weights, x, steps, condition)
    assert torch.allclose(found, plain(folder).unet(x, steps, condition).sample, atol=1e-6)
    assert all("lora_" in name for name in model.pretrained().weights)


@pytest.mark.parametrize("guidance", [1.0, 5.0])
def test_finetuned_adapters_load_into_plain_diffusers_and_generate_the_same(model, folder, tmp_path, guidance):
    finetuned = moved(model.pretrained())
    lora, initial = model.save_lora(finetuned, tmp_path)
    assert lora.name == "pytorch_lora_weights.safetensors"
    pipeline, prompts = plain(folder), ["cat", "dog"]
    before = theirs(pipeline, finetuned, prompts, KEY, guidance)
    pipeline.load_lora_weights(tmp_path)
    after = theirs(pipeline, finetuned, prompts, KEY, guidance)
    assert torch.allclose(after, ours(model, finetuned, prompts, KEY, guidance), atol=1e-5)
    assert (after - before).abs().max() > 0.01
    q = load_file(initial)
    assert torch.equal(q["mean"], finetuned.initial.mean)
    assert torch.equal(q["log_scale"], finetuned.initial.log_scale)


def test_each_prompt_is_encoded_once_and_none_is_the_empty_one(folder):
    fresh, calls = PipelineModel(load_pipeline(folder), rank=1), []
    encode = fresh.pipeline.encode_prompt
    fresh.pipeline.encode_prompt = lambda prompts, *rest, **more: (
        calls.append(prompts) or encode(prompts, *rest, **more)
    )
    first = fresh.encode(["cat", "dog", "cat"])
    assert torch.equal(first[0], first[2])
    assert not torch.equal(first[0], first[1])
    assert torch.equal(fresh.encode(["dog"])[0], first[1])
    assert torch.equal(fresh.encode([None]), fresh.encode([""]))
    assert calls == [["cat", "dog"], [""], [""]]


def test_conditions_that_are_not_prompts_are_refused(model):
    with pytest.raises(InputError, match=r"conditions: must be prompts, which are strings, not \[3\]"):
        model.encode([3])
    with pytest.raises(InputError, match=r"has 42 tokens, the text encoder accepts 16"):
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
    references = kl_references(pretrained, moved(pretrained, seed=1), 0.1, 0.2)
    found = []
    for on in (False, True):
        current = trainable_copy(moved(pretrained, seed=2))
        settings = FinetuneSettings(checkpointing=on, min_backprop_steps=STEPS)
        diffusion, condition = GuidedDiffusion(model, process, 3.0), model.encode(["cat", "dog"])
        seen = simulate(settings, diffusion, current, references, condition, torch_generator(KEY))
        (darkness(model)(seen.x, None).mean.mean() - sum(0.01 * kl for kl in seen.divergences)).backward()
        found.append([tensor.grad for tensor in tensors(current)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert all(gradient.abs().max() > 0 for gradient in found[0])


def test_the_number_of_backbones_does_not_grow_with_the_number_of_updates(model):
    """The memory after an update is that after the first: adapters are replaced, nothing is copied."""
    diffusion, pretrained, conditions = (
        GuidedDiffusion(model, model.process(2)),
        model.pretrained(),
        model.encode(["cat"]),
    )
    settings = finetune_settings(iterations=1, batch_size=2, checkpointing=True)
    previous, numbers = model.pretrained(), []
    for _ in range(3):
        found = finetune(settings, diffusion, darkness(model), previous, pretrained, conditions, KEY)
        assert found.finite
        previous = found.params
        del found
        gc.collect()
        alive = {t.data_ptr(): t.numel() for t in gc.get_objects() if type(t) in (torch.Tensor, torch.nn.Parameter)}
        numbers.append(sum(alive.values()))
    assert numbers[1] == numbers[2]
    backbone = sum(parameter.numel() for parameter in model.pipeline.unet.parameters())
    assert sum(tensor.numel() for tensor in tensors(previous)) < backbone / 4
    assert not equal(previous, pretrained)


def test_half_precision_stays_inside_the_networks(model, folder):
    half = PipelineModel(load_pipeline(folder, torch.bfloat16), rank=2)
    assert {
        parameter.dtype for name in half.family.networks for parameter in getattr(half.pipeline, name).parameters()
    } >= {torch.bfloat16}
    start, slopes, prompts = moved(model.pretrained()), [], ["cat", "dog"]
    assert {tensor.dtype for tensor in tensors(half.pretrained())} == {torch.float32}
    for one in (model, half):
        current = trainable_copy(start)
        settings = FinetuneSettings(min_backprop_steps=2, kl_samples=None, checkpointing=True)
        diffusion = GuidedDiffusion(one, one.process(2))
        seen = simulate(settings, diffusion, current, [], one.encode(prompts), torch_generator(KEY))
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
    with pytest.raises(InputError, match="pipeline: its unet already has adapters; load the pipeline again"):
        PipelineModel(pipeline, rank=1)


def test_an_update_raises_the_score_and_the_divergence(model):
    diffusion, pretrained = GuidedDiffusion(model, model.process(2)), model.pretrained()
    conditions, rates = model.encode(["cat", "dog"]), {"learning_rate": 1e-2, "initial_learning_rate": 1e-1}
    settings = finetune_settings(iterations=8, alpha=0.0, beta=0.0, chunk_size=2, **rates)
    found = finetune(settings, diffusion, darkness(model), pretrained, pretrained, conditions, KEY)
    assert found.info["predicted_reward"] > found.info["predicted_reward_before"]
    assert path_kl(diffusion, found.params, pretrained, conditions, KEY) > 0
    assert path_kl(diffusion, pretrained, Params(*pretrained), conditions, KEY) == 0


@pytest.mark.parametrize("size", [24, None])
def test_images_have_the_requested_size(folder, size):
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
    changed(other / "scheduler" / "scheduler_config.json", prediction_type="sample")
    with pytest.raises(
        InputError, match=r"scheduler: the denoiser must predict the noise \('epsilon'\) or 'v_prediction'"
    ):
        PipelineModel(load_pipeline(other)).process(2)
    changed(other / "model_index.json", _class_name="KandinskyPipeline")
    with pytest.raises(
        InputError, match=r"is a KandinskyPipeline, which cannot be fine-tuned; use one of StableDiffusionP"
    ):
        load_pipeline(other)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("model_index.json", "is not a pipeline of diffusers: it has no readable model_index.json"),
        (
            "unet/diffusion_pytorch_model.safetensors",
            r"is incomplete, it lacks unet/\*.safetensors; download it with: hf",
        ),
        (
            "vae/config.json",
            r"is incomplete, it lacks vae/config.json; download it with: hf download stable-diffusion-v1",
        ),
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
    with pytest.raises(StoreError, match=r"model: the weights in .*copy are damaged.*download it with: hf download"):
        load_pipeline(tmp_path / "copy")


@pytest.mark.parametrize("place", ["/nowhere/at/all", "./here", "models", "a/b/c"])
def test_a_missing_directory_is_not_requested_from_the_hub(place, monkeypatch):
    monkeypatch.setattr(DiffusionPipeline, "from_pretrained", lambda *_, **__: pytest.fail("requested"))
    with pytest.raises(
        InputError, match=r"is neither a directory nor a name on the hub .* download one with: hf download"
    ):
        load_pipeline(place)


def test_a_hub_name_without_network_says_what_to_download(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        StoreError, match=r"model: 'nobody/none' is neither an existing directory .* hf download stable-diff"
    ):
        load_pipeline("nobody/none")


def test_there_are_fifty_prompts_and_six_that_are_never_measured():
    assert (len(PUBLISHED), len(ADDED), len(set(TRAINING)), len(set(UNSEEN))) == (45, 5, 50, 6)
    assert not set(TRAINING) & set(UNSEEN)

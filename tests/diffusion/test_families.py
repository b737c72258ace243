"""Every family of pipelines from end to end on a tiny one: fine-tune, save, resume, load back into plain diffusers."""

import pytest
import torch
from diffusers import DDIMScheduler, DiffusionPipeline
from short_runs import loop_of, seiko
from tiny import moved
from tiny_pipelines import WRITERS, write

from purectrl.core import InputError, Key
from purectrl.core.samplers import Final
from purectrl.diffusion.models import GuidedDiffusion, Params, count, equal, join, take
from purectrl.diffusion.pipeline import PipelineModel, load_pipeline
from purectrl.diffusion.process import AffineSteps, path, torch_generator
from purectrl.problems.stable_diffusion_images import stable_diffusion
from purectrl.runs.serialization import pack_state

KEY, STEPS, PROMPTS = Key.from_seed(0), 3, ["cat", "owl"]
FLOWS = ("Stable Diffusion 3", "FLUX")
SMALL = {
    "reward": "jpeg",
    "denoising_steps": STEPS,
    "prompts": ("cat", "dog"),
    "held_out_prompts": ("snail",),
    "guidance": 2.0,
    "rollout_batch_size": 4,
    "prompt_view": "text",
    "device": "cpu",
    "size": 16,
}


@pytest.fixture(scope="module", params=WRITERS)
def family(request, tmp_path_factory):
    return request.param, write(request.param, tmp_path_factory.mktemp("pipeline"))


def plain(name, folder):
    """What a user of diffusers has, without any of ours; Stable Diffusion 3 was saved without its third encoder."""
    absent = {"text_encoder_3": None, "tokenizer_3": None} if name == "Stable Diffusion 3" else {}
    pipeline = DiffusionPipeline.from_pretrained(folder, **absent)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def theirs(name, pipeline, start, generator):
    """Images of the plain pipeline from the same x(0): with the same noise for DDIM, by the ODE for flows."""
    settings = {"num_inference_steps": STEPS, "guidance_scale": 2.0, "output_type": "pt", "height": 16, "width": 16}
    if name not in FLOWS:
        pipeline.scheduler = DDIMScheduler.from_config(pipeline.scheduler.config, clip_sample=False)
        settings |= {"eta": 1.0, "generator": generator}
    if name == "FLUX":
        start = pipeline._pack_latents(start, len(start), *start.shape[1:])
        settings["max_sequence_length"] = 16
    return pipeline(PROMPTS, latents=start, **settings).images


def ours(name, model, params, start, generator):
    process = model.process(STEPS)
    if name in FLOWS:  # almost without noise
        process = AffineSteps.flow([*process.noise_scale, 0.0], noise=1e-6)
    guided = GuidedDiffusion(model, process, 1.0 if model.family.embedded_guidance else 2.0)
    denoise = guided.denoiser(params.weights, model.encode(PROMPTS))
    with torch.no_grad():
        *_, end = path(process, denoise, start, generator)
        return model.decode(end.x)


def test_adapters_load_into_plain_diffusers_which_generates_the_same(family, tmp_path):
    name, folder = family
    model = PipelineModel(load_pipeline(folder), rank=2, size=16, guidance=2.0)
    start = torch.randn(2, *model.shape, generator=torch_generator(KEY))
    finetuned = moved(model.pretrained(), size=0.3)
    pipeline = plain(name, folder)
    before = theirs(name, pipeline, start, torch_generator(KEY))
    assert torch.allclose(before, ours(name, model, model.pretrained(), start, torch_generator(KEY)), atol=2e-4)
    model.save_lora(finetuned, tmp_path)
    pipeline.load_lora_weights(tmp_path)
    after = theirs(name, pipeline, start, torch_generator(KEY))
    assert torch.allclose(after, ours(name, model, finetuned, start, torch_generator(KEY)), atol=2e-4)
    assert (after - before).abs().max() > 1e-3


def test_a_run_fine_tunes_resumes_and_saves(family, tmp_path):
    _, folder = family
    learner = seiko({"loss": "mse"}, batch_size=2, chunk_size=1, checkpointing=True, learning_rate=1e-2)

    def run(steps, state=None):
        problem = stable_diffusion(str(folder), **SMALL)
        loop = loop_of(problem, 6, sampler=Final(), learner=learner)
        state = state or loop.init(KEY)
        for _ in range(steps):
            state, record = loop.step(state)
            assert "rolled_back" not in record.info
        return problem, state

    problem, whole = run(2)
    known = problem.reward_input.trunk.context.known
    assert len(known) == 2
    assert known.square().mean() == pytest.approx(1.0, rel=1e-3)
    pretrained, found = problem.diffusion.model.pretrained(), Params.of(whole.output.plan)
    assert whole.ledger.updates == 2
    assert any(not torch.equal(found.weights[key], pretrained.weights[key]) for key in found.weights)
    assert not torch.equal(found.initial.mean, pretrained.initial.mean)
    pack_state(whole)
    _, stopped = run(1)
    _, resumed = run(1, stopped)
    assert equal(Params.of(resumed.output.plan), found)
    files = problem.save_policy(found, tmp_path)
    assert [file.name for file in files] == ["pytorch_lora_weights.safetensors", "initial.safetensors"]


def test_half_precision_stays_inside_the_networks(family):
    _, folder = family
    model, half = (
        PipelineModel(load_pipeline(folder, kind), rank=2, size=16) for kind in (torch.float32, torch.bfloat16)
    )
    x = torch.randn(2, *model.shape, generator=torch_generator(KEY))
    found = []
    for one in (model, half):
        guided = GuidedDiffusion(one, one.process(STEPS))
        output = guided.denoiser(one.pretrained().weights, one.encode(PROMPTS))(x, one.process(STEPS).timesteps[1])
        assert output.dtype == one.decode(x).dtype == torch.float32
        found.append(output.flatten())
    assert torch.nn.functional.cosine_similarity(*found, dim=0) > 0.99


def test_conditions_are_a_tree():
    both = {"tokens": torch.arange(6.0).reshape(3, 2), "pooled": torch.arange(3.0)[:, None]}
    assert count(both) == 3
    assert take(both, torch.tensor([2, 0]))["pooled"].flatten().tolist() == [2.0, 0.0]
    assert count(join(both, take(both, torch.tensor([1])))) == 4


def test_a_size_that_does_not_fit_the_patches_is_refused(tmp_path):
    folder = write("FLUX", tmp_path / "flux")
    with pytest.raises(InputError, match="size: must be a multiple of 8, not 12"):
        PipelineModel(load_pipeline(folder), size=12)

"""The estimate of a run's cost: against FLOP counted during the work, and against the hours that the paper reports."""

import json
import math
import re
from types import SimpleNamespace

import pytest
import tiny
import torch
from torch.utils.checkpoint import set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode

from purectrl.algorithms import named
from purectrl.core import Key
from purectrl.core.samplers import Final, Geometric
from purectrl.diffusion.cost import RunPlan, UpdateWork, backpropagation_work, count_networks, flop_of, total
from purectrl.diffusion.finetune import finetune, simulate
from purectrl.diffusion.models import GuidedDiffusion, trainable_copy
from purectrl.diffusion.problem import RewardInput
from purectrl.diffusion.process import torch_generator
from purectrl.diffusion.reward_networks import ImageTrunk, VectorTrunk
from purectrl.diffusion.rollout import DenoisingRollout
from purectrl.problems.digit_images import digits

KEY = Key.from_seed(0)
WIDE = {"iterations": 2, "batch_size": 6, "kl_samples": None, "min_backprop_steps": 5}


def problem(guidance=1.0):
    trunk = ImageTrunk(1, 4, tiny.CLASSES, width=8, filters=(4, 4, 4))
    return SimpleNamespace(diffusion=tiny.diffusion(guidance), conditions=(0, 1, 2), reward_input=RewardInput(trunk))


def counted(work):
    with FlopCounterMode(display=False) as counter, set_checkpoint_early_stop(False):
        result = work()
    return counter.get_total_flops(), result


def update(where, updates=1, **settings):
    """FLOP of a real update, and what was expected of it."""
    learner = tiny.learner(**{**WIDE, **settings})
    learner = type(learner)(where.diffusion, where.conditions, learner.reward_model, learner.settings)
    state = learner.init(KEY)
    pretrained, model = where.diffusion.model.pretrained(), where.diffusion.model
    previous = pretrained if updates == 1 else tiny.moved(pretrained)
    score = lambda x, condition, t: learner._score(state.reward, x, condition, t)  # noqa: E731
    work = lambda: finetune(  # noqa: E731
        learner.settings, where.diffusion, score, previous, pretrained, model.encode(where.conditions), KEY
    )
    flop, result = counted(work)
    return flop, result.info["update_evaluations"], learner.update_work(updates, 8)._replace(fitted=0.0)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize(("guidance", "updates"), [(1.0, 1), (2.0, 2)])
def test_the_flop_of_an_update_are_those_counted_in_it(guidance, updates, checkpointing):
    where = problem(guidance)
    flop, evaluations, work = update(where, updates, checkpointing=checkpointing)
    assert work.forward == evaluations
    assert flop_of(work, count_networks(where)) == pytest.approx(flop, rel=0.03)


def test_where_steps_are_drawn_the_estimate_is_the_mean():
    where = problem()
    flop, evaluations, work = update(where, 2, iterations=60, batch_size=1, min_backprop_steps=1, kl_samples=2)
    assert work.forward == pytest.approx(evaluations, rel=0.02)
    # the gradient to the state at the truncation is in the estimate, but not needed; here the network has two layers only
    assert flop <= flop_of(work, count_networks(where)) * 1.03
    assert flop_of(work, count_networks(where)) == pytest.approx(flop, rel=0.1)


@pytest.mark.parametrize("points", [1, 2, 5])
def test_each_point_of_the_riemann_sum_is_an_image_more(points):
    where = problem()
    flop, _, work = update(where, reward_points=points)
    assert work.judged == 12 * points
    assert flop_of(work, count_networks(where)) == pytest.approx(flop, rel=0.03)


def test_the_flop_of_rollouts_are_those_counted_in_them():
    where = problem()
    rollout = DenoisingRollout(where.diffusion, (0, 1, 2), tiny.brightness)
    plan = where.diffusion.model.pretrained().plan()
    flop, _ = counted(lambda: rollout(KEY, plan, torch.full((8, 1), 5.0).numpy()))
    assert total(RunPlan(5, 8, 1.0, ()), count_networks(where)).flop["rollouts"] == pytest.approx(flop, rel=1e-6)


def test_the_fit_of_the_reward_model_is_counted():
    where, model = problem(), tiny.reward_model(steps=7, batch_size=16, check_every=1000, held_out=0.0)
    rows = tiny_rows(40)
    flop, _ = counted(
        lambda: model._train(model.init(KEY), rows, torch.ones(40, 1), rows.at(slice(0)), torch_generator(KEY))
    )
    assert flop_of(UpdateWork(fitted=7 * 16), count_networks(where)) == pytest.approx(flop, rel=0.03)


def tiny_rows(n):
    from purectrl.diffusion.reward_model import RewardData

    return RewardData(torch.rand(n, *tiny.SHAPE), torch.ones(n), torch.zeros(n, dtype=torch.int64), torch.rand(n))


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_memory_of_an_update_is_what_autograd_keeps(checkpointing):
    where, kept = problem(), {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage
        return tensor

    settings = tiny.finetune_settings(**WIDE, checkpointing=checkpointing)
    current = trainable_copy(where.diffusion.model.pretrained())
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        condition = where.diffusion.model.encode([0, 1, 2] * 2)
        simulate(settings, where.diffusion, current, [], condition, torch_generator(KEY))
    weights = {tensor.untyped_storage().data_ptr() for tensor in current.weights.values()}
    saved = sum(storage.nbytes() for place, storage in kept.items() if place not in weights)
    work = backpropagation_work(settings, where.diffusion.process, 1, 0)
    expected = work.stored * count_networks(where).denoise.saved
    if checkpointing:  # states instead of activations
        assert saved < expected
    else:
        assert expected == pytest.approx(saved, rel=0.15)


def stable_diffusion_on_paper():
    """Stable Diffusion 1.5, its decoder and CLIP ViT-L/14, with shapes and without weights."""
    from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPVisionConfig, CLIPVisionModelWithProjection

    from purectrl.diffusion.pipeline import PipelineModel
    from purectrl.diffusion.rewards.aesthetic import preprocess

    with torch.device("meta"):
        unet = UNet2DConditionModel(cross_attention_dim=768, attention_head_dim=8, sample_size=64)
        blocks = {"down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4}
        vae = AutoencoderKL(**blocks, block_out_channels=(128, 256, 512, 512), layers_per_block=2)
        text = CLIPTextModel(CLIPTextConfig(num_hidden_layers=1))
        sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
        clip = CLIPVisionModelWithProjection(CLIPVisionConfig(**sizes, patch_size=14, projection_dim=768))
    clip.requires_grad_(False)
    schedule = DDIMScheduler(
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        set_alpha_to_one=False,
        steps_offset=1,
        clip_sample=False,
    )
    pipeline = StableDiffusionPipeline(vae, text, None, unet, schedule, None, None, requires_safety_checker=False)
    model = PipelineModel(pipeline, rank=4, device="meta")
    model.encode = lambda conditions: torch.zeros(len(conditions), 77, 768, device="meta")
    diffusion = GuidedDiffusion(model, model.process(50), 7.5)
    # CLIP's mean and deviation are constants, which "meta" tensors cannot be mixed with
    embed = lambda images: clip(pixel_values=shrink(images)).image_embeds  # noqa: E731
    shrink = lambda images: torch.nn.functional.interpolate(images, (224, 224))  # noqa: E731
    assert preprocess(torch.zeros(1, 3, 512, 512), 224).shape == (1, 3, 224, 224)
    return SimpleNamespace(
        name="stable-diffusion",
        diffusion=diffusion,
        conditions=("cat",),
        reward_input=RewardInput(VectorTrunk(768, 50).to("meta"), embed),
    )


def test_the_released_settings_take_the_hours_that_the_paper_reports():
    """15.2 h and 31.3 h on an A6000. The rows differ in 14,400 trajectories, which gives the speed of the card."""
    where = stable_diffusion_on_paper()
    costs = count_networks(where)
    assert costs.denoise.forward == pytest.approx(0.803e12, rel=0.01)
    # the released code evaluates the divergence at all steps, and from the previous model alone
    finetuning = named("pure-seiko", where).learner.finetune
    released = backpropagation_work(
        type(finetuning)(**{**vars(finetuning), "kl_samples": None}), where.diffusion.process, 2, references=1
    )
    speed = 14_400 * (100 * costs.denoise.forward) / ((31.3 - 15.2) * 3600)
    assert 15e12 < speed < 25e12, "half of the card's peak of 38.7 TFLOP/s in single precision"
    for episodes, images, hours in ((4_800, 4.0, 15.2), (19_200, 1.0, 31.3)):
        found = total(RunPlan(100, episodes, images, (released,) * 4), costs, rate=speed)
        assert found.hours == pytest.approx(hours, rel=0.3)
        assert found.hours < hours, "loading and evaluation are not in it"
    ours = backpropagation_work(finetuning, where.diffusion.process, 2, references=2)
    assert 8 < total(RunPlan(100, 4_800, 1.6, (ours,) * 4), costs, rate=speed).hours < 12
    table = named("pure-seiko", where, preset="paper").learner.finetune
    literal = backpropagation_work(table, where.diffusion.process, 2, references=2)
    assert total(RunPlan(100, 4_800, 1.6, (literal,) * 4), costs, rate=speed).hours > 100


def test_a_run_says_what_it_will_cost_before_it_starts(tmp_path, capsys):
    from purectrl.cli import main

    small = "--measurements 8 --schedule.updates 1 --problem.denoising-steps 2 --problem.eval-images 2"
    small += " --learner.reward-model.steps 2 --learner.finetune.iterations 1 --learner.finetune.batch-size 2"
    command = ["run", "digits", "--algorithm", "pure-seiko", *small.split()]
    assert main([*command, "--out", str(tmp_path / "run")]) == 0
    first, *_ = [line for line in capsys.readouterr().err.splitlines() if "estimate" in line]
    assert re.match(r"estimate: [\d,]+ network evaluations .* [GTPE]?FLOP, .* GB, about .* on cpu at .*FLOP/s", first)
    (record,) = map(json.loads, (tmp_path / "run" / "records.jsonl").read_text().splitlines())
    assert record["eval_kl_pretrained"] > 0


def test_the_estimate_counts_what_the_records_count():
    from short_runs import lines_of, loop_of, seiko

    from purectrl.diffusion.cost import estimate

    where = digits(lambda images, conditions: [0.5] * len(images), denoising_steps=3, eval_images=2)
    for sampler in (Final(), Geometric(m=4, lam=6.0)):
        loop = loop_of(where, 16, sampler=sampler, learner=seiko(kl_samples=None))
        found = estimate(where, loop, rate=1e9)
        _, lines = lines_of(where, loop)
        assert found.evaluations["rollouts"] + found.evaluations["updates"] == sum(
            line["network_evaluations"] for line in lines
        )
        assert math.isclose(found.hours, sum(found.flop.values()) / 3.6e12)

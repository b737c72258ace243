"""`stable-diffusion`: the paper's presets, and the whole path on a tiny pipeline, with few of everything."""

import json
import subprocess
import sys

import pytest
import torch
from diffusers import DDIMScheduler, StableDiffusionPipeline
from helpers import left_by
from safetensors.torch import load_file
from tiny import save_clip, save_head, save_pipeline

from purectrl.cli import main
from purectrl.core import InputError, MeasurementError, StoreError
from purectrl.core.keys import Key
from purectrl.core.schedules import update_points
from purectrl.diffusion.animals import TRAINING, UNSEEN
from purectrl.diffusion.pipeline import PipelineModel, load_pipeline
from purectrl.diffusion.process import generator_of
from purectrl.diffusion.rewards import Reward
from purectrl.experiments import Spec, evaluate, experiment, resume, run
from purectrl.experiments.config import make_sampler, make_schedule
from purectrl.experiments.diffusion import sample
from purectrl.experiments.runner import EVALUATED, learned
from purectrl.experiments.stable_diffusion import jpeg, tuning_task
from purectrl.experiments.store import Store

TINY = {
    "reward": "jpeg",
    "measurements": 32,
    "updates": 2,
    "denoising_steps": 3,
    "fit_steps": 4,
    "fit_batch": 8,
    "tune_iterations": 2,
    "tune_batch": 3,
    "tune_rate": 1e-2,
    "initial_rate": 1e-1,
    "prompts": ("cat", "dog", "owl"),
    "unseen": ("snail",),
    "guidance": 2.0,
    "chunk": 4,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_pipeline(tmp_path_factory.mktemp("pipeline"))


def spec(folder, algorithm="pure-seiko", **settings):
    return Spec.of("stable-diffusion", algorithm, **(TINY | {"model": str(folder)} | settings))


def flags(folder, **settings):
    """The same as arguments of the command line."""
    told = TINY | {"model": folder} | settings
    words = lambda value: map(str, value if isinstance(value, tuple) else (value,))  # noqa: E731
    return [word for name, value in told.items() for word in (f"--{name.replace('_', '-')}", *words(value))]


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "whole"
    arguments = ["--algorithm", "pure-seiko", "--out", str(out), "--quiet"]
    assert main(["run", "stable-diffusion", *arguments, *flags(folder)]) == 0
    return out


def test_presets_are_the_paper_s_table():
    seiko, pure = (experiment("stable-diffusion").config(name) for name in ("seiko", "pure-seiko"))
    for config, m in ((seiko, 1), (pure, 4)):
        made = config.resolved()
        assert (make_sampler(made).m, made.measurements, made.updates, made.growth) == (m, 19_200, 4, 2.0)
        points = update_points(make_schedule(made), 19_200 // m, m)
        assert [point * m for point in points] == [1280, 3840, 8960, 19_200]
        assert (made.tune_batch, made.beta, made.bonus, made.uncertainty) == (128, 0.01, 0.002, "ucb")
        assert (made.denoising_steps, made.tune_iterations, made.look) == (50, 100, "state")
        assert (made.reward, made.prompts, made.unseen) == ("aesthetic", (), ())
    assert pure.lam == 6.0
    assert {field for field in vars(seiko) if vars(seiko)[field] != vars(pure)[field]} == {"sampler", "m"}


def test_the_ledger_has_what_was_spent_and_every_query_is_logged(whole):
    summary, records = left_by(whole)
    ledger, metrics = summary["ledger"], summary["metrics"]
    assert (ledger["rollouts"], ledger["measurements"], ledger["updates"]) == (8, 32, 2)
    assert ledger["evaluation_rollouts"] == 2 * 2 * 4 == sum(record.get(EVALUATED, 0) for record in records)
    lines = [json.loads(line) for line in (whole / "queries.jsonl").read_text().splitlines()]
    assert len(lines) == metrics["queries"]
    assert {line["condition"] for line in lines} <= {"cat", "dog", "owl"}
    for record in records:  # guidance asks the denoiser twice
        assert record["network_evaluations"] == 2 * 3 * record["episodes"] + record["update_evaluations"]
    assert metrics["reward_by_prompt"].keys() == {"cat", "dog", "owl", "snail"}
    assert metrics["kl_pretrained"] > 0
    assert metrics["reward"] != metrics["reward_pretrained"]
    assert metrics["diversity"] > 0


def test_a_run_leaves_pictures_of_measured_and_unseen_prompts(whole):
    pictures = {f"{name}-{kind}.png" for name in ("samples", "update-1", "update-2") for kind in ("training", "unseen")}
    assert {file.name for file in (whole / "media").iterdir()} == pictures
    assert all((whole / "media" / name).read_bytes()[:4] == b"\x89PNG" for name in pictures)


def test_plain_diffusers_paints_what_the_run_has_learned(whole, folder):
    _, plan = learned(whole)
    config = spec(folder).settings
    model = PipelineModel(load_pipeline(folder))
    key, prompts = Key.from_seed(5), ["cat", "snail"]
    (ours,) = sample(model, model.process(3), plan, prompts, key, config)
    pipeline = StableDiffusionPipeline.from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.scheduler = DDIMScheduler.from_config(pipeline.scheduler.config, clip_sample=False)
    settings = {"num_inference_steps": 3, "guidance_scale": 2.0, "eta": 1.0, "output_type": "pt"}
    q = load_file(whole / "policy" / "initial.safetensors")

    def theirs():
        generator = generator_of(key.child("images", 0))
        start = q["mean"] + q["log_scale"].exp() * torch.randn(2, 4, 4, 4, generator=generator)
        return pipeline(prompts, latents=start, generator=generator, **settings).images

    assert (theirs() - torch.from_numpy(ours)).abs().max() > 1e-3
    pipeline.load_lora_weights(whole / "policy")
    assert torch.allclose(theirs(), torch.from_numpy(ours), atol=1e-5)


def test_a_stopped_run_goes_on_bit_for_bit(whole, folder, tmp_path, monkeypatch):
    saved = Store.checkpoint

    def stop(self, state):
        saved(self, state)
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, "checkpoint", stop)
    with pytest.raises(KeyboardInterrupt):
        run(spec(folder), tmp_path / "run", quiet=True)
    monkeypatch.undo()
    resume(tmp_path / "run", quiet=True)
    (one, records), (other, other_records) = left_by(whole), left_by(tmp_path / "run")
    assert records == other_records
    assert one["metrics"] == other["metrics"]
    for name in ("plan", "pytorch_lora_weights", "initial"):
        before, after = (load_file(out / "policy" / f"{name}.safetensors") for out in (whole, tmp_path / "run"))
        assert before.keys() == after.keys()
        assert all(torch.equal(before[key], after[key]) for key in before)


def test_a_finished_run_can_be_evaluated(whole):
    found = evaluate(whole, episodes=8, seed=3)["metrics"]
    assert found.keys() == {"reward", "reward_held_out", "diversity", "reward_by_prompt", "images"}
    assert found["reward"] < 0


def test_the_aesthetic_reward_runs_on_its_embedding(folder, tmp_path):
    clip = save_clip(tmp_path / "clip")
    save_head(tmp_path / "head.safetensors")
    paths = {"aesthetic_clip": str(clip), "aesthetic_head": str(tmp_path / "head.safetensors")}
    small = {"measurements": 4, "updates": 1, "tune_iterations": 1, "precision": "bf16"}
    run(spec(folder, "seiko", reward="aesthetic", **paths, **small), tmp_path / "run", quiet=True)
    summary, _ = left_by(tmp_path / "run")
    assert summary["ledger"]["rollouts"] == summary["metrics"]["queries"] == 4
    (checkpoint,) = (tmp_path / "run" / "checkpoint").glob("*.safetensors")
    assert load_file(checkpoint)["data.x"].shape == (4, 1, 8)


@pytest.mark.slow
def test_accelerate_starts_two_processes_that_make_the_run_of_one(whole, folder, tmp_path):
    """With exactly the same numbers: a job's noise is its own, and what comes out is added in one order."""
    launch = ["accelerate.commands.launch", "--cpu", "--num_processes", "2", "--num_machines", "1"]
    launch += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0", "-m", "purectrl"]
    arguments = ["--algorithm", "pure-seiko", "--out", str(tmp_path / "run"), "--quiet", *flags(folder)]
    command = [sys.executable, "-m", *launch, "run", "stable-diffusion", *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (one, records), (other, other_records) = left_by(whole), left_by(tmp_path / "run")
    assert (one["ledger"], one["metrics"]) == (other["ledger"], other["metrics"])
    assert records == other_records


def test_without_prompts_of_your_own_the_paper_s_animals_are_asked_for(folder):
    task = spec(folder, prompts=(), unseen=()).build()
    assert tuple(task.loop.learner.conditions) == TRAINING
    assert task.episodes == 4 * 2 * len((*TRAINING, *UNSEEN))


def test_your_own_reward_is_a_function_and_what_it_gets_wrong_ends_the_run(folder):
    config = spec(folder).settings
    _, view = jpeg(config, torch.device("cpu"))
    model = PipelineModel(load_pipeline(folder))
    task = tuning_task(config, model, Reward(lambda images, prompts: images[:, 0].mean((1, 2)), name="red"), view)
    state, record = task.loop.step(task.loop.init(Key.from_seed(0)))
    assert record.updated
    assert ((record.block.r > 0) & (record.block.r < 1)).all()
    broken = tuning_task(config, model, Reward(lambda images, prompts: [float("nan")] * len(images), name="red"), view)
    with pytest.raises(MeasurementError, match="reward 'red' returned nan"):
        broken.loop.step(state)


def test_a_prompt_is_measured_or_unseen_and_not_both(folder):
    for settings, name in (({"unseen": ("snail", "owl")}, "owl"), ({"prompts": ("octopus",), "unseen": ()}, "octopus")):
        with pytest.raises(InputError, match=f"unseen: '{name}' is measured, too"):
            spec(folder, **settings).build()


def test_what_is_missing_is_answered_in_a_line_and_leaves_nothing_behind(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for place, message in [
        (
            tmp_path / "none",
            "is no directory, and no name on the hub such as stable-diffusion-v1-5/stable-diffusion-v1-5",
        ),
        ("nobody/none", "nor a name that the hub can be asked for here"),
        (tmp_path, "holds no pipeline of diffusers"),
    ]:
        arguments = ["--algorithm", "seiko", "--out", str(tmp_path / "out"), *flags(folder, model=place)]
        assert main(["run", "stable-diffusion", *arguments]) == 2
        told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        assert len(told) == 1
        assert message in told[0]
        assert "hf download stable-diffusion-v1-5/stable-diffusion-v1-5 --local-dir DIR" in told[0]
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": None}, "model: a Stable Diffusion pipeline is needed: .* --model stable-diffusion-v1-5/"),
        ({"reward": "aesthetic"}, "aesthetic_clip: the aesthetic reward is a head on CLIP .* --aesthetic-clip openai/"),
        ({"reward": "aesthetic", "aesthetic_clip": "x"}, "aesthetic_head: the aesthetic reward is a head on CLIP"),
        ({"reward": "pretty"}, "reward: 'pretty' is none of aesthetic, jpeg, nor module:function"),
        ({"prompts": ("cat", "cat")}, "prompts: one of them is named twice"),
        ({"prompts": ("cat", " ")}, "prompts: must be a name, not ' '"),
        ({"rank": 0}, "rank: must lie between 1 and"),
        ({"size": -8}, "size: must lie between 1 and 4096 pixels, or 0, not -8"),
        ({"tune_chunk": -1}, "tune_chunk: cannot be negative, got -1"),
    ],
)
def test_wrong_settings_are_named(folder, settings, message):
    with pytest.raises(InputError, match=message):
        spec(folder, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 18}, "size: must be a multiple of 4, not 18"),
        ({"precision": "fp16", "device": "cpu"}, "precision: fp16 needs a GPU; on a CPU take bf16 or no"),
        ({"denoising_steps": 1000}, "denoising_steps: must lie between 1 and 999 for this model, not 1000"),
    ],
)
def test_settings_that_do_not_suit_the_model_are_named(folder, settings, message):
    with pytest.raises(InputError, match=message):
        spec(folder, **settings).build()


def test_a_gpu_that_is_not_there_is_named(folder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="device: there is no GPU that torch can use; take cpu"):
        spec(folder, device="cuda").build()


def test_truncated_weights_end_a_run_before_it_begins(folder, tmp_path):
    broken = save_pipeline(tmp_path / "broken")
    file = broken / "unet" / "diffusion_pytorch_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(StoreError, match=r"model: the weights in .*broken are damaged"):
        run(spec(broken), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()

"""The problem `stable_diffusion`: the whole path on a tiny pipeline with random weights, with little work."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from diffusers import DDIMScheduler, StableDiffusionPipeline
from safetensors.torch import load_file
from short_runs import finish, lines_of, loop_of, seiko
from tiny import save_clip, save_head, save_pipeline

from purectrl.algorithms import named
from purectrl.cli import main
from purectrl.core import InputError, Key, MeasurementError, StoreError
from purectrl.core.samplers import Final
from purectrl.core.settings import parameter_docs
from purectrl.diffusion import FinetuneSettings, RewardModelSettings, Seiko
from purectrl.diffusion.models import equal
from purectrl.diffusion.process import torch_generator
from purectrl.diffusion.prompts import TRAINING, UNSEEN
from purectrl.diffusion.rollout import final_images
from purectrl.problems.stable_diffusion_images import stable_diffusion

SMALL = {
    "reward": "jpeg",
    "denoising_steps": 3,
    "prompts": ("cat", "dog", "owl"),
    "held_out_prompts": ("snail",),
    "guidance": 2.0,
    "rollout_batch_size": 4,
    "device": "cpu",
}
RATES = {"learning_rate": 1e-2, "initial_learning_rate": 1e-1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(save_pipeline(tmp_path_factory.mktemp("pipeline")))


def learner():
    return seiko({"loss": "mse"}, batch_size=3, chunk_size=2, checkpointing=True, **RATES)


def problem_of(folder, **arguments):
    return stable_diffusion(folder, **(SMALL | arguments))


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    problem = problem_of(folder).open(out)
    loop = loop_of(problem, 32, learner=learner())
    state, lines = lines_of(problem, loop)
    files, metrics = finish(problem, loop, state, lines, out)
    return SimpleNamespace(out=out, problem=problem, state=state, lines=lines, files=files, metrics=metrics)


def test_defaults_are_the_paper_s_table(folder):
    problem = stable_diffusion(folder, reward="jpeg", device="cpu")
    assert (problem.conditions, problem.eval_conditions) == (TRAINING, (*TRAINING, *UNSEEN))
    assert (problem.measurements, problem.horizon, problem.diffusion.guidance) == (19_200, 50.0, 7.5)
    assert problem.eval_episodes == 2 * 56
    reward, finetune = RewardModelSettings(), FinetuneSettings()
    assert (finetune.batch_size, finetune.iterations, finetune.beta) == (128, 100, 0.01)
    assert (reward.bonus_scale, reward.uncertainty) == (0.002, "ucb")
    assert named("pure-seiko", problem, preset="paper").learner == Seiko(
        RewardModelSettings(loss="mse"), FinetuneSettings(chunk_size=8, chunk_trial=True, checkpointing=True)
    )
    assert set(parameter_docs(stable_diffusion)) == set(stable_diffusion.__kwdefaults__) | {"model", "reward"}


def test_the_default_preset_is_the_released_one(folder):
    """One nat costs 1/16,384 of a point: the released code averages over the 16,384 dimensions of a latent."""
    problem = stable_diffusion(folder, reward="jpeg", device="cpu")
    found = named("pure-seiko", problem)
    assert found == named("pure-seiko", problem, preset="released")
    finetune = found.learner.finetune
    assert finetune.alpha + finetune.beta == pytest.approx(1 / (4 * 64 * 64), rel=0.01)
    assert (finetune.iterations, finetune.batch_size, finetune.learning_rate) == (10, 32, 1e-3)
    assert (finetune.gradient_clip, finetune.weight_decay, finetune.adam_beta2) == (5.0, 0.1, 0.999)
    # the size of the table's C₁ with a covariance that is divided by n, at the first update
    assert found.learner.reward_model.bonus_scale == pytest.approx(0.002 * 1280**0.5, rel=0.03)
    with pytest.raises(InputError, match=r"unknown preset 'papr': did you mean 'paper'\? \(one of: paper, released\)"):
        named("pure-seiko", problem, preset="papr")


def test_a_preset_is_a_flag_that_others_override(folder, tmp_path, capsys):
    words = f"--model {folder} --reward jpeg --problem.device cpu --algorithm pure-seiko --help".split()
    for preset, flags, shown in [
        ("paper", "", "--learner.finetune.iterations [100]"),
        ("released", "", "--learner.finetune.iterations [10]"),
        ("paper", "--learner.finetune.iterations 7", "--learner.finetune.iterations [7]"),
    ]:
        assert main(["run", "stable-diffusion", "--preset", preset, *flags.split(), *words]) == 0
        assert shown in capsys.readouterr().out
    assert main(["run", "finite", "--algorithm", "pure-base", "--preset", "paper", "--out", str(tmp_path / "no")]) == 2
    assert "preset: pure-base has no presets on finite" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_the_budget_is_spent_and_every_query_is_logged(whole):
    ledger, metrics = whole.state.ledger, whole.metrics
    assert (ledger.rollouts, ledger.measurements, ledger.updates) == (8, 32, 2)
    queries = [json.loads(line) for line in (whole.out / "queries.jsonl").read_text().splitlines()]
    assert len(queries) == metrics["queries"]
    assert {query["condition"] for query in queries} <= {"cat", "dog", "owl"}
    for line in whole.lines:  # guidance evaluates the denoiser twice
        assert line["network_evaluations"] == 2 * 3 * line["episodes"] + line["update_evaluations"]
    assert metrics["reward_by_prompt"].keys() == {"cat", "dog", "owl", "snail"}
    assert metrics["kl_pretrained"] > 0
    assert metrics["reward"] != metrics["reward_pretrained"]
    assert metrics["diversity"] > 0
    assert whole.lines[0].keys() >= {"test_reward", "test_reward_held_out", "test_diversity"}


def test_a_run_leaves_images_of_measured_and_held_out_prompts(whole):
    names = {f"{name}-{kind}.png" for name in ("samples", "evaluation") for kind in ("training", "held-out")}
    assert {file.name for file in (whole.out / "media").iterdir()} == names
    assert all((whole.out / "media" / name).read_bytes()[:4] == b"\x89PNG" for name in names)


def test_plain_diffusers_generates_what_the_run_has_learned(whole, folder):
    key, prompts = Key.from_seed(5), ["cat", "snail"]
    (ours,) = final_images(whole.problem.diffusion, whole.state.output.plan, prompts, key)
    pipeline = StableDiffusionPipeline.from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.scheduler = DDIMScheduler.from_config(pipeline.scheduler.config, clip_sample=False)
    settings = {"num_inference_steps": 3, "guidance_scale": 2.0, "eta": 1.0, "output_type": "pt"}
    q = load_file(whole.out / "policy" / "initial.safetensors")

    def theirs():
        generator = torch_generator(key.child("images", 0))
        start = q["mean"] + q["log_scale"].exp() * torch.randn(2, 4, 4, 4, generator=generator)
        return pipeline(prompts, latents=start, generator=generator, **settings).images

    assert (theirs() - ours).abs().max() > 1e-3
    pipeline.load_lora_weights(whole.out / "policy")
    assert torch.allclose(theirs(), ours, atol=1e-5)


def test_a_run_resumes_bit_for_bit(whole, folder, tmp_path):
    first = problem_of(folder).open(tmp_path)
    loop = loop_of(first, 32, learner=learner())
    state, _ = loop.step(loop.init(Key.from_seed(0)))
    again = problem_of(folder).open(tmp_path)
    resumed, lines = lines_of(again, loop_of(again, 32, learner=learner()), state)
    assert equal(resumed.learner.params, whole.state.learner.params)
    assert lines == whole.lines[1:]


def test_evaluation_is_named_by_its_label(whole, tmp_path):
    problem = whole.problem.open(tmp_path)
    found = problem.evaluate(whole.state.output.plan, Key(3), 8, label="update-1")
    assert found.keys() == {"reward", "reward_held_out", "diversity"}
    assert found["reward"] < 0
    assert {file.name for file in (tmp_path / "media").iterdir()} == {"update-1-training.png", "update-1-held-out.png"}


def test_the_aesthetic_reward_runs_on_its_embedding(folder, tmp_path):
    clip = save_clip(tmp_path / "clip")
    save_head(tmp_path / "head.safetensors")
    paths = {"aesthetic_clip": str(clip), "aesthetic_head": str(tmp_path / "head.safetensors")}
    problem = problem_of(folder, reward="aesthetic", precision="bf16", **paths).open(tmp_path)
    state, lines = lines_of(problem, loop_of(problem, 4, 1, Final(), learner()))
    assert state.ledger.rollouts == lines[0]["queries"] == 4
    assert state.data.all.x.shape == (4, 1, 8)


RUN = """
import hashlib, json, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from short_runs import finish, lines_of, loop_of, seiko
from purectrl.diffusion.models import tensors
from purectrl.problems.stable_diffusion_images import stable_diffusion

out = Path({out!r})
problem = stable_diffusion({folder!r}, **{small!r}).open(out)
learner = seiko({{"loss": "mse"}}, batch_size=3, chunk_size=2, checkpointing=True, **{rates!r})
loop = loop_of(problem, 32, learner=learner)
state, lines = lines_of(problem, loop)
files, metrics = finish(problem, loop, state, lines, out)
digest = hashlib.sha256(b"".join(t.contiguous().numpy().tobytes() for t in tensors(state.learner.params))).hexdigest()
result = json.dumps({{"digest": digest, "lines": lines, "metrics": metrics, "files": len(files)}})
(out / f"result-{{problem.ranks.rank}}.json").write_text(result)
"""


@pytest.mark.slow
def test_two_processes_of_a_launcher_make_the_run_of_one(whole, folder, tmp_path):
    """With exactly the same numbers on both ranks; only the main process writes files."""
    code = RUN.format(
        tests=str(Path(__file__).parents[1] / "diffusion"), out=str(tmp_path), folder=folder, small=SMALL, rates=RATES
    )
    (tmp_path / "run.py").write_text(code)
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, "-m", *launch, str(tmp_path / "run.py")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, capture_output=True, timeout=300, env=environment)
    main, other = (json.loads((tmp_path / f"result-{rank}.json").read_text()) for rank in (0, 1))
    assert main["metrics"] == other["metrics"] == json.loads(json.dumps(whole.metrics))
    assert main["lines"] == other["lines"] == json.loads(json.dumps(whole.lines))
    assert main["digest"] == other["digest"]
    assert (main["files"], other["files"]) == (len(whole.files), 0)
    queries = (tmp_path / "queries.jsonl").read_text().splitlines()
    assert len(queries) == whole.metrics["queries"]


def test_a_custom_reward_is_a_function_and_its_errors_end_the_step(folder):
    def red(images, prompts):
        return images[:, 0].mean((1, 2))

    problem = problem_of(folder, reward=red)
    loop = loop_of(problem, 32, learner=learner())
    state, record = loop.step(loop.init(Key.from_seed(0)))
    assert record.updated
    assert ((record.block.r > 0) & (record.block.r < 1)).all()
    broken = problem_of(folder, reward=lambda images, prompts: [float("nan")] * len(images))
    with pytest.raises(MeasurementError, match="reward '<lambda>' returned nan"):
        loop_of(broken, 32, learner=learner()).step(state)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reward": "aesthetic"}, "aesthetic_clip: the aesthetic reward is a head on CLIP .*aesthetic_clip='openai/"),
        ({"reward": "aesthetic", "aesthetic_clip": "x"}, "aesthetic_head: the aesthetic reward is a head on CLIP"),
        ({"reward": "pretty"}, "unknown reward 'pretty'"),
        ({"prompts": ("cat", "cat")}, "prompts: must be distinct"),
        ({"prompts": ("cat", " ")}, "prompts: must not be empty"),
        ({"held_out_prompts": ("snail", "owl")}, "held_out_prompts: 'owl' is measured"),
        ({"rank": 0}, "rank: must be between 1 and"),
        ({"size": -8}, "size: must be between 1 and 4096 pixels, not -8"),
        ({"size": 18}, "size: must be a multiple of 4, not 18"),
        ({"precision": "fp16"}, "precision: fp16 needs a GPU; use bf16 or no on a CPU"),
        ({"denoising_steps": 1000}, "denoising_steps: must lie between 1 and 999 for this model, not 1000"),
    ],
)
def test_wrong_arguments_are_named(folder, arguments, message):
    with pytest.raises(InputError, match=message):
        problem_of(folder, **arguments)


def test_a_model_that_is_missing_says_how_to_get_one(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        InputError, match=r"model: a Stable Diffusion pipeline is needed: .* such as stable-diffusion-v1-5/"
    ):
        stable_diffusion(**SMALL)
    download = "hf download stable-diffusion-v1-5/stable-diffusion-v1-5 --local-dir DIR"
    for place, error, message in [
        (tmp_path / "none", InputError, "is neither a directory nor a name on the hub such as stable-diffusion-v1-5/"),
        ("nobody/none", StoreError, "nor a name that can be downloaded from the hub here"),
        (tmp_path, StoreError, "is not a pipeline of diffusers"),
    ]:
        with pytest.raises(error, match=message) as failure:
            problem_of(str(place))
        assert download in str(failure.value)


def test_a_missing_gpu_is_named(folder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="device: there is no GPU that torch can use; use cpu"):
        problem_of(folder, device="cuda")


def test_truncated_weights_are_named(tmp_path):
    broken = save_pipeline(tmp_path / "broken")
    file = broken / "unet" / "diffusion_pytorch_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(StoreError, match=r"model: the weights in .*broken are damaged"):
        problem_of(str(broken))

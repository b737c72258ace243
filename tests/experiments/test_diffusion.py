"""`digits`: presets of the paper, runs that resume, accounts, and what a run leaves; with few of everything."""

import importlib.metadata
import json
import shutil

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler, UNet2DModel
from helpers import left_by
from safetensors.torch import load_file

from purectrl.cli import main
from purectrl.core import InputError
from purectrl.core.schedules import update_points
from purectrl.diffusion.digits.network import schedule
from purectrl.experiments import Spec, evaluate, experiment, resume, run
from purectrl.experiments.config import make_sampler, make_schedule
from purectrl.experiments.runner import EVALUATED, _task, learned
from purectrl.experiments.store import Store
from purectrl.report.samples import read_samples

TINY = {
    "measurements": 48,
    "denoising_steps": 3,
    "fit_steps": 4,
    "fit_batch": 8,
    "tune_iterations": 2,
    "tune_batch": 2,
    "test_images": 2,
    "updates": 2,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("digits") / "whole"
    run(Spec.of("digits", "pure-seiko", **TINY), out, quiet=True)
    return out


def arrays_of(out, name):
    file = out / name
    return load_file(file) if file.is_file() else load_file(max(file.glob("*.safetensors")))


def test_presets_are_the_paper_s_and_differ_in_sampler_and_m_alone():
    seiko, pure = (experiment("digits").config(name) for name in ("seiko", "pure-seiko"))
    for config, m in ((seiko, 1), (pure, 4)):
        config.check()
        made = config.resolved()
        assert (make_sampler(made).m, made.measurements) == (m, 19_200)
        points = update_points(make_schedule(made), 19_200 // m, m)
        assert [point * m for point in points] == [1280, 3840, 8960, 19_200]
    assert pure.lam == 6.0
    assert {field for field in vars(seiko) if vars(seiko)[field] != vars(pure)[field]} == {"sampler", "m"}


def test_the_ledger_has_what_was_spent_and_tests_are_apart(whole):
    summary, records = left_by(whole)
    ledger, metrics = summary["ledger"], summary["metrics"]
    assert (ledger["rollouts"], ledger["measurements"], ledger["updates"]) == (12, 48, 2)
    assert ledger["evaluation_rollouts"] == 40 == sum(record.get(EVALUATED, 0) for record in records)
    asked = (whole / "evaluation.jsonl").read_text().splitlines()
    pictures = 2 * 10 * 10
    assert len(asked) == 40 + metrics["final_test_images"] + pictures
    assert [record["episodes"] for record in records] == [4, 8]
    wanted = {
        "reward",
        "reward_pretrained",
        "reward_held_out",
        "kl_pretrained",
        "second_opinion",
        "network_evaluations",
    }
    assert wanted <= metrics.keys()
    assert len(metrics["reward_by_class"]) == 10
    assert metrics["kl_pretrained"] > 0
    assert [point[0] for point in metrics["reward_curve"]] == [16, 48]


def test_every_query_is_logged_and_repeats_are_not_paid_again(whole):
    summary, records = left_by(whole)
    lines = [json.loads(line) for line in (whole / "queries.jsonl").read_text().splitlines()]
    assert len(lines) == summary["metrics"]["queries"] == sum(record["queries"] for record in records)
    assert 12 <= len(lines) < 48
    assert {line["condition"] for line in lines} <= {0, 1, 2, 3, 4, 7, 8, 9}


def test_evaluations_are_those_of_rollouts_and_updates(whole):
    _, records = left_by(whole)
    for record in records:
        assert record["network_evaluations"] == 3 * record["episodes"] + record["update_evaluations"]


def test_pure_seiko_with_one_measurement_at_the_end_is_seiko_bit_for_bit(tmp_path):
    small = TINY | {"measurements": 12}
    run(Spec.of("digits", "seiko", **small), tmp_path / "seiko", quiet=True)
    run(Spec.of("digits", "pure-seiko", m=1, **small), tmp_path / "pure", quiet=True)
    (one, one_records), (other, other_records) = left_by(tmp_path / "seiko"), left_by(tmp_path / "pure")
    assert one_records == other_records
    assert (one["metrics"], one["ledger"]) == (other["metrics"], other["ledger"])
    plans = [arrays_of(tmp_path / name, "policy/plan.safetensors") for name in ("seiko", "pure")]
    assert all(torch.equal(plans[0][name], plans[1][name]) for name in plans[0])


def test_a_stopped_run_goes_on_bit_for_bit(whole, tmp_path, monkeypatch):
    saved = Store.checkpoint

    def stop(self, state):
        saved(self, state)
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, "checkpoint", stop)
    with pytest.raises(KeyboardInterrupt):
        run(Spec.of("digits", "pure-seiko", **TINY), tmp_path / "run", quiet=True)
    monkeypatch.undo()
    _task.cache_clear()  # as in another process, where a task has seen nothing
    resume(tmp_path / "run", quiet=True)
    (one, records), (other, other_records) = left_by(whole), left_by(tmp_path / "run")
    assert records == other_records
    assert one["metrics"] == other["metrics"]
    for name in ("policy/plan.safetensors", "checkpoint"):
        before, after = arrays_of(whole, name), arrays_of(tmp_path / "run", name)
        assert before.keys() == after.keys()
        assert all(torch.equal(before[key], after[key]) for key in before)


def test_plain_diffusers_loads_the_tuned_model(whole):
    unet = UNet2DModel.from_pretrained(whole / "policy" / "denoiser")
    _, plan = learned(whole)
    for name, tensor in unet.state_dict().items():
        assert torch.equal(tensor, plan.policy[f"unet.{name}"])
    initial = load_file(whole / "policy" / "denoiser" / "initial.safetensors")
    assert torch.equal(initial["mean"], plan.initial.mean)
    found, ours = DDIMScheduler.from_pretrained(whole / "policy" / "denoiser"), schedule()
    assert torch.equal(found.alphas_cumprod, ours.alphas_cumprod)
    for name in ("timestep_spacing", "clip_sample", "set_alpha_to_one", "prediction_type"):
        assert found.config[name] == ours.config[name]


def test_a_run_leaves_pictures_and_can_be_evaluated(whole, tmp_path):
    samples = read_samples(whole / "media" / "samples.safetensors")
    assert samples["before"].shape == samples["after"].shape == (100, 1, 16, 16)
    assert samples["after_scores"].shape == samples["classes"].shape == (100,)
    assert (whole / "media" / "samples.png").read_bytes()[:4] == b"\x89PNG"
    _task.cache_clear()  # as in another process
    shutil.copytree(whole, out := tmp_path / "copy")
    lines = lambda: len((out / "evaluation.jsonl").read_text().splitlines())  # noqa: E731
    before = lines()
    found = evaluate(out, episodes=15, seed=3)["metrics"]
    assert 0 <= found["reward"] <= 1
    assert lines() - before == found["images"] == 20
    assert evaluate(out, episodes=20, seed=3)["metrics"] == found
    assert lines() - before == 20  # the same images are not asked for again


def test_a_noisy_reward_is_asked_for_every_measurement(tmp_path):
    summary = run(Spec.of("digits", "pure-seiko", **TINY | {"reward_noisy": True}), tmp_path / "run", quiet=True)
    asked = (tmp_path / "run" / "queries.jsonl").read_text().splitlines()
    assert len(asked) == summary["metrics"]["queries"] == summary["ledger"]["measurements"] == 48


@pytest.mark.parametrize(
    "settings", [{"look": "state"}, {"sampler": "geometric-distinct", "grid": 4, "denoising_steps": 4}]
)
def test_other_measurements_run(settings, tmp_path):
    run(
        Spec.of("digits", "pure-seiko", **(TINY | {"measurements": 16, "updates": 1} | settings)),
        tmp_path / "x",
        quiet=True,
    )
    summary, _ = left_by(tmp_path / "x")
    assert summary["ledger"]["measurements"] == 16
    if "sampler" in settings:
        assert summary["metrics"]["queries"] == 16
    assert np.isfinite(summary["metrics"]["reward"])


def flags():
    return [text for name, value in TINY.items() for text in (f"--{name.replace('_', '-')}", str(value))]


def errors_of(capsys):
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]


BAD = {
    "nan": ("return [float('nan')] * len(images)", "returned nan for"),
    "short": ("return [0.5]", "returned scores of shape [1] for"),
    "raising": ("raise RuntimeError('the camera is off')", "raised RuntimeError: the camera is off"),
    "hanging": ("import time; time.sleep(3)", "did not return 16 scores within its limit of 0.2 s"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_reward_that_fails_is_told_and_what_was_paid_is_kept(kind, tmp_path, monkeypatch, capsys):
    body, message = BAD[kind]
    (tmp_path / f"rewards_{kind}.py").write_text(f"def score(images, conditions):\n    {body}\n")
    monkeypatch.chdir(tmp_path)
    run_it = ["run", "digits", "--algorithm", "seiko", "--out", "run", "--reward", f"rewards_{kind}:score"]
    assert main([*run_it, "--reward-limit", "0.2", *flags(), "--quiet"]) == 2
    (told,) = errors_of(capsys)
    assert f"reward 'rewards_{kind}:score' {message}" in told
    assert "queries so far" in told
    assert len((tmp_path / "run" / "queries.jsonl").read_text().splitlines()) == 16


def test_a_reward_that_recovers_goes_on_and_no_image_is_paid_for_twice(tmp_path, monkeypatch, capsys):
    (tmp_path / "rewards_flaky.py").write_text(
        "from pathlib import Path\n"
        "calls = []\n"
        "def steady(images, conditions):\n"
        "    return images.mean(axis=(1, 2, 3))\n"
        "def score(images, conditions):\n"
        "    calls.append(len(images))\n"
        "    if len(calls) == 3 and not Path('mended').exists():\n"
        "        raise RuntimeError('out of credit')\n"
        "    return steady(images, conditions)\n"
    )
    monkeypatch.chdir(tmp_path)
    common = ["run", "digits", "--algorithm", "pure-seiko", *flags(), "--quiet"]
    assert main([*common, "--out", "whole", "--reward", "rewards_flaky:steady"]) == 0
    assert main([*common, "--out", "run", "--reward", "rewards_flaky:score"]) == 2
    assert "out of credit" in errors_of(capsys)[0]
    (tmp_path / "mended").touch()
    assert main(["resume", "run", "--quiet"]) == 0
    (one, records), (other, other_records) = left_by(tmp_path / "whole"), left_by(tmp_path / "run")
    assert records == other_records
    assert one["metrics"] == other["metrics"]
    paid = [json.loads(line) for line in (tmp_path / "run" / "queries.jsonl").read_text().splitlines()]
    scored = [line["picture"] for line in paid if line["score"] is not None]
    assert len(scored) == len(set(scored)) == one["metrics"]["queries"]


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ("pretty", "reward: 'pretty' is none of legibility, jpeg, nor module:function"),
        ("no_such_module:score", "there is no module 'no_such_module' here"),
        ("json:score", "reward: 'json' has no function 'score'"),
        (":score", "reward: ':score' should be module:function"),
    ],
)
def test_a_reward_that_is_not_there_is_named(reward, message, tmp_path, capsys):
    run_it = ["run", "digits", "--algorithm", "seiko", "--out", str(tmp_path / "run"), "--reward", reward]
    assert main([*run_it, *flags()]) == 2
    assert message in errors_of(capsys)[0]
    assert not (tmp_path / "run").exists()


def test_without_the_extra_it_is_named(tmp_path, monkeypatch):
    version = importlib.metadata.version

    def without_torch(name):
        if name == "torch":
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", without_torch)
    with pytest.raises(
        InputError, match=r"torch is not installed; `pip install -c constraints.txt '.\[diffusion\]'` installs it"
    ):
        run(Spec.of("digits", "seiko", measurements=7, updates=1), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"updates": 0}, "updates: must lie between 1 and 4800 episodes, not 0"),
        ({"measurements": 8, "updates": 3}, "updates: must lie between 1 and 2 episodes, not 3"),
        ({"schedule": "on-misfit"}, "schedule: on-misfit is not there for diffusion models"),
        ({"beta": -1.0}, "beta: cannot be negative, got -1.0"),
        ({"guidance": 0.0}, "guidance: must be positive, not 0.0"),
        (
            {"batches": (1, 2)},
            r"batches: initial \+ batches = 3 episodes, the budget of N = 19200 with m = 4 holds 4800",
        ),
        ({"heads": 1}, "heads: a spread needs at least two heads, not 1"),
        ({"longest": 3}, "longest: with 3 of 12 steps the reward never reaches the initial distribution"),
        ({"reward": "jpeg"}, "link: kilobytes are no probability; take --link squared"),
        ({"denoising_steps": 2000}, "denoising_steps: there are 1000 at most, not 2000"),
        ({"sampler": "windows", "m": 1, "windows": 1, "window_length": 20.0, "window_step": 20.0}, "window"),
        ({"held_out": 1.0}, "held_out: a share must lie in"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        Spec.of("digits", "pure-seiko", **settings)

"""The problem `digits`: measurements, evaluation, logs, files, and what is refused; with little work."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler, UNet2DModel
from safetensors.torch import load_file
from short_runs import finish, lines_of, loop_of, seiko

from purectrl.core import InputError, Key, MeasurementError, UnsupportedError
from purectrl.core.samplers import Final, Geometric, GeometricDistinct
from purectrl.core.schedules import GrowingBatches
from purectrl.core.settings import parameter_docs
from purectrl.diffusion.digits.network import schedule
from purectrl.diffusion.models import Params, equal
from purectrl.problems.digit_images import digits

SMALL = {"denoising_steps": 3, "eval_images": 2}


def log_of(out, name="queries.jsonl"):
    return [json.loads(line) for line in (out / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("digits")
    problem = digits(**SMALL).open(out)
    loop = loop_of(problem)
    state, lines = lines_of(problem, loop)
    files, metrics = finish(problem, loop, state, lines, out)
    return SimpleNamespace(out=out, problem=problem, state=state, lines=lines, files=files, metrics=metrics)


def test_the_problem_says_what_a_runner_needs():
    problem = digits()
    assert (problem.name, problem.kind, problem.horizon, problem.measurements) == ("digits", "images", 12.0, 19_200)
    assert (problem.eval_episodes, problem.reward.range) == (100, (0.0, 1.0))
    assert problem.evaluation_key(Key(1), 3) == problem.evaluation_key(Key(1), 4) == Key(1).child("test")
    assert set(parameter_docs(digits)) == set(digits.__kwdefaults__) | {"reward"}
    assert digits().diffusion.model is problem.diffusion.model, "runs of one process share the network"


def test_the_budget_is_spent_and_evaluation_has_its_own_log(whole):
    ledger = whole.state.ledger
    assert (ledger.rollouts, ledger.measurements, ledger.updates) == (12, 48, 2)
    grids = 2 * 10 * 10
    assert whole.metrics["final_eval_images"] == 2 * 10 * 4 * 2
    assert len(log_of(whole.out, "evaluation.jsonl")) == 2 * 20 + whole.metrics["final_eval_images"] + grids
    wanted = {"reward", "reward_pretrained", "reward_held_out", "classifier_accuracy", "diversity", "kl_pretrained"}
    assert wanted <= whole.metrics.keys()
    assert len(whole.metrics["reward_by_class"]) == len(whole.metrics["reward_by_class_pretrained"]) == 10
    assert whole.metrics["kl_pretrained"] > 0
    assert whole.lines[0].keys() >= {"test_reward", "test_classifier_accuracy", "test_diversity"}


def test_the_divergence_from_the_pretrained_model_is_that_of_the_plan(whole):
    found = [whole.problem.divergence(plan, Key(1)) for plan in (whole.problem.pretrained, whole.state.output.plan)]
    assert found[0] == 0 < found[1]


def test_every_query_is_logged_and_repeats_are_not_sent(whole):
    queries = log_of(whole.out)
    assert len(queries) == whole.metrics["queries"] == sum(line["queries"] for line in whole.lines)
    assert 12 <= len(queries) < 48
    assert {query["condition"] for query in queries} <= {0, 1, 2, 3, 4, 7, 8, 9}


def test_network_evaluations_are_those_of_rollouts_and_updates(whole):
    for line in whole.lines:
        assert line["network_evaluations"] == 3 * line["episodes"] + line["update_evaluations"]
    assert whole.metrics["network_evaluations"] == sum(line["network_evaluations"] for line in whole.lines)


def test_a_run_resumes_bit_for_bit_and_no_image_is_sent_twice(whole, tmp_path):
    first = digits(**SMALL).open(tmp_path)
    loop = loop_of(first)
    state, _ = loop.step(loop.init(Key.from_seed(0)))
    loop.step(state)  # a step that a crash ends before it is saved
    sent = len(log_of(tmp_path))
    again = digits(**SMALL).open(tmp_path)
    resumed, _ = lines_of(again, loop_of(again), state)
    assert equal(resumed.learner.params, whole.state.learner.params)
    assert len(log_of(tmp_path)) == sent == whole.metrics["queries"]


def test_two_runs_of_one_process_do_not_share_files_or_scores(tmp_path):
    """Steps of two runs in turn leave the files and the numbers of two separate runs (defect B8)."""
    shared = digits(**SMALL)
    outs, seeds = [tmp_path / "a", tmp_path / "b"], (1, 2)
    problems = [shared.open(out) for out in outs]
    loops = [loop_of(problem, measurements=24) for problem in problems]
    states = [loop.init(Key.from_seed(seed)) for loop, seed in zip(loops, seeds, strict=True)]
    for _ in range(2):
        states = [loop.step(state)[0] for loop, state in zip(loops, states, strict=True)]
        for problem, state in zip(problems, states, strict=True):
            problem.evaluate(state.output.plan, problem.evaluation_key(state.key, state.steps), problem.eval_episodes)
    plain = lambda out, name: [(q["condition"], q["score"], q["digest"]) for q in log_of(out, name)]  # noqa: E731
    for out, seed, state in zip(outs, seeds, states, strict=True):
        alone = digits(**SMALL).open(tmp_path / f"alone-{seed}")
        separate, _ = lines_of(alone, loop_of(alone, measurements=24), seed=seed)
        assert equal(separate.learner.params, state.learner.params)
        for name in ("queries.jsonl", "evaluation.jsonl"):
            assert plain(out, name) == plain(tmp_path / f"alone-{seed}", name)
        assert (out / "media" / "evaluation.png").is_file()
    assert not set(plain(outs[0], "queries.jsonl")) & set(plain(outs[1], "queries.jsonl"))
    assert (shared.reward.queries, shared.eval_reward.queries, shared.directory) == (0, 0, None)


def test_plain_diffusers_loads_the_finetuned_model(whole):
    folder, params = whole.out / "policy" / "denoiser", Params.of(whole.state.output.plan)
    unet = UNet2DModel.from_pretrained(folder)
    for name, tensor in unet.state_dict().items():
        assert torch.equal(tensor, params.weights[f"unet.{name}"])
    assert torch.equal(load_file(folder / "initial.safetensors")["mean"], params.initial.mean)
    found, ours = DDIMScheduler.from_pretrained(folder), schedule()
    assert torch.equal(found.alphas_cumprod, ours.alphas_cumprod)
    for name in ("timestep_spacing", "clip_sample", "set_alpha_to_one", "prediction_type"):
        assert found.config[name] == ours.config[name]


def test_a_run_leaves_images(whole):
    assert {file.name for file in whole.files} == {"samples.png", "samples.safetensors", "denoiser"}
    samples = load_file(whole.out / "media" / "samples.safetensors")
    assert samples["before"].shape == samples["after"].shape == (100, 1, 16, 16)
    assert samples["before_scores"].shape == samples["after_scores"].shape == samples["classes"].shape == (100,)
    for name in ("samples.png", "evaluation.png"):
        assert (whole.out / "media" / name).read_bytes()[:4] == b"\x89PNG"


def test_evaluation_has_at_least_two_images_per_class_and_repeats_no_query(whole, tmp_path):
    problem, plan = whole.problem.open(tmp_path), whole.state.output.plan
    found = problem.evaluate(plan, Key(5), 25)
    assert found.keys() == {"reward", "reward_held_out", "classifier_accuracy", "diversity"}
    assert len(log_of(tmp_path, "evaluation.jsonl")) == 20
    assert problem.evaluate(plan, Key(5), 1) == found
    assert len(log_of(tmp_path, "evaluation.jsonl")) == 20
    assert log_of(tmp_path) == []


def test_a_stochastic_reward_is_queried_at_every_measurement(tmp_path):
    problem = digits(stochastic_reward=True, **SMALL).open(tmp_path)
    _, lines = lines_of(problem, loop_of(problem))
    assert len(log_of(tmp_path)) == sum(line["queries"] for line in lines) == 48


@pytest.mark.parametrize(
    ("arguments", "sampler", "queries"),
    [({"measure": "x_t"}, Geometric(m=4), None), ({"denoising_steps": 4}, GeometricDistinct(m=4, grid=4), 16)],
)
def test_other_measurements_run(arguments, sampler, queries):
    problem = digits(**(SMALL | arguments))
    state, lines = lines_of(problem, loop_of(problem, 16, 1, sampler))
    assert state.ledger.measurements == 16
    assert queries is None or lines[0]["queries"] == queries
    assert np.isfinite(lines[0]["test_reward"])


def test_pure_seiko_with_one_measurement_at_the_end_is_seiko_bit_for_bit():
    problem = digits(**SMALL)
    (one, lines), (other, other_lines) = (
        lines_of(problem, loop_of(problem, 12, 2, sampler)) for sampler in (Final(), Geometric(m=1))
    )
    assert equal(one.learner.params, other.learner.params)
    assert lines == other_lines


def test_threads_are_set_when_images_are_generated(whole):
    before = torch.get_num_threads()
    try:
        problem = digits(threads=2, **SMALL)
        assert torch.get_num_threads() == before, "building a problem changes nothing"
        problem.sample(problem.pretrained, Key(0), 2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


BAD = {
    "nan": ("return [float('nan')] * len(images)", "returned nan for"),
    "short": ("return [0.5]", r"returned scores of shape \[1\] for"),
    "raising": ("raise RuntimeError('the camera is off')", "raised RuntimeError: the camera is off"),
    "hanging": ("import time; time.sleep(3)", "did not return 16 scores within its timeout of 0.2 s"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_reward_that_fails_is_named_and_its_queries_are_kept(kind, tmp_path):
    body, message = BAD[kind]
    (tmp_path / f"reward_{kind}.py").write_text(f"def score(images, conditions):\n    {body}\n")
    reward = f"{tmp_path}/reward_{kind}.py:score"
    problem = digits(reward, reward_timeout=0.2, **SMALL).open(tmp_path)
    loop = loop_of(problem, 48, 2, Final())
    with pytest.raises(MeasurementError, match=f"score' {message}.*queries so far"):
        loop.step(loop.init(Key.from_seed(0)))
    assert len(log_of(tmp_path)) == 16


def test_a_reward_that_recovers_is_not_sent_an_image_twice(tmp_path):
    calls = []

    def steady(images, conditions):
        return images.mean(axis=(1, 2, 3))

    def flaky(images, conditions):
        calls.append(len(images))
        if len(calls) == 2:
            raise RuntimeError("out of credit")
        return steady(images, conditions)

    arguments = SMALL | {"rollout_batch_size": 3}
    failing = digits(flaky, **arguments).open(tmp_path)
    loop = loop_of(failing)
    with pytest.raises(MeasurementError, match="reward 'flaky' raised RuntimeError: out of credit"):
        loop.step(loop.init(Key.from_seed(0)))
    recovered, reference = (
        digits(flaky, **arguments).open(tmp_path),
        digits(steady, **arguments).open(tmp_path / "whole"),
    )
    (one, lines), (other, other_lines) = (lines_of(p, loop_of(p)) for p in (recovered, reference))
    assert equal(one.learner.params, other.learner.params)
    assert lines == other_lines
    scored = [query["digest"] for query in log_of(tmp_path) if query["score"] is not None]
    assert len(scored) == len(set(scored)) == sum(line["queries"] for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reward": "legible"}, "unknown reward 'legible': did you mean 'legibility'"),
        ({"reward": "no_such_module:score"}, "no_such_module"),
        ({"reward": "json:score"}, "unknown name in"),
        ({"measure": "image"}, "unknown measure 'image'"),
        ({"denoising_steps": 2000}, "denoising_steps: must be between 1 and 1000, not 2000"),
        ({"guidance": 0.0}, "guidance: must be positive, not 0.0"),
        ({"eval_images": 1}, "eval_images: must be at least 2 per condition, not 1"),
        ({"view": "clip"}, "view: must be module:function .*, not 'clip'; clip and dino are for stable-diffusion"),
        ({"rollout_batch_size": 0}, "rollout_batch_size: must be between 1 and 1,000,000, not 0"),
        ({"reward_timeout": 0.0}, "reward_timeout: must be more than 0 seconds, not 0.0"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        digits(**arguments)


@pytest.mark.parametrize(
    ("arguments", "learner", "message"),
    [
        (
            {"reward": "jpeg"},
            seiko(),
            r"loss: bce needs rewards in \[0, 1\]; 'jpeg' has values in \[-inf, 0\]; use mse",
        ),
        (
            {},
            seiko(max_backprop_steps=2),
            "with 2 of 3 steps no gradient of the reward reaches the initial distribution",
        ),
    ],
)
def test_combinations_that_cannot_work_are_refused_before_anything_runs(arguments, learner, message):
    with pytest.raises(UnsupportedError, match=message):
        loop_of(digits(**(SMALL | arguments)), learner=learner)


def test_what_was_refused_works_with_other_settings():
    loop_of(digits("jpeg", **SMALL), learner=seiko({"loss": "mse"}))
    loop_of(digits(**SMALL), learner=seiko(max_backprop_steps=2, initial_learning_rate=0.0))
    loop_of(digits(lambda images, conditions: [0.5] * len(images), **SMALL))


@pytest.mark.parametrize(
    ("kind", "message"),
    [("states", "'pendulum' has states and controls; use pure-enode"), ("custom", "'pendulum' is of another kind")],
)
def test_problems_of_another_kind_are_refused(kind, message):
    with pytest.raises(UnsupportedError, match=f"seiko needs a diffusion model; {message}"):
        seiko().build(SimpleNamespace(kind=kind, name="pendulum"), None, Final())


def test_the_paper_s_batches_are_the_same_for_both_algorithms():
    for sampler in (Final(), Geometric(m=4, lam=6.0)):
        sizes = GrowingBatches(updates=4, growth=2.0).batches(19_200 // sampler.m).sizes
        assert (np.cumsum(sizes) * sampler.m).tolist() == [1280, 3840, 8960, 19_200]


def test_reading_the_arguments_does_not_import_torch():
    import subprocess

    code = "import purectrl.problems.digit_images, purectrl.problems.stable_diffusion_images, purectrl.diffusion, sys; "
    code += "print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout == "False\n"

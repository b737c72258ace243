"""Policies as files: equal outputs in NumPy, ONNX and JAX, of every update, also of runs that were stopped."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import onnxruntime
import pytest
from helpers import small, stop_and_resume, stopped_run

import purectrl as pc
from purectrl.cli import main
from purectrl.control.exploration import SmoothNoise
from purectrl.control.export import numpy_files, onnx_model, policy_network
from purectrl.control.networks import Layer
from purectrl.control.policy import Actor, BehaviorPolicy
from purectrl.core import InputError, Plan, StoreError, UnsupportedError
from purectrl.core.io import read_checksummed
from purectrl.problems.gymnasium_environments import gymnasium
from purectrl.problems.mechanical_systems import cartpole, pendulum
from purectrl.runs.export import jax_function
from purectrl.runs.runner import run
from purectrl.runs.spec import RunSpec
from purectrl.runs.store import plan_file
from purectrl.systems.spec import policy_function

TINY = {
    "sampler.count": 2,
    "sampler.length": 1.0,
    "sampler.step": 0.1,
    "schedule": "batches",
    "schedule.sizes": [1, 2],
    "schedule.initial": 1,
    "learner.model.ensemble_size": 3,
    "learner.model.width": 8,
    "learner.fit.gradient_matching_steps": 4,
    "learner.fit.steps": 4,
    "learner.fit.finetune_steps": 4,
    "learner.fit.batch_size": 4,
    "learner.plan.steps": 5,
    "learner.plan.batch_size": 6,
    "learner.plan.horizon": 0.5,
}


def tiny(seed=0):
    """Two updates on four seconds of the pendulum, 20 measurements per episode."""
    arguments = {"horizon": 4.0}
    return RunSpec.of("pendulum", "pure-enode", seed, measurements=80, arguments=arguments, overrides=TINY)


def tank():
    """A black-box problem: five coordinates, two of them angles, and two inputs with limits that are not symmetric."""
    return pc.problems.continuous(
        name="tank",
        horizon=2.0,
        drift=lambda x, u: 0 * x + u[0] - u[1],
        reward=lambda x, u: -(x[0] ** 2),
        initial=lambda key: jax.random.uniform(key, (5,)),
        control_low=[0.1, -3.0],
        control_high=[0.7, 1e4],
        angles=(1, 3),
    )


PROBLEMS = {
    "mechanical": pendulum,
    "mechanical with a position": cartpole,
    "black-box": tank,
    "gymnasium": lambda: gymnasium("Pendulum-v1"),
}


def large_policy(problem, unit=1.0, seed=0):
    """A policy of the usual size whose controls reach their limits; features are in units of about `unit`."""
    generator = np.random.default_rng(seed)
    actor = Actor.random(generator, problem.spec)
    *layers, last = actor.layers
    scale = np.asarray(unit * generator.uniform(1, 3, problem.spec.feature_dim), np.float32)
    actor = Actor((*layers, Layer(20 * last.weight, last.bias + 0.1)), scale, problem.spec)
    return Plan(BehaviorPolicy(actor, 1.0, np.ones(1, np.float32), SmoothNoise(problem.horizon)), None)


def states(d, seed=1):
    """Random states of all sizes, and edges: zero, half turns, many turns, large numbers."""
    generator = np.random.default_rng(seed)
    random = generator.normal(size=(300, d)) * 10.0 ** generator.integers(-3, 2, (300, 1))
    edges = [np.full(d, value) for value in (0.0, -0.0, np.pi, -np.pi, 1e-30, 1e5, -1e6, 1e20)]
    return np.concatenate([random, edges]).astype(np.float32)


def imported(directory: Path, name="policy"):
    """The exported module."""
    spec = importlib.util.spec_from_file_location(f"exported_{name}", directory / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.policy


@pytest.mark.parametrize("make", PROBLEMS.values(), ids=PROBLEMS)
def test_numpy_onnx_and_jax_give_the_controls_of_the_policy_within_their_limits(make, tmp_path):
    problem = make()
    plan, x = large_policy(problem), states(problem.spec.state_dim)
    policy, network = policy_function(problem, plan), policy_network(plan.policy)
    expected = policy(x)
    low, high = np.asarray((problem.spec.control_low, problem.spec.control_high), np.float32)
    assert (expected >= low).all()
    assert (expected <= high).all()
    saturated = ((expected == low) | (expected == high)).mean()
    assert 0 < saturated < 0.98  # both the limits and the range between them are tested

    for name, content in numpy_files(network, "policy").items():
        (tmp_path / name).write_bytes(content)
    session = onnxruntime.InferenceSession(onnx_model(network))
    function = jax.export.deserialize(bytearray(jax_function(problem, plan)))
    for found in (
        imported(tmp_path)(x),
        np.stack([imported(tmp_path)(row) for row in x[-20:]]),
        session.run(["u"], {"x": x})[0],
        np.asarray(function.call(x, np.float32(0.0))),
    ):
        error = np.abs(found - expected[-len(found) :]) / np.asarray(problem.spec.control_half_range)
        size = np.abs(x[-len(found) :]).max(axis=1, keepdims=True)  # rounding errors are relative to the state
        assert (error < 1e-6 * np.maximum(1.0, size)).all()
        assert (found >= low).all()
        assert (found <= high).all()
        assert found.dtype == np.float32


def test_states_that_are_not_finite_or_of_another_size_are_refused(tmp_path):
    problem = pendulum()
    plan = large_policy(problem, unit=1e-3)
    for name, content in numpy_files(policy_network(plan.policy), "policy").items():
        (tmp_path / name).write_bytes(content)
    for policy in (policy_function(problem, plan), imported(tmp_path)):
        for wrong in ([np.nan, 0.0], [0.0, np.inf], [[0.0, 1.0], [-np.inf, 0.0]]):
            with pytest.raises(ValueError, match="x: has a coordinate that is not finite"):
                policy(wrong)
        with pytest.raises(ValueError, match=r"x: has shape \(3,\), expected \[2\] or \[..., 2\]"):
            policy([0.0, 0.0, 0.0])
        with (
            pytest.raises(ValueError, match="x: is too large for the policy's single precision"),
            np.errstate(all="ignore"),
        ):
            policy([0.0, 3e38])
        assert policy([[[3.1, 0.0]]]).shape == (1, 1, 1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    run(tiny(), out, quiet=True)
    return out


def test_the_command_writes_a_policy_that_needs_numpy_only(finished, tmp_path, capsys):
    file = tmp_path / "robot" / "swing.py"
    assert main(["export", str(finished), "--to", "numpy", "--out", str(file)]) == 0
    assert f"wrote {file} (" in capsys.readouterr().out
    code = "import json, sys; from swing import policy; print(json.dumps(policy([3.1, 0.2]).tolist())); "
    code += "print('jax' in sys.modules, 'purectrl' in sys.modules)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=file.parent, env=environment, check=True
    )
    control, loaded = done.stdout.splitlines()
    assert loaded == "False False"
    assert json.loads(control) == pytest.approx(pc.load_policy(finished)([3.1, 0.2]).tolist(), abs=2e-6)
    assert len(file.read_text().splitlines()) < 70
    assert "from swing import policy" in file.read_text()


def test_the_default_files_are_in_the_run_and_repeat_bit_for_bit(finished):
    for to, names in (("numpy", ["policy.py", "policy.npz"]), ("onnx", ["policy.onnx"]), ("jax", ["policy.jax"])):
        written = pc.export(finished, to=to)
        assert [path.relative_to(finished) for path in written] == [Path("policy") / name for name in names]
        before = [path.read_bytes() for path in written]
        if to != "jax":  # which numbers the functions that it exports
            assert [path.read_bytes() for path in pc.export(finished, to=to)] == before


def test_the_policy_of_every_update_can_be_loaded_evaluated_and_exported(finished, capsys):
    x = [3.0, 0.5]
    first, second = (pc.load_policy(finished, update=k)(x) for k in (1, 2))
    assert first != second
    assert second == pc.load_policy(finished)(x)  # the run returns its last policy
    assert main(["evaluate", str(finished), "--update", "1", "--episodes", "1"]) == 0
    assert json.loads((finished / "evaluation.json").read_text())["update"] == 1
    (file, _) = pc.export(finished, update=1, file=finished / "first.py")
    assert imported(file.parent, "first")(x) == pytest.approx(first, abs=2e-6)
    with pytest.raises(InputError, match=r"policy of update 3 is not stored in .*; those of the updates 1 to 2 are"):
        pc.load_policy(finished, update=3)
    capsys.readouterr()


def test_a_stopped_run_has_its_newest_policy_and_resuming_stores_the_same_policies(finished, tmp_path, capsys):
    stopped = stopped_run(tiny(), tmp_path / "stopped", until=2, at=(1, 2))
    with pytest.raises(StoreError, match=r"has not finished: .* it has no policy yet"):
        pc.load_policy(stopped)
    stop_and_resume(tiny(), tmp_path / "resumed", steps=1)
    again, once = (read_checksummed(plan_file(out, update=2)) for out in (tmp_path / "resumed", finished))
    assert again[1] == once[1]
    assert {name: array.tobytes() for name, array in again[0].items()} == {
        name: array.tobytes() for name, array in once[0].items()
    }
    (tmp_path / "resumed" / "summary.json").unlink()
    policy = pc.load_policy(tmp_path / "resumed")
    assert "has not finished: this is its policy after update 2" in capsys.readouterr().err
    assert policy([3.0, 0.5]) == pc.load_policy(finished)([3.0, 0.5])


def test_policies_of_function_classes_are_exported_by_jax_alone_and_one_per_run(tmp_path):
    out = tmp_path / "run"
    run(small("lqr", measurements=40), out, quiet=True)
    assert [path.name for path in (out / "policy").iterdir()] == ["plan.safetensors"]
    with pytest.raises(UnsupportedError, match=r"is not a network; .* use jax"):
        pc.export(out, to="numpy")
    (file,) = pc.export(out, to="jax")
    function = jax.export.deserialize(bytearray(file.read_bytes()))
    x = np.linspace(-1, 1, 10, dtype=np.float32).reshape(5, 2)
    assert np.asarray(function.call(x, np.float32(0.1))) == pytest.approx(pc.load_policy(out)(x, 0.1), abs=1e-6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--to"),
        (["--to", "c"], "to"),
        (["--to", "numpy", "--out", "policy.onnx"], r"out: 'policy.onnx' must end with .py"),
        (["--to", "numpy", "--out", "my-policy.py"], r"out: 'my-policy' cannot be imported; use letters, digits and _"),
        (["--to", "jax", "--update", "7"], "update: the policy of update 7 is not stored in"),
    ],
)
def test_wrong_calls_are_refused_on_one_line(finished, words, message, capsys):
    assert main(["export", str(finished), *words]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert len(error.splitlines()) <= 2

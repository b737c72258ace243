"""`gymnasium`: an environment learned from measurements alone; runs that resume; tests on their own account."""

import json

import gymnasium
import numpy as np
import pytest
from helpers import left_by

from purectrl.cli import main
from purectrl.core import InputError, Key, MeasurementError
from purectrl.core.schedules import update_points
from purectrl.experiments import Spec, evaluate, experiment, load_policy, resume, run
from purectrl.experiments.config import make_sampler, make_schedule
from purectrl.experiments.gymnasium import make
from purectrl.experiments.runner import EVALUATED, _line
from purectrl.experiments.store import Store

TINY = {
    "measurements": 80,
    "windows": 2,
    "window_length": 1.0,
    "horizon": 3.0,
    "initial": 1,
    "batches": (1, 2),
    "members": 2,
    "width": 8,
    "first_iterations": 4,
    "later_iterations": 4,
    "fit_rows": 4,
    "plan_iterations": 5,
    "plan_rows": 6,
    "plan_members": 2,
    "plan_horizon": 0.5,
    "tests": 2,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("gymnasium") / "whole"
    run(Spec.of("gymnasium", "pure-enode", **TINY), out, quiet=True)
    return out


@pytest.mark.parametrize("algorithm", ["pure-enode", "enode"])
def test_presets_hold_together(algorithm):
    config = experiment("gymnasium").config(algorithm)
    config.check()
    m = make_sampler(config).m
    points = update_points(make_schedule(config), config.measurements // m, m)
    assert len(points) == len(config.batches)


def test_the_ledger_has_what_was_spent_and_tests_are_apart(whole):
    summary, records = left_by(whole)
    ledger, metrics = summary["ledger"], summary["metrics"]
    assert (ledger["rollouts"], ledger["measurements"], ledger["updates"]) == (4, 80, 2)
    assert ledger["evaluation_rollouts"] == 4 == sum(record.get(EVALUATED, 0) for record in records)
    tests = [record for record in records if EVALUATED in record]
    assert metrics["return_curve"] == [[record["rollouts"], record["test_return"]] for record in tests]
    # in the environment's own unit: whole episodes of 200 steps that cost up to 16.3 each
    assert metrics["steps"] == 200
    assert -16.3 < metrics["reward"] < -0.1
    assert metrics["return"] == pytest.approx(200 * metrics["reward"])
    assert -16.3 < tests[0]["imagined_reward"] <= 0


def test_enode_with_pure_enode_s_batches_is_pure_enode_bit_for_bit(whole, tmp_path):
    run(Spec.of("gymnasium", "enode", **TINY), tmp_path / "enode", quiet=True)
    assert left_by(whole)[1] == left_by(tmp_path / "enode")[1]


def test_a_run_resumes_bit_for_bit(whole, tmp_path):
    spec = Spec.of("gymnasium", "pure-enode", **TINY)
    task = spec.build()
    with Store.create(tmp_path / "part", spec.as_dict()) as store:
        state = store.restore(task.loop.init(Key.from_seed(0)), pytest.fail)
        state, record = task.loop.step(state)
        line = _line(state, record, task)
        store.append(line)
        store.checkpoint(state._replace(ledger=state.ledger.evaluated(line[EVALUATED])))
    resume(tmp_path / "part", quiet=True)
    assert left_by(tmp_path / "part") == left_by(whole)


def test_a_saved_policy_acts_in_the_environment_s_unit(whole):
    policy = load_policy(whole)
    env = gymnasium.make("Pendulum-v1")
    x, _ = env.reset(seed=0)
    assert env.action_space.contains(policy(x, 0.3))
    many = policy(1e3 * np.random.default_rng(0).normal(size=(4, 50, 3)))
    assert many.shape == (4, 50, 1)
    assert 1.0 < np.abs(many).max() <= 2.0  # Pendulum's torque
    with pytest.raises(InputError, match=r"x: has shape \(2,\), expected \[3\]"):
        policy(np.zeros(2))


def test_fresh_episodes_are_evaluated(whole):
    found = evaluate(whole, episodes=3)
    assert found["episodes"] == 3
    assert found["metrics"] == evaluate(whole, episodes=3)["metrics"]
    assert found["metrics"] != evaluate(whole, episodes=3, seed=1)["metrics"]
    assert json.loads((whole / "evaluation.json").read_text())["seed"] == 1


@pytest.mark.slow
def test_a_mujoco_environment_that_ends_its_episodes_runs_and_repeats(tmp_path):
    pytest.importorskip("mujoco", reason="the extra `dev` installs mujoco")
    pytest.importorskip("imageio", reason="Gymnasium imports imageio with every MuJoCo environment")
    spec = Spec.of("gymnasium", "pure-enode", env="InvertedPendulum-v5", **TINY)
    task = spec.build()
    state, record = task.loop.step(task.loop.init(Key.from_seed(0)))
    assert "rolled_back" not in record.info
    block = record.block
    assert set(np.unique(block.r)) == {0.0, 1.0}
    fallen = np.abs(block.x[..., 1]) > 0.2
    assert fallen.any()
    assert (block.y[fallen] == 0.0).all()  # it stays where it fell
    found = task.probe(state, record)
    assert found == task.probe(state, record)
    assert found["test_return"] == found["test_steps"] - 1  # one for each step but the one that ends it


def test_wrong_environments_are_named(tmp_path, capsys):
    wrong = [
        (["--env", "Pendulum-v9"], "env: Environment version `v9` for environment `Pendulum` doesn't exist"),
        (["--env", "Pendulun-v1"], "env: Environment `Pendulun` doesn't exist. Did you mean: `Pendulum`?"),
        (["--env", "no_such_module:Pendulum-v1"], "env: No module named 'no_such_module'"),
        (["--env", "CartPole-v1"], "env: its actions are Discrete(2), expected a continuous Box with one axis"),
        (["--env", " "], "env: must be a name, not ' '"),
        (["--env", "MountainCarContinuous-v0"], "does not say how many seconds a step takes; pass dt"),
        (["--window-step", "0.01", "--window-length", "0.5"], "window_step: must not be shorter than"),
        (["--dt", "-1"], "dt: must be positive, or 0 for the environment's own, not -1"),
        (["--schedule", "on-misfit"], "schedule: on-misfit is not there for gymnasium"),
        (["--plan-members", "5"], "plan_members: must divide plan_rows = 48"),
        (["--tests", "0"], "tests: must lie between 1 and 1,000,000, not 0"),
        (["--plan-horizon", "0.01"], "horizon: must hold a step of 0.05 s"),
    ]
    for flags, message in wrong:
        out = tmp_path / "run"
        assert main(["run", "gymnasium", "--algorithm", "pure-enode", "--quiet", "--out", str(out), *flags]) == 2, flags
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
        assert not out.exists()


class Pixels(gymnasium.Env):
    """An environment of the wrong kind."""

    observation_space = gymnasium.spaces.Box(0, 255, (96, 96, 3), np.uint8)
    action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)


class Unlimited(Pixels):
    """Another."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)


@pytest.fixture
def strange():
    for kind in (Pixels, Unlimited):
        gymnasium.register(f"test/{kind.__name__}-v0", entry_point=kind)
    yield
    for kind in (Pixels, Unlimited):
        del gymnasium.registry[f"test/{kind.__name__}-v0"]


def test_pictures_and_actions_without_limits_are_refused(strange):
    with pytest.raises(InputError, match=r"env: its observations are Box\(0, 255, \(96, 96, 3\), uint8\), expected"):
        make("test/Pixels-v0")
    with pytest.raises(InputError, match="env: the actions of test/Unlimited-v0 have no limits"):
        make("test/Unlimited-v0")


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gymnasium.envs.mujoco.inverted_pendulum_v5", None)
    with pytest.raises(InputError, match=r"env: .*inverted_pendulum_v5"):
        make("InvertedPendulum-v5")


def test_an_episode_longer_than_the_environment_s_own_limit_says_so():
    long = TINY | {"horizon": 60.0, "sampler": "equidistant", "m": 20}
    task = Spec.of("gymnasium", "pure-enode", env="purectrl/Pendulum-v0", **long).build()
    with pytest.raises(MeasurementError, match="was truncated after 50 s"):
        task.loop.step(task.loop.init(Key.from_seed(0)))

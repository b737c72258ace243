"""Control experiments: one learner, two schedules; runs that resume; tests on their own account; a policy to take away."""

import json

import jax
import numpy as np
import pytest
from helpers import left_by

from purectrl.core import InputError, Key
from purectrl.core.schedules import update_points
from purectrl.experiments import Spec, evaluate, experiment, load_policy, resume, run
from purectrl.experiments.config import make_sampler, make_schedule
from purectrl.experiments.runner import EVALUATED, _line
from purectrl.experiments.store import Store, read_records

TINY = {
    "measurements": 80,
    "windows": 2,
    "window_length": 1.0,
    "horizon": 4.0,
    "initial": 1,
    "batches": (1, 2),
    "members": 3,
    "width": 8,
    "match_iterations": 4,
    "first_iterations": 4,
    "later_iterations": 4,
    "fit_rows": 4,
    "plan_iterations": 5,
    "plan_rows": 6,
    "plan_horizon": 0.5,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("control") / "whole"
    run(Spec.of("pendulum", "pure-enode", **TINY), out, quiet=True)
    return out


@pytest.mark.parametrize(
    ("name", "algorithm", "episodes", "points"),
    [
        ("pendulum", "pure-enode", 9, [3, 4, 6]),
        ("pendulum", "enode", 9, [3, 4, 5, 6, 7, 8]),
        ("cartpole", "pure-enode", 80, [5, 7, 11, 19, 32, 48]),
        ("cartpole", "enode", 80, list(range(5, 80, 3))),
        ("acrobot", "pure-enode", 87, [7, 9, 13, 21, 37, 55]),
        ("acrobot", "enode", 87, list(range(7, 87, 4))),
    ],
)
def test_presets_are_the_table_of_data_and_policy_updates(name, algorithm, episodes, points):
    config = experiment(name).config(algorithm)
    config.check()
    m = make_sampler(config).m
    assert (m, config.measurements) == (250, 250 * episodes)
    assert update_points(make_schedule(config), episodes, m) == points
    other = experiment(name).config("enode" if algorithm == "pure-enode" else "pure-enode")
    assert {field for field in vars(config) if vars(config)[field] != vars(other)[field]} == {"batches"}


def test_the_ledger_has_what_was_spent_and_tests_are_apart(whole):
    summary, records = left_by(whole)
    ledger = summary["ledger"]
    assert (ledger["rollouts"], ledger["measurements"], ledger["updates"]) == (4, 80, 2)
    assert ledger["evaluation_rollouts"] == 20 == sum(record.get(EVALUATED, 0) for record in records)
    tests = [record for record in records if EVALUATED in record]
    assert summary["metrics"]["reward"] == tests[-1]["test_reward"]
    assert summary["metrics"]["reward_curve"] == [[record["rollouts"], record["test_reward"]] for record in tests]
    assert [record["updated"] for record in records] == ["both", "both", "neither"]


def test_enode_with_pure_enode_s_batches_is_pure_enode_bit_for_bit(whole, tmp_path):
    run(Spec.of("pendulum", "enode", **TINY), tmp_path / "enode", quiet=True)
    (one, one_records), (other, other_records) = left_by(whole), left_by(tmp_path / "enode")
    assert one_records == other_records
    assert (one["metrics"], one["ledger"]) == (other["metrics"], other["ledger"])
    plans = [(out / "policy" / "plan.safetensors").read_bytes()[-1000:] for out in (whole, tmp_path / "enode")]
    assert plans[0] == plans[1]


def interrupted(spec, out):
    """A run that ended after its first update."""
    task = spec.build()
    with Store.create(out, spec.as_dict()) as store:
        state = store.restore(task.loop.init(Key.from_seed(0)), pytest.fail)
        state, record = task.loop.step(state)
        line = _line(state, record, task)
        store.append(line)
        store.checkpoint(state._replace(ledger=state.ledger.evaluated(line[EVALUATED])))


def test_a_run_resumes_bit_for_bit(whole, tmp_path):
    interrupted(Spec.of("pendulum", "pure-enode", **TINY), tmp_path / "part")
    resume(tmp_path / "part", quiet=True)
    assert left_by(tmp_path / "part") == left_by(whole)


@pytest.mark.parametrize(("dynamics", "noise"), [("batch-ensemble", "fixed"), ("implicit", "learned")])
def test_other_families_run_and_resume_bit_for_bit(dynamics, noise, whole, tmp_path):
    spec = Spec.of("pendulum", "pure-enode", **TINY, dynamics=dynamics, noise=noise)
    run(spec, tmp_path / "all", quiet=True)
    interrupted(spec, tmp_path / "part")
    resume(tmp_path / "part", quiet=True)
    summary, records = left_by(tmp_path / "all")
    assert left_by(tmp_path / "part") == (summary, records)
    assert summary["ledger"] == left_by(whole)[0]["ledger"]
    assert records[0]["fit_loss"] != left_by(whole)[1][0]["fit_loss"]
    updates = [record for record in records if record["updated"] == "both"]
    assert [len(record.get("noise", [])) for record in updates] == [2 * (noise == "learned")] * 2
    assert not any("rolled_back" in record for record in records)


def test_another_seed_is_another_run(whole, tmp_path):
    run(Spec.of("pendulum", "pure-enode", seed=1, **TINY), tmp_path / "run", quiet=True)
    assert left_by(tmp_path / "run")[1][0]["test_reward"] != left_by(whole)[1][0]["test_reward"]


def test_a_saved_policy_acts_on_any_state_at_any_time(whole):
    policy = load_policy(whole)
    assert policy([np.pi, 0.0], 17.3).shape == (1,)
    many = policy(np.random.default_rng(0).normal(size=(4, 5, 2)) * 100)
    assert many.shape == (4, 5, 1)
    assert np.abs(many).max() <= 2.0
    with pytest.raises(InputError, match=r"x: has shape \(3,\), expected \[2\]"):
        policy(np.zeros(3))


def test_evaluation_is_written_with_a_film_that_can_be_seen(whole):
    found = evaluate(whole, video=True)
    assert found["episodes"] == 10
    assert found == json.loads((whole / "evaluation.json").read_text())
    gif = (whole / found["media"][0]).read_bytes()
    assert gif[:6] == b"GIF89a"
    assert found["metrics"]["reward"] == pytest.approx(evaluate(whole)["metrics"]["reward"])


def test_a_film_of_what_cannot_be_drawn_is_refused(tmp_path):
    run(Spec.of("finite", "pure-base", measurements=5, paths=8, steps=8), tmp_path / "run", quiet=True)
    with pytest.raises(InputError, match="video: this experiment has nothing to draw"):
        evaluate(tmp_path / "run", video=True)
    with pytest.raises(InputError, match="is not a function of the state"):
        load_policy(tmp_path / "run")


def test_a_run_may_stop_when_solved_and_says_what_it_left_unspent(tmp_path, monkeypatch):
    monkeypatch.setattr("purectrl.control.evaluation.GOOD", 0.0)
    summary = run(Spec.of("pendulum", "pure-enode", stop_when_solved=True, **TINY), tmp_path / "run", quiet=True)
    assert summary["metrics"]["solved"] is True
    assert (summary["ledger"]["updates"], summary["ledger"]["measurements"]) == (1, 20)
    assert resume(tmp_path / "run", quiet=True) == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert len(read_records(tmp_path / "run")) == 1


def test_a_model_that_diverges_is_rolled_back_and_the_run_goes_on():
    task = Spec.of("pendulum", "pure-enode", **TINY, fit_rate=1e12).build()
    begin = task.loop.init(Key.from_seed(0))
    state, record = task.loop.step(begin)
    assert record.info["rolled_back"] == "the fit of the model diverged"
    assert state.learner is begin.learner
    state, record = task.loop.step(state)
    assert state.ledger.measurements == 40


def test_a_critic_that_is_not_finite_is_found_out_and_the_actor_stays():
    task = Spec.of("pendulum", "pure-enode", **TINY).build()
    begin = task.loop.init(Key.from_seed(0))
    broken = jax.tree.map(lambda array: array * np.nan, begin.learner.critic)
    state, record = task.loop.step(begin._replace(learner=begin.learner._replace(critic=broken)))
    assert record.info["rolled_back"] == "the policy improvement diverged"
    assert state.learner.actor is begin.learner.actor
    assert state.learner.follow == 0.0


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("cartpole", {"integrator": "dopri5", "variant": "released"}),
        ("acrobot", {"planning": "optimistic", "observation_std": 0.01, "diffusion": 0.01}),
    ],
)
def test_the_other_mechanisms_and_choices_run(name, settings):
    task = Spec.of(name, "pure-enode", **TINY, **settings).build()
    state, record = task.loop.step(task.loop.init(Key.from_seed(0)))
    assert "rolled_back" not in record.info
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.learner))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"plan_members": 5}, "plan_members: must divide plan_rows = 48"),
        ({"points": 1}, "points: a sub-sequence has at least 2 measurements, not 1"),
        ({"width": 0}, "width: must lie between 1 and 1,000,000, not 0"),
        ({"horizon": 20.0}, "windows: 5 windows of 5.0 do not fit into an episode of 20.0"),
        ({"discount": 0.0}, "discount: must be positive, not 0.0"),
        ({"stop_when_solved": 1}, "stop_when_solved: must be true or false, not 1"),
        ({"plan_iterations": 4}, "plan_iterations: must be at least 5, not 4"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        Spec.of("pendulum", "pure-enode", **settings)

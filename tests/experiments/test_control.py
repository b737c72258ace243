"""Control experiments: one learner, two schedules; runs that resume; tests on their own account; a policy to take away."""

import dataclasses
import json
import re

import equinox as eqx
import jax
import numpy as np
import pytest
from helpers import left_by

from purectrl.control.soundness import Diverged
from purectrl.core import InputError, Key, MeasurementError, Measurements, Which
from purectrl.core.schedules import update_points
from purectrl.experiments import Spec, evaluate, experiment, load_policy, resume, run
from purectrl.experiments.config import make_sampler, make_schedule
from purectrl.experiments.runner import EVALUATED, _line, learned
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


@pytest.mark.slow  # two more programs for each family to compile; tests/control/test_families.py has the mathematics
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


@pytest.fixture(scope="module")
def second():
    """A healthy loop before its second update."""
    loop = Spec.of("pendulum", "pure-enode", **TINY).build().loop
    return loop, loop.step(loop.init(Key.from_seed(0)))[0]


def broken(state, part, factor):
    """The state with the weights of the ensemble, the actor or the critic multiplied by a factor."""
    net = getattr(state.learner, part)
    layers = jax.tree.map(lambda array: factor * array, net.layers)
    net = eqx.tree_at(lambda net: net.layers, net, layers)
    return state._replace(learner=state.learner._replace(**{part: net}))


def unchanged(one, other):
    return all(np.array_equal(*pair) for pair in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


@pytest.mark.filterwarnings("always::purectrl.control.soundness.Diverged")
def test_a_model_that_diverges_is_rolled_back_and_the_run_goes_on(tmp_path, capsys):
    """With a rate a thousand times too large no fit succeeds: all episodes explore, all are kept, and the user is told."""
    spec = Spec.of("pendulum", "pure-enode", **TINY, fit_rate=1.0)
    begin = spec.build().loop.init(Key.from_seed(0))
    summary = run(spec, tmp_path / "run", quiet=True)
    found = [record["rolled_back"] for record in read_records(tmp_path / "run") if "rolled_back" in record]
    told = capsys.readouterr().err.splitlines()
    assert told == [f"warning: {message}" for message in found]
    pattern = r"update (\d), after (\d) episodes: the fit of the model diverged \(loss [\d.]+ before it, \S+ after it\)"
    assert [re.match(pattern, message).groups() for message in found] == [("1", "1"), ("2", "2")]
    assert (summary["ledger"]["measurements"], summary["metrics"]["rolled_back"]) == (80, 2)
    _, plan = learned(tmp_path / "run")
    assert unchanged(plan.policy.actor, begin.learner.actor)
    assert plan.policy.follow == 0.0


@pytest.mark.parametrize("factor", [np.nan, 1e3])
def test_a_model_that_is_no_number_or_explodes_is_found_out_at_a_later_update(second, factor):
    loop, state = second
    bad = broken(state, "ensemble", factor)
    with pytest.warns(Diverged, match="update 2, after 2 episodes: the fit of the model diverged"):
        after, record = loop.step(bad)
    assert "model and policy stay as they were" in record.info["rolled_back"]
    assert unchanged((after.learner.actor, after.learner.critic), (state.learner.actor, state.learner.critic))
    assert (after.ledger.measurements, after.data.episodes, after.learner.follow) == (40, 2, 1.0)


@pytest.mark.parametrize(
    ("part", "settings"),
    [("actor", {"actor_rate": 2.0}), pytest.param("critic", {"critic_rate": 1.0}, marks=pytest.mark.slow)],
)
def test_a_policy_that_diverges_is_rolled_back_and_the_model_is_kept(part, settings):
    """Rates a thousand times too large, at the first update, when there is little to lose."""
    longer = TINY | {"width": 64, "plan_iterations": 40}
    loop = Spec.of("pendulum", "pure-enode", **longer, **settings).build().loop
    begin = loop.init(Key.from_seed(0))
    with pytest.warns(
        Diverged, match=rf"update 1, after 1 episodes: the {part} diverged \(its weights are .* Glorot's"
    ):
        after, record = loop.step(begin)
    assert "actor and critic stay as they were" in record.info["rolled_back"]
    assert record.info["fit_loss"] > 0
    assert unchanged((after.learner.actor, after.learner.critic), (begin.learner.actor, begin.learner.critic))
    assert not unchanged(after.learner.ensemble, begin.learner.ensemble)
    assert (after.learner.follow, after.ledger.measurements) == (0.0, 20)


@pytest.mark.parametrize("part", ["actor", "critic"])
def test_an_actor_or_a_critic_that_is_no_number_is_found_out(second, part):
    loop, state = second
    bad = broken(state, part, np.nan).learner
    with pytest.warns(Diverged, match=f"update 2, after 1 episodes: the {part} diverged"):
        after, _, _ = loop.learner.update(bad, state.data, Which.BOTH, Key.from_seed(1))
    assert after.actor is bad.actor
    assert after.critic is bad.critic


def test_after_a_rollback_the_run_learns_again(second):
    """The third update is as good as any: nothing of the one that failed is left."""
    loop, state = second
    with pytest.warns(Diverged):
        after, _ = loop.step(broken(state, "ensemble", np.nan))
    mended = after._replace(learner=after.learner._replace(ensemble=state.learner.ensemble))
    learner, info, _ = loop.learner.update(mended.learner, mended.data, Which.BOTH, Key.from_seed(1))
    assert "rolled_back" not in info
    assert (learner.updates, learner.watch.fitted) == (3, 2)


def test_measurements_that_are_no_numbers_end_the_run_before_they_are_learned_from(second):
    loop, state = second

    def rollout(key, plan, times):
        seen = loop.oracle.rollout(key, plan, times)
        return Measurements(seen.t, np.where(seen.t[..., None] > 1, np.nan, seen.x), seen.u, r=seen.r)

    bad = dataclasses.replace(loop, oracle=dataclasses.replace(loop.oracle, rollout=rollout))
    with pytest.raises(MeasurementError, match="x is not finite in episode 0 of this block at time t = "):
        bad.step(state)


WATCHED = TINY | {"measurements": 160, "schedule": "on-misfit", "initial": 2}


@pytest.fixture(scope="module")
def patient(tmp_path_factory):
    out = tmp_path_factory.mktemp("control") / "patient"
    run(Spec.of("pendulum", "pure-enode", **WATCHED), out, quiet=True)
    return out


def test_on_misfit_updates_when_the_ensemble_has_stopped_fitting(patient, tmp_path):
    """After the exploring episodes, after the first under a policy, and then when the excess loss reaches the factor."""
    run(Spec.of("pendulum", "pure-enode", **WATCHED, factor=0.5), tmp_path / "eager", quiet=True)
    updates = []
    for out, factor in ((patient, 5.0), (tmp_path / "eager", 0.5)):
        records = read_records(out)
        assert [record["rollouts"] for record in records][:2] == [2, 3]
        assert [record["excess_drift"] for record in records[:2]] == [None, None]  # infinite
        due = [record["excess_drift"] >= factor for record in records[2:]]
        assert [record["updated"] for record in records] == ["drift"] * 2 + [("neither", "drift")[it] for it in due]
        assert {record["excess_reward"] for record in records} == {0.0}  # it is known
        assert records[-1]["measurements"] == 160
        updates.append(records[-1]["updates"])
    assert updates[0] == 2 < updates[1]


def test_a_run_on_misfit_resumes_bit_for_bit(patient, tmp_path):
    spec = Spec.of("pendulum", "pure-enode", **WATCHED)
    task = spec.build()
    with Store.create(tmp_path / "part", spec.as_dict()) as store:
        state = store.restore(task.loop.init(Key.from_seed(0)), pytest.fail)
        for _ in range(3):  # into the middle of what is summed up
            state, record = task.loop.step(state)
            line = _line(state, record, task)
            store.append(line)
            state = state._replace(ledger=state.ledger.evaluated(line.get(EVALUATED, 0)))
        assert state.learner.watch.since > 0
        store.checkpoint(state)
    resume(tmp_path / "part", quiet=True)
    assert left_by(tmp_path / "part") == left_by(patient)


def test_what_running_ahead_foresaw_is_what_is_found():
    """The decisions are those of one episode at a time, to the last bit."""
    loop = Spec.of("pendulum", "pure-enode", **WATCHED).build().loop
    state, learner = loop.init(Key.from_seed(0)), loop.learner
    for _ in range(2):
        state, _ = loop.step(state)
    after, record = loop.step(state)
    foreseen = learner.excesses(state.learner, record.block)
    step_by_step, now = [], state.learner
    for episodes in range(1, record.block.episodes + 1):
        found, now = learner.excess(now, state.data.append(record.block.first(episodes)), Key(0))
        step_by_step.append(found)
    assert foreseen == step_by_step
    assert record.excess == step_by_step[-1]
    assert learner.excess(now, after.data, Key(0)) == (step_by_step[-1], now)  # nothing new, nothing changed


def test_geometric_batches_are_there_to_try(tmp_path):
    settings = TINY | {"schedule": "geometric", "first": 20.0, "measurements": 160}
    run(Spec.of("pendulum", "pure-enode", **settings), tmp_path / "run", quiet=True)
    found = [record["rollouts"] for record in read_records(tmp_path / "run") if record["updated"] == "both"]
    assert found == [2, 3, 5]  # 2^κ · 20 / 20 ≤ n − 1


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        pytest.param("cartpole", {"integrator": "dopri5", "variant": "released"}, marks=pytest.mark.slow),
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

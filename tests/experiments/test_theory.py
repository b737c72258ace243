"""The theory's experiments: what the summary says is what happened."""

import json

import numpy as np
import pytest
from helpers import left_by, purectrl, stop_and_resume

from purectrl.core import Key, Measurements
from purectrl.experiments import Spec, evaluate, run
from purectrl.experiments.store import read_records
from purectrl.theory.confidence import Misfit

SMALL = {"measurements": 600, "paths": 64, "steps": 10}


def test_the_metrics_are_those_of_the_records(tmp_path):
    summary = run(Spec.of("finite", "pure-low-rollout", **SMALL), tmp_path / "run", quiet=True)
    records = read_records(tmp_path / "run")
    gaps = np.repeat([record["gap"] for record in records], [record["episodes"] for record in records])
    metrics = summary["metrics"]
    assert metrics["gap"] == pytest.approx(np.mean(gaps))
    assert metrics["gap_last"] == gaps[-1]
    assert metrics["gap_output"] in gaps
    for rollouts, gap in metrics["gap_curve"]:
        assert gap == pytest.approx(np.mean(gaps[:rollouts]))
    assert metrics["gap_curve"][-1][0] == len(gaps) == 150


def test_low_rollout_with_one_measurement_is_base_bit_for_bit(tmp_path):
    run(Spec.of("finite", "pure-base", seed=4, **SMALL), tmp_path / "base", quiet=True)
    run(Spec.of("finite", "pure-low-rollout", seed=4, m=1, **SMALL), tmp_path / "rollout", quiet=True)
    (base, base_records), (rollout, rollout_records) = left_by(tmp_path / "base"), left_by(tmp_path / "rollout")
    assert base_records == rollout_records
    assert base["metrics"] == rollout["metrics"]
    assert base["ledger"] == rollout["ledger"]


def test_low_switch_with_every_as_its_schedule_is_base_bit_for_bit(tmp_path):
    run(Spec.of("lqr", "pure-base", **SMALL), tmp_path / "base", quiet=True)
    run(Spec.of("lqr", "pure-low-switch", schedule="every", **SMALL), tmp_path / "switch", quiet=True)
    assert left_by(tmp_path / "base")[1] == left_by(tmp_path / "switch")[1]


def test_low_switch_updates_at_the_first_episode_that_misfits_and_at_no_other():
    """The simulated truth runs ahead of the test; replayed one episode at a time, every decision is the same."""
    task = Spec.of("finite", "pure-low-switch", m=2, factor=1.0, **SMALL | {"measurements": 4000}).build()
    learner, sizes = task.loop.learner, []
    replayed = task.loop.init(Key.from_seed(2)).learner
    for state, record in task.loop.run(task.loop.init(Key.from_seed(2))):
        sizes.append(record.block.episodes)
        for n in range(record.block.episodes):
            one = Measurements(*(getattr(record.block, name)[n : n + 1] for name in "txuyr"))
            replayed = learner.observe(replayed, one)
            due = task.loop.schedule.due(state.ledger, learner.excess(replayed, state.data, Key(0))[0])
            assert bool(due) == (bool(record.updated) and n == record.block.episodes - 1)
        replayed = state.learner
    assert state.ledger.updates >= 3
    assert max(sizes) > 100


def test_few_rollouts_and_few_updates_go_together():
    """Algorithms 2 and 3 in one composition: N/m rollouts, updates as rare as with m = 1, and it learns."""
    task = Spec.of("finite", "pure-low-both", measurements=8000, paths=64, steps=20).build()
    steps = list(task.loop.run(task.loop.init(Key.from_seed(0))))
    records = [{"episodes": record.block.episodes, **task.probe(state, record)} for state, record in steps]
    ledger, metrics = steps[-1][0].ledger, task.metrics(steps[-1][0], records)
    assert ledger.rollouts == 2000
    assert 2 <= ledger.updates <= 10
    assert metrics["covered"]
    assert metrics["gap_last"] < 0.1 * metrics["gap_curve"][0][1]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("finite", {"a": 0.4}, "the truth is outside the drift class: its nearest member, number 19, is off by 0.0"),
        ("finite", {"goal": 0.6}, "the truth is outside the reward class: its nearest member, number 5, is off by 0.1"),
    ],
)
def test_a_truth_outside_the_class_is_warned_of(name, settings, message):
    with pytest.warns(Misfit, match=message):
        Spec.of(name, "pure-base", **settings, **SMALL).build()


def test_data_that_no_member_explains_are_warned_of(tmp_path):
    """From the command line: a line for each, and the run goes on."""
    settings = ("--goal", 0.6, "--reward-std", 0.05, "--measurements", 600, "--paths", 64, "--steps", 10)
    done = purectrl("run", "finite", "--algorithm", "pure-base", "--out", tmp_path / "run", "--quiet", *settings)
    assert done.returncode == 0
    assert "warning: the truth is outside the reward class: its nearest member, number 5, is off by" in done.stderr
    assert "warning: the truth is outside the reward class: its best member is off by 0." in done.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["metrics"]["covered"] is False


def test_fresh_episodes_agree_with_the_table(tmp_path):
    summary = run(Spec.of("lqr", "pure-base", **SMALL), tmp_path / "run", quiet=True)
    found = evaluate(tmp_path / "run", episodes=4000)["metrics"]
    expected = summary["metrics"]["optimum"] - summary["metrics"]["gap_output"]
    assert found["reward"] == pytest.approx(
        expected, abs=4 * (found["reward_error"] + summary["metrics"]["truth_error"])
    )
    assert found["gap"] == summary["metrics"]["gap_output"]


@pytest.mark.parametrize("name", ["finite", "lqr", "ou"])
def test_the_truth_is_covered_in_at_least_the_promised_share_of_runs(name):
    """Theorem 1, first bullet, with theorem radii and δ = 0.1 over 40 seeds, at every n."""
    spec = Spec.of(name, "pure-low-rollout", m=4, measurements=200, paths=16, steps=10)
    task = spec.build()
    covered = []
    for seed in range(40):
        records = [task.probe(*step) for step in task.loop.run(task.loop.init(Key.from_seed(seed)))]
        covered.append(all(record["covered"] for record in records))
    assert np.mean(covered) >= 0.9


def test_the_noise_scale_grows_with_the_dimension():
    """G = sqrt(d) · g/sqrt(Δ) enters β_F through its square: the radius grows linearly in d at equal class size."""
    betas = [Spec.of("lqr", "pure-base", dimension=d, **SMALL).build().loop.learner.beta_drift for d in (1, 2, 4)]
    assert np.allclose(np.diff(betas), [betas[1] - betas[0], 2 * (betas[1] - betas[0])], rtol=0.02)


CONTINUOUS = {
    "linear": (
        "lqr",
        {"classes": "linear", "dimension": 1, "iterations": 10, "starts": 2, "radius_scale": 0.005} | SMALL,
    ),
    "neural": (
        "neural",
        {"measurements": 40, "paths": 16, "steps": 10, "width": 8, "iterations": 5, "starts": 2, "update_steps": 20},
    ),
}


@pytest.mark.filterwarnings("ignore::purectrl.theory.confidence.Misfit")  # twenty steps of descent explain little
@pytest.mark.parametrize("kind", CONTINUOUS)
def test_a_run_with_continuous_classes_resumes_bit_for_bit(tmp_path, kind):
    """Its state holds parameters, fits and where the last ascent ended, all of which must come back."""
    name, settings = CONTINUOUS[kind]
    spec = Spec.of(name, "pure-low-switch", **settings)
    run(spec, tmp_path / "whole", quiet=True)
    assert left_by(tmp_path / "whole")[0]["ledger"]["updates"] >= 3
    stop_and_resume(spec, tmp_path / "part")
    assert left_by(tmp_path / "part") == left_by(tmp_path / "whole")

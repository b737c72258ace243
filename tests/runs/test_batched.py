"""Runs of one setting computed together: the numbers that each has alone, whatever else is in the batch."""

import json

import numpy as np
import pytest

from purectrl.core import Key
from purectrl.runs import batched, sweep
from purectrl.runs.batched import can_batch, run_batch
from purectrl.runs.runner import resume, run
from purectrl.runs.spec import RunSpec
from purectrl.theory.batched_runs import BatchedRuns

CHEAP = {"learner.paths": 16, "learner.radius": "anytime"}


def spec(problem="finite", algorithm="pure-base", seed=0, measurements=400, **overrides):
    steps = {"steps": 20} if problem == "ou" else {"steps": 10}
    return RunSpec.of(
        problem, algorithm, seed, measurements=measurements, arguments=steps, overrides={**CHEAP, **overrides}
    )


def records(path):
    lines = [json.loads(line) for line in (path / "records.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


@pytest.mark.parametrize(
    ("problem", "algorithm", "overrides"),
    [
        ("finite", "pure-base", {}),
        ("finite", "pure-low-rollout", {"sampler.m": 4}),
        (
            "ou",
            "pure-low-rollout",
            {"sampler": "windows", "sampler.count": 1, "sampler.length": 0.03, "sampler.step": 0.01},
        ),
        ("lqr", "pure-base", {"learner.radius": "theorem"}),
    ],
    ids=["finite", "finite-m4", "ou-windows", "lqr"],
)
def test_every_run_of_a_batch_is_the_run_that_it_is_alone(tmp_path, problem, algorithm, overrides):
    specs = [spec(problem, algorithm, seed, **overrides) for seed in range(4)]
    summaries = run_batch(specs, [tmp_path / f"batch{seed}" for seed in range(4)])
    for seed in (0, 3):
        alone = run(specs[seed], tmp_path / f"alone{seed}", quiet=True).summary
        together = summaries[seed]
        assert alone["metrics"].pop("radius_needed") == pytest.approx(
            together["metrics"].pop("radius_needed"), rel=1e-4
        )
        assert together["metrics"] == alone["metrics"]
        for name in ("rollouts", "measurements", "updates", "policy_changes"):
            assert together["ledger"][name] == alone["ledger"][name]
        one, other = records(tmp_path / f"alone{seed}"), records(tmp_path / f"batch{seed}")
        assert [list(line) for line in one] == [list(line) for line in other]
        for name in ("reward", "radius_needed"):  # real numbers that depend on the last bit of measurements
            assert [line.pop(name) for line in one] == pytest.approx([line.pop(name) for line in other], abs=1e-4)
        assert one == other
        plans = [
            (tmp_path / f"{kind}{seed}" / "policy" / "plan.safetensors").read_bytes() for kind in ("alone", "batch")
        ]
        assert len(plans[0]) == len(plans[1])
        assert resume(tmp_path / f"batch{seed}")["ledger"] == together["ledger"]


def advanced(found, seeds):
    problem, loop = found.compose()
    lines = [[] for _ in seeds]
    runs = BatchedRuns(problem, loop, [Key.from_seed(seed) for seed in seeds], [one.append for one in lines])
    while not runs.finished():
        runs.advance(0.0)
    return lines, [runs.state(number) for number in range(len(seeds))]


def test_a_run_does_not_depend_on_the_others_in_its_batch():
    few, few_states = advanced(spec(), [5, 2])
    many, many_states = advanced(spec(), range(7))
    for number, seed in enumerate((5, 2)):
        assert few[number] == many[seed]
        for name in ("drift_loss", "reward_loss"):
            one, other = (getattr(state.learner, name) for state in (few_states[number], many_states[seed]))
            assert np.array_equal(one, other)
        assert np.array_equal(few_states[number].data.all.y, many_states[seed].data.all.y)


def test_a_batch_calls_its_program_far_less_often_than_a_loop(monkeypatch):
    """The reason for its speed: the number of calls does not grow with the number of runs, nor with most episodes."""
    calls = []
    original = BatchedRuns.advance
    monkeypatch.setattr(BatchedRuns, "advance", lambda self, seconds: (calls.append(1), original(self, seconds))[1])
    advanced(spec(measurements=1500), range(8))
    assert len(calls) < 8 * 1500 / 50


def test_what_can_be_batched():
    assert can_batch(spec())
    assert can_batch(spec(algorithm="pure-low-rollout"))
    assert not can_batch(spec(algorithm="pure-low-switch"))
    assert not can_batch(spec(**{"schedule.k": 2}))
    assert not can_batch(spec(output="last"))
    assert not can_batch(RunSpec.of("lqr", "pure-base", overrides={"learner": "linear-sets"}))


def test_a_sweep_groups_the_runs_of_a_setting_and_spreads_them_over_the_workers(tmp_path):
    jobs = [sweep.Job(spec(seed=seed), tmp_path / f"base{seed}") for seed in range(5)]
    jobs += [sweep.Job(spec(algorithm="pure-low-switch", seed=seed), tmp_path / f"switch{seed}") for seed in range(2)]
    (tmp_path / "base1").mkdir()
    (tmp_path / "base1" / "config.json").write_text("{}")  # begun: it is resumed by itself
    names = [[job.out.name for job in batch] for batch in sweep.batches(jobs, workers=2)]
    assert sorted(map(sorted, names)) == [["base0", "base3"], ["base1"], ["base2", "base4"], ["switch0"], ["switch1"]]
    assert max(map(len, sweep.batches(jobs[2:4] * 50, workers=1))) <= batched.MOST


def test_a_batch_that_fails_is_run_one_by_one(tmp_path, monkeypatch):
    def broken(self, seconds):
        raise MemoryError("too many runs")

    monkeypatch.setattr(BatchedRuns, "advance", broken)
    jobs = [sweep.Job(spec(seed=seed, measurements=30), tmp_path / f"seed{seed}") for seed in range(2)]
    outcomes = sweep.run_jobs(jobs)
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert all((job.out / "summary.json").exists() for job in jobs)


def test_a_batch_that_is_stopped_is_saved_and_resumed(tmp_path, monkeypatch):
    stop, original = [], BatchedRuns.advance
    monkeypatch.setattr("purectrl.runs.batched.graceful_shutdown", lambda: _Stopping(stop))

    def some(self, seconds):
        original(self, seconds)
        if self.runs[0].done > 100:
            stop.append(1)

    monkeypatch.setattr(BatchedRuns, "advance", some)
    jobs = [sweep.Job(spec(seed=seed), tmp_path / f"seed{seed}") for seed in range(2)]
    assert [outcome.error for outcome in sweep.run_jobs(jobs)] == ["stopped; its progress is saved"] * 2
    begun = len(records(tmp_path / "seed0"))
    assert 100 < begun < 400
    resumed = resume(tmp_path / "seed0", quiet=True)
    whole = run(spec(), None, quiet=True).summary
    assert resumed["metrics"]["gap_curve"] == whole["metrics"]["gap_curve"]


class _Stopping:
    def __init__(self, stop):
        self.stop = stop

    def __enter__(self):
        return self.stop

    def __exit__(self, *_):
        pass


def test_a_sweep_with_batches_leaves_the_runs_of_a_sweep_without(tmp_path):
    specs = [spec(seed=seed, measurements=60) for seed in range(4)]
    for batch in (False, True):
        outcomes = list(sweep.sweep(specs, tmp_path / f"{batch}", sweep.local(workers=1, batch=batch)))
        assert [outcome.error for outcome in outcomes] == [None] * 4
    for seed in range(4):
        one, other = (records(tmp_path / f"{batch}" / "finite" / f"pure-base-seed{seed}") for batch in (False, True))
        columns = ("step", "updates", "gap", "covered", "drifts", "rewards", "value")
        assert [[line[name] for name in columns] for line in one] == [
            [line[name] for name in columns] for line in other
        ]

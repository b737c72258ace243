"""Logs as first data: what they are turned into, that they are free of charge, and that a run with them resumes exactly."""

import json

import jax
import numpy as np
import pytest
from helpers import stopped_run

import purectrl as pc
from purectrl.control.settings import Enode, FitSettings, ModelSettings, PlanSettings
from purectrl.core import InputError, Key
from purectrl.core.algorithm import Algorithm
from purectrl.core.ledger import Budget
from purectrl.core.output_rules import LastPolicy
from purectrl.core.samplers import Windows
from purectrl.core.schedules import Batches
from purectrl.runs.runner import resume, run
from purectrl.runs.spec import RunSpec

LEARNER = Enode(
    ModelSettings(ensemble_size=2, width=8),
    FitSettings(steps=20, finetune_steps=20, batch_size=8),
    PlanSettings(steps=5, batch_size=4, horizon=0.4, ensemble_size=2),
)
ALGORITHM = Algorithm(Windows(1, 1.0, 0.1, from_start=True), Batches((1, 1), "before", 1), LEARNER, LastPolicy())


def log(n=30, rate=2.0, **more):
    """x = rate · t under u = rate, measured every 0.1 s from a clock that starts at 5."""
    t = 0.1 * np.arange(n)
    return pc.problems.Episode((rate * t)[:, None], np.full((n, 1), rate), t=5.0 + t, **more)


def tank(logs, **arguments):
    known = {
        "name": "tank",
        "horizon": 2.0,
        "drift": lambda x, u: u,
        "reward": lambda x, u: -x[0],
        "initial": lambda key: jax.random.uniform(key, (1,)),
        "control_low": [-3.0],
        "control_high": [3.0],
        "eval_episodes": 1,
    }
    return pc.problems.continuous(**(known | arguments), logs=logs)


@pytest.fixture(scope="module")
def problem():
    """Two logs; shared, since every problem compiles its own functions."""
    return tank([log(), log(12)])


def test_a_log_holds_difference_quotients_and_known_rewards():
    first = tank([log(), log(5, rate=-1.0)]).logs
    assert first.count.tolist() == [29, 4]  # of the last state no drift is known
    assert np.allclose(first.y[0, :29], 2.0, atol=1e-5)
    assert np.allclose(first.y[1, :4], -1.0, atol=1e-5)
    assert np.allclose(first.r[first.valid], -first.x[first.valid][:, 0])
    assert first.t[0, 0] == 0.0
    assert not first.terminated.any()


def test_rewards_of_the_log_are_used_and_rows_that_are_not_finite_are_left_out():
    x, u, _, t, _ = log(4)
    x[1] = np.nan
    first = tank([pc.problems.Episode(x, u, r=[1.0, 2.0, 3.0, 4.0], t=t)]).logs
    assert first.r[0].tolist() == [1.0, 3.0]
    assert np.allclose(first.y[0], 2.0, atol=1e-5)  # the gap is 0.2 s


def test_a_history_is_that_which_a_controller_would_have_seen():
    first = tank([log(6)], control_period=0.1, history=2).logs
    assert np.allclose(first.x[0, 2], [0.4, 0.2, 2.0])  # the newest two samples, the control between them
    driven = pc.problems.continuous(
        name="device",
        horizon=2.0,
        rollout=lambda control, times: None,
        state_dim=1,
        reward=lambda x, u: x[0],
        logs=[log(6)],
    )
    assert driven.logs.y is None
    assert driven.logs.count.tolist() == [6]


def test_long_logs_are_divided():
    first = tank([log(2501, terminated=True)]).logs
    assert first.count.tolist() == [1000, 1000, 500]
    assert first.terminated.tolist() == [False, False, True]


def test_logs_are_free_of_charge_and_learned_from(problem):
    loop = ALGORITHM.build(problem, Budget(30))
    begin = loop.init(Key.from_seed(0))
    assert (begin.data.episodes, begin.ledger.measurements) == (2, 0)
    steps = list(loop.run(begin))
    last = steps[-1][0]
    assert last.ledger[:3] == (3, 30, 2)
    assert last.data.episodes == 5
    assert last.data.all.total == 30 + 29 + 11
    model = last.learner.model
    assert int(model.task.count) == 4  # first states: two of the logs, and two of the episodes before the last update
    assert float(model.task.worst) == pytest.approx(
        -5.6
    )  # the smallest reward of the longer log, which ends at x = 5.6


def test_a_run_with_logs_resumes_bit_for_bit(problem, tmp_path):
    spec = RunSpec(problem, ALGORITHM, Budget(30), 0)
    run(spec, tmp_path / "whole", quiet=True)
    stopped_run(spec, tmp_path / "stopped", until=1, at=(1,))
    resume(tmp_path / "stopped", quiet=True, problem=problem)
    numbers = [
        [record["eval_return"] for record in map(json.loads, (tmp_path / name / "records.jsonl").read_text().splitlines())
         if "eval_return" in record]
        for name in ("whole", "stopped")
    ]  # fmt: skip
    assert numbers[0] == numbers[1]
    assert len(numbers[0]) == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (pc.problems.Episode([[0.0]], [[0.0]]), "logs: number 0 has no times"),
        (pc.problems.Episode([[0.0, 1.0]], [[0.0]], t=[0.0]), r"expected x \[n, 1\], u \[n, 1\], t \[n\]"),
        (pc.problems.Episode([[0.0]], [[0.0]], t=[0.0]), "fewer than two measurements"),
        (pc.problems.Episode([[0.0]] * 2, [[0.0]] * 2, t=[0.0, 0.0]), "the times must increase"),
    ],
)
def test_wrong_logs_are_named(wrong, message):
    with pytest.raises(InputError, match=message):
        tank([wrong])


def test_rewards_that_are_neither_known_nor_logged_are_missing():
    with pytest.raises(InputError, match="has no rewards, and the reward is not a known function"):
        tank([log()], reward_known=False)

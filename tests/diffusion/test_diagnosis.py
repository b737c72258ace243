"""Promised, measured and second opinions: what the records say, when a warning comes, and that a run can end there."""

import math
import warnings

import numpy as np
import pytest
from short_runs import loop_of, seiko

from purectrl.core import Key
from purectrl.core.measurement import Measurements
from purectrl.core.samplers import Equidistant, LargestBonus
from purectrl.diffusion.diagnosis import (
    ERRORS,
    LEAST,
    ExploitationWarning,
    compare,
    final_rewards,
    warn_of_parting,
)
from purectrl.problems.digit_images import digits
from purectrl.runs.serialization import pack_state

SMALL = {"denoising_steps": 2, "eval_images": 2}


def test_a_fall_counts_from_three_standard_errors_on():
    rewards = np.array([0.0, 0.2] * 50)
    error = rewards.std(ddof=1) / 10
    just, more = (0.1 + factor * ERRORS * error for factor in (0.99, 1.01))
    assert not compare(1.0, just, rewards)["measured_reward_fell"]
    assert compare(1.0, more, rewards)["measured_reward_fell"]
    assert not compare(more - 1e-9, more, rewards)["measured_reward_fell"], "no gain was promised"


def test_what_is_not_known_is_not_compared():
    assert compare(1.0, 0.5, np.zeros(0)) == {}
    assert compare(math.inf, math.inf, np.ones(20)) == {"asked_reward": 1.0}
    assert "measured_reward_fell" not in compare(1.0, 0.9, np.zeros(LEAST - 1))
    assert compare(1.0, 0.9, np.zeros(LEAST))["measured_reward_fell"]


@pytest.mark.parametrize("seed", range(3))
def test_chance_alone_seldom_warns(seed):
    draw = np.random.default_rng(seed)
    falls = [compare(1.0, draw.normal(0, 0.2), draw.standard_normal(25))["measured_reward_fell"] for _ in range(400)]
    assert np.mean(falls) < 0.04  # of a difference whose error is √2 larger, beyond 3 errors: 1.7 %


def test_final_rewards_are_those_at_the_end_that_were_taken():
    t = np.tile([6.0, 12.0], (3, 1))
    block = Measurements(t, np.zeros((3, 2, 1)), np.zeros((3, 2, 1)), r=np.arange(6.0).reshape(3, 2))
    assert final_rewards(block, 12.0).tolist() == [1.0, 3.0, 5.0]
    taken = np.array([[True, True], [True, False], [False, True]])
    assert final_rewards(block.at(taken), 12.0).tolist() == [1.0, 5.0]


@pytest.mark.parametrize(
    ("after", "warned"),
    [
        ({"reward": 0.9, "classifier_accuracy": 0.5, "diversity": 0.2}, "classifier accuracy fell from 0.98 to 0.5"),
        ({"reward": 0.9, "classifier_accuracy": 0.97, "diversity": 0.05}, "diversity fell from 0.2 to 0.05"),
        ({"classifier_accuracy": 0.5, "diversity": 0.2}, "classifier accuracy fell"),
        ({"reward": 0.9, "classifier_accuracy": 0.95, "diversity": 0.15}, None),
        ({"reward": 0.4, "classifier_accuracy": 0.1, "diversity": 0.2}, None),
    ],
)
def test_a_second_opinion_that_parts_is_said(after, warned):
    before = {"reward": 0.5, "classifier_accuracy": 0.98, "diversity": 0.2}
    if warned is None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warn_of_parting(before, after)
        return
    with pytest.warns(ExploitationWarning, match=warned):
        warn_of_parting(before, after)


class Falling:
    """A reward that falls with every call, whatever the images show."""

    def __init__(self):
        self.calls = 0

    def __call__(self, images, conditions):
        self.calls += 1
        return np.linspace(0.0, 0.02, len(images)) + 1.0 / self.calls


def steps_of(loop):
    steps = list(loop.run(loop.init(Key.from_seed(0))))
    return steps[-1][0], [record for _, record in steps]


def falling_loop(learner, sampler=Equidistant(1)):  # noqa: B008
    problem = digits(Falling(), **SMALL, rollout_batch_size=64, stochastic_reward=True)
    return loop_of(problem, measurements=90, updates=4, sampler=sampler, learner=learner)


def test_records_compare_what_was_promised_with_what_was_measured():
    with pytest.warns(ExploitationWarning, match="the measured reward fell from"):
        _, records = steps_of(falling_loop(seiko({"loss": "mse"})))
    first, second = records[0].info, records[1].info
    assert "promised_reward" not in first
    assert first["asked_reward"] == pytest.approx(records[0].block.r.mean())
    assert second["promised_reward"] == first["predicted_reward"]
    assert second["asked_reward"] == pytest.approx(records[1].block.r.mean())
    assert second["shortfall"] == pytest.approx(second["promised_reward"] - second["asked_reward"])
    assert len(records) == 4, "by default the run continues"


def test_without_a_divergence_the_warning_names_it():
    with pytest.warns(ExploitationWarning, match=r"stop_when_worse ends a run there, and a positive .*\.alpha keeps"):
        steps_of(falling_loop(seiko({"loss": "mse"}, alpha=0.0)))


def test_a_run_can_end_there_with_the_rest_of_the_budget_unspent():
    from dataclasses import replace

    loop = falling_loop(replace(seiko({"loss": "mse"}), stop_when_worse=True))
    fell = lambda record: record.info.get("measured_reward_fell", False)  # noqa: E731
    with pytest.warns(ExploitationWarning, match="the run ends"):
        state, records = steps_of(loop)
    assert [fell(record) for record in records] == [False] * (len(records) - 1) + [True]
    assert loop.finished(state)
    assert state.ledger.measurements < 90
    assert "predicted_reward" not in records[-1].info, "nothing is updated any more"
    pack_state(state)


def test_chosen_images_are_no_fair_sample_and_are_not_compared():
    _, records = steps_of(falling_loop(seiko({"loss": "mse"}), LargestBonus(m=1, candidates=2)))
    assert not any("asked_reward" in record.info for record in records)

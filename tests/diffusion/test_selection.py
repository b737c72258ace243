"""Which images are asked about: the ones that the samplers choose, on the model of the digits."""

import json

import numpy as np
import pytest
import torch
from short_runs import lines_of, loop_of, seiko

from purectrl.cli import main
from purectrl.core import Key, UnsupportedError
from purectrl.core.prices import Prices
from purectrl.core.samplers import AutoM, Equidistant, LargestBonus, Selection
from purectrl.diffusion.reward_model import RewardData, reward_data
from purectrl.diffusion.rollout import step_of
from purectrl.problems.digit_images import digits

SMALL = {"denoising_steps": 3, "eval_images": 2, "rollout_batch_size": 5}


def brightness(images, conditions):
    return images.mean(axis=(1, 2, 3))


def test_taken_images_get_their_own_scores(tmp_path):
    """What is taken of a trajectory is what a rollout that takes all would have measured there."""
    problem, key = digits(brightness, **SMALL), Key.from_seed(0)
    times = np.tile([1.0, 2.0, 3.0], (8, 1))
    whole = problem.rollout(key, problem.pretrained, times)
    wanted = np.random.default_rng(0).random((8, 3)) < 0.4
    rows = iter(range(8))

    def choose(offered, asked, key):
        return np.stack([wanted[next(rows)] for _ in range(offered.episodes)])

    opened = problem.open(tmp_path)
    some = opened.selective_rollout(key, problem.pretrained, times, Selection(int(wanted.sum()), choose))
    assert some.count.tolist() == wanted.sum(axis=1).tolist()
    for field in ("t", "x", "u", "r"):
        assert np.array_equal(getattr(some, field)[some.valid], getattr(whole, field)[wanted])
    assert opened.reward.queries == wanted.sum(), "the others are not sent"


def test_images_with_the_largest_bonus_are_asked_about():
    problem = digits(brightness, **SMALL)
    loop = loop_of(problem, measurements=24, sampler=LargestBonus(m=1, candidates=3))
    first, _ = loop.step(loop.init(Key.from_seed(0)))
    seen = []
    bonus = type(loop.learner).bonus

    def spy(state, offered):
        seen.append(bonus(loop.learner, state, offered))
        return seen[-1]

    object.__setattr__(loop.learner, "bonus", spy)
    second, record = loop.step(first)
    assert len(seen) == -(-record.block.episodes // 5), "one choice for each batch that is rolled out together"
    asked = np.split(record.block.count, range(5, record.block.episodes, 5))
    for scores, count in zip(seen, asked, strict=True):
        taken = scores[count > 0]
        assert taken.min() >= scores[count == 0].max()
    assert (second.ledger.measurements, second.ledger.rollouts) == (24, 72)


def test_a_fit_without_the_places_that_were_not_measured(tmp_path):
    problem = digits(brightness, **SMALL)
    loop = loop_of(problem, measurements=24, sampler=LargestBonus(m=2, candidates=2), updates=1)
    _, record = loop.step(loop.init(Key.from_seed(0)))
    block = record.block
    data = reward_data(block, 3.0)
    assert isinstance(data, RewardData)
    assert len(data.r) == block.total == 24
    assert torch.equal(data.r, torch.tensor(block.r[block.valid], dtype=torch.float32))
    assert np.allclose(data.t, step_of(block.t[block.valid]) / 3)


def test_m_auto_on_the_digits_and_what_its_records_say():
    problem = digits(brightness, measurement_price=1.0, rollout_price=1e-6, **SMALL)
    assert problem.prices == Prices(1.0, 1e-6)
    state, lines = lines_of(problem, loop_of(problem, measurements=48, sampler=AutoM(m=3)))
    assert state.ledger.measurements == 48
    assert lines[-1]["queries"] == lines[-1]["episodes"] == 33, "trajectories are free: one measurement each"
    assert lines[0]["episodes"] == 5
    assert lines[0]["queries"] == 15


def test_equal_numbers_of_measurements_are_fitted_as_before():
    """m as one number and as a number for each trajectory give the same model, bit for bit."""
    problem = digits(brightness, **SMALL)
    loop = loop_of(problem, sampler=Equidistant(3), updates=1)
    _, record = loop.step(loop.init(Key.from_seed(0)))
    model, data = loop.learner.reward_model, reward_data(record.block, 3.0)
    one, _ = model.fit(data, 3, Key(1))
    other, _ = model.fit(data, torch.full((record.block.episodes,), 3), Key(1))
    assert torch.equal(one.heads, other.heads)
    assert torch.equal(one.factor, other.factor)


@pytest.mark.parametrize(
    ("settings", "sampler", "message"),
    [
        ({"uncertainty": "greedy"}, LargestBonus(), "needs a bonus"),
        ({"bonus_scale": 0.0}, LargestBonus(), "needs a bonus"),
        ({}, AutoM(), "measurement_price"),
    ],
)
def test_what_cannot_work_is_refused(settings, sampler, message):
    with pytest.raises(UnsupportedError, match=message):
        loop_of(digits(brightness, **SMALL), sampler=sampler, learner=seiko(settings))


def test_m_auto_from_the_command_line(tmp_path, capsys):
    """`taste` with prices: the run ends, spends its budget, and is resumed to the same end."""
    words = "run taste --algorithm pure-seiko --sampler auto-m --sampler.m 4 --problem.measurement-price 1"
    words += " --problem.rollout-price 2 --measurements 96 --schedule.updates 2 --problem.denoising-steps 4"
    words += " --problem.eval-images 2 --learner.finetune.iterations 1 --learner.finetune.batch-size 2 --quiet --out"
    assert main([*words.split(), str(tmp_path / "run")]) == 0, capsys.readouterr().err
    records = [json.loads(line) for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert records[0]["measurements"] == 4 * records[0]["rollouts"]
    assert summary["ledger"]["measurements"] == summary["metrics"]["queries"] == 96
    ledger, metrics = summary["ledger"], summary["metrics"]
    last = [record["eval_reward"] for record in records if "eval_reward" in record][-1]
    assert metrics["utility"] == pytest.approx(last - 96 - 2 * ledger["rollouts"])
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")]) == 0

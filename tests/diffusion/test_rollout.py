"""Trajectories as an oracle runs them: what is measured, what is queried, what is charged."""

import numpy as np
import pytest
import torch
from tiny import CLASSES, brightness, model, process

from purectrl.core import Budget, Context, Key, MeasurementError, Oracle
from purectrl.diffusion.models import GuidedDiffusion
from purectrl.diffusion.process import path, torch_generator
from purectrl.diffusion.rollout import DenoisingRollout, balanced_conditions, noisy_state, predicted_x0, step_of

KEY = Key.from_seed(0)
STEPS = process().steps


class Recorded:
    """A reward that records its queries."""

    def __init__(self, reward=brightness):
        self.images, self.conditions, self.reward = [], [], reward

    def __call__(self, images, conditions):
        self.images.append(images)
        self.conditions += conditions
        return self.reward(images, conditions)


def plan_of(tiny):
    return tiny.pretrained().plan()


def rollout_of(tiny, conditions, reward, *rest, **settings):
    return DenoisingRollout(GuidedDiffusion(tiny, process()), conditions, reward, *rest, **settings)


def rolled(times, reward=brightness, **settings):
    tiny = model()
    return rollout_of(tiny, range(CLASSES), reward, **settings)(KEY, plan_of(tiny), np.asarray(times, float))


def by_hand(key, count):
    """The states of the same trajectories, from the process itself: [steps + 1] of [count, 1, 4, 4], and the noises."""
    tiny = model()
    chosen = balanced_conditions(key.child("conditions"), count, CLASSES)
    generator = torch_generator(key.child("path", 0))
    denoise = GuidedDiffusion(tiny, process()).denoiser(tiny.pretrained().weights, tiny.encode(chosen.tolist()))
    with torch.no_grad():
        return list(path(process(), denoise, tiny.pretrained().initial.sample(count, generator), generator))


def test_what_is_measured_is_the_state_on_the_way():
    times = [[0.0, 2.0, 5.0], [1.0, 4.0, 4.0]]
    seen, states = rolled(times, measure=noisy_state), by_hand(KEY, 2)
    assert seen.x.shape == (2, 3, 1, 4, 4)
    for episode, row in enumerate(times):
        for index, t in enumerate(row):
            image = ((states[int(t)].x[episode] + 1) / 2).clamp(0, 1)
            assert np.allclose(seen.x[episode, index], image, atol=1e-6)
            assert seen.r[episode, index] == pytest.approx(image.mean().item(), abs=1e-6)


def test_or_the_image_that_the_denoiser_predicts():
    seen, states = rolled([[3.0, 5.0]], measure=predicted_x0), by_hand(KEY, 1)
    image = process().predict_x0(states[3].x, states[3].output, 3)
    assert np.allclose(seen.x[0, 0], ((image[0] + 1) / 2).clamp(0, 1), atol=1e-6)
    assert np.array_equal(seen.x[0, 1], rolled([[3.0, 5.0]], measure=noisy_state).x[0, 1])  # at T they are one


def test_both_measures_have_one_trajectory_and_the_same_evaluations():
    tiny, rows = model(), []
    forward = tiny.network.forward
    tiny.network.forward = lambda x, *rest: rows.append(len(x)) or forward(x, *rest)
    for measure in (noisy_state, predicted_x0):
        rows.clear()
        rollout_of(tiny, [0], brightness, measure)(KEY, plan_of(tiny), np.array([[1.0, 2.0, 5.0]] * 4))
        assert sum(rows) == 4 * STEPS


def test_a_repeated_time_is_decoded_once():
    tiny, decoded = model(), []
    decode = tiny.decode
    object.__setattr__(tiny, "decode", lambda x: decoded.append(len(x)) or decode(x))
    times = np.array([[2.0, 5.0, 5.0], [5.0, 5.0, 5.0]])
    seen = rollout_of(tiny, [0], brightness)(KEY, plan_of(tiny), times)
    assert decoded == [1, 2]
    assert np.array_equal(seen.x[1, 0], seen.x[1, 2])
    assert not np.array_equal(seen.x[0, 0], seen.x[0, 1])


def test_a_repeated_time_is_queried_once_and_counts_twice():
    recorded = Recorded()
    times = np.array([[2.0, 5.0, 5.0, 5.0], [5.0, 5.0, 5.0, 5.0], [1.0, 2.0, 3.0, 5.0]])
    tiny = model()
    oracle = Oracle(rollout_of(tiny, range(CLASSES), recorded), STEPS, Budget(12))
    seen, ledger = oracle(KEY, times, Context(STEPS, plan=plan_of(tiny)))
    assert len(recorded.conditions) == 2 + 1 + 4
    assert (ledger.measurements, ledger.rollouts) == (12, 3)
    assert seen.r.shape == (3, 4)
    assert len(set(seen.r[0])) == 2
    assert seen.r[1].std() == 0
    assert np.allclose(seen.r, seen.x.mean(axis=(2, 3, 4)), atol=1e-6)


def test_a_stochastic_reward_is_queried_every_time():
    noise = np.random.default_rng(0)
    recorded = Recorded(lambda images, conditions: noise.random(len(images)))
    seen = rolled([[5.0, 5.0], [5.0, 5.0]], recorded, stochastic=True)
    assert len(recorded.conditions) == 4
    assert len(set(seen.r.ravel())) == 4


def test_conditions_take_turns_and_reach_denoiser_reward_and_measurements():
    recorded = Recorded()
    seen = rolled([[5.0]] * 8, recorded)
    chosen = seen.u[:, 0, 0].astype(int)
    assert recorded.conditions == chosen.tolist()
    assert np.bincount(chosen).max() - np.bincount(chosen).min() <= 1
    assert ((np.diff(chosen) % CLASSES) == 1).all()
    assert len({balanced_conditions(Key.from_seed(seed), 1, CLASSES)[0] for seed in range(30)}) == CLASSES


def test_what_the_reward_sees_is_an_image():
    recorded = Recorded()
    rolled([[1.0, 5.0]] * 5, recorded, measure=noisy_state, batch_size=2)
    assert [len(images) for images in recorded.images] == [4, 4, 2]
    for images in recorded.images:
        assert images.dtype == np.float32
        assert images.shape[1:] == (1, 4, 4)
        assert images.min() >= 0
        assert images.max() <= 1


def test_the_reward_model_sees_what_embed_makes_of_it():
    seen = rolled([[3.0, 5.0]] * 3, embed=lambda images: images.mean(dim=(2, 3)))
    assert seen.x.shape == (3, 2, 1)
    assert np.allclose(seen.x[..., 0], seen.r, atol=1e-6)


def test_a_time_inside_a_step_is_measured_where_the_step_ends():
    assert step_of(np.array([0.0, 0.3, 1.0, 1.0000001, 4.2, 5.0])).tolist() == [0, 1, 1, 1, 5, 5]
    assert step_of(np.arange(1, 41) / 40 * 50.0).tolist()[-1] == 50


def test_the_same_key_gives_the_same_trajectories_whatever_was_drawn_before():
    tiny, times = model(), np.full((3, 1), 5.0)
    rollout = rollout_of(tiny, range(CLASSES), brightness)
    before = torch.random.get_rng_state()
    one = rollout(KEY, plan_of(tiny), times)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.rand(5)
    assert np.array_equal(one.x, rollout(KEY, plan_of(tiny), times).x)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (lambda images, conditions: [0.5], r"the reward returned \(1,\) scores for 3 images, expected one per image"),
        (lambda images, conditions: images, r"the reward returned \(3, 1, 4, 4\) scores for 3 images"),
    ],
)
def test_a_reward_that_returns_another_number_of_scores_is_named(reward, message):
    with pytest.raises(MeasurementError, match=message):
        rolled([[5.0]] * 3, reward)


def test_a_reward_that_is_not_finite_is_named():
    tiny = model()
    nan = lambda images, conditions: np.full(len(images), np.nan)  # noqa: E731
    oracle = Oracle(rollout_of(tiny, [0], nan), STEPS, Budget(12))
    with pytest.raises(MeasurementError, match="r is not finite in episode 0"):
        oracle(KEY, np.array([[5.0]]), Context(STEPS, plan=plan_of(tiny)))

"""The denoising chain as a policy: the gradient estimator against the exact gradient, importance weights, replays."""

import math
from collections import Counter

import numpy as np
import pytest
import tiny
import torch
from short_runs import lines_of, loop_of, seiko
from torch import nn

from purectrl.algorithms import ALGORITHMS, named
from purectrl.core import InputError, Key, UnsupportedError
from purectrl.core.algorithm import Algorithm
from purectrl.core.ledger import Budget
from purectrl.core.loop import Loop
from purectrl.core.measurement import Dataset
from purectrl.core.oracle import Oracle
from purectrl.core.output_rules import LastPolicy
from purectrl.core.samplers import Final
from purectrl.core.schedules import EqualBatches, Targets
from purectrl.diffusion.chain import ChainLearner, PathBatch, advantages, log_ratio, path_batches, replay, step_loss
from purectrl.diffusion.finetune import sample_truncation
from purectrl.diffusion.models import GuidedDiffusion, equal, trainable_copy
from purectrl.diffusion.process import torch_generator
from purectrl.diffusion.rollout import DenoisingRollout
from purectrl.diffusion.settings import Chain
from purectrl.problems.digit_images import digits

KEY = Key.from_seed(0)
NOISY = tiny.process(last=0.999)
"""Every step has noise, so that every step is an action."""


class Shift(nn.Module):
    """The same output everywhere: paths are a Gaussian chain with known mean."""

    def __init__(self):
        super().__init__()
        self.level = nn.Linear(1, 1, bias=False)

    def forward(self, x, steps, classes):
        return self.level(torch.ones_like(x)[..., None])[..., 0]


def learner_of(network=tiny.Network, process=NOISY, **settings):
    model = tiny.model(network=network)
    return ChainLearner(GuidedDiffusion(model, process), (0, 1, 2), Chain(**settings))


def batch(n, seed=0, weight=None):
    condition = torch.arange(n) % 3
    return PathBatch(seed, condition, torch.ones(n) if weight is None else weight)


def encoded(learner):
    return learner.diffusion.model.encode(learner.conditions)


def test_the_policy_gradient_is_the_exact_gradient_on_a_gaussian_chain():
    """x(T) = Σ_k gain_k Π_{j>k} carry_j · c + noise, and r is the mean of x(T): dE[r]/dc is the coefficient of c."""
    learner = learner_of(network=Shift, clip=1e9)
    old, n = learner.diffusion.model.pretrained(), 4000
    steps = replay(learner.diffusion, old, batch(n), encoded(learner))
    r = steps[-1].x.flatten(1).mean(1)
    exact = sum(NOISY.gain[k] * math.prod(NOISY.carry[k + 1 :]) for k in range(NOISY.steps))
    estimates = []
    for part in range(20):  # 20 independent estimates, whose spread gives the standard error
        rows = torch.arange(part, n, 20)
        current = trainable_copy(old)
        chosen = [type(s)(s.k, s.x[rows], None if s.output is None else s.output[rows]) for s in steps]
        weighted = PathBatch(0, torch.zeros(len(rows), dtype=torch.int64), r[rows] - r.mean())
        learner._chunk(current, weighted, chosen, encoded(learner), 1.0)
        estimates.append(-current.weights["level.weight"].grad.item())
    error = np.std(estimates, ddof=1) / math.sqrt(20)
    assert abs(np.mean(estimates) - exact) < 4 * error
    assert error < 0.2 * abs(exact), "the test can tell the gradient from zero"


def test_importance_weights_are_one_on_policy_and_average_to_one_off_policy():
    learner = learner_of()
    old = learner.diffusion.model.pretrained()
    ratios, clipped, divergence = learner.gradients(trainable_copy(old), old, batch(9), encoded(learner))
    assert (ratios, clipped, divergence) == (1.0, 0.0, 0.0)
    # E_old[p/p_old] = 1 for any other policy: exactly, per step, for a Gaussian
    shift = learner_of(network=Shift)
    before = shift.diffusion.model.pretrained()
    after = type(before)({"level.weight": before.weights["level.weight"] + 0.05}, before.initial)
    steps = replay(shift.diffusion, before, batch(20_000), encoded(shift))
    level, moved = (float(one.weights["level.weight"]) for one in (before, after))
    for k in range(NOISY.steps):
        x = steps[k].x
        old_mean, mean = (NOISY.mean(x, torch.full_like(x, value), k) for value in (level, moved))
        ratio = log_ratio(NOISY, steps[k + 1].x, mean, old_mean, k).double().exp()
        assert abs(ratio.mean() - 1) < 5 * ratio.std() / math.sqrt(20_000)


def test_the_ratio_is_that_of_two_densities():
    x, one, other = (
        torch.randn(4, *tiny.SHAPE, generator=torch_generator(Key.from_seed(s))).double() for s in range(3)
    )
    for k in range(NOISY.steps):
        expected = NOISY.log_probability(x, one, k) - NOISY.log_probability(x, other, k)
        assert torch.allclose(log_ratio(NOISY, x, one, other, k), expected)


def test_clipping_removes_the_gradient_that_would_move_a_ratio_further():
    settings = Chain(clip=0.2)
    for advantage, log_value, moves in [(1.0, 0.5, False), (1.0, -0.5, True), (-1.0, 0.5, True), (-1.0, -0.5, False)]:
        value = torch.tensor([log_value], requires_grad=True)
        step_loss(settings, torch.tensor([advantage]), value).sum().backward()
        assert bool(value.grad.abs() > 0) == moves


def test_the_likelihood_objective_is_the_log_likelihood_of_the_chosen():
    weight, value = torch.tensor([1.0, 0.0]), torch.tensor([0.3, 0.7], requires_grad=True)
    loss = step_loss(Chain(objective="likelihood", baseline="best"), weight, value)
    assert loss.tolist() == pytest.approx([-0.3, 0.0])


def measured(learner, n=7):
    rollout = DenoisingRollout(learner.diffusion, learner.conditions, tiny.brightness, batch_size=3)
    plan = learner.diffusion.model.pretrained().plan()
    return rollout(KEY, plan, np.full((n, 1), float(learner.diffusion.process.steps)))


def test_a_replay_is_the_trajectory_that_was_measured():
    learner = learner_of()
    block = measured(learner)
    model, found = learner.diffusion.model, []
    batches = path_batches(learner.settings, block, 0)
    assert [len(one.condition) for one in batches] == [3, 3, 1]
    for one in batches:
        end = replay(learner.diffusion, model.pretrained(), one, encoded(learner))[-1].x
        found.append(tiny.brightness(model.decode(end).numpy(), None))
    assert np.array_equal(np.concatenate(found), block.r[:, 0])


def test_an_update_uses_new_trajectories_only_and_continues_its_optimizer():
    learner = learner_of(epochs=2)
    first = Dataset(measured(learner))
    one = learner.update(learner.init(KEY), first, Targets.BOTH, KEY)
    assert (one.state.episodes, one.state.updates, one.state.moments.steps) == (7, 1, 6)
    assert "divergence_pretrained" not in one.info, "alpha is 0, so that nothing computed it"
    again = learner.update(one.state, first.append(measured(learner, 4)), Targets.BOTH, KEY.child(1))
    assert (again.state.episodes, again.state.moments.steps) == (11, 10)
    assert not equal(one.state.params, again.state.params)
    assert one.info["update_evaluations"] == 7 * 2 * (5 + 5)
    fresh = again.state._replace(moments=learner.init(KEY).moments)
    steps = [
        learner.update(state, first.append(measured(learner, 4)), Targets.BOTH, KEY.child(1)).state.params
        for state in (one.state, fresh._replace(params=one.state.params, episodes=7, updates=1))
    ]
    assert not equal(*steps), "moments of the first update matter in the second"


def test_chunks_of_a_batch_give_the_gradient_of_the_batch():
    found = []
    for size in (None, 2):
        learner = learner_of(chunk_size=size, alpha=0.1)
        old = learner.diffusion.model.pretrained()
        current = trainable_copy(tiny.moved(old, size=0.01))
        weight = torch.linspace(-1, 1, 5)
        learner.gradients(current, old, batch(5, weight=weight), encoded(learner))
        found.append(torch.cat([current.weights[name].grad.flatten() for name in sorted(current.weights)]))
    assert torch.allclose(*found, rtol=1e-4, atol=1e-5)


def test_trajectories_of_weight_zero_cost_a_replay_only():
    """Their gradient is zero, and leaving them out changes nothing; with a divergence they are evaluated."""
    weight, found = torch.tensor([0.0, 1.0, 0.0, 0.0, -1.0, 0.0]), []
    for alpha in (0.0, 1e-12):
        learner = learner_of(alpha=alpha)
        old = learner.diffusion.model.pretrained()
        current = trainable_copy(tiny.moved(old, size=0.01))
        learner.gradients(current, old, batch(6, weight=weight), encoded(learner))
        found.append(torch.cat([current.weights[name].grad.flatten() for name in sorted(current.weights)]))
    assert torch.allclose(*found, rtol=1e-4, atol=1e-5)
    assert learner_of()._evaluations([batch(6, weight=weight)]) == 6 * 5 + 2 * 5
    assert learner_of(alpha=0.1)._evaluations([batch(6, weight=weight)]) == 6 * (5 + 5 + 5)
    assert learner_of().gradients(current, old, batch(6, weight=0 * weight), encoded(learner)) == [1.0, 0.0, 0.0]
    best = learner_of(objective="likelihood", baseline="best", best_of=3)
    assert best.update_work(1, 6).forward == pytest.approx(best._evaluations([batch(6, weight=weight)]))


def test_advantages_are_standardised_by_their_group():
    r, group = np.array([1.0, 3.0, 10.0, 30.0]), np.array([0, 0, 1, 1])
    none = np.array([])
    assert advantages(Chain(baseline="group"), r, group, none, none).tolist() == pytest.approx([-1, 1, -1, 1])
    past, past_group = np.array([5.0, 5.0, 20.0]), np.array([0, 0, 1])
    found = advantages(Chain(baseline="condition"), r, group, past, past_group)
    known = np.array([5.0, 5.0, 1.0, 3.0])
    assert found[0] == pytest.approx((1 - known.mean()) / known.std())
    assert advantages(Chain(baseline="group"), np.array([2.0, 2.0]), np.array([0, 0]), none, none).tolist() == [0, 0]


@pytest.mark.parametrize("settings", [{"epochs": 2}, {"objective": "likelihood", "baseline": "best", "epochs": 2}])
def test_learning_raises_the_reward_of_a_known_problem(settings):
    """Brightness of four by four pixels, 8 updates of 60 trajectories."""
    learner = learner_of(network=Shift, learning_rate=0.15, **settings)
    rollout = DenoisingRollout(learner.diffusion, learner.conditions, tiny.brightness)
    loop = Loop(
        Oracle(rollout, 5.0, Budget(480)),
        Final(),
        EqualBatches(size=60, initial=0, update="after"),
        learner,
        LastPolicy(),
    )
    means = [record.block.r.mean() for _, record in loop.run(loop.init(KEY))]
    assert means[-1] > means[0] + 0.1


NEW = ("draft", "alignprop", "ddpo", "grpo", "best-of-n")


@pytest.mark.parametrize("name", NEW)
def test_every_fine_tuner_charges_the_same_ledger(name):
    where = digits(lambda images, conditions: images.mean((1, 2, 3)), denoising_steps=3, eval_images=2)
    algorithm = named(name, where)
    small = {"schedule.size": 4}
    if name in ("draft", "alignprop"):
        small = {"schedule.updates": 2, "learner.finetune.iterations": 1}
        small |= {"learner.reward_model.steps": 2, "learner.finetune.batch_size": 2}
    algorithm = algorithm.with_settings(small)
    loop = algorithm.build(where, Budget(8))
    state, lines = lines_of(where, loop)
    assert (state.ledger.measurements, state.ledger.rollouts, state.ledger.updates) == (8, 8, 2)
    assert sum(line["queries"] for line in lines) == 8
    assert all(line["network_evaluations"] > 3 * line["episodes"] for line in lines)
    assert ALGORITHMS[name].about.endswith(".")


def test_alignprop_is_draft_whose_number_of_steps_is_drawn():
    where = digits(lambda images, conditions: images.mean((1, 2, 3)), denoising_steps=3, eval_images=2)
    drawn, fixed = named("alignprop", where), named("draft", where)
    assert drawn.with_settings({"learner.finetune.max_backprop_steps": 1}).learner == fixed.learner
    generator = torch.Generator().manual_seed(0)
    lengths = Counter(3 - sample_truncation(drawn.learner.finetune, 3, generator) for _ in range(600))
    assert sorted(lengths) == [1, 2, 3]
    assert all(150 < count < 250 for count in lengths.values()), "four standard deviations are 46"
    assert {3 - sample_truncation(fixed.learner.finetune, 3, generator) for _ in range(20)} == {1}


def bright(images, conditions):
    return images.mean((1, 2, 3))


bright.gradient = lambda images, conditions: images.mean((1, 2, 3))


def test_draft_follows_the_reward_itself_where_it_is_differentiable():
    small = {"denoising_steps": 3, "eval_images": 2}
    known, black_box = digits(bright, **small), digits(lambda images, conditions: images.mean((1, 2, 3)), **small)
    assert named("draft", known).learner.gradient == "reward"
    assert named("draft", black_box).learner.gradient == "model"
    fast = {"schedule.updates": 1, "learner.finetune.iterations": 12, "learner.finetune.batch_size": 4}
    fast |= {"learner.finetune.learning_rate": 3e-3}
    loop = named("draft", known).with_settings(fast).build(known, Budget(4))
    _, record = loop.step(loop.init(KEY))
    assert record.info["reward_gradients"] == 48
    assert record.info["predicted_reward"] > record.info["predicted_reward_before"] + 0.05
    assert "reward_error" not in record.info, "nothing was fitted"
    with pytest.raises(UnsupportedError, match=r"learner.gradient: the reward .* has no gradient; use model"):
        loop_of(black_box, learner=type(seiko())(seiko().reward_model, seiko().finetune, gradient="reward"))
    assert isinstance(named("draft", known), Algorithm)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs: must be between 1 and 1,000,000, not 0"),
        ({"clip": 0.0}, "clip: must be positive, not 0.0"),
        ({"objective": "likelihood"}, "baseline: the likelihood needs weights that are not negative; use best"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        Chain(**settings)

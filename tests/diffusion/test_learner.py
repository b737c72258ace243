"""SEIKO and PURE_SEIKO in the loop: one learner, two samplers; a state from which a run resumes bit for bit."""

import numpy as np
import pytest
import torch
from tiny import CLASSES, brightness, learner, model, process

from purectrl.core import Budget, DivergenceWarning, FitMonitor, Key, Loop, Oracle, Targets, UnsupportedError
from purectrl.core.output_rules import LastPolicy
from purectrl.core.samplers import Equidistant, Final, Geometric, GeometricDistinct
from purectrl.core.schedules import Batches, OnExcessLoss
from purectrl.diffusion.models import Params, equal
from purectrl.diffusion.rollout import DenoisingRollout

STEPS = process().steps


def loop(sampler, sizes, who=None, reward=brightness):
    who = who or learner()
    rollout = DenoisingRollout(who.diffusion, range(CLASSES), reward)
    oracle = Oracle(rollout, STEPS, Budget(sampler.m * sum(sizes)))
    return Loop(oracle, sampler, Batches(tuple(sizes)), who, LastPolicy())


def run(made, state=None):
    first = state or made.init(Key.from_seed(0))
    steps = list(made.run(first))
    return [first, *(state for state, _ in steps)], [record for _, record in steps]


def numbers(tree, name=""):
    """Every number of a nested value by its place, without seconds: what a checkpoint holds."""
    if isinstance(tree, torch.Tensor):
        return {name: (tree.dtype, tuple(tree.shape), tree.numpy().tobytes())}
    if hasattr(tree, "arrays"):
        return {f"{name}.{key}": array.tobytes() for key, array in tree.arrays().items()}
    if hasattr(tree, "_asdict"):
        tree = {key: value for key, value in tree._asdict().items() if key != "seconds"}
    if isinstance(tree, dict):
        return {place: found for key in tree for place, found in numbers(tree[key], f"{name}.{key}").items()}
    return {name: tree}


def test_pure_seiko_with_one_measurement_at_the_end_is_seiko_bit_for_bit():
    seiko, _ = run(loop(Final(), (6, 12)))
    for other in (Geometric(m=1, lam=6.0), GeometricDistinct(m=1), Equidistant(m=1)):
        pure, _ = run(loop(other, (6, 12)))
        assert numbers(seiko[-1]) == numbers(pure[-1])


def test_the_ledger_has_a_quarter_of_the_rollouts_at_the_same_number_of_measurements():
    seiko, _ = run(loop(Final(), (8, 16)))
    pure, records = run(loop(Geometric(m=4, lam=6.0), (2, 4)))
    assert seiko[-1].ledger.measurements == pure[-1].ledger.measurements == 24
    assert seiko[-1].ledger.rollouts == 4 * pure[-1].ledger.rollouts
    assert seiko[-1].ledger.updates == pure[-1].ledger.updates == 2
    assert [record.block.r.shape for record in records] == [(2, 4), (4, 4)]


@pytest.mark.parametrize("uncertainty", ["ucb", "bootstrap", "thompson", "greedy"])
def test_a_run_resumes_from_its_state_bit_for_bit(uncertainty):
    reward = {"uncertainty": uncertainty, "bonus_scale": 0.5, "num_heads": 3}
    states, _ = run(loop(Geometric(m=2, lam=6.0), (4, 4, 4), learner(reward)))
    resumed, _ = run(loop(Geometric(m=2, lam=6.0), (4, 4, 4), learner(reward)), states[1])
    assert numbers(resumed[-1]) == numbers(states[-1])


def test_an_update_changes_weights_and_q_and_leaves_the_pretrained_model_as_it_was():
    who = learner()
    pretrained = who.diffusion.model.pretrained
    before = {name: tensor.clone() for name, tensor in pretrained().weights.items()}
    states, records = run(loop(Final(), (6,), who))
    plan = states[-1].output.plan
    assert not equal(Params.of(plan), pretrained())
    assert plan.initial.mean.abs().sum() > 0
    assert all(torch.equal(pretrained().weights[name], before[name]) for name in before)
    info = records[0].info
    assert {"reward_error", "predicted_reward", "divergence_pretrained", "update_evaluations"} <= info.keys()


def test_the_number_of_backbones_does_not_grow_with_the_number_of_updates():
    states, _ = run(loop(Final(), (4,) * 5))
    sizes = {sum(len(item[2]) for item in numbers(s.learner).values() if isinstance(item, tuple)) for s in states}
    assert len(sizes) == 1


def test_the_reward_rises():
    """Brightness is easy to learn: after two updates the images are brighter than the pretrained ones."""
    rates = {"learning_rate": 1e-2, "initial_learning_rate": 3e-2}
    reward = {"uncertainty": "greedy", "steps": 150, "learning_rate": 5e-3}
    who = learner(reward, iterations=40, batch_size=8, alpha=0.0, beta=0.0, **rates)
    _, records = run(loop(Geometric(m=2, lam=6.0), (40, 40, 40), who))
    rewards = [record.block.r.mean() for record in records]
    assert rewards[-1] > rewards[0] + 0.05


def test_the_reward_model_is_fitted_only_when_it_is_due():
    who = learner()
    states, _ = run(loop(Final(), (6, 6), who))
    drift = who.update(states[1].learner, states[1].data, Targets.DRIFT, Key.from_seed(1))
    assert drift.state.reward is states[1].learner.reward
    assert "reward_error" not in drift.info
    assert "fit" in drift.seconds


def test_a_schedule_that_needs_the_excess_loss_is_refused_before_anything_runs():
    oracle = Oracle(DenoisingRollout(learner().diffusion, [0], brightness), STEPS, Budget(8))
    assert not isinstance(learner(), FitMonitor)
    with pytest.raises(UnsupportedError, match="needs the excess loss"):
        Loop(oracle, Final(), OnExcessLoss(threshold=5.0), learner(), LastPolicy())


def test_an_update_that_diverges_is_rolled_back_and_reported_once():
    who = learner()
    for name in ("learning_rate", "gradient_clip"):  # beyond what settings accept, so that it certainly diverges
        object.__setattr__(who.settings, name, 1e30)
    with pytest.warns(DivergenceWarning, match="the fine-tuning of the diffusion model diverged") as warned:
        states, records = run(loop(Final(), (6,), who))
    assert len(warned) == 1
    assert "diverged" in records[0].info["rolled_back"]
    assert equal(states[-1].learner.params, model().pretrained())
    assert np.isfinite(states[-1].data.all.r).all()

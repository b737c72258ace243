"""SEIKO and PURE_SEIKO in the loop: one learner, two samplers; a state that can be saved and goes on bit for bit."""

import numpy as np
import pytest
import torch
from tiny import CLASSES, brightness, learner, model, process

from purectrl.core import Budget, Dataset, InputError, Key, Loop, Oracle, Which, outputs, samplers, schedules
from purectrl.diffusion import bootstrap, denoising, greedy, thompson, ucb
from purectrl.diffusion.models import Iterate, same_numbers
from purectrl.experiments.codec import pack_state, unpack_state

STEPS = process().steps


def loop(sampler, sizes, who=None, reward=brightness):
    who = who or learner()
    oracle = Oracle(denoising(who.model, who.process, range(CLASSES), reward), STEPS, Budget(sampler.m * sum(sizes)))
    return Loop(oracle, sampler, schedules.batches(sizes), who, outputs.last)


def run(made, seed=0):
    first = made.init(Key.from_seed(seed))
    steps = list(made.run(first))
    return [first, *(state for state, _ in steps)], [record for _, record in steps]


def packed(state):
    arrays, scalars = pack_state(state._replace(ledger=state.ledger._replace(seconds=type(state.ledger.seconds)())))
    return {name: array.tobytes() for name, array in arrays.items()}, scalars


def test_pure_seiko_with_one_measurement_at_the_end_is_seiko_bit_for_bit():
    seiko, _ = run(loop(samplers.final(), (6, 12)))
    for other in (samplers.geometric(1, lam=6.0), samplers.geometric_distinct(1), samplers.equidistant(1)):
        pure, _ = run(loop(other, (6, 12)))
        assert packed(seiko[-1]) == packed(pure[-1])


def test_the_ledger_has_a_quarter_of_the_rollouts_at_the_same_number_of_measurements():
    seiko, _ = run(loop(samplers.final(), (8, 16)))
    pure, records = run(loop(samplers.geometric(4, lam=6.0), (2, 4)))
    assert seiko[-1].ledger.measurements == pure[-1].ledger.measurements == 24
    assert seiko[-1].ledger.rollouts == 4 * pure[-1].ledger.rollouts
    assert seiko[-1].ledger.updates == pure[-1].ledger.updates == 2
    assert [record.block.r.shape for record in records] == [(2, 4), (4, 4)]


@pytest.mark.parametrize("uncertainty", [ucb(0.1), bootstrap(1.0, heads=3), thompson(0.5), greedy()])
def test_a_saved_state_goes_on_bit_for_bit(uncertainty):
    made = loop(samplers.geometric(2, lam=6.0), (4, 4, 4), learner(uncertainty))
    states, _ = run(made)
    restored = unpack_state(made.init(Key.from_seed(0)), *pack_state(states[1]))
    *_, (last, _) = made.run(restored)
    assert packed(last) == packed(states[-1])


def test_an_update_changes_weights_and_q_and_leaves_the_pretrained_model_as_it_was():
    who = learner()
    before = {name: tensor.clone() for name, tensor in who.model.pretrained().weights.items()}
    states, records = run(loop(samplers.final(), (6,), who))
    plan = states[-1].output.plan
    tuned = Iterate(plan.policy, plan.initial)
    assert not same_numbers(tuned, who.model.pretrained())
    assert plan.initial.mean.abs().sum() > 0
    assert all(torch.equal(who.model.pretrained().weights[name], before[name]) for name in before)
    info = records[0].info
    assert {"reward_error", "imagined_reward", "divergence_pretrained", "update_evaluations"} <= info.keys()


def test_the_number_of_backbones_does_not_grow_with_the_number_of_updates():
    size = lambda state: sum(array.nbytes for name, array in pack_state(state)[0].items() if "data." not in name)  # noqa: E731
    states, _ = run(loop(samplers.final(), (4,) * 5))
    assert len({size(state) for state in states}) == 1


def test_the_reward_rises():
    """Brightness is easy to learn and to give: after two updates the images are brighter than the pretrained ones."""
    free = {"alpha": 0.0, "beta": lambda updates: 0.0}
    who = learner(greedy(), {"steps": 150, "rate": 5e-3}, iterations=40, batch=8, rate=1e-2, initial_rate=3e-2, **free)
    _, records = run(loop(samplers.geometric(2, lam=6.0), (40, 40, 40), who))
    rewards = [record.block.r.mean() for record in records]
    assert rewards[-1] > rewards[0] + 0.05


def test_only_the_reward_model_that_is_due_is_fitted():
    who = learner()
    states, _ = run(loop(samplers.final(), (6, 6), who))
    drift = who.update(states[1].learner, states[1].data, Which.DRIFT, Key.from_seed(1))
    assert drift.state.reward is states[1].learner.reward
    assert "reward_error" not in drift.info
    assert "fit" in drift.seconds


def test_a_schedule_that_asks_for_the_misfit_is_refused():
    who = learner()
    with pytest.raises(InputError, match="schedule: on-misfit does not know how well a reward network fits"):
        who.excess(who.init(Key.from_seed(0)), Dataset(), Key.from_seed(0))


def test_an_update_that_diverges_says_so():
    who = learner(rate=1e30, clip=1e30)
    with pytest.warns(UserWarning, match="the update of the diffusion model diverged: it stays as it was; a smaller"):
        states, records = run(loop(samplers.final(), (6,), who))
    assert "diverged" in records[0].info["rolled_back"]
    assert same_numbers(states[-1].learner.iterate, model().pretrained())
    assert np.isfinite(states[-1].data.view.r).all()

"""Reward models: fit, uncertainty, and that the uncertainty is larger where there are fewer data."""

import itertools

import numpy as np
import pytest
import torch
from tiny import CLASSES, reward_model

from purectrl.core import InputError, Key, MeasurementError, Measurements
from purectrl.diffusion import RewardModelSettings
from purectrl.diffusion.process import torch_generator
from purectrl.diffusion.reward_model import RewardData, add_noise, at_the_end, bootstrap_counts, reward_data, split
from purectrl.diffusion.uncertainty import cholesky_update, elliptical_norm, ridge_factor, sample_direction

KEY = Key.from_seed(0)
FOUR = {
    "ucb": {"bonus_scale": 0.1},
    "bootstrap": {"bonus_scale": 1.0, "num_heads": 4},
    "thompson": {"bonus_scale": 0.5},
    "greedy": {},
}


def features(n, d=6, seed=0):
    return torch.randn(n, d, generator=torch_generator(Key.from_seed(seed)), dtype=torch.float64)


def data_of(n=60, seed=0):
    """Images whose reward is their brightness, a little less for the higher classes."""
    generator = torch_generator(Key.from_seed(seed))
    inputs = torch.rand(n, 1, 1, 1, generator=generator).expand(n, 1, 4, 4).clone()
    condition = torch.arange(n) % CLASSES
    return RewardData(inputs, torch.ones(n), condition, inputs[:, 0, 0, 0] * (1 - 0.1 * condition))


def test_the_incremental_cholesky_factor_is_the_direct_one():
    factor, phi = ridge_factor(6, ridge=0.5), features(40)
    for part in phi.split(7):
        factor = cholesky_update(factor, part)
    direct = torch.linalg.cholesky(0.5 * torch.eye(6, dtype=torch.float64) + phi.T @ phi)
    assert torch.allclose(factor, direct)
    inverse = torch.linalg.inv(direct @ direct.T)
    quadratic = torch.einsum("nd,de,ne->n", phi, inverse, phi)
    assert torch.allclose(elliptical_norm(factor, phi), quadratic.sqrt())


def test_the_confidence_width_shrinks_with_data_at_the_rate_of_a_mean():
    """Seen n times, a direction has width |φ|/sqrt(λ + n |φ|²): as 1/sqrt(n), whatever the ridge."""
    phi = features(1)
    factor, widths = ridge_factor(6, ridge=1.0), []
    for n in (1, 4, 16, 64):
        seen = cholesky_update(factor, phi.expand(n, 6))
        widths.append(elliptical_norm(seen, phi).item())
        assert widths[-1] == pytest.approx(float((phi.square().sum() / (1 + n * phi.square().sum())).sqrt()))
    assert widths == sorted(widths, reverse=True)
    more, other = cholesky_update(seen, features(30, seed=1)), features(50, seed=2)
    assert (elliptical_norm(more, other) <= elliptical_norm(seen, other) + 1e-12).all()


def test_draws_of_the_last_layer_have_the_inverse_as_their_covariance():
    factor = cholesky_update(ridge_factor(3, 1.0), features(5, d=3))
    generator = torch_generator(KEY)
    draws = torch.stack([sample_direction(factor, generator) for _ in range(4000)])
    assert torch.allclose(torch.cov(draws.T), torch.linalg.inv(factor @ factor.T), atol=0.03)


@pytest.mark.parametrize("name", FOUR)
def test_every_uncertainty_learns_and_gives_gradients(name):
    model, data = reward_model(uncertainty=name, steps=250, learning_rate=5e-3, **FOUR[name]), data_of(240)
    state, info = model.fit(data, 1, KEY)
    assert info["reward_error"] < 0.1
    assert info["reward_correlation"] > 0.9
    assert info["reward_error_final"] == pytest.approx(info["reward_error"])
    seen = data.inputs[:5].clone().requires_grad_()
    score = model.score(state, seen, data.t[:5], data.condition[:5])
    assert score.mean.shape == score.bonus.shape == (5,)
    (score.mean + score.bonus).sum().backward()
    assert torch.isfinite(seen.grad).all()
    assert seen.grad.abs().sum() > 0
    if name in ("ucb", "bootstrap"):
        assert (score.bonus >= 0).all()
        assert score.bonus.max() > 0
    if name == "greedy":
        assert not score.bonus.any()


def test_the_bonus_shrinks_as_measurements_come_in():
    """The same network and features, more and more data: the bonus anywhere never grows."""
    model, data = reward_model(bonus_scale=1.0), data_of(400)
    state = model.init(KEY)
    bonuses = []
    for n in (0, 10, 100, 400):
        part = data.at(torch.arange(n))
        factor = model._factor(state, part) if n else state.factor
        bonuses.append(model.score(state._replace(factor=factor), *data_of(50, seed=3)[:3]).bonus)
    assert all((after <= before + 1e-6).all() for before, after in itertools.pairwise(bonuses))
    assert bonuses[-1].mean() < 0.2 * bonuses[0].mean()


def test_the_bonus_is_larger_where_nothing_was_measured():
    model, data = reward_model(bonus_scale=1.0, steps=100), data_of(200)
    dark = data.at((data.inputs[:, 0, 0, 0] < 0.5).nonzero()[:, 0])
    state, _ = model.fit(dark, 1, KEY)
    seen, unseen = (
        model.score(state, torch.full((3, 1, 4, 4), level), torch.ones(3), torch.arange(3)).bonus.mean()
        for level in (0.25, 0.95)
    )
    assert unseen > seen


def test_resamples_are_drawn_with_replacement():
    counts = bootstrap_counts(2000, 6, torch_generator(KEY))
    assert (counts.sum(0) == 2000).all()
    assert counts.max() > 3
    share = (counts == 0).double().mean(0)  # a trajectory is missing from a resample with probability 1/e
    assert torch.allclose(share, torch.full((6,), np.exp(-1), dtype=torch.float64), atol=0.05)
    assert not torch.equal(counts[:, 0], counts[:, 1])


def test_heads_see_their_own_resamples():
    state, _ = reward_model(uncertainty="bootstrap", bonus_scale=1.0, num_heads=4, steps=60).fit(data_of(), 1, KEY)
    assert torch.pdist(state.heads).min() > 1e-3


def test_whole_trajectories_are_held_out():
    train, held_out = split(50, 0.1, torch_generator(KEY))
    assert len(held_out) == 5
    assert sorted([*train.tolist(), *held_out.tolist()]) == list(range(50))
    assert [len(part) for part in split(1, 0.1, torch_generator(KEY))] == [1, 0]


def test_weights_are_selected_by_the_error_at_the_end_of_trajectories():
    """Held-out labels before t = T are irrelevant for `final`, and decide for `all`."""
    data = data_of()
    t = torch.ones(60)
    t[::2] = 0.25  # two measurements per trajectory, the second at the end
    _, held_out = split(30, 0.1, torch_generator(KEY.child("fit")))
    spoiled = data.r.clone()
    spoiled[2 * held_out] = 1 - spoiled[2 * held_out]
    clean, dirty = data._replace(t=t), data._replace(t=t, r=spoiled)
    small = {"steps": 12, "check_every": 1, "learning_rate": 0.05}
    chosen = {
        name: [reward_model(selection=name, **small).fit(rows, 2, KEY)[0].heads for rows in (clean, dirty)]
        for name in ("final", "all")
    }
    assert torch.equal(*chosen["final"])
    assert not torch.equal(*chosen["all"])
    assert at_the_end(clean).t.unique().tolist() == [1.0]
    assert len(at_the_end(clean._replace(t=0.5 * t)).r) == 60, "without a measurement at t = T, all are used"


def test_held_out_rewards_do_not_reach_the_network():
    model, data = reward_model(uncertainty="greedy", steps=30, check_every=1000), data_of()
    _, held_out = split(60, 0.1, torch_generator(KEY.child("fit")))
    other = data.r.clone()
    other[held_out] = 1 - other[held_out]
    one, two = (model.fit(data._replace(r=r), 1, KEY)[0] for r in (data.r, other))
    assert all(torch.equal(one.weights[name], two.weights[name]) for name in one.weights)
    train = data.r.clone()
    train[next(i for i in range(60) if i not in held_out.tolist())] = 0.0
    three, _ = model.fit(data._replace(r=train), 1, KEY)
    assert not torch.equal(one.heads, three.heads)


def test_the_time_of_a_measurement_is_seen():
    """The same image with reward 0.2 half way and 0.8 at the end."""
    n = 80
    t = torch.tensor([0.5, 1.0]).repeat(n // 2)
    data = RewardData(torch.full((n, 1, 4, 4), 0.5), t, torch.zeros(n, dtype=torch.int64), torch.where(t < 1, 0.2, 0.8))
    model = reward_model(uncertainty="greedy", steps=150, learning_rate=5e-3)
    state, _ = model.fit(data, 2, KEY)
    early, late = (
        model.score(state, data.inputs[:1], torch.tensor([at]), data.condition[:1]).mean for at in (0.5, 1.0)
    )
    assert early.item() == pytest.approx(0.2, abs=0.1)
    assert late.item() == pytest.approx(0.8, abs=0.1)


def test_all_m_measurements_become_data_of():
    t, r = np.array([[1.0, 2.0], [2.0, 2.0]]), np.array([[0.1, 0.2], [0.3, 0.3]])
    x = np.arange(4, dtype=np.float32).reshape(2, 2, 1, 1, 1)
    seen = Measurements(t, x, np.array([[[0.0]] * 2, [[2.0]] * 2]), r=r)
    found = reward_data(seen, horizon=2.0)
    assert found.inputs.shape == (4, 1, 1, 1)
    assert found.t.tolist() == [0.5, 1.0, 1.0, 1.0]
    assert found.condition.tolist() == [0, 0, 2, 2]
    assert found.r.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.3])


def test_fitting_neither_reads_nor_moves_the_global_generator():
    model, data = reward_model(uncertainty="bootstrap", bonus_scale=1.0, num_heads=2), data_of()
    before = torch.random.get_rng_state()
    one, _ = model.fit(data, 1, KEY)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.rand(3)
    two, _ = reward_model(uncertainty="bootstrap", bonus_scale=1.0, num_heads=2).fit(data, 1, KEY)
    assert all(torch.equal(one.weights[name], two.weights[name]) for name in one.weights)
    assert torch.equal(one.heads, two.heads)


def test_add_noise_is_slight_and_comes_from_the_generator_alone():
    images = torch.full((64, 1, 16, 16), 0.5)
    one, two = (add_noise(images, torch_generator(KEY)) for _ in range(2))
    assert torch.equal(one, two)
    assert (one - images).std().item() == pytest.approx(0.05, rel=0.05)
    assert abs((one - images).mean().item()) < 0.002


def test_rewards_outside_0_1_are_refused_with_bce_and_fitted_with_mse():
    data = data_of()._replace(r=5 + data_of().r)
    with pytest.raises(MeasurementError, match=r"r lies between 5.* scale the reward or use loss mse"):
        reward_model().fit(data, 1, KEY)
    _, info = reward_model(uncertainty="greedy", loss="mse", steps=300, learning_rate=2e-2).fit(data, 1, KEY)
    assert info["reward_error"] < 0.1


@pytest.mark.parametrize("uncertainty", ["greedy", "bootstrap"])
def test_mse_does_not_depend_on_the_unit_of_rewards(uncertainty):
    """r and 100 r − 700 give r̂ and 100 r̂ − 700, and a spread of heads that is 100 times as large."""
    model, data = reward_model(uncertainty=uncertainty, bonus_scale=1.0, num_heads=3, loss="mse"), data_of()
    (one, info), (other, info_other) = (
        model.fit(data._replace(r=r), 1, KEY) for r in (data.r.double(), 100 * data.r.double() - 700)
    )
    small, large = (model.score(state, data.inputs, data.t, data.condition) for state in (one, other))
    assert torch.allclose(large.mean, 100 * small.mean - 700, atol=1e-2)
    assert torch.allclose(large.bonus, 100 * small.bonus, atol=1e-2)
    assert info_other["reward_error"] == pytest.approx(100 * info["reward_error"], rel=1e-2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RewardModelSettings(bonus_scale=-1.0), "bonus_scale: must not be negative, got -1.0"),
        (lambda: RewardModelSettings(num_heads=1), "num_heads: a spread needs at least two heads, not 1"),
        (lambda: RewardModelSettings(held_out=1.0), r"held_out: must lie in \[0, 1\), not 1.0"),
        (lambda: RewardModelSettings(uncertainty="cub"), "unknown uncertainty 'cub': did you mean 'ucb'"),
        (lambda: ridge_factor(3, 0.0), "ridge: λ must be positive, not 0.0"),
        (lambda: split(10, 1.0, torch_generator(KEY)), r"held_out: must lie in \[0, 1\), not 1.0"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()

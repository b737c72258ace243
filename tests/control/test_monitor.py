"""Whether an ensemble still fits: its loss is that of the fit, its sum is Page's, and it tells new data from old."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from linear_cart import cart, measured

from purectrl.control.ensembles import Ensemble
from purectrl.control.integrate import midpoint, midpoint_in
from purectrl.control.monitor import CusumMonitor, start_monitor, update_monitor
from purectrl.control.trajectories import (
    CHUNK,
    MAX_LOSS,
    Pairs,
    TrajectoryLoss,
    error_scale,
    mean_loss,
    sequences,
    subsample,
    trajectory_loss,
    window_starts,
)
from purectrl.core import Measurements

OBJECTIVE = TrajectoryLoss(midpoint, sequence_length=4, batch_size=8, step=0.1)
FINE = TrajectoryLoss(midpoint_in(8), sequence_length=4, batch_size=8, step=0.1)
PAIRS = Pairs(0.15)


class Known(eqx.Module):
    """A model that is the true system itself, with any number of equal members."""

    system: object = eqx.field(static=True)
    members: int = eqx.field(static=True, default=2)

    @property
    def acceleration_scale(self):
        return jnp.ones(1)

    def drift(self, x, u):
        return self.system.drift(x, u)


def noisy(system, episodes, seed, std=0.01):
    generator = np.random.default_rng(seed)
    seen = measured(system, episodes, 25, generator)
    return Measurements(seen.t, seen.x + std * generator.standard_normal(seen.x.shape).astype(np.float32), seen.u)


def test_sub_sequences_are_those_of_the_fit():
    generator = np.random.default_rng(3)
    t = np.cumsum(generator.choice([0.1, 0.5], (4, 30), p=[0.8, 0.2]), axis=1)
    seen = Measurements(t, np.zeros((4, 30, 2)), np.zeros((4, 30, 1)))
    for length in (2, 3, 5):
        fitted = sequences(seen, length, PAIRS, capacity=150)
        assert (window_starts(seen, length, PAIRS) @ [30, 1]).tolist() == fitted.starts[: fitted.size].tolist()


@pytest.mark.parametrize("episodes", [1, 30])  # 22 and 660 sub-sequences: less than a program takes, and more
def test_the_loss_is_that_of_the_fit(episodes):
    seen = measured(cart(), episodes, 25, np.random.default_rng(0))
    model = Ensemble.random(np.random.default_rng(1), cart(), 3, (8, 8))
    starts = window_starts(seen, 4, PAIRS)
    found = mean_loss(OBJECTIVE, model, error_scale(OBJECTIVE, model), seen, starts)
    data = sequences(seen, 4, PAIRS, seen.t.size)
    rows = data.starts[: data.size] + np.arange(4)[:, None]
    arrays = [np.repeat(array[rows][:, None], 3, axis=1) for array in (data.x, data.u, data.gaps)]
    assert found == pytest.approx(float(trajectory_loss(OBJECTIVE, model, *arrays)) / 3, rel=1e-5)


@given(st.lists(st.floats(0.0, 5.0), min_size=1, max_size=30))
def test_the_sum_is_the_largest_of_all_sums_that_end_now(ratios):
    """Page's identity: S_k = max over j of the sum of (ratio − 1) from j to k, and the empty sum."""
    monitor = CusumMonitor(level=0.5)
    for ratio in ratios:
        monitor = monitor.add(0.5 * ratio)
    steps = np.array(ratios) - 1
    assert monitor.excess_loss == pytest.approx(max(0.0, *(steps[j:].sum() for j in range(len(steps)))), abs=1e-9)
    assert monitor.since == len(ratios)


def test_a_model_whose_losses_are_c_times_normal_has_five_over_c_less_one_episodes_to_go():
    for ratio in (1.5, 2.0, 3.5, 6.0, 100.0):
        monitor, episodes = CusumMonitor(level=0.25), 0
        while monitor.excess_loss < 5:
            monitor, episodes = monitor.add(0.25 * ratio), episodes + 1
        assert episodes == np.ceil(5 / (ratio - 1))


def test_nothing_is_known_before_an_episode_under_a_policy_was_fitted():
    seen, model = noisy(cart(), 4, seed=0), Known(cart())
    fresh = start_monitor(OBJECTIVE, model, seen, PAIRS, first_new=seen.episodes)
    assert (fresh.level, fresh.excess_loss, fresh.fitted) == (0.0, np.inf, 4)
    later = update_monitor(OBJECTIVE, model, fresh, seen, PAIRS)
    assert [(monitor.excess_loss, monitor.since) for monitor in later] == [(np.inf, n) for n in (1, 2, 3, 4)]


def test_data_of_the_same_kind_fit_and_those_of_another_do_not():
    """The model is the truth up to noise; then the spring becomes half as stiff."""
    model = Known(cart())
    seen = noisy(cart(), 12, seed=0)
    monitor = start_monitor(FINE, model, seen, PAIRS, first_new=6)
    same = update_monitor(FINE, model, monitor, noisy(cart(), 20, seed=1), PAIRS)
    assert max(each.excess_loss for each in same) < 5
    soft = cart(acceleration=lambda q, v, u: -1.0 * q - 0.3 * v + 1.5 * u)
    other = update_monitor(FINE, model, same[-1], noisy(soft, 20, seed=1), PAIRS)
    assert other[-1].excess_loss > 50


def test_only_the_newest_episodes_determine_the_level():
    model = Known(cart())
    old, new = noisy(cart(), 3, seed=0, std=1.0), noisy(cart(), 3, seed=1)
    seen = Measurements(*(np.concatenate(pair) for pair in zip(*((d.t, d.x, d.u) for d in (old, new)), strict=True)))
    level = lambda seen, first_new: start_monitor(OBJECTIVE, model, seen, PAIRS, first_new).level  # noqa: E731
    assert level(seen, 3) == level(new, 0) < 0.1 * level(seen, 0)


def test_an_episode_has_the_same_loss_in_any_batch():
    """So that looking ahead and resuming change no bit."""
    seen = noisy(cart(), 5, seed=2)
    model = Ensemble.random(np.random.default_rng(1), cart(), 3, (8, 8))
    monitor = CusumMonitor(level=1e-3, fitted=7)
    together = update_monitor(OBJECTIVE, model, monitor, seen, PAIRS)
    for episode in range(5):
        one = Measurements(*(array[episode : episode + 1] for array in (seen.t, seen.x, seen.u)))
        (monitor,) = update_monitor(OBJECTIVE, model, monitor, one, PAIRS)
        assert monitor == together[episode]
    assert monitor.since == 5


def test_infinite_losses_and_episodes_without_sub_sequences_are_finite_numbers():
    seen = noisy(cart(), 1, seed=0)
    wild = Known(cart(acceleration=lambda q, v, u: jnp.exp(1e3 * (1 + q**2))))
    assert mean_loss(OBJECTIVE, wild, jnp.ones(2), seen, window_starts(seen, 4, PAIRS)) == MAX_LOSS
    sparse = Measurements(10 * seen.t, seen.x, seen.u)
    (monitor,) = update_monitor(OBJECTIVE, Known(cart()), CusumMonitor(level=1.0, sum=3.0), sparse, PAIRS)
    assert monitor.excess_loss == 2.0


def test_subsamples_are_evenly_spaced():
    found = subsample(np.arange(10 * CHUNK + 3))
    assert len(found) == CHUNK
    assert (found[0], found[-1]) == (0, 10 * CHUNK + 2)
    assert set(np.diff(found)) <= {10, 11}
    assert subsample(np.arange(7)).tolist() == list(range(7))

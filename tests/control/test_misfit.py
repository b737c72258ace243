"""When an ensemble has stopped fitting: its loss is that of the fit, its sum is Page's, and it tells new from old."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mechanisms import cart, measured

from purectrl.control.integrate import midpoint, midpoint_in
from purectrl.control.misfit import (
    BEYOND,
    ROWS,
    Watch,
    error_scale,
    evenly,
    mean_loss,
    places,
    watched,
    watching,
)
from purectrl.control.model import Ensemble, Fitting, sequences, trajectory_loss
from purectrl.core import Measurements

FITTING = Fitting(points=4, rows=8, step=0.1)
GAP = 0.15


class Known(eqx.Module):
    """A model that is some mechanism itself, in as many equal members as one likes."""

    mechanism: object = eqx.field(static=True)
    members: int = eqx.field(static=True, default=2)

    @property
    def acceleration_scale(self):
        return jnp.ones(1)

    def drift(self, x, u):
        return self.mechanism.drift(x, u)


def noisy(mechanism, episodes, seed, std=0.01):
    generator = np.random.default_rng(seed)
    seen = measured(mechanism, episodes, 25, generator)
    return Measurements(seen.t, seen.x + std * generator.standard_normal(seen.x.shape).astype(np.float32), seen.u)


def test_sub_sequences_are_those_of_the_fit():
    generator = np.random.default_rng(3)
    t = np.cumsum(generator.choice([0.1, 0.5], (4, 30), p=[0.8, 0.2]), axis=1)
    seen = Measurements(t, np.zeros((4, 30, 2)), np.zeros((4, 30, 1)))
    for points in (2, 3, 5):
        fitted = sequences(seen, points, GAP, capacity=150)
        assert (places(seen, points, GAP) @ [30, 1]).tolist() == fitted.starts[: fitted.count].tolist()


@pytest.mark.parametrize("episodes", [1, 30])  # 22 and 660 sub-sequences: less than a program takes, and more
def test_the_loss_is_that_of_the_fit(episodes):
    seen = measured(cart(), episodes, 25, np.random.default_rng(0))
    model = Ensemble.random(np.random.default_rng(1), cart(), 3, (8, 8))
    where = places(seen, FITTING.points, GAP)
    found = mean_loss(FITTING, midpoint, model, error_scale(FITTING, model), seen, where)
    data = sequences(seen, FITTING.points, GAP, seen.t.size)
    rows = data.starts[: data.count] + np.arange(FITTING.points)[:, None]
    arrays = [np.repeat(array[rows][:, None], 3, axis=1) for array in (data.x, data.u, data.gaps)]
    assert found == pytest.approx(float(trajectory_loss(FITTING, midpoint, model, *arrays)) / 3, rel=1e-5)


@given(st.lists(st.floats(0.0, 5.0), min_size=1, max_size=30))
def test_the_sum_is_the_largest_of_all_sums_that_end_now(ratios):
    """Page's identity: S_k = max over j of the sum of (ratio − 1) from j to k, and the empty sum."""
    watch = Watch(level=0.5)
    for ratio in ratios:
        watch = watch.after(0.5 * ratio)
    steps = np.array(ratios) - 1
    assert watch.excess == pytest.approx(max(0.0, *(steps[j:].sum() for j in range(len(steps)))), abs=1e-9)
    assert watch.since == len(ratios)


def test_a_model_whose_losses_are_c_times_normal_has_five_over_c_less_one_episodes_to_go():
    for ratio in (1.5, 2.0, 3.5, 6.0, 100.0):
        watch, episodes = Watch(level=0.25), 0
        while watch.excess < 5:
            watch, episodes = watch.after(0.25 * ratio), episodes + 1
        assert episodes == np.ceil(5 / (ratio - 1))


def test_nothing_is_known_before_an_episode_under_a_policy_was_fitted():
    seen, model = noisy(cart(), 4, seed=0), Known(cart())
    where = places(seen, FITTING.points, GAP)
    fresh = watching(FITTING, midpoint, model, seen, where, since=seen.episodes)
    assert (fresh.level, fresh.excess, fresh.fitted) == (0.0, np.inf, 4)
    later = watched(FITTING, midpoint, model, fresh, seen, GAP)
    assert [(watch.excess, watch.since) for watch in later] == [(np.inf, n) for n in (1, 2, 3, 4)]


def test_data_of_the_same_kind_fit_and_those_of_another_do_not():
    """The model is the truth up to noise; then the spring becomes half as stiff."""
    integrate, model = midpoint_in(8), Known(cart())
    seen = noisy(cart(), 12, seed=0)
    watch = watching(FITTING, integrate, model, seen, places(seen, FITTING.points, GAP), since=6)
    same = watched(FITTING, integrate, model, watch, noisy(cart(), 20, seed=1), GAP)
    assert max(each.excess for each in same) < 5
    soft = cart(acceleration=lambda q, v, u: -1.0 * q - 0.3 * v + 1.5 * u)
    other = watched(FITTING, integrate, model, same[-1], noisy(soft, 20, seed=1), GAP)
    assert other[-1].excess > 50


def test_only_the_newest_episodes_say_what_is_normal():
    model = Known(cart())
    old, new = noisy(cart(), 3, seed=0, std=1.0), noisy(cart(), 3, seed=1)
    seen = Measurements(*(np.concatenate(pair) for pair in zip(*((d.t, d.x, d.u) for d in (old, new)), strict=True)))
    level = lambda seen, since: watching(FITTING, midpoint, model, seen, places(seen, 4, GAP), since).level  # noqa: E731
    assert level(seen, 3) == level(new, 0) < 0.1 * level(seen, 0)


def test_an_episode_has_the_same_loss_in_any_block():
    """So that running ahead, and resuming, change nothing in the last bit."""
    seen = noisy(cart(), 5, seed=2)
    model = Ensemble.random(np.random.default_rng(1), cart(), 3, (8, 8))
    watch = Watch(level=1e-3, fitted=7)
    together = watched(FITTING, midpoint, model, watch, seen, GAP)
    for episode in range(5):
        one = Measurements(*(array[episode : episode + 1] for array in (seen.t, seen.x, seen.u)))
        (watch,) = watched(FITTING, midpoint, model, watch, one, GAP)
        assert watch == together[episode]
    assert watch.since == 5


def test_losses_beyond_all_bounds_and_episodes_without_sub_sequences_are_numbers_that_can_be_saved():
    seen = noisy(cart(), 1, seed=0)
    wild = Known(cart(acceleration=lambda q, v, u: jnp.exp(1e3 * (1 + q**2))))
    assert mean_loss(FITTING, midpoint, wild, jnp.ones(2), seen, places(seen, 4, GAP)) == BEYOND
    sparse = Measurements(10 * seen.t, seen.x, seen.u)
    (watch,) = watched(FITTING, midpoint, Known(cart()), Watch(level=1.0, sum=3.0), sparse, GAP)
    assert watch.excess == 2.0


def test_what_is_looked_at_is_spread_evenly():
    found = evenly(np.arange(10 * ROWS + 3))
    assert len(found) == ROWS
    assert (found[0], found[-1]) == (0, 10 * ROWS + 2)
    assert set(np.diff(found)) <= {10, 11}
    assert evenly(np.arange(7)).tolist() == list(range(7))

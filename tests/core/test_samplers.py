"""One conformance suite for every sampler, then what is particular to each."""

import itertools
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from purectrl.core import Context, InputError, Key
from purectrl.core.oracle import check_times
from purectrl.core.samplers import SAMPLERS as NAMED
from purectrl.core.samplers import (
    AutoM,
    Equidistant,
    ExponentialGaps,
    Final,
    Geometric,
    GeometricDistinct,
    LargestBonus,
    MaxDeterminant,
    MaxKernelDistance,
    PacedWindows,
    Receding,
    Sampler,
    Snapped,
    Stratified,
    Uniform,
    VarianceThreshold,
    Windows,
    geometric_probabilities,
)

SAMPLERS = {
    "auto m": AutoM(4),
    "largest bonus": LargestBonus(2),
    "paced windows": PacedWindows(m=20, windows=4),
    "uniform": Uniform(3),
    "uniform one": Uniform(),
    "equidistant": Equidistant(4),
    "geometric": Geometric(4, lam=6.0),
    "geometric down": Geometric(5, lam=0.2),
    "geometric distinct": GeometricDistinct(4, lam=6.0, grid=12),
    "geometric distinct, all of the grid": GeometricDistinct(4, lam=6.0),
    "windows": Windows(count=5, length=1.0, step=0.1),
    "windows full": Windows(count=10, length=1.0, step=0.25),
    "windows overlapping": Windows(count=5, length=5.0, step=0.5, overlap=True),
    "final": Final(),
    "stratified": Stratified(4),
    "max determinant": MaxDeterminant(3),
    "max kernel distance": MaxKernelDistance(3),
    "receding": Receding(4, window=2),
    "variance threshold": VarianceThreshold(3, min_gap=1.0),
    "snapped": Snapped(Uniform(3), dt=0.25),
    "exponential gaps": ExponentialGaps(6, mean_gap=0.5),
    "exponential gaps too long": ExponentialGaps(6, mean_gap=50.0),
}
ADAPTIVE = {
    name for name, sampler in SAMPLERS.items() if sampler.needs_uncertainty
}  # more in test_adaptive_samplers.py
FIXED = {
    "auto m",
    "largest bonus",
    "equidistant",
    "final",
    "windows full",
    "geometric distinct, all of the grid",
    "paced windows",
}
RANDOM = sorted(set(SAMPLERS) - FIXED - ADAPTIVE)
CONTEXT = Context(horizon=10.0)


@pytest.mark.parametrize("name", SAMPLERS)
@given(seed=st.integers(0, 2**32), episodes=st.integers(1, 20), horizon=st.floats(25.0, 1e6))
def test_every_sampler_returns_sorted_times_inside_the_episode(name, seed, episodes, horizon):
    times = SAMPLERS[name](Key.from_seed(seed), episodes, Context(horizon))
    assert times.shape == (episodes, SAMPLERS[name].m)
    check_times(times, horizon)


@given(m=st.integers(1, 300), horizon=st.floats(1e-3, 1e3))
def test_the_last_grid_point_is_the_end_of_the_episode_and_not_an_ulp_beyond(m, horizon):
    for sampler in (Equidistant(m), Geometric(m), GeometricDistinct(m)):
        check_times(sampler(Key.from_seed(0), 3, Context(horizon)), horizon)


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_same_key_gives_the_same_times(name):
    draw = lambda seed: SAMPLERS[name](Key.from_seed(seed), 4, CONTEXT)  # noqa: E731
    assert np.array_equal(draw(1), draw(1))


@pytest.mark.parametrize("name", RANDOM)
def test_another_key_gives_other_times(name):
    draw = lambda seed: SAMPLERS[name](Key.from_seed(seed), 8, CONTEXT)  # noqa: E731
    assert not np.array_equal(draw(1), draw(2))


@pytest.mark.parametrize("episodes", [1, 2000])
def test_uniform_times_are_uniform(episodes):
    # with one episode a call the number comes from the key itself, with many from a generator: both must be uniform
    sampler = Uniform(1)
    calls = 2000 // episodes
    times = np.sort(np.concatenate([sampler(Key.from_seed(s), episodes, CONTEXT).ravel() for s in range(calls)]))
    steps = np.arange(1, len(times) + 1) / len(times)
    distance = np.abs(times / 10.0 - steps).max()
    assert distance < 1.63 / np.sqrt(len(times))  # Kolmogorov-Smirnov at 1%


def test_few_uniform_numbers_from_a_hash_are_uniform():
    numbers = np.sort(np.concatenate([Key.from_seed(seed).uniform(2, 4).ravel() for seed in range(500)]))
    steps = np.arange(1, len(numbers) + 1) / len(numbers)
    assert np.abs(numbers - steps).max() < 1.63 / np.sqrt(len(numbers))


def test_geometric_frequencies_match_their_probabilities():
    times = Geometric(4, lam=6.0)(Key.from_seed(0), 20_000, Context(horizon=4.0))
    found = np.bincount(times.astype(int).ravel(), minlength=5)[1:]
    expected = geometric_probabilities(4, 6.0) * times.size
    assert (np.abs(found - expected) < 4 * np.sqrt(expected)).all()
    assert geometric_probabilities(4, 6.0) == pytest.approx([0.0039, 0.0232, 0.139, 0.834], abs=5e-4)


@given(m=st.integers(1, 2000), lam=st.floats(1e-3, 1e3))
def test_geometric_probabilities_neither_overflow_nor_lose_their_ratio(m, lam):
    probabilities = geometric_probabilities(m, lam)
    assert probabilities.sum() == pytest.approx(1.0)
    heavy = probabilities[1:][probabilities[1:] * probabilities[:-1] > 1e-280]
    light = probabilities[:-1][probabilities[1:] * probabilities[:-1] > 1e-280]
    assert np.allclose(heavy / light, lam, rtol=1e-6)


def test_distinct_times_are_distinct_and_as_frequent_as_draws_without_replacement():
    times = GeometricDistinct(3, lam=4.0, grid=6)(Key.from_seed(0), 20_000, Context(horizon=6.0))
    assert (np.diff(times, axis=1) > 0).all()
    # P(i is among the draws), summed over all orders in which three can come
    weights = 4.0 ** (np.arange(1, 7) / 2)
    expected = np.zeros(6)
    for order in itertools.permutations(range(6), 3):
        left, chance = weights.sum(), 1.0
        for i in order:
            chance *= weights[i] / left
            left -= weights[i]
        expected[list(order)] += chance
    found = np.bincount(times.astype(int).ravel(), minlength=7)[1:] / len(times)
    assert np.allclose(found, expected, atol=0.015)


def test_distinct_times_on_their_own_grid_are_equidistant():
    times = GeometricDistinct(4)(Key.from_seed(0), 3, CONTEXT)
    assert np.array_equal(times, Equidistant(4)(Key.from_seed(0), 3, CONTEXT))


def test_windows_do_not_overlap_and_keep_their_grid():
    times = Windows(count=5, length=1.0, step=0.1)(Key.from_seed(3), 50, CONTEXT).reshape(50, 5, 10)
    assert np.allclose(np.diff(times, axis=2), 0.1)
    assert (times[:, 1:, 0] >= times[:, :-1, 0] + 1.0 - 1e-9).all()


def test_windows_are_placed_uniformly():
    # the middle of the free space before window k is Beta distributed with mean (k+1)/(count+1)
    starts = Windows(count=3, length=1.0, step=1.0)(Key.from_seed(0), 20_000, CONTEXT)
    assert np.allclose((starts - np.arange(3)).mean(axis=0), 7.0 * np.arange(1, 4) / 4, atol=0.05)


def test_exponential_gaps_have_their_mean():
    times = ExponentialGaps(5, mean_gap=0.1)(Key.from_seed(0), 20_000, CONTEXT)
    assert np.diff(times, axis=1).mean() == pytest.approx(0.1, rel=0.02)


def test_the_suite_covers_every_named_sampler():
    assert set(NAMED.values()) <= {type(sampler) for sampler in SAMPLERS.values()}


def test_a_sampler_that_returns_another_number_of_times_is_refused():
    @dataclass(frozen=True)
    class Wrong(Sampler):
        m: int = 2

        def draw(self, key, episodes, context):
            return np.zeros((episodes, 3))

    with pytest.raises(InputError, match=r"sampler: Wrong returned times of shape \(4, 3\), expected \(4, 2\)"):
        Wrong()(Key.from_seed(0), 4, CONTEXT)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(0), "m: must be between 1 and 1,000,000, not 0"),
        (lambda: Uniform(2.0), "m: must be an integer, not 2.0"),
        (lambda: Equidistant(0), "m: must be between 1 and 1,000,000, not 0"),
        (lambda: Geometric(0), "m: must be between 1 and 1,000,000, not 0"),
        (lambda: ExponentialGaps(-1, 1.0), "m: must be between 1 and 1,000,000, not -1"),
        (lambda: GeometricDistinct(4, grid=3), "grid: 4 different times need a grid of at least 4, not 3"),
        (lambda: GeometricDistinct(4, lam=-1.0), "lam: must be positive, not -1.0"),
        (lambda: Geometric(4, lam=0.0), "lam: must be positive, not 0.0"),
        (lambda: Geometric(4, lam=float("nan")), "lam: must be a finite number, not nan"),
        (lambda: Windows(0, 1.0, 0.1), "count: must be between 1 and 1,000,000, not 0"),
        (lambda: Windows(1, 1.0, 0.0), "step: must be positive, not 0.0"),
        (lambda: Windows(1, 0.1, 0.2), "length: a window must hold at least one step of 0.2, not 0.1"),
        (lambda: Windows(1, 0.25, 0.1), "length: 0.25 is not a whole number of steps of 0.1"),
        (lambda: Windows(1, 1e6, 1e-3), "m: must be between 1 and 1,000,000, not 1000000000"),
        (lambda: ExponentialGaps(2, 0.0), "mean_gap: must be positive, not 0.0"),
        (lambda: Windows(11, 1.0, 0.1).check_horizon(10.0), "11 windows of 1 do not fit into an episode of 10"),
        (lambda: Snapped(Windows(11, 1.0, 0.1), 0.1).check_horizon(10.0), "11 windows of 1 do not fit"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_paced_windows_take_their_step_from_the_learner():
    state = SimpleNamespace(measurement_step=0.1)
    sampler = PacedWindows(m=50, windows=5)
    first, later = (sampler(Key.from_seed(3), 4, Context(horizon=20.0, learner=learner)) for learner in (None, state))
    assert np.allclose(np.diff(first, axis=1), 0.02)  # one window from the start, a thousandth of the episode apart
    assert (first[:, 0] == 0).all()
    gaps = np.diff(later, axis=1).round(6)
    assert ((gaps == 0.1).sum(axis=1) >= 45).all()
    assert (gaps > 0.1 - 1e-6).all()  # no time twice
    assert later.max() > 10
    assert (later[:, 0] == 0).all()


def test_paced_windows_on_a_grid_and_in_short_episodes():
    state = SimpleNamespace(measurement_step=0.12)
    on_grid = PacedWindows(m=40, windows=4, grid=0.05)(Key.from_seed(0), 1, Context(horizon=20.0, learner=state))
    assert np.allclose(np.diff(on_grid)[0, :9], 0.1)  # the largest multiple below
    short = PacedWindows(m=40, windows=4)(Key.from_seed(0), 1, Context(horizon=2.0, learner=state))
    assert np.allclose(np.diff(short), 0.05)  # as many as fit, once
    with pytest.raises(InputError, match="windows: must divide m = 10"):
        PacedWindows(m=10, windows=3)

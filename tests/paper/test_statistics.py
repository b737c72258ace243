"""Statistics against what is known in closed form."""

import numpy as np
import pytest

from purectrl.core import InputError
from purectrl.core.keys import Key
from purectrl.paper import statistics

KEY = Key.from_seed(0)


def test_intervals_of_a_mean_contain_it_about_as_often_as_they_say():
    rng = KEY.child("data").generator()
    found = [statistics.mean_interval(KEY.child(trial), rng.normal(3.0, 1.0, 30), level=0.9) for trial in range(200)]
    covered = np.mean([interval.low <= 3.0 <= interval.high for interval in found])
    # binomial with 200 trials around 0.88: with few seeds the interval is a little narrow
    assert 0.80 < covered < 0.96


def test_intervals_shrink_like_the_square_root_of_the_seeds():
    rng = KEY.child("data").generator()
    widths = {}
    for seeds in (10, 1000):
        found = statistics.mean_interval(KEY, rng.normal(size=seeds))
        widths[seeds] = found.high - found.low
    assert 5 < widths[10] / widths[1000] < 20


def test_the_slope_of_a_noisy_power_law():
    sizes = 2.0 ** np.arange(8, 17)
    noise = KEY.child("noise").generator().uniform(0.5, 1.5, (10, sizes.size))
    found = statistics.slope(KEY, sizes, noise * 7.0 * sizes**-0.5)
    assert found.low < -0.5 < found.high
    assert 0 < found.high - found.low < 0.2


@pytest.mark.parametrize("exponent", [-1.0, -0.5, 0.0, 2.0])
def test_the_slope_does_not_depend_on_units(exponent):
    sizes = np.array([1.0, 10.0, 100.0])
    values = np.array([[1.0], [5.0]]) * sizes**exponent
    assert statistics.slope(KEY, 1000 * sizes, 3 * values).value == pytest.approx(exponent, abs=1e-12)


def test_a_row_stays_together():
    """Runs of one seed share their randomness: seeds that differ by a factor leave the slope without any doubt."""
    sizes = np.array([256.0, 1024.0, 4096.0])
    found = statistics.slope(KEY, sizes, np.array([[0.1], [1.0], [10.0]]) * sizes**-0.7)
    assert found.high - found.low < 1e-9


def test_curvature_tells_faster_than_linear_growth():
    x = np.arange(8.0, 17.0)
    noise = KEY.child("noise").generator().normal(0.0, 0.3, (10, x.size))
    assert statistics.curvature(KEY, x, 2 * x + noise).low < 0 < statistics.curvature(KEY, x, 2 * x + noise).high
    assert statistics.curvature(KEY, x, 2.0 ** (x - 8) + noise).low > 0
    assert statistics.curvature(KEY, x, np.sqrt(x - 8) + noise / 100).high < 0


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (3, 10), (97, 100), (200, 200)])
def test_the_ends_of_wilsons_interval_solve_the_score_equation(successes, trials):
    share, low, high = statistics.wilson(successes, trials)
    z = 1.959963984540054
    for end in (low, high):
        if 0 < end < 1:
            assert abs(share - end) == pytest.approx(z * np.sqrt(end * (1 - end) / trials))
    mirrored = statistics.wilson(trials - successes, trials)
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((low, high))


def test_intervals_of_skewed_values_cover_better_than_percentiles():
    """The bias correction and acceleration move the interval to the side of the long tail."""
    rng = KEY.child("skewed").generator()
    values = rng.exponential(1.0, (200, 20))
    found = [statistics.mean_interval(KEY.child(trial), row, level=0.9) for trial, row in enumerate(values)]
    above = np.mean([interval.high < 1.0 for interval in found])
    below = np.mean([interval.low > 1.0 for interval in found])
    assert above + below < 0.2
    assert all(interval.high - interval.value > interval.value - interval.low for interval in found[:20])


def test_degenerate_samples_have_a_percentile_interval():
    assert statistics.mean_interval(KEY, np.full(5, 0.25)) == (0.25, 0.25, 0.25)
    found = statistics.mean_interval(KEY, np.array([0.0, 0.0, 0.0, 1.0]))
    assert 0.0 <= found.low <= 0.25 <= found.high <= 1.0


def test_the_interquartile_mean_ignores_the_outer_quarters():
    values = np.arange(8.0)
    assert statistics.interquartile_mean(values) == statistics.mean(values)
    assert statistics.interquartile_mean(np.array([-1e9, 1, 2, 3, 4, 5, 6, 1e12])) == statistics.mean(values)
    assert statistics.interquartile_mean(np.array([5.0])) == 5.0


def test_the_same_key_gives_the_same_interval_and_another_key_another():
    values = KEY.child("data").generator().normal(size=12)
    assert statistics.mean_interval(KEY, values) == statistics.mean_interval(KEY, values)
    assert statistics.mean_interval(KEY, values) != statistics.mean_interval(KEY.child("other"), values)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: statistics.mean(np.array([1.0, np.nan])), "some are not finite"),
        (lambda: statistics.mean(np.array([])), "there are none"),
        (lambda: statistics.sd(np.array([1.0])), "at least two seeds, not 1"),
        (lambda: statistics.mean_interval(KEY, np.array([1.0])), "at least two seeds, not 1"),
        (lambda: statistics.mean_interval(KEY, np.arange(3.0), level=1.0), "level: must lie between 0 and 1"),
        (lambda: statistics.slope(KEY, np.array([1.0, 2.0]), np.zeros((3, 2))), "a mean of 0 has no logarithm"),
        (lambda: statistics.slope(KEY, np.array([2.0, 2.0]), np.ones((3, 2))), "2 different ones are needed, not 1"),
        (lambda: statistics.ratio(KEY, np.ones(3), np.zeros(3)), "denominator: a ratio needs values above zero"),
        (lambda: statistics.wilson(3, 2), "3 of 2 trials is impossible"),
    ],
)
def test_what_cannot_be_estimated_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()

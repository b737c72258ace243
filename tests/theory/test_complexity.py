"""Covering numbers, and the shape of the bounds of Theorems 1, 2 and 3."""

import itertools
import math

import pytest

from purectrl.core import InputError
from purectrl.theory import (
    Smoothness,
    log_cover_finite,
    log_cover_linear,
    radius,
    suboptimality_base,
    suboptimality_low_rollout,
    switches,
)


def test_a_net_of_the_promised_size_covers_an_interval():
    """One dimension, θ ∈ [−R, R], |φ| ≤ L: an ε-net needs RL/ε points, fewer than the bound and growing alike."""
    for R, L, epsilon in itertools.product((0.5, 2.0), (1.0, 3.0), (1e-1, 1e-4)):
        needed = math.ceil(R * L / epsilon)
        assert math.log(needed) <= log_cover_linear(1, R, L, epsilon) <= math.log(needed) + math.log(3)
    assert log_cover_linear(6, 1.0, 2.0, 0.1) == pytest.approx(6 * math.log(1 + 4 / 0.1))
    assert log_cover_finite(1) == 0.0
    assert radius(log_cover_finite(16), 4096, 0.1) == radius(math.log(16), 4096, 0.1)


SMOOTH = Smoothness(horizon=1.0, drift=0.5, diffusion=0.1, reward=1.0, policy=1.0)
SIZES = {"dim_drift": 3, "dim_reward": 2, "beta_drift": 30.0, "beta_reward": 20.0}


def test_theorem_1_is_its_formula():
    K, L, T, N = 1 + 4 * 0.1**2 + 2 * 4 * 0.5**2, 2.0, 1.0, 4096
    assert pytest.approx(K) == SMOOTH.growth
    assert SMOOTH.sensitivity == L
    expected = (T * math.sqrt(40) + L * T**1.5 * math.sqrt(math.exp(K * T)) * math.sqrt(90)) / math.sqrt(
        N / math.log(N)
    )
    assert suboptimality_base(SMOOTH, N, **SIZES) == pytest.approx(expected)
    assert suboptimality_base(SMOOTH, N, **SIZES, constant=3.0) == pytest.approx(3 * expected)


def test_the_flow_lemma_has_the_dimension_in_k():
    high = Smoothness(1.0, 0.5, 0.1, 1.0, 1.0, dimension=10)
    assert high.growth - SMOOTH.growth == pytest.approx(9 * 4 * 0.1**2)


def test_four_times_the_measurements_halve_the_gap_up_to_the_log():
    for N in (2**8, 2**12, 2**20):
        ratio = suboptimality_base(SMOOTH, N, **SIZES) / suboptimality_base(SMOOTH, 4 * N, **SIZES)
        assert ratio == pytest.approx(2 * math.sqrt(math.log(N) / math.log(4 * N)))


def test_switches_grow_with_the_logarithm():
    assert switches(2**16, 3, 2) == pytest.approx(2 * switches(2**8, 3, 2))
    assert switches(2**16, 3, 2, constant=2.0) == pytest.approx(2 * 5 * 16 * math.log(2))


def test_theorem_3_splits_into_its_two_terms():
    N, m = 4096, 8
    gap = lambda m, C, **more: suboptimality_low_rollout(SMOOTH, N, m, C, **SIZES, **more)  # noqa: E731
    batch = m * 1.0 * 5 * math.log(N) / N
    assert gap(m, 1.0) == pytest.approx(suboptimality_base(SMOOTH, N, **SIZES) + batch)
    assert gap(m, 4.0) - batch == pytest.approx(2 * (gap(m, 1.0) - batch))  # C → 4C doubles the leading term
    assert gap(2 * m, 1.0) - gap(m, 1.0) == pytest.approx(batch)  # linear in m
    assert gap(m, 1.0, log_power=2) - gap(m, 1.0) == pytest.approx(batch * (math.log(N) - 1))
    assert gap(m, 4.0, constant=2.0) == pytest.approx(2 * gap(m, 4.0))


def test_a_bound_too_large_for_a_float_is_infinite():
    wild = Smoothness(horizon=100.0, drift=10.0, diffusion=0.0, reward=1.0, policy=0.0)
    assert suboptimality_base(wild, 100, **SIZES) == math.inf
    flat = Smoothness(horizon=100.0, drift=10.0, diffusion=0.0, reward=0.0, policy=0.0)
    assert suboptimality_base(flat, 100, **SIZES) < math.inf  # a constant reward is not hurt by any drift


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: log_cover_finite(0), "size: a function class has at least one member"),
        (lambda: log_cover_linear(0, 1.0, 1.0, 0.1), "dimension: Θ has at least one entry"),
        (lambda: log_cover_linear(1, 0.0, 1.0, 0.1), "bound: must be positive and finite"),
        (lambda: log_cover_linear(1, 1.0, -1.0, 0.1), "feature_bound: must be positive and finite"),
        (lambda: log_cover_linear(1, 1.0, 1.0, 0.0), "epsilon: must be positive and finite"),
        (lambda: Smoothness(0.0, 1, 1, 1, 1), "horizon: must be positive and finite"),
        (lambda: Smoothness(1.0, -1, 1, 1, 1), "drift: a Lipschitz constant must be finite and not negative"),
        (lambda: Smoothness(1.0, 1, math.nan, 1, 1), "diffusion: a Lipschitz constant"),
        (lambda: Smoothness(1.0, 1, 1, math.inf, 1), "reward: a Lipschitz constant"),
        (lambda: Smoothness(1.0, 1, 1, 1, -2), "policy: a Lipschitz constant"),
        (lambda: Smoothness(1.0, 1, 1, 1, 1, 0), "dimension: a state has at least one entry"),
        (lambda: suboptimality_base(SMOOTH, 1, **SIZES), "total: the bounds hold for N ≥ 2"),
        (lambda: suboptimality_base(SMOOTH, 9, **{**SIZES, "dim_drift": -1}), "dim_drift: an Eluder dimension"),
        (lambda: suboptimality_base(SMOOTH, 9, **{**SIZES, "dim_reward": math.inf}), "dim_reward: an Eluder dimension"),
        (lambda: suboptimality_base(SMOOTH, 9, **{**SIZES, "beta_drift": 0.0}), "beta_drift: must be positive"),
        (lambda: suboptimality_base(SMOOTH, 9, **{**SIZES, "beta_reward": -1.0}), "beta_reward: must be positive"),
        (lambda: suboptimality_base(SMOOTH, 9, **SIZES, constant=0.0), "constant: must be positive"),
        (lambda: switches(1, 1, 1), "total: the bounds hold"),
        (lambda: switches(9, -1, 1), "dim_drift: an Eluder dimension"),
        (lambda: switches(9, 1, 1, constant=-1.0), "constant: must be positive"),
        (lambda: suboptimality_low_rollout(SMOOTH, 9, 0, 1.0, **SIZES), "m: an episode takes between 1 and N = 9"),
        (lambda: suboptimality_low_rollout(SMOOTH, 9, 10, 1.0, **SIZES), "m: an episode takes between 1 and N = 9"),
        (lambda: suboptimality_low_rollout(SMOOTH, 9, 1, 0.5, **SIZES), "independency: C is at least 1, not 0.5"),
        (lambda: suboptimality_low_rollout(SMOOTH, 9, 1, 1.0, **SIZES, log_power=3), "log_power: must be 1"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()

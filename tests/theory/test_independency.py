"""Expectations by simulation, the independency coefficient, and Proposition 2."""

import itertools
import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest

from purectrl.core import InputError, Key, MeasurementError, Plan, Sampler, System
from purectrl.core.samplers import Context, Equidistant, Uniform, Windows
from purectrl.systems.washboard import drift, reward, washboard
from purectrl.theory import (
    FiniteClass,
    eluder_brute_force,
    eluder_greedy,
    expectations,
    independency_bound_ou,
    independency_coefficient,
    independency_ou,
)

ORIGIN = FiniteClass.of([lambda key: jnp.zeros(1)])
LIGHT = {"steps": 50, "pasts": 64, "futures": 1024, "pool": 2048}


def ou_system(horizon):
    """Proposition 2: dx = −u x dt + sqrt(2) dw with b* = x."""
    return System(
        "ou",
        1,
        1,
        horizon,
        lambda x, u: -u * x,
        lambda x, u: jnp.sqrt(2.0),
        lambda x, u: x[0],
        reward_range=(-math.inf, math.inf),
    )


def ou_independency(sampler, rates, horizon, key=0, **counts):
    constant = FiniteClass.family(lambda rate, x: rate, np.array(rates, np.float32)[:, None])
    drifts = FiniteClass.of([lambda x, u: -u * x])
    slopes = FiniteClass.family(lambda a, x, u: a * x[0], np.array([0.0, 0.5, 1.0], np.float32))
    system = ou_system(horizon)
    return independency_coefficient(
        Key.from_seed(key), system, constant, ORIGIN, drifts, slopes, sampler, **{**LIGHT, **counts}
    )


@dataclass(frozen=True)
class Clustered(Sampler):
    """All m times in the first fiftieth of the episode."""

    m: int = 1

    def draw(self, key, episodes, context):
        return np.tile(np.arange(1, self.m + 1) / self.m * context.horizon / 50, (episodes, 1))


def test_expectations_match_the_ou_closed_form():
    T, rates = 1.5, (0.5, 2.0)
    constant = FiniteClass.family(lambda rate, x: rate, np.array(rates, np.float32)[:, None])
    drifts = FiniteClass.family(lambda c, x, u: -c * u * x, np.array([1.0, 0.5], np.float32))
    slopes = FiniteClass.family(lambda a, x, u: a * x[0], np.array([0.0, 1.0], np.float32))
    found = expectations(
        Key.from_seed(0), ou_system(T), constant, ORIGIN, drifts, slopes, steps=100, paths=8192, times=4
    )
    second = [1 / u - (1 - math.exp(-2 * u * T)) / (2 * u**2 * T) for u in rates]
    assert np.allclose(found.reward, np.outer(second, [1.0, 0.0]), rtol=0.05)
    assert np.allclose(
        found.drift, np.outer([(u / 2) ** 2 * s for u, s in zip(rates, second, strict=True)], [0.0, 1.0]), rtol=0.05
    )


def test_rows_are_policies_first():
    constant = FiniteClass.family(lambda u, x: u, np.array([[0.0], [1.0]], np.float32))
    starts = FiniteClass.family(lambda x, key: x, np.array([[0.0], [1.0], [2.0]], np.float32))
    frozen = System("frozen", 1, 1, 1.0, lambda x, u: 0 * x, lambda x, u: jnp.float32(0.0), lambda x, u: 0 * x[0])
    code = FiniteClass.of([lambda x, u: jnp.sqrt(10 * u[0] + x[0])])
    found = expectations(Key.from_seed(0), frozen, constant, starts, FiniteClass.of([frozen.drift]), code, 1, 1, 1)
    assert np.allclose(found.reward[:, 0], [0, 1, 2, 10, 11, 12], atol=1e-4)
    assert found.drift.shape == (6, 1)


def test_the_washboard_has_a_small_dimension():
    goals = np.linspace(-0.75, 0.75, 4, dtype=np.float32)
    policies = FiniteClass.family(lambda goal, x: jnp.clip(4 * (goal - x), -1, 1), goals)
    parameters = np.array(list(itertools.product((-0.5, 0.5), (-0.5, 0.25, 0.5))), np.float32)
    found = expectations(
        Key.from_seed(0),
        washboard(),
        policies,
        ORIGIN,
        FiniteClass.family(drift, parameters),
        FiniteClass.family(reward, goals),
        steps=40,
        paths=256,
    )
    for matrix in found:
        low, exact = (find(matrix, 1e-3) for find in (eluder_greedy, eluder_brute_force))
        assert 1 <= low <= exact <= 4
    assert np.allclose(found.drift[:, -1], 0.0, atol=1e-10)  # the truth


@pytest.mark.parametrize(("T", "low", "high"), [(1.0, 0.5, 0.5), (1.0, 1.0, 4.0), (5.0, 0.2, 1.0), (10.0, 2.0, 50.0)])
def test_proposition_2(T, low, high):
    for m in range(1, 65):
        grid = Equidistant(m)(Key.from_seed(0), 1, Context(T))[0]
        found = independency_ou(grid, (low, high), T)
        assert 1.0 <= found <= independency_bound_ou(m, low, T)
        if m <= 2 * T * low:
            assert found <= 2.0
        # a cluster is bad as far as it is shorter than the time 1/u in which the process forgets
        cluster = independency_ou(Clustered(m)(Key.from_seed(0), 1, Context(T))[0], (low, high), T)
        assert m == 1 or cluster > (10 if m >= 16 else 2) * found


def test_ou_closed_form_is_the_quadrature_and_its_maximum_is_at_an_end():
    draws = np.random.default_rng(0)
    for _ in range(20):
        T, m = draws.uniform(0.5, 5.0), draws.integers(1, 9)
        low = draws.uniform(0.01, 2.0)
        high = low * draws.uniform(1.0, 50.0)
        times = np.sort(draws.uniform(0, T, m))
        gap = np.diff(times, prepend=0.0).min()
        t = np.linspace(0, T, 20_001)
        rates = np.geomspace(low, high, 101)
        uniform_variance = [np.trapezoid((1 - np.exp(-2 * u * t)) / u, t) / T for u in rates]
        ratios = np.array(uniform_variance) / ((1 - np.exp(-2 * rates * gap)) / rates)
        assert independency_ou(times, (low, high), T) == pytest.approx(max(1.0, ratios.max()), rel=1e-4)


def test_the_ou_ratio_falls_then_rises_in_u():
    a = np.geomspace(2e-3, 500, 4000)
    for share in (1 / 64, 0.1, 0.3, 0.5, 0.7, 1.0):
        steps = np.diff((1 + np.expm1(-a) / a) / -np.expm1(-a * share))
        signs = np.sign(steps[np.abs(steps) > 1e-13])
        assert (np.diff(signs) >= 0).all()
        assert (signs[0] < 0) == (share < 2 / 3)


def test_ou_limits():
    grid = np.array([0.5, 1.0])
    assert independency_ou(grid, (1e-9, 1e-9), 1.0) == pytest.approx(1.0, rel=1e-6)  # m/2 for slow reversion
    assert independency_ou(np.arange(1, 9) / 8, (1e-9, 1.0), 1.0) == pytest.approx(4.0, rel=1e-6)
    assert independency_ou(grid, (1e3, 1e4), 1.0) == pytest.approx(1.0, abs=1e-3)  # independent for fast reversion
    assert independency_ou(np.array([0.5, 0.5]), (1.0, 2.0), 1.0) == math.inf
    assert independency_ou(np.array([0.0, 0.5]), (1.0, 2.0), 1.0) == math.inf


@pytest.mark.parametrize("m", [1, 4])
def test_nested_simulation_finds_the_ou_closed_form(m):
    T, rates = 2.0, (0.5, 2.0)
    found = ou_independency(Equidistant(m), rates, T)
    exact = independency_ou(np.arange(1, m + 1) * T / m, rates, T)
    assert found.value == pytest.approx(exact, abs=4 * found.error + 0.05 * exact)
    if m > 1:
        assert found.plan == Plan(0, 0)  # the slower reversion
        assert found.member in (1, 2)  # a reward other than the truth
        assert found.i >= 1


def test_nested_simulation_sees_that_a_cluster_is_much_worse():
    T, rates = 2.0, (0.5,)
    good, bad = (ou_independency(sampler, rates, T, futures=512).value for sampler in (Equidistant(4), Clustered(4)))
    assert bad > 10 * good
    one = Windows(
        count=1, length=0.1, step=0.025
    )  # a cluster at a random place; only the last state is known, so 0 is the worst past
    assert ou_independency(one, rates, T, futures=512).value > 5 * good


def test_nested_simulation_of_random_times_matches_quadrature():
    """Two sorted uniform times: given Z̄_1 = z, (t_1, t_2) has density ∝ p_{t_1}(z) on t_1 < t_2, by Bayes."""
    T, u = 2.0, 1.0
    t = (np.arange(400) + 0.5) * T / 400
    variance = (1 - np.exp(-2 * u * t)) / u
    first, second = np.meshgrid(t, t, indexing="ij")
    forward = first < second
    decay = np.where(forward, np.exp(-2 * u * (second - first)), 1.0)

    def given(z):
        weight = forward * (np.exp(-(z**2) / 2 / variance) / np.sqrt(variance))[:, None]
        return (weight * (z**2 * decay + (1 - decay) / u)).sum() / weight.sum()

    unseen = (variance * (T - t)).sum() / (T - t).sum()  # t_1 alone
    exact = variance.mean() / min(unseen, *map(given, np.linspace(0, 2, 41)))
    found = ou_independency(Uniform(2), (u,), T, futures=512, pool=4096)
    assert found.value == pytest.approx(exact, abs=4 * found.error + 0.05 * exact)


def test_one_uniform_time_has_coefficient_one():
    found = ou_independency(Uniform(1), (1.0,), 2.0, futures=512)
    assert found.value == pytest.approx(1.0, abs=4 * found.error + 0.05)


def test_a_class_of_one_has_coefficient_one():
    system = washboard()
    still = FiniteClass.of([lambda x: jnp.zeros(1)])
    truths = FiniteClass.of([system.drift]), FiniteClass.of([system.reward])
    counts = {"steps": 10, "pasts": 2, "futures": 4, "pool": 8}
    assert (
        independency_coefficient(Key.from_seed(0), system, still, ORIGIN, *truths, Clustered(2), **counts).value == 1.0
    )


GRID = np.array([0.5, 1.0])
NAN = FiniteClass.of([lambda x, u: x * jnp.nan])


def washboard_call(function, policies=None, drifts=None, rewards=None, **more):
    system = washboard()
    classes = (
        policies or FiniteClass.of([lambda x: jnp.zeros(1)]),
        ORIGIN,
        drifts or FiniteClass.of([system.drift]),
        rewards or FiniteClass.of([system.reward]),
    )
    extra = (Uniform(2),) if function is independency_coefficient else ()
    return function(Key.from_seed(0), system, *classes, *extra, **{"steps": 5, **more})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: washboard_call(expectations, paths=0), "paths: the expectations need at least one path"),
        (lambda: washboard_call(expectations, times=0), "times: each path needs at least one time"),
        (lambda: washboard_call(expectations, steps=0), "steps: the simulation needs at least one step"),
        (lambda: washboard_call(expectations, drifts=NAN), "drifts: member 0 is not finite on the states"),
        (
            lambda: washboard_call(expectations, rewards=FiniteClass.of([lambda x, u: x[0] * jnp.nan])),
            "rewards: member 0 is not finite on the states",
        ),
        (lambda: washboard_call(independency_coefficient, pasts=0), "pasts: at least one past state"),
        (lambda: washboard_call(independency_coefficient, futures=1), "futures: each past needs at least two"),
        (
            lambda: washboard_call(independency_coefficient, futures=64, pool=32),
            "pool: needs as many episodes .* at least 64, not 32",
        ),
        (lambda: independency_ou(GRID, (1.0, 2.0), 0.0), "horizon: the episode length T must be positive"),
        (lambda: independency_ou(GRID, (0.0, 2.0), 1.0), r"u: must be \(u_min, u_max\)"),
        (lambda: independency_ou(GRID, (2.0, 1.0), 1.0), r"u: must be \(u_min, u_max\)"),
        (lambda: independency_ou(np.ones((1, 2)), (1.0, 2.0), 1.0), r"times: must be an array \[m\]"),
        (lambda: independency_ou(np.array([]), (1.0, 2.0), 1.0), r"times: must be an array \[m\]"),
        (lambda: independency_ou(GRID[::-1], (1.0, 2.0), 1.0), r"times: must be sorted and inside \[0, 1.0\]"),
        (lambda: independency_ou(2 * GRID, (1.0, 2.0), 1.0), r"times: must be sorted and inside \[0, 1.0\]"),
        (lambda: independency_ou(GRID * np.nan, (1.0, 2.0), 1.0), "times: must be sorted and inside"),
        (lambda: independency_bound_ou(0, 1.0, 1.0), "m: an episode needs at least one measurement"),
        (lambda: independency_bound_ou(1, 0.0, 1.0), "u_min: must be positive"),
        (lambda: independency_bound_ou(1, 1.0, -1.0), "horizon: the episode length T must be positive"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize("function", [expectations, independency_coefficient])
def test_a_policy_that_explodes_is_named(function):
    wild = FiniteClass.of([lambda x: 1e30 * jnp.exp(1e3 * jnp.ones(1))])
    with pytest.raises(MeasurementError, match="has left the finite numbers in episode"):
        washboard_call(function, policies=wild)


def test_the_same_key_gives_the_same_numbers():
    counts = {"pasts": 4, "futures": 8, "pool": 16, "drifts": FiniteClass.of([lambda x, u: 0 * x])}
    assert washboard_call(independency_coefficient, **counts) == washboard_call(independency_coefficient, **counts)

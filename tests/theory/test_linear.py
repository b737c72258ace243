"""Linear classes: least squares in a ball, sets that are what they say, plans that are optimistic."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from purectrl.core import InputError, Key, MeasurementError, Measurements
from purectrl.experiments import Spec
from purectrl.theory.features import polynomial, random_fourier
from purectrl.theory.linear import LinearClass, Statistics, decode, retract
from purectrl.theory.linear_learner import coordinates
from purectrl.theory.plans import GaussianInitials, LinearPolicies

SEEDS = st.integers(0, 10_000)
FLAT = LinearClass(lambda x, u: jnp.concatenate([x, u]), bound=1.5, outputs=2)


def data(seed, n=40, p=3, o=2, rank=None):
    """Features [n, p], of lower rank if told, and targets [n, o]."""
    draws = np.random.default_rng(seed)
    phi = draws.normal(size=(n, rank or p)) @ (np.eye(p) if rank is None else draws.normal(size=(rank, p)))
    return phi, draws.normal(size=(n, o)) * 3


def statistics(phi, y):
    return Statistics(phi.T @ phi, phi.T @ y, float((y**2).sum()))


@given(seed=SEEDS)
def test_the_loss_is_the_papers_sum_of_squares(seed):
    phi, y = data(seed)
    theta = np.random.default_rng(seed + 1).normal(size=(3, 2))
    assert statistics(phi, y).loss(theta) == pytest.approx(((phi @ theta - y) ** 2).sum())


@given(seed=SEEDS)
def test_without_the_ball_the_fit_is_least_squares(seed):
    phi, y = data(seed)
    theta, loss = LinearClass(FLAT.features, bound=1e6, outputs=2).fit(statistics(phi, y))
    assert np.allclose(theta, np.linalg.lstsq(phi, y, rcond=None)[0])
    assert loss == pytest.approx(((phi @ theta - y) ** 2).sum())


@given(seed=SEEDS, rank=st.sampled_from([None, 1, 2]), bound=st.floats(0.05, 3.0))
def test_no_point_of_the_ball_fits_better_than_the_fit(seed, rank, bound):
    found = LinearClass(FLAT.features, bound, outputs=2)
    seen = statistics(*data(seed, rank=rank))
    theta, loss = found.fit(seen)
    assert np.linalg.norm(theta) <= bound * (1 + 1e-6)
    draws = np.random.default_rng(seed + 1)
    for near in (1.0, 0.1, 0.001):
        other = theta + near * draws.normal(size=(50, 3, 2))
        other *= np.minimum(1.0, bound / np.linalg.norm(other, axis=(1, 2)))[:, None, None]
        assert min(seen.loss(point) for point in other) >= loss - 1e-6 * abs(loss)


@given(seed=SEEDS, rank=st.sampled_from([None, 1]), beta=st.floats(0.1, 100.0), length=st.floats(0.0, 100.0))
def test_a_retracted_point_is_in_the_confidence_set(seed, rank, beta, length):
    seen = statistics(*data(seed, rank=rank))
    region = FLAT.region(seen, beta)
    w = jnp.asarray(length * np.random.default_rng(seed).normal(size=(3, 2)), jnp.float32)
    back = retract(region, w)
    theta = np.asarray(decode(region, back), np.float64)
    _, least = FLAT.fit(seen)
    assert seen.loss(theta) <= least + beta * 1.01 + 1e-3 * abs(least)
    assert np.linalg.norm(theta) <= FLAT.bound * 1.001
    assert np.allclose(retract(region, back), back, rtol=1e-3, atol=1e-5)  # what is inside stays


def test_before_any_data_the_whole_ball_is_the_set():
    region = FLAT.region(FLAT.start(3), beta=1.0)
    far = retract(region, jnp.full((3, 2), 100.0))
    assert np.linalg.norm(decode(region, far)) == pytest.approx(FLAT.bound, rel=1e-4)


@given(seed=SEEDS)
def test_coordinates_undo_decode(seed):
    region = FLAT.region(statistics(*data(seed)), beta=5.0)
    theta = np.random.default_rng(seed).normal(size=(3, 2))
    assert np.allclose(decode(region, coordinates(region, theta)), theta, atol=1e-3)


def test_random_fourier_features_approximate_the_gaussian_kernel():
    phi = random_fourier(4000, 1, 1, scale=0.7)
    z = np.array([[0.0, 0.0], [0.5, -0.2], [1.0, 1.0]], np.float32)
    values = np.array([phi(jnp.asarray(row[:1]), jnp.asarray(row[1:])) for row in z])
    squared = ((z[:, None] - z) ** 2).sum(-1)
    assert np.allclose(values @ values.T, np.exp(-squared / (2 * 0.7**2)), atol=0.06)


def test_polynomials_count():
    assert polynomial(3, 2, 1)(jnp.ones(2), jnp.ones(1)).shape == (20,)  # C(3 + 3, 3)


@pytest.fixture(scope="module")
def task():
    return Spec.of("lqr", "pure-low-switch", classes="linear", dimension=1, measurements=1500, radius_scale=0.2).build()


def test_plans_are_optimistic_and_the_truth_is_covered(task):
    steps = list(task.loop.run(task.loop.init(Key.from_seed(0))))
    records = [{"episodes": 1, **task.probe(*step)} for step in steps]
    metrics = task.metrics(steps[-1][0], records)
    assert metrics["covered"]
    for state, _ in steps:
        assert state.learner.value >= metrics["optimum"] - 0.02  # the Monte-Carlo error of both values
    assert 1 <= steps[-1][0].ledger.updates <= 20
    assert metrics["gap_last"] < 0.2 * metrics["gap_curve"][0][1]  # and something was learned


def test_statistics_are_those_of_the_data(task):
    learner = task.loop.learner
    *_, (state, _) = (step for step, _ in zip(task.loop.run(task.loop.init(Key.from_seed(1))), range(60), strict=False))
    seen = state.data.view.rows()
    phi = np.concatenate([seen.x[:, 0], seen.u[:, 0]], axis=1).astype(np.float64)
    assert np.allclose(state.learner.drift_data.gram, phi.T @ phi, rtol=1e-5)
    assert np.allclose(state.learner.drift_data.cross, phi.T @ seen.y[:, 0], rtol=1e-4, atol=1e-4)
    assert learner.excess(state.learner, state.data, Key(0))[0].drift >= -1e-9


def test_features_that_are_not_finite_are_named(task):
    learner = task.loop.learner
    state = task.loop.init(Key.from_seed(0)).learner
    far = Measurements(
        np.zeros((1, 1)), np.full((1, 1, 1), np.inf), np.zeros((1, 1, 1)), np.zeros((1, 1, 1)), np.zeros((1, 1))
    )
    with pytest.raises(MeasurementError, match="the drift features are not finite at x ="):
        learner.observe(state, far)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearClass(FLAT.features, bound=0.0), "bound: R must be positive, not 0.0"),
        (lambda: LinearClass(FLAT.features, 1.0, feature_bound=0.0), "feature_bound: must be positive"),
        (
            lambda: LinearClass(lambda x, u: x[0], 1.0).size(1, 1),
            r"features: must return a vector \[p\], got shape \(\)",
        ),
        (lambda: LinearClass(lambda x, u: x @ u, 1.0).size(2, 3), "features: cannot be evaluated on x"),
        (lambda: polynomial(-1, 1, 1), "degree: must not be negative, got -1"),
        (lambda: random_fourier(0, 1, 1), "count: at least one feature is needed, not 0"),
        (lambda: random_fourier(1, 1, 1, scale=0.0), "scale: the width must be positive, not 0.0"),
        (lambda: LinearPolicies(1, 1, limit=0.0), "limit: controls need a positive limit, not 0.0"),
        (lambda: GaussianInitials(1, limit=-1.0), "limit: cannot be negative, got -1.0"),
        (lambda: GaussianInitials(1, limit=0.0, std=-1.0), "std: a standard deviation cannot be negative"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_initial_means_stay_within_their_limit():
    initials = GaussianInitials(2, limit=0.5, std=0.0)
    far = initials.apply(np.full(2, 100.0, np.float32), jax.random.key(0))
    assert np.allclose(far, 0.5)

"""Linear classes: least squares in a ball, sets that are what they say, plans that are optimistic."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from purectrl.core import Algorithm, Budget, InputError, Key, MeasurementError, Measurements
from purectrl.core.samplers import Uniform
from purectrl.core.schedules import OnExcessLoss
from purectrl.problems.theory import lqr
from purectrl.theory.classes import RegressionData, TrueFunction
from purectrl.theory.features import polynomial, random_fourier
from purectrl.theory.linear import LinearClass, Statistics
from purectrl.theory.policy_classes import GaussianInitials, LinearPolicies
from purectrl.theory.settings import LinearSets

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
def test_all_coordinates_are_in_the_confidence_set(seed, rank, beta, length):
    seen = statistics(*data(seed, rank=rank))
    confidence_set = FLAT.confidence_set(seen, None, beta)
    w = jnp.asarray(length * np.random.default_rng(seed).normal(size=(3, 2)), jnp.float32)
    theta = np.asarray(FLAT.decode(confidence_set, w), np.float64)
    _, least = FLAT.fit(seen)
    assert seen.loss(theta) <= least + beta * 1.01 + 1e-3 * abs(least)
    assert np.linalg.norm(theta) <= FLAT.bound * 1.001
    slope = jax.grad(lambda w: FLAT.decode(confidence_set, w).sum())(w)
    assert np.isfinite(slope).all()


@given(seed=SEEDS, rank=st.sampled_from([None, 1]), beta=st.floats(0.1, 100.0), size=st.floats(0.01, 1.0))
def test_every_point_of_the_confidence_set_has_coordinates(seed, rank, beta, size):
    """Also where the ball binds, as it does when the truth is as long as R; the planner must be able to leave the center."""
    seen = statistics(*data(seed, rank=rank))
    confidence_set = FLAT.confidence_set(seen, None, beta)
    theta, least = FLAT.fit(seen)
    near = theta + size * np.random.default_rng(seed).normal(size=(64, 3, 2))
    near *= np.minimum(1.0, 0.99 * FLAT.bound / np.linalg.norm(near, axis=(1, 2)))[:, None, None]
    for point in near:
        if seen.loss(point) <= least + 0.98 * beta:
            assert np.allclose(FLAT.decode(confidence_set, FLAT.encode(confidence_set, point)), point, atol=5e-3)


def test_before_any_data_the_whole_ball_is_the_set():
    confidence_set = FLAT.confidence_set(FLAT.init(Key(0), 2, 1), None, beta=1.0)
    far = FLAT.decode(confidence_set, jnp.full((3, 2), 100.0))
    assert np.linalg.norm(far) == pytest.approx(FLAT.bound, rel=1e-4)


@jax.jit
def climb(confidence_set, direction):
    optimiser, begin = optax.adam(optax.cosine_decay_schedule(0.1, 800)), jnp.zeros((3, 2))

    def step(carry, _):
        w, memory = carry
        slope = jax.grad(lambda w: -jnp.sum(direction * FLAT.decode(confidence_set, w)))(w)
        change, memory = optimiser.update(slope, memory)
        return (w + change, memory), None

    return jax.lax.scan(step, (begin, optimiser.init(begin)), length=800)[0][0]


@settings(max_examples=20)
@given(seed=SEEDS, beta=st.floats(0.5, 50.0))
def test_ascent_in_coordinates_finds_the_largest_linear_function_on_the_set(seed, beta):
    """max ⟨C, Θ⟩ over ellipsoid ∩ ball against the dual: any μ, ν ≥ 0 give an upper bound, and the best of them meets it."""
    seen = statistics(*data(seed, n=6))
    confidence_set, (_, least) = FLAT.confidence_set(seen, None, beta), FLAT.fit(seen)
    direction = np.random.default_rng(seed + 7).normal(size=(3, 2))
    w = climb(confidence_set, direction)
    found = float(np.sum(direction * np.asarray(FLAT.decode(confidence_set, w))))

    def bound(logs):
        mu, nu = np.exp(logs)
        matrix, vector = mu * seen.gram + nu * np.eye(3), direction / 2 + mu * seen.cross
        return np.sum(vector * np.linalg.solve(matrix, vector)) + mu * (least + beta - seen.square) + nu * FLAT.bound**2

    best = minimize(bound, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9, "maxiter": 4000})
    assert found == pytest.approx(best.fun, rel=0.01, abs=0.01)


@given(seed=SEEDS, m=st.integers(1, 3), bound=st.sampled_from([0.3, 1.5, 100.0]))
def test_losses_after_each_episode_are_those_of_the_statistics_so_far(seed, m, bound):
    found = LinearClass(FLAT.features, bound, outputs=2, ridge=0.7)
    draws = np.random.default_rng(seed)
    rows = RegressionData(*(np.float32(draws.normal(size=(4 * m, size))) for size in (2, 1, 2)))
    before = found.observe(
        found.init(Key(0), 2, 1), RegressionData(*(np.float32(draws.normal(size=(5, n))) for n in (2, 1, 2)))
    )
    theta = 0.1 * draws.normal(size=(3, 2))
    whole = found.losses_per_episode(before, theta, rows, m)
    for n in range(4):
        before = found.observe(before, RegressionData(*(array[n * m : (n + 1) * m] for array in rows)))
        assert whole.excess[n] == pytest.approx(found.excess_loss(before, theta, rows), rel=1e-6, abs=1e-6)
        regret = found.prequential(before) - found.minimum(before)
        assert whole.regret[n] == pytest.approx(regret, rel=1e-6, abs=1e-6)


def test_the_excess_of_the_truth_is_finite_in_the_ball_only():
    phi, y = data(0)
    seen = statistics(phi, y)
    theta, _ = FLAT.fit(seen)
    excess = lambda parameter: FLAT.truth_excess(seen, None, TrueFunction(None, parameter=parameter))  # noqa: E731
    assert excess(0.999 * theta) == pytest.approx(seen.loss(0.999 * theta) - seen.loss(theta))
    assert 1e-6 < excess(0.999 * theta) < excess(0.5 * theta)
    assert excess(3 * FLAT.bound * theta / np.linalg.norm(theta)) == np.inf
    assert excess(None) == np.inf  # not a member of the class


def test_random_fourier_features_approximate_the_gaussian_kernel():
    phi = random_fourier(4000, 1, 1, scale=0.7)
    z = np.array([[0.0, 0.0], [0.5, -0.2], [1.0, 1.0]], np.float32)
    values = np.array([phi(jnp.asarray(row[:1]), jnp.asarray(row[1:])) for row in z])
    squared = ((z[:, None] - z) ** 2).sum(-1)
    assert np.allclose(values @ values.T, np.exp(-squared / (2 * 0.7**2)), atol=0.06)


def test_polynomials_count():
    assert polynomial(3, 2, 1)(jnp.ones(2), jnp.ones(1)).shape == (20,)  # C(3 + 3, 3)


@pytest.fixture(scope="module")
def loop():
    algorithm = Algorithm(Uniform(), OnExcessLoss(), LinearSets(radius="anytime"))
    return algorithm.build(lqr(dimension=1), Budget(1500))


def test_statistics_are_those_of_the_data(loop):
    learner = loop.learner
    *_, (state, _) = (step for step, _ in zip(loop.run(loop.init(Key.from_seed(1))), range(60), strict=False))
    seen = state.data.all.rows()
    phi = np.concatenate([seen.x[:, 0], seen.u[:, 0]], axis=1).astype(np.float64)
    assert np.allclose(state.learner.drift_fit.gram, phi.T @ phi, rtol=1e-5)
    assert np.allclose(state.learner.drift_fit.cross, phi.T @ seen.y[:, 0], rtol=1e-4, atol=1e-4)
    assert learner.excess_loss(state.learner, state.data, Key(0))[0].drift >= -1e-9


def test_features_that_are_not_finite_are_named(loop):
    learner = loop.learner
    state = loop.init(Key.from_seed(0)).learner
    far = Measurements(
        np.zeros((1, 1)), np.full((1, 1, 1), np.inf), np.zeros((1, 1, 1)), np.zeros((1, 1, 1)), np.zeros((1, 1))
    )
    with pytest.raises(MeasurementError, match="the features are not finite at x ="):
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

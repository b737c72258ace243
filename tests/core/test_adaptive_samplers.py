"""Adaptive samplers: what greedy choices guarantee, what a sensor allows, and what is refused before anything runs."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from counting import CountingLearner, CountingSystem
from hypothesis import given
from hypothesis import strategies as st

from purectrl.core import Budget, Context, InputError, Key, Ledger, Loop, Oracle, UnsupportedError, schedules
from purectrl.core.oracle import check_times
from purectrl.core.samplers import MaxDeterminant, MaxKernelDistance, Receding, Stratified, VarianceThreshold
from purectrl.core.samplers.spacing import Spacing
from purectrl.core.uncertainty import LEAST_NOISE, Conditioning, Uncertainty

ADAPTIVE = [MaxDeterminant, MaxKernelDistance, Receding, VarianceThreshold]


def smooth(n, outputs=2, length=0.15, seed=0, noise=1e-2):
    """Covariances of smooth processes with different length scales and a variance that changes with time."""
    t = np.linspace(0.0, 1.0, n)
    size = 0.2 + key_uniform(seed, outputs, 1) + np.sin(3 * t + np.arange(outputs)[:, None]) ** 2
    lengths = length * np.arange(1, outputs + 1)[:, None, None]
    covariance = np.exp(-(((t[:, None] - t) / lengths) ** 2) / 2) * size[:, :, None] * size[:, None, :]
    return Uncertainty(covariance, np.full(outputs, noise), covariance[0])


def key_uniform(seed, *shape):
    return Key.from_seed(seed).uniform(*shape)


def context(uncertainty, horizon=10.0, updates=1):
    return Context(horizon, Ledger(updates=updates), uncertainty=lambda times, key: uncertainty)


def information(uncertainty, chosen, noise):
    blocks = uncertainty.covariance[np.ix_(range(len(noise)), chosen, chosen)] / noise[:, None, None]
    return sum(np.linalg.slogdet(np.eye(len(chosen)) + block)[1] for block in blocks)


# the Cholesky factorization with pivots


@given(seed=st.integers(0, 1000), order=st.permutations(range(8)))
def test_the_gains_of_a_sequence_add_up_to_its_log_determinant(seed, order):
    known = smooth(8, seed=seed)
    found, total = Conditioning(known.covariance, known.noise), 0.0
    for number, i in enumerate(order[:5]):
        total += found.gains()[i]
        found.add(i)
        assert total == pytest.approx(information(known, list(order[: number + 1]), found.noise), rel=1e-9)


def test_the_variances_are_those_of_the_gaussian_given_the_measurements():
    known, chosen, others = smooth(12), [1, 5, 8], [0, 3, 11]
    found = Conditioning(known.covariance, known.noise)
    for i in chosen:
        found.add(i)
    for covariance, noise, variance in zip(known.covariance, found.noise, found.variance, strict=True):
        gram = covariance[np.ix_(chosen, chosen)] + noise * np.eye(3)
        cross = covariance[np.ix_(others, chosen)]
        exact = covariance[others, others] - (cross @ np.linalg.inv(gram) * cross).sum(axis=1)
        assert np.allclose(variance[others], exact)


def test_measuring_the_same_time_twice_halves_what_the_noise_leaves():
    one = Conditioning(np.ones((1, 1, 1)), np.array([0.5]))
    variances = []
    for _ in range(3):
        one.add(0)
        variances.append(float(one.variance[0, 0]))
    assert np.allclose(variances, [1 / (1 + 2 * n) for n in (1, 2, 3)])  # 1/(1/v + n/σ²)


def test_the_covariance_of_members_is_that_of_numpy_averaged_over_starts():
    paths = np.random.default_rng(0).normal(size=(5, 3, 7, 2))
    found = Uncertainty.of_members(paths, paths[..., 0])
    exact = np.mean([np.cov(paths[:, start, :, 1].T) for start in range(3)], axis=0)
    assert np.allclose(found.covariance[1], exact)
    assert np.allclose(found.reward, found.covariance[0])
    assert np.linalg.matrix_rank(Uncertainty.of_members(paths[:, :1], paths[:, :1, :, 0]).covariance[0]) == 4


# greedy choices and their guarantees


@given(seed=st.integers(0, 200), k=st.integers(1, 4))
def test_max_determinant_has_the_guaranteed_share_of_the_best_set(seed, k):
    known = smooth(11, seed=seed, length=0.1)
    noise = Conditioning(known.covariance, known.noise).noise
    times = MaxDeterminant(m=k, candidates=11)(Key.from_seed(0), 1, context(known))
    greedy = information(known, np.rint(times[0]).astype(int).tolist(), noise)
    best = max(information(known, list(some), noise) for some in itertools.combinations(range(11), k))
    assert (1 - np.exp(-1)) * best <= greedy <= best + 1e-9
    if k == 1:
        assert greedy == pytest.approx(best)


def test_max_determinant_is_the_greedy_choice_by_determinants():
    known, chosen = smooth(60, outputs=3), []
    noise = Conditioning(known.covariance, known.noise).noise
    for _ in range(8):
        left = [i for i in range(60) if i not in chosen]
        chosen.append(max(left, key=lambda i: information(known, [*chosen, i], noise)))
    times = MaxDeterminant(m=8, candidates=60)(Key.from_seed(0), 1, context(known, horizon=59.0))
    assert np.array_equal(np.rint(times[0]), sorted(chosen))


def dispersion(known, chosen):
    """The least squared distance among chosen times and from zero: that of an error that is known."""
    variance = np.diagonal(known.covariance, axis1=1, axis2=2).sum(axis=0)
    covariance = known.covariance.sum(axis=0)
    pairs = [variance[i] + variance[j] - 2 * covariance[i, j] for i, j in itertools.combinations(chosen, 2)]
    return min([*pairs, *variance[list(chosen)]])


@given(seed=st.integers(0, 200))
def test_farthest_points_have_half_the_best_distance(seed):
    # a quarter of the squared one: Gonzalez (1985)
    known = smooth(10, seed=seed, length=0.1)
    times = MaxKernelDistance(m=3, candidates=10)(Key.from_seed(0), 1, context(known, horizon=9.0))
    found = dispersion(known, np.rint(times[0]).astype(int).tolist())
    best = max(dispersion(known, some) for some in itertools.combinations(range(10), 3))
    assert best / 4 - 1e-12 <= found <= best + 1e-12


def test_a_time_whose_error_is_already_known_is_chosen_last():
    paths = np.random.default_rng(0).normal(size=(6, 4, 1))
    paths[:, 2] = paths[:, 0]  # the same error as at the first time
    known = Uncertainty.of_members(paths, paths[..., 0])
    for sampler in (MaxDeterminant(m=3, candidates=4), MaxKernelDistance(m=3, candidates=4)):
        times = sampler(Key.from_seed(0), 1, context(known, horizon=3.0))[0]
        assert len({0.0, 2.0} & set(times.round(6))) == 1


def test_the_episodes_of_a_batch_share_the_work():
    """The next episode measures what the first one left: together they are the greedy choice of twice as many times."""
    known = smooth(200, length=0.02)
    both = MaxDeterminant(m=5, candidates=200)(Key.from_seed(0), 2, context(known))
    one = MaxDeterminant(m=10, candidates=200)(Key.from_seed(0), 1, context(known))
    assert np.allclose(np.sort(both.ravel()), one[0])


def test_receding_times_follow_each_other_within_the_horizon():
    known = smooth(500, outputs=1, length=0.05)
    sampler = Receding(m=6, candidates=500, error=0.5)
    criterion, chosen = sampler.criterion(known), []
    limit = 0.25 * known.covariance[0].diagonal().max()
    for _ in range(6):
        i = int(np.argmax(criterion.scores(chosen)))
        before = slice(chosen[-1] + 1 if chosen else 0, i)
        assert not (criterion.conditioning.variance[0, before] > limit).any()
        criterion.add(i)
        chosen.append(i)
    assert chosen == sorted(chosen)
    everywhere = replace(sampler, error=10.0)(Key.from_seed(0), 1, context(known))
    assert np.array_equal(everywhere, MaxDeterminant(m=6, candidates=500)(Key.from_seed(0), 1, context(known)))


def test_variance_threshold_measures_where_the_reward_first_exceeds_the_level():
    # Brownian motion from 0: the variance t − s after a measurement at s exceeds 1/4 after a quarter of a second
    t = np.linspace(0.0, 2.0, 401)
    brownian = np.minimum(t[:, None], t)
    known = Uncertainty(brownian[None], np.zeros(1), brownian)
    times = VarianceThreshold(m=5, candidates=401, level=0.5)(Key.from_seed(0), 1, context(known, horizon=2.0))[0]
    assert np.allclose(np.diff(times, prepend=0.0), 0.255, atol=0.011)  # the next candidate, and almost no noise
    fewer = VarianceThreshold(m=3, candidates=401, level=1.2)(Key.from_seed(0), 1, context(known, horizon=2.0))[0]
    assert fewer[0] < 1.45 < fewer[2]
    assert fewer[1] == pytest.approx(1.445, abs=0.01)  # 1.2² s; then the most uncertain ones


# stratified


def test_stratified_times_are_uniform_in_their_strata_and_together():
    times = Stratified(m=5)(Key.from_seed(0), 2000, Context(horizon=10.0))
    assert (np.floor(times / 2.0) == np.arange(5)).all()
    for column in [*(times / 2.0 % 1.0).T, times.ravel() / 10.0]:
        steps = np.arange(1, len(column) + 1) / len(column)
        assert np.abs(np.sort(column) - steps).max() < 1.63 / np.sqrt(len(column))  # Kolmogorov-Smirnov at 1 %


def test_the_mean_over_stratified_times_has_a_variance_of_order_three():
    integral = lambda m: (Stratified(m)(Key.from_seed(1), 4000, Context(1.0)) ** 2).mean(axis=1)  # noqa: E731
    errors = [integral(m).std() for m in (4, 8, 16)]
    assert np.allclose(np.array(errors[:-1]) / errors[1:], 2**1.5, rtol=0.1)


# what a sensor allows


@pytest.mark.parametrize("kind", ADAPTIVE)
@given(
    m=st.integers(1, 12),
    gap=st.sampled_from([0.0, 0.12, 0.35, 0.9]),
    start=st.booleans(),
    updates=st.integers(0, 1),
    window=st.integers(1, 3),
)
def test_times_keep_the_gap_the_grid_and_the_windows(kind, m, gap, start, updates, window):
    sampler = kind(m=m * window, min_gap=gap, grid=0.05, from_start=start, window=window, step=0.1)
    uncertainty = smooth(len(sampler.candidate_times(14.0)))
    times = sampler(Key.from_seed(0), 2, context(uncertainty, horizon=14.0, updates=updates))
    check_times(times, 14.0)
    assert np.allclose(times / 0.05, np.rint(times / 0.05))
    looks = times.reshape(2, m, window)
    assert np.allclose(np.diff(looks, axis=2), 0.1)
    assert (np.diff(looks[:, :, 0], axis=1) >= max(gap, window * 0.1 if window > 1 else 0.05) - 1e-9).all()
    assert not start or (times[:, 0] == 0.0).all()


@given(n=st.integers(1, 12), apart=st.integers(1, 5), data=st.data())
def test_a_candidate_is_allowed_if_and_only_if_the_others_can_be_placed(n, apart, data):
    spacing = Spacing(n, apart)
    sound = lambda some: all(b - a >= apart for a, b in itertools.pairwise(sorted(some)))  # noqa: E731
    sets = [set(some) for k in range(1, n + 1) for some in itertools.combinations(range(n), k) if sound(some)]
    assert spacing.capacity == max(map(len, sets))
    whole = data.draw(st.sampled_from(sets))
    chosen = sorted(whole)[: data.draw(st.integers(0, len(whole) - 1))]
    count = len(whole) - len(chosen)
    allowed = spacing.allowed(chosen, count)
    for i in range(n):
        possible = i not in chosen and any(set(chosen) | {i} <= some for some in sets if len(some) == len(whole))
        assert allowed[i] == possible


def test_before_the_first_update_times_are_equidistant():
    never = Context(10.0, Ledger(), uncertainty=lambda times, key: pytest.fail("an untrained model was asked"))
    assert np.allclose(MaxDeterminant(m=4, candidates=1001)(Key.from_seed(0), 2, never), [[2.0, 4.0, 6.0, 8.0]] * 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MaxDeterminant(m=0), "m: must be between 1 and 1,000,000, not 0"),
        (lambda: MaxDeterminant(m=5, window=2), "m: must be a multiple of window = 2, not 5"),
        (lambda: MaxDeterminant(min_gap=-1.0), "min_gap: must not be negative, got -1.0"),
        (
            lambda: MaxDeterminant(m=4, grid=0.04, window=2),
            r"step: 0.1 is not a whole number of steps of the grid, 0.04",
        ),
        (lambda: Receding(error=0.0), "error: must be positive, not 0.0"),
        (lambda: VarianceThreshold(level=-1.0), "level: must be positive, not -1.0"),
        (lambda: Stratified(0), "m: must be between 1 and 1,000,000, not 0"),
        (
            lambda: MaxDeterminant(m=6, min_gap=2.5).check_horizon(10.0),
            "sampler.m: the sensor allows 5 times in an episode of 10, not 6",
        ),
        (lambda: MaxDeterminant(m=4)(Key(0), 1, Context(1.0, Ledger(updates=1))), "needs the uncertainty of a learner"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


# in the loop


class Uncertain(CountingLearner):
    """A learner whose uncertainty is largest where it was updated most recently."""

    def uncertainty(self, state, times, key):
        paths = np.zeros((2, len(times), 1))
        paths[:, min(50 * state["updates"], len(times) - 1)] = [[1.0], [-1.0]]
        return Uncertainty.of_members(paths, paths[..., 0])


def test_the_loop_passes_the_uncertainty_of_the_current_model_to_the_sampler():
    system = CountingSystem()
    oracle = Oracle(system, horizon=4.0, budget=Budget(4))
    loop = Loop(oracle, MaxDeterminant(m=1, candidates=401), schedules.Every(1), Uncertain())
    list(loop.run(loop.init(Key.from_seed(0))))
    assert [round(float(times[0, 0]), 2) for _, times in system.asked] == [2.0, 0.5, 1.0, 1.5]


@pytest.mark.parametrize("kind", ADAPTIVE)
def test_a_learner_without_uncertainty_is_refused_before_anything_runs(kind):
    oracle = Oracle(CountingSystem(), horizon=4.0, budget=Budget(40))
    with pytest.raises(UnsupportedError, match=rf"{kind.__name__} needs the predictive uncertainty .* use uniform"):
        Loop(oracle, kind(), schedules.Every(1), CountingLearner())


def test_selection_among_a_thousand_candidates_takes_few_operations():
    """One column of the covariance per chosen time, so O(k²n) and no determinant."""

    class Counted(np.ndarray):
        reads = 0

        def __getitem__(self, index):
            Counted.reads += self.ndim == 3
            return super().__getitem__(index)

    known = smooth(1001, outputs=2)
    counted = known._replace(covariance=known.covariance.view(Counted))
    MaxDeterminant(m=20)(Key.from_seed(0), 1, context(counted))
    assert Counted.reads <= 25


def test_the_least_noise_keeps_a_covariance_of_low_rank_apart():
    paths = np.random.default_rng(1).normal(size=(3, 50, 1)).cumsum(axis=1)
    times = MaxDeterminant(m=10, candidates=50)(Key(0), 1, context(Uncertainty.of_members(paths, paths[..., 0])))
    assert len(np.unique(times)) == 10
    assert LEAST_NOISE > 0

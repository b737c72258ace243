"""The Eluder dimension against its definition, and Proposition 1."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from purectrl.core import InputError
from purectrl.theory import eluder_brute_force, eluder_greedy, eluder_linear, eluder_linear_trace

# Multiples of 1/8, whose sums and squares are exact: a tie is a tie in every order of summation.
MATRICES = st.tuples(st.integers(1, 5), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(0, 8).map(lambda k: k / 8))
)
ONE = np.ones((2, 2))


def by_definition(matrix, epsilon, power):
    """DE_p from the text: every ordering of every subset, ε' at every place where a condition can change, and between."""
    matrix = np.abs(matrix)
    sums = [(matrix[list(s)] ** power).sum(axis=0) ** (1 / power) for s in subsets(len(matrix))]
    ends = np.unique(np.concatenate([matrix.ravel(), np.ravel(sums), [epsilon]]))
    ends = ends[ends >= epsilon]
    best = 0
    for level in np.concatenate([ends, (ends[:-1] + ends[1:]) / 2]):
        for size in range(best + 1, len(matrix) + 1):
            if any(
                valid(matrix[list(order)], level, power) for order in itertools.permutations(range(len(matrix)), size)
            ):
                best = size
    return best


def subsets(n):
    return itertools.chain.from_iterable(itertools.combinations(range(n), k) for k in range(n + 1))


def valid(rows, level, power):
    before = (rows**power).cumsum(axis=0) - rows**power
    return ((rows > level) & (before <= level**power * (1 + 1e-12))).any(axis=1).all()


@settings(max_examples=60, deadline=None)
@given(MATRICES, st.sampled_from([0.05, 0.25, 0.5]), st.sampled_from([1.0, 2.0]))
def test_brute_force_is_the_definition_and_greedy_is_below_it(matrix, epsilon, power):
    if len(matrix) == 5:  # 5 rows take the reference 325 orderings a level; 4 are enough to disagree on
        matrix = matrix[:4]
    exact = eluder_brute_force(matrix, epsilon, power)
    assert exact == by_definition(matrix, epsilon, power)
    assert eluder_greedy(matrix, epsilon, power) <= exact <= min(matrix.shape)


def test_greedy_is_at_most_one_below_brute_force_on_random_matrices_and_mostly_equal():
    draws = np.random.default_rng(0)
    pairs = []
    for _ in range(60):
        matrix = draws.random((9, 7)) ** draws.integers(1, 6)
        epsilon, power = draws.uniform(0.02, 0.4), draws.choice([1.0, 2.0])
        pairs.append((eluder_greedy(matrix, epsilon, power), eluder_brute_force(matrix, epsilon, power)))
    assert all(exact - 1 <= low <= exact for low, exact in pairs)
    assert np.mean([low == exact for low, exact in pairs]) > 0.7


@pytest.mark.parametrize("find", [eluder_greedy, eluder_brute_force])
def test_known_dimensions(find):
    for d in (1, 4, 8):
        assert find(np.eye(d), 0.5) == d  # each function is seen by one distribution only
        assert find(np.ones((d, 3)), 0.5) == 1  # all distributions are the same
        assert find(np.eye(d), 1.0) == 0  # nothing exceeds ε
        assert find(np.tril(np.ones((d, d))), 0.5) == d  # only in the order that starts with the richest class unseen
        assert find(np.repeat(np.eye(d), 2, axis=0), 0.5) == d  # a distribution counts once


def test_linear_in_one_dimension_is_a_doubling_sequence():
    """h = w ψ with any 0 < w ≤ 1: p_l is independent iff ψ_l > Σ_{i<l} ψ_i, so doubling from 1/128 to 1 makes a sequence
    of 8: the log of Proposition 1 is attained, and what is inside it is R²L²/ε."""
    epsilon, psi = 2.0**-7 * (1 - 1e-6), 2.0 ** np.arange(-7, 1)
    matrix = psi[:, None] * (psi[0] / psi)[None]  # 4R²L² = 1
    assert eluder_brute_force(matrix, epsilon) == eluder_greedy(matrix, epsilon) == 8
    assert 8 <= eluder_linear_trace(1, 0.5, 1.0, epsilon) <= eluder_linear(1, 0.5, 1.0, epsilon)


def test_fewer_thresholds_are_a_lower_bound_still():
    matrix = np.random.default_rng(2).random((8, 8)) ** 4
    assert (
        1
        <= eluder_greedy(matrix, 0.01, thresholds=3)
        <= eluder_greedy(matrix, 0.01)
        <= eluder_brute_force(matrix, 0.01)
    )


@settings(max_examples=40, deadline=None)
@given(MATRICES, st.floats(0.01, 0.9), st.floats(1.0, 3.0))
def test_the_dimension_falls_with_epsilon(matrix, epsilon, factor):
    for find in (eluder_brute_force, eluder_greedy):
        assert find(matrix, epsilon * factor) <= find(matrix, epsilon)
    assert eluder_linear(2, 1.0, 1.0, epsilon * factor) <= eluder_linear(2, 1.0, 1.0, epsilon)


def test_the_definition_as_printed_has_no_bound():
    """|E_{p_l} h| > ε with ε' free: one distribution repeated is valid at any length, for ε' large enough."""
    for length in (1, 10, 100):
        rows = np.ones((length, 1))
        before = rows.cumsum(axis=0) - rows
        assert (rows > 0.5).all()
        assert (before <= max(0.5, length)).all()
    assert eluder_brute_force(np.ones((10, 1)), 0.5) == 1


def test_ell_one_is_below_ell_two():
    """Wang et al. 2023, Lemma 5.4, which Proposition 1 uses: an ℓ_1 sum below ε' has an ℓ_2 sum below ε'."""
    draws = np.random.default_rng(1)
    for _ in range(30):
        matrix = draws.random((7, 6)) ** 3
        assert eluder_brute_force(matrix, 0.05, 1.0) <= eluder_brute_force(matrix, 0.05, 2.0)


@pytest.mark.parametrize("features", [1, 2, 3])
def test_proposition_1_is_above_random_linear_classes(features):
    draws = np.random.default_rng(features)
    R, L = 1.0, 1.0
    for epsilon in (0.5, 0.05, 0.005):
        parameters = draws.normal(size=(100, 2, features))
        parameters *= R * draws.random((100, 1, 1)) ** 2 / np.linalg.norm(parameters, axis=(1, 2), keepdims=True)
        phi = draws.normal(size=(25, features))
        phi *= L * draws.random((25, 1)) ** 3 / np.linalg.norm(phi, axis=1, keepdims=True)
        matrix = (((parameters - parameters[0]) @ phi.T) ** 2).sum(axis=1).T  # point masses
        found = eluder_greedy(matrix, epsilon)
        assert 1 <= found <= eluder_linear_trace(features, R, L, epsilon) <= eluder_linear(features, R, L, epsilon)
        assert eluder_greedy(matrix, epsilon, power=2.0) <= eluder_linear(features, R, L, epsilon)


def test_the_linear_bound_solves_its_inequality():
    for features, epsilon in itertools.product((1, 2, 5), (3.0, 0.1, 1e-6)):
        for bound, D, x in (
            (eluder_linear, features**2, (4 / epsilon) ** 2),
            (eluder_linear_trace, features, 4 / epsilon),
        ):
            n = bound(features, 1.0, 1.0, epsilon)
            assert n * math.log(1.5) <= D * math.log1p(n * x / D) * (1 + 1e-9)
            assert (n + 1) * math.log(1.5) > D * math.log1p((n + 1) * x / D)
    assert eluder_linear(3, 0.1, 0.1, 1.0) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: eluder_greedy(np.ones(3), 0.1), r"expectations: must be an array .* not of shape \(3,\)"),
        (lambda: eluder_greedy(np.ones((0, 3)), 0.1), "expectations: must be an array"),
        (lambda: eluder_greedy(ONE * np.nan, 0.1), "expectations: must be finite"),
        (lambda: eluder_greedy(ONE, 0.1, thresholds=0), "thresholds: at least one ε' must be tried"),
        (lambda: eluder_greedy(ONE, 0.0), "epsilon: the scale ε must be positive"),
        (lambda: eluder_brute_force(ONE, -1.0), "epsilon: the scale ε must be positive"),
        (lambda: eluder_brute_force(ONE, 0.1, power=0.5), "power: the p of DE_p must be at least 1"),
        (lambda: eluder_brute_force(np.ones((17, 2)), 0.1), "expectations: brute force takes at most 16"),
        (lambda: eluder_linear(0, 1.0, 1.0, 0.1), "features: φ has at least one entry"),
        (lambda: eluder_linear(1, 0.0, 1.0, 0.1), "bound: must be positive"),
        (lambda: eluder_linear(1, 1.0, math.inf, 0.1), "feature_bound: must be positive and finite"),
        (lambda: eluder_linear(1, 1.0, 1.0, 0.0), "epsilon: must be positive"),
        (lambda: eluder_linear_trace(0, 1.0, 1.0, 0.1), "features: φ has at least one entry"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()

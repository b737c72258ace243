"""Schedules against the rules they stand for, written out as loops."""

import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from purectrl.core import Excess, InputError, Ledger, Which
from purectrl.core.schedules import batches, every, geometric, growing, on_misfit, update_points


@given(first=st.integers(1, 500), hundredths=st.integers(50, 400), m=st.integers(1, 16), initial=st.integers(0, 10))
@example(first=90, hundredths=110, m=1, initial=0)  # 90 · 1.1 is 99.00000000000001 in floating point
def test_geometric_is_the_rule_of_algorithms_4_and_5(first, hundredths, m, initial):
    total, kappa, expected, growth = 400, 0, [], Fraction(hundredths, 100)
    for n in range(initial + 1, total + 1):
        if growth**kappa * first / m <= n - initial:
            expected.append(n)
            kappa += 1
    assert update_points(geometric(first, hundredths / 100, initial), total, m) == expected


@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=8), initial=st.integers(1, 5))
def test_batches_update_before_or_after_each_batch(sizes, initial):
    total = initial + sum(sizes)
    before = update_points(batches(sizes, "before", initial), total)
    after = update_points(batches(sizes, "after", initial), total)
    assert [b - a for a, b in zip(before, after, strict=True)] == sizes
    assert before[0] == initial
    assert after[-1] == total


@given(k=st.integers(1, 50), total=st.integers(1, 300))
def test_every_kth_episode(k, total):
    assert update_points(every(k), total) == list(range(k, total + 1, k))


@given(episodes=st.integers(1, 20_000), count=st.integers(1, 40), growth=st.floats(0.05, 20.0))
def test_growing_batches_spend_all_episodes_and_grow_as_told(episodes, count, growth):
    if count > episodes:
        with pytest.raises(InputError, match=f"count: {count} batches need at least as many episodes, not {episodes}"):
            growing(episodes, count, growth)
        return
    sizes = growing(episodes, count, growth)
    assert sum(sizes) == episodes
    assert len(sizes) == count
    assert min(sizes) >= 1
    smallest = growth ** (0 if growth >= 1 else count - 1) / sum(growth**i for i in range(count)) * episodes
    if smallest >= 2:  # where rounding up to one episode does not bend it
        exact = [growth**i / sum(growth**j for j in range(count)) * episodes for i in range(count)]
        assert all(abs(size - ideal) <= 1 + 1e-6 * ideal for size, ideal in zip(sizes, exact, strict=True))


def test_the_batches_of_the_paper():
    assert growing(19_200, 4, 2.0) == [1280, 2560, 5120, 10240]
    assert growing(19_200, 2, 2.0) == [6400, 12800]


def test_episodes_after_the_last_batch_are_one_block_without_an_update():
    assert update_points(batches([2, 3]), episodes=100) == [2, 5]


@pytest.mark.parametrize(
    ("drift", "reward", "which"),
    [
        (4.999, 4.999, Which.NEITHER),
        (5.0, 0.0, Which.DRIFT),
        (0.0, 5.0, Which.REWARD),
        (7.0, 6.0, Which.BOTH),
    ],
)
def test_misfit_updates_only_the_set_that_failed(drift, reward, which):
    schedule = on_misfit(5.0)
    assert schedule.due(Ledger(), Excess(drift, reward)) == which
    assert schedule.block(Ledger(), 1) == 1
    assert schedule.watches_fit


def test_misfit_waits_for_the_exploring_episodes():
    schedule, wrong = on_misfit(5.0, initial=3), Excess(math.inf, 0.0)
    for rollouts, block, which in [(0, 3, Which.NEITHER), (2, 1, Which.NEITHER), (3, 3, Which.DRIFT)]:
        ledger = Ledger(rollouts=rollouts)
        assert (schedule.block(ledger, 1), schedule.due(ledger, wrong)) == (block, which)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: every(0), "k: the number of episodes between updates must be at least 1, not 0"),
        (lambda: batches([]), "sizes: at least one batch is needed"),
        (lambda: batches([2, 0]), r"sizes: every batch needs at least one episode, not \[2, 0\]"),
        (lambda: batches([2], update="during"), "update: must be 'before' or 'after', not 'during'"),
        (lambda: batches([2], initial=-1), "initial: the number of exploring episodes cannot be negative"),
        (lambda: batches([2], update="before"), "initial: updating before the first batch needs exploring episodes"),
        (lambda: geometric(0, 2), "first: the first batch must hold a positive number of measurements, not 0"),
        (lambda: geometric(10, 0), "growth: the growth factor η must be positive, not 0"),
        (lambda: geometric(10, 2, -1), "initial: the number of exploring episodes cannot be negative"),
        (lambda: on_misfit(0.0), "factor: the misfit test needs a positive factor, not 0.0"),
        (lambda: on_misfit(5.0, -1), "initial: the number of exploring episodes cannot be negative, got -1"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()

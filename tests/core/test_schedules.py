"""Schedules against the rules they stand for, written out as loops."""

import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from purectrl.core import ExcessLoss, InputError, Ledger, Targets
from purectrl.core.ledger import Budget
from purectrl.core.schedules import (
    Batches,
    DoublingBatches,
    EqualBatches,
    Every,
    Geometric,
    GrowingBatches,
    OnExcessLoss,
    geometric_batch_sizes,
    update_points,
)


@given(first=st.integers(1, 500), hundredths=st.integers(50, 400), m=st.integers(1, 16), initial=st.integers(0, 10))
@example(first=90, hundredths=110, m=1, initial=0)  # 90 · 1.1 is 99.00000000000001 in floating point
def test_geometric_is_the_rule_of_algorithms_4_and_5(first, hundredths, m, initial):
    total, kappa, expected, growth = 400, 0, [], Fraction(hundredths, 100)
    for n in range(initial + 1, total + 1):
        if growth**kappa * first / m <= n - initial:
            expected.append(n)
            kappa += 1
    assert update_points(Geometric(first, hundredths / 100, initial), total, m) == expected


@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=8), initial=st.integers(1, 5))
def test_batches_update_before_or_after_each_batch(sizes, initial):
    total = initial + sum(sizes)
    before = update_points(Batches(tuple(sizes), "before", initial), total)
    after = update_points(Batches(tuple(sizes), "after", initial), total)
    assert [b - a for a, b in zip(before, after, strict=True)] == sizes
    assert before[0] == initial
    assert after[-1] == total


@given(k=st.integers(1, 50), total=st.integers(1, 300))
def test_every_kth_episode(k, total):
    assert update_points(Every(k), total) == list(range(k, total + 1, k))


@given(episodes=st.integers(1, 20_000), count=st.integers(1, 40), growth=st.floats(0.05, 20.0))
def test_growing_batches_spend_all_episodes_and_grow_as_told(episodes, count, growth):
    if count > episodes:
        with pytest.raises(
            InputError, match=f"updates: {count} batches need at least as many episodes, not {episodes}"
        ):
            geometric_batch_sizes(episodes, count, growth)
        return
    sizes = geometric_batch_sizes(episodes, count, growth)
    assert sum(sizes) == episodes
    assert len(sizes) == count
    assert min(sizes) >= 1
    smallest = growth ** (0 if growth >= 1 else count - 1) / sum(growth**i for i in range(count)) * episodes
    if smallest >= 2:  # where rounding up to one episode does not bend it
        exact = [growth**i / sum(growth**j for j in range(count)) * episodes for i in range(count)]
        assert all(abs(size - ideal) <= 1 + 1e-6 * ideal for size, ideal in zip(sizes, exact, strict=True))


def test_the_batches_of_the_paper():
    assert geometric_batch_sizes(19_200, 4, 2.0) == [1280, 2560, 5120, 10240]
    assert geometric_batch_sizes(19_200, 2, 2.0) == [6400, 12800]


@given(episodes=st.integers(2, 5000), first=st.integers(1, 50), initial=st.integers(1, 20), size=st.integers(1, 50))
def test_budgeted_batches_spend_every_budget(episodes, first, initial, size):
    for schedule in (DoublingBatches(first, initial), EqualBatches(size, initial)):
        if initial >= episodes:
            with pytest.raises(InputError, match="leave nothing of a budget"):
                schedule.batches(episodes)
            continue
        batches = schedule.prepare(Budget(3 * episodes), m=3)
        assert batches.initial + sum(batches.sizes) == episodes
        assert list(batches.sizes) == sorted(batches.sizes, reverse=isinstance(schedule, EqualBatches))


def test_batches_that_do_not_spend_the_budget_are_refused_with_the_right_budget():
    with pytest.raises(
        InputError, match=r"initial \+ sizes = 5 episodes, .* holds 100 .* use a budget of 10 measurements"
    ):
        Batches((2, 3)).prepare(Budget(200), m=2)


def test_batch_sizes_that_depend_on_the_budget_need_it():
    with pytest.raises(InputError, match=r"call prepare\(budget, m\) first"):
        GrowingBatches().due(Ledger(), None)


@pytest.mark.parametrize(
    ("drift", "reward", "which"),
    [
        (4.999, 4.999, Targets.NEITHER),
        (5.0, 0.0, Targets.DRIFT),
        (0.0, 5.0, Targets.REWARD),
        (7.0, 6.0, Targets.BOTH),
    ],
)
def test_excess_loss_updates_only_the_set_that_failed_or_both(drift, reward, which):
    schedule = OnExcessLoss(5.0, renew="failed")
    assert schedule.due(Ledger(), ExcessLoss(drift, reward)) == which
    both = OnExcessLoss(5.0).due(Ledger(), ExcessLoss(drift, reward))
    assert both == (Targets.BOTH if which else Targets.NEITHER)
    assert schedule.episodes(Ledger(), 1) == 1
    assert schedule.needs_excess_loss


def test_excess_loss_is_not_tested_during_exploration():
    schedule, wrong = OnExcessLoss(5.0, initial=3), ExcessLoss(math.inf, 0.0)
    for rollouts, block, which in [(0, 3, Targets.NEITHER), (2, 1, Targets.NEITHER), (3, 3, Targets.BOTH)]:
        ledger = Ledger(rollouts=rollouts)
        assert (schedule.episodes(ledger, 1), schedule.due(ledger, wrong)) == (block, which)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Every(0), "k: must be between 1 and 1,000,000, not 0"),
        (lambda: Batches(()), "sizes: at least one batch is needed"),
        (lambda: Batches((2, 0)), r"sizes: every batch needs at least one episode, not \[2, 0\]"),
        (lambda: Batches((2,), update="during"), "unknown update 'during'"),
        (lambda: Batches((2,), initial=-1), "initial: must not be negative, got -1"),
        (lambda: Batches((2,), update="before"), "initial: updating before the first batch needs at least one episode"),
        (lambda: Geometric(0, 2), "first: must be positive, not 0"),
        (lambda: Geometric(10, 0), "growth: must be positive, not 0"),
        (lambda: Geometric(10, 2, -1), "initial: must not be negative, got -1"),
        (lambda: OnExcessLoss(0.0), "threshold: must be positive, not 0.0"),
        (lambda: OnExcessLoss(5.0, -1), "initial: must not be negative, got -1"),
        (lambda: GrowingBatches(updates=0), "updates: must be between 1 and 1,000,000, not 0"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_batches_count_measurements_where_episodes_end_early():
    """Two batches of 3 and 6 episodes of 10 measurements, in a run whose episodes have 4 each."""
    schedule = Batches((6,), "before", 3).prepare(Budget(90), 10)
    ledger, steps = Ledger(), []
    while ledger.measurements + 10 <= 90 and len(steps) < 50:
        episodes = min(schedule.episodes(ledger, 10), (90 - ledger.measurements) // 10)
        ledger = Ledger(ledger.rollouts + episodes, ledger.measurements + 4 * episodes, ledger.updates)
        due = bool(schedule.due(ledger, None))
        steps.append((episodes, due))
        ledger = ledger.count_update() if due else ledger
    assert [episodes for episodes, _ in steps[:4]] == [3, 2, 1, 1]  # up to 30 measurements
    assert [number for number, (_, due) in enumerate(steps) if due] == [4]
    assert ledger.measurements > 80
    with pytest.raises(InputError, match=r"call prepare\(budget, m\) first"):
        Batches((6,)).due(Ledger(), None)


def test_the_last_batch_ends_when_the_budget_has_no_room_for_another_episode():
    schedule = Batches((3, 6)).prepare(Budget(95), 10)
    assert not schedule.due(Ledger(20, 85, 1), None)
    assert schedule.due(Ledger(21, 86, 1), None)
    assert schedule.due(Ledger(9, 90, 1), None)  # whole episodes

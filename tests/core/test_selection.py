"""Samplers that take some of the measurements: how many per episode, and which. Closed forms, then the one loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from purectrl.core import Budget, InputError, Key, MeasurementError, UnsupportedError
from purectrl.core.learner import Update
from purectrl.core.ledger import Ledger
from purectrl.core.loop import Loop
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.oracle import Oracle
from purectrl.core.output_rules import LastPolicy
from purectrl.core.plan import Plan
from purectrl.core.prices import Prices
from purectrl.core.samplers import AutoM, Context, Equidistant, LargestBonus
from purectrl.core.samplers.auto_m import best_m, reward_correlation
from purectrl.core.schedules import GrowingBatches


def rewards_with(rho, episodes, m, seed=0):
    """Rewards of variance 1, of which the episode has the share rho, with another mean at each time."""
    draw = np.random.default_rng(seed)
    common, own = draw.standard_normal((episodes, 1)), draw.standard_normal((episodes, m))
    return np.sqrt(rho) * common + np.sqrt(1 - rho) * own + 3.0 * np.arange(m)


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
def test_the_correlation_is_that_of_the_rewards(rho):
    found = np.mean([reward_correlation(rewards_with(rho, 2000, 4, seed)) for seed in range(5)])
    assert found == pytest.approx(rho, abs=0.03)


def test_correlations_at_the_ends():
    assert reward_correlation(np.array([[1.0, 1.0], [2.0, 2.0]])) == 1.0
    assert reward_correlation(np.array([[1.0, -1.0], [-1.0, 1.0]])) == pytest.approx(-1.0)
    assert reward_correlation(np.ones((3, 2))) == 1.0
    with pytest.raises(InputError, match="a correlation needs two"):
        reward_correlation(np.ones((1, 4)))


@given(ratio=st.floats(0.01, 1000), rho=st.floats(0.001, 1.0), most=st.integers(2, 40))
def test_m_is_the_best_of_all_integers(ratio, rho, most):
    product = lambda m: (ratio + m) * (rho + (1 - rho) / m)  # noqa: E731
    found = best_m(ratio, rho, most)
    assert 1 <= found <= most
    assert product(found) <= min(product(m) for m in range(1, most + 1)) * (1 + 1e-12)
    exact = np.sqrt(ratio * (1 - rho) / rho)
    assert abs(found - np.clip(exact, 1, most)) < 1


def test_the_numbers_of_the_two_models():
    """A large model with a fast reward, and a small one with a slow reward."""
    assert {best_m(30.0, rho, 100) for rho in (0.5, 0.6, 0.7)} == {4, 5}
    assert best_m(14.5 / 4.1, 0.72, 100) == 1


class Known:
    """A learner whose bonus is the state, and which counts what it is given."""

    def init(self, key):
        return 0

    def update(self, state, data, which, key):
        return Update(state + 1, {}, {})

    def policy(self, state):
        return Plan(np.zeros(1), np.zeros(1))

    def bonus(self, state, offered):
        return offered.x[..., 0]


def system(rho=0.5):
    """A system whose state is a number that differs from episode to episode; rewards have correlation rho."""

    def selective(key, plan, times, selection):
        n, m = times.shape
        x = key.uniform(n, m)[..., None]
        u = np.zeros((n, m, 1))
        taken = selection.choose(Measurements(times, x, u), selection.asked, key.child("choice"))
        r = rewards_with(rho, n, m, seed=key.bits % 2**32)
        return Measurements(times, x, u, r=r).at(taken)

    def rollout(key, plan, times):
        raise AssertionError("all of these samplers select")

    return rollout, selective


def loop_of(sampler, N=240, updates=3, rho=0.5, **budget):
    rollout, selective = system(rho)
    oracle = Oracle(rollout, 1.0, Budget(N, **budget), selective=selective)
    return Loop(oracle, sampler, GrowingBatches(updates), Known(), LastPolicy())


def test_the_measurements_with_the_largest_bonus_are_taken_and_every_rollout_counts():
    loop = loop_of(LargestBonus(m=2, candidates=4))
    blocks = []
    for state, record in loop.run(loop.init(Key.from_seed(0))):  # noqa: B007
        blocks.append(record.block)
    ledger = state.ledger
    assert (ledger.measurements, ledger.rollouts, ledger.updates) == (240, 4 * 120, 3)
    for block in blocks[1:]:
        taken = block.x[..., 0][block.valid]
        rest = block.x[..., 0][~block.valid]
        assert taken.min() >= rest.max(), "none that was left out has a larger bonus"
    first = blocks[0].x[..., 0][blocks[0].valid]
    assert first.mean() == pytest.approx(0.5, abs=0.15), "before the first update any are taken"


def priced(sampler, measurement=1.0, rollout=9.0):
    return sampler.priced(Prices(measurement, rollout))


@pytest.mark.parametrize(("rho", "rollout", "m"), [(0.5, 9.0, 3), (0.9, 9.0, 1), (0.02, 9.0, 6), (0.5, 1.0, 1)])
def test_m_follows_from_prices_and_from_the_first_batch(rho, rollout, m):
    loop = loop_of(priced(AutoM(m=6), rollout=rollout), N=2400, rho=rho)
    counts = []
    for state, record in loop.run(loop.init(Key.from_seed(1))):  # noqa: B007
        counts.append(record.block.count)
        assert (record.block.t[record.block.valid] > 0).all()
    assert (counts[0] == 6).all(), "the first batch shows the correlation"
    for count in counts[1:]:
        assert (count[:-1] == m).all()
        assert 0 < count[-1] <= m
    assert state.ledger.measurements == 2400
    assert state.ledger.rollouts == sum(len(count) for count in counts)


def test_times_are_the_grid_of_m_star_and_end_at_the_horizon():
    sampler, seen = priced(AutoM(m=4), rollout=4.0), rewards_with(0.5, 400, 4)
    block = Measurements(np.tile([3.0, 6.0, 9.0, 12.0], (400, 1)), seen[..., None], seen[..., None], r=seen)
    context = Context(12.0, Ledger(updates=1), data=Dataset(block))
    assert sampler.current(context) == 2
    assert sampler(Key(0), 2, context).tolist() == [[6.0, 12.0, 12.0, 12.0]] * 2
    assert sampler.rollouts(5, context) == 10
    taken = sampler.select(block.first(3), 5, Key(0), context, lambda _: np.zeros((3, 4)))
    assert taken.tolist() == [[True, True, False, False]] * 2 + [[False, True, False, False]]


def test_what_cannot_work_is_refused():
    with pytest.raises(UnsupportedError, match="give problem\\.measurement_price"):
        AutoM().priced(Prices(measurement=1.0))
    with pytest.raises(InputError, match="shows no correlation"):
        AutoM(m=1)
    with pytest.raises(UnsupportedError, match="limit measurements alone"):
        loop_of(LargestBonus(), rollouts=10)
    rollout, _ = system()
    with pytest.raises(UnsupportedError, match="use equidistant, geometric or final"):
        Loop(Oracle(rollout, 1.0, Budget(10)), LargestBonus(), GrowingBatches(1), Known(), LastPolicy())


def test_a_rollout_must_return_what_was_asked_for():
    rollout, selective = system()
    fewer = lambda key, plan, times, selection: selective(key, plan, times, selection._replace(asked=1))  # noqa: E731
    oracle = Oracle(rollout, 1.0, Budget(10), selective=fewer)
    loop = Loop(oracle, LargestBonus(), GrowingBatches(1), Known(), LastPolicy())
    with pytest.raises(MeasurementError, match="returned 1 measurements, 10 were requested"):
        loop.step(loop.init(Key(0)))


def test_samplers_that_take_all_are_as_before():
    assert not Equidistant(4).selects
    assert Equidistant(4).rollouts(7, Context(1.0)) == 7
    one = Measurements(np.zeros((1, 1)), np.zeros((1, 1, 1)), np.zeros((1, 1, 1)))
    with pytest.raises(NotImplementedError, match="takes all measurements"):
        Equidistant(1).select(one, 1, Key(0), Context(1.0), lambda _: np.zeros((1, 1)))

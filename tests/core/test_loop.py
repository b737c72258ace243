"""The loop: an exact budget, an honest ledger, a state that is all there is."""

import numpy as np
import pytest
from counting import CountingLearner, CountingSystem
from hypothesis import given
from hypothesis import strategies as st

from purectrl.core import (
    Budget,
    BudgetError,
    InputError,
    Key,
    Ledger,
    Loop,
    MeasurementError,
    Oracle,
    Plan,
    outputs,
    samplers,
    schedules,
)

SAMPLERS = st.one_of(
    st.builds(samplers.uniform, st.integers(1, 9)),
    st.builds(samplers.equidistant, st.integers(1, 9)),
    st.builds(samplers.geometric, st.integers(1, 9), st.floats(0.1, 9.0)),
    st.builds(samplers.windows, st.integers(1, 3), st.just(1.0), st.sampled_from([0.25, 0.5, 1.0])),
    st.builds(samplers.exponential_gaps, st.integers(1, 9), st.floats(0.1, 9.0)),
    st.just(samplers.final()),
)
SCHEDULES = st.one_of(
    st.builds(schedules.every, st.integers(1, 9)),
    st.builds(schedules.batches, st.lists(st.integers(1, 9), min_size=1, max_size=5), st.just("after")),
    st.builds(schedules.batches, st.lists(st.integers(1, 9), min_size=1), st.just("before"), st.integers(1, 5)),
    st.builds(schedules.geometric, st.floats(0.5, 60.0), st.floats(0.5, 3.0), st.integers(0, 5)),
    st.builds(schedules.on_misfit, st.floats(0.5, 12.0)),
)


def make(sampler, schedule, measurements, output=outputs.uniform):
    system, learner = CountingSystem(), CountingLearner()
    oracle = Oracle(system, horizon=4.0, budget=Budget(measurements))
    return Loop(oracle, sampler, schedule, learner, output), system, learner


def same(one, other):
    """Whether two states agree bit for bit, seconds aside."""
    bare = lambda state: (state.key, state.steps, state.ledger[:4], state.learner, state.output)  # noqa: E731
    arrays = zip(one.data.arrays().items(), other.data.arrays().items(), strict=True)
    return bare(one) == bare(other) and all(a == b and np.array_equal(x, y) for (a, x), (b, y) in arrays)


@given(sampler=SAMPLERS, schedule=SCHEDULES, measurements=st.integers(1, 150), seed=st.integers(0, 99))
def test_the_budget_is_exact_and_the_ledger_honest(sampler, schedule, measurements, seed):
    if sampler.m > measurements:
        with pytest.raises(InputError, match="more than the whole budget"):
            make(sampler, schedule, measurements)
        return
    loop, system, learner = make(sampler, schedule, measurements)
    state = loop.init(Key.from_seed(seed))
    for state, record in loop.run(state):  # noqa: B020
        assert state.ledger.measurements <= measurements
        assert record.block.episodes >= 1
    assert state.ledger.rollouts == system.rollouts == measurements // sampler.m
    assert state.ledger.measurements == system.measurements == system.rollouts * sampler.m
    assert state.ledger.updates == len(learner.updates)
    assert state.data.episodes == system.rollouts
    assert np.array_equal(state.data.view.t, np.concatenate([times for _, times in system.asked]))
    with pytest.raises(BudgetError):
        loop.oracle(state.key, Plan(0, 0), np.zeros((measurements + 1, 1)), Ledger())


@given(sampler=SAMPLERS, schedule=SCHEDULES, seed=st.integers(0, 99))
def test_the_plan_changes_only_at_updates_and_the_schedule_says_when(sampler, schedule, seed):
    loop, _, _ = make(sampler, schedule, 120)
    updates = 0
    for state, record in loop.run(loop.init(Key.from_seed(seed))):
        assert record.plan == Plan(updates, 0)
        updates += bool(record.updated)
        assert state.ledger.updates == updates


@given(schedule=SCHEDULES, stop=st.integers(0, 30))
def test_a_state_is_all_there_is(schedule, stop):
    """Going on from any earlier state, in a new loop, repeats the run bit for bit."""
    loop, _, _ = make(samplers.uniform(2), schedule, 80)
    state = loop.init(Key.from_seed(5))
    states = [state, *[state for state, _ in loop.run(state)]]
    again, _, _ = make(samplers.uniform(2), schedule, 80)
    resumed = states[min(stop, len(states) - 1)]
    for resumed, _ in again.run(resumed):  # noqa: B020, B007
        pass
    assert same(states[-1], resumed)


def test_seeds_differ():
    loop, _, _ = make(samplers.uniform(), schedules.every(), 20)
    final = [list(loop.run(loop.init(Key.from_seed(seed))))[-1][0] for seed in (0, 0, 1)]
    assert same(final[0], final[1])
    assert not same(final[0], final[2])


def test_a_schedule_that_does_not_watch_the_fit_does_not_pay_for_it():
    loop, _, learner = make(samplers.uniform(), schedules.every(), 5)
    learner.excess = None
    assert [record.excess for _, record in loop.run(loop.init(Key.from_seed(0)))] == [None] * 5


def test_the_uniform_output_is_uniform_over_episodes():
    """Blocks of different sizes: the chosen plan's episode must still be uniform (Algorithms 1 to 3, Ensure)."""
    loop, _, _ = make(samplers.uniform(), schedules.batches([1, 2, 5, 12]), 20)
    chosen = [list(loop.run(loop.init(Key.from_seed(seed))))[-1][0].output.plan.policy for seed in range(2000)]
    found, expected = np.bincount(chosen, minlength=4), np.array([1, 2, 5, 12]) * 100
    assert (np.abs(found - expected) < 4 * np.sqrt(expected)).all()


def test_the_last_output_is_the_plan_after_the_last_update():
    loop, _, _ = make(samplers.uniform(), schedules.batches([5, 5]), 10, outputs.last)
    assert list(loop.run(loop.init(Key.from_seed(0))))[-1][0].output.plan == Plan(2, 0)


@pytest.mark.parametrize("block", [1, 20])
def test_the_best_measured_output_has_the_best_mean(block):
    """The middle one of three plans is better by half a standard deviation; blocks of one must not let luck win."""

    class Learner(CountingLearner):
        def plan(self, state):
            return Plan(min(state["seen"] // 400, 2), 0)

    def rollout(key, plan, times):
        block = CountingSystem()(key, plan, times)
        return type(block)(block.t, block.x, block.u, None, block.r + {0: 0.0, 1: 0.5, 2: 0.0}[plan.policy])

    oracle = Oracle(rollout, horizon=4.0, budget=Budget(1200))
    loop = Loop(oracle, samplers.uniform(), schedules.every(block), Learner(), outputs.best_measured)
    chosen = [list(loop.run(loop.init(Key.from_seed(seed))))[-1][0].output.plan for seed in range(20)]
    assert chosen == [Plan(1, 0)] * 20


@given(factor=st.floats(0.5, 12.0), m=st.integers(1, 3), ahead=st.integers(2, 40))
def test_running_ahead_changes_neither_decisions_nor_bills(factor, m, ahead):
    """The learner's misfit depends on what was seen alone, so both loops must update after the same episodes."""
    system, learner = CountingSystem(), CountingLearner()
    oracle = Oracle(system, 4.0, Budget(300), ahead=ahead)
    fast = Loop(oracle, samplers.uniform(m), schedules.on_misfit(factor), learner)
    slow, _, _ = make(samplers.uniform(m), schedules.on_misfit(factor), 300)
    points = []
    for loop in (fast, slow):
        steps = list(loop.run(loop.init(Key.from_seed(0))))
        points.append([(state.ledger[:3], record.updated) for state, record in steps if record.updated])
        assert steps[-1][0].ledger.rollouts == steps[-1][0].data.episodes == 300 // m
    assert points[0] == points[1]
    assert max(len(times) for _, times in system.asked) <= ahead


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (np.array([[-0.1]]), "times: -0.1 lies outside"),
        (np.array([[4.1]]), "times: 4.1 lies outside"),
        (np.array([[2.0, 1.0]]), "times: must be sorted"),
        (np.array([1.0]), "times: shape"),
        (np.zeros((0, 1)), "times: shape"),
        (np.array([[np.nan]]), "times: nan lies outside"),
    ],
)
def test_the_oracle_refuses_wrong_times_and_charges_nothing(times, message):
    loop, system, _ = make(samplers.uniform(), schedules.every(), 20)
    with pytest.raises(InputError, match=message):
        loop.oracle(Key.from_seed(0), Plan(0, 0), times, Ledger())
    assert system.asked == []


def test_the_oracle_names_what_the_system_did_wrong():
    def rollout(key, plan, times):
        block = CountingSystem()(key, plan, times)
        return type(block)(block.t[:, :1], block.x[:, :1], block.u[:, :1])

    oracle = Oracle(rollout, horizon=4.0, budget=Budget(60))
    with pytest.raises(MeasurementError, match=r"the rollout returned times \(1, 1\), others \(1, 2\) were asked for"):
        oracle(Key.from_seed(0), Plan(0, 0), np.array([[1.0, 2.0]]), Ledger())
    with pytest.raises(MeasurementError, match="outside the declared range"):
        Oracle(CountingSystem(), 4.0, Budget(60), reward_range=(5.0, 6.0))(
            Key.from_seed(0), Plan(0, 0), np.array([[1.0]]), Ledger()
        )


def test_an_unknown_phase_is_not_booked_silently():
    with pytest.raises(TypeError, match="'train'"):
        Ledger().spent(train=5.0)


def test_a_sampler_sees_what_an_adaptive_one_needs():
    seen = []

    def draw(key, episodes, context):
        seen.append((context.plan, context.data.episodes, context.ledger.rollouts, context.learner["seen"]))
        return np.ones((episodes, 1))

    loop, _, _ = make(samplers.Sampler("adaptive", 1, draw), schedules.every(2), 6)
    list(loop.run(loop.init(Key.from_seed(0))))
    assert seen == [(Plan(0, 0), 0, 0, 0), (Plan(1, 0), 2, 2, 2), (Plan(2, 0), 4, 4, 4)]


def test_a_budget_must_be_positive():
    with pytest.raises(InputError, match="measurements: the budget N must be at least 1, not -3"):
        Budget(-3)

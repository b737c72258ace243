"""The loop: an exact budget, an honest ledger, a state that is all there is."""

from dataclasses import dataclass

import numpy as np
import pytest
from counting import CountingLearner, CountingSystem
from hypothesis import given
from hypothesis import strategies as st

from purectrl.core import (
    Budget,
    BudgetError,
    Context,
    DivergenceWarning,
    InputError,
    Key,
    Ledger,
    Lookahead,
    Loop,
    MeasurementError,
    Oracle,
    Plan,
    UnsupportedError,
    Update,
    output_rules,
    samplers,
    schedules,
)

SAMPLERS = st.one_of(
    st.builds(samplers.Uniform, st.integers(1, 9)),
    st.builds(samplers.Equidistant, st.integers(1, 9)),
    st.builds(samplers.Geometric, st.integers(1, 9), st.floats(0.1, 9.0)),
    st.builds(samplers.Windows, st.integers(1, 3), st.just(1.0), st.sampled_from([0.25, 0.5, 1.0])),
    st.builds(samplers.ExponentialGaps, st.integers(1, 9), st.floats(0.1, 9.0)),
    st.just(samplers.Final()),
)
SCHEDULES = st.one_of(
    st.builds(schedules.Every, st.integers(1, 9)),
    st.builds(schedules.EqualBatches, st.integers(1, 9), st.just(0), st.just("after")),
    st.builds(schedules.DoublingBatches, st.integers(1, 9), st.just(0), st.just("after")),
    st.builds(schedules.GrowingBatches, st.just(1), st.floats(0.5, 3.0)),
    st.builds(schedules.Geometric, st.floats(0.5, 60.0), st.floats(0.5, 3.0), st.integers(0, 5)),
    st.builds(schedules.OnExcessLoss, st.floats(0.5, 12.0)),
)


def make(sampler, schedule, measurements, output=output_rules.UniformEpisode()):
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
    assert np.array_equal(state.data.all.t, np.concatenate([times for _, times in system.asked]))
    with pytest.raises(BudgetError):
        loop.oracle(state.key, np.zeros((measurements + 1, 1)), Context(4.0))


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
    loop, _, _ = make(samplers.Uniform(2), schedule, 80)
    state = loop.init(Key.from_seed(5))
    states = [state, *[state for state, _ in loop.run(state)]]
    again, _, _ = make(samplers.Uniform(2), schedule, 80)
    resumed = states[min(stop, len(states) - 1)]
    for resumed, _ in again.run(resumed):  # noqa: B020, B007
        pass
    assert same(states[-1], resumed)


@pytest.mark.parametrize("kind", ["jax.numpy", "torch"])
def test_a_restored_copy_of_a_plan_is_the_same_plan(kind):
    """Or a resumed run would evaluate a policy once more than an uninterrupted one."""
    array = __import__(kind, fromlist=["ones"]).ones
    one, copy = (Plan({"layers": [array(2), "tanh"], "scale": array(()) * float("nan")}, None) for _ in range(2))
    assert output_rules.same(one, copy)
    assert not output_rules.same(one, Plan({"layers": [array(2) * 2, "tanh"], "scale": one.policy["scale"]}, None))
    assert not output_rules.same(one, Plan({"layers": [array(3), "tanh"], "scale": one.policy["scale"]}, None))


def test_seeds_differ():
    loop, _, _ = make(samplers.Uniform(), schedules.Every(), 20)
    final = [list(loop.run(loop.init(Key.from_seed(seed))))[-1][0] for seed in (0, 0, 1)]
    assert same(final[0], final[1])
    assert not same(final[0], final[2])


def test_a_schedule_that_does_not_need_the_excess_loss_does_not_compute_it():
    loop, _, learner = make(samplers.Uniform(), schedules.Every(), 5)
    learner.excess_loss = None
    assert [record.excess_loss for _, record in loop.run(loop.init(Key.from_seed(0)))] == [None] * 5


def test_the_uniform_output_is_uniform_over_episodes():
    """Blocks of different sizes: the chosen plan's episode must still be uniform (Algorithms 1 to 3, Ensure)."""
    loop, _, _ = make(samplers.Uniform(), schedules.Batches((1, 2, 5, 12)), 20)
    chosen = [list(loop.run(loop.init(Key.from_seed(seed))))[-1][0].output.plan.policy for seed in range(2000)]
    found, expected = np.bincount(chosen, minlength=4), np.array([1, 2, 5, 12]) * 100
    assert (np.abs(found - expected) < 4 * np.sqrt(expected)).all()


def test_the_last_output_is_the_plan_after_the_last_update():
    loop, _, _ = make(samplers.Uniform(), schedules.Batches((5, 5)), 10, output_rules.LastPolicy())
    assert list(loop.run(loop.init(Key.from_seed(0))))[-1][0].output.plan == Plan(2, 0)


@pytest.mark.parametrize("block", [1, 20])
def test_the_best_measured_output_has_the_best_mean(block):
    """The middle one of three plans is better by half a standard deviation; blocks of one must not let luck win."""

    class Learner(CountingLearner):
        def policy(self, state):
            return Plan(min(state["seen"] // 400, 2), 0)

    def rollout(key, plan, times):
        block = CountingSystem()(key, plan, times)
        return type(block)(block.t, block.x, block.u, None, block.r + {0: 0.0, 1: 0.5, 2: 0.0}[plan.policy])

    oracle = Oracle(rollout, horizon=4.0, budget=Budget(1200))
    loop = Loop(oracle, samplers.Uniform(), schedules.Every(block), Learner(), output_rules.BestMeasured())
    chosen = [list(loop.run(loop.init(Key.from_seed(seed))))[-1][0].output.plan for seed in range(20)]
    assert chosen == [Plan(1, 0)] * 20


@given(threshold=st.floats(0.5, 12.0), m=st.integers(1, 3), lookahead=st.integers(2, 40))
def test_looking_ahead_changes_neither_decisions_nor_costs(threshold, m, lookahead):
    """The learner's excess loss depends on the measurements only, so both loops must update after the same episodes."""
    system, learner = CountingSystem(), CountingLearner()
    schedule = schedules.OnExcessLoss(threshold)
    oracle = Lookahead(Oracle(system, 4.0, Budget(300)), schedule, learner, lookahead)
    fast = Loop(oracle, samplers.Uniform(m), schedule, learner)
    slow, _, _ = make(samplers.Uniform(m), schedule, 300)
    points = []
    for loop in (fast, slow):
        steps = list(loop.run(loop.init(Key.from_seed(0))))
        points.append([(state.ledger[:3], record.updated) for state, record in steps if record.updated])
        assert steps[-1][0].ledger.rollouts == steps[-1][0].data.episodes == 300 // m
    assert points[0] == points[1]
    assert max(len(times) for _, times in system.asked) <= lookahead


class PlainLearner:
    """A learner without optional capabilities."""

    def init(self, key):
        return 0

    def update(self, state, data, which, key):
        return Update(state, {"loss": 1.0}, {}, diverged="the fit diverged" if data.episodes == 4 else "")

    def policy(self, state):
        return Plan(state, 0)


def test_a_schedule_that_needs_the_excess_loss_is_refused_before_a_rollout_if_the_learner_has_none():
    system = CountingSystem()
    with pytest.raises(UnsupportedError, match=r"OnExcessLoss needs the excess loss .* PlainLearner does not compute"):
        Loop(Oracle(system, 4.0, Budget(20)), samplers.Uniform(), schedules.OnExcessLoss(), PlainLearner())
    assert system.asked == []


def test_a_learner_that_cannot_look_ahead_is_refused_before_a_rollout():
    learner = CountingLearner()
    learner.can_look_ahead = False
    for one in (learner, PlainLearner()):
        with pytest.raises(InputError, match="cannot compute excess losses ahead"):
            Lookahead(Oracle(CountingSystem(), 4.0, Budget(20)), schedules.OnExcessLoss(), one, 4)


def test_an_update_that_diverged_is_reported_in_one_place():
    loop = Loop(Oracle(CountingSystem(), 4.0, Budget(6)), samplers.Uniform(), schedules.Every(2), PlainLearner())
    with pytest.warns(DivergenceWarning, match="update 2, after 4 episodes: the fit diverged"):
        records = [record for _, record in loop.run(loop.init(Key.from_seed(0)))]
    assert [record.info.get("rolled_back") for record in records] == [
        None,
        "update 2, after 4 episodes: the fit diverged",
        None,
    ]


def test_a_budget_of_rollouts_ends_the_run():
    system = CountingSystem()
    loop = Loop(Oracle(system, 4.0, Budget(100, rollouts=7)), samplers.Uniform(3), schedules.Every(2), PlainLearner())
    with pytest.warns(DivergenceWarning):
        state = list(loop.run(loop.init(Key.from_seed(0))))[-1][0]
    assert (system.rollouts, state.ledger.rollouts, state.ledger.measurements) == (7, 7, 21)
    with pytest.raises(BudgetError, match="1 more rollouts requested, 0 of 7 left"):
        loop.oracle(Key(0), np.zeros((1, 3)), Context(4.0, ledger=state.ledger))


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
    loop, system, _ = make(samplers.Uniform(), schedules.Every(), 20)
    with pytest.raises(InputError, match=message):
        loop.oracle(Key.from_seed(0), times, Context(4.0))
    assert system.asked == []


def test_the_oracle_names_what_the_system_did_wrong():
    def rollout(key, plan, times):
        block = CountingSystem()(key, plan, times)
        return type(block)(block.t[:, :1], block.x[:, :1], block.u[:, :1])

    oracle = Oracle(rollout, horizon=4.0, budget=Budget(60))
    with pytest.raises(MeasurementError, match=r"the rollout returned times \(1, 1\), others \(1, 2\) were requested"):
        oracle(Key.from_seed(0), np.array([[1.0, 2.0]]), Context(4.0, plan=Plan(0, 0)))
    with pytest.raises(MeasurementError, match="outside the declared range"):
        Oracle(CountingSystem(), 4.0, Budget(60), reward_range=(5.0, 6.0))(
            Key.from_seed(0), np.array([[1.0]]), Context(4.0, plan=Plan(0, 0))
        )


def test_an_unknown_phase_is_refused():
    with pytest.raises(TypeError, match="'train'"):
        Ledger().add_seconds(train=5.0)


def test_a_sampler_sees_what_an_adaptive_one_needs():
    seen = []

    @dataclass(frozen=True)
    class Adaptive(samplers.Sampler):
        m: int = 1

        def draw(self, key, episodes, context):
            seen.append((context.plan, context.data.episodes, context.ledger.rollouts, context.learner["seen"]))
            return np.ones((episodes, 1))

    loop, _, _ = make(Adaptive(), schedules.Every(2), 6)
    list(loop.run(loop.init(Key.from_seed(0))))
    assert seen == [(Plan(0, 0), 0, 0, 0), (Plan(1, 0), 2, 2, 2), (Plan(2, 0), 4, 4, 4)]


@pytest.mark.parametrize("wrong", [{"measurements": -3}, {"measurements": 10, "rollouts": 0}])
def test_a_budget_must_be_positive(wrong):
    with pytest.raises(InputError, match="the budget must be at least 1"):
        Budget(**wrong)


class EndingLearner(CountingLearner):
    """A learner that ends the run after its second update."""

    def finished(self, state):
        return state["updates"] >= 2


def test_a_learner_may_end_the_run_with_the_rest_of_the_budget_unspent():
    system = CountingSystem()
    loop = Loop(Oracle(system, 1.0, Budget(100)), samplers.Uniform(m=2), schedules.Every(k=3), EndingLearner())
    states = [loop.init(Key.from_seed(0))]
    states += [state for state, _ in loop.run(states[0])]
    assert states[-1].ledger.updates == 2
    assert system.measurements == states[-1].ledger.measurements == 12
    assert [loop.finished(state) for state in states] == [False, False, True]
    assert list(loop.run(states[-1])) == []
    again = list(loop.run(states[1]))
    assert again[-1][0].learner == states[-1].learner

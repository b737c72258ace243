"""PURE-auto: what it decides from promised and measured returns, that it stops, and that it continues bit for bit."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_cart import cart

import purectrl as pc
from purectrl.control.auto_learner import (
    CONFIRMATIONS,
    LEAST_NEW,
    MOST_REFUSED,
    MOST_REFUSED_LEARNED,
    STALLED,
    AutoLearner,
)
from purectrl.control.auto_settings import Auto, EnsembleSettings, KnownModel, RoundSettings
from purectrl.control.auto_state import crown
from purectrl.control.exploring_policy import ExploringActor, smooth_noise
from purectrl.control.plan_rounds import Outcome, RoundPlanner
from purectrl.control.planner import ImaginedTest, Round
from purectrl.control.promised_return import best_reward
from purectrl.core import Dataset, Key, Measurements, PlanningWarning, UnsupportedError
from purectrl.core.algorithm import Algorithm
from purectrl.core.ledger import Budget
from purectrl.core.output_rules import LastPolicy, same
from purectrl.core.samplers import PacedWindows
from purectrl.core.schedules import OnExcessLoss, Targets
from purectrl.problems.mechanical_systems import mechanical
from purectrl.runs.serialization import pack_state, unpack_state

PLAN = RoundSettings(steps=120, rounds=3, snapshots=2, batch_size=32, ensemble_size=2, width=16, test_steps=50)
MODEL = EnsembleSettings(2, 16, gradient_matching_steps=50, steps=200, finetune_steps=100, batch_size=32)
M = 50


SYSTEM = replace(
    cart(), log_reward=lambda x, u: -4 * (x[..., 0] - 0.8) ** 2 - 0.1 * x[..., 1] ** 2 - 0.01 * u[..., 0] ** 2
)
"""A spring pulls the cart to 0, and it should be held at 0.8: doing nothing is bad."""


def problem():
    return mechanical(SYSTEM, horizon=10.0)


def algorithm(learner):
    return Algorithm(PacedWindows(m=M, windows=5), OnExcessLoss(1.0, initial=2), learner, LastPolicy(), "small")


@pytest.fixture(scope="module")
def learner() -> AutoLearner:
    found = algorithm(KnownModel(PLAN)).build(problem(), Budget(10 * M)).learner
    assert isinstance(found, AutoLearner)
    return found


def state_of(learner, **values):
    state = learner.init(Key.from_seed(0))._replace(use_actor=1.0, rate=1.0, measurement_step=0.1)
    return state._replace(random_reward=0.0, best_reward=1.0, **values)


def data(episodes=3):
    shape = episodes, M
    t = np.tile(np.linspace(0, 9, M), (episodes, 1))
    return Dataset(Measurements(t, np.zeros((*shape, 2)), np.zeros((*shape, 1)), r=np.zeros(shape)))


def promises(learner, monkeypatch, promised, measured):
    monkeypatch.setattr(AutoLearner, "_promise", lambda *_: (promised, measured))
    return learner


def planned(learner, new, old):
    """A round whose policy promises `new`, one number per member, where that of the champion promises `old`."""
    state = learner.init(Key.from_seed(1))
    test, before = (ImaginedTest(jnp.asarray(j)[:, None], jnp.asarray(j)[:, None]) for j in (new, old))
    return Round(state.actor, state.critic, test, before, (state.actor, state.critic), jnp.zeros(()))


def test_a_kept_promise_of_a_converged_plan_ends_the_run(learner, monkeypatch):
    kept = promises(learner, monkeypatch, 0.80, 0.81)
    excess, state = kept.excess_loss(
        state_of(learner, converged=True, good=True, agreed=True), data(), Key.from_seed(0)
    )
    assert excess.drift < 1
    assert learner.finished(state)
    assert state.champion_return == 0.81
    assert "promise was kept" in learner.summarize(state)["decision"]


def test_a_kept_promise_from_an_easy_initial_state_is_followed_by_another_episode(learner, monkeypatch):
    """The policy promises 0.5 on average, and 0.95 from where this episode began."""
    easy = promises(learner, monkeypatch, 0.95, 0.96)
    before = state_of(learner, converged=True, good=True, agreed=True, imagined=0.5)
    excess, state = easy.excess_loss(before, data(), Key.from_seed(0))
    assert excess.drift == 0.0
    assert not learner.finished(state)
    _, state = promises(learner, monkeypatch, 0.52, 0.53).excess_loss(state, data(), Key.from_seed(0))
    assert learner.finished(state)


def test_where_episodes_can_end_a_promise_is_kept_several_times(learner, monkeypatch):
    kept = promises(replace(learner, spec=replace(learner.spec, may_terminate=True)), monkeypatch, 0.80, 0.81)
    state = state_of(learner, converged=True, good=True, agreed=True)
    for _ in range(CONFIRMATIONS):
        assert not learner.finished(state)
        excess, state = kept.excess_loss(state, data(), Key.from_seed(0))
        assert excess.drift < 1
    assert learner.finished(state)


@pytest.mark.parametrize(
    "changed",
    [{"promised": 0.9}, {"converged": False}, {"good": False}, {"agreed": False}, {"champion_return": 0.9}],
    ids=["broken", "not converged", "not good", "doubted by a member", "worse than the champion"],
)
def test_otherwise_an_update_is_due(learner, monkeypatch, changed):
    how = {"converged": True, "good": True, "agreed": True, "champion_return": -np.inf, **changed}
    broken = promises(learner, monkeypatch, how.pop("promised", 0.8), 0.8)
    before = state_of(learner, champion_episodes=1, **how)
    excess, state = broken.excess_loss(before, data(), Key.from_seed(0))
    assert excess.drift >= 1
    assert not learner.finished(state)


def test_when_the_budget_is_spent_the_run_ends_with_a_policy_that_was_executed(learner, monkeypatch):
    promises(learner, monkeypatch, 0.9, 0.5)
    everything = data(episodes=10)
    excess, best = learner.excess_loss(state_of(learner, champion_return=0.4), everything, Key.from_seed(0))
    assert learner.finished(best)
    assert excess.drift < 1  # no update is spent on a policy that could not be executed
    champion = learner.init(Key.from_seed(7)).actor
    before = state_of(learner, champion=champion, champion_return=0.8, champion_episodes=1)
    excess, worse = learner.excess_loss(before, everything, Key.from_seed(0))
    assert excess.drift >= 1
    after = learner.update(worse, everything, Targets.BOTH, Key.from_seed(0)).state
    assert learner.finished(after)
    assert same(after.actor, champion)


@pytest.mark.parametrize(
    ("fresh", "patient", "executed", "rounds"),
    [(0.9, 0.0, "fresh", 5), (0.2, 0.1, "champion", 9), (0.31, 0.6, "patient", 9), (0.35, 0.6, "fresh", 5)],
)
def test_planning_from_champion_and_from_untrained_networks(learner, monkeypatch, fresh, patient, executed, rounds):
    """The better policy is found; the second planning goes on with patience if neither adds anything to a bad champion."""
    plans = {
        "champion": (planned(learner, [0.3, 0.3], [0.3, 0.3]), Outcome(True, False, 2)),
        "fresh": (planned(learner, [fresh, fresh], [fresh, fresh]), Outcome(True, False, 3)),
        "patient": (planned(learner, [patient, patient], [patient, patient]), Outcome(True, False, 4)),
    }
    state = state_of(learner, champion_return=0.3, champion_episodes=1)

    def plan(_planner, state, _model, _region, _test_key, networks, _key, patient):
        return plans["patient" if patient else "champion" if networks[0] is state.champion else "fresh"]

    monkeypatch.setattr(RoundPlanner, "_rounds", plan)
    best, outcome = learner.planner.improve(state, state.model, None, Key.from_seed(0))
    assert best.test is plans[executed][0].test
    assert best.before.whole.mean() == pytest.approx(0.3)  # that of the champion, in any case
    assert outcome.rounds == rounds


def test_episodes_that_end_early_are_collected_before_an_update(learner, monkeypatch):
    """One measurement per episode of M: an update is due after a fifth of M, or if the budget is spent."""
    promises(learner, monkeypatch, 0.9, 0.5)
    least = int(LEAST_NEW * M)
    few, enough = (
        Dataset(replace(data(n).all, count=np.ones(n, int), final=np.zeros((n, 2)))) for n in (least - 1, least)
    )
    for state in (learner.init(Key.from_seed(0)), state_of(learner)):
        assert learner.excess_loss(state, few, Key.from_seed(0))[0].drift == 0.0
        assert learner.excess_loss(state, enough, Key.from_seed(0))[0].drift >= 1.0
        late = state._replace(fitted=least)
        assert learner.excess_loss(late, enough, Key.from_seed(0))[0].drift == 0.0


def test_random_exploration_is_always_followed_by_an_update(learner):
    state = learner.init(Key.from_seed(0))
    excess, after = learner.excess_loss(state, data(), Key.from_seed(0))
    assert excess.drift == np.inf
    assert after is state


def test_the_champion_is_the_policy_that_measured_best_and_its_episodes_are_averaged(learner):
    first = crown(state_of(learner), 0.5, 0.2, better=True)
    assert (first.champion_return, first.champion_episodes, first.executes_champion) == (0.5, 1, True)
    again = crown(first, 0.7, 0.02, better=False)
    assert (again.champion_return, again.champion_episodes) == (pytest.approx(0.6), 2)
    assert (first.champion_error, again.champion_error) == (pytest.approx(0.2), pytest.approx(0.02))
    assert crown(again, 0.7, np.inf, better=False).champion_error == again.champion_error  # that episode showed little
    other = learner.init(Key.from_seed(5)).actor
    worse = crown(again._replace(actor=other, executes_champion=False), 0.55, 0.35, better=False)
    assert worse.champion is first.actor
    assert worse.champion_error == again.champion_error
    better = crown(again._replace(actor=other, executes_champion=False), 0.65, 0.25, better=False)
    assert better.champion is other
    assert better.champion_episodes == 1


@pytest.mark.parametrize(("rival", "crowned"), [(0.5, True), (0.7, False)])
def test_returns_from_different_initial_states_are_compared_by_what_the_champion_promises(
    learner, monkeypatch, rival, crowned
):
    """The champion measured 0.9 from a good initial state; from that of the last episode it promises `rival`."""
    champion, new = (learner.init(Key.from_seed(seed)).actor for seed in (5, 6))
    monkeypatch.setattr(
        AutoLearner, "_promise", lambda _, state, actor, seen: (rival if actor is champion else 0.6, 0.61)
    )
    how = {"converged": True, "good": True, "agreed": True}
    before = state_of(learner, champion=champion, champion_return=0.9, champion_episodes=1, **how)
    _, state = learner.excess_loss(before._replace(actor=new), data(), Key.from_seed(0))
    assert (state.champion is new) == crowned
    assert learner.finished(state) == crowned


def test_a_policy_that_measured_more_than_it_promised_becomes_the_champion_but_does_not_end_the_run(
    learner, monkeypatch
):
    champion, new = (learner.init(Key.from_seed(seed)).actor for seed in (5, 6))
    monkeypatch.setattr(
        AutoLearner, "_promise", lambda _, state, actor, seen: (0.5 if actor is champion else 0.6, 0.89)
    )
    how = {"converged": True, "good": True, "agreed": True}
    before = state_of(learner, champion=champion, champion_return=0.9, champion_episodes=1, **how)
    excess, state = learner.excess_loss(before._replace(actor=new), data(), Key.from_seed(0))
    assert state.champion is new
    assert excess.drift >= 1  # the model is wrong
    assert not learner.finished(state)


def test_a_better_policy_is_executed_and_a_worse_one_is_not(learner):
    state = state_of(learner, champion_return=0.7, champion_episodes=1, executes_champion=True)
    better = learner._decide(state, planned(learner, [0.8, 0.8], [0.7, 0.7]), first=False)
    assert not better.executes_champion
    assert better.agreed
    assert not same(better.actor, state.champion)
    assert "0.8" in better.decision
    risky = learner._decide(state, planned(learner, [1.0, 0.8], [0.85, 0.85]), first=False)
    assert same(risky.actor, state.champion)
    assert "worse in one member" in risky.decision
    nothing_to_lose = learner._decide(state, planned(learner, [0.8, 0.1], [0.2, 0.2]), first=False)
    assert not nothing_to_lose.executes_champion
    assert not nothing_to_lose.agreed


def test_a_policy_that_never_fails_replaces_a_champion_that_sometimes_does(learner):
    """The returns hardly differ, but one imagined episode of the champion ends far from the highest reward."""
    state = state_of(learner, champion_return=0.9, champion_episodes=1, champion_error=0.01, good=True)
    plan = planned(learner, [0.91, 0.91], [0.9, 0.9])
    fails = plan.before._replace(late=plan.before.late.at[:, 0].set(0.3))
    safe = plan.test._replace(late=jnp.ones_like(plan.test.late))
    found = learner._decide(state, plan._replace(test=safe, before=fails), first=False)
    assert not found.executes_champion
    kept = learner._decide(state, plan._replace(test=safe, before=safe), first=False)
    assert kept.executes_champion
    assert kept.good
    assert learner.finished(kept)


def test_the_run_ends_with_the_champion_if_no_better_policy_is_predicted(learner):
    state = state_of(learner, champion_return=0.7, champion_episodes=1, champion_error=0.01, good=True)
    plan = planned(learner, [0.7, 0.7], [0.7, 0.7])
    done = learner._decide(state, plan, first=False)
    assert learner.finished(done)
    assert same(learner.policy(done).policy.actor, state.champion)


def test_a_low_return_is_given_more_data_before_the_planner_is_reported_and_the_run_ends(learner):
    state = state_of(learner, champion_return=0.3, champion_episodes=1, champion_error=0.01)
    plan = planned(learner, [0.3, 0.3], [0.3, 0.3])
    for _ in range(MOST_REFUSED - 1):
        state = learner._decide(state, plan, first=False)
        assert not learner.finished(state)
        assert "its return is low" in state.decision
    with pytest.warns(PlanningWarning, match="the planner is the bottleneck, not the data"):
        state = learner._decide(state, plan, first=False)
    assert learner.finished(state)
    assert "also from untrained networks" in state.decision


def test_with_a_learned_reward_a_policy_that_is_not_good_is_given_more_data(learner):
    unknown = replace(learner, spec=replace(learner.spec, reward=None))
    state = state_of(learner, champion_return=0.9, champion_episodes=1, champion_error=0.01)
    plan = planned(learner, [0.9, 0.9], [0.9, 0.9])
    assert learner.finished(learner._decide(state, plan, first=False))
    for _ in range(MOST_REFUSED_LEARNED - 1):
        state = unknown._decide(state, plan, first=False)
        assert not unknown.finished(state)
        assert "the reward is learned" in state.decision
    assert unknown.finished(unknown._decide(state, plan, first=False))


def test_a_champion_whose_promise_is_broken_is_measured_again_with_ever_more_episodes(learner, monkeypatch):
    """The run goes on for some updates, and the next update needs 1, 2, 4, … new episodes."""
    state = state_of(learner, champion_return=0.7, champion_episodes=1, champion_error=0.3, good=True)
    plan = planned(learner, [0.9, 0.9], [0.9, 0.9])
    promises(learner, monkeypatch, 0.7, 0.4)
    for episodes in (1, 2, 4):
        state = learner._decide(state, plan, first=False)
        assert not learner.finished(state)
        assert "its return is not understood" in state.decision
        due = [learner.excess_loss(state, data(n), Key.from_seed(0))[0].drift >= 1 for n in range(1, 6)]
        assert due == [n >= episodes for n in range(1, 6)]
    understood = learner._decide(state._replace(champion_error=0.01, refused=0), plan, first=False)
    assert learner.finished(understood)
    assert learner.finished(
        learner._decide(state, plan, first=False)
    )  # seven more episodes have predicted nothing better
    low = planned(learner, [0.3, 0.3], [0.3, 0.3])
    assert not learner.finished(learner._decide(state._replace(good=False, stalled=0), low, first=False))


def test_an_update_waits_until_the_data_have_grown(learner, monkeypatch):
    promises(learner, monkeypatch, 0.9, 0.5)
    state = state_of(learner, fitted=6 * M)
    assert learner.excess_loss(state, data(7), Key.from_seed(0))[0].drift >= 1  # by a sixth
    state = state_of(learner, fitted=7 * M)
    assert learner.excess_loss(state, data(8), Key.from_seed(0))[0].drift == 0.0  # by a seventh
    assert learner.excess_loss(state, data(9), Key.from_seed(0))[0].drift >= 1


def test_the_first_update_needs_measurements_for_every_input(learner):
    """Three inputs: 150 measurements, that is three episodes."""
    state = learner.init(Key.from_seed(0))
    assert learner.excess_loss(state, data(2), Key.from_seed(0))[0].drift == 0.0
    assert learner.excess_loss(state, data(3), Key.from_seed(0))[0].drift == np.inf
    ended = Dataset(replace(data(2).all, final=np.zeros((2, 2))))
    assert learner.excess_loss(state, ended, Key.from_seed(0))[0].drift == np.inf


def test_a_reward_that_ends_an_episode_counts_as_its_share_of_an_episode(learner):
    """Steps of 0.1 s in imagined episodes of 5 s: a reward of 100 that is earned once is worth 2."""
    seen = replace(data(2).all, final=np.array([[np.nan, np.nan], [1.0, 1.0]]), count=np.array([M, 20]))
    rewards = np.full((2, M), -0.5)
    rewards[1, 19] = 100.0
    unknown = replace(learner.spec, reward=None)
    found = best_reward(unknown, state_of(learner).model, replace(seen, r=rewards), jnp.zeros((1, 2)), 5.0, 0.1)
    assert found == pytest.approx(2.0)


def test_random_controls_go_on_until_a_reward_depends_on_the_state(learner):
    u = np.random.default_rng(0).normal(size=(5, M, 1))
    seen, unknown = replace(data(5).all, u=u), replace(learner, spec=replace(learner.spec, reward=None))
    state = learner.init(Key.from_seed(0))
    costs = -0.1 * u[..., 0] ** 2
    assert unknown.excess_loss(state, Dataset(replace(seen, r=costs)), Key.from_seed(0))[0].drift == 0.0
    found = costs.copy()
    found[3, 7] += 1.0
    assert unknown.excess_loss(state, Dataset(replace(seen, r=found)), Key.from_seed(0))[0].drift == np.inf


def test_a_planner_that_is_stuck_is_reported(learner):
    state, (low, high) = state_of(learner), (planned(learner, [j], [j]).test for j in (0.5, 0.9))
    for _ in range(STALLED):
        state = learner._track_progress(state, low)
    with pytest.warns(PlanningWarning, match="the planner is the bottleneck, not the data"):
        learner._track_progress(state, low)
    fine = state._replace(best_imagined=0.9)
    assert (
        learner._track_progress(fine, high).stalled == state.stalled + 1
    )  # high returns do not move, and that is fine


def test_noise_is_silent_at_first_and_has_its_covariance():
    policy = ExploringActor(learner_actor(), 1.0, 0.3, 5.0, 0.5, 0.5)
    act = policy.explore(jax.random.key(0), 0)
    x = jnp.ones(2)
    assert np.allclose(act(x, 4.9), policy(x))
    assert not np.allclose(act(x, 5.1), policy(x))
    quiet = policy.without_noise().explore(jax.random.key(0), 0)
    assert np.allclose(quiet(x, 9.0), policy(x))
    values = jax.vmap(lambda key: jax.vmap(smooth_noise(key, 1, 0.5))(jnp.array([0.0, 0.5])))(
        jax.random.split(jax.random.key(1), 4000)
    )[..., 0]
    found = np.cov(np.asarray(values).T)
    assert np.allclose(found, [[1, np.exp(-0.5)], [np.exp(-0.5), 1]], atol=0.06)


def learner_actor():
    from purectrl.control.policy import Actor
    from purectrl.systems.spec import StateSpec

    return Actor.random(np.random.default_rng(0), StateSpec.of_mechanics(cart()), (8, 8))


def test_a_promise_is_what_the_model_predicts_at_the_measured_times(learner):
    """With the true equations and the executed policy, promise and measurement agree."""
    state = state_of(learner)
    times = np.arange(M)[None] * 0.1
    seen = problem().rollout(Key.from_seed(3), learner.policy(state), times)
    promised, measured = learner._promise(state, state.actor, seen)
    assert promised == pytest.approx(measured, abs=0.02)
    other = state._replace(actor=jax.tree.map(lambda a: 3 * a, state.actor))
    assert learner._promise(state, other.actor, seen)[0] != pytest.approx(promised, abs=1e-6)


@pytest.fixture(scope="module")
def whole_run():
    loop = algorithm(Auto(MODEL, PLAN)).build(problem(), Budget(8 * M))
    states = [loop.init(Key.from_seed(0))]
    records = []
    for state, record in loop.run(states[0]):
        states.append(state)
        records.append(record)
    return loop, states, records


def test_a_run_improves_the_policy_and_returns_the_champion(whole_run):
    loop, states, records = whole_run
    last = states[-1]
    assert loop.finished(last)
    assert last.ledger.updates >= 1
    decisions = [record.info["decision"] for record in records if "decision" in record.info]
    assert decisions[0].startswith("execute the first policy")
    first, final = (problem().evaluate(s.output.plan, Key.from_seed(9), 4)["reward"] for s in (states[0], last))
    assert first < 0.5
    assert final > 0.9
    if last.learner.ended:
        assert same(last.output.plan.policy.actor, last.learner.champion)


def test_a_restored_run_continues_bit_for_bit(whole_run):
    loop, states, _ = whole_run
    middle = states[3]
    restored = unpack_state(loop.init(Key.from_seed(0)), *pack_state(middle))
    for restored, _ in loop.run(restored):  # noqa: B007, B020
        pass
    once, again = pack_state(states[-1]), pack_state(restored)
    assert all(np.array_equal(once[0][name], again[0][name]) for name in once[0])
    ledgers = [values.pop("ledger") for values in (once[1], again[1])]
    assert once[1] == again[1]
    assert ledgers[0]["measurements"] == ledgers[1]["measurements"]


def test_what_cannot_work_is_refused():
    driven = pc.problems.continuous(
        name="device", horizon=1.0, rollout=lambda control, times: None, state_dim=2, reward=lambda x, u: x[0]
    )
    with pytest.raises(UnsupportedError, match="known-model needs a problem that offers its equations; 'device'"):
        pc.known_model(driven).build(driven, Budget(1000))
    with pytest.raises(pc.InputError, match="trace: must be between 0 and 1"):
        replace(PLAN, trace=2.0)

"""One learner over two dynamics models: updates, divergence, excess loss, uncertainty, and what it refuses."""

import dataclasses
import re
import subprocess
import sys
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_learners import SAMPLER, loop, problem, settings

from purectrl.control.learner import EnodeLearner, build_learner
from purectrl.control.settings import Enode, FitSettings, ModelSettings, PlanSettings
from purectrl.core import InputError, Key, MeasurementError, Measurements
from purectrl.core.errors import DivergenceWarning, UnsupportedError
from purectrl.core.learner import FitMonitor, LookaheadMonitor, UncertaintyEstimator
from purectrl.core.ledger import Budget
from purectrl.core.problem import Problem
from purectrl.core.samplers import Uniform
from purectrl.core.schedules import Geometric, OnExcessLoss, Targets
from purectrl.systems.spec import ExploringPolicy

KINDS = ["pendulum", "gymnasium"]
both = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def second():
    """For each kind a healthy loop before its second update."""
    loops = {kind: loop(kind) for kind in KINDS}
    return {kind: (one, one.step(one.init(Key.from_seed(0)))[0]) for kind, one in loops.items()}


def scaled(state, part, factor):
    """The state with the weights of the model, the actor or the critic multiplied by a factor."""
    tree = getattr(state.learner, part)
    where = lambda tree: tree  # noqa: E731
    if part == "model":
        where = (lambda tree: tree.rates) if hasattr(tree, "rates") else where
    layers = jax.tree.map(lambda array: factor * array, where(tree).layers)
    return state._replace(
        learner=state.learner._replace(**{part: eqx.tree_at(lambda tree: where(tree).layers, tree, layers)})
    )


def unchanged(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(*pair, equal_nan=True) for pair in pairs)


@both
def test_an_update_fits_and_plans_and_the_same_key_gives_the_same_numbers(kind, second):
    one, state = second[kind]
    after, record = one.step(state)
    again, repeated = one.step(state)
    assert record.info == repeated.info
    assert unchanged(after.learner, again.learner)
    assert {"fit_loss", "planned_reward", "imagined_reward", "imagined_worst"} <= set(record.info)
    assert record.info["imagined_worst"] <= record.info["imagined_reward"]
    assert (after.learner.use_actor, after.learner.explored) == (1.0, 1)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.learner))


@both
def test_the_amplitudes_continue_from_batch_to_batch(kind, second):
    one, state = second[kind]
    first = state.learner.amplitudes
    after, _ = one.step(state)
    assert np.allclose(first, [0.0, 0.1, 0.2, 0.3])
    assert np.array_equal(after.learner.amplitudes, np.roll(first, -1))  # one episode later


@both
def test_the_policy_is_callable_explores_and_can_be_evaluated(kind, second):
    one, state = second[kind]
    policy, spec = one.learner.policy(state.learner).policy, problem(kind).spec
    assert isinstance(policy, ExploringPolicy)
    x = jnp.ones(spec.state_dim)
    act = jax.jit(lambda key, t: policy.explore(key, 1)(x, t))
    u = [act(jax.random.key(0), t) for t in (0.0, 1.0)]
    assert all((np.abs(np.asarray(value)) <= spec.control_high).all() for value in u)
    assert not np.array_equal(u[0], u[1])
    assert np.array_equal(policy.explore(jax.random.key(0), 0)(x, 1.0), policy(x, 1.0))  # the first amplitude is zero
    assert np.array_equal(policy.without_noise().explore(jax.random.key(0), 1)(x, 1.0), policy(x))


# divergence: the same for both models (warned by the loop, rolled back, counted)


@both
def test_a_fit_that_diverges_is_rolled_back_and_the_run_continues(kind):
    """With a learning rate a thousand times too large no fit succeeds: all episodes explore, and all are kept."""
    one = loop(kind, learner=settings(kind, fit={"learning_rate": 1.0}))
    begin = one.init(Key.from_seed(0))
    with pytest.warns(DivergenceWarning) as warned:
        steps = list(one.run(begin))
    state = steps[-1][0]
    messages = [record.info["rolled_back"] for _, record in steps if "rolled_back" in record.info]
    assert [str(warning.message) for warning in warned] == messages
    pattern = r"update (\d), after (\d) episodes: the fit of the (?:model|drift) diverged \(.*\): model and policy stay"
    assert [re.match(pattern, message).groups() for message in messages] == [("1", "1"), ("2", "2")]
    assert (state.ledger.measurements, state.ledger.updates) == (80, 2)
    assert unchanged(state.learner.model, begin.learner.model)
    assert unchanged((state.learner.actor, state.learner.critic), (begin.learner.actor, begin.learner.critic))
    assert state.learner.use_actor == 0.0


@both
@pytest.mark.parametrize("factor", [np.nan, 1e3])
def test_a_model_that_is_not_finite_or_explodes_is_detected_at_a_later_update(kind, factor, second):
    one, state = second[kind]
    with pytest.warns(DivergenceWarning, match=r"update 2, after 2 episodes: the fit of the (model|drift) diverged"):
        after, record = one.step(scaled(state, "model", factor))
    assert "model and policy stay as they were" in record.info["rolled_back"]
    assert unchanged((after.learner.actor, after.learner.critic), (state.learner.actor, state.learner.critic))
    assert (after.ledger.measurements, after.data.episodes, after.learner.use_actor) == (40, 2, 1.0)


@both
@pytest.mark.parametrize("part", ["actor", "critic"])
def test_an_actor_or_a_critic_that_is_not_finite_is_detected_and_the_model_is_kept(kind, part, second):
    one, state = second[kind]
    bad = scaled(state, part, np.nan).learner
    update = one.learner.update(bad, state.data, Targets.BOTH, Key.from_seed(1))
    assert re.match(r"the (actor|critic) diverged \(.*\): actor and critic stay as they were", update.diverged)
    assert "rolled_back" not in update.info  # the loop writes it
    assert update.info["fit_loss"] > 0
    assert unchanged(update.state.actor, bad.actor)
    assert not unchanged(update.state.model, bad.model)


@pytest.mark.slow  # one more program to compile for each
@both
def test_a_learning_rate_a_thousand_times_too_large_for_the_actor_is_detected(kind):
    learner = settings(kind, model={"width": 64}, plan={"steps": 40, "actor_learning_rate": 2.0})
    one = loop(kind, learner=learner)
    begin = one.init(Key.from_seed(0))
    with pytest.warns(DivergenceWarning, match=r"update 1, after 1 episodes: the actor diverged \(its weights are "):
        after, _ = one.step(begin)
    assert unchanged(after.learner.actor, begin.learner.actor)
    assert not unchanged(after.learner.model, begin.learner.model)
    assert (after.learner.use_actor, after.ledger.measurements) == (0.0, 20)


@both
def test_after_a_rollback_the_run_learns_again(kind, second):
    one, state = second[kind]
    with pytest.warns(DivergenceWarning):
        after, _ = one.step(scaled(state, "model", np.nan))
    repaired = after.learner._replace(model=state.learner.model)
    assert one.learner.update(repaired, after.data, Targets.BOTH, Key.from_seed(1)).diverged == ""


@both
def test_measurements_that_are_not_finite_end_the_run_before_they_are_learned_from(kind, second):
    one, state = second[kind]

    def rollout(key, plan, times):
        seen = one.oracle.rollout(key, plan, times)
        return Measurements(seen.t, np.where(seen.t[..., None] > 1, np.nan, seen.x), seen.u, seen.y, seen.r)

    bad = dataclasses.replace(one, oracle=dataclasses.replace(one.oracle, rollout=rollout))
    with pytest.raises(MeasurementError, match="x is not finite in episode 0 of this block at time t = "):
        bad.step(state)


# the excess loss, an optional capability


@pytest.fixture(scope="module")
def monitored():
    return loop("pendulum", OnExcessLoss(initial=2), measurements=160)


def test_updates_follow_when_the_model_has_stopped_fitting(monitored):
    """After the exploring episodes, after the first under a policy, and then when the excess loss reaches the threshold."""
    updates = []
    for one, threshold in ((monitored, 5.0), (loop("pendulum", OnExcessLoss(0.5, initial=2), 160), 0.5)):
        runs = list(one.run(one.init(Key.from_seed(0))))
        losses = [record.excess_loss.drift for _, record in runs]
        assert [state.ledger.rollouts for state, _ in runs][:2] == [2, 3]
        assert losses[:2] == [np.inf, np.inf]
        due = [Targets.BOTH if loss >= threshold else Targets.NEITHER for loss in losses]
        assert [record.updated for _, record in runs] == due
        assert {record.excess_loss.reward for _, record in runs} == {0.0}  # the reward is known
        assert runs[-1][0].ledger.measurements == 160
        updates.append(runs[-1][0].ledger.updates)
    assert updates[0] == 2 < updates[1]


def test_looking_ahead_decides_as_one_episode_at_a_time(monitored):
    state, learner = monitored.init(Key.from_seed(0)), monitored.learner
    for _ in range(2):
        state, _ = monitored.step(state)
    after, record = monitored.step(state)
    foreseen = learner.excess_loss_per_episode(state.learner, record.block)
    step_by_step, now = [], state.learner
    for episodes in range(1, record.block.episodes + 1):
        found, now = learner.excess_loss(now, state.data.append(record.block.first(episodes)), Key(0))
        step_by_step.append(found)
    assert foreseen == step_by_step
    assert record.excess_loss == step_by_step[-1]
    assert learner.excess_loss(now, after.data, Key(0)) == (step_by_step[-1], now)  # nothing new, nothing changed


def test_a_black_box_model_has_no_excess_loss_and_the_loop_refuses_before_the_first_rollout():
    learner = loop("gymnasium").learner
    assert isinstance(learner, EnodeLearner)
    assert not isinstance(learner, FitMonitor)
    with pytest.raises(UnsupportedError, match="OnExcessLoss needs the excess loss of the models, which EnodeLearner"):
        loop("gymnasium", OnExcessLoss())
    assert isinstance(loop("pendulum").learner, LookaheadMonitor)


def test_geometric_batches_are_supported():
    one = loop("pendulum", Geometric(first=20.0, initial=1), measurements=160)
    points = [state.ledger.rollouts for state, record in one.run(one.init(Key.from_seed(0))) if record.updated]
    assert points == [2, 3, 5]  # 2^κ · 20 / 20 ≤ n − 1


# the predictive uncertainty, an optional capability


@both
def test_the_uncertainty_is_the_spread_of_the_members(kind, second):
    one, state = second[kind]
    learner: UncertaintyEstimator = one.learner
    assert isinstance(learner, UncertaintyEstimator)
    times = np.array([0.0, 0.5, 1.0, 2.0])
    predicted = learner.uncertainty(state.learner, times, Key.from_seed(0))
    found = predicted.std
    assert predicted.reward.shape == (4, 4)
    assert np.linalg.eigvalsh(predicted.covariance.astype(np.float64)).min() > -1e-4 * found.max() ** 2
    assert found.shape == (4, problem(kind).spec.state_dim)
    assert (found >= 0).all()
    assert np.allclose(found[0], 0.0, atol=1e-6)  # all members start in the same states
    assert found[1].max() > 1e-3
    same = state.learner.model.select_members(jnp.zeros(state.learner.model.members, int))
    equal = learner.uncertainty(state.learner._replace(model=same), times, Key.from_seed(0)).std
    assert np.allclose(equal, 0.0, atol=1e-5)


def test_the_uncertainty_of_a_random_ensemble_grows_with_time_on_average():
    learner = loop("pendulum").learner
    times = np.linspace(0.0, 2.0, 5)
    found = np.mean(
        [learner.uncertainty(learner.init(Key.from_seed(seed)), times, Key.from_seed(seed)).std for seed in range(6)],
        axis=(0, 2),
    )
    assert (np.diff(found) > 0).all()


# settings


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PlanSettings(ensemble_size=5), "ensemble_size: must divide batch_size = 48, got 5"),
        (lambda: FitSettings(sequence_length=1), "sequence_length: a sub-sequence has at least 2 measurements, not 1"),
        (lambda: ModelSettings(width=0), "width: must be between 1 and 1,000,000, not 0"),
        (lambda: PlanSettings(discount=0.0), "discount: must be positive, not 0.0"),
        (lambda: PlanSettings(steps=4), "steps: must be at least 5, not 4"),
        (lambda: Enode(ModelSettings(ensemble_size=2)), "plan.ensemble_size: must not exceed model.ensemble_size = 2"),
    ],
)
def test_wrong_settings_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_the_defaults_are_those_of_the_paper_and_of_gymnasium():
    assert Enode.mechanical() == Enode()
    black_box = Enode.black_box()
    assert (black_box.model.ensemble_size, black_box.model.width) == (5, 128)
    assert (black_box.fit.steps, black_box.fit.finetune_steps, black_box.fit.batch_size) == (4000, 3000, 64)
    assert Enode.pendulum().plan.steps == 300


def test_settings_are_imported_without_jax():
    code = "import sys, purectrl.control.settings; print('jax' in sys.modules, 'diffrax' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]


class Images(Problem):
    """A problem of another kind."""

    name, horizon, kind = "digits", 1.0, "images"

    def rollout(self, key, plan, times):
        raise NotImplementedError

    evaluate = rollout


def test_problems_and_models_that_do_not_go_together_are_refused():
    budget = Budget(80)
    message = "enode needs a problem with states and controls; 'digits' is a diffusion model; use seiko or pure-seiko"
    with pytest.raises(UnsupportedError, match=message):
        Enode().build(Images(), budget, Uniform())
    gym = problem("gymnasium")
    with pytest.raises(UnsupportedError, match="mechanical needs a problem whose mechanics are known"):
        settings("gymnasium", model={"kind": "mechanical"}).build(gym, budget, SAMPLER)
    with pytest.raises(UnsupportedError, match="a black-box model does not support implicit; use ensemble"):
        settings("gymnasium", model={"dynamics": "implicit"}).build(gym, budget, SAMPLER)
    with pytest.raises(InputError, match=r"learner\.plan\.horizon: must hold a step of 0\.1 s, not 0\.05"):
        settings("pendulum", plan={"horizon": 0.05, "step": 0.01}).build(problem("pendulum"), budget, SAMPLER)


def test_the_time_step_is_that_of_the_problem_of_the_sampler_or_of_the_settings():
    budget, pendulum = Budget(80), problem("pendulum")
    step = lambda kind, one, sampler: build_learner(settings(kind), one, budget, sampler).plan.step  # noqa: E731
    assert step("pendulum", pendulum, SAMPLER) == 0.1
    assert step("pendulum", pendulum, dataclasses.replace(SAMPLER, step=0.2)) == 0.2
    assert step("pendulum", pendulum, Uniform(m=4)) == PlanSettings().step
    assert step("gymnasium", problem("gymnasium"), SAMPLER) == 0.05


def test_a_black_box_model_of_a_mechanical_system_takes_difference_quotients():
    """The structure dq/dt = v is still known; y is not measured there."""
    one = loop("pendulum", learner=settings("gymnasium", model={"kind": "black-box"}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state, record = one.step(one.init(Key.from_seed(0)))
    assert record.info["fit_loss"] > 0
    assert state.learner.use_actor == 1.0

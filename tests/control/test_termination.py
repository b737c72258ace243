"""Episodes that terminate: the classifier, and what the end means for imagined returns."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import stopped_run, without_seconds
from small_learners import BLACK_BOX

import purectrl as pc
from purectrl.control.actor_critic import critic_targets, discounted, ending_critic_targets
from purectrl.control.settings import PlanSettings
from purectrl.control.termination import Survival, earned, end_data, survival, without_unseen_ends
from purectrl.core import Key, Measurements
from purectrl.core.algorithm import Algorithm
from purectrl.core.ledger import Budget
from purectrl.core.output_rules import LastPolicy
from purectrl.core.samplers import Windows
from purectrl.core.schedules import Batches
from purectrl.runs.runner import resume, run
from purectrl.runs.spec import RunSpec

PLAN = PlanSettings(step=0.1, horizon=1.0, discount=2.0)


def falling(limits=None, known=True, **settings):
    """dx/dt = u from near 0.5; an episode ends beyond 1, where the reward is highest."""
    arguments = {
        "name": "edge",
        "horizon": 2.0,
        "drift": lambda x, u: u,
        "reward": lambda x, u: x[0],
        "initial": lambda key: 0.4 + 0.2 * jax.random.uniform(key, (1,)),
        "control_period": 0.05,
        "limits": limits or {0: (-10.0, 1.0)},
    }
    problem = pc.problems.continuous(**(arguments | settings))
    if not known:
        problem = replace(problem, spec=replace(problem.spec, terminated=None))
    return problem


class Line:
    """A task whose states end beyond 1 with a probability that is known."""

    class ends:  # noqa: N801
        @staticmethod
        def logit(x):
            return jnp.where(x[..., 0] > 1, jnp.inf, jnp.log(0.25 / 0.75))


def test_survival_is_the_product_of_not_ending():
    x = jnp.array([0.0, 0.5, 2.0, 0.5])[:, None, None]
    found = survival(Line, x)
    assert found.after[:, 0] == pytest.approx([0.75, 0.75**2, 0.0, 0.0])
    assert found.before[:, 0] == pytest.approx([1.0, 0.75, 0.75**2, 0.0])
    assert survival(object(), x) is None


def test_the_reward_of_the_step_that_ends_an_episode_is_earned_once():
    """With b = 0 and r_end = 6 in units of 2: three times the probability that the episode has ended."""
    x = jnp.array([0.0, 0.5, 0.5, 0.0])[:, None, None]
    alive = survival(Line, x)

    class Goal(Line):
        ending_reward, reward_unit = jnp.asarray(6.0), 2.0

    assert earned(Goal, jnp.zeros((4, 1)), x).sum() == pytest.approx(3 * (1 - 0.75**4))
    ones = jnp.ones((4, 1))
    assert earned(Line, ones, x) == pytest.approx(np.asarray(alive.before))  # the ending step is rewarded like others
    assert earned(object(), ones, x) is ones


def test_critic_targets_without_an_end_are_those_of_rollouts_that_never_end():
    rewards = jax.random.normal(jax.random.key(0), (PLAN.rollout_steps, 2, 3))
    last = jax.random.normal(jax.random.key(1), (2, 3))
    ones = jnp.ones_like(rewards)
    found = ending_critic_targets(PLAN, rewards, last, Survival(ones, ones))
    assert found == pytest.approx(np.asarray(critic_targets(PLAN, discounted(PLAN, rewards), last)), abs=1e-5)


def test_critic_targets_stop_at_the_end():
    """One unit of reward per second until the end of step 3: V(x_k) = ∫ e^(−t/τ) dt over the steps that are left."""
    n = PLAN.rollout_steps
    before = (jnp.arange(n) < 3).astype(jnp.float32)[:, None]
    after = (jnp.arange(n) < 2).astype(jnp.float32)[:, None]
    found = ending_critic_targets(PLAN, before, jnp.full(1, 99.0), Survival(before, after))[:, 0]
    keep = np.exp(-0.1 / 2.0)
    assert found[:4] == pytest.approx([0.1 * (1 + keep + keep**2), 0.1 * (1 + keep), 0.1, 0.0], rel=1e-5)
    assert (found[3:] == 0).all()


def fitted(problem, steps=400, episodes=6):
    learner = replace(BLACK_BOX, fit=replace(BLACK_BOX.fit, steps=steps, finetune_steps=steps, batch_size=32))
    sampler = Windows(count=1, length=2.0, step=0.05, from_start=True)
    algorithm = Algorithm(sampler, Batches((episodes,), "before", episodes), learner, LastPolicy())
    loop = algorithm.build(problem, Budget(2 * episodes * sampler.m))
    state = loop.init(Key.from_seed(0))
    while not state.ledger.updates:
        state, record = loop.step(state)
    return loop, state, record


@pytest.mark.parametrize("known", [True, False])
def test_the_boundary_is_learned(known):
    _, state, record = fitted(falling(known=known))
    ends = state.learner.model.task.ends
    x = jnp.array([[-0.5], [0.5], [0.8], [1.1], [1.2]])
    probability = jax.nn.sigmoid(ends.logit(x))
    assert (probability[:3] < 0.5).all()
    assert (probability[3:] > 0.5).all()
    seen = state.data.all
    assert record.info["terminations"] == seen.terminated.sum() > 0
    assert state.ledger.measurements == seen.total < seen.t.size


def test_batches_of_episodes_that_end_early_have_more_episodes():
    _, state, _ = fitted(falling(limits={0: (0.3, 0.7)}))
    assert state.ledger.rollouts > 6
    assert state.ledger.measurements >= 6 * 40


def test_planning_without_a_measured_end_is_planning_without_a_classifier():
    loop, state, _ = fitted(falling(limits={0: (-1e3, 1e3)}, known=False))
    model, seen = state.learner.model, state.data.all
    assert model.task.ends is not None
    assert not seen.terminated.any()
    assert without_unseen_ends(model, seen).task.ends is None
    known = falling(limits={0: (-1e3, 1e3)})
    assert without_unseen_ends(loop.learner.dynamics.init(Key(0)), seen).task.ends is None
    assert without_unseen_ends(fitted(known)[1].learner.model, seen).task.ends is not None


def test_known_ends_are_looked_for_around_the_data():
    problem = falling()
    states = np.random.default_rng(0).normal(0.0, 0.3, (500, 1)).astype(np.float32)
    x = np.zeros((1, 1, 1))
    data = end_data(Measurements(x[..., 0], x, x), states, problem.spec, 600, np.random.default_rng(1))
    terminal, other = data.terminal[: data.terminal_size], data.other[: data.other_size]
    assert data.terminal_size > 50
    assert (terminal > 1.0).all()
    assert (other <= 1.0).all()
    assert terminal.max() > 2 * 0.3


def test_a_run_whose_episodes_end_is_resumed_bit_for_bit(tmp_path):
    problem = falling(limits={0: (0.3, 0.7)})
    learner = replace(BLACK_BOX, fit=replace(BLACK_BOX.fit, steps=30, finetune_steps=30))
    sampler = Windows(count=1, length=2.0, step=0.05, from_start=True)
    algorithm = Algorithm(sampler, Batches((2,), "before", 2), learner, LastPolicy())
    spec = RunSpec(problem, algorithm, Budget(160))
    whole = run(spec, tmp_path / "whole", quiet=True).summary
    stopped_run(spec, tmp_path / "stopped", until=2, at=(2,))
    again = resume(tmp_path / "stopped", quiet=True, problem=problem)
    assert without_seconds(again) == without_seconds(whole)
    assert whole["ledger"]["rollouts"] > 4
    records = [json.loads(line) for line in (tmp_path / "whole" / "records.jsonl").read_text().splitlines()]
    assert all(record["uninformative"] == 0.0 for record in records)
    assert sum(record["terminated"] for record in records) > 0

"""Mechanical problems: evaluation, videos, arguments, a user's own system."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from linear_cart import cart

from purectrl.control.exploration import SmoothNoise
from purectrl.control.policy import Actor, BehaviorPolicy
from purectrl.core import InputError, Key, Plan
from purectrl.core.settings import parameter_docs
from purectrl.problems import mechanical_systems as module
from purectrl.problems.mechanical_systems import acrobot, cartpole, evaluation_times, mechanical, pendulum
from purectrl.systems.spec import StateProblem, policy_function

PROBLEMS = {"pendulum": pendulum, "cartpole": cartpole, "acrobot": acrobot}


def plan_for(problem, use_actor=1.0, amplitudes=(2.0,)):
    actor = Actor.random(np.random.default_rng(0), problem.spec, (8, 8))
    return Plan(BehaviorPolicy(actor, use_actor, np.array(amplitudes, np.float32), SmoothNoise(problem.horizon)), ())


@pytest.mark.parametrize(
    ("name", "measurements", "limit"), [("pendulum", 2250, 2), ("cartpole", 20_000, 3), ("acrobot", 21_750, 4)]
)
def test_the_paper_s_problems_have_their_budgets_and_limits(name, measurements, limit):
    problem = PROBLEMS[name]()
    assert isinstance(problem, StateProblem)
    assert (problem.name, problem.measurements, problem.eval_episodes, problem.lookahead) == (name, measurements, 10, 4)
    assert problem.spec.control_high == (limit,) * problem.spec.control_dim
    assert problem.spec.mechanics is problem.system
    assert set(parameter_docs(PROBLEMS[name])) == {"variant", "horizon", "diffusion", "observation_std", *_own(name)}


def _own(name):
    return {"force"} if name == "cartpole" else {"torque"}


def test_evaluation_is_without_noise_and_counts_after_three_seconds():
    problem = pendulum()
    plan = plan_for(problem, use_actor=0.0)
    seen = problem._evaluation(Key.from_seed(0), module.without_noise(plan), evaluation_times(2))
    assert seen.t.shape == (2, 300)
    assert not seen.u.any()
    found = problem.evaluate(plan, Key.from_seed(0), 2)
    assert found["reward"] == pytest.approx(seen.r[:, 30:].mean())
    assert found["reward_min"] == seen.r[:, 30:].min()
    assert found["reward_after_5"] == pytest.approx(seen.r[:, 50:].mean())
    assert found["solved"] is False
    assert found == problem.evaluate(plan, Key.from_seed(0), 2)
    assert found != problem.evaluate(plan, Key.from_seed(1), 2)


def test_episodes_explore_and_observations_may_be_noisy():
    times = np.tile(np.linspace(0.1, 2.0, 20), (3, 1))
    clean, noisy = (pendulum(horizon=2.0, observation_std=std) for std in (0.0, 0.1))
    plan, key = plan_for(clean), Key.from_seed(0)
    seen, again = clean.rollout(key.child("rollout"), plan, times), noisy.rollout(key, plan, times)
    assert np.abs(np.arctanh(seen.u / 2)).max() > 0.5
    assert np.array_equal(again.u, seen.u)
    assert np.std(again.x - seen.x) == pytest.approx(0.1, rel=0.25)


def test_the_controller_is_a_function_of_numpy_arrays():
    problem = pendulum()
    plan = plan_for(problem)
    policy = problem.controller(plan)
    assert policy([np.pi, 0.0], 17.3).shape == (1,)
    many = policy(np.random.default_rng(0).normal(size=(4, 5, 2)) * 100)
    assert many.shape == (4, 5, 1)
    assert np.abs(many).max() <= 2.0
    assert np.allclose(policy([0.3, 0.1]), plan.policy(jnp.array([0.3, 0.1])), atol=1e-6)
    with pytest.raises(InputError, match=r"x: has shape \(3,\), expected \[2\]"):
        policy(np.zeros(3))


def test_any_callable_policy_can_be_executed_evaluated_and_used():
    class Brake(eqx.Module):
        gain: float

        def __call__(self, x, t=0.0):
            return -self.gain * x[1:]

    problem = pendulum(horizon=2.0)
    plan = Plan(Brake(0.1), ())
    seen = problem.rollout(Key.from_seed(0), plan, np.full((2, 3), [0.5, 1.0, 1.5]))
    assert np.allclose(seen.u, -0.1 * seen.x[..., 1:], atol=1e-6)
    assert set(problem.evaluate(plan, Key.from_seed(0), 1)) >= {"reward", "solved"}
    assert np.allclose(policy_function(problem, plan)(np.ones((3, 2))), -0.1)


def test_a_video_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "VIDEO_SECONDS", 0.5)
    problem = pendulum()
    written = problem.video(plan_for(problem), Key.from_seed(0), tmp_path)
    assert written[0].name == "pendulum.gif"
    assert written[0].read_bytes()[:6] == b"GIF89a"


def test_a_users_own_system_is_a_problem_without_a_video(tmp_path):
    problem = mechanical(cart(), horizon=3.0)
    assert (problem.name, problem.spec.state_dim) == ("cart", 2)
    assert problem.video(plan_for(problem), Key.from_seed(0), tmp_path) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"horizon": 0.0}, "horizon: the episode length must be positive, not 0.0"),
        ({"diffusion": -1.0}, "diffusion: must not be negative, got -1.0"),
        ({"variant": "papers"}, "unknown variant 'papers': did you mean 'paper'"),
        ({"horizon": "long"}, "horizon: must be a number, not 'long'"),
        ({"torque": -2.0}, "u_max: the control limit must be positive, not -2.0"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        pendulum(**arguments)

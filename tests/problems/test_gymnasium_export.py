"""Problems as Gymnasium environments: the same physics, the same return, and a ledger."""

import equinox as eqx
import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import purectrl as pc
from purectrl.core import InputError, Key, Plan, UnsupportedError
from purectrl.core.prices import Prices
from purectrl.problems.gymnasium_export import environment


class Constant(eqx.Module):
    """A constant control."""

    u: np.ndarray

    def __call__(self, x, t=0.0):
        return jnp.asarray(self.u)


def episode(env, action):
    env.reset(seed=0)
    total, done = 0.0, False
    while not done:
        observation, reward, _, done, info = env.step(action)
        total += reward
    return total, observation, info


@pytest.mark.parametrize("name", ["ocorl-pendulum", "chemo-radiotherapy", "ocorl-quadrotor"])
def test_the_return_under_a_held_control_is_that_of_the_problem(name):
    problem = pc.problems.build(pc.Source(name, {}))
    spec = problem.spec
    share = np.linspace(0.1, 0.3, spec.control_dim).astype(np.float32)
    total, *_ = episode(environment(problem, dt=problem.horizon / 20), share)
    u = np.asarray(spec.unscale_control(jnp.asarray(share)))
    assert total == pytest.approx(problem.evaluate(Plan(Constant(u), None), Key(0), 1)["return"], rel=1e-3)


def test_a_cart_under_a_constant_force_moves_as_in_a_textbook():
    cart = pc.problems.continuous(
        name="cart", horizon=2.0, drift=lambda x, u: jnp.stack([x[1], u[0]]), reward=lambda x, u: x[0],
        initial=lambda key: jnp.array([1.0, -1.0]), control_low=[-4.0], control_high=[4.0],
    )  # fmt: skip
    env = pc.problems.environment(cart, dt=0.5)
    check_env(env, skip_render_check=True)
    total, observation, info = episode(env, np.array([0.5], np.float32))
    assert np.allclose(info["state"], [1 - 2 + 2.0**2, -1 + 2 * 2], atol=1e-5)  # x + vt + ½ut², v + ut
    assert total == pytest.approx(2 - 2 + 2.0**3 / 3, abs=1e-4)
    assert observation[-1] == 1.0
    assert info["control"] == pytest.approx(2.0)


def test_steps_are_measurements_and_episodes_rollouts():
    env = environment(pc.problems.pendulum(horizon=1.0), dt=0.1)
    for _ in range(2):
        episode(env, np.zeros(1, np.float32))
    assert (env.ledger.rollouts, env.ledger.measurements) == (2, 20)
    assert Prices(measurement=0.5, rollout=3.0).utility(100.0, env.ledger) == 84.0
    assert isinstance(env, gymnasium.Env)


def test_the_same_seed_begins_in_the_same_state():
    env = environment(pc.problems.pendulum(horizon=1.0), dt=0.1)
    first, other, again = (env.reset(seed=seed)[0] for seed in (1, 2, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_rendering_shows_what_happened():
    env = environment(pc.problems.acrobot(), dt=0.5, render_mode="rgb_array")
    check_env(env, skip_render_check=True)
    env.reset(seed=0)
    first = env.render()
    for _ in range(30):  # longer than the window
        env.step(np.zeros(2, np.float32))
    with pytest.raises(InputError, match=r"action: has shape \(1,\), expected \(2,\)"):
        env.step(np.zeros(1, np.float32))
    assert env.render().shape == first.shape == (480, 480, 3)
    assert (env.render() != first).any()
    assert environment(pc.problems.acrobot()).render() is None
    assert env.metadata["render_fps"] == 2


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: environment(pc.problems.digits(), 0.1), UnsupportedError, "'digits' is none; use pendulum"),
        (lambda: environment(pc.problems.pendulum(diffusion=0.1), 0.1), UnsupportedError, "has process noise"),
        (lambda: environment(pc.problems.two_rooms(), 1.0, "rgb_array"), UnsupportedError, "not a mechanical system"),
        (lambda: environment(pc.problems.pendulum(), 0.1, "human"), InputError, "render_mode: must be None or 'rgb_"),
        (lambda: environment(pc.problems.pendulum(), 0.0), InputError, "dt: the time between two actions must be pos"),
        (lambda: environment(pc.problems.pendulum(horizon=1.0), 2.0), InputError, "dt: 2 s is longer than an episode"),
    ],
)
def test_what_cannot_be_an_environment_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()

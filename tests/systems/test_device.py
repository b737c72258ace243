"""Systems behind a digital controller, against the difference equations that they satisfy exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purectrl as pc
from purectrl.core import InputError, Key, Plan
from purectrl.systems.device import History

P = 0.1


@jax.tree_util.register_pytree_node_class
class Feedback:
    """u = −gain · z[0] + 1."""

    def __init__(self, gain=2.0):
        self.gain = gain

    def __call__(self, z, t=0.0):
        return -self.gain * z[:1] + 1.0

    def tree_flatten(self):
        return (), self.gain

    @classmethod
    def tree_unflatten(cls, gain, _):
        return cls(gain)


def integrator(**settings):
    """dx/dt = u with controls of any size."""
    arguments = {
        "name": "integrator",
        "horizon": 3.0,
        "drift": lambda x, u: u,
        "reward": lambda x, u: -(x[0] ** 2),
        "initial": lambda key: jax.random.uniform(key, (1,)),
        "control_low": [-100.0],
        "control_high": [100.0],
        "control_period": P,
    }
    return pc.problems.continuous(**(arguments | settings))


def path(problem, episodes=3, steps=25, plan=None):
    """All samples of some episodes."""
    times = np.tile(np.arange(steps) * P, (episodes, 1))
    return problem.rollout(Key.from_seed(0), plan or Plan(Feedback(), None), times)


def test_a_control_is_held_for_a_period():
    """x(t + p) = x(t) + p u(x(t)): feedback at every instant would give e^(−2p) instead of 1 − 2p."""
    seen = path(integrator())
    assert seen.x[:, 1:, 0] == pytest.approx(seen.x[:, :-1, 0] + P * (1 - 2 * seen.x[:, :-1, 0]), abs=1e-5)
    assert seen.y[..., 0] == pytest.approx(seen.u[..., 0], abs=1e-4)
    assert seen.r == pytest.approx(-(seen.x[..., 0] ** 2), abs=1e-5)
    assert seen.count.tolist() == [25] * 3
    assert integrator().time_grid == P


@pytest.mark.parametrize("which", ["sensor_delay", "actuator_delay"])
def test_a_delay_of_two_periods(which):
    """With a late actuator x(k + 1) = x(k) + p u(k − 2); with a late sensor u(k) is a function of x(k − 2)."""
    seen = path(integrator(**{which: 2 * P}, history=1))
    z, u = seen.x[..., 0], seen.u[..., 0]
    assert u == pytest.approx(1 - 2 * z, abs=1e-5)
    if which == "actuator_delay":
        assert z[:, 3:] == pytest.approx(z[:, 2:-1] + P * u[:, :-3], abs=1e-5)
        assert z[:, 2] == pytest.approx(z[:, 0], abs=1e-6)  # the first commands have no effect yet, and rest is zero
    else:
        assert z[:, 3:] == pytest.approx(
            z[:, 2:-1] + P * u[:, :-3], abs=1e-5
        )  # what is seen now happened two periods ago
        assert z[:, :3] == pytest.approx(np.tile(z[:, :1], (1, 3)), abs=1e-6)


def test_the_default_history_covers_the_delays():
    spec = integrator(sensor_delay=P, actuator_delay=0.15).spec
    assert spec.state_dim == 4 * 1 + 3 * 1  # four observations, three controls between them
    assert spec.reward(jnp.arange(7.0) + 2, jnp.zeros(1)) == -4.0  # of the newest observation
    hidden = integrator(
        drift=lambda x, u: jnp.stack([x[1], u[0]]), initial=lambda key: jnp.zeros(2), observed=(0,), angles=(0,)
    ).spec
    assert (hidden.state_dim, hidden.angles, hidden.reward) == (5, (0, 1, 2), None)


def test_with_a_history_a_position_is_enough():
    """q(k + 1) = 2 q(k) − q(k − 1) + p²/2 (u(k) + u(k − 1)) for d²q/dt² = u: a function of what is seen."""
    problem = integrator(
        drift=lambda x, u: jnp.stack([x[1], u[0]]),
        initial=lambda key: jax.random.normal(key, (2,)),
        observed=(0,),
        history=2,
    )
    seen = path(problem)
    now, before, last = np.moveaxis(seen.x[:, 1:], -1, 0)
    assert seen.x.shape[-1] == 3
    assert before == pytest.approx(seen.x[:, :-1, 0], abs=1e-6)
    assert last == pytest.approx(seen.u[:, :-1, 0], abs=1e-6)
    after = now + P * seen.y[:, 1:, 0]
    assert after == pytest.approx(2 * now - before + P**2 / 2 * (seen.u[:, 1:, 0] + last), abs=1e-4)


def test_the_policy_sees_the_noise_of_each_channel():
    problem = integrator(
        drift=lambda x, u: 0 * x, initial=lambda key: jnp.array([1.0, -1.0]), observation_std=[0.1, 0.5], horizon=20.0
    )
    seen = path(problem, episodes=20, steps=200)
    errors = seen.x - np.array([1.0, -1.0])
    assert errors.std(axis=(0, 1)) == pytest.approx([0.1, 0.5], rel=0.05)
    assert errors.mean(axis=(0, 1)) == pytest.approx([0.0, 0.0], abs=0.03)
    assert seen.u[..., 0] == pytest.approx(1 - 2 * seen.x[..., 0], abs=1e-5)  # and not of the true state
    assert np.corrcoef(errors[:, 1:, 0].ravel(), errors[:, :-1, 0].ravel())[0, 1] == pytest.approx(0.0, abs=0.05)
    quiet = path(integrator(drift=lambda x, u: 0 * x, observation_std=0.0))
    assert (np.diff(quiet.x, axis=1) == 0).all()


def test_a_state_beyond_its_limit_ends_the_episode():
    """dx/dt = 1 from 0 with the limit 0.55: the step from 0.5 to 0.6 is the last one measured."""
    problem = integrator(drift=lambda x, u: 0 * x + 1, initial=lambda key: jnp.zeros(1), limits={0: (-1.0, 0.55)})
    times = np.array([[0.0, 0.2, 0.8, 1.0], [0.0, 0.1, 0.2, 0.3], [0.4, 0.5, 2.0, 2.5]])
    seen = problem.rollout(Key.from_seed(0), Plan(Feedback(), None), times)
    assert seen.count.tolist() == [3, 4, 2]
    assert seen.t[seen.valid] == pytest.approx([0.0, 0.2, 0.5, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert seen.terminated.tolist() == [True, False, True]  # in the second, measurements end before the episode does
    assert seen.final[[0, 2], 0] == pytest.approx([0.6, 0.6], abs=1e-5)
    found = problem.evaluate(Plan(Feedback(), None), Key.from_seed(0), 2)
    assert found["seconds"] == pytest.approx(0.5)
    after = 2.5 * -1.0  # the lowest reward at the limits, from the abort to the horizon
    assert found["return"] == pytest.approx(-(0.5**3) / 3 + after, abs=1e-3)
    never = integrator(terminated=lambda x: x[0] > 1e6)
    assert never.evaluate(Plan(Feedback(), None), Key.from_seed(0), 1)["seconds"] == pytest.approx(3.0)


def test_the_history_on_hardware_is_that_of_the_simulation():
    problem = integrator(sensor_delay=P, history=3)
    seen = path(problem, episodes=1)
    history = History(observed=1, controls=1, length=3)
    for z, u in zip(seen.x[0], seen.u[0], strict=True):
        assert history(z[:1]) == pytest.approx(z, abs=1e-6)
        history.applied(u)
    with pytest.raises(InputError, match=r"observation: has shape \(2,\), expected \[1\]"):
        history([0.0, 1.0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"control_period": 0.0}, "control_period: must be positive and shorter than the horizon, not 0.0"),
        ({"control_period": 4.0}, "control_period: must be positive and shorter than the horizon, not 4.0"),
        ({"sensor_delay": -1.0}, "sensor_delay: must not be negative, got -1.0"),
        ({"observed": (1,)}, r"observed: must name different coordinates between 0 and 0, got \(1,\)"),
        ({"history": 0}, "history: must be at least 1 sample, not 0"),
        ({"observation_std": [0.1, 0.1]}, "observation_std: has 2 numbers, expected one per coordinate, 1"),
        ({"observation_std": -0.1}, "observation_std: must not be negative, got -0.1"),
        ({"limits": {1: (0, 1)}}, "limits: the coordinates are 0 to 0, got 1"),
        ({"limits": {0: (1, 0)}}, r"limits: must be \(low, high\) with low < high, got \(1.0, 0.0\) for coordinate 0"),
        ({"terminated": lambda x: x > 0}, r"terminated: returns shape \[1\] for x \[1\], expected a scalar"),
        ({"log_reward": lambda x, u: 0.0}, "reward: give either reward or log_reward"),
    ],
)
def test_wrong_traits_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        integrator(**settings)

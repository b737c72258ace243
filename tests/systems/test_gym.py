"""Gymnasium environments behind an oracle."""

import gymnasium
import jax
import numpy as np
import pytest

import purectrl as pc
from purectrl.core import InputError, Key, MeasurementError, Oracle, Plan
from purectrl.core.ledger import Budget
from purectrl.core.samplers import Context, Snapped, Uniform, Windows
from purectrl.systems.gym import gym_rollout

PLAN = Plan(0.7, None)


def damp(gain, x):
    """Brakes: the last number of an observation is a velocity."""
    return -gain * x[-1:]


class Clock(gymnasium.Env):
    """x = (seconds, −seconds); r = step number. Terminates and truncates when told."""

    observation_space = gymnasium.spaces.Box(-1e3, 1e3, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-0.5, 0.5, (1,), np.float32)

    def __init__(self, dt=0.25, terminal=10**9, limit=10**9):
        self.dt, self.terminal, self.limit = dt, terminal, limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.k, self.offset, self.hands_out = 0, self.np_random.uniform(), np.zeros(2)
        return self._look(), {}

    def step(self, action):
        self.k += 1
        return self._look(), float(self.k - 1), self.k >= self.terminal, self.k >= self.limit, {}

    def _look(self):
        self.hands_out[:] = np.array([1.0, -1.0]) * (self.offset + self.k * self.dt)
        return self.hands_out  # the same array each time, as careless environments do


def test_times_are_snapped_and_reported_as_requested():
    times = np.array([[0.0, 0.2, 0.41, 0.8, 1.1], [0.1, 0.4, 0.76, 0.9, 2.0]])
    seen = gym_rollout(Clock(dt=0.25), damp)(Key.from_seed(0), PLAN, times)
    steps = np.rint(times / 0.25)
    assert np.array_equal(seen.t, times)
    assert seen.count.tolist() == [5, 5]
    assert np.array_equal(seen.r, steps)
    assert np.allclose(seen.x[..., 0] - seen.x[:, :1, 0], 0.25 * (steps - steps[:, :1]), atol=1e-5)
    assert np.allclose(seen.y, [1.0, -1.0])
    assert np.allclose(seen.u, np.clip(-0.7 * seen.x[..., 1:], -0.5, 0.5))  # what was applied, not what was requested


def test_a_step_is_measured_and_charged_once():
    times = np.array([[0.0, 0.2, 0.26, 0.6, 0.62], [0.1, 0.1, 0.1, 0.9, 2.0]])
    oracle = Oracle(gym_rollout(Clock(dt=0.25), damp), horizon=2.0, budget=Budget(10))
    seen, ledger = oracle(Key.from_seed(0), times, Context(2.0, plan=PLAN))
    assert seen.count.tolist() == [3, 3]
    assert (ledger.rollouts, ledger.measurements) == (2, 6)
    assert seen.t[seen.valid].tolist() == [0.0, 0.2, 0.6, 0.1, 0.9, 2.0]
    assert seen.r[seen.valid].tolist() == [0.0, 1.0, 2.0, 0.0, 4.0, 8.0]
    assert not seen.repeated.any()


def test_an_episode_depends_on_the_key_and_its_number_alone():
    rollout = gym_rollout(gymnasium.make("Pendulum-v1"), damp)
    three, two = (rollout(Key.from_seed(0), PLAN, np.full((n, 1), 1.0)) for n in (3, 2))
    other = rollout(Key.from_seed(1), PLAN, np.full((2, 1), 1.0))
    assert np.array_equal(three.x[:2], two.x)
    assert len(np.unique(np.concatenate([three.x, other.x])[:, 0, 0])) == 5


def test_pendulum_measures_its_own_equations():
    """Gym's Pendulum: ω' = ω + (15 sin θ + 3u)·dt, so the quotient of ω is exact; r = −(θ² + 0.1 ω² + 0.001 u²)."""
    env = gymnasium.make("Pendulum-v1", max_episode_steps=-1)
    oracle = Oracle(gym_rollout(env, damp), horizon=15.0, budget=Budget(60))
    times = Snapped(Uniform(m=20), dt=0.05)(Key.from_seed(5), 3, Context(horizon=15.0))
    seen, ledger = oracle(Key.from_seed(0), times, Context(15.0, plan=Plan(0.1, None)))
    seen = seen.rows()
    cos, sin, omega = np.moveaxis(seen.x, -1, 0)
    distinct = sum(len(np.unique(np.rint(row / 0.05))) for row in times)
    assert ledger.measurements == seen.total == distinct < 60
    assert np.allclose(seen.y[..., 2], 15 * sin + 3 * seen.u[..., 0], atol=1e-3)
    assert np.allclose(seen.r, -(np.arctan2(sin, cos) ** 2 + 0.1 * omega**2 + 0.001 * seen.u[..., 0] ** 2), atol=1e-3)


@pytest.mark.parametrize("make", [pc.problems.acrobot, pc.problems.cartpole, pc.problems.pendulum])
def test_there_and_back_again(make):
    """A mechanical system as an environment as a true system: quotients of velocities are accelerations, up to O(dt)."""
    problem = make()
    env, one = pc.problems.environment(problem, dt=0.001), problem.spec.mechanics
    hold = lambda u, x: u  # noqa: E731
    action = np.full(one.control_dim, 0.5)
    seen = gym_rollout(env, hold)(Key.from_seed(0), Plan(action, None), np.full((3, 1), 0.02))
    nq = one.nq
    places, v = np.split(seen.x[:, 0, :-1], [one.feature_dim - nq], axis=1)
    angle, cosines = np.array(one.angles), np.cumsum([2 if turns else 1 for turns in one.angles]) - 1
    sines = places[:, cosines]  # or the position itself
    q = np.where(angle, np.arctan2(sines, places[:, cosines - angle]), sines)
    expected = jax.vmap(one.acceleration, (0, 0, None))(q, v, one.u_max * action)
    assert np.allclose(seen.y[:, 0, -nq - 1 : -1], expected, atol=0.05)
    assert np.abs(expected).max() > 0.5


def test_a_mujoco_environment_is_measured():
    pytest.importorskip("mujoco", reason="the extra `dev` installs mujoco")
    pytest.importorskip("imageio", reason="Gymnasium imports imageio with every MuJoCo environment")
    env = gymnasium.make("InvertedPendulum-v5", max_episode_steps=-1)
    rollout = gym_rollout(env, lambda gains, x: gains @ x)
    plan, times = Plan(np.array([[0.5, 6.0, 0.8, 1.0]]), None), np.tile([0.0, 0.4, 2.0], (2, 1))
    seen, again = (rollout(Key.from_seed(0), plan, times) for _ in range(2))
    assert seen.x.shape == (2, 3, 4)
    assert np.abs(seen.x).max() < 0.1  # these gains balance it, without them it falls within a second
    assert np.allclose(seen.u, seen.x @ plan.policy.T, atol=1e-6)
    assert (seen.r == 1.0).all()
    assert np.array_equal(seen.x, again.x)
    loose = Plan(0 * plan.policy, None)
    falling = rollout(Key.from_seed(0), loose, np.full((2, 1), 0.6))
    angle_rate, omega = falling.y[..., 1], falling.x[..., 3]
    assert np.abs(omega).min() > 0.05
    assert np.allclose(angle_rate, omega, rtol=0.15)  # an angle changes at the rate of its velocity, up to O(dt)
    fallen = rollout(Key.from_seed(0), loose, np.tile([0.0, 0.4, 2.0, 3.0], (2, 1)))
    assert fallen.terminated.all()
    assert fallen.count.tolist() == [3, 3]  # at 0 s, at 0.4 s, and the step that ended it
    assert (np.abs(fallen.final[:, 1]) > 0.2).all()
    assert np.allclose(fallen.x[:, 2] + 0.04 * fallen.y[:, 2], fallen.final, atol=1e-5)


def test_nothing_is_measured_or_charged_after_the_end():
    """Clock ends with step 4, of 0.25 s: at 1.5 s there is nothing to measure, so step 3, which ended it, is measured."""
    times, key = np.array([[0.0, 0.5, 1.5, 1.75]]), Key.from_seed(0)
    oracle = Oracle(gym_rollout(Clock(terminal=4), damp), horizon=2.0, budget=Budget(8))
    seen, ledger = oracle(key, times, Context(2.0, plan=PLAN))
    assert (seen.count.tolist(), seen.total, ledger.measurements, ledger.rollouts) == ([3], 3, 3, 1)
    assert seen.t[0, :3].tolist() == [0.0, 0.5, 0.75]
    assert seen.r[0, :3].tolist() == [0.0, 2.0, 3.0]
    assert seen.terminated.tolist() == [True]
    assert np.allclose(seen.final[0] - seen.x[0, 0], [1.0, -1.0])  # where it ended
    assert np.allclose(seen.y[0, :3], [1.0, -1.0])
    early = gym_rollout(Clock(terminal=4), damp)(key, PLAN, np.array([[0.0, 0.5]]))
    assert not early.terminated.any()  # the episode was stopped after the last measurement
    exact = gym_rollout(Clock(terminal=4), damp)(key, PLAN, np.array([[0.0, 0.75]]))
    assert (exact.count.tolist(), exact.terminated.tolist()) == ([2], [True])


def test_a_truncated_episode_is_shorter_and_has_no_terminal_state():
    times, key = np.array([[0.0, 0.5, 1.5]]), Key.from_seed(0)
    seen = gym_rollout(Clock(limit=4), damp)(key, PLAN, times)
    assert (seen.count.tolist(), seen.terminated.tolist()) == ([2], [False])
    assert np.isnan(seen.final).all()
    both = gym_rollout(Clock(terminal=4, limit=4), damp)(key, PLAN, times)
    assert both.terminated.all()  # terminal is terminal, whatever the clock says


def test_snapped_windows_stay_on_the_grid():
    times = Snapped(Windows(count=2, length=1.0, step=0.1), dt=0.05)(Key.from_seed(0), 4, Context(horizon=7.03))
    assert np.allclose(times / 0.05, np.rint(times / 0.05))
    assert np.allclose(np.diff(times[:, :10]), 0.1)
    assert times.max() <= 7.03


def test_what_cannot_be_measured_is_named():
    with pytest.raises(InputError, match=r"env: its actions are Discrete\(2\), expected a continuous Box"):
        gym_rollout(gymnasium.make("CartPole-v1"), damp, dt=0.02)
    with pytest.raises(InputError, match=r"dt: .* does not declare how many seconds a step takes; pass dt"):
        gym_rollout(Clock(dt=None), damp)
    with pytest.raises(InputError, match="dt: the time between two steps must be positive, not 0"):
        gym_rollout(Clock(), damp, dt=0)
    with pytest.raises(MeasurementError, match=r"the policy returned u of shape \(\), the action space has \(1,\)"):
        gym_rollout(Clock(), lambda gain, x: x[0])(Key.from_seed(0), PLAN, np.zeros((1, 1)))

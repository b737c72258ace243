"""Gymnasium problems: any environment, in its own units."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image
from small_learners import BLACK_BOX, SAMPLER, loop, settings

import purectrl as pc
from purectrl.control.exploration import SmoothNoise
from purectrl.control.policy import Actor, BehaviorPolicy
from purectrl.core import InputError, Key, Plan, UnsupportedError
from purectrl.core.algorithm import Algorithm
from purectrl.core.ledger import Budget
from purectrl.core.samplers import Equidistant, Windows
from purectrl.core.schedules import Batches
from purectrl.problems.gymnasium_environments import gymnasium


class Countdown(gym.Env):
    """Pays 1 − 10·action² per step, and ends after its own number of steps."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Box(np.float32([-1]), np.float32([1]))
    dt = 0.1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 3 + seed % 5
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(3, np.float32), 1.0 - 10 * float(action[0]) ** 2, self.left == 0, False, {}


def plan_for(problem, use_actor=1.0):
    actor = Actor.random(np.random.default_rng(0), problem.spec, (8, 8))
    return Plan(BehaviorPolicy(actor, use_actor, np.ones(1, np.float32), SmoothNoise(problem.horizon)), ())


def test_an_environment_object_is_evaluated_until_it_ends_or_the_limit_is_reached():
    problem = gymnasium(Countdown(), horizon=0.5)
    assert (problem.time_grid, problem.eval_steps, problem.lookahead) == (0.1, 5, 1)
    found = problem.evaluate(plan_for(problem), Key.from_seed(0), episodes=20)
    assert 3 < found["steps"] < 5
    assert found["reward"] == 1.0  # at x = 0 an untrained actor does nothing: no noise was added
    assert found["return_min"] == 3.0


@pytest.fixture(scope="module")
def updated():
    one = loop("gymnasium")
    return one, *one.step(one.init(Key.from_seed(0)))


def test_measurements_and_returns_are_in_the_environment_s_unit(updated):
    _, state, record = updated
    problem = gymnasium("Pendulum-v1", horizon=3.0)
    assert problem.spec.control_high == (2.0,)
    assert problem.eval_steps == 200
    assert 1.0 < np.abs(record.block.u).max() <= 2.0
    found = problem.evaluate(state.output.plan, Key.from_seed(0), 2)
    assert found["steps"] == 200
    assert -16.3 < found["reward"] < -0.1
    assert found["return"] == pytest.approx(200 * found["reward"])
    assert -16.3 < record.info["imagined_reward"] <= 0
    assert found == problem.evaluate(state.output.plan, Key.from_seed(0), 2)


def test_the_controller_acts_in_the_environment(updated):
    _, state, _ = updated
    problem = gymnasium("Pendulum-v1")
    policy = problem.controller(state.output.plan)
    x, _ = problem.env.reset(seed=0)
    assert problem.env.action_space.contains(policy(x, 0.3))
    assert policy(np.zeros((4, 50, 3))).shape == (4, 50, 1)
    with pytest.raises(InputError, match=r"x: has shape \(2,\), expected \[3\]"):
        policy(np.zeros(2))


class Pictures(Countdown):
    """Draws how many steps are left."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def render(self):
        return np.full((8, 8, 3), 10 * self.left, np.uint8)


def test_a_video_shows_every_step_of_an_episode(tmp_path):
    problem = gymnasium(Pictures("rgb_array"), horizon=1.0)
    files = problem.video(plan_for(problem), Key.from_seed(0), tmp_path)
    assert files[0] == tmp_path / "Pictures.gif"
    with Image.open(files[0]) as film:
        assert 3 <= film.n_frames <= 7
        assert film.size == (8, 8)
    with pytest.raises(UnsupportedError, match="make it with render_mode='rgb_array'"):
        gymnasium(Pictures(), horizon=1.0).video(plan_for(problem), Key.from_seed(0), tmp_path)


def test_a_registered_environment_is_rendered_or_says_why_not(tmp_path):
    gym.register("own/Swing-v0", entry_point=swing)
    problem = gymnasium("own/Swing-v0", horizon=0.2)
    problem = replace(problem, eval_steps=2)
    files = problem.video(plan_for(problem), Key.from_seed(0), tmp_path)
    assert files[0].name == "own-Swing-v0.gif"
    with Image.open(files[0]) as film:
        assert (film.n_frames, film.size) == (2, (480, 480))
    gym.register("Blind-v0", entry_point=Blind)
    blind = gymnasium("Blind-v0", horizon=1.0)
    with pytest.raises(UnsupportedError, match="video: Blind-v0 cannot be rendered here: no display"):
        blind.video(plan_for(blind), Key.from_seed(0), tmp_path)


def swing(render_mode=None):
    """A pendulum, for 50 s per episode."""
    return pc.problems.environment(pc.problems.pendulum(horizon=50.0), 0.1, render_mode)


class Blind(Pictures):
    """Cannot be rendered on this computer."""

    def render(self):
        raise RuntimeError("no display")


@pytest.mark.slow
def test_a_mujoco_environment_that_ends_its_episodes_runs_and_repeats():
    pytest.importorskip("mujoco", reason="the extra `dev` installs mujoco")
    pytest.importorskip("imageio", reason="Gymnasium imports imageio with every MuJoCo environment")
    problem = gymnasium("InvertedPendulum-v5", horizon=3.0)
    learner = settings("gymnasium", fit={"steps": 300})
    one = Algorithm(SAMPLER, Batches((1, 2), "before", 1), learner).build(problem, Budget(80))
    # a batch has as many measurements as whole episodes would have, so several short ones come before the first update
    state, record = next(step for step in one.run(one.init(Key.from_seed(0))) if step[1].updated)
    assert "rolled_back" not in record.info
    block = state.data.all
    assert block.terminated.all()
    assert block.total == state.ledger.measurements < block.t.size
    assert (np.abs(block.final[:, 1]) > 0.2).all()
    assert (np.abs(block.x[block.valid][:, 1]) <= 0.2).all()  # a state in which it has fallen is never measured
    assert record.info["terminations"] == block.episodes
    plan = one.learner.policy(state.learner)
    found = problem.evaluate(plan, Key.from_seed(1), 2)
    assert found == problem.evaluate(plan, Key.from_seed(1), 2)
    assert found["return"] == found["steps"] - 1  # one for each step but the one that ends it


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env": "Pendulum-v9"}, "env: Environment version `v9` for environment `Pendulum` doesn't exist"),
        ({"env": "Pendulun-v1"}, r"env: Environment `Pendulun` doesn't exist. Did you mean: `Pendulum`\?"),
        ({"env": "no_such_module:Pendulum-v1"}, "env: No module named 'no_such_module'"),
        ({"env": "CartPole-v1"}, r"env: its actions are Discrete\(2\), expected a continuous Box with one axis"),
        ({"env": " "}, "env: ' ' is not the name of an environment"),
        ({"dt": -1.0}, "dt: must be positive, or none for the environment's own, not -1"),
        ({"horizon": 0.0}, "horizon: the episode length must be positive, not 0"),
        ({"eval_episodes": 0}, "eval_episodes: must be at least 1, not 0"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        gymnasium(**arguments)


@pytest.mark.parametrize(
    ("env", "dt", "horizon"),
    [("Pendulum-v1", 0.05, 10.0), ("MountainCarContinuous-v0", 1 / 30, 10.0), ("Reacher-v5", 0.02, 1.0)],
)
def test_times_come_from_the_environment(env, dt, horizon):
    """A frame rate stands for a missing `dt`, and no episode is longer than the environment lets it be."""
    found = gymnasium(env)
    assert (found.dt, found.horizon) == (pytest.approx(dt), pytest.approx(horizon))


def test_windows_finer_than_a_step_are_refused():
    fine = Algorithm(Windows(count=2, length=0.5, step=0.01), Batches((1, 2), "before", 1), BLACK_BOX)
    with pytest.raises(
        InputError, match=r"sampler\.step: must be at least one step of Pendulum-v1, 0\.05 s, not 0\.01"
    ):
        fine.build(gymnasium(), Budget(300))


class Pixels(gym.Env):
    """An environment of the wrong kind."""

    observation_space = gym.spaces.Box(0, 255, (96, 96, 3), np.uint8)
    action_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)


class Unlimited(Pixels):
    """Another."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)


def test_images_and_unlimited_actions_are_refused():
    with pytest.raises(InputError, match=r"env: its observations are Box\(0, 255, \(96, 96, 3\), uint8\), expected"):
        gymnasium(Pixels())
    with pytest.raises(InputError, match="env: the actions of Unlimited are unlimited"):
        gymnasium(Unlimited())


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gymnasium.envs.mujoco.inverted_pendulum_v5", None)
    with pytest.raises(InputError, match=r"env: .*inverted_pendulum_v5"):
        gymnasium("InvertedPendulum-v5")


def test_an_episode_longer_than_the_environment_s_own_limit_is_shorter_and_charged_by_its_length():
    problem = gymnasium(swing(), horizon=60.0)
    one = Algorithm(Equidistant(m=20), Batches((1, 2), "before", 2), BLACK_BOX).build(problem, Budget(100))
    state, record = one.step(one.init(Key.from_seed(0)))
    measured = 16  # one every 3 s, and the environment ends after 50 s
    assert record.block.count.tolist() == [measured, measured]
    assert state.ledger.measurements == 2 * measured < 40
    assert not record.block.terminated.any()

"""`gymnasium`: any environment with continuous observations and actions, learned from measurements alone.

A learner knows the sizes of observation and action, and the limits of the action; it learns drift, reward, initial states
and which states end an episode. Policies are evaluated in whole episodes of the environment. Controls, rewards and returns
are in its own units.
"""

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np

from purectrl.control.episodes import begin_episode, begin_evaluation
from purectrl.core.errors import InputError, UnsupportedError, require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.plan import Plan
from purectrl.core.problem import SHOWN_EPISODES, Criterion, Evaluation, Metrics, Source
from purectrl.core.settings import check_type
from purectrl.core.text import printable
from purectrl.systems.gym import action_limits, box_size, episode_seed, gym_episodes, step_seconds
from purectrl.systems.spec import StateProblem, StateSpec, return_criterion, return_metrics

VIDEO_FRAMES = 600
"""Most frames of a video."""
NAME = r"(?:[\w.]+:)?(?:[\w-]+/)?[\w.-]+"
"""A name of an environment: `[module:][namespace/]Name-vVersion`. A user may register one without a version."""


class Step(NamedTuple):
    """One step of an evaluation episode: observation, action and reward."""

    x: np.ndarray
    u: np.ndarray
    reward: float


LONGEST = 10.0
"""The default length of a measured episode in seconds, unless the environment ends it earlier."""


@dataclass(frozen=True, kw_only=True)
class GymnasiumProblem(StateProblem):
    """An environment in discrete time; `gymnasium` builds it."""

    name: str
    env: gym.Env
    spec: StateSpec
    horizon: float
    dt: float
    time_grid: float | None
    eval_steps: int
    """Steps of an evaluation episode, unless the environment ends it."""
    registered: str | None = None
    """The name of the environment; None for an environment object."""
    eval_episodes: int = 10
    measurements: int = 2_000
    criterion: Criterion | None = None
    source: Source | None = None
    family: ClassVar[str | None] = "gymnasium"

    @property
    def evaluation_length(self) -> float:
        """Seconds of an evaluation episode, unless the environment ends it."""
        return self.eval_steps * self.dt

    def rollout(self, key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        """Episodes one after the other, with the exploration noise of the policy."""
        return gym_episodes(self.env, begin_episode, self.dt)(key, plan, times)

    def evaluate(self, plan: Plan, key: Key, episodes: int) -> Metrics:
        """Whole episodes without exploration noise."""
        return self.evaluation(plan, key, episodes).metrics

    def evaluation(self, plan: Plan, key: Key, episodes: int) -> Evaluation:
        """The same, with the first episodes."""
        returns, steps = np.zeros(episodes), np.zeros(episodes, int)
        shown: list[list[Step]] = []
        for number in range(episodes):
            played = self._play(plan, episode_seed(key.child("episode", number)))
            returns[number], steps[number] = sum(step.reward for step in played), len(played)
            shown += [played] if number < SHOWN_EPISODES else []
        return Evaluation(evaluation_metrics(returns, steps), _measurements(shown, self.dt))

    def _play(self, plan: Plan, seed: int) -> list[Step]:
        """The steps of one episode."""
        x, _ = self.env.reset(seed=seed)
        steps, ended, act = list[Step](), False, begin_evaluation(plan)
        while not ended and len(steps) < self.eval_steps:
            u = act(x, len(steps) * self.dt)
            following, reward, terminated, truncated, _ = self.env.step(u)
            steps.append(Step(np.asarray(x), np.asarray(u), float(reward)))
            x, ended = following, terminated or truncated
        return steps

    def video(self, plan: Plan, key: Key, directory: Path) -> list[Path] | None:
        """One episode as the environment renders it: a GIF, an MP4 if ffmpeg is installed, and a picture."""
        from purectrl.systems.video import save_film

        env = self._rendering()
        frames = self._frames(env, plan, episode_seed(key.child("episode", 0)))
        fps = float(env.metadata.get("render_fps") or 1 / self.dt)
        return save_film(directory, short_name(self.registered or _name(env)), frames, fps)

    def _rendering(self) -> gym.Env:
        """The environment with a render mode that returns pictures."""
        if self.registered is not None:
            return make(self.registered, render_mode="rgb_array")
        if self.env.render_mode != "rgb_array":
            raise UnsupportedError(
                f"video: the environment {_name(self.env)} has render_mode {self.env.render_mode!r}; "
                "make it with render_mode='rgb_array'"
            )
        return self.env

    def _frames(self, env: gym.Env, plan: Plan, seed: int) -> np.ndarray:
        """Pictures [steps, height, width, 3] of one episode."""
        frames: list[np.ndarray] = []
        x, _ = env.reset(seed=seed)
        ended, act = False, begin_evaluation(plan)
        while not ended and len(frames) < min(self.eval_steps, VIDEO_FRAMES):
            try:
                frames.append(np.asarray(env.render(), np.uint8))
            except Exception as error:  # a missing package, no display: each environment has its own
                reason = " ".join(str(error).split())
                raise UnsupportedError(f"video: {_name(env)} cannot be rendered here: {reason}") from error
            x, _, terminated, truncated, _ = env.step(act(x, (len(frames) - 1) * self.dt))
            ended = terminated or truncated
        return np.stack(frames)


def _measurements(episodes: list[list[Step]], dt: float) -> Measurements:
    """Episodes of different length as measurements."""
    m = max(map(len, episodes))
    padded = [steps + steps[-1:] * (m - len(steps)) for steps in episodes]
    x, u, r = (np.array([[step[i] for step in steps] for steps in padded]) for i in range(3))
    t = np.tile(np.arange(m) * dt, (len(episodes), 1))
    return Measurements(t, x, u, r=r, count=np.array([len(steps) for steps in episodes]))


def evaluation_metrics(returns: np.ndarray, steps: np.ndarray) -> Metrics:
    """The returns (`return_metrics`), rewards per step and lengths, of the sums of rewards [episodes] and the numbers of
    steps [episodes].

    >>> evaluation_metrics(np.array([-10.0, -30.0]), np.array([5, 5]))
    {'return': -20.0, 'return_min': -30.0, 'return_error': 10.0, 'reward': -4.0, 'steps': 5.0}
    """
    return return_metrics(returns) | {"reward": float(returns.sum() / steps.sum()), "steps": float(steps.mean())}


def gymnasium(
    env: Any = "Pendulum-v1",
    dt: float | None = None,
    horizon: float | None = None,
    eval_episodes: int = 10,
) -> GymnasiumProblem:
    """Any Gymnasium environment with continuous observations and actions.

    Main arguments:
        env: the name of a registered environment, `module:Name-v0` to import the module first, or an environment object.
        horizon: T, the length of a measured episode in seconds; by default that of the environment, but at most 10 s.
            Evaluation episodes are as long as the environment's own.

    Other arguments:
        dt: seconds per step of the environment; none takes the environment's own, or that between two rendered frames.
        eval_episodes: episodes in which each new policy is evaluated.
    """
    for argument, value in (("dt", dt), ("horizon", horizon)):
        check_type(argument, 1.0 if value is None else value, float)
    check_type("eval_episodes", eval_episodes, int)
    require(dt is None or dt > 0, f"dt: must be positive, or none for the environment's own, not {dt}")
    require(horizon is None or horizon > 0, f"horizon: the episode length must be positive, not {horizon}")
    require(eval_episodes >= 1, f"eval_episodes: must be at least 1, not {eval_episodes}")
    require(isinstance(env, str | gym.Env), f"env: must be a name or an environment, not {env!r:.60}")
    name = env if isinstance(env, str) else _name(env)
    made = make(env) if isinstance(env, str) else env
    d, k = box_size(made, "observation"), box_size(made, "action")
    low, high = action_limits(made)
    require(
        bool(np.isfinite(low).all() and np.isfinite(high).all()),
        f"env: the actions of {name} are unlimited; wrap it in an environment with limits",
    )
    seconds = step_seconds(made) if dt is None else dt
    spec = StateSpec(d, k, tuple(map(float, low)), tuple(map(float, high)), may_terminate=True)
    limit = _step_limit(made)
    if horizon is None:
        horizon = LONGEST if limit is None else min(LONGEST, limit * seconds)
    steps = limit or round(horizon / seconds)
    return GymnasiumProblem(
        name=short_name(name),
        env=made,
        spec=spec,
        horizon=horizon,
        dt=seconds,
        time_grid=seconds,
        eval_steps=steps,
        eval_episodes=eval_episodes,
        registered=env if isinstance(env, str) else None,
        criterion=_criterion(made),
    )


def short_name(name: str) -> str:
    """The name of an environment without its module, as part of a path.

    >>> short_name("mine:robots/Reach-v0")
    'robots-Reach-v0'
    """
    return name.rpartition(":")[2].replace("/", "-")


def _criterion(env: gym.Env) -> Criterion | None:
    """The return from which on the environment says that it is solved, if it says so."""
    registered = env.unwrapped.spec
    least = None if registered is None else registered.reward_threshold
    return None if least is None else return_criterion(float(least))


def make(name: str, render_mode: str | None = None) -> gym.Env:
    """The environment called `name`, without its time limit."""
    require(
        re.fullmatch(NAME, name) is not None,
        f"env: {name!r:.60} is not the name of an environment; expected one such as Pendulum-v1 or module:Name-v0",
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = gym.make(name, max_episode_steps=-1, render_mode=render_mode)
        except (gym.error.Error, ImportError) as error:
            raise InputError(f"env: {' '.join(str(error).split())}") from None
    short = name.rpartition(":")[2]
    if found.spec is not None and found.spec.id != short:
        raise InputError(f"env: {short} is ambiguous without its version; did you mean {found.spec.id}?")
    for warning in told:
        warnings.warn(printable(warning.message), warning.category, stacklevel=2)
    return found


def _name(env: gym.Env) -> str:
    registered = env.unwrapped.spec
    return type(env.unwrapped).__name__ if registered is None else registered.id


def _step_limit(env: gym.Env) -> int | None:
    """Steps after which the registered environment would be truncated; None if it never is."""
    registered = env.unwrapped.spec
    if registered is None or registered.id not in gym.registry:
        return None
    return gym.spec(registered.id).max_episode_steps

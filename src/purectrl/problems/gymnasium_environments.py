"""`gymnasium`: any environment with continuous observations and actions, learned from measurements alone.

A learner knows the sizes of observation and action, and the limits of the action; it learns drift, reward, initial states
and which states end an episode. Policies are evaluated in whole episodes of the environment. Controls, rewards and returns
are in its own units.
"""

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from purectrl.control.episodes import act, begin_episode
from purectrl.core.errors import InputError, UnsupportedError, require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.plan import Plan
from purectrl.core.problem import Metrics, Source
from purectrl.core.settings import check_type
from purectrl.core.text import printable
from purectrl.systems.gym import action_limits, box_size, episode_seed, gym_episodes, step_seconds
from purectrl.systems.spec import StateProblem, StateSpec

VIDEO_FRAMES = 600
"""Most frames of a video."""
NAME = r"(?:[\w.]+:)?(?:[\w-]+/)?[\w.-]+"
"""A name of an environment: `[module:][namespace/]Name-vVersion`. A user may register one without a version."""


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
    source: Source | None = None

    def rollout(self, key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        """Episodes one after the other, with the exploration noise of the policy."""
        return gym_episodes(self.env, begin_episode, self.dt)(key, plan, times)

    def evaluate(self, plan: Plan, key: Key, episodes: int) -> Metrics:
        """Whole episodes without exploration noise."""
        returns, steps = np.zeros(episodes), np.zeros(episodes, int)
        for number in range(episodes):
            returns[number], steps[number] = self._play(plan, episode_seed(key.child("episode", number)))
        return evaluation_metrics(returns, steps)

    def _play(self, plan: Plan, seed: int) -> tuple[float, int]:
        """Return and number of steps of one episode."""
        x, _ = self.env.reset(seed=seed)
        total, steps, ended = 0.0, 0, False
        while not ended and steps < self.eval_steps:
            x, reward, terminated, truncated, _ = self.env.step(act(plan, x, steps * self.dt))
            total, steps, ended = total + float(reward), steps + 1, terminated or truncated
        return total, steps

    def video(self, plan: Plan, key: Key, directory: Path) -> list[Path] | None:
        """One episode as the environment renders it: a GIF, and an MP4 if ffmpeg is installed."""
        from purectrl.systems.video import has_ffmpeg, save_video

        env = self._rendering()
        frames = self._frames(env, plan, episode_seed(key.child("episode", 0)))
        fps = float(env.metadata.get("render_fps") or 1 / self.dt)
        stem = (self.registered or _name(env)).rpartition(":")[2].replace("/", "-")
        suffixes = [".gif", ".mp4"] if has_ffmpeg() else [".gif"]
        return [save_video(directory / f"{stem}{suffix}", frames, fps) for suffix in suffixes]

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
        ended = False
        while not ended and len(frames) < min(self.eval_steps, VIDEO_FRAMES):
            try:
                frames.append(np.asarray(env.render(), np.uint8))
            except Exception as error:  # a missing package, no display: each environment has its own
                reason = " ".join(str(error).split())
                raise UnsupportedError(f"video: {_name(env)} cannot be rendered here: {reason}") from error
            x, _, terminated, truncated, _ = env.step(act(plan, x, len(frames) * self.dt))
            ended = terminated or truncated
        return np.stack(frames)


def evaluation_metrics(returns: np.ndarray, steps: np.ndarray) -> Metrics:
    """Means and the worst episode, of the sums of rewards [episodes] and the numbers of steps [episodes].

    >>> evaluation_metrics(np.array([-10.0, -30.0]), np.array([5, 5]))
    {'return': -20.0, 'return_min': -30.0, 'reward': -4.0, 'steps': 5.0}
    """
    return {
        "return": float(returns.mean()),
        "return_min": float(returns.min()),
        "reward": float(returns.sum() / steps.sum()),
        "steps": float(steps.mean()),
    }


def gymnasium(
    env: Any = "Pendulum-v1",
    dt: float | None = None,
    horizon: float = 10.0,
    eval_episodes: int = 10,
) -> GymnasiumProblem:
    """Any Gymnasium environment with continuous observations and actions.

    Main arguments:
        env: the name of a registered environment, `module:Name-v0` to import the module first, or an environment object.
        horizon: T, the length of a measured episode in seconds. Evaluation episodes are as long as the environment's own.

    Other arguments:
        dt: seconds per step of the environment; none takes the environment's own.
        eval_episodes: episodes in which each new policy is evaluated.
    """
    for argument, value in (("dt", 1.0 if dt is None else dt), ("horizon", horizon)):
        check_type(argument, value, float)
    check_type("eval_episodes", eval_episodes, int)
    require(dt is None or dt > 0, f"dt: must be positive, or none for the environment's own, not {dt}")
    require(horizon > 0, f"horizon: the episode length must be positive, not {horizon}")
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
    steps = _step_limit(made) or round(horizon / seconds)
    return GymnasiumProblem(
        name="gymnasium",
        env=made,
        spec=spec,
        horizon=horizon,
        dt=seconds,
        time_grid=seconds,
        eval_steps=steps,
        eval_episodes=eval_episodes,
        registered=env if isinstance(env, str) else None,
    )


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

"""Gymnasium environments as the true system behind an oracle.

`gym_rollout(gymnasium.make("Pendulum-v1"), policy)` is a rollout for `Oracle`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from jax import Array

from purectrl.core.errors import InputError, MeasurementError, require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.oracle import Rollout
from purectrl.core.plan import Plan
from purectrl.systems.spec import Control


def gym_rollout(env: gymnasium.Env, policy: Callable[[Any, np.ndarray], Array], dt: float | None = None) -> Rollout:
    """The rollout of a Gymnasium environment, for `Oracle`.

    Time is discrete there: step k is at k·dt. A measurement at time t is taken at step round(t/dt), with x the observation,
    u the control, r the reward and y = (x_{k+1} − x_k)/dt; it is reported under the requested t, at most dt/2 away. The
    sampler `Snapped` requests multiples of dt only. A step that several times are rounded to is measured once. Controls are
    clipped to the action space before they are applied, and the clipped ones are reported. The environment draws x(0)
    itself, from a seed derived from the key and the number of the episode: `plan.initial` is not used. Episodes run one
    after the other.

    An episode that ends has no measurements afterwards. If it terminates, the step that did it is measured in the place of
    the next one, so that its reward and the terminal state, `Measurements.final`, are known.

    Main arguments:
        env: with a Box of observations [d] and a Box of actions [k].
        policy: (parameters, x [d]) -> u [k], called once per step; the parameters are `plan.policy`. Jit it if it is JAX.

    Other arguments:
        dt: seconds between two steps; by default the `dt` of the environment.
    """
    return gym_episodes(env, lambda key, plan, number: lambda x, t: policy(plan.policy, x), dt)


class _Steps(NamedTuple):
    """The steps of one episode."""

    x: list[np.ndarray]
    """[steps + 1]."""
    u: list[np.ndarray]
    r: list[float]
    terminated: bool


def gym_episodes(env: gymnasium.Env, begin: Callable[[Key, Plan, int], Control], dt: float | None = None) -> Rollout:
    """As `gym_rollout`, for policies that act differently in each episode, as exploration does.

    Main arguments:
        begin: (key of the episode, plan, number of the episode in its batch) -> (x [d], t) -> u [k].
    """
    d, k = box_size(env, "observation"), box_size(env, "action")
    seconds = step_seconds(env) if dt is None else dt
    require(seconds > 0, f"dt: the time between two steps must be positive, not {seconds}")
    low, high = action_limits(env)

    def clipped(u: Any) -> np.ndarray:
        u = np.asarray(u)
        if u.shape != (k,):
            raise MeasurementError(f"the policy returned u of shape {u.shape}, the action space has {(k,)}")
        return np.clip(u, low, high).astype(low.dtype)

    def episode(key: Key, number: int, plan: Plan, last: int) -> _Steps:
        """Steps 0 to `last`, or until the environment ends the episode."""
        act = begin(key, plan, number)
        x, _ = env.reset(seed=episode_seed(key))
        done = _Steps([np.array(x)], [], [], terminated=False)
        for step in range(last + 1):
            u = clipped(act(x, step * seconds))
            x, reward, terminated, truncated, _ = env.step(u)
            done.x.append(np.array(x))  # an environment may overwrite the array that it returned
            done.u.append(u)
            done.r.append(float(reward))
            if terminated or truncated:
                return done._replace(terminated=bool(terminated))
        return done

    def rollout(key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        episodes, m = times.shape
        t, count = times.copy(), np.zeros(episodes, np.int64)
        x, y = np.zeros((2, episodes, m, d), np.float32)
        u, r = np.zeros((episodes, m, k), np.float32), np.zeros((episodes, m), np.float32)
        final = np.full((episodes, d), np.nan, np.float32)
        for number, row in enumerate(times):
            steps, first = np.unique(np.rint(row / seconds).astype(int), return_index=True)
            done = episode(key.child("episode", number), number, plan, int(steps[-1]))
            end = len(done.u)
            seen, at = steps[steps < end], row[first][steps < end]
            if done.terminated:
                final[number] = done.x[-1]
                if end - 1 not in seen:
                    seen, at = np.append(seen, end - 1), np.append(at, (end - 1) * seconds)
            states, n = np.asarray(done.x), len(seen)
            count[number] = n
            t[number, :n], t[number, n:] = at, at[-1] if n else 0.0
            x[number, :n], u[number, :n], r[number, :n] = (
                states[seen],
                np.asarray(done.u)[seen],
                np.asarray(done.r)[seen],
            )
            y[number, :n] = (states[seen + 1].astype(np.float64) - states[seen]) / seconds
        return Measurements(t, x, u, y, r, count, final)

    return rollout


def episode_seed(key: Key) -> int:
    """The seed of the environment in the episode of `key`."""
    return key.bits & 0x7FFFFFFF


def box_size(env: gymnasium.Env, kind: str) -> int:
    """The number of coordinates of an "observation" or an "action", which must be a Box with one axis."""
    space = getattr(env, f"{kind}_space")
    if isinstance(space, Box) and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating):
        return space.shape[0]
    shown = " ".join(str(space).split())  # a long Box is printed on many lines
    raise InputError(f"env: its {kind}s are {shown}, expected a continuous Box with one axis")


def action_limits(env: gymnasium.Env) -> tuple[np.ndarray, np.ndarray]:
    """The limits of each action [k]."""
    assert isinstance(env.action_space, Box)
    return env.action_space.low, env.action_space.high


def step_seconds(env: gymnasium.Env) -> float:
    """The environment's own `dt`, else the time between two frames when it is rendered.

    >>> round(step_seconds(gymnasium.make("MountainCarContinuous-v0")), 3)
    0.033
    """
    seconds, frames = getattr(env.unwrapped, "dt", None), env.metadata.get("render_fps")
    if isinstance(seconds, int | float):
        return float(seconds)
    if isinstance(frames, int | float) and frames > 0:
        return 1.0 / frames
    raise InputError(f"dt: {env} does not declare how many seconds a step takes; pass dt")

"""Gymnasium: mechanical systems as environments, and environments as the true system behind an oracle.

Importing this module registers `purectrl/Pendulum-v0`, `purectrl/CartPole-v0` and `purectrl/Acrobot-v0`:

    import gymnasium, purectrl.systems.gym
    env = gymnasium.make("purectrl/CartPole-v0", dt=0.05, render_mode="rgb_array")

and `gym_rollout(gymnasium.make("Pendulum-v1"), policy)` is a rollout for `Oracle`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
from gymnasium.spaces import Box
from jax import Array

from purectrl.core.errors import InputError, MeasurementError, choose, require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.oracle import Rollout
from purectrl.core.plan import Plan
from purectrl.systems.acrobot import acrobot
from purectrl.systems.cartpole import cartpole
from purectrl.systems.integration import runge_kutta_step
from purectrl.systems.mechanical import MechanicalSystem
from purectrl.systems.pendulum import pendulum
from purectrl.systems.rendering import Trace, render_frame, require_links
from purectrl.systems.spec import Control

SYSTEMS: dict[str, Callable[[str], MechanicalSystem]] = {
    "acrobot": acrobot,
    "cartpole": cartpole,
    "pendulum": pendulum,
}
"""The shipped mechanical systems, each a function of the variant."""
IDS = {"pendulum": "purectrl/Pendulum-v0", "cartpole": "purectrl/CartPole-v0", "acrobot": "purectrl/Acrobot-v0"}
MAX_STEP = 0.01
"""Longest step of the integrator, in seconds."""
WINDOW = 10.0
"""Seconds of reward and control that a rendered frame shows."""


class MechanicalEnv(gymnasium.Env):
    """A mechanical system in discrete time: the control is held for `dt` seconds, integrated in steps of at most 0.01 s.

    Observation: `MechanicalSystem.featurize`. Action: fractions of the control limit, u = u_max · action, action in
    [−1, 1]^k. Reward: b(x, u) at the beginning of the step. Episodes never terminate; they are truncated after `horizon`
    seconds.

    Main arguments:
        system: a mechanical system, or the name of a shipped one: pendulum, cartpole, acrobot.
        variant: of a shipped system, "paper" or "released".
        dt: seconds between two actions.

    Other arguments:
        horizon: seconds until the episode is truncated.
        render_mode: None or "rgb_array".
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self,
        system: MechanicalSystem | str,
        variant: str = "paper",
        dt: float = 0.1,
        horizon: float = 50.0,
        render_mode: str | None = None,
    ) -> None:
        require(dt > 0, f"dt: the time between two actions must be positive, not {dt}")
        require(horizon >= dt, f"horizon: {horizon:g} s is shorter than one step of {dt:g} s")
        require(render_mode in (None, "rgb_array"), f"render_mode: must be None or 'rgb_array', not {render_mode!r}")
        if isinstance(system, str):
            system = SYSTEMS[choose("system", system, SYSTEMS)](variant)
        self.system = system
        if render_mode is not None:
            require_links(system)
        self.dt, self.horizon, self.render_mode = dt, horizon, render_mode
        self.metadata = {**self.metadata, "render_fps": max(1, round(1 / dt))}
        # velocities and the cart are unbounded, but environments must declare finite bounds
        limit = np.full(system.feature_dim, np.finfo(np.float32).max, np.float32)
        width = system.feature_dim - system.nq
        trigonometric = np.concatenate([[True] * 2 if angle else [False] for angle in system.angles])
        limit[:width][trigonometric] = 1.0
        self.observation_space = Box(-limit, limit, dtype=np.float32)
        self.action_space = Box(-1.0, 1.0, (system.control_dim,), np.float32)
        self._advance = jax.jit(held_control(system, dt))
        self._look = jax.jit(lambda x, u: (system.featurize(x), system.reward(x, u)))
        self._joints = jax.jit(lambda x: require_links(system)(x[: system.nq]))
        self._x, self._steps = np.asarray(system.init_mean, np.float32), 0
        self._rows: list[tuple[np.ndarray, ...]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Starts in the initial box, or in `options["state"]` [2·nq]."""
        super().reset(seed=seed)
        options = dict(options or {})
        x = (
            self.np_random.uniform(-1.0, 1.0, self.system.state_dim) * self.system.init_half_width
            + self.system.init_mean
        )
        x = np.asarray(options.pop("state", x), np.float32)
        require(not options, f"options: unknown {sorted(options)}, only 'state' is supported")
        expected = (self.system.state_dim,)
        require(x.shape == expected, f"options: 'state' has shape {x.shape}, expected {expected}")
        self._x, self._steps, self._rows = x, 0, []
        return self._observe(np.zeros(self.system.control_dim, np.float32)), {"state": x.copy()}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Holds u = u_max · action for `dt` seconds; the reward is the one at the beginning."""
        u = self.system.u_max * np.clip(np.asarray(action, np.float32), -1.0, 1.0)
        x, reward = self._advance(self._x, u)
        self._x, self._steps = np.asarray(x), self._steps + 1
        truncated = self._steps * self.dt >= self.horizon - 1e-9 * self.dt
        return self._observe(u), float(reward), False, truncated, {"state": self._x.copy()}

    def render(self) -> np.ndarray | None:  # pyright: ignore[reportIncompatibleMethodOverride] (Gymnasium's is generic)
        """The current frame, uint8 [480, 480, 3]; None without a render mode."""
        if self.render_mode is None:
            return None
        t, joints, u, r = (np.stack(column) for column in zip(*self._rows, strict=True))
        return render_frame(self.system, Trace(t, joints, u, r), (t[0], max(t[-1], t[0] + WINDOW)), (480, 480))

    def _observe(self, u: np.ndarray) -> np.ndarray:
        """The current observation; adds a row to the rendered trace."""
        features, reward = self._look(self._x, u)
        if self.render_mode is not None:
            t = self._steps * self.dt
            self._rows = [row for row in self._rows if row[0] > t - WINDOW]
            self._rows.append((np.array(t), np.asarray(self._joints(self._x)), u, np.asarray(reward)))
        return np.array(features, np.float32)


def held_control(system: MechanicalSystem, dt: float) -> Callable[[Array, Array], tuple[Array, Array]]:
    """(x [2·nq], u [k]) -> (state after `dt` seconds under the constant control u, reward b(x, u)), by Runge-Kutta steps."""
    steps = max(1, int(np.ceil(dt / MAX_STEP - 1e-9)))
    h = dt / steps

    def advance(x: Array, u: Array) -> tuple[Array, Array]:
        substep = lambda _, x: runge_kutta_step(lambda x, t: system.drift(x, u), x, 0.0, h)  # noqa: E731
        return jax.lax.fori_loop(0, steps, substep, x), system.reward(x, u)

    return advance


def register() -> None:
    """Adds the shipped mechanical systems to Gymnasium's registry; calling it again changes nothing."""
    for name, identifier in IDS.items():
        if identifier not in gymnasium.registry:
            gymnasium.register(identifier, entry_point="purectrl.systems.gym:MechanicalEnv", kwargs={"system": name})


register()


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

"""Gymnasium, both ways: our mechanisms as its environments, its environments as the true system behind an oracle.

Importing this module registers `purectrl/Pendulum-v0`, `purectrl/CartPole-v0` and `purectrl/Acrobot-v0`:

    import gymnasium, purectrl.systems.gym
    env = gymnasium.make("purectrl/CartPole-v0", dt=0.05, render_mode="rgb_array")

and `gym_rollout(gymnasium.make("Pendulum-v1"), policy)` is a rollout for `Oracle`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.spaces import Box

from purectrl.core.errors import InputError, MeasurementError, require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.oracle import Rollout
from purectrl.core.problem import Array, Plan
from purectrl.core.samplers import Context, Sampler
from purectrl.systems.catalogue import mechanism
from purectrl.systems.drawing import Trace, picture
from purectrl.systems.mechanism import Mechanism

IDS = {"pendulum": "purectrl/Pendulum-v0", "cartpole": "purectrl/CartPole-v0", "acrobot": "purectrl/Acrobot-v0"}
FINEST = 0.01
"""Longest step of the integrator, in seconds."""
WINDOW = 10.0
"""Seconds of reward and control that a rendered picture shows."""


class MechanismEnv(gymnasium.Env):
    """A mechanism in discrete time: the control is held for `dt` seconds while RK4 integrates in steps of 0.01 s or less.

    Observation: `Mechanism.observe`. Action: fractions of the control limit, u = u_max · action, action in [−1, 1]^k.
    Reward: b(x, u) at the beginning of the step. Nothing terminates an episode; it is truncated after `horizon` seconds.

    Main arguments:
        name: a mechanism of the catalogue.
        variant: "paper" or "released".
        dt: seconds between two actions.

    Other arguments:
        horizon: seconds until the episode is truncated.
        render_mode: None or "rgb_array".
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self,
        name: str,
        variant: str = "paper",
        dt: float = 0.1,
        horizon: float = 50.0,
        render_mode: str | None = None,
    ) -> None:
        require(dt > 0, f"dt: the time between two actions must be positive, not {dt}")
        require(horizon >= dt, f"horizon: {horizon:g} s is shorter than one step of {dt:g} s")
        require(render_mode in (None, "rgb_array"), f"render_mode: must be None or 'rgb_array', not {render_mode!r}")
        self.mechanism = mechanism(name, variant)
        self.dt, self.horizon, self.render_mode = dt, horizon, render_mode
        self.metadata = {**self.metadata, "render_fps": max(1, round(1 / dt))}
        # nothing bounds velocities or the cart, but a Box of infinities would be no promise at all
        limit = np.full(self.mechanism.feature_dim, np.finfo(np.float32).max, np.float32)
        width = self.mechanism.feature_dim - self.mechanism.nq
        trigonometric = np.concatenate([[True] * 2 if angle else [False] for angle in self.mechanism.angles])
        limit[:width][trigonometric] = 1.0
        self.observation_space = Box(-limit, limit, dtype=np.float32)
        self.action_space = Box(-1.0, 1.0, (self.mechanism.control_dim,), np.float32)
        self._advance = jax.jit(held_control(self.mechanism, dt))
        self._look = jax.jit(seen_by(self.mechanism))
        self._x, self._steps = np.asarray(self.mechanism.centre, np.float32), 0
        self._rows: list[tuple[np.ndarray, ...]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Starts in the initial box, or in `options["state"]` [2·nq]."""
        super().reset(seed=seed)
        options = dict(options or {})
        x = self.np_random.uniform(-1.0, 1.0, self.mechanism.state_dim) * self.mechanism.box + self.mechanism.centre
        x = np.asarray(options.pop("state", x), np.float32)
        require(not options, f"options: unknown {sorted(options)}, only 'state' is understood")
        expected = (self.mechanism.state_dim,)
        require(x.shape == expected, f"options: 'state' has shape {x.shape}, expected {expected}")
        self._x, self._steps, self._rows = x, 0, []
        return self._observe(np.zeros(self.mechanism.control_dim, np.float32)), {"state": x.copy()}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Holds u = u_max · action for `dt` seconds; the reward is the one at the beginning."""
        u = self.mechanism.u_max * np.clip(np.asarray(action, np.float32), -1.0, 1.0)
        x, reward = self._advance(self._x, u)
        self._x, self._steps = np.asarray(x), self._steps + 1
        truncated = self._steps * self.dt >= self.horizon - 1e-9 * self.dt
        return self._observe(u), float(reward), False, truncated, {"state": self._x.copy()}

    def render(self) -> np.ndarray | None:
        """The present, uint8 [480, 480, 3]; None without a render mode."""
        if self.render_mode is None:
            return None
        t, joints, u, r = (np.stack(column) for column in zip(*self._rows, strict=True))
        return picture(self.mechanism, Trace(t, joints, u, r), (t[0], max(t[-1], t[0] + WINDOW)), (480, 480))

    def _observe(self, u: np.ndarray) -> np.ndarray:
        """The observation of the present, and a row for the picture."""
        features, joints, reward = self._look(self._x, u)
        if self.render_mode is not None:
            t = self._steps * self.dt
            self._rows = [row for row in self._rows if row[0] > t - WINDOW]
            self._rows.append((np.array(t), np.asarray(joints), u, np.asarray(reward)))
        return np.array(features, np.float32)


def seen_by(mechanism: Mechanism) -> Callable[[Array, Array], tuple[Array, Array, Array]]:
    """(x [2·nq], u [k]) -> (features, joints, reward)."""
    return lambda x, u: (mechanism.observe(x), mechanism.links(x[: mechanism.nq]), mechanism.reward(x, u))


def held_control(mechanism: Mechanism, dt: float) -> Callable[[Array, Array], tuple[Array, Array]]:
    """(x [2·nq], u [k]) -> (state after `dt` seconds under the constant control u, reward b(x, u)), by RK4."""
    steps = max(1, int(np.ceil(dt / FINEST - 1e-9)))
    h = dt / steps

    def advance(x: Array, u: Array) -> tuple[Array, Array]:
        def substep(_: int, x: Array) -> Array:
            a = mechanism.drift(x, u)
            b = mechanism.drift(x + h / 2 * a, u)
            c = mechanism.drift(x + h / 2 * b, u)
            d = mechanism.drift(x + h * c, u)
            return x + h / 6 * (a + 2 * b + 2 * c + d)

        return jax.lax.fori_loop(0, steps, substep, x), mechanism.reward(x, u)

    return advance


def register() -> None:
    """Adds the mechanisms to Gymnasium's registry; once is enough."""
    for name, identifier in IDS.items():
        if identifier not in gymnasium.registry:
            gymnasium.register(identifier, entry_point="purectrl.systems.gym:MechanismEnv", kwargs={"name": name})


register()


def gym_rollout(
    env: gymnasium.Env,
    policy: Callable[[Any, np.ndarray], Array],
    dt: float | None = None,
    absorbing_reward: float | None = None,
) -> Rollout:
    """The rollout of a Gymnasium environment, for `Oracle`.

    Time is discrete there: step k is at k·dt. A measurement at time t looks at step round(t/dt), with x the observation, u
    the control, r the reward and y = (x_{k+1} − x_k)/dt; it is reported under the t that was asked for, at most dt/2 away.
    `snapped` makes a sampler ask for multiples of dt only. Controls are clipped to the action space before they act, and
    the clipped ones are what is reported. The environment draws x(0) itself, from a seed derived from the key and the
    episode's number: `plan.initial` is not used. Episodes run one after the other.

    Main arguments:
        env: with a Box of observations [d] and a Box of actions [k].
        policy: (parameters, x [d]) -> u [k], called once a step; the parameters are `plan.policy`. Jit it if it is JAX.

    Other arguments:
        dt: seconds between two steps; the environment's own `dt` unless given.
        absorbing_reward: what happens to times after a terminal state. None refuses them; a number says that the state
            stays as it is from then on (y = 0) with that reward.

    Raises:
        MeasurementError: the episode ended before the last time. Truncation is never bridged: the state would have gone
            on, and nobody knows where.
    """
    return gym_episodes(env, lambda key, plan, number: lambda x, t: policy(plan.policy, x), dt, absorbing_reward)


Act = Callable[[np.ndarray, float], Array]
"""(x [d], t) -> u [k], for one episode."""


def gym_episodes(
    env: gymnasium.Env,
    begin: Callable[[Key, Plan, int], Act],
    dt: float | None = None,
    absorbing_reward: float | None = None,
) -> Rollout:
    """As `gym_rollout`, for what acts differently in each episode, as exploration does.

    Main arguments:
        begin: (key of the episode, plan, number of the episode in its block) -> (x [d], t) -> u [k].
    """
    d, k = width_of(env, "observation"), width_of(env, "action")
    seconds = step_of(env) if dt is None else dt
    require(seconds > 0, f"dt: the time between two steps must be positive, not {seconds}")
    low, high = env.action_space.low, env.action_space.high  # pyright: ignore[reportAttributeAccessIssue]

    def clipped(u: Array) -> np.ndarray:
        u = np.asarray(u)
        if u.shape != (k,):
            raise MeasurementError(f"the policy returned u of shape {u.shape}, the action space has {(k,)}")
        return np.clip(u, low, high).astype(low.dtype)

    def episode(key: Key, number: int, plan: Plan, last: int) -> tuple[list[np.ndarray], ...]:
        """Steps 0 to `last`: x [last + 2, d], u [last + 1, k], r [last + 1]."""
        act = begin(key, plan, number)
        x, _ = env.reset(seed=seed_of(key))
        states, controls, rewards, ended = [np.array(x)], [], [], False
        for step in range(last + 1):
            u = clipped(act(x, step * seconds))
            if ended:
                reward = absorbing_reward
            else:
                x, reward, ended, truncated, _ = env.step(u)
                unknown = absorbing_reward is None if ended else truncated
                if unknown:  # what would be measured from here on
                    _refuse_unless_last(number, step, last, seconds, by_limit=not ended)
            states.append(np.array(x))  # an environment may write into the array it has handed out
            controls.append(u)
            rewards.append(reward)
        return states, controls, rewards

    def rollout(key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        episodes, m = times.shape
        steps = np.rint(times / seconds).astype(int)
        x, y = np.empty((2, episodes, m, d), np.float32)
        u, r = np.empty((episodes, m, k), np.float32), np.empty((episodes, m), np.float32)
        for number, seen in enumerate(steps):
            run = episode(key.child("episode", number), number, plan, int(seen.max()))
            states, controls, rewards = map(np.asarray, run)
            x[number], u[number], r[number] = states[seen], controls[seen], rewards[seen]
            y[number] = (states[seen + 1].astype(np.float64) - states[seen]) / seconds
        return Measurements(times, x, u, y, r)

    return rollout


def seed_of(key: Key) -> int:
    """The seed with which an environment begins the episode of `key`."""
    return key.bits & 0x7FFFFFFF


def snapped(sampler: Sampler, dt: float) -> Sampler:
    """`sampler` with every time moved to the nearest multiple of `dt` inside [0, T].

    >>> from purectrl.core.samplers import uniform
    >>> snapped(uniform(m=3), dt=0.5)(Key.from_seed(0), 1, Context(horizon=10.0))
    array([[1. , 2.5, 9.5]])
    """
    require(dt > 0, f"dt: must be positive, not {dt}")

    def draw(key: Key, episodes: int, context: Context) -> np.ndarray:
        last = np.floor(context.horizon / dt + 1e-9)
        return np.minimum(np.rint(sampler(key, episodes, context) / dt), last) * dt

    return replace(sampler, draw=draw)


def width_of(env: gymnasium.Env, kind: str) -> int:
    """Numbers in an observation or an action, which must be a Box with one axis."""
    space = getattr(env, f"{kind}_space")
    if isinstance(space, Box) and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating):
        return space.shape[0]
    shown = " ".join(str(space).split())  # a long Box is printed on many lines
    raise InputError(f"env: its {kind}s are {shown}, expected a continuous Box with one axis")


def step_of(env: gymnasium.Env) -> float:
    """The environment's own `dt`."""
    seconds = getattr(env.unwrapped, "dt", None)
    if isinstance(seconds, (int, float)):
        return float(seconds)
    raise InputError(f"dt: {env} does not say how many seconds a step takes; pass dt")


def _refuse_unless_last(number: int, step: int, last: int, seconds: float, by_limit: bool) -> None:
    """Raises if steps after the end of an episode are still wanted."""
    if step == last:
        return
    why, remedy = "terminated", "shorten the horizon, or say which reward a terminal state has with absorbing_reward"
    if by_limit:
        why, remedy = "was truncated", "shorten the horizon, or make the environment with max_episode_steps=-1"
    raise MeasurementError(
        f"episode {number} of this block {why} after {(step + 1) * seconds:g} s, a measurement at {last * seconds:g} s "
        f"takes {(last + 1) * seconds:g} s: {remedy}"
    )

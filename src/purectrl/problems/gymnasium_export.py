"""Problems as Gymnasium environments, so that algorithms of other packages run on the same system, reward and starts.

    env = purectrl.problems.environment(purectrl.problems.pendulum(), dt=0.1)

The control is held for `dt` seconds. Every step is one measurement and one episode one rollout: `env.unwrapped.ledger`
counts both, and `env.unwrapped.prices.utility(...)` charges for them.
"""

from collections import deque
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box

from purectrl.core.errors import UnsupportedError, require
from purectrl.core.keys import Key
from purectrl.core.ledger import Ledger
from purectrl.core.prices import Prices
from purectrl.core.problem import Problem
from purectrl.systems.compiled import jax_key
from purectrl.systems.integration import runge_kutta_step
from purectrl.systems.mechanical import MechanicalSystem
from purectrl.systems.rendering import render_frame, require_links, trace
from purectrl.systems.spec import StateProblem

MAX_STEP = 0.01
"""Longest step of the integrator, in seconds."""
WINDOW = 10.0
"""Seconds of reward and control that a rendered frame shows."""
UNBOUNDED = float(np.finfo(np.float32).max)
"""Bound of coordinates that have none: environments must declare finite ones."""


class StateEnv(gymnasium.Env):
    """A simulated problem with states and controls in discrete time; `environment` builds it.

    Observation: the features of the state, angles as (cos, sin), and the elapsed share of the episode. Action: the control,
    scaled to [−1, 1]^k. Reward: the integral of the reward rate over the step, and the reward of the final state at the end.
    Episodes are truncated after the horizon of the problem.

    Main arguments:
        problem: a problem with a simulated system without process noise.
        dt: seconds between two actions.

    Other arguments:
        render_mode: None or "rgb_array", for mechanical systems with `links`.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, problem: StateProblem, dt: float, render_mode: str | None = None) -> None:
        require(render_mode in (None, "rgb_array"), f"render_mode: must be None or 'rgb_array', not {render_mode!r}")
        require(dt > 0, f"dt: the time between two actions must be positive, not {dt}")
        require(problem.horizon >= dt, f"dt: {dt:g} s is longer than an episode of {problem.horizon:g} s")
        self.problem, self.dt = problem, dt
        self.prices: Prices = problem.prices
        self.ledger = Ledger()
        """Steps as measurements, episodes as rollouts."""
        spec = problem.spec
        self._steps = round(problem.horizon / dt)
        low, high = (
            np.full(spec.feature_dim + 1, -UNBOUNDED, np.float32),
            np.full(spec.feature_dim + 1, UNBOUNDED, np.float32),
        )
        low[-1], high[-1] = 0.0, 1.0
        self.observation_space = Box(low, high, dtype=np.float32)
        self.action_space = Box(-1.0, 1.0, (spec.control_dim,), np.float32)
        self._initial, self._advance, self._features = _compiled(problem, dt)
        self._x, self._step = np.zeros(spec.state_dim, np.float32), 0
        self.render_mode, self._shown = render_mode, None
        self._path: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=1 + round(WINDOW / dt))
        self.metadata = {**self.metadata, "render_fps": max(1, round(1 / dt))}
        if render_mode is not None:
            if not isinstance(spec.mechanics, MechanicalSystem):
                raise UnsupportedError(f"render_mode: {problem.name!r} is not a mechanical system; use None")
            require_links(spec.mechanics)
            self._shown = spec.mechanics

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begins an episode, in a state of the initial distribution."""
        super().reset(seed=seed)
        bits = int.from_bytes(self.np_random.bytes(16), "little")
        self._x, self._step = np.asarray(self._initial(jax_key(Key(bits)))), 0
        self._path.clear()
        self._path.append((self._x, np.zeros(self.problem.spec.control_dim, np.float32)))
        self.ledger = self.ledger._replace(rollouts=self.ledger.rollouts + 1)
        return self._observe(), {"state": self._x.copy()}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Holds the control for `dt` seconds."""
        scaled, expected = np.clip(np.asarray(action, np.float32), -1.0, 1.0), self.action_space.shape
        require(scaled.shape == expected, f"action: has shape {scaled.shape}, expected {expected}")
        u = np.asarray(self.problem.spec.unscale_control(jnp.asarray(scaled)))
        x, reward = self._advance(self._x, u)
        self._x, self._step = np.asarray(x), self._step + 1
        self._path.append((self._x, u))
        self.ledger = self.ledger._replace(measurements=self.ledger.measurements + 1)
        truncated = self._step >= self._steps
        final = self.problem.spec.terminal_reward
        if truncated and final is not None:
            reward = reward + final(x)
        return self._observe(), float(reward), False, truncated, {"state": self._x.copy(), "control": u}

    def render(self) -> np.ndarray | None:  # pyright: ignore[reportIncompatibleMethodOverride] (Gymnasium's is generic)
        """The current frame, uint8 [480, 480, 3]; None without a render mode."""
        if self._shown is None:
            return None
        x, u = (np.stack(column) for column in zip(*self._path, strict=True))
        t = self.dt * np.arange(self._step + 1 - len(x), self._step + 1)
        return render_frame(self._shown, trace(self._shown, t, x, u), (t[0], max(t[-1], t[0] + WINDOW)), (480, 480))

    def _observe(self) -> np.ndarray:
        share = np.float32(self._step / self._steps)
        return np.append(np.asarray(self._features(self._x)), share).astype(np.float32)


def _compiled(problem: StateProblem, dt: float) -> tuple[Any, Any, Any]:
    """(key) -> x(0); (x, u) -> x after `dt` and the integral of the reward; (x) -> features."""
    system: Any = getattr(problem, "system")  # noqa: B009 (checked by `environment`)
    steps = max(1, int(np.ceil(dt / min(MAX_STEP, problem.horizon / 1000) - 1e-9)))
    h = dt / steps

    def advance(x: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
        def small(x: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            later = runge_kutta_step(lambda x, t: system.drift(x, u), x, 0.0, h)
            return later, h / 2 * (system.reward(x, u) + system.reward(later, u))

        x, rewards = jax.lax.scan(small, x, None, steps)
        return x, rewards.sum()

    return jax.jit(system.sample_initial_state), jax.jit(advance), jax.jit(problem.spec.featurize)


def environment(problem: Problem, dt: float = 0.1, render_mode: str | None = None) -> StateEnv:
    """A problem as a Gymnasium environment.

    Main arguments:
        problem: a simulated problem with states, without process noise.
        dt: seconds between two actions, during which the control is held.

    Other arguments:
        render_mode: None or "rgb_array", for mechanical systems with `links`.
    """
    system = getattr(problem, "system", None)
    simulated = all(hasattr(system, name) for name in ("drift", "reward", "sample_initial_state"))
    if not isinstance(problem, StateProblem) or not simulated:
        raise UnsupportedError(
            f"environment: needs a simulated problem with states in continuous time; {problem.name!r} is none; use "
            "pendulum, ocorl-pendulum or a problem made by `continuous`"
        )
    if getattr(problem, "diffusion", 0.0):
        raise UnsupportedError(
            f"environment: {problem.name!r} has process noise, which is unsupported; use diffusion 0"
        )
    return StateEnv(problem, dt, render_mode)

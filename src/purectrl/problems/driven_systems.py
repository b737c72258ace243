"""Systems that a user's function drives, such as hardware: `continuous(rollout=...)` builds them.

The function runs one episode. It calls `control(x, t)` for each control and returns what it measured. It may return fewer
measurements than were asked for, at other times, and whether the system has terminated:

    def drive(control, times):
        device.start()
        try:
            ...                                   # u = control(x, t) throughout, measure at `times`
        finally:
            device.stop()
        return Episode(x, u, t=t)

`control` returns controls within their limits. If a coordinate is not finite, as after a lost message, it repeats the last
control. If the state leaves the limits of the problem, it raises `EpisodeEnd`: let it pass, after stopping the system in
`finally`. What `control` saw up to then is measured.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.errors import MeasurementError
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.plan import Plan
from purectrl.core.problem import SHOWN_EPISODES, Criterion, Evaluation, Metrics, Source
from purectrl.systems.compiled import jax_key
from purectrl.systems.device import Device, History
from purectrl.systems.held_policy import HeldControl, HeldPolicy
from purectrl.systems.spec import ExploringPolicy, StateProblem, StateSpec, return_metrics

EVAL_POINTS = 300
"""Measurements of an evaluation episode."""


class Episode(NamedTuple):
    """What was measured in one episode, n times, of which at most as many as were asked for are used.

    Main arguments:
        x: measured states [n, d].
        u: controls [n, k].

    Other arguments:
        r: measured rewards [n]; None if the reward is known.
        t: the times [n]; None if they are the first n of those that were asked for.
        terminated: whether the last state is terminal. Problems with `terminated` or `limits` find that out themselves.
    """

    x: Any
    u: Any
    r: Any = None
    t: Any = None
    terminated: bool = False


class EpisodeEnd(Exception):  # noqa: N818 (not an error)
    """Raised by `control` when the state leaves the limits of the problem."""


Drive = Callable[[Callable[[Any, float], np.ndarray], np.ndarray], Sequence[Any]]
"""(control, times [m]) -> (x, u), (x, u, r) or an `Episode`: runs one episode, with u = control(x, t) throughout."""
_explore = jax.jit(lambda policy, key, number, z, t: policy.explore(key, number)(z, t))
_act = jax.jit(lambda policy, z, t: policy(z, t))


@dataclass(frozen=True, kw_only=True)
class DrivenProblem(StateProblem):
    """A system that a user's function drives; `continuous` builds it."""

    name: str
    spec: StateSpec
    drive: Drive
    horizon: float
    full: StateSpec
    """The specification of the state that `drive` measures; `spec` is that of what policies see."""
    device: Device | None = None
    """The control period and the history of samples; None without."""
    measurements: int = 5_000
    eval_episodes: int = 0
    evaluate_episodes: int = 1  # each one occupies the real system
    criterion: Criterion | None = None
    logs: Measurements | None = None
    abort_reward: float = 0.0
    source: Source | None = None

    def rollout(self, key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        """Episodes one after the other, with the exploration noise of the policy."""
        acts = [self._exploring(plan.policy, key, number) for number in range(len(times))]
        return self._run(acts, times)

    def evaluate(self, plan: Plan, key: Key, episodes: int) -> Metrics:
        """The integral of the reward over episodes without exploration noise."""
        return self.evaluation(plan, key, episodes).metrics

    def evaluation(self, plan: Plan, key: Key, episodes: int) -> Evaluation:
        """The same, with the first episodes."""
        times = np.tile(np.linspace(0.0, self.horizon, EVAL_POINTS + 1), (episodes, 1))
        seen = self._run([self._acting(plan.policy, jax.random.key(0)) for _ in range(episodes)], times)
        labels = () if self.device is None else self.device.labels(self.spec.control_dim)
        seen = with_aborts(seen, self.abort_reward)
        return Evaluation(evaluation_metrics(seen, self.horizon, self.abort_reward), seen.first(SHOWN_EPISODES), labels)

    def _exploring(self, policy: Any, key: Key, number: int) -> Callable[[Any, Any], Any]:
        noise_key = jax_key(key.child("episode", number))
        if not isinstance(policy, ExploringPolicy):
            return self._acting(policy, noise_key)
        return lambda z, t: _explore(policy, noise_key, number, z, t)

    def _acting(self, policy: Any, key: Array) -> Callable[[Any, Any], Any]:
        return HeldControl(policy, key) if isinstance(policy, HeldPolicy) else lambda z, t: _act(policy, z, t)

    def _run(self, acts: list[Callable[[Any, Any], Any]], times: np.ndarray) -> Measurements:
        episodes, m = times.shape
        t, count = times.copy(), np.zeros(episodes, np.int64)
        x = np.zeros((episodes, m, self.spec.state_dim), np.float32)
        u, r = np.zeros((episodes, m, self.spec.control_dim), np.float32), np.zeros((episodes, m), np.float32)
        final = np.full((episodes, self.spec.state_dim), np.nan, np.float32)
        for number, act in enumerate(acts):
            found = self._episode(act, times[number])
            n = len(found.t)
            count[number], t[number, :n], t[number, n:] = n, found.t, found.t[-1] if n else 0.0
            x[number, :n], u[number, :n], r[number, :n] = found.x, found.u, found.r
            if found.terminated and n:
                final[number] = found.x[-1]
        return Measurements(t, x, u, None, r, count, final)

    def _episode(self, act: Callable[[Any, Any], Any], times: np.ndarray) -> Episode:
        """The measurements of one episode, with what policies see in the place of the state."""
        controller = Controller(self, act)
        controller(np.zeros(self.full.state_dim if self.device is None else len(self.device.observed)), 0.0)  # compiles
        controller.reset()
        try:
            returned = self.drive(controller, times)
            found = returned if isinstance(returned, Episode) else Episode(*returned)
        except EpisodeEnd:
            found = controller.at(times)._replace(terminated=True)
        return self._checked(found, times, controller)

    def _checked(self, found: Episode, times: np.ndarray, controller: "Controller") -> Episode:
        n, d, k = len(found.x), controller.observed, self.spec.control_dim
        x, u = (np.asarray(array, np.float32) for array in (found.x, found.u))
        t = times[:n] if found.t is None else np.asarray(found.t, np.float64)
        r = None if found.r is None else np.asarray(found.r, np.float32)
        if (
            n > len(times)
            or x.shape != (n, d)
            or u.shape != (n, k)
            or t.shape != (n,)
            or (r is not None and r.shape != (n,))
        ):
            shapes = [array.shape for array in (x, u, t, *([] if r is None else [r]))]
            raise MeasurementError(
                f"rollout returned x, u, t and r of shapes {shapes}, expected {(n, d)}, {(n, k)}, {(n,)} and {(n,)} with n "
                f"at most {len(times)}"
            )
        sound = np.isfinite(x).all(axis=1) & np.isfinite(t)  # a lost message is not a measurement
        x, u, t = x[sound], u[sound], np.minimum(t[sound], self.horizon)
        if r is None:
            r = self._rewards(x, u)
        else:
            r = r[sound] - np.float32(self.abort_reward)
        ends = self.full.terminated
        whole = d == self.full.state_dim
        terminated = found.terminated or bool(n and whole and ends is not None and ends(jnp.asarray(found.x[-1])))
        return Episode(controller.seen_at(t, x), u, r, t, terminated)

    def _rewards(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        if self.full.reward is None or x.shape[-1] != self.full.state_dim:
            raise MeasurementError("rollout returned no rewards, and the reward is unknown; return (x, u, r)")
        return np.asarray(jax.vmap(self.full.reward)(jnp.asarray(x), jnp.asarray(u)))


@functools.lru_cache(maxsize=8)
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(function)


class Controller:
    """The function `control(x, t)` that a drive calls, and what it saw."""

    def __init__(self, problem: DrivenProblem, act: Callable[[Any, Any], Any]) -> None:
        spec, device = problem.full, problem.device
        self.observed = spec.state_dim if device is None else len(device.observed)
        ends = spec.terminated if self.observed == spec.state_dim else None
        self._act, self._ends = act, None if ends is None else _compiled(ends)
        self._low, self._high = np.asarray((spec.control_low, spec.control_high), np.float32)
        self._rest = np.clip(0.0, self._low, self._high).astype(np.float32)
        self._length = 1 if device is None else device.history
        self.reset()

    def reset(self) -> None:
        """Forgets everything."""
        self._history = History(self.observed, len(self._low), self._length, self._rest)
        self._calls: list[tuple[float, np.ndarray, np.ndarray, np.ndarray]] = []

    def __call__(self, x: Any, t: float) -> np.ndarray:
        """The control [k] at what was measured, x, and at time t."""
        x = np.asarray(x, np.float32)
        if x.shape != (self.observed,):
            raise MeasurementError(f"control: x has shape {x.shape}, expected [{self.observed}]")
        if not np.isfinite(x).all():
            return self._calls[-1][3] if self._calls else self._rest
        z = self._history(x)
        u = np.clip(np.asarray(self._act(z, np.float32(t))), self._low, self._high)
        self._history.applied(u)
        self._calls.append((float(t), x, z, u))
        if self._ends is not None and bool(self._ends(x)):
            raise EpisodeEnd
        return u

    def at(self, times: np.ndarray) -> Episode:
        """The calls nearest to `times`, each once, and the last one."""
        moments = np.array([call[0] for call in self._calls])
        asked = times[times <= moments[-1]]
        places = np.unique(np.append(np.abs(moments[None] - asked[:, None]).argmin(axis=1), len(moments) - 1))
        places = np.append(places[: len(times) - 1], len(moments) - 1) if len(places) > len(times) else places
        t, x, _, u = (np.stack([call[i] for call in self._calls])[places] for i in range(4))
        return Episode(x, u, t=t)

    def seen_at(self, t: np.ndarray, x: np.ndarray) -> np.ndarray:
        """What the policy saw at times t [n] in place of the states x [n, d]: the same without a history."""
        if self._length == 1 or not len(t):
            return x
        moments = np.array([call[0] for call in self._calls])
        places = np.maximum(np.searchsorted(moments, t + 1e-9, side="right") - 1, 0)
        return np.stack([self._calls[place][2] for place in places])


def with_aborts(seen: Measurements, abort_reward: float) -> Measurements:
    """Measurements with rewards in the user's unit, from those that learners see, which are relative to `abort_reward`."""
    if not abort_reward or seen.r is None:
        return seen
    return replace(seen, r=seen.r + np.asarray(abort_reward, seen.r.dtype))


def evaluation_metrics(seen: Measurements, horizon: float = 0.0, abort_reward: float = 0.0) -> Metrics:
    """The returns of the episodes (`return_metrics`): integrals of the reward over time; the mean reward; if episodes may
    end, their length.

    >>> t, x = np.array([[0.0, 1.0, 2.0]]), np.zeros((1, 3, 1))
    >>> evaluation_metrics(Measurements(t, x, x, r=np.array([[0.0, 1.0, 1.0]])))
    {'return': 1.5, 'return_min': 1.5, 'reward': 0.75}
    >>> evaluation_metrics(Measurements(t, x, x, r=np.array([[0.0, 1.0, 9.0]]), count=np.array([2])))
    {'return': 0.5, 'return_min': 0.5, 'reward': 0.5, 'seconds': 1.0}

    An episode of 4 s that was aborted after 1 s earns `abort_reward` for the other 3 s:

    >>> aborted = Measurements(t, x, x, r=np.array([[0.0, 1.0, 9.0]]), count=np.array([2]), final=np.ones((1, 1)))
    >>> evaluation_metrics(aborted, horizon=4.0, abort_reward=-2.0)
    {'return': -5.5, 'return_min': -5.5, 'reward': -1.375, 'seconds': 1.0}
    """
    assert seen.r is not None
    rewards = seen.r.astype(np.float64)
    if seen.count is None:
        returns = np.asarray(np.trapezoid(rewards, seen.t, axis=1))
        return return_metrics(returns) | {"reward": float(returns.mean() / (seen.t[:, -1] - seen.t[:, 0]).mean())}
    pairs = [(rewards[i, :n], seen.t[i, :n]) for i, n in enumerate(seen.count)]
    returns = np.array([np.trapezoid(r, t) if len(t) else 0.0 for r, t in pairs])
    lengths = np.array([t[-1] if len(t) else 0.0 for _, t in pairs])
    rest = (
        np.where(seen.terminated, np.maximum(horizon - lengths, 0.0), 0.0) if abort_reward else np.zeros(len(lengths))
    )
    returns = returns + abort_reward * rest
    whole = (lengths + rest).sum()
    reward = float(returns.sum() / whole) if whole else 0.0
    return return_metrics(returns) | {"reward": reward, "seconds": float(lengths.mean())}

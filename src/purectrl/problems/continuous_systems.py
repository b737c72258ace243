"""`continuous`: a user's own system in continuous time, simulated from its equations or driven by a function.

    def problem():
        return continuous(
            name="tank", horizon=10.0,
            drift=lambda x, u: u - 0.5 * x,                   # (x [d], u [k]) -> dx/dt [d]; learners do not see it
            reward=lambda x, u: -(x[0] - 1.0) ** 2,           # (x [d], u [k]) -> reward rate
            initial=lambda key: jax.random.uniform(key, (1,)),
            control_low=[0.0], control_high=[1.0])

A system of any order and any number of controls. The measured drift is the difference quotient of the path over a short
step, the measured reward is exact. Traits of real systems are arguments: a control period, delays, noise that the policy
sees, coordinates that are not measured, episodes that terminate (`purectrl.systems.device`). A system that cannot be
simulated passes `rollout` in place of `drift` and `initial` (`purectrl.problems.driven_systems`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.errors import InputError, UnsupportedError, require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.oracle import Rollout
from purectrl.core.plan import Plan
from purectrl.core.problem import SHOWN_EPISODES, Criterion, Evaluation, Metrics, Source
from purectrl.problems.continuous_arguments import (
    Function,
    behind_device,
    check_first_states,
    check_functions,
    coordinates,
    digital_controller,
    end_function,
    exponential,
    initial_size,
    numbers,
    per_coordinate,
    relative,
    reward_after_abort,
)
from purectrl.problems.driven_systems import Drive, DrivenProblem, evaluation_metrics, with_aborts
from purectrl.problems.logged_episodes import first_data
from purectrl.systems.closed_loop import closed_loop_rollouts
from purectrl.systems.device import Device, device_rollouts
from purectrl.systems.spec import StateProblem, StateSpec, return_criterion, without_noise

EVAL_POINTS = 300
"""Rewards of an evaluation episode."""
VIDEO_FPS, VIDEO_FRAMES = 20, 600
"""Frames per second of a video, and the most frames of one."""
SIMULATION_STEPS = 1000
"""Least number of simulation steps per episode."""


@dataclass(frozen=True)
class ContinuousSystem:
    """A simulated system; the functions are written for one state, leading axes are vectorized."""

    state_dim: int
    drift_function: Function
    reward_function: Function
    initial_function: Callable[[Array], Array]

    def sample_initial_state(self, key: Array) -> Array:
        """x(0) [d]."""
        return jnp.asarray(self.initial_function(key), jnp.float32)

    def drift(self, x: Array, u: Array) -> Array:
        """dx/dt; x [..., d], u [..., k] -> [..., d]."""
        function = lambda x, u: jnp.asarray(self.drift_function(x, u))  # noqa: E731 (it may return a list)
        return jnp.vectorize(function, signature="(d),(k)->(d)")(x, u)

    def reward(self, x: Array, u: Array) -> Array:
        """The reward rate; x [..., d], u [..., k] -> [...]."""
        return jnp.vectorize(self.reward_function, signature="(d),(k)->()")(x, u)


@dataclass(frozen=True, kw_only=True)
class ContinuousProblem(StateProblem):
    """A simulated system in continuous time; `continuous` builds it."""

    name: str
    spec: StateSpec
    system: ContinuousSystem
    horizon: float
    diffusion: float = 0.0
    drift_step: float
    device: Device | None = None
    """A digital controller between policy and system; None for continuous feedback."""
    measurements: int = 5_000
    eval_episodes: int = 10
    lookahead: int = 4
    criterion: Criterion | None = None
    logs: Measurements | None = None
    abort_reward: float = 0.0
    picture: Callable[[np.ndarray, float], Any] | None = None
    """(x, t) -> an image, for videos."""
    source: Source | None = None

    @property
    def equations(self) -> ContinuousSystem | None:
        """The true system; none behind a digital controller, where policies see something else than its state."""
        return self.system if self.device is None else None

    @property
    def time_grid(self) -> float | None:  # pyright: ignore[reportIncompatibleVariableOverride] (derived from the device)
        """The control period, if there is one."""
        return None if self.device is None else self.device.period

    def rollout(self, key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        """Simulated episodes."""
        if self.device is not None:
            return self._behind_device()(key, plan, times)
        rollout = closed_loop_rollouts(
            self.system, self.horizon, self.diffusion, drift_step=self.drift_step, max_step=self._max_step
        )
        return rollout(key, plan, times)

    def evaluate(self, plan: Plan, key: Key, episodes: int) -> Metrics:
        """The integral of the reward over episodes without exploration noise."""
        return self.evaluation(plan, key, episodes).metrics

    def evaluation(self, plan: Plan, key: Key, episodes: int) -> Evaluation:
        """The same, with the first episodes."""
        if self.device is not None:
            ticks = int(np.floor(self.horizon / self.device.period + 1e-9)) + 1
            times, rollout = np.arange(ticks) * self.device.period, self._behind_device((1, 10))
        else:
            rollout = closed_loop_rollouts(
                self.system, self.horizon, self.diffusion, max_step=self._max_step, batch_sizes=(1, 10)
            )
            times = np.linspace(0.0, self.horizon, EVAL_POINTS + 1)
        seen = rollout(key, without_noise(plan), np.tile(times, (episodes, 1)))
        labels = () if self.device is None else self.device.labels(self.spec.control_dim)
        seen = with_aborts(seen, self.abort_reward)
        return Evaluation(evaluation_metrics(seen, self.horizon, self.abort_reward), seen.first(SHOWN_EPISODES), labels)

    def video(self, plan: Plan, key: Key, directory: Path) -> list[Path] | None:
        """One episode as `picture` draws it: a GIF, an MP4 if ffmpeg is installed, and a picture."""
        if self.picture is None:
            raise UnsupportedError(
                f"video: {self.name} does not say how it is drawn; give pc.problems.continuous a function "
                "picture=(x, t) -> uint8 [height, width, 3]"
            )
        from purectrl.systems.video import save_film

        seen = self.evaluation(plan, key, 1).episodes
        assert seen is not None
        count = seen.m if seen.count is None else int(seen.count[0])
        times = np.arange(0.0, seen.t[0, count - 1], 1 / VIDEO_FPS)[:VIDEO_FRAMES]
        rows = np.searchsorted(seen.t[0, :count], times)
        frames = [
            np.asarray(self.picture(seen.x[0, row], float(t)), np.uint8) for row, t in zip(rows, times, strict=True)
        ]
        return save_film(directory, self.name, np.stack(frames), VIDEO_FPS)

    def _behind_device(self, batch_sizes: tuple[int, ...] = (4, 32)) -> Rollout:
        assert self.device is not None
        how = self.system, self.device, self.horizon, self.diffusion
        return device_rollouts(*how, max_step=self._max_step, batch_sizes=batch_sizes)

    @property
    def _max_step(self) -> float:
        return self.horizon / SIMULATION_STEPS


def continuous(
    name: str,
    horizon: float,
    reward: Function | None = None,
    drift: Function | None = None,
    initial: Callable[[Array], Array] | None = None,
    control_low: Sequence[float] = (-1.0,),
    control_high: Sequence[float] = (1.0,),
    state_dim: int | None = None,
    diffusion: float = 0.0,
    observation_std: float | Sequence[float] = 0.0,
    reward_known: bool = True,
    log_reward: Function | None = None,
    angles: Sequence[int] = (),
    velocities: Sequence[tuple[int, int]] = (),
    approximate_drift: Function | None = None,
    terminated: Callable[[Array], Any] | None = None,
    limits: Mapping[int, tuple[float, float]] | None = None,
    control_period: float | None = None,
    sensor_delay: float = 0.0,
    actuator_delay: float = 0.0,
    observed: Sequence[int] | None = None,
    history: int | None = None,
    drift_step: float | None = None,
    rollout: Drive | None = None,
    measurements: int = 5_000,
    eval_episodes: int | None = None,
    target_return: float | None = None,
    logs: Sequence[Any] = (),
    picture: Callable[[np.ndarray, float], Any] | None = None,
    abort_reward: float | None = None,
) -> StateProblem:
    """A user's own system in continuous time.

    Main arguments:
        name: the name in reports and run directories.
        horizon: T, the length of an episode in seconds.
        reward: (x [d], u [k]) -> the reward rate, a scalar of any size and sign. None if `log_reward` is given.
        drift: (x [d], u [k]) -> dx/dt [d], the true equations, which learners do not see. None if `rollout` is given.
        initial: (JAX key) -> x(0) [d]. None if `rollout` is given.
        control_low: the lower limit of each control [k].
        control_high: the upper limit of each control [k].

    What learners may know:
        reward_known: whether learners know `reward`; otherwise they learn it from measurements.
        log_reward: (x [d], u [k]) -> the logarithm of the reward, at most 0, in the place of `reward`: far from the goal the
            reward is zero in single precision, and its logarithm still shows the way.
        angles: the coordinates that are angles.
        velocities: pairs (i, j) with dx[i]/dt = x[j]. Not used behind a digital controller.
        approximate_drift: (x [d], u [k]) -> dx/dt [d], a model that is known to be inexact; the difference is learned.
        logs: measurements from before the run, each an `Episode(x, u, t=t)`: the first data of the learner, free of charge.

    Traits of real systems:
        diffusion: g, the process noise in every direction of the state.
        terminated: (x [d]) -> bool, whether an episode terminates in state x. Nothing is measured or earned afterwards.
        limits: {coordinate: (low, high)}: an episode is aborted when a coordinate leaves its limits.
        abort_reward: the reward rate that counts from the end of an episode to its horizon, so that an abort does not pay
            off; rewards of learners are relative to it. By default the smallest reward at `limits`, but at most 0.
        control_period: seconds for which each control is held. By default feedback is continuous; with other traits from
            here on, or with `terminated` or `limits`, it is a hundredth of the horizon, at most 0.05 s.
        observation_std: standard deviation of the noise on measured states, one number or one per measured coordinate. The
            policy sees it, too.
        sensor_delay, actuator_delay: age of a measured state, and time from a command to its effect, in seconds.
        observed: the coordinates that are measured; all by default.
        history: how many samples the policy and the model see. By default 1, and enough to cover the delays and, if not all
            coordinates are measured, two more.

    Other arguments:
        state_dim: d; none derives it from `initial`. Needed if `rollout` is given.
        drift_step: seconds over which the drift is measured under continuous feedback; none takes T/1000.
        rollout: (control, times [m]) -> (x [m, d], u [m, k]), (x, u, r [m]) or an `Episode`: drives a system that cannot be
            simulated through one episode, with u = control(x, t) throughout, and measures at the given times.
        measurements: the default measurement budget.
        eval_episodes: episodes in which each new policy is evaluated; none takes 10 in simulation, 0 with `rollout`.
        target_return: the mean return of an evaluation from which on the problem counts as solved, which reports show.
        picture: (x [d], t) -> uint8 [height, width, 3], how a state is drawn in videos; in simulation only.
    """
    require(bool(name.strip()), "name: must be a non-empty string")
    require(horizon > 0, f"horizon: the episode length must be positive, not {horizon}")
    if log_reward is not None:
        require(reward is None, "reward: give either reward or log_reward")
        reward = exponential(log_reward)
    require(reward is not None or not reward_known, "reward: needed unless reward_known is False")
    require(diffusion >= 0, f"diffusion: must not be negative, got {diffusion}")
    require(drift_step is None or drift_step > 0, f"drift_step: must be positive, not {drift_step}")
    low, high = numbers("control_low", control_low), numbers("control_high", control_high)
    angles = coordinates("angles", angles)
    observed = None if observed is None else coordinates("observed", observed)
    if rollout is not None:
        require(drift is None and initial is None, "rollout: a driven system takes neither drift nor initial")
        if state_dim is None:
            raise InputError("state_dim: needed if rollout is given")
        d = state_dim
    else:
        if drift is None or initial is None or reward is None:
            missing = next(
                it for it, given in (("drift", drift), ("initial", initial), ("reward", reward)) if given is None
            )
            raise InputError(f"{missing}: a simulated system needs drift, initial and reward; or give rollout")
        d = initial_size(initial, state_dim)
    ends = end_function(terminated, limits, d)  # which also checks the limits
    ended = reward_after_abort(abort_reward, reward, log_reward, limits, initial, (d, low, high))
    if reward is not None and ended:
        reward = relative(reward, ended)
    spec = StateSpec(
        d,
        len(low),
        low,
        high,
        angles=angles,
        velocities=tuple((int(i), int(j)) for i, j in velocities),
        reward=reward if reward_known else None,
        log_reward=log_reward if reward_known else None,
        approximate_drift=approximate_drift,
        drift_measured=rollout is None,
        terminated=ends,
    )
    criterion = None if target_return is None else return_criterion(float(target_return))
    noise = per_coordinate(observation_std, d if observed is None else len(observed))
    device = digital_controller(spec, horizon, control_period, noise, (sensor_delay, actuator_delay), observed, history)
    seen = spec if device is None else behind_device(spec, device)
    if rollout is not None:
        unsupported = {"diffusion": diffusion, "sensor_delay": sensor_delay, "actuator_delay": actuator_delay}
        for argument, value in (unsupported | {"observation_std": any(noise)}).items():
            require(not value, f"{argument}: simulates a trait, and a driven system has its own; leave it out")
        return DrivenProblem(
            name=name,
            spec=replace(seen, may_terminate=True),
            drive=rollout,
            horizon=horizon,
            full=spec,
            device=device,
            measurements=measurements,
            eval_episodes=eval_episodes or 0,
            criterion=criterion,
            logs=first_data(logs, spec, device, ended, drift_measured=False),
            abort_reward=ended,
        )
    assert drift is not None
    assert initial is not None
    assert reward is not None
    system = ContinuousSystem(d, drift, reward, initial)
    check_functions(drift, reward, spec)
    check_first_states(initial, ends)
    return ContinuousProblem(
        name=name,
        spec=seen,
        system=system,
        horizon=horizon,
        diffusion=diffusion,
        drift_step=horizon / 1000 if drift_step is None else drift_step,
        device=device,
        measurements=measurements,
        eval_episodes=10 if eval_episodes is None else eval_episodes,
        criterion=criterion,
        logs=first_data(logs, spec, device, ended, drift_measured=True),
        picture=picture,
        abort_reward=ended,
    )

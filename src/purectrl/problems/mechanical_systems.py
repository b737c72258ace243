"""Mechanical systems to bring to a goal and hold there: the paper's `pendulum`, `cartpole` and `acrobot`, or a user's own.

A learner knows the reward and which coordinates are angles and velocities; it learns the equations of motion from
measurements. Policies are evaluated on the true system, in episodes of 30 s without noise that count after 3 s.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.oracle import Rollout
from purectrl.core.plan import Plan
from purectrl.core.problem import SHOWN_EPISODES, Criterion, Evaluation, Metrics, Source
from purectrl.core.settings import check_type
from purectrl.systems import acrobot as acrobot_system
from purectrl.systems import cartpole as cartpole_system
from purectrl.systems import pendulum as pendulum_system
from purectrl.systems.closed_loop import closed_loop_rollouts
from purectrl.systems.mechanical import MechanicalSystem
from purectrl.systems.noise import with_observation_noise
from purectrl.systems.spec import StateProblem, StateSpec, return_metrics, without_noise

EVAL_EPISODES, EVAL_SECONDS, EVAL_STEP = 10, 30.0, 0.1
"""Episodes of an evaluation, their length, and the time between two rewards."""
TRANSIENT, LONG_TRANSIENT = 3.0, 5.0
"""Seconds that a swing-up may take: those of the ENODE code, and those that suffice for every system."""
SOLVED_REWARD = 0.8
"""The problem is solved if no reward after the transient is smaller."""
HELD = Criterion("reward_min", SOLVED_REWARD, f"no reward below {SOLVED_REWARD:g} after {TRANSIENT:g} s")
"""The same as a criterion, which was written for the paper's systems."""
VIDEO_SECONDS, VIDEO_FPS = 10.0, 20
"""Length of a video, and its frames per second."""


@dataclass(frozen=True, kw_only=True)
class MechanicalProblem(StateProblem):
    """A simulated mechanical system; the functions of this module build it."""

    name: str
    system: MechanicalSystem
    horizon: float = 50.0
    diffusion: float = 0.0
    observation_std: float = 0.0
    measurements: int = 20_000
    eval_episodes: int = EVAL_EPISODES
    lookahead: int = 4
    """As many episodes as the exploration noise has sizes."""
    criterion: Criterion | None = HELD
    source: Source | None = None
    spec: StateSpec = field(init=False)
    result_metric: ClassVar[str] = "reward"

    def __post_init__(self) -> None:
        for name in ("horizon", "diffusion", "observation_std"):
            check_type(name, getattr(self, name), float)
        require(self.horizon > 0, f"horizon: the episode length must be positive, not {self.horizon}")
        for name in ("diffusion", "observation_std"):
            require(getattr(self, name) >= 0, f"{name}: must not be negative, got {getattr(self, name)}")
        object.__setattr__(self, "spec", StateSpec.of_mechanics(self.system))

    @property
    def equations(self) -> MechanicalSystem:
        """The true system."""
        return self.system

    def rollout(self, key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        """Simulated episodes under continuous feedback; measurements carry the exact reward."""
        rollout = closed_loop_rollouts(self.system, self.horizon, self.diffusion)
        if self.observation_std:
            rollout = with_observation_noise(rollout, self.observation_std)
        return rollout(key, plan, times)

    def evaluate(self, plan: Plan, key: Key, episodes: int) -> Metrics:
        """Returns, and rewards after the transient, in episodes without exploration noise."""
        return self.evaluation(plan, key, episodes).metrics

    def evaluation(self, plan: Plan, key: Key, episodes: int) -> Evaluation:
        """The same, with the first episodes."""
        seen = self._evaluation(key, without_noise(plan), evaluation_times(episodes))
        return Evaluation(evaluation_metrics(seen), seen.first(SHOWN_EPISODES))

    def video(self, plan: Plan, key: Key, directory: Path) -> list[Path] | None:
        """The first ten seconds of one episode: a GIF, an MP4 if ffmpeg is installed, and a picture."""
        if self.system.links is None:
            return None
        from purectrl.systems.rendering import render_frames, trace
        from purectrl.systems.video import save_film

        seen = self._evaluation(key, without_noise(plan), evaluation_times(1, 1 / VIDEO_FPS, VIDEO_SECONDS))
        frames = render_frames(self.system, trace(self.system, seen.t[0], seen.x[0], seen.u[0]))
        return save_film(directory, self.name, frames, VIDEO_FPS)

    @property
    def _evaluation(self) -> Rollout:
        return closed_loop_rollouts(self.system, EVAL_SECONDS, self.diffusion, batch_sizes=(1, EVAL_EPISODES))


def evaluation_times(episodes: int, step: float = EVAL_STEP, seconds: float = EVAL_SECONDS) -> np.ndarray:
    """Times [episodes, seconds/step]."""
    return np.tile(np.arange(round(seconds / step)) * step, (episodes, 1))


def evaluation_metrics(seen: Measurements) -> Metrics:
    """The returns of episodes of 30 s, means and minima of the rewards after the transient.

    >>> x, u = np.zeros((1, 3, 2)), np.zeros((1, 3, 1))
    >>> up = Measurements(np.array([[0.0, 3.0, 6.0]]), x, u, r=np.array([[0.1, 0.7, 0.9]]))
    >>> found = evaluation_metrics(up)
    >>> round(found["reward"], 3), found["reward_min"], found["solved"], found["reward_after_5"]
    (0.8, 0.7, False, 0.9)
    """
    assert seen.r is not None
    settled, late = (seen.r[seen.t >= after - 1e-9] for after in (TRANSIENT, LONG_TRANSIENT))
    return return_metrics(seen.r.mean(axis=1, dtype=np.float64) * EVAL_SECONDS) | {
        "reward": float(settled.mean()),
        "reward_min": float(settled.min()),
        "solved": bool(settled.min() >= SOLVED_REWARD),
        "reward_after_5": float(late.mean()),
        "reward_min_after_5": float(late.min()),
    }


def mechanical(
    system: MechanicalSystem,
    horizon: float = 50.0,
    diffusion: float = 0.0,
    observation_std: float = 0.0,
    measurements: int = 20_000,
    name: str | None = None,
) -> MechanicalProblem:
    """A user's own mechanical system.

    Main arguments:
        system: equations, reward and initial distribution.
        horizon: T, the length of an episode in seconds.

    Other arguments:
        diffusion: g, the process noise in every direction of the state.
        observation_std: standard deviation of the noise on measured states.
        measurements: the default measurement budget.
        name: the name in reports and run directories; none takes the system's.
    """
    return MechanicalProblem(
        name=name or system.name,
        system=system,
        horizon=horizon,
        diffusion=diffusion,
        observation_std=observation_std,
        measurements=measurements,
    )


def pendulum(
    variant: str = "paper",
    horizon: float = 50.0,
    diffusion: float = 0.0,
    observation_std: float = 0.0,
    torque: float = 2.0,
) -> MechanicalProblem:
    """A rod to swing up with a weak torque.

    Main arguments:
        variant: the system as in the paper's table (paper), or as in the released code (released).
        horizon: T, the length of an episode in seconds.

    Other arguments:
        diffusion: g, the process noise; the paper has none.
        observation_std: standard deviation of the noise on measured states; the paper has none.
        torque: the largest torque; gravity needs 5 to hold the rod horizontally.
    """
    check_type("torque", torque, float)
    system = pendulum_system.pendulum(variant, torque)
    return mechanical(system, horizon, diffusion, observation_std, measurements=2_250)


def cartpole(
    variant: str = "paper",
    horizon: float = 50.0,
    diffusion: float = 0.0,
    observation_std: float = 0.0,
    force: float = cartpole_system.FORCE,
) -> MechanicalProblem:
    """A pole to swing up by pushing its cart.

    Main arguments:
        variant: the system as in the paper's table (paper), or as in the released code (released).
        horizon: T, the length of an episode in seconds.

    Other arguments:
        diffusion: g, the process noise; the paper has none.
        observation_std: standard deviation of the noise on measured states; the paper has none.
        force: newtons per unit of control, which is between −3 and 3.
    """
    check_type("force", force, float)
    system = cartpole_system.cartpole(variant, force)
    return mechanical(system, horizon, diffusion, observation_std, measurements=20_000)


def acrobot(
    variant: str = "paper",
    horizon: float = 50.0,
    diffusion: float = 0.0,
    observation_std: float = 0.0,
    torque: float | None = None,
) -> MechanicalProblem:
    """Two links to swing up by torques at both joints.

    Main arguments:
        variant: the system as in the paper's table (paper), or as in the released code (released).
        horizon: T, the length of an episode in seconds.

    Other arguments:
        diffusion: g, the process noise; the paper has none.
        observation_std: standard deviation of the noise on measured states; the paper has none.
        torque: the largest torque at each joint; none takes that of the variant, 4 or 5.
    """
    check_type("torque", torque, float | None)
    system = acrobot_system.acrobot(variant, torque)
    return mechanical(system, horizon, diffusion, observation_std, measurements=21_750)

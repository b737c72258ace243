"""Settings of ENODE and PURE_ENODE on a Gymnasium environment, of which nothing is known but its spaces."""

from dataclasses import dataclass
from typing import Literal

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.samplers import Context
from purectrl.experiments.config import MOST, LoopConfig, make_sampler

COUNTS = ("members", "width", "first_iterations", "later_iterations", "fit_rows", "plan_rows", "plan_members")


@dataclass(frozen=True)
class GymConfig(LoopConfig):
    """ENODE and PURE_ENODE on a Gymnasium environment."""

    env: str = "Pendulum-v1"
    """The environment's name in Gymnasium's registry; `module:Name-v0` imports the module first."""
    dt: float = 0.0
    """Seconds that a step of the environment takes; 0 asks the environment."""
    horizon: float = 10.0
    """T, the length of an episode that is measured. Tests are as long as the environment has it."""
    terminal_reward: float = 0.0
    """Reward in a state in which the environment has ended an episode, and which it never leaves."""
    members: int = 5
    """Networks for the drift, and as many for the reward."""
    width: int = 128
    """Units in each hidden layer of any network."""
    first_iterations: int = 4000
    """Steps of each fit at the first update."""
    later_iterations: int = 3000
    """Steps of each fit at each later update."""
    fit_rows: int = 64
    """Measurements in a step of a fit, for each member."""
    fit_rate: float = 2e-3
    """Adam's rate on the models; it falls to a fiftieth."""
    plan_iterations: int = 600
    """Steps of the actor at each update."""
    plan_rows: int = 48
    """Imagined rollouts a step."""
    plan_members: int = 3
    """Members that share them."""
    plan_horizon: float = 3.0
    """H, the length of an imagined rollout."""
    discount: float = 5.0
    """τ: a reward t seconds away counts e^(−t/τ)."""
    planning: Literal["mean", "optimistic"] = "mean"
    """Over the members."""
    actor_rate: float = 2e-3
    """Adam's rate on the actor; it falls to a twentieth."""
    critic_rate: float = 1e-3
    """Adam's rate on the critic."""
    tests: int = 10
    """Whole episodes in which each new policy is tested."""

    def check(self) -> None:
        """As `LoopConfig.check`; whether there is such an environment is found out when it is made."""
        super().check()
        require(self.dt >= 0, f"dt: must be positive, or 0 for the environment's own, not {self.dt}")
        require(self.horizon > 0, f"horizon: the episode length T must be positive, not {self.horizon}")
        make_sampler(self)(Key(0), 1, Context(self.horizon))  # do its windows fit?
        require(
            self.schedule != "on-misfit", "schedule: on-misfit is not there for gymnasium; take batches or geometric"
        )
        for name in (*COUNTS, "tests"):
            value = getattr(self, name)
            require(1 <= value <= MOST, f"{name}: must lie between 1 and {MOST:,}, not {value}")
        for name in ("fit_rate", "plan_horizon", "discount", "actor_rate", "critic_rate"):
            require(getattr(self, name) > 0, f"{name}: must be positive, not {getattr(self, name)}")
        require(self.plan_iterations >= 5, f"plan_iterations: must be at least 5, not {self.plan_iterations}")
        require(
            self.plan_members <= self.members and self.plan_rows % self.plan_members == 0,
            f"plan_members: must divide plan_rows = {self.plan_rows} and not exceed members = {self.members}, "
            f"got {self.plan_members}",
        )

"""Settings of ENODE and PURE_ENODE, typed as those of the theory are."""

from dataclasses import dataclass
from typing import Literal

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.samplers import Context
from purectrl.experiments.config import MOST, LoopConfig, make_sampler


@dataclass(frozen=True)
class ControlConfig(LoopConfig):
    """ENODE and PURE_ENODE on a mechanism."""

    variant: Literal["paper", "released"] = "paper"
    """The system as in the paper's table, or as in the released code."""
    horizon: float = 50.0
    """T, the length of an episode."""
    diffusion: float = 0.0
    """g, the process noise; the paper has none."""
    observation_std: float = 0.0
    """Standard deviation of the noise on measured states; the paper has none."""
    dynamics: Literal["ensemble", "batch-ensemble", "implicit"] = "ensemble"
    """The family of the model: separate networks, networks that share weights up to factors of rank one, or draws of
    latent noise on the nodes of one network."""
    noise: Literal["fixed", "learned"] = "fixed"
    """Noise of the measurements in the model's likelihood: set from the size of accelerations, or learned."""
    members: int = 10
    """Members of the model: networks, or draws."""
    width: int = 200
    """Units in each hidden layer of ensemble, actor and critic."""
    integrator: Literal["midpoint", "dopri5"] = "midpoint"
    """How the model is integrated: one step a measurement, or adaptively as in the paper."""
    match_iterations: int = 600
    """Steps of gradient matching at the first update."""
    first_iterations: int = 400
    """Steps on trajectories at the first update."""
    later_iterations: int = 300
    """Steps on trajectories at each later update."""
    points: int = 4
    """Measurements in a sub-sequence that the model is fitted to."""
    fit_rows: int = 48
    """Sub-sequences a step, for each member."""
    fit_rate: float = 1e-3
    """Adam's rate on the model; it falls to a fiftieth."""
    longest_gap: float = 0.15
    """Two measurements further apart are not fitted as neighbours."""
    plan_iterations: int = 450
    """Steps of the actor at each update."""
    plan_rows: int = 48
    """Imagined rollouts a step."""
    plan_members: int = 3
    """Members of the ensemble that share them."""
    plan_horizon: float = 3.0
    """H, the length of an imagined rollout."""
    discount: float = 5.0
    """τ: a reward t seconds away counts e^(−t/τ)."""
    planning: Literal["mean", "optimistic"] = "mean"
    """Over the members of the ensemble."""
    actor_rate: float = 2e-3
    """Adam's rate on the actor; it falls to a twentieth."""
    critic_rate: float = 1e-3
    """Adam's rate on the critic."""
    stop_when_solved: bool = False
    """End at the first policy that passes its test, with the rest of the budget unspent."""

    def check(self) -> None:
        """As `LoopConfig.check`, for the whole experiment."""
        super().check()
        require(self.horizon > 0, f"horizon: the episode length T must be positive, not {self.horizon}")
        make_sampler(self)(Key(0), 1, Context(self.horizon))  # do its windows fit?
        for name in ("diffusion", "observation_std", "match_iterations"):
            require(getattr(self, name) >= 0, f"{name}: cannot be negative, got {getattr(self, name)}")
        for name in (
            "members",
            "width",
            "first_iterations",
            "later_iterations",
            "fit_rows",
            "plan_rows",
            "plan_members",
        ):
            require(
                1 <= getattr(self, name) <= MOST, f"{name}: must lie between 1 and {MOST:,}, not {getattr(self, name)}"
            )
        for name in ("fit_rate", "longest_gap", "plan_horizon", "discount", "actor_rate", "critic_rate"):
            require(getattr(self, name) > 0, f"{name}: must be positive, not {getattr(self, name)}")
        require(self.points >= 2, f"points: a sub-sequence has at least 2 measurements, not {self.points}")
        require(self.plan_iterations >= 5, f"plan_iterations: must be at least 5, not {self.plan_iterations}")
        require(self.plan_horizon >= self.window_step, f"plan_horizon: must hold a step of {self.window_step}")
        require(
            self.plan_members <= self.members and self.plan_rows % self.plan_members == 0,
            f"plan_members: must divide plan_rows = {self.plan_rows} and not exceed members = {self.members}, "
            f"got {self.plan_members}",
        )

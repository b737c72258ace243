"""The setting of the paper (section "Preliminaries") and its notation.

symbol in the paper     here                         meaning
----------------------  ---------------------------  --------------------------------------------------
x(t) ∈ R^d              x                            state
u(t) = π(x(t))          u, policy                    control, deterministic policy
q ∈ Q                   initial                      distribution of x(0)
f*, g*, b*              drift, diffusion, reward     dx = f*(x,u) dt + g*(x,u) dw, reward rate b* ∈ [0, 1]
y ~ N(f*, g*²/Δ · I)    y, MeasurementModel.step is Δ       noisy measurement of the drift
r ~ N(b*, 1)            r, MeasurementModel.reward_std      noisy measurement of the reward
T                       horizon                      length of an episode
N, m                    Budget.measurements, m       total measurements, measurements per episode
D_n                     data                         all measurements so far
F_n, R_n                confidence sets              models that still fit the data
β_F, β_R                radii                        their sizes (Theorem 1)
R(π, q, f, b)           value                        expected reward of an episode under a model
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from purectrl.core.errors import require

if TYPE_CHECKING:
    from jax import Array


@dataclass(frozen=True)
class MeasurementModel:
    """How the true system is measured (paper, "Measurement Model" and the remark on joint measurement).

    Main arguments:
        step: Δ, the time that one measurement of the drift takes.
        reward_std: standard deviation of r; the paper has 1.
        drift: "drawn" takes y ~ N(f*, g*²/Δ · I) as in the model; "quotient" takes (x(t+Δ) − x(t))/Δ on one path.

    >>> MeasurementModel(step=0.0)
    Traceback (most recent call last):
    ...
    purectrl.core.errors.InputError: step: the measurement step Δ must be positive, not 0.0
    """

    step: float = 0.1
    reward_std: float = 1.0
    drift: Literal["drawn", "quotient"] = "drawn"

    def __post_init__(self) -> None:
        require(self.step > 0, f"step: the measurement step Δ must be positive, not {self.step}")
        require(self.reward_std >= 0, f"reward_std: a standard deviation cannot be negative, got {self.reward_std}")
        require(self.drift in ("drawn", "quotient"), f"drift: must be 'drawn' or 'quotient', not {self.drift!r}")


@dataclass(frozen=True)
class System:
    """A controlled diffusion dx = f*(x,u) dt + g*(x,u) dw with reward rate b*(x,u).

    Main arguments, each written for one state; the simulator batches them:
        drift: (x [d], u [k]) -> [d].
        diffusion: (x [d], u [k]) -> scalar ≥ 0, or [d], one for each direction.
        reward: (x [d], u [k]) -> scalar inside `reward_range`.

    Other arguments:
        name: the name in reports.
        state_dim, control_dim: d and k.
        horizon: T, the length of an episode.
        reward_range: the range of b*.

    A linear system whose reward is largest at zero:

    >>> decay = System(
    ...     "decay", state_dim=1, control_dim=1, horizon=2.0,
    ...     drift=lambda x, u: u - x, diffusion=lambda x, u: 0.1, reward=lambda x, u: 1 / (1 + x[0] ** 2),
    ... )
    >>> decay.drift(3.0, 1.0), decay.reward([1.0], [0.0])
    (-2.0, 0.5)
    """

    name: str
    state_dim: int
    control_dim: int
    horizon: float
    drift: Callable[["Array", "Array"], "Array"]
    diffusion: Callable[["Array", "Array"], "Array"]
    reward: Callable[["Array", "Array"], "Array"]
    reward_range: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        require(self.state_dim >= 1, f"state_dim: a system has at least one state, not {self.state_dim}")
        require(self.control_dim >= 1, f"control_dim: a system has at least one control, not {self.control_dim}")
        require(self.horizon > 0, f"horizon: the episode length T must be positive, not {self.horizon}")
        low, high = self.reward_range
        require(low < high, f"reward_range: must be (low, high) with low < high, not {self.reward_range}")

"""Mechanical systems: positions q, velocities v and q̈ = a(q, v, u), and what a controller may know about them.

symbol in the paper     here                meaning
----------------------  ------------------  ----------------------------------------------------------------
x = (q, p)              x = (q, v)          state [2·nq]: positions, then velocities; angles as angles, unbounded
u, |u_i| ≤ α_max        u, u_max            control [k]
s^goal                  goal                a state in which the reward is largest
s^box                   init_half_width     x(0) ~ Unif(init_mean − init_half_width, init_mean + init_half_width)
b(x, u)                 reward              exp(log_reward(x, u)), see `log_distance_reward`
c_p, c_a                see each system     weights of velocity and control in the reward

The functions are written for one state. They index from the right, so leading axes are allowed: x [..., 2·nq].
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from purectrl.core.errors import require
from purectrl.core.system import System


@dataclass(frozen=True)
class MechanicalSystem:
    """A mechanical system with nq positions of which some are angles.

    Main arguments:
        name: the name in reports.
        angles: for each position, whether it is an angle.
        control_dim: k.
        u_max: the controls are in [−u_max, u_max]^k.
        acceleration: (q [nq], v [nq], u [k]) -> [nq].
        log_reward: (x [2·nq], u [k]) -> scalar ≤ 0. Far from the goal the reward is zero in float32, its logarithm is not.
        init_mean, init_half_width: x(0) is uniform within init_mean ± init_half_width [2·nq].

    Other arguments:
        control_cost: c in the reward exp(log_reward) − c‖u‖². Zero in the paper, where the cost is inside the exponential.
        links: (q [nq]) -> joints [n, 2] in the plane, from the base to the tip; rendering needs them.
        goal: a state in which the reward is largest [2·nq], for rendering.
        variant: which version of the system it is, for reports.
    """

    name: str
    angles: tuple[bool, ...]
    control_dim: int
    u_max: float
    acceleration: Callable[[Array, Array, Array], Array]
    log_reward: Callable[[Array, Array], Array]
    init_mean: tuple[float, ...]
    init_half_width: tuple[float, ...]
    control_cost: float = 0.0
    links: Callable[[Array], Array] | None = None
    goal: tuple[float, ...] | None = None
    variant: str = ""

    def __post_init__(self) -> None:
        require(self.u_max > 0, f"u_max: the control limit must be positive, not {self.u_max}")
        require(self.control_cost >= 0, f"control_cost: a cost cannot be negative, got {self.control_cost}")
        for name in ("init_mean", "init_half_width", "goal"):
            value = getattr(self, name)
            length = None if value is None else len(value)
            require(
                length in (None, self.state_dim),
                f"{name}: has {length} numbers, expected {self.state_dim}: {self.nq} positions, then {self.nq} velocities",
            )

    @property
    def nq(self) -> int:
        """Number of positions."""
        return len(self.angles)

    @property
    def state_dim(self) -> int:
        """Number of coordinates of a state: 2·nq."""
        return 2 * self.nq

    @property
    def feature_dim(self) -> int:
        """Number of features: an angle has two."""
        return self.state_dim + sum(self.angles)

    @property
    def reward_range(self) -> tuple[float, float]:
        """The range that the reward stays in: [0, 1] unless a control cost is subtracted from the exponential."""
        return (0.0 - self.control_cost * self.control_dim * self.u_max**2, 1.0)

    def drift(self, x: Array, u: Array) -> Array:
        """dx/dt = (v, a(q, v, u)); x [..., 2·nq], u [..., k] -> [..., 2·nq]."""
        q, v = x[..., : self.nq], x[..., self.nq :]
        return jnp.concatenate([v, self.acceleration(q, v, u)], axis=-1)

    def reward(self, x: Array, u: Array) -> Array:
        """exp(log_reward) − control_cost · ‖u‖²; x [..., 2·nq], u [..., k] -> [...]."""
        return jnp.exp(self.log_reward(x, u)) - self.control_cost * jnp.sum(u**2, axis=-1)

    def featurize(self, x: Array) -> Array:
        """x [..., 2·nq] -> features [..., feature_dim]: (cos, sin) of each angle, other positions, velocities, in order."""
        features = []
        for i, is_angle in enumerate(self.angles):
            q = x[..., i]
            features += [jnp.cos(q), jnp.sin(q)] if is_angle else [q]
        return jnp.concatenate([jnp.stack(features, axis=-1), x[..., self.nq :]], axis=-1)

    def sample_initial_state(self, key: Array) -> Array:
        """x(0) [2·nq], uniform in the initial box."""
        return jnp.asarray(self.init_mean) + jnp.asarray(self.init_half_width) * jax.random.uniform(
            key, (self.state_dim,), minval=-1.0, maxval=1.0
        )

    def system(self, horizon: float, diffusion: float = 0.0) -> System:
        """The controlled diffusion dx = drift dt + diffusion dw for episodes of length `horizon`.

        The paper's noise is one scalar for all directions, so with diffusion > 0 positions are noisy, too.
        """
        require(diffusion >= 0, f"diffusion: cannot be negative, got {diffusion}")
        return System(
            name=self.name,
            state_dim=self.state_dim,
            control_dim=self.control_dim,
            horizon=horizon,
            drift=self.drift,
            diffusion=lambda x, u: jnp.asarray(diffusion, x.dtype),
            reward=self.reward,
            reward_range=self.reward_range,
        )


def log_distance_reward(
    point: Callable[[Array], Array], target: tuple[float, ...], velocity_cost: float, control_cost: float
) -> Callable[[Array, Array], Array]:
    """The logarithm of the paper's reward (appendix, "Reward Functions"): −‖p(q) − target‖² − c_p‖v‖² − c_a‖u‖².

    Main arguments:
        point: q [..., nq] -> p(q) [..., n], Cartesian coordinates of the point that is to be brought to `target`.
        target: where it should be [n].
        velocity_cost, control_cost: c_p and c_a.
    """

    def log_reward(x: Array, u: Array) -> Array:
        nq = x.shape[-1] // 2
        p = point(x[..., :nq])
        # one coordinate after the other: leading axes are never promoted, and no constant fixes the precision
        distance = sum(((p[..., i] - target[i]) ** 2 for i in range(1, len(target))), (p[..., 0] - target[0]) ** 2)
        return -distance - velocity_cost * jnp.sum(x[..., nq:] ** 2, -1) - control_cost * jnp.sum(u**2, -1)

    return log_reward

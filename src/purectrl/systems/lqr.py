"""Linear drift with a bounded reward, in one to four dimensions.

dx = (A x + B u) dt + g dw,     b(x, u) = exp(−‖x − goal‖² − ‖u‖²/10),     |u_i| ≤ 1
"""

import jax.numpy as jnp
from jax import Array

from purectrl.core.errors import require
from purectrl.core.system import System


def drift(parameters: tuple[Array, Array], x: Array, u: Array) -> Array:
    """A x + B u for parameters (A [d, d], B [d, d]); x [d], u [d] -> [d]."""
    A, B = parameters
    return A @ x + B @ u


def reward(goal: Array, x: Array, u: Array) -> Array:
    """exp(−‖x − goal‖² − ‖u‖²/10); goal [d], x [d], u [d] -> scalar."""
    return jnp.exp(-jnp.sum((x - goal) ** 2) - jnp.sum(u**2) / 10)


def truth(dimension: int) -> tuple[Array, Array]:
    """The true A [d, d] and B [d, d]: slow decay with a rotation, and full actuation with a gain that differs between
    directions."""
    require(1 <= dimension <= 4, f"dimension: must be 1, 2, 3 or 4, not {dimension}")
    rotation = jnp.diag(jnp.full(dimension - 1, 0.3), 1)
    return -0.3 * jnp.eye(dimension) + rotation - rotation.T, jnp.diag(0.8 - 0.1 * jnp.arange(dimension))


def lqr(dimension: int = 2, diffusion: float = 0.2, horizon: float = 2.0) -> System:
    """The system; its goal is 0.5 in every direction.

    >>> lqr(dimension=1).drift(jnp.ones(1), jnp.zeros(1)).tolist()
    [-0.30000001192092896]
    """
    parameters, goal = truth(dimension), jnp.full(dimension, 0.5)
    return System(
        name="lqr",
        state_dim=dimension,
        control_dim=dimension,
        horizon=horizon,
        drift=lambda x, u: drift(parameters, x, u),
        diffusion=lambda x, u: jnp.float32(diffusion),
        reward=lambda x, u: reward(goal, x, u),
    )

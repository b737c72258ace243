"""Time as a part of the state: with [x, t] instead of x, a policy may depend on time, and so may drift and reward."""

import jax.numpy as jnp
from jax import Array

from purectrl.core.system import System


def with_time(system: System) -> System:
    """The same system with states [x, t], dt/dt = 1 and no noise in t (the paper's remark on time-inhomogeneous policies).

    An initial distribution must start with t = 0; a policy, a drift or a reward of a class sees [x, t].

    >>> from purectrl.systems.washboard import washboard
    >>> timed = with_time(washboard())
    >>> timed.state_dim, timed.drift(jnp.zeros(2), jnp.ones(1)).tolist()
    (2, [0.5, 1.0])
    """

    def diffusion(x: Array, u: Array) -> Array:
        g = jnp.broadcast_to(system.diffusion(x[:-1], u), (system.state_dim,))
        return jnp.append(g, 0.0)

    return System(
        name=f"{system.name} with time",
        state_dim=system.state_dim + 1,
        control_dim=system.control_dim,
        horizon=system.horizon,
        drift=lambda x, u: jnp.append(system.drift(x[:-1], u), 1.0),
        diffusion=diffusion,
        reward=lambda x, u: system.reward(x[:-1], u),
        reward_range=system.reward_range,
    )

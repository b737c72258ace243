"""A mechanism whose equations are linear, so that what should be learned is known."""

import jax.numpy as jnp
import numpy as np

from purectrl.core import Measurements
from purectrl.systems.mechanism import Mechanism

SPRING, DAMPING, FORCE = -2.0, -0.3, 1.5


def cart(acceleration=lambda q, v, u: SPRING * q + DAMPING * v + FORCE * u, start=1.0):
    """A cart on a rail that should be brought to 0."""
    return Mechanism(
        name="cart",
        variant="test",
        angles=(False,),
        control_dim=1,
        u_max=2.0,
        acceleration=acceleration,
        log_reward=lambda x, u: -(x[..., 0] ** 2) - 0.1 * x[..., 1] ** 2 - 0.01 * u[..., 0] ** 2,
        centre=(0.0, 0.0),
        box=(start, start),
        goal=(0.0, 0.0),
        links=lambda q: jnp.stack([jnp.zeros(2), jnp.zeros(2)]),
    )


def rows(mechanism, members, count, seed=1):
    """Random states and controls, rows of their own for each member."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(members, count, mechanism.state_dim)).astype(np.float32)
    return x, generator.normal(size=(members, count, mechanism.control_dim)).astype(np.float32)


def measured(mechanism, episodes, m, generator, substeps=20):
    """Episodes of a smooth random control that is linear between irregular times, by many small midpoint steps."""
    gaps = generator.uniform(0.05, 0.12, (episodes, m - 1))
    t = np.concatenate([np.zeros((episodes, 1)), np.cumsum(gaps, axis=1)], axis=1)
    u = generator.uniform(-2, 2, (episodes, m, 1)).astype(np.float32)
    x = np.zeros((episodes, m, 2))
    x[:, 0] = generator.uniform(-1, 1, (episodes, 2))
    for i in range(m - 1):
        now, h = x[:, i], gaps[:, i, None] / substeps
        for j in range(substeps):
            control = u[:, i] + (j + 0.5) / substeps * (u[:, i + 1] - u[:, i])
            half = now + h / 2 * np.asarray(mechanism.drift(now, control))
            now = now + h * np.asarray(mechanism.drift(half, control))
        x[:, i + 1] = now
    return Measurements(t, x.astype(np.float32), u)

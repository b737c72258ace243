"""A mechanical system whose equations are linear, so that what should be learned is known."""

import numpy as np

from purectrl.core import Measurements
from purectrl.systems.mechanical import MechanicalSystem
from purectrl.systems.spec import StateSpec

SPRING, DAMPING, FORCE = -2.0, -0.3, 1.5


def cart(acceleration=lambda q, v, u: SPRING * q + DAMPING * v + FORCE * u, start=1.0):
    """A cart on a rail that should be brought to 0."""
    return MechanicalSystem(
        name="cart",
        angles=(False,),
        control_dim=1,
        u_max=2.0,
        acceleration=acceleration,
        log_reward=lambda x, u: -(x[..., 0] ** 2) - 0.1 * x[..., 1] ** 2 - 0.01 * u[..., 0] ** 2,
        init_mean=(0.0, 0.0),
        init_half_width=(start, start),
    )


def spec(system):
    """What actor and critic know of it."""
    return StateSpec.of_mechanics(system)


def rows(system, members, count, seed=1):
    """Random states and controls, different rows for each member."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(members, count, system.state_dim)).astype(np.float32)
    return x, generator.normal(size=(members, count, system.control_dim)).astype(np.float32)


def measured(system, episodes, m, generator, substeps=20):
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
            half = now + h / 2 * np.asarray(system.drift(now, control))
            now = now + h * np.asarray(system.drift(half, control))
        x[:, i + 1] = now
    return Measurements(t, x.astype(np.float32), u)

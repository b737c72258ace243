"""A Furuta pendulum, from an empty file to a policy: an arm that a motor turns, and at its end a pendulum to swing up.

    purectrl run examples/furuta.py:problem --out runs/furuta
    purectrl evaluate runs/furuta --trust
    purectrl export runs/furuta --to numpy --out policy.py --trust

The state is (arm angle, pendulum angle, their speeds); the pendulum hangs at π and stands at 0. The learner knows the
reward, which coordinates are angles and which are speeds. It learns the equations of motion from measurements.
"""

import jax
import jax.numpy as jnp

import purectrl as pc

ARM, LENGTH, MASS, GRAVITY = 0.2, 0.24, 0.05, 9.81  # length of the arm, length and mass of the pendulum
ARM_INERTIA, INERTIA = 0.003, MASS * LENGTH**2 / 3  # about the motor without the pendulum, and of the pendulum


def drift(x, u):
    """dx/dt from Lagrange's equations, with viscous friction in both joints."""
    theta, turn, fall = x[1], x[2], x[3]
    coupling, sine, cosine = MASS * ARM * LENGTH / 2, jnp.sin(theta), jnp.cos(theta)
    mass = jnp.array(
        [[ARM_INERTIA + MASS * ARM**2 + INERTIA * sine**2, coupling * cosine], [coupling * cosine, INERTIA]]
    )
    arm = u[0] - 2e-3 * turn - 2 * INERTIA * sine * cosine * turn * fall + coupling * sine * fall**2
    pendulum = INERTIA * sine * cosine * turn**2 + MASS * GRAVITY * LENGTH / 2 * sine - 1e-4 * fall
    return jnp.concatenate([x[2:], jnp.linalg.solve(mass, jnp.stack([arm, pendulum]))])


def problem(torque: float = 0.15):
    """Swing up a pendulum by turning its arm.

    Main arguments:
        torque: the largest torque of the motor in N m.
    """
    return pc.problems.continuous(
        name="furuta-example",
        horizon=10.0,
        drift=drift,
        log_reward=lambda x, u: -((1 - jnp.cos(x[1])) + 0.1 * x[0] ** 2 + 0.005 * x[3] ** 2 + 0.002 * x[2] ** 2),
        initial=lambda key: jnp.array([0.0, jnp.pi, 0.0, 0.0]) + 0.1 * jax.random.normal(key, (4,)),
        control_low=[-torque],
        control_high=[torque],
        angles=(1,),
        velocities=((0, 2), (1, 3)),
        measurements=6_000,
    )

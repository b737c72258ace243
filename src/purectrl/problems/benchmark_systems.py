"""Systems beyond the paper, on which an algorithm is tried without settings of its own.

Mechanical ones, whose reward is evaluated after a transient as that of the paper's systems: `furuta`, `quadrotor`,
`elbow_acrobot`. Others, of first or higher order, whose reward is integrated over an episode: `mountain_car`,
`ball_beam`, `van_der_pol`, `two_rooms`, `bicycle`, `coupled_tanks`. The equations and their sources are in
`purectrl.systems`. Learners know the rewards and what is an angle or a velocity; they learn the equations of motion.
"""

from purectrl.problems.continuous_systems import continuous
from purectrl.problems.mechanical_systems import MechanicalProblem, mechanical
from purectrl.systems import ball_beam as ball_beam_system
from purectrl.systems import bicycle as bicycle_system
from purectrl.systems import coupled_tanks as coupled_tanks_system
from purectrl.systems import mountain_car as mountain_car_system
from purectrl.systems import two_rooms as two_rooms_system
from purectrl.systems import van_der_pol as van_der_pol_system
from purectrl.systems.acrobot import acrobot as acrobot_system
from purectrl.systems.furuta import furuta as furuta_system
from purectrl.systems.quadrotor import quadrotor as quadrotor_system
from purectrl.systems.spec import StateProblem

MEASUREMENTS = 10_000
"""The default measurement budget."""


def furuta(horizon: float = 20.0, torque: float = 0.3) -> MechanicalProblem:
    """A pendulum to swing up by turning the arm that carries it.

    Main arguments:
        horizon: T, the length of an episode in seconds.

    Other arguments:
        torque: the largest torque of the motor, in N m.
    """
    return mechanical(furuta_system(torque), horizon, measurements=MEASUREMENTS)


def quadrotor(horizon: float = 20.0) -> MechanicalProblem:
    """A planar quadrotor to fly to a place and hover there.

    Main arguments:
        horizon: T, the length of an episode in seconds.
    """
    return mechanical(quadrotor_system(), horizon, measurements=MEASUREMENTS)


def elbow_acrobot(horizon: float = 50.0, torque: float = 4.0) -> MechanicalProblem:
    """Two links to swing up by a torque at the joint between them.

    Main arguments:
        horizon: T, the length of an episode in seconds.

    Other arguments:
        torque: the largest torque at the elbow.
    """
    return mechanical(acrobot_system("elbow", torque), horizon, measurements=20_000, name="elbow-acrobot")


def mountain_car(horizon: float = 30.0) -> StateProblem:
    """A weak car to drive up a hill.

    Main arguments:
        horizon: T, the length of an episode in seconds.
    """
    system = mountain_car_system
    return continuous(
        name="mountain-car",
        horizon=horizon,
        drift=system.drift,
        reward=system.reward,
        initial=system.sample_initial_state,
        velocities=((0, 1),),
        measurements=MEASUREMENTS,
    )


def ball_beam(horizon: float = 10.0) -> StateProblem:
    """A ball to bring to the centre of a beam.

    Main arguments:
        horizon: T, the length of an episode in seconds.
    """
    system = ball_beam_system
    return continuous(
        name="ball-beam",
        horizon=horizon,
        drift=system.drift,
        reward=system.reward,
        initial=system.sample_initial_state,
        control_low=(-system.TILT,),
        control_high=(system.TILT,),
        velocities=((0, 1),),
        measurements=MEASUREMENTS,
    )


def van_der_pol(horizon: float = 20.0) -> StateProblem:
    """A nonlinear oscillator to bring to rest.

    Main arguments:
        horizon: T, the length of an episode in seconds.
    """
    system = van_der_pol_system
    return continuous(
        name="van-der-pol",
        horizon=horizon,
        drift=system.drift,
        reward=system.reward,
        initial=system.sample_initial_state,
        velocities=((0, 1),),
        measurements=MEASUREMENTS,
    )


def two_rooms(horizon: float = 24.0) -> StateProblem:
    """Two rooms to heat.

    Main arguments:
        horizon: T, the length of an episode in hours.
    """
    system = two_rooms_system
    return continuous(
        name="two-rooms",
        horizon=horizon,
        drift=system.drift,
        reward=system.reward,
        initial=system.sample_initial_state,
        control_low=(0.0, 0.0),
        control_high=(1.0, 1.0),
        measurements=MEASUREMENTS,
    )


def bicycle(horizon: float = 20.0) -> StateProblem:
    """A car to park.

    Main arguments:
        horizon: T, the length of an episode in seconds.
    """
    system = bicycle_system
    limits = (system.ACCELERATION, system.STEERING)
    return continuous(
        name="bicycle",
        horizon=horizon,
        drift=system.drift,
        reward=system.reward,
        initial=system.sample_initial_state,
        control_low=tuple(-limit for limit in limits),
        control_high=limits,
        angles=(2,),
        measurements=MEASUREMENTS,
    )


def coupled_tanks(horizon: float = 200.0) -> StateProblem:
    """A level to hold in the lower of two tanks.

    Main arguments:
        horizon: T, the length of an episode in seconds.
    """
    system = coupled_tanks_system
    return continuous(
        name="coupled-tanks",
        horizon=horizon,
        drift=system.drift,
        reward=system.reward,
        initial=system.sample_initial_state,
        control_low=(0.0,),
        control_high=(1.0,),
        measurements=MEASUREMENTS,
    )

"""The systems beyond the paper against independent physics: energies, equilibria, poles, known motions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from purectrl import problems
from purectrl.core import Key, Plan
from purectrl.core.problem import Source
from purectrl.systems import acrobot, ball_beam, bicycle, coupled_tanks, furuta, mountain_car, two_rooms, van_der_pol
from purectrl.systems.quadrotor import ARM, GRAVITY, INERTIA, MASS, quadrotor, thrusts

NAMES = (
    "furuta",
    "quadrotor",
    "elbow-acrobot",
    "mountain-car",
    "ball-beam",
    "van-der-pol",
    "two-rooms",
    "bicycle",
    "coupled-tanks",
)
GOALS = {
    "elbow-acrobot": [np.pi, 0, 0, 0],
    "mountain-car": [np.pi / 6, 0],
    "two-rooms": [21.0, 18.0],
    "coupled-tanks": [3.0, 10.0],
}
"""States with the largest reward; the origin where none is given."""


@pytest.fixture(autouse=True)
def _strict():
    with jax.enable_x64(True), jax.numpy_rank_promotion("raise"):
        yield


def problem(name):
    return problems.build(Source(name, {}))


def draws(seed, *shapes):
    generator = np.random.default_rng(seed)
    return [generator.normal(size=shape) for shape in shapes]


def poles(drift, x, controls):
    matrix = jax.jacfwd(lambda x: drift(x, jnp.zeros(controls)))(jnp.asarray(x, float))
    return np.sort_complex(np.linalg.eigvals(np.asarray(matrix)))


def power(energy, drift, x, u):
    """dE/dt along the path."""
    return float(jnp.dot(jax.grad(energy)(jnp.asarray(x)), drift(jnp.asarray(x), jnp.asarray(u))))


@pytest.mark.parametrize("name", NAMES)
def test_rewards_are_in_0_1_and_largest_at_the_goal(name):
    one = problem(name)
    d, spec = one.spec.state_dim, one.spec
    (x,) = draws(0, (200, d))
    goal = jnp.asarray(GOALS.get(name, np.zeros(d)), float)
    rest = jnp.zeros(spec.control_dim)
    rewards = one.system.reward(jnp.asarray(5 * x), jnp.broadcast_to(rest, (200, spec.control_dim)))
    assert rewards.min() >= 0
    assert rewards.max() < one.system.reward(goal, rest) <= 1 + 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_starts_in_the_initial_distribution_and_stays_finite(name):
    one = problem(name)
    middle = jnp.asarray(one.spec.control_mid, jnp.float32)
    plan = Plan(jax.tree_util.Partial(lambda u, x, t: u, middle), None)
    with jax.enable_x64(False):
        seen = one.rollout(Key.from_seed(0), plan, np.tile(np.linspace(0, one.horizon, 20), (2, 1)))
    assert np.isfinite(seen.x).all()
    assert ((seen.r >= 0) & (seen.r <= 1)).all()
    assert not np.array_equal(seen.x[0, 0], seen.x[1, 0])


def furuta_energy(x):
    """Kinetic energy of the arm and of a point mass in space, whose velocity is the derivative of its place."""
    q, v = x[:2], x[2:]

    def place(q):
        out, side = furuta.ARM, furuta.LENGTH * jnp.sin(q[1])
        along, across = jnp.array([jnp.cos(q[0]), jnp.sin(q[0])]), jnp.array([-jnp.sin(q[0]), jnp.cos(q[0])])
        return jnp.append(out * along + side * across, furuta.LENGTH * jnp.cos(q[1]))

    speed = jax.jacfwd(place)(q) @ v
    kinetic = furuta.INERTIA * v[0] ** 2 / 2 + furuta.MASS * jnp.dot(speed, speed) / 2
    return kinetic + furuta.MASS * furuta.GRAVITY * place(q)[2]


def test_furuta_gains_the_power_of_the_motor_less_friction():
    system = furuta.furuta()
    for x, u in zip(*draws(1, (20, 4), (20, 1)), strict=True):
        expected = u[0] * x[2] - furuta.MOTOR_FRICTION * x[2] ** 2 - furuta.HINGE_FRICTION * x[3] ** 2
        assert power(furuta_energy, system.drift, x, u) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_furuta_falls_almost_three_times_as_fast_as_acrobot():
    fast = poles(furuta.furuta().drift, np.zeros(4), 1).real.max()
    slow = poles(acrobot.acrobot().drift, [np.pi, 0, 0, 0], 2).real.max()
    assert fast == pytest.approx(7.85, abs=0.01)
    assert fast / slow == pytest.approx(2.8, abs=0.1)


def test_the_quadrotor_gains_the_power_of_its_rotors():
    """Each rotor pushes along the body's axis at its own place, which moves with the body."""
    system = quadrotor()

    def energy(x):
        v = x[3:]
        return MASS * (v[0] ** 2 + v[1] ** 2) / 2 + INERTIA * v[2] ** 2 / 2 + MASS * GRAVITY * x[1]

    for x, u in zip(*draws(2, (20, 6), (20, 2)), strict=True):
        up = np.array([-np.sin(x[2]), np.cos(x[2])])
        across = np.array([np.cos(x[2]), np.sin(x[2])])
        velocity = [x[3:5] + side * ARM * x[5] * np.array([-across[1], across[0]]) for side in (1, -1)]
        pushed = sum(force * up @ v for force, v in zip(np.asarray(thrusts(u)), velocity, strict=True))
        assert power(energy, system.drift, x, u) == pytest.approx(pushed, rel=1e-9)


def test_the_quadrotor_hovers_and_has_no_pole_but_zero():
    assert np.abs(poles(quadrotor().drift, np.zeros(6), 2)).max() < 1e-2  # a nilpotent matrix, to rounding^(1/4)
    assert float(quadrotor().reward(jnp.zeros(6), jnp.zeros(2))) == 1.0


def test_the_elbow_alone_is_the_arm_without_its_shoulder():
    arm, elbow = acrobot.acrobot(), acrobot.acrobot("elbow")
    (x, u) = draws(3, (10, 4), (10, 1))
    both = np.concatenate([0 * u, u], axis=1)
    assert np.array_equal(elbow.drift(x, u), arm.drift(x, both))
    assert np.allclose(elbow.reward(x, u), arm.reward(x, both))
    assert (elbow.control_dim, elbow.u_max) == (1, arm.u_max)


def test_the_mountain_car_gains_the_power_of_its_engine_and_is_too_weak_for_the_hill():
    energy = lambda x: x[1] ** 2 / 2 + jnp.sin(3 * x[0]) / 3  # noqa: E731
    for x, u in zip(*draws(4, (20, 2), (20, 1)), strict=True):
        assert power(energy, mountain_car.drift, x, u) == pytest.approx(mountain_car.ENGINE * u[0] * x[1])
    assert poles(mountain_car.drift, [mountain_car.TOP, 0], 1)[-1] == pytest.approx(3**0.5)
    path = solve_ivp(
        lambda t, x: np.asarray(mountain_car.drift(x, jnp.ones(1))), (0, 30), [mountain_car.VALLEY, 0.0], rtol=1e-6
    )
    assert path.y[0].max() < mountain_car.TOP


def test_the_ball_rolls_down_a_tilted_beam_as_a_solid_sphere():
    tilt = 0.1
    rate = ball_beam.drift(jnp.array([0.5, 0.0, tilt]), jnp.array([tilt]))
    assert np.allclose(rate, [0.0, -5 / 7 * 9.81 * np.sin(tilt), 0.0])
    found = poles(ball_beam.drift, np.zeros(3), 1)
    assert np.allclose(np.sort(found.real), [-1 / ball_beam.SERVO_TIME, 0, 0], atol=1e-6)


def test_van_der_pol_leaves_the_origin_and_ends_in_its_limit_cycle():
    assert np.allclose(poles(van_der_pol.drift, np.zeros(2), 1), [0.5 - 3**0.5 / 2 * 1j, 0.5 + 3**0.5 / 2 * 1j])
    path = solve_ivp(
        lambda t, x: np.asarray(van_der_pol.drift(x, jnp.zeros(1))), (0, 40), [0.1, 0.0], rtol=1e-8, max_step=0.02
    )
    assert path.y[0][path.t > 20].max() == pytest.approx(2.0086, abs=2e-3)  # the amplitude for μ = 1 in the literature


def test_the_rooms_balance_and_their_comfort_is_within_the_power():
    comfort = np.array(two_rooms.COMFORT)
    needed = -np.asarray(two_rooms.drift(jnp.asarray(comfort), jnp.zeros(2))) / two_rooms.POWER
    assert ((needed > 0.1) & (needed < 0.9)).all()
    assert np.allclose(two_rooms.drift(jnp.asarray(comfort), jnp.asarray(needed)), 0)
    # the wall moves heat, it does not make any: with equal capacities its terms cancel in the sum
    x = jnp.array([20.0, 10.0])
    expected = -(np.asarray(two_rooms.LOSS) * (np.asarray(x) - two_rooms.OUTSIDE)).sum()
    assert float(two_rooms.drift(x, jnp.zeros(2)).sum()) == pytest.approx(expected)


def test_the_bicycle_drives_a_circle_of_the_right_radius():
    steering, speed = 0.4, 0.7
    radius = bicycle.WHEELBASE / np.tan(steering)
    control = jnp.array([0.0, steering])
    turn = 2 * np.pi * radius / speed
    path = solve_ivp(
        lambda t, x: np.asarray(bicycle.drift(x, control)), (0, turn / 2), [0.0, 0.0, 0.0, speed], rtol=1e-9, atol=1e-9
    )
    assert np.allclose(path.y[:3, -1], [0.0, 2 * radius, np.pi], atol=1e-5)


def test_the_tanks_empty_as_torricelli_says_and_rest_at_equal_levels():
    level = 20.0
    flow = float(coupled_tanks.outflow(jnp.asarray(coupled_tanks.LEVEL)))
    assert np.allclose(coupled_tanks.drift(jnp.full(2, coupled_tanks.LEVEL), jnp.array([flow / 50])), 0)
    assert 0.3 < flow / coupled_tanks.PUMP < 0.7
    path = solve_ivp(
        lambda t, x: np.asarray(coupled_tanks.drift(x, jnp.zeros(1))), (0, 10), [level, 0.0], rtol=1e-8, max_step=0.1
    )
    # d√h/dt = −(a/A) √(g/2)
    slope = coupled_tanks.OUTLET / coupled_tanks.CROSS_SECTION * np.sqrt(coupled_tanks.GRAVITY / 2)
    assert np.sqrt(path.y[0, -1]) == pytest.approx(np.sqrt(level) - 10 * slope, rel=0.01)

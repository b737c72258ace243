"""One suite over all mechanical systems and variants. The physics is checked against Lagrange's equations, written here once
for any chain of rigid bodies: only the masses, inertias and places of the bodies are known about a system."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial
from scipy.integrate import solve_ivp

from purectrl.core import InputError, Key, MeasurementModel, Oracle, Plan
from purectrl.core.ledger import Budget
from purectrl.core.samplers import Context
from purectrl.systems.acrobot import acrobot
from purectrl.systems.cartpole import cartpole
from purectrl.systems.mechanical import MechanicalSystem
from purectrl.systems.noise import with_observation_noise
from purectrl.systems.pendulum import pendulum
from purectrl.systems.rendering import require_links
from purectrl.systems.simulation import simulate_rollouts

# name: gravity, and for each body its mass, its inertia about the centre of mass, and (x, y, angle) of that centre
BODIES = {
    "pendulum": (10.0, [(1.0, 1 / 12, lambda q: [np.sin(q[0]) / 2, np.cos(q[0]) / 2, q[0]])]),
    "cartpole": (
        9.8,
        [
            (1.0, 0.0, lambda q: [q[0], 0 * q[0], 0 * q[0]]),
            (0.1, 0.1 / 3, lambda q: [q[0] + np.sin(q[1]), np.cos(q[1]), q[1]]),
        ],
    ),
    "acrobot": (
        9.8,
        [
            (1.0, 1.0, lambda q: [np.sin(q[0]) / 2, -np.cos(q[0]) / 2, q[0]]),
            (
                1.0,
                1.0,
                lambda q: [
                    np.sin(q[0]) + np.sin(q[0] + q[1]) / 2,
                    -np.cos(q[0]) - np.cos(q[0] + q[1]) / 2,
                    q[0] + q[1],
                ],
            ),
        ],
    ),
}
FORCES = {"pendulum": lambda u: u, "cartpole": lambda u: np.array([3 * u[0], 0.0]), "acrobot": lambda u: u}
ALL = [make(variant) for make in (acrobot, cartpole, pendulum) for variant in ("paper", "released")]
PHYSICAL = [one for one in ALL if (one.name, one.variant) != ("acrobot", "released")]


def label(one):
    return f"{one.name}-{one.variant}"


every = pytest.mark.parametrize("one", ALL, ids=label)


@pytest.fixture(autouse=True)
def _strict():
    with jax.enable_x64(True), jax.numpy_rank_promotion("raise"):
        yield


def jacobian(place, q):
    """d(x, y, angle)/dq [3, nq] by complex steps: exact to rounding."""
    return np.array([np.imag(place(q + 1e-30j * step)) / 1e-30 for step in np.eye(len(q))]).T


def mass_matrix(name, q):
    total = 0.0
    for mass, inertia, place in BODIES[name][1]:
        J = jacobian(place, q)
        total = total + J.T @ np.diag([mass, mass, inertia]) @ J
    return total


def potential(name, q):
    gravity, bodies = BODIES[name]
    return sum(mass * gravity * place(q)[1] for mass, _, place in bodies)


def energy(name, x):
    q, v = np.split(np.asarray(x), 2)
    return v @ mass_matrix(name, q) @ v / 2 + potential(name, q)


def lagrange(name, q, v, force):
    """M q̈ = force + ∂(T − V)/∂q − Ṁ v, with central differences of M and V."""
    h, steps = 1e-5, np.eye(len(q))
    dM = [(mass_matrix(name, q + h * e) - mass_matrix(name, q - h * e)) / (2 * h) for e in steps]
    dV = np.array([(potential(name, q + h * e) - potential(name, q - h * e)) / (2 * h) for e in steps])
    dT = np.array([v @ slope @ v / 2 for slope in dM])
    turning = sum(slope * speed for slope, speed in zip(dM, v, strict=True)) @ v
    return np.linalg.solve(mass_matrix(name, q), force + dT - dV - turning)


def draw(one, count=40, seed=0):
    """Random states and controls: x [count, d], u [count, k]."""
    draws = np.random.default_rng(seed)
    x = draws.normal(size=(count, one.state_dim)) * 3
    return x, draws.uniform(-one.u_max, one.u_max, (count, one.control_dim))


def runge_kutta(one, control, x0, seconds, steps):
    """States [steps + 1, d] under u = control(t)."""
    h = seconds / steps

    def advance(x, t):
        rate = lambda x, t: one.drift(x, control(t))  # noqa: E731
        a = rate(x, t)
        b = rate(x + h / 2 * a, t + h / 2)
        c = rate(x + h / 2 * b, t + h / 2)
        d = rate(x + h * c, t + h)
        x = x + h / 6 * (a + 2 * b + 2 * c + d)
        return x, x

    _, path = jax.lax.scan(advance, jnp.asarray(x0), h * jnp.arange(steps))
    return np.asarray(path)


@pytest.mark.parametrize("one", PHYSICAL, ids=label)
def test_accelerations_solve_lagranges_equations(one):
    states, controls = draw(one)
    rates = jax.jit(one.drift)(states, controls)
    for x, u, rate in zip(states, controls, rates, strict=True):
        q, v = np.split(x, 2)
        expected = np.concatenate([v, lagrange(one.name, q, v, FORCES[one.name](u))])
        assert np.allclose(rate, expected, rtol=1e-7, atol=1e-7)


def test_released_acrobot_is_the_double_pendulum_only_without_control():
    """Its elbow never feels the shoulder's torque; the physical one does."""
    released, paper = acrobot("released"), acrobot()
    x, u = draw(paper)
    q, v = x[:, :2], x[:, 2:]
    right, wrong = jax.jit(paper.acceleration), jax.jit(released.acceleration)
    free = right(q, v, 0 * u)
    assert np.allclose(wrong(q, v, 0 * u), free)
    none, elbow, shoulder = np.zeros(len(u)), u[:, 0], u[:, 1]
    alone = wrong(q, v, np.stack([none, -shoulder], axis=-1)) - free
    d1 = np.array([mass_matrix("acrobot", one)[0, 0] for one in q])
    assert np.allclose(alone, np.stack([shoulder / d1, none], axis=-1))
    assert np.allclose(wrong(q, v, np.stack([elbow, none], -1)), right(q, v, np.stack([none, elbow], -1)))
    felt = right(q, v, np.stack([shoulder, none], axis=-1)) - free
    assert np.abs(felt[:, 1] / shoulder).min() > 0.05


@every
def test_energy_is_conserved_without_control(one):
    still = jnp.zeros(one.control_dim)
    x0 = np.array(one.init_mean) + 0.7
    path = runge_kutta(one, lambda t: still, x0, seconds=10.0, steps=10_000)
    energies = [energy(one.name, x) for x in path[::500]]
    assert np.abs(np.array(energies) - energy(one.name, x0)).max() < 1e-8
    assert np.ptp([potential(one.name, x[: one.nq]) for x in path[::500]]) > 0.1  # it does move


@pytest.mark.parametrize("one", PHYSICAL, ids=label)
def test_trajectories_agree_with_an_independent_integrator(one):
    wave = lambda t, sin: one.u_max * sin(2 * t + np.arange(one.control_dim))  # noqa: E731
    x0 = np.array(one.init_mean) + np.array(one.init_half_width) / 2

    def rate(t, x):
        q, v = np.split(x, 2)
        return np.concatenate([v, lagrange(one.name, q, v, FORCES[one.name](wave(t, np.sin)))])

    expected = solve_ivp(rate, (0.0, 3.0), x0, method="DOP853", rtol=1e-10, atol=1e-10).y[:, -1]
    path = runge_kutta(one, lambda t: wave(t, jnp.sin), x0, seconds=3.0, steps=3000)
    assert np.allclose(path[-1], expected, atol=1e-6)
    assert abs(expected - x0).max() > 1.0


@every
def test_mirror_images_move_as_mirror_images(one):
    x, u = draw(one)
    drift, reward = jax.jit(one.drift), jax.jit(one.reward)
    assert np.allclose(drift(-x, -u), -drift(x, u))
    assert np.allclose(reward(-x, -u), reward(x, u))


@every
def test_whole_turns_of_an_angle_change_nothing(one):
    x, u = draw(one)
    turned = x + 2 * np.pi * np.array([*map(float, one.angles), *[0.0] * one.nq])
    seen = jax.jit(lambda x, u: (one.featurize(x), one.drift(x, u), one.log_reward(x, u)))
    for before, after in zip(seen(x, u), seen(turned, u), strict=True):
        assert np.allclose(before, after)
    assert seen(x, u)[0].shape == (len(x), one.feature_dim)


@every
def test_the_reward_is_one_at_the_goal_and_less_elsewhere(one):
    goal, still = jnp.asarray(one.goal), jnp.zeros(one.control_dim)
    assert float(one.reward(goal, still)) == pytest.approx(1.0, abs=1e-12)
    x, u = draw(one, 500)
    near = np.array(one.goal) + 0.1 * x
    slope = jax.jit(jax.grad(one.reward, (0, 1)))(goal, still)
    assert np.allclose(np.concatenate(slope), 0.0, atol=1e-12)
    low, high = one.reward_range
    for states in (x, near):
        rewards = np.asarray(jax.jit(one.reward)(states, u))
        assert low <= rewards.min()
        assert rewards.max() < high == 1.0
        expected = np.exp(jax.jit(one.log_reward)(states, u)) - one.control_cost * np.sum(np.square(u), -1)
        assert np.allclose(rewards, expected)


@every
def test_only_the_papers_rewards_stay_in_the_unit_interval(one):
    """The released code subtracts the cost of control outside of the exponential."""
    if one.variant == "paper":
        assert one.control_cost == 0.0
        assert one.reward_range == (0.0, 1.0)
    else:
        far = jnp.full(one.state_dim, 500.0)
        hard = jnp.full(one.control_dim, one.u_max)
        assert float(one.reward(far, hard)) == pytest.approx(one.reward_range[0], abs=1e-6)
        assert one.reward_range[0] < 0.0


@every
def test_the_log_reward_lives_where_the_reward_has_died(one):
    far = jnp.full(one.state_dim, 1e3, jnp.float32)
    still = jnp.zeros(one.control_dim, jnp.float32)
    value, slope = jax.jit(jax.value_and_grad(one.log_reward))(far, still)
    assert float(jax.jit(one.reward)(far, still)) == 0.0
    assert np.isfinite(value)
    assert np.abs(slope).max() > 0.1


@every
def test_leading_axes_are_batches_and_precision_is_kept(one):
    x, u = draw(one, 6)
    deep = lambda a: np.reshape(a, (2, 3, -1))  # noqa: E731
    for function in (one.drift, one.reward, one.log_reward, lambda x, u: one.featurize(x), lambda x, u: one.links(x)):
        batched, mapped = jax.jit(function)(deep(x), deep(u)), jax.jit(jax.vmap(function))(x, u)
        assert np.allclose(np.reshape(batched, mapped.shape), mapped)
        assert batched.shape[:2] == (2, 3)
        assert jax.eval_shape(function, np.float32(x), np.float32(u)).dtype == np.float32


@every
def test_starts_fill_the_box(one):
    starts = np.asarray(jax.jit(jax.vmap(one.sample_initial_state))(jax.random.split(jax.random.key(0), 4000)))
    offset = (starts - np.array(one.init_mean)) / np.array(one.init_half_width)
    assert 0.99 < abs(offset).max() <= 1.0 + 1e-6  # the sum rounds
    assert np.allclose(offset.mean(0), 0.0, atol=0.05)
    assert np.allclose((offset**2).mean(0), 1 / 3, atol=0.03)


@every
def test_a_mechanical_system_is_measured_by_the_oracle(one):
    system = one.system(horizon=1.0, diffusion=0.1)
    weak = Partial(lambda x, t: one.u_max * jnp.sin(x[: one.control_dim]))
    measuring = MeasurementModel(step=0.1, reward_std=0.0)
    initial = lambda key: one.sample_initial_state(key).astype(jnp.float32)  # noqa: E731
    rollout = simulate_rollouts(system, measuring, steps=20, initial=initial)
    oracle = Oracle(rollout, system.horizon, Budget(1000), one.reward_range)
    with jax.enable_x64(False):
        seen, ledger = oracle(Key.from_seed(0), np.full((400, 2), [0.5, 1.0]), Context(1.0, plan=Plan(weak, None)))
    assert ledger.rollouts == 400
    drift, reward = jax.jit(lambda x, u: (one.drift(x, u), one.reward(x, u)))(seen.x, seen.u)
    assert np.std(seen.y - drift) == pytest.approx(0.1 / np.sqrt(0.1), rel=0.1)  # g/√Δ
    assert np.allclose(seen.r, reward, atol=1e-5)


def test_sensor_noise_touches_the_states_alone():
    one = pendulum()
    plan = Plan(Partial(lambda x, t: jnp.zeros(1)), None)
    plain = simulate_rollouts(one.system(1.0), MeasurementModel(), steps=5, initial=one.sample_initial_state)
    noisy = with_observation_noise(plain, 0.2)
    key, times = Key.from_seed(3), np.full((2000, 1), 0.7)
    with jax.enable_x64(False):
        clean, seen = plain(key.child("rollout"), plan, times), noisy(key, plan, times)
        again = noisy(key, plan, times)
    assert np.std(seen.x - clean.x) == pytest.approx(0.2, rel=0.05)
    assert all(np.array_equal(getattr(seen, name), getattr(clean, name)) for name in "tuyr")
    assert np.array_equal(seen.x, again.x)
    with pytest.raises(InputError, match="std: a standard deviation cannot be negative, got -1"):
        with_observation_noise(plain, -1.0)


def test_wrong_arguments_are_named():
    with pytest.raises(InputError, match="unknown variant 'papers': did you mean 'paper'"):
        cartpole("papers")
    with pytest.raises(InputError, match="diffusion: cannot be negative, got -1"):
        pendulum().system(1.0, diffusion=-1.0)
    good = vars(pendulum())
    with pytest.raises(InputError, match="goal: has 3 numbers, expected 2: 1 positions, then 1 velocities"):
        MechanicalSystem(**{**good, "goal": (0.0, 0.0, 0.0)})
    with pytest.raises(InputError, match="u_max: the control limit must be positive, not 0"):
        MechanicalSystem(**{**good, "u_max": 0})
    with pytest.raises(InputError, match="control_cost: a cost cannot be negative, got -1"):
        MechanicalSystem(**{**good, "control_cost": -1})


def test_a_users_own_system_needs_neither_links_nor_goal_nor_variant():
    own = MechanicalSystem(
        name="cart",
        angles=(False,),
        control_dim=1,
        u_max=1.0,
        acceleration=lambda q, v, u: u,
        log_reward=lambda x, u: -(x[..., 0] ** 2),
        init_mean=(0.0, 0.0),
        init_half_width=(1.0, 1.0),
    )
    assert (own.links, own.goal, own.variant) == (None, None, "")
    with pytest.raises(InputError, match="links: 'cart' cannot be rendered without them"):
        require_links(own)


def test_physical_parameters_are_arguments():
    x, u = np.array([0.0, np.pi, 0.0, 0.0]), np.ones(1)
    assert np.allclose(cartpole(force=6.0).drift(x, u / 2), cartpole().drift(x, u))
    assert pendulum(torque=5.0).u_max == 5.0
    assert (acrobot().u_max, acrobot("released").u_max, acrobot(torque=1.5).u_max) == (4.0, 5.0, 1.5)

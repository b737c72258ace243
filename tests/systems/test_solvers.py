"""Solvers against closed forms: law, agreement path by path, strong and weak orders of convergence.

Orders are slopes of log error over log step. All step sizes run in one compiled program: a coarse grid is padded with its
last time, and a step of length zero changes nothing. What noise a solver used is asked of the solver itself: with no drift
and g = 1 its path is the Brownian motion.
"""

import itertools
from dataclasses import replace

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from purectrl.core import InputError, Key, MeasurementError, MeasurementModel, Plan, System
from purectrl.systems.simulation import euler_maruyama, simulate_rollouts
from purectrl.systems.solvers import diffrax_solver, virtual_brownian_tree

STEPS = np.array([4, 8, 16, 32])
STILL = lambda x, t: jnp.zeros(1)  # noqa: E731
BROWNIAN = (lambda x, u: 0.0 * x), (lambda x, u: jnp.float32(1.0))
OU = (lambda x, u: -x), (lambda x, u: jnp.sqrt(2.0))
MU, SIGMA = 0.25, 0.5
GBM = (lambda x, u: MU * x), (lambda x, u: SIGMA * x[0])  # x(1) = exp(μ − σ²/2 + σ w(1)) from x(0) = 1


def padded(count, most, horizon=1.0):
    """`count` equal steps over [0, horizon], then steps of length zero: times [most + 1]."""
    return jnp.asarray(np.minimum(np.arange(most + 1) / count, 1.0) * horizon, jnp.float32)


def program(solver, equation, start, paths, seed=0):
    """A compiled function of times [K+1]: many paths [paths, K+1] of one-dimensional `equation`."""
    keys = jax.random.split(jax.random.key(seed), paths)
    one = lambda key, times: solver(key, *equation, STILL, jnp.full(1, start), times)[:, 0]  # noqa: E731
    run = jax.jit(jax.vmap(one, (0, None)))
    return lambda times: np.asarray(run(keys, times), np.float64)


def order(errors, steps=STEPS):
    """The slope of log error over log step."""
    return np.polyfit(-np.log(steps), np.log(errors), 1)[0]


class Recorded(diffrax.AbstractPath):
    """A Brownian path that is known at some times only."""

    times: jax.Array
    values: jax.Array
    t0 = property(lambda self: self.times[0])
    t1 = property(lambda self: self.times[-1])

    def evaluate(self, t0, t1=None, left=True):
        at = lambda t: self.values[jnp.searchsorted(self.times, t, side="right") - 1]  # noqa: E731
        return at(t1) - at(t0)


@pytest.mark.parametrize("equation", [OU, GBM])
def test_euler_of_diffrax_on_our_noise_is_euler_maruyama(equation):
    times = jnp.array([0.0, 0.1, 0.1, 0.35, 0.35, 0.35, 1.0, 1.7])
    key, start = jax.random.key(0), jnp.ones(1)
    noise = euler_maruyama(key, *BROWNIAN, STILL, jnp.zeros(1), times)
    ours = euler_maruyama(key, *equation, STILL, start, times)
    given = lambda key, shape, times, levy_area: Recorded(times, noise)  # noqa: E731
    theirs = diffrax_solver(diffrax.Euler(), brownian=given)(key, *equation, STILL, start, times)
    assert np.allclose(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("solver", "steps"),
    [
        (euler_maruyama, 100),
        (diffrax_solver(diffrax.Euler(), substeps=10), 10),
        (diffrax_solver(diffrax.ShARK()), 8),
        (diffrax_solver(diffrax.Heun(), substeps=2, brownian=virtual_brownian_tree(2**-9)), 8),
    ],
)
def test_every_solver_has_the_law_of_the_ou_process(solver, steps):
    """dx = −x dt + sqrt(2) dw: mean e^−t x(0), variance 1 − e^−2t. Euler with 8 steps would miss the variance by 0.16."""
    x = program(solver, OU, 1.5, 100_000)(jnp.linspace(0.0, 2.0, steps + 1))
    for index in (steps // 2, steps):
        t = 2.0 * index / steps
        assert x[:, index].mean() == pytest.approx(1.5 * np.exp(-t), abs=0.03)
        assert x[:, index].var() == pytest.approx(1.0 - np.exp(-2 * t), abs=0.04)


def ou_error(solver, paths=2000):
    """E|x_h(1) − x(1)| for each step size. The exact x(1) is drawn given the increments that the solver used:
    ∫ e^−(h−s) dw(s) over one step is Gaussian with w's increment, so it is a part of it plus an independent rest."""
    run, noise, draws = program(solver, OU, 1.0, paths), program(solver, BROWNIAN, 0.0, paths), np.random.default_rng(0)
    errors = []
    for count in STEPS:
        times, h = padded(count, STEPS[-1]), 1.0 / count
        dw = np.diff(noise(times)[:, : count + 1])
        share = (1 - np.exp(-h)) / h
        rest = np.sqrt((1 - np.exp(-2 * h)) / 2 - share**2 * h)
        integrals = share * dw + rest * draws.normal(size=dw.shape)
        decay = np.exp(-(1.0 - h * np.arange(1, count + 1)))
        exact = np.exp(-1.0) + np.sqrt(2.0) * integrals @ decay
        errors.append(np.abs(run(times)[:, -1] - exact).mean())
    return errors


def gbm_ends(solver, paths):
    """Pairs (x_h(1), x(1)) on one Brownian path for each step size: [steps, 2, paths]."""
    run, noise = program(solver, GBM, 1.0, paths), program(solver, BROWNIAN, 0.0, paths)
    grids = [padded(count, STEPS[-1]) for count in STEPS]
    return [(run(times)[:, -1], np.exp(MU - SIGMA**2 / 2 + SIGMA * noise(times)[:, -1])) for times in grids]


def test_strong_order_of_euler_maruyama_is_one_for_additive_noise():
    assert order(ou_error(euler_maruyama)) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("solver", "expected"),
    [
        (euler_maruyama, 0.5),
        (diffrax_solver(diffrax.ItoMilstein()), 1.0),
        (
            diffrax_solver(diffrax.Heun()),
            1.0,
        ),  # a Stratonovich method: without the correction it does not converge at all
        (diffrax_solver(diffrax.SlowRK()), 1.5),
    ],
    ids=["euler-maruyama", "milstein", "heun", "slow-rk"],
)
def test_strong_order_for_multiplicative_noise(solver, expected):
    errors = [np.abs(end - exact).mean() for end, exact in gbm_ends(solver, 4000)]
    assert order(errors) == pytest.approx(expected, abs=0.15)


def test_weak_order_of_euler_maruyama_is_one():
    """E x(1)² of geometric Brownian motion; the exact solution on the same paths takes most of the variance away."""
    errors = [abs((end**2 - exact**2).mean()) for end, exact in gbm_ends(euler_maruyama, 40_000)]
    assert order(errors) == pytest.approx(1.0, abs=0.15)


def test_strong_order_of_shark_is_one_and_a_half_for_additive_noise():
    """On one Brownian path for all step sizes; each is compared with the next finer one."""
    solver = diffrax_solver(diffrax.ShARK(), brownian=virtual_brownian_tree(2**-9))
    run = program(solver, ((lambda x, u: jnp.sin(2 * x)), BROWNIAN[1]), 0.3, 400)
    ends = [run(padded(count, 32))[:, -1] for count in STEPS]
    errors = [np.abs(end - finer).mean() for end, finer in itertools.pairwise(ends)]
    assert 1.35 < order(errors, STEPS[:-1]) < 1.75


def test_substeps_are_steps():
    """Twice four substeps are eight steps, on one Brownian path."""
    times = jnp.linspace(0.0, 1.0, 9)
    steps, substeps = (
        program(diffrax_solver(diffrax.Euler(), count, virtual_brownian_tree(2**-6)), GBM, 1.0, 2) for count in (1, 4)
    )
    assert np.allclose(steps(times)[:, ::4], substeps(times[::4]), rtol=1e-5)


def test_a_stratonovich_method_keeps_an_ito_martingale_in_two_dimensions():
    """dx = g(x) dw with g = sqrt(1 + |x|²) / 2 keeps its mean; read as Stratonovich it would grow by e^(1/8)."""
    solver, start = diffrax_solver(diffrax.Heun()), jnp.array([1.0, -0.5])
    equation = (lambda x, u: 0.0 * x), (lambda x, u: jnp.sqrt(1.0 + x @ x) / 2)
    one = lambda key: solver(key, *equation, STILL, start, jnp.linspace(0.0, 1.0, 17))[-1]  # noqa: E731
    ends = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 20_000))
    assert np.allclose(ends.mean(axis=0), start, atol=0.03)


SYSTEM = System("ou", 1, 1, 2.0, *OU, lambda x, u: jnp.exp(-(x[0] ** 2)))
PLAN = Plan(Partial(STILL), Partial(lambda key: jnp.zeros(1)))


def test_a_rollout_takes_any_solver():
    """With ShARK, eight steps are enough for the variance of x(0.7) and of x(1.9), measured off the grid."""
    rollout = simulate_rollouts(SYSTEM, MeasurementModel(), 8, solver=diffrax_solver(diffrax.ShARK()))
    seen = rollout(Key.from_seed(0), PLAN, np.tile([0.7, 1.9], (20_000, 1)))
    assert np.allclose(seen.x[..., 0].var(axis=0), 1.0 - np.exp([-1.4, -3.8]), atol=0.04)


def test_a_negative_diffusion_is_named_with_any_solver():
    wrong = replace(SYSTEM, diffusion=lambda x, u: -0.5 + 0.0 * x[0])
    rollout = simulate_rollouts(wrong, MeasurementModel(), 4, solver=diffrax_solver(diffrax.ItoMilstein()))
    with pytest.raises(MeasurementError, match=r"the diffusion of 'ou' is -0\.5 in episode 0 .* at time t = 0 "):
        rollout(Key.from_seed(0), PLAN, np.ones((1, 1)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: diffrax_solver("euler"), "method: expected a solver of Diffrax, not 'euler'"),
        (
            lambda: diffrax_solver(diffrax.Euler(), substeps=0),
            "substeps: at least one step between two times is needed",
        ),
        (lambda: virtual_brownian_tree(0.0), "tolerance: must be positive"),
        (
            lambda: diffrax_solver(diffrax.ShARK())(jax.random.key(0), *GBM, STILL, jnp.ones(1), jnp.arange(3.0)),
            "method: ShARK is for constant g, and this g depends on the state: use",
        ),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()

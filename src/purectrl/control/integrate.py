"""Ordinary differential equations over short intervals, for many rows at once.

An integrator is a plain function `integrate(rate, x, gap) -> x after the gap`:

    rate    (x [..., d], s) -> dx/dt [..., d], where s in [0, 1] is the elapsed share of the gap
    x       states [..., d]
    gap     seconds [..., 1], one for each row, so that rows with different times between measurements share a program
"""

import functools
from collections.abc import Callable

import diffrax
import jax
import jax.numpy as jnp
from jax import Array

from purectrl.core.errors import require

Rate = Callable[[Array, Array], Array]
Integrator = Callable[[Rate, Array, Array], Array]
Drift = Callable[[Array, Array], Array]


def midpoint(rate: Rate, x: Array, gap: Array) -> Array:
    """One step of the explicit midpoint rule, x [..., d] -> [..., d]: an error of order gap³ with two evaluations.

    >>> round(midpoint(lambda x, s: -x, jnp.array([1.0]), jnp.array([0.1])).item(), 4)  # e^(−0.1) = 0.9048
    0.905
    """
    half = x + gap / 2 * rate(x, jnp.asarray(0.0))
    return x + gap * rate(half, jnp.asarray(0.5))


def euler(rate: Rate, x: Array, gap: Array) -> Array:
    """One Euler step, x [..., d] -> [..., d]: the exact inverse of y = (x(t + gap) − x(t))/gap."""
    return x + gap * rate(x, jnp.asarray(0.0))


@functools.cache
def midpoint_in(steps: int) -> Integrator:
    """`steps` midpoint steps per gap, for gaps that are too long for one."""
    require(steps >= 1, f"steps: a gap needs at least one step, not {steps}")

    def integrate(rate: Rate, x: Array, gap: Array) -> Array:
        def step(i: Array, x: Array) -> Array:
            return midpoint(lambda x, s: rate(x, (i + s) / steps), x, gap / steps)

        return jax.lax.scan(lambda x, i: (step(i, x), None), x, jnp.arange(steps))[0]

    return integrate


@functools.cache
def dopri5(rtol: float = 1e-4, atol: float = 1e-5, max_steps: int = 256) -> Integrator:
    """Dormand and Prince's adaptive method of order 5 (Diffrax), which the paper uses. All rows share the step size.

    If `max_steps` do not suffice, as under a model that has diverged, the result is NaN: the update is then rolled back,
    whereas an exception would end the run.
    """

    def integrate(rate: Rate, x: Array, gap: Array) -> Array:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(
                lambda s, x, _: gap * rate(x, jnp.asarray(s))
            ),  # in units of the gap, so that rows may differ in theirs
            diffrax.Dopri5(),
            t0=0.0,
            t1=1.0,
            dt0=None,
            y0=x,
            stepsize_controller=diffrax.PIDController(rtol, atol),
            max_steps=max_steps,
            throw=False,
        )
        assert solution.ys is not None
        return jnp.where(solution.result == diffrax.RESULTS.successful, solution.ys[0], jnp.nan)

    return integrate


def path(integrate: Integrator, drift: Drift, x: Array, u: Array, gaps: Array) -> Array:
    """The states after each of n gaps, with the control linear between its measured values.

    Main arguments:
        drift: (x [..., d], u [..., k]) -> [..., d].
        x: first states [..., d].
        u: controls at both ends of each gap [n + 1, ..., k].
        gaps: seconds [n, ..., 1].

    Returns:
        States [n, ..., d].
    """

    def advance(x: Array, interval: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        before, after, gap = interval
        x = integrate(lambda x, s: drift(x, before + s * (after - before)), x, gap)
        return x, x

    return jax.lax.scan(advance, x, (u[:-1], u[1:], gaps))[1]

"""One step of the classical Runge-Kutta method, which simulates every deterministic path of this package."""

from collections.abc import Callable
from typing import TypeVar

from jax import Array

Time = TypeVar("Time", float, Array)


def runge_kutta_step(rate: Callable[[Array, Time], Array], x: Array, t: Time, h: Time) -> Array:
    """x(t + h) of dx/dt = rate(x, t), with an error of order h⁵; x [..., d] -> [..., d].

    >>> import jax.numpy as jnp
    >>> round(runge_kutta_step(lambda x, t: -x, jnp.ones(1), 0.0, 0.1).item(), 6)  # e^(−0.1) = 0.904837
    0.904837
    """
    a = rate(x, t)
    b = rate(x + h / 2 * a, t + h / 2)
    c = rate(x + h / 2 * b, t + h / 2)
    d = rate(x + h * c, t + h)
    return x + h / 6 * (a + 2 * b + 2 * c + d)

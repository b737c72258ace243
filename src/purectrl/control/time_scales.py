"""The time scale of a system, from which a planner takes all of its times.

symbol   here                   meaning
-------  ---------------------  --------------------------------------------------------------------------------------
A(x)     ∂f/∂x                  the Jacobian of the drift
ρ        TimeScales.rate        the rate of the fastest mode in the data and at rewarded states, see `mode_rate`
H        TimeScales.horizon     5/ρ, the length of an imagined rollout
Δt       TimeScales.step        H/20, for which an imagined control is held
τ        TimeScales.discount    20/ρ: a reward t seconds away has the weight e^(−t/τ)

The gradient of a rollout grows like e^(λH) with the fastest unstable pole λ ≤ ρ. For H = 5/ρ it is bounded by e⁵ on
every system; with one H in seconds for all systems it is 4,000 on a slow one and 10¹⁰ on one that is three times as
fast.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.control.auto_settings import RoundSettings
from purectrl.control.imagination import ImaginationModel
from purectrl.systems.spec import StateSpec

POINTS = 128
"""Measured states at which the Jacobian is evaluated."""
FASTEST, SLOWEST = 4000.0, 40.0
"""Largest and smallest rate, in units of 1/T: an episode is at least eight planning horizons long. Systems without
fast modes, such as a quadrotor or a car, have no other time scale than that of the task."""

GOAL_RATIO = 3.0
"""Rewarded states make the rate at most this many times larger."""


class TimeScales(NamedTuple):
    """Times of planning, in the unit of the problem; scalars that may be traced."""

    rate: Array | float
    """ρ."""
    step: Array | float
    """Δt."""
    discount: Array | float
    """τ."""
    noise: Array | float
    """Correlation time of the noise on imagined controls."""


def time_scales(settings: RoundSettings, rate: float, time_grid: float | None) -> TimeScales:
    """The times that follow from ρ; on a time grid, controls are held for one step of it.

    >>> scales = time_scales(RoundSettings(), rate=2.5, time_grid=None)
    >>> scales.step * 20, scales.discount
    (2.0, 8.0)
    """
    step = settings.horizon / rate / settings.rollout_steps if time_grid is None else time_grid
    return TimeScales(rate, step, settings.discount / rate, settings.noise_time / rate)


class RateEstimate(NamedTuple):
    """ρ and where it comes from, in units of one over the unit of time."""

    rate: float
    """The larger of the other two, between 40/T and 4000/T, and at most three times that of the data."""
    data: float
    """The median over measured states of the fastest mode of A(x), the mean over the members of a model."""
    goal: float
    """The same over rewarded states, in the member where it is slowest: a model that has not seen them may predict
    anything there, and its members then disagree."""


def estimate_rate(
    model: ImaginationModel, spec: StateSpec, states: np.ndarray, goals: np.ndarray, horizon: float
) -> RateEstimate:
    """ρ of a model, from measured states [n, d] and rewarded states [g, d], for episodes of length `horizon`."""
    some = states[np.linspace(0, len(states) - 1, POINTS).round().astype(int)]
    data, goal = (_jacobian(spec, model, jnp.asarray(x, jnp.float32)) for x in (some, goals))
    data, goal = mode_rate(data.mean(axis=0)), min(map(mode_rate, goal))
    slowest = max(data, SLOWEST / horizon)
    return RateEstimate(float(np.clip(goal, slowest, min(GOAL_RATIO * slowest, FASTEST / horizon))), data, goal)


def mode_rate(matrices: Array) -> float:
    """The median over matrices [n, d, d] of the largest rate of a mode; matrices that are not finite are left out.

    A mode e^(λt) has the rate Re λ if it grows, |Im λ| if it oscillates, and a quarter of −Re λ if it decays: what decays
    fast does not have to be resolved.

    >>> mode_rate(jnp.array([[[0.0, 1.0], [4.0, 0.0]]])), mode_rate(jnp.array([[[-8.0]]]))
    (2.0, 2.0)
    """
    every = np.asarray(matrices)
    poles = np.linalg.eigvals(every[np.isfinite(every).all(axis=(1, 2))])
    rates = np.maximum(np.maximum(poles.real, -poles.real / 4), np.abs(poles.imag)).max(axis=-1)
    return float(np.median(rates)) if len(rates) else 0.0


@functools.partial(jax.jit, static_argnums=0)
def _jacobian(spec: StateSpec, model: ImaginationModel, x: Array) -> Array:
    """∂f/∂x [members, n, d, d] at states [n, d] with controls in the middle of their range."""
    u = jnp.broadcast_to(jnp.asarray(spec.control_mid), (len(x), spec.control_dim))

    def drift(x: Array) -> Array:
        shared = [jnp.broadcast_to(array, (model.members, *array.shape)) for array in (x, u)]
        return model.drift(*shared)

    columns = [jax.jvp(drift, (x,), (jnp.broadcast_to(unit, x.shape),))[1] for unit in jnp.eye(x.shape[-1])]
    return jnp.stack(columns, axis=-1)

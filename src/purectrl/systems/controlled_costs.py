"""Systems of the literature on when to measure: drift, quadratic costs and one initial state each.

    system        dx/dt                                              cost rate                     T     x(0)
    ------------  -------------------------------------------------  ----------------------------  ----  -------------
    pendulum      θ̇ = ω, ω̇ = (9.81/5) sin θ + u                      θ² + ω² + u²                  10    (π, 0)
    mountain car  ẋ = 10v, v̇ = 3.5u − 2.5 cos 3x                     (x − π/6)² + v² + u²          1     (−π/6, 0)
    cancer        ẋ = 0.3 x ln(1/x) − 0.45 u x                       3x² + u²                      20    0.975
    glucose       ẋ₁ = −x₁ − x₂, ẋ₂ = −x₂ + u                        100 (2(x₁ − 0.5)² + u²)       0.45  (0.75, 0)
    quadrotor     z̈ = 2 − 10u₁ cos φ, ÿ = 10u₁ sin φ, φ̈ = 10u₂       ‖x‖² + 10‖u − (0.2, 0)‖²      8     (−1, −1, 0, …)
    furuta        see `furuta_drift`                                 ‖x‖² + 0.01u²                 5     (0, 0, π, 0)
    bicycle       ẋ = v cos ψ, ẏ = v sin ψ, ψ̇ = v u₁, v̇ = u₂         ‖x − (2, 1, π/6, 0)‖² + ‖u‖²  10    0

Equations, costs and initial states are those of the experiments of OCoRL (Treven et al., NeurIPS 2023). Except for
cancer and glucose, ‖x(T) − target‖² is added. Glucose and furuta are computed in the units in which they are learned
there, (x₁, 500 x₂) and 50 u, and 0.1 u, so that numbers are of the order of one.

Two more have prices, because a measurement costs something real there:

    chemo-radiotherapy  the tumour model of Geng et al. (2017) as in active observing control (Holt et al., NeurIPS 2023):
                        volume and drug concentration; doses of drug and radiation; a scan per measurement, a patient per
                        episode
    bioreactor          photo-production of phycocyanin by cyanobacteria (the equations of pc-gym): biomass, nitrate,
                        product; light and nitrate inflow; an assay per measurement, a batch of ten days per episode

Their units, initial states and prices are ours.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.prices import Prices


class ControlledCost(NamedTuple):
    """A system with a cost; functions of one state x [d] and one control u [k]."""

    name: str
    drift: Callable[[Array, Array], Array]
    cost: Callable[[Array, Array], Array]
    terminal: Callable[[Array], Array] | None
    start: tuple[float, ...]
    horizon: float
    noise: tuple[float, ...]
    """Standard deviation of the noise of a measured drift [d]."""
    control_low: tuple[float, ...]
    control_high: tuple[float, ...]
    angles: tuple[int, ...] = ()
    prices: Prices = Prices()


def _quadratic(
    target: tuple[float, ...], weight: float = 1.0, rest: tuple[float, ...] = (0.0,)
) -> Callable[..., Array]:
    """‖x − target‖² + weight ‖u − rest‖²."""
    return lambda x, u: ((x - np.array(target)) ** 2).sum() + weight * ((u - np.array(rest)) ** 2).sum()


def _final(target: tuple[float, ...]) -> Callable[[Array], Array]:
    return lambda x: ((x - np.array(target)) ** 2).sum()


def pendulum_drift(x: Array, u: Array) -> Array:
    """θ = 0 is up.

    >>> pendulum_drift(jnp.array([0.0, 1.0]), jnp.ones(1)).tolist()
    [1.0, 1.0]
    """
    return jnp.stack([x[1], 9.81 / 5 * jnp.sin(x[0]) + u[0]])


def furuta_drift(x: Array, u: Array) -> Array:
    """(φ, φ̇, θ, θ̇), θ = 0 is up; the control is in units of 10.

    >>> furuta_drift(jnp.zeros(4), jnp.zeros(1)).tolist()  # an equilibrium
    [0.0, 0.0, 0.0, 0.0]
    """
    arm, bob, arm_mass, rod_mass, r, length = 0.8084, 9.894e-4, 6.361e-3, 7.027e-4, 2.0, 1.65
    a = arm + (bob + arm_mass / 3 + rod_mass) * r**2
    b = (bob + rod_mass / 3) * length**2
    c = (bob + rod_mass / 2) * r * length
    d = (bob + rod_mass / 2) * 9.81 * length
    _, w, theta, v = x
    sin, cos, torque = jnp.sin(theta), jnp.cos(theta), 10 * u[0]
    scale = a * b - c**2 + (b**2 + c**2) * sin**2
    turn = b * c * (sin**2 - 1) * sin * w**2 - 2 * b**2 * cos * sin * w * v + b * c * sin * v**2
    fall = b * (a + b * sin**2) * cos * sin * w**2 + 2 * b * c * (1 - sin**2) * sin * w * v - c**2 * cos * sin * v**2
    arm_rate = (turn - c * d * cos * sin + b * torque) / scale
    rod_rate = (fall + d * (a + b * sin**2) * sin - c * cos * torque) / scale
    return jnp.stack([w, arm_rate, v, rod_rate])


def quadrotor_drift(x: Array, u: Array) -> Array:
    """(z, y, φ, ż, ẏ, φ̇); z points down, and u = (0.2, 0) hovers.

    >>> quadrotor_drift(jnp.zeros(6), jnp.array([0.2, 0.0])).tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    return jnp.stack([*x[3:], 2 - 10 * u[0] * jnp.cos(x[2]), 10 * u[0] * jnp.sin(x[2]), 10 * u[1]])


def bicycle_drift(x: Array, u: Array) -> Array:
    """(x, y, ψ, v) with steering u₁ and acceleration u₂; the wheelbase is 1."""
    return jnp.stack([x[3] * jnp.cos(x[2]), x[3] * jnp.sin(x[2]), x[3] * u[0], u[1]])


def cancer_drift(x: Array, u: Array) -> Array:
    """The size of a tumour (Gompertz growth) under a drug.

    >>> cancer_drift(jnp.ones(1), jnp.zeros(1)).tolist()  # the carrying capacity
    [0.0]
    """
    return 0.3 * x * jnp.log(1 / jnp.maximum(x, 1e-6)) - 0.45 * u[0] * x


_TOP, _PARKED = (np.pi / 6, 0.0), (2.0, 1.0, np.pi / 6, 0.0)
_ZERO = {d: (0.0,) * d for d in (2, 4, 6)}

PENDULUM = ControlledCost(
    "ocorl-pendulum", pendulum_drift, _quadratic(_ZERO[2]), _final(_ZERO[2]), (np.pi, 0.0), 10.0, (0.01, 0.005),
    (-10.0,), (10.0,), angles=(0,),
)  # fmt: skip
MOUNTAIN_CAR = ControlledCost(
    "ocorl-mountain-car",
    lambda x, u: jnp.stack([10 * x[1], 3.5 * u[0] - 2.5 * jnp.cos(3 * x[0])]),
    _quadratic(_TOP), _final(_TOP), (-np.pi / 6, 0.0), 1.0, (0.01, 0.001), (-10.0,), (10.0,),
)  # fmt: skip
CANCER = ControlledCost(
    "ocorl-cancer", cancer_drift, lambda x, u: 3 * (x**2).sum() + (u**2).sum(), None, (0.975,), 20.0, (0.01,),
    (0.0,), (5.0,),
)  # fmt: skip
GLUCOSE = ControlledCost(
    "ocorl-glucose",
    lambda x, u: jnp.stack([-x[0] - x[1] / 500, -x[1] + 10 * u[0]]),
    lambda x, u: 100 * (2 * (x[0] - 0.5) ** 2 + (u[0] / 50) ** 2),
    None, (0.75, 0.0), 0.45, (0.01, 0.01), (-10.0,), (10.0,),
)  # fmt: skip
QUADROTOR = ControlledCost(
    "ocorl-quadrotor", quadrotor_drift, _quadratic(_ZERO[6], 10.0, (0.2, 0.0)), _final(_ZERO[6]),
    (-1.0, -1.0, 0.0, 0.0, 0.0, 0.0), 8.0, (0.01,) * 6, (-1.0, -1.0), (1.0, 1.0), angles=(2,),
)  # fmt: skip
FURUTA = ControlledCost(
    "ocorl-furuta", furuta_drift, _quadratic(_ZERO[4], 1.0), _final(_ZERO[4]), (0.0, 0.0, np.pi, 0.0), 5.0, (0.01,) * 4,
    (-10.0,), (10.0,), angles=(0, 2),
)  # fmt: skip
BICYCLE = ControlledCost(
    "ocorl-bicycle", bicycle_drift, _quadratic(_PARKED, 1.0, (0.0, 0.0)), _final(_PARKED), (0.0,) * 4, 10.0, (0.01,) * 4,
    (-5.0, -5.0), (5.0, 5.0), angles=(2,),
)  # fmt: skip


def chemo_radiotherapy_drift(x: Array, u: Array) -> Array:
    """x = (ln(volume/capacity), concentration/5), u = (drug, radiation) as shares of the largest doses.

    The logarithm keeps the numbers of the order of one: d ln v/dt = 5 (ρ ln(K/v) − β_c c − α_r r − β_r r²).

    >>> bool((chemo_radiotherapy_drift(jnp.zeros(2), jnp.zeros(2)) == 0).all())  # at capacity, without treatment
    True
    """
    growth, drug_effect, linear, quadratic = 7e-5 + 2 * 7.23e-3, 0.028, 0.0398, 0.00398
    drug, radiation = 5 * u[0], 2 * u[1]
    shrink = growth * x[0] + drug_effect * 5 * x[1] + linear * radiation + quadratic * radiation**2
    return jnp.stack([-5 * shrink, 5 * (-x[1] / 2 + drug / 5)])


def chemo_radiotherapy_cost(x: Array, u: Array) -> Array:
    """The squared diameter in cm, with small weights on drug and doses; 30 cm is the capacity."""
    diameter = 30.0 * jnp.exp(x[0] / 3)
    return 1e-2 * (diameter**2 + 0.1 * (5 * x[1]) ** 2 + 1e-3 * ((5 * u[0] / 2) ** 2 + u[1] ** 2))


def bioreactor_drift(x: Array, u: Array) -> Array:
    """x = (biomass in g/L, nitrate in 100 mg/L, product in 10 mg/L), u = shares of the largest light and inflow; per day.

    >>> bioreactor_drift(jnp.array([1.0, 0.0, 0.0]), jnp.array([1.0, 0.0]))[:2].tolist()  # no growth without nitrate
    [0.0, 0.0]
    """
    biomass, nitrate, product = x[0], 100 * x[1], 10 * x[2]
    light, inflow = 400 * u[0], 40 * u[1]
    growth = 0.0572 * light / (light + 178.9 + light**2 / 447.1) * biomass * nitrate / (nitrate + 393.1)
    made = 1.6e-4 * light / (light + 23.51 + light**2 / 800.0) * biomass
    decay = 0.281 * product / 1e3 / (jnp.maximum(nitrate, 0.0) + 16.89)
    return 24 * jnp.stack([growth, (-504.5 * growth + inflow) / 100, 1e3 * (made - decay) / 10])


def bioreactor_cost(x: Array, u: Array) -> Array:
    """Product is rewarded throughout; light and nitrate cost a little."""
    return -x[2] + 0.1 * (u[0] ** 2 + u[1] ** 2)


CHEMO_RADIOTHERAPY = ControlledCost(
    "chemo-radiotherapy", chemo_radiotherapy_drift, chemo_radiotherapy_cost, None, (3 * float(np.log(13.0 / 30.0)), 0.0),
    10.0, (0.002, 0.01), (0.0, 0.0), (1.0, 1.0), prices=Prices(measurement=0.1, rollout=1.0),
)  # fmt: skip
BIOREACTOR = ControlledCost(
    "bioreactor", bioreactor_drift, bioreactor_cost, None, (1.0, 1.5, 0.0), 10.0, (0.02, 0.05, 0.02), (0.0, 0.0), (1.0, 1.0),
    prices=Prices(measurement=0.05, rollout=1.0),
)  # fmt: skip

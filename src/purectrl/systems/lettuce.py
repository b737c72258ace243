"""Lettuce in a greenhouse: growth, carbon dioxide, temperature and vapour under weather that changes with time.

symbol   here       meaning                                              unit            in the state
-------  ---------  ---------------------------------------------------  --------------  -----------------
x₁       dry        dry weight of the crop                               kg/m²           10 x₁
x₂       co2        carbon dioxide of the air                            kg/m³           1000 x₂
x₃       warmth     temperature of the air                               °C              x₃ / 10
x₄       vapour     water vapour of the air                              kg/m³           100 x₄
t        –          days since the beginning                             day             2π t as an angle, t / T
u₁       supply     supply of carbon dioxide                             mg/(m² s)       u₁
u₂       vent       ventilation through the windows                      mm/s            u₂
u₃       heating    heating                                              W/m²            u₃ / 100
d₁       radiation  global radiation outside                             W/m²
d₂, d₄   –          carbon dioxide and vapour outside                    kg/m³
d₃       –          temperature outside                                  °C

Equations and parameters are those of E. van Henten (Greenhouse climate management: an optimal control approach, 1994;
Sensitivity analysis of an optimal control problem in greenhouse climate management, Biosystems Engineering 85, 2003):

    dx₁/dt = 0.544 φ − 2.65·10⁻⁷ x₁ 2^(x₃/10 − 2.5)
    dx₂/dt = (−φ + 4.87·10⁻⁷ x₁ 2^(x₃/10 − 2.5) + 10⁻⁶ u₁ − w (x₂ − d₂)) / 4.1
    dx₃/dt = (u₃ − (1290 · 10⁻³ u₂ + 6.1)(x₃ − d₃) + 0.2 d₁) / 30000
    dx₄/dt = (E − w (x₄ − d₄)) / 4.1
    w = 10⁻³ u₂ + 7.5·10⁻⁶,   c = 1 − exp(−53 x₁),   k = −5.11·10⁻⁶ x₃² + 2.3·10⁻⁴ x₃ − 6.29·10⁻⁴
    φ = c · 3.55·10⁻⁹ d₁ k (x₂ − 5.2·10⁻⁵) / (3.55·10⁻⁹ d₁ + k (x₂ − 5.2·10⁻⁵))        photosynthesis
    E = 0.0036 c (9348 / (8314 (x₃ + 273.15)) · exp(17.4 x₃ / (x₃ + 239)) − x₄)         transpiration

The leak through the cover, 7.5·10⁻⁶ m/s, is that of the benchmarks in the literature; the thesis has 7.5·10⁻⁵. Equations,
parameters and the conversion of measured weather were compared with lettuce-greenhouse-gym 0.1.3 (Apache-2.0, G. Soykan):
`tests/problems/test_lettuce.py` does so at 100 random states, controls and weathers where that package is installed.

Time is counted in days here. The cost is that of heating and carbon dioxide less the value of the crop at the end, with
penalties for air that is too cold, too warm, too humid or too rich in carbon dioxide; penalties, horizon and initial state
are ours.
"""

import csv
import math
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.errors import InputError, StoreError, require
from purectrl.core.io import read_bytes

DAY = 86_400.0
"""Seconds."""
ENERGY_PRICE, CO2_PRICE, CROP_PRICE = 0.1281, 0.1906, 22.285125
"""Of a kWh, of a kg of carbon dioxide and of a kg of dry weight, in euros; those of lettuce-greenhouse-gym."""
LIMITS = {"warmth": (10.0, 25.0), "co2": 2.75e-3, "humidity": 0.9}
"""Temperatures in °C, carbon dioxide in kg/m³ and relative humidity that cost nothing."""
PENALTY = 0.1
"""Euros per square metre and day at one unit beyond a limit: a state in the unit of the table, or 10 % of humidity."""
GAS_CONSTANT, KELVIN = 8.3144598, 273.15
"""In J/(mol K), and 0 °C in K."""


class Weather(NamedTuple):
    """The weather outside at equidistant times."""

    step: float
    """Days between two rows."""
    rows: np.ndarray
    """Radiation, carbon dioxide, temperature and vapour [n, 4], in the units of the table."""

    def at(self, t: Array) -> tuple[Array, Array, Array, Array]:
        """d₁, d₂, d₃ and d₄ at time t in days, linear between rows; the last row holds after the end."""
        place = jnp.clip(t / self.step, 0.0, len(self.rows) - 1.0)
        left = jnp.clip(jnp.asarray(place, jnp.int32), 0, max(len(self.rows) - 2, 0))
        rows, share = jnp.asarray(self.rows, jnp.float32), place - left
        radiation, co2, warmth, vapour = (1 - share) * rows[left] + share * rows[left + 1]
        return radiation, co2, warmth, vapour


def saturation(warmth: Array | np.ndarray | float) -> Array:
    """Water vapour of saturated air in kg/m³, at a temperature in °C.

    >>> round(float(saturation(20.0)), 3)  # about 17 g/m³
    0.017
    """
    pressure = 610.78 * jnp.exp(17.2694 * jnp.asarray(warmth) / (jnp.asarray(warmth) + 238.3))  # of Magnus, in Pa
    return pressure * 18.01528e-3 / (GAS_CONSTANT * (warmth + KELVIN))


def synthetic_weather(days: float, step: float = 1 / 48) -> Weather:
    """Equal days that are made up: the sun shines for ten hours with up to 300 W/m², between 2 °C at night and 8 °C."""
    t = np.arange(math.ceil(days / step) + 2) * step
    radiation = 300.0 * np.maximum(0.0, np.cos(2 * np.pi * (t - 0.5)) - np.cos(np.pi * 10 / 24))
    radiation = radiation / (1 - np.cos(np.pi * 10 / 24))
    warmth = 5.0 + 3.0 * np.cos(2 * np.pi * (t - 0.6))
    vapour = 0.8 * np.asarray(saturation(warmth))
    return Weather(step, np.stack([radiation, np.full(len(t), 7.3e-4), warmth, vapour], axis=1))


MAX_BYTES = 100 * 2**20
"""Larger files of weather are not read."""
COLUMNS = 6
"""Of a weather file: seconds, radiation, temperature, relative humidity in %, wind, carbon dioxide in ppm."""


def read_weather(path: Path, first_day: float, days: float) -> Weather:
    """The days `first_day` to `first_day + days` of a file of measurements, a CSV without header at equidistant times.

    Main arguments:
        path: the file; its columns are those of `COLUMNS`.
        first_day: days from the first row of the file on.
        days: length.
    """
    try:  # the config of somebody else's run may name any file: a pipe, a device, a secret
        lines = read_bytes(path, MAX_BYTES, follow=True).decode().splitlines()
        table = np.array([[float(number) for number in row] for row in csv.reader(lines)])
    except (OSError, StoreError) as error:
        raise InputError(f"weather: {path} cannot be read: {error}") from None
    except ValueError:
        raise InputError(f"weather: {path} cannot be read as a table of numbers") from None
    require(
        table.ndim == 2 and len(table) > 1 and table.shape[1] == COLUMNS and bool(np.isfinite(table).all()),
        f"weather: {path} has the shape {table.shape}, expected rows of {COLUMNS} finite numbers: seconds, radiation, "
        "temperature, humidity, wind, carbon dioxide",
    )
    seconds, gaps = table[:, 0], np.diff(table[:, 0])
    require(
        bool(gaps[0] > 0 and np.allclose(gaps, gaps[0], rtol=1e-3)), f"weather: the rows of {path} are not equidistant"
    )
    begin, end = (seconds[0] + day * DAY for day in (first_day, first_day + days))
    held = (seconds[-1] - seconds[0]) / DAY
    require(
        first_day >= 0 and end <= seconds[-1],
        f"weather: {path} has {held:.1f} days, not the days {first_day:g} to {first_day + days:g}",
    )
    wanted = (seconds >= begin - 1e-6) & (seconds <= end + gaps[0])
    _, radiation, warmth, humidity, _, ppm = table[wanted].T
    co2 = ppm * 1e-6 * 101_325 * 44.01e-3 / (GAS_CONSTANT * (warmth + KELVIN))  # of an ideal gas, in kg/m³
    vapour = humidity / 100 * np.asarray(saturation(warmth))
    return Weather(float(gaps[0] / DAY), np.stack([radiation, co2, warmth, vapour], axis=1))


class Lettuce(NamedTuple):
    """Drift, cost and value at the end of the greenhouse, in the units of the state and in days.

    Main arguments:
        weather: outside.
        days: T.
    """

    weather: Weather
    days: float

    def drift(self, x: Array, u: Array) -> Array:
        """dx/dt [6] per day."""
        dry, co2, warmth, vapour = _physical(x)
        supply, vent, heating = u[0], u[1], 100 * u[2]
        radiation, co2_outside, warmth_outside, vapour_outside = self.weather.at(x[5] * self.days)
        canopy = 1 - jnp.exp(-53 * dry)
        respiration = dry * 2 ** (warmth / 10 - 2.5)
        light = 3.55e-9 * radiation
        diffusion = (-5.11e-6 * warmth**2 + 2.3e-4 * warmth - 6.29e-4) * (co2 - 5.2e-5)
        total = light + diffusion
        growth = canopy * light * diffusion / jnp.where(jnp.abs(total) < 1e-12, 1e-12, total)
        exchange = 1e-3 * vent + 7.5e-6
        leaf = 9348 / (8314 * (warmth + KELVIN)) * jnp.exp(17.4 * warmth / (warmth + 239))
        transpired = 0.0036 * canopy * (leaf - vapour)
        per_second = (
            10 * (0.544 * growth - 2.65e-7 * respiration),
            1000 * (-growth + 4.87e-7 * respiration + 1e-6 * supply - exchange * (co2 - co2_outside)) / 4.1,
            0.1 * (heating - (1.29 * vent + 6.1) * (warmth - warmth_outside) + 0.2 * radiation) / 30_000,
            100 * (transpired - exchange * (vapour - vapour_outside)) / 4.1,
        )
        clock = jnp.asarray([2 * math.pi, 1 / self.days])
        return jnp.concatenate([DAY * jnp.stack(per_second), clock.astype(x.dtype)])

    def cost(self, x: Array, u: Array) -> Array:
        """Euros per square metre and day: heating, carbon dioxide, penalties."""
        _, co2, warmth, vapour = _physical(x)
        energy = ENERGY_PRICE * 24 / 1000 * 100 * u[2]
        supplied = CO2_PRICE * 1e-6 * DAY * u[0]
        (low, high), richest, dampest = LIMITS["warmth"], LIMITS["co2"], LIMITS["humidity"]
        beyond = (low - warmth) / 10, (warmth - high) / 10, 1000 * (co2 - richest)
        beyond = (*beyond, 10 * (vapour / saturation(warmth) - dampest))
        return energy + supplied + PENALTY * sum((jnp.maximum(0.0, one) ** 2 for one in beyond), jnp.zeros(()))

    def terminal(self, x: Array) -> Array:
        """The negative value of the crop, in euros per square metre."""
        return -CROP_PRICE * _physical(x)[0]


def _physical(x: Array) -> tuple[Array, Array, Array, Array]:
    """Dry weight, carbon dioxide, temperature and vapour in the units of the equations."""
    return x[0] / 10, x[1] / 1000, 10 * x[2], x[3] / 100

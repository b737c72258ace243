"""`lettuce`: grow a crop in a greenhouse, where weighing it destroys plants, so that a measurement has a price."""

import importlib.util
from pathlib import Path

from purectrl.core.errors import InputError, require
from purectrl.core.prices import Prices
from purectrl.core.settings import check_type
from purectrl.problems.controlled_costs import CostProblem, cost_problem
from purectrl.systems.controlled_costs import ControlledCost
from purectrl.systems.lettuce import Lettuce, Weather, read_weather, synthetic_weather

START = (0.5, 1.0, 1.5, 0.8)
"""Dry weight of 50 g/m², 1 g/m³ of carbon dioxide, 15 °C, 8 g/m³ of vapour, in the units of the state."""
NOISE = (0.01, 0.5, 0.5, 0.5, 0.0, 0.0)
"""Standard deviation of the noise of a measured drift, per day; time is known."""
PACKAGE, FILE = "lettuce_greenhouse_gym", Path("data/outdoorWeatherWurGlas2014.csv")
"""Where measured weather is: Bleiswijk, 10 January to 29 November 2014 (Kempkes, Janse, Hemming, 2014)."""


def lettuce(
    weather: str = "synthetic",
    first_day: float = 30.0,
    days: float = 10.0,
    noise_scale: float = 1.0,
    measurement_price: float = 0.002,
    rollout_price: float = 0.0,
    update_price: float = 0.0,
) -> CostProblem:
    """Grow lettuce in a greenhouse with heating, ventilation and carbon dioxide.

    Main arguments:
        weather: `synthetic` repeats a day that is made up; `measured` is that of Bleiswijk in 2014, which the extra
            `lettuce` installs; otherwise the path of a CSV file with the same columns.
        days: T, the length of an episode.

    Other arguments:
        first_day: where an episode begins in measured weather, in days from its first row on; 30 is 9 February.
        noise_scale: the noise of measured drifts, in units of the default.
        measurement_price: what a measurement costs, in euros per square metre: some plants are destroyed.
        rollout_price: what an episode costs.
        update_price: what a policy update costs.
    """
    check_type("days", days, float)
    check_type("first_day", first_day, float)
    require(0 < days <= 11, f"days: must be above 0 and at most 11, as long as the simulation is stable, not {days:g}")
    system = Lettuce(_weather(weather, first_day, days), days)
    made = ControlledCost(
        "lettuce",
        system.drift,
        system.cost,
        system.terminal,
        start=(*START, 0.0, 0.0),
        horizon=days,
        noise=NOISE,
        control_low=(0.0, 0.0, 0.0),
        control_high=(1.2, 7.5, 1.5),
        angles=(4,),
    )
    return cost_problem(made, noise_scale, Prices(measurement_price, rollout_price, update_price))


def _weather(name: str, first_day: float, days: float) -> Weather:
    if name == "synthetic":
        return synthetic_weather(days)
    if name != "measured":
        return read_weather(Path(name), first_day, days)
    found = importlib.util.find_spec(PACKAGE)  # its data are read, nothing of it is imported
    if found is None or not found.submodule_search_locations:
        raise InputError(
            "weather: measured weather is part of lettuce-greenhouse-gym; "
            "`pip install -c constraints.txt '.[lettuce]'` installs it; or use synthetic, or a file"
        )
    return read_weather(Path(found.submodule_search_locations[0]) / FILE, first_day, days)

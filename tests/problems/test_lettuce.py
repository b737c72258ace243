"""The greenhouse: rates at rest, conservation, weather from a file, prices."""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purectrl as pc
from purectrl.core import InputError, Key
from purectrl.core.plan import Plan
from purectrl.problems.greenhouse import FILE
from purectrl.systems.lettuce import DAY, Lettuce, Weather, read_weather, saturation, synthetic_weather


def greenhouse(radiation=0.0, co2=1e-3, warmth=15.0, vapour=0.008):
    """Constant weather."""
    return Lettuce(Weather(1.0, np.tile([radiation, co2, warmth, vapour], (12, 1))), 10.0)


def state(dry=0.05, co2=1e-3, warmth=15.0, vapour=0.008, t=0.0):
    return jnp.array([10 * dry, 1000 * co2, warmth / 10, 100 * vapour, 0.0, t / 10.0])


REST = jnp.zeros(3)


def test_air_like_that_outside_changes_by_the_crop_alone():
    """In the dark there is respiration at 2.65e-7 · 2^(−1) per second at 15 °C, and no heating."""
    rate = greenhouse().drift(state(), REST)
    assert float(rate[0]) == pytest.approx(-10 * DAY * 2.65e-7 * 0.05 * 0.5, rel=1e-3)
    assert float(rate[1]) == pytest.approx(1000 * DAY * 4.87e-7 * 0.05 * 0.5 / 4.1, rel=1e-3)
    assert float(rate[2]) == pytest.approx(0.0, abs=1e-5)
    assert rate[4:].tolist() == pytest.approx([2 * np.pi, 0.1])


def test_photosynthesis_takes_from_the_air_what_the_crop_gains():
    """dx₁ = 0.544 φ and 4.1 dx₂ = −φ, so that 0.544 · 4.1 dx₂ + dx₁ = 0 but for respiration and leaks."""
    dark, light = (greenhouse(radiation).drift(state(), REST) for radiation in (0.0, 400.0))
    gained, taken = float(light[0] - dark[0]) / 10, float(light[1] - dark[1]) / 1000
    assert gained > 0
    assert gained == pytest.approx(-0.544 * 4.1 * taken, rel=1e-3)


def test_photosynthesis_saturates_in_light_and_carbon_dioxide():
    growth = [float(greenhouse(radiation).drift(state(co2=c), REST)[0]) for radiation, c in ((100, 1e-3), (200, 1e-3))]
    assert growth[0] < growth[1] < 2 * growth[0] + 0.05
    limit = float(greenhouse(1e6).drift(state(), REST)[0])  # the light suffices: φ = c k (x₂ − Γ)
    k = -5.11e-6 * 225 + 2.3e-4 * 15 - 6.29e-4
    expected = 10 * DAY * (0.544 * (1 - np.exp(-2.65)) * k * (1e-3 - 5.2e-5) - 2.65e-7 * 0.05 * 0.5)
    assert limit == pytest.approx(expected, rel=1e-2)


def test_heating_and_windows_balance():
    """At u₃ = (1.29 u₂ + 6.1) · ΔT the temperature stays."""
    rate = greenhouse(warmth=5.0).drift(state(warmth=20.0), jnp.array([0.0, 2.0, (1.29 * 2 + 6.1) * 15 / 100]))
    assert float(rate[2]) == pytest.approx(0.0, abs=1e-4)


def test_vapour_at_the_leaf_over_a_dense_crop_stays():
    leaf = 9348 / (8314 * 288.15) * np.exp(17.4 * 15 / 254)
    found = greenhouse(vapour=leaf).drift(state(dry=1.0, vapour=leaf), REST)
    assert float(found[3]) == pytest.approx(0.0, abs=1e-3)


def test_the_cost_is_that_of_energy_and_carbon_dioxide_within_limits():
    cost = greenhouse().cost(state(), jnp.array([1.0, 0.0, 1.0]))
    assert float(cost) == pytest.approx(0.1281 * 2.4 + 0.1906 * 0.0864, rel=1e-4)
    assert float(greenhouse().cost(state(warmth=35.0, vapour=0.001), REST)) == pytest.approx(0.1)
    assert float(greenhouse().terminal(state(dry=0.1))) == pytest.approx(-2.2285125)


def test_weather_is_linear_between_rows_and_constant_after_the_end():
    rows = np.array([[0.0, 1.0, 2.0, 3.0], [10.0, 1.0, 4.0, 3.0]])
    weather = Weather(0.5, rows)
    assert [float(weather.at(jnp.asarray(t))[0]) for t in (0.0, 0.25, 0.5, 2.0)] == [0.0, 5.0, 10.0, 10.0]


def test_a_weather_file_is_read_from_its_first_day_on(tmp_path):
    """Ten days of hourly rows; the radiation is the number of the row."""
    hours = np.arange(241)
    table = np.stack([hours * 3600.0, hours, 0 * hours + 10, 0 * hours + 50, 0 * hours, 0 * hours + 400], axis=1)
    file = tmp_path / "weather.csv"
    np.savetxt(file, table, delimiter=",")
    weather = read_weather(file, first_day=2.0, days=3.0)
    assert weather.step == pytest.approx(1 / 24)
    radiation, co2, warmth, vapour = (float(one) for one in weather.at(jnp.asarray(1.0)))
    assert (radiation, warmth) == pytest.approx((72.0, 10.0))
    assert co2 == pytest.approx(400e-6 * 101_325 * 44.01e-3 / (8.3144598 * 283.15), rel=1e-5)
    assert vapour == pytest.approx(0.5 * float(saturation(10.0)), rel=1e-5)
    with pytest.raises(InputError, match=r"weather: .* has 10\.0 days, not the days 8 to 11"):
        read_weather(file, 8.0, 3.0)
    file.write_text("0,1\n300,2\n")
    with pytest.raises(InputError, match="expected rows of 6 finite numbers"):
        read_weather(file, 0.0, 1.0)
    file.write_text("a,b\n")
    with pytest.raises(InputError, match="cannot be read as a table of numbers"):
        read_weather(file, 0.0, 1.0)


@pytest.mark.parametrize("kind", ["pipe", "device", "absent"])
def test_a_weather_that_is_not_a_file_is_refused_at_once(tmp_path, kind):
    """The config of somebody else's run names it: a pipe would never end, a device would fill the memory."""
    place = Path("/dev/zero") if kind == "device" else tmp_path / "weather"
    if kind == "pipe":
        os.mkfifo(place)
    with pytest.raises(InputError, match=r"weather: .* cannot be read"):
        read_weather(place, 0.0, 1.0)


def test_rates_and_weather_are_those_of_another_implementation():
    """lettuce-greenhouse-gym, the extra `lettuce`; single precision, differences of terms included."""
    casadi = pytest.importorskip("casadi")
    model = pytest.importorskip("lettuce_greenhouse_gym.model.vanhenten").VanHentenLettuce()
    x, u, v, c = (casadi.SX.sym(name, n) for name, n in (("x", 4), ("u", 3), ("v", 4), ("c", model.constants.size)))
    expected = casadi.Function("f", [x, u, v, c], [model.rhs(x, u, v, c, 0)])
    generator, values = np.random.default_rng(0), model.constants.to_array()
    for _ in range(100):
        x = generator.uniform([0.002, 5e-4, 5.0, 0.003], [0.4, 3e-3, 32.0, 0.025])
        u = generator.uniform(0.0, [1.2, 7.5, 150.0])
        v = generator.uniform([0.0, 5e-4, -5.0, 0.002], [900.0, 9e-4, 25.0, 0.015])
        rate = np.asarray(greenhouse(*v).drift(state(*x), jnp.array(u) / jnp.array([1.0, 1.0, 100.0])))
        found = rate[:4] / DAY / np.array([10, 1000, 0.1, 100])
        np.testing.assert_allclose(found, np.array(expected(x, u, v, values)).ravel(), rtol=1e-4)
    package = pytest.importorskip("lettuce_greenhouse_gym.weather")
    other, ours = package.bleiswijk_2014(), read_weather(Path(package.__file__).parent / FILE, first_day=30.0, days=2.0)
    first = 30 * 288
    np.testing.assert_allclose(ours.rows, other.values[:, first : first + len(ours.rows)].T, rtol=1e-6, atol=1e-6)


def test_synthetic_days_repeat_and_have_nights():
    rows = synthetic_weather(3.0).rows
    assert np.allclose(rows[:48], rows[48:96])
    assert rows[0, 0] == 0.0  # midnight
    assert rows[24, 0] == pytest.approx(300.0)
    assert rows[:, 2].min() == pytest.approx(2.0, abs=0.1)


class Constant:
    """A constant control."""

    def __call__(self, x, t=0.0):
        return jnp.array([0.0, 0.1, 0.5])


def test_an_episode_grows_a_crop_and_measurements_have_a_price():
    problem = pc.problems.lettuce(days=5.0)
    plan = Plan(jax.tree_util.Partial(Constant()), None)
    found = problem.evaluation(plan, Key(0), 1)
    assert found.episodes is not None
    x = found.episodes.x[0]
    assert np.isfinite(x).all()
    assert x[-1, 0] > x[0, 0]  # it grows
    assert x[-1, 5] == pytest.approx(1.0, abs=1e-3)  # time is a state
    assert x[:, 2].min() > 0.0
    assert x[:, 2].max() < 4.0
    assert problem.prices.measurement == 0.002


def test_what_is_missing_or_wrong_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install -c constraints.txt '\.\[lettuce\]'"):
        pc.problems.lettuce(weather="measured")
    with pytest.raises(InputError, match="days: must be above 0 and at most 11"):
        pc.problems.lettuce(days=40.0)

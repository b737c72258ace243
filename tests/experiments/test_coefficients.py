"""The independency coefficient of what experiments measure."""

import dataclasses

import numpy as np
import pytest

from purectrl.core.keys import Key
from purectrl.core.problem import Measuring, Plan
from purectrl.experiments.coefficients import finite_setting, independency_of_finite, ou_grid
from purectrl.experiments.registry import experiment
from purectrl.systems.simulation import simulated


def test_the_setting_is_that_of_the_experiment():
    """Every plan, rolled out with the same key, gives the same measurements bit for bit."""
    chosen = experiment("finite")
    config = dataclasses.replace(chosen.config("pure-low-rollout"), paths=8, steps=8)
    system, policies, initials, *_ = finite_setting(config)
    measuring = Measuring(config.delta_t, config.reward_std, config.drift)
    ours = simulated(system, policies.apply, initials.apply, measuring, config.steps)
    theirs = chosen.build(config).loop.oracle.rollout
    times = np.tile(np.array([0.5, 1.5]), (3, 1))
    for row in range(policies.size * initials.size):
        plan = Plan(*divmod(row, initials.size))
        one, other = (rollout(Key.from_seed(row), plan, times) for rollout in (ours, theirs))
        for name in "xuyr":
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    learner = chosen.build(config).loop.learner
    assert learner.optimist.initials == initials.size
    assert learner.optimist.plan.max() < policies.size * initials.size


def test_the_closed_form_grows_with_m_and_falls_with_the_rate():
    slow, fast = (ou_grid(horizon=2.0, u_min=u_min, most=12) for u_min in (0.5, 2.0))
    assert slow["m"] == list(range(1, 13))
    assert slow["value"] == sorted(slow["value"])
    assert np.all(np.array(fast["value"]) <= np.array(slow["value"]))
    assert slow["bound"] == [1 + m / 2 for m in slow["m"]]


@pytest.mark.slow
def test_clustered_measurements_are_further_from_independent_than_spread_ones():
    counts = {"pasts": 8, "futures": 64, "pool": 512}
    common = {"measurements": 64, "paths": 8, "steps": 40}
    single = independency_of_finite({"sampler": "uniform", "m": 1, **common}, **counts)
    spread = independency_of_finite({"sampler": "equidistant", "m": 4, **common}, **counts)
    window = {"sampler": "windows", "windows": 1, "window_length": 0.04, "window_step": 0.01}
    clustered = independency_of_finite(window | common, **counts)
    assert (single["m"], spread["m"], clustered["m"]) == (1, 4, 4)
    assert single["drift"] < 1 + 4 * single["drift_error"] + 0.1  # one uniform time is what C compares with
    assert single["drift"] < spread["drift"] < clustered["drift"]
    assert clustered["drift"] <= clustered["value"]

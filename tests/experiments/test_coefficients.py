"""The independency coefficient of what experiments measure."""

import numpy as np
import pytest

from purectrl.experiments.coefficients import independency_of, ou_grid


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
    single = independency_of("finite", {"sampler": "uniform", "m": 1, **common}, **counts)
    spread = independency_of("finite", {"sampler": "equidistant", "m": 4, **common}, **counts)
    window = {"sampler": "windows", "windows": 1, "window_length": 0.04, "window_step": 0.01}
    clustered = independency_of("finite", window | common, **counts)
    assert (single["m"], spread["m"], clustered["m"]) == (1, 4, 4)
    assert single["drift"] < 1 + 4 * single["drift_error"] + 0.1  # one uniform time is what C compares with
    assert single["drift"] < spread["drift"] < clustered["drift"]
    assert clustered["drift"] <= clustered["value"]

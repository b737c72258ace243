"""The floor of comparisons: control within its limits that does not depend on the data."""

import numpy as np
import pytest

import purectrl as pc
from purectrl.control.random_control import RandomControl
from purectrl.core import Budget, InputError, Key, Targets
from purectrl.core.samplers import Uniform


def test_the_control_is_random_within_its_limits_and_ignores_state_and_data():
    problem = pc.problems.ocorl_quadrotor()
    learner = RandomControl().build(problem, Budget(100), Uniform(10))
    times = np.linspace(0.0, problem.horizon, 500)
    paths = [
        problem.controller(learner.policy(learner.init(Key(seed))))(np.zeros((500, 6)), times) for seed in range(20)
    ]
    assert np.abs(paths).max() < 1.0
    assert 0.5 < np.std(paths) < 0.75  # of tanh of a standard normal number: 0.63
    assert np.abs(np.diff(paths, axis=1)).max() < 0.15  # smooth
    same = problem.controller(learner.policy(learner.init(Key(0))))(np.ones((500, 6)), times)
    assert np.array_equal(same, paths[0])
    other = learner.update(learner.init(Key(0)), None, Targets.BOTH, Key(1)).state
    assert not np.array_equal(other, learner.init(Key(0)))


def test_random_control_is_a_floor():
    problem = pc.problems.ocorl_pendulum()
    result = pc.run(problem, "random", measurements=30)
    assert result.metrics["cost"] > 50.0
    assert result.metrics["utility"] == result.metrics["return"]


def test_wrong_settings_are_named():
    with pytest.raises(InputError, match=r"size: must be positive, not 0\.0"):
        RandomControl(size=0.0)

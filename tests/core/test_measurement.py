"""The data set is a value whose appending costs the same at any size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from purectrl.core import Dataset, MeasurementError, Measurements


def block(episodes, value, m=2):
    shape = (episodes, m)
    return Measurements(
        np.zeros(shape),
        np.full((*shape, 3), value),
        np.full((*shape, 1), value),
        np.zeros((*shape, 3)),
        np.zeros(shape),
    )


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4)), min_size=1, max_size=40))
def test_appending_is_a_value_operation_even_when_histories_branch(moves):
    """Each move appends to any earlier data set; every one of them must keep its own content."""
    sets, contents = [Dataset()], [[]]
    for number, (parent, episodes) in enumerate(moves):
        parent %= len(sets)
        sets.append(sets[parent].append(block(episodes, number)))
        contents.append(contents[parent] + [number] * episodes)
    for data, content in zip(sets[1:], contents[1:], strict=True):
        assert data.view.x[:, 0, 0].tolist() == content


def test_appending_copies_a_logarithmic_number_of_times():
    data, buffers = Dataset(), []
    for _ in range(1000):
        data = data.append(block(1, 0.0))
        if not buffers or buffers[-1] is not data._buffer:
            buffers.append(data._buffer)
    assert len(buffers) <= 11


def test_measurements_are_read_only():
    data = Dataset().append(block(1, 0.0)).append(block(1, 0.0))
    for found in (block(1, 0.0), data.view):
        with pytest.raises(ValueError, match="read-only"):
            found.x[0, 0, 0] = 1.0


def test_rows_are_the_same_measurements_one_an_episode():
    rows = block(3, 7.0).rows()
    assert (rows.episodes, rows.m) == (6, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"t": np.zeros(3)}, r"t has shape \(3,\), expected \[episodes, m\]"),
        ({"x": np.zeros((1, 3, 2))}, r"x has shape \(1, 3, 2\), expected \(1, 2\) and at least one more axis"),
        ({"u": np.zeros((1, 2))}, r"u has shape \(1, 2\), expected \(1, 2\) and at least one more axis"),
        ({"y": np.zeros((1, 2, 4))}, r"y has shape \(1, 2, 4\), expected \(1, 2, 3\), one drift for each state"),
        ({"r": np.zeros((1, 2, 768))}, r"r has shape \(1, 2, 768\), expected \(1, 2\), one reward for each time"),
    ],
)
def test_wrong_shapes_are_named(change, message):
    good = {"t": np.zeros((1, 2)), "x": np.zeros((1, 2, 3)), "u": np.zeros((1, 2, 1))}
    with pytest.raises(MeasurementError, match=message):
        Measurements(**{**good, **change})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["x", "u", "y", "r"])
def test_numbers_that_are_not_finite_are_named_with_their_time(name, bad):
    arrays = {field: getattr(block(2, 0.0), field).copy() for field in ("t", "x", "u", "y", "r")}
    arrays["t"][1, 1] = 0.75
    arrays[name][(1, 1) if name == "r" else (1, 1, 0)] = bad
    with pytest.raises(MeasurementError, match=f"{name} is not finite in episode 1 of this block at time t = 0.75"):
        Measurements(**arrays).check()


def test_a_reward_outside_its_range_is_named():
    arrays = {field: getattr(block(1, 0.0), field).copy() for field in ("t", "x", "u", "y", "r")}
    arrays["r"][0, 0] = 1.5
    with pytest.raises(MeasurementError, match=r"r = 1.5 is outside the declared range \[0, 1\]"):
        Measurements(**arrays).check((0.0, 1.0))


def test_a_block_that_does_not_fit_the_earlier_ones_is_refused():
    data = Dataset().append(block(1, 0.0))
    with pytest.raises(
        MeasurementError, match=r"t is float64\[3\] in each episode, in the earlier episodes float64\[2\]"
    ):
        data.append(block(1, 0.0, m=3))
    bare = Measurements(np.zeros((1, 2)), np.zeros((1, 2, 3)), np.zeros((1, 2, 1)))
    with pytest.raises(MeasurementError, match="y is nothing in each episode"):
        data.append(bare)


def test_integers_become_floats_and_other_kinds_are_refused():
    counts = Measurements(
        np.zeros((1, 1)), np.ones((1, 1, 1), int), np.ones((1, 1, 1), bool), None, np.ones((1, 1), int)
    )
    fractions = Measurements(np.zeros((1, 1)), np.ones((1, 1, 1)), np.ones((1, 1, 1)), None, np.full((1, 1), 0.7))
    assert Dataset().append(counts).append(fractions).view.r.tolist() == [[1.0], [0.7]]
    halves = Measurements(np.zeros((1, 1)), np.ones((1, 1, 1), np.float16), np.ones((1, 1, 1)), None, np.ones((1, 1)))
    with pytest.raises(
        MeasurementError, match=r"x is float16\[1, 1\] in each episode, in the earlier episodes float64\[1, 1\]"
    ):
        Dataset().append(counts).append(halves)


def test_a_data_set_does_not_alias_the_arrays_it_was_given():
    x = np.zeros((1, 1, 1))
    data = Dataset().append(Measurements(np.zeros((1, 1)), x, np.zeros((1, 1, 1))))
    x[:] = 5.0
    assert data.view.x.item() == 0.0


def test_an_empty_data_set_says_so():
    with pytest.raises(MeasurementError, match="no episode has been measured yet"):
        _ = Dataset().view

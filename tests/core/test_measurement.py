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
        assert data.all.x[:, 0, 0].tolist() == content


def test_appending_copies_a_logarithmic_number_of_times():
    data, buffers = Dataset(), []
    for _ in range(1000):
        data = data.append(block(1, 0.0))
        if not buffers or buffers[-1] is not data._buffer:
            buffers.append(data._buffer)
    assert len(buffers) <= 11


def test_measurements_are_read_only():
    data = Dataset().append(block(1, 0.0)).append(block(1, 0.0))
    for found in (block(1, 0.0), data.all):
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
    assert Dataset().append(counts).append(fractions).all.r.tolist() == [[1.0], [0.7]]
    halves = Measurements(np.zeros((1, 1)), np.ones((1, 1, 1), np.float16), np.ones((1, 1, 1)), None, np.ones((1, 1)))
    with pytest.raises(
        MeasurementError, match=r"x is float16\[1, 1\] in each episode, in the earlier episodes float64\[1, 1\]"
    ):
        Dataset().append(counts).append(halves)


def test_a_data_set_does_not_alias_the_arrays_it_was_given():
    x = np.zeros((1, 1, 1))
    data = Dataset().append(Measurements(np.zeros((1, 1)), x, np.zeros((1, 1, 1))))
    x[:] = 5.0
    assert data.all.x.item() == 0.0


def test_an_empty_data_set_says_so():
    with pytest.raises(MeasurementError, match="no episode has been measured yet"):
        _ = Dataset().all


def ragged(counts, m=3, start=0.0):
    """Episodes with different numbers of measurements; what follows them is NaN."""
    t = np.tile(np.arange(m) * 0.1, (len(counts), 1))
    x = (start + np.arange(len(counts) * m, dtype=float)).reshape(-1, m, 1)
    valid = np.arange(m) < np.array(counts)[:, None]
    x = np.where(valid[..., None], x, np.nan)
    final = np.where(np.array(counts)[:, None] < m, 7.0, np.nan)
    return Measurements(t, x, 0 * x, r=x[..., 0], count=np.array(counts), final=final)


def test_episodes_of_different_length_are_counted_checked_and_kept_apart():
    block = ragged([3, 1, 2])
    assert (block.total, block.terminated.tolist()) == (6, [False, True, True])
    block.check()
    assert block.rows().x[:, 0, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 6.0, 7.0]
    assert (block.first(2).total, block.after(2).total) == (4, 2)
    data = Dataset().append(block).append(ragged([1, 3], start=20.0))
    assert data.all.total == 10
    assert data.all.count.tolist() == [3, 1, 2, 1, 3]
    with pytest.raises(MeasurementError, match=r"x is not finite in episode 1 of this block at time t = 0\.1"):
        Measurements(block.t, block.x, block.u, count=np.array([3, 2, 2])).check()


def test_counts_and_final_states_are_checked():
    block = ragged([3, 1])
    for count, message in (
        (np.array([3, 4]), r"count must be between 0 and m = 3, got \[3, 4\]"),
        (np.array([3]), r"count is int64 \[1\], expected one integer per episode, \[2\]"),
        (np.array([3.0, 1.0]), r"count is float64 \[2\], expected one integer per episode"),
    ):
        with pytest.raises(MeasurementError, match=message):
            Measurements(block.t, block.x, block.u, count=count)
    with pytest.raises(MeasurementError, match=r"final has shape \(2, 2\), expected \(2, 1\), one state per episode"):
        Measurements(block.t, block.x, block.u, final=np.zeros((2, 2)))


def test_times_measured_twice_are_merged():
    t = np.array([[0.0, 0.1, 0.1, 0.2], [0.0, 0.1, 0.2, 0.3]])
    x = np.arange(8.0).reshape(2, 4, 1)
    merged = Measurements(t, x, x, r=x[..., 0]).distinct()
    assert merged.count.tolist() == [3, 4]
    assert merged.x[merged.valid][:, 0].tolist() == [0.0, 1.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    once = Measurements(t[1:], x[1:], x[1:])
    assert once.distinct() is once


def test_measurements_that_show_nothing_new():
    x = np.array([[[0.0], [1.0], [1.0], [1.0]]])
    block = Measurements(np.arange(4.0)[None], x, x, count=np.array([3]))
    assert block.repeated.tolist() == [[False, False, True, False]]

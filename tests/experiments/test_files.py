"""Files are whole or absent, and know when they were changed."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from purectrl.core import StoreError
from purectrl.experiments.files import read_json, read_sealed, to_json, write_atomically, write_sealed

ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "flag": np.array(True), "none": np.zeros((0, 4), np.float32)}
CONTENT = {"steps": 3, "low": float("-inf"), "tenth": 0.1, "name": "λ"}


def test_what_is_sealed_comes_back_bit_for_bit(tmp_path):
    write_sealed(tmp_path / "x", ARRAYS, CONTENT)
    arrays, content = read_sealed(tmp_path / "x")
    assert content == CONTENT
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert np.array_equal(arrays[name], array)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    path = tmp_path_factory.mktemp("sealed") / "x.safetensors"
    write_sealed(path, ARRAYS, CONTENT)
    return path, path.read_bytes()


@settings(max_examples=300)
@given(data=st.data())
def test_one_flipped_bit_is_always_noticed(sealed, data):
    path, whole = sealed
    position = data.draw(st.integers(0, len(whole) - 1))
    bit = data.draw(st.integers(0, 7))
    broken = bytearray(whole)
    broken[position] ^= 1 << bit
    path.with_name("flipped").write_bytes(broken)
    try:
        arrays, content = read_sealed(path.with_name("flipped"))
    except StoreError:
        return
    # a bit of padding may be free; the content may not
    assert content == CONTENT
    assert all(np.array_equal(arrays[name], array) for name, array in ARRAYS.items())


@given(data=st.data())
def test_a_file_cut_short_is_always_noticed(sealed, data):
    path, whole = sealed
    path.with_name("cut").write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(StoreError, match="cut is damaged"):
        read_sealed(path.with_name("cut"))


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "config.json"
    write_atomically(path, b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.json"]


def test_json_is_strict():
    text = to_json({"nan": float("nan"), "deep": [{"inf": float("inf")}], "fine": 0.1})
    assert json.loads(text, parse_constant=pytest.fail) == {"nan": None, "deep": [{"inf": None}], "fine": 0.1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not JSON: .* in line 1, column 2"),
        (b"\xff\xfe", "cannot be read"),
        (None, "does not exist"),
    ],
)
def test_unreadable_json_is_named(tmp_path, content, message):
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StoreError, match=message):
        read_json(path)

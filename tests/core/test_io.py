"""Files are complete or absent, and changes are detected."""

import errno
import json
import os
import socket
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from purectrl.core import StoreError
from purectrl.core.io import (
    check_links,
    lock_directory,
    open_file,
    read_bytes,
    read_checksummed,
    read_json,
    remove_temporary,
    subdirectory,
    to_json,
    write_atomically,
    write_checksummed,
    write_files,
    write_json,
)

ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "flag": np.array(True), "none": np.zeros((0, 4), np.float32)}
CONTENT = {"steps": 3, "low": float("-inf"), "tenth": 0.1, "name": "λ"}


def test_what_is_written_is_read_bit_for_bit(tmp_path):
    write_checksummed(tmp_path / "x", ARRAYS, CONTENT)
    arrays, content = read_checksummed(tmp_path / "x")
    assert content == CONTENT
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert np.array_equal(arrays[name], array)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("written") / "x.safetensors"
    write_checksummed(path, ARRAYS, CONTENT)
    return path, path.read_bytes()


@settings(max_examples=300)
@given(data=st.data())
def test_one_flipped_bit_is_always_noticed(written, data):
    path, whole = written
    position = data.draw(st.integers(0, len(whole) - 1))
    bit = data.draw(st.integers(0, 7))
    broken = bytearray(whole)
    broken[position] ^= 1 << bit
    path.with_name("flipped").write_bytes(broken)
    try:
        arrays, content = read_checksummed(path.with_name("flipped"))
    except StoreError:
        return
    # a bit of padding may be free; the content may not
    assert content == CONTENT
    assert all(np.array_equal(arrays[name], array) for name, array in ARRAYS.items())


@given(data=st.data())
def test_a_file_cut_short_is_always_noticed(written, data):
    path, whole = written
    path.with_name("cut").write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(StoreError, match="cut is damaged"):
        read_checksummed(path.with_name("cut"))


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


def test_two_writers_of_one_file_never_tear_it(tmp_path):
    """Temporary names are unique, so that one writer never renames or removes the file of another."""
    path, errors = tmp_path / "report.html", []

    def write(content):
        try:
            for _ in range(100):
                write_atomically(path, content)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(letter * 10_000,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert path.read_bytes() in (b"a" * 10_000, b"b" * 10_000, b"c" * 10_000)
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


@pytest.fixture
def victim(tmp_path):
    """A file of the user outside the run directory, and the run directory."""
    (tmp_path / "run").mkdir()
    path = tmp_path / "precious"
    path.write_text("precious")
    yield path, tmp_path / "run"
    assert path.read_text() == "precious"


def make_fifo(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))  # the path of a socket has at most a hundred bytes


SPECIAL = {
    "link": (lambda path: path.symlink_to("../precious"), "is a symbolic link"),
    "broken link": (lambda path: path.symlink_to("nowhere"), "is a symbolic link"),
    "pipe": (make_fifo, "is a pipe"),
    "socket": (make_socket, "is a socket or device"),
    "directory": (lambda path: path.mkdir(), "is a directory"),
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_not_a_regular_file_is_neither_read_nor_written(victim, kind):
    _, run = victim
    make, words = SPECIAL[kind]
    make(run / "x")
    for use in (
        lambda path: open_file(path),
        lambda path: open_file(path, "append"),
        lambda path: read_bytes(path, 100),
        lambda path: read_json(path),
        lambda path: read_checksummed(path),
    ):
        with pytest.raises(StoreError, match=words):
            use(run / "x")


def test_a_device_is_refused_without_reading_it():
    with pytest.raises(StoreError, match="is a socket or device"):
        read_json(Path("/dev/zero"))
    with pytest.raises(StoreError, match="is a socket or device"):
        read_json(Path("/dev/zero"), follow=True)


def test_a_link_that_the_user_typed_is_followed(tmp_path):
    write_atomically(tmp_path / "x.json", b"[1]")
    (tmp_path / "link").symlink_to("x.json")
    assert read_json(tmp_path / "link", follow=True) == [1]


def test_writing_replaces_a_link_and_does_not_follow_it(victim):
    _, run = victim
    (run / "x.json").symlink_to("../precious")
    write_atomically(run / "x.json", b"new")
    assert not (run / "x.json").is_symlink()
    write_files(run, lambda folder: (folder / "x.json").write_text("newer"))
    assert (run / "x.json").read_text() == "newer"
    assert [entry.name for entry in run.iterdir()] == ["x.json"]


def test_files_of_a_library_replace_links(victim):
    _, run = victim
    (run / "config.json").symlink_to("../precious")
    write_files(run, lambda folder: (folder / "config.json").write_text("of the library"))
    assert (run / "config.json").read_text() == "of the library"


def test_nothing_is_left_of_a_lock_that_cannot_be_written(tmp_path, monkeypatch):
    def fail():
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("socket.gethostname", fail)
    with pytest.raises(OSError, match="No space left"):
        lock_directory(tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    lock_directory(tmp_path).close()  # the directory is not locked any more


def test_a_lock_that_is_a_link_is_not_written(victim):
    _, run = victim
    (run / ".lock").symlink_to("../precious")
    with pytest.raises(StoreError, match=r"\.lock is a symbolic link"):
        lock_directory(run)


def test_a_hard_link_to_another_file_is_not_appended_to(victim):
    path, run = victim
    os.link(path, run / ".lock")
    with pytest.raises(StoreError, match="is also another file"):
        lock_directory(run)


def test_a_folder_that_is_a_link_is_refused(victim):
    _, run = victim
    (run / "media").symlink_to("..")
    for create in (False, True):
        with pytest.raises(StoreError, match="media is a symbolic link; expected a directory"):
            subdirectory(run, "media", create)


def test_temporary_files_are_removed_but_not_what_they_point_to(victim):
    path, run = victim
    (path.parent / "other").mkdir()
    (path.parent / "other" / "mine").touch()
    (run / ".a.part").symlink_to("../precious")
    (run / ".b.part").symlink_to("../other")
    (run / ".c.part").mkdir()
    (run / ".c.part" / "link").symlink_to("../../other")
    remove_temporary(run)
    assert list(run.iterdir()) == []
    assert (path.parent / "other" / "mine").exists()


def test_links_of_a_tracker_must_stay_in_the_run_directory(victim):
    _, run = victim
    (run / "wandb" / "run-1").mkdir(parents=True)
    (run / "wandb" / "latest-run").symlink_to("run-1")
    assert check_links(run, "wandb") == run / "wandb"
    (run / "wandb" / "run-1" / "core.log").symlink_to("../../../precious")  # W&B's own, which nothing follows
    assert check_links(run, "wandb") == run / "wandb"
    (run / "wandb" / "run-2").symlink_to("../..")
    with pytest.raises(StoreError, match=r"run-2 is a symbolic link that leads out of"):
        check_links(run, "wandb")


def test_sizes_are_checked_before_anything_is_read(tmp_path):
    for name, read in (("x.json", read_json), ("x.safetensors", read_checksummed)):
        with open(tmp_path / name, "wb") as file:
            file.truncate(2**42)  # no disk space is used
        with pytest.raises(StoreError, match="bytes"):
            read(tmp_path / name)


def test_a_header_with_200_000_tensors_is_refused_at_once(tmp_path):
    names = {f"a{number}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for number in range(200_000)}
    header = json.dumps(names).encode()
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(StoreError, match="its header has"):
        read_checksummed(tmp_path / "x")


@pytest.mark.parametrize(("dtype", "size"), [("BF16", 2), ("F8_E4M3", 1), ("F4", 1), ("X", 1)])
def test_types_that_numpy_lacks_are_refused(tmp_path, dtype, size):
    entry = {"dtype": dtype, "shape": [1], "data_offsets": [0, size]}
    header = json.dumps({"__metadata__": {"content": "{}", "digest": ""}, "a": entry}).encode()
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header + bytes(size))
    with pytest.raises(StoreError, match="is damaged"):
        read_checksummed(tmp_path / "x")


@pytest.mark.parametrize("content", ["[1]", "1", '{"a": ' * 200 + "1" + "}" * 200, "[" * 10**5])
def test_content_that_is_no_object_or_too_deep_is_refused(tmp_path, content, monkeypatch):
    monkeypatch.setattr("json.dumps", lambda *_, **__: content)
    write_checksummed(tmp_path / "x", ARRAYS, {})
    monkeypatch.undo()
    with pytest.raises(StoreError, match="x"):
        read_checksummed(tmp_path / "x")


def test_bytes_that_are_not_utf8_survive_as_json(tmp_path):
    write_json(tmp_path / "x.json", {"name": "run\udcff", "half": "\ud800"})
    assert read_json(tmp_path / "x.json") == {"name": "run\udcff", "half": "\ud800"}

"""Files: written atomically, checked when read, locked by one process. Arrays as safetensors, everything else as JSON.

A file is written under a unique temporary name, flushed, and renamed: it is complete or absent. Nothing is pickled: loading
a file never runs code.

A run directory may come from somebody else. Its files and folders are therefore opened without following symbolic links,
pipes, sockets and devices are refused, and everything that is read has a largest size. The run directory itself may be
reached through links, because its path comes from the user.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import secrets
import shutil
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from purectrl.core.errors import StoreError

TEMPORARY = ".*.part"
"""Pattern of temporary names; a killed process leaves at most one such file or folder."""
MAX_JSON = 16 * 2**20
"""Largest size of a JSON file in bytes."""
MAX_LINES = 2**30
"""Largest size of a file of JSON lines in bytes: 250 bytes for each of four million records."""
MAX_HEADER = 4 * 2**20
"""Largest size of a safetensors header in bytes; more than ten thousand tensors have room in it."""
MAX_DEPTH = 100
"""Largest nesting of a JSON value."""


def exists(path: Path) -> bool:
    """Whether there is anything at `path`: a file, or a link, even a broken one."""
    return os.path.lexists(path)


def open_file(path: Path, mode: Literal["read", "append"] = "read", follow: bool = False) -> BinaryIO:
    """Opens a regular file; raises `StoreError` for a link, folder, pipe, socket or device.

    Main arguments:
        mode: "append" creates the file if it does not exist; it can be read and truncated, too.
        follow: whether `path` may be a symbolic link: only for paths that the user typed.
    """
    flags = os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    flags |= os.O_RDONLY if mode == "read" else os.O_RDWR | os.O_APPEND | os.O_CREAT
    try:
        with contextlib.suppress(FileNotFoundError):
            _check_regular(path, path.stat(follow_symlinks=follow))  # before it is opened, which a device notices
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):  # it has changed in the meantime
            raise StoreError(f"{path} is not a regular file") from None
        raise
    try:
        found = os.fstat(descriptor)
        _check_regular(path, found)
        if mode == "append" and found.st_nlink > 1:
            raise StoreError(f"{path} is also another file (a hard link), which would change with it; copy it first")
        return os.fdopen(descriptor, "rb" if mode == "read" else "a+b")
    except BaseException:
        os.close(descriptor)
        raise


def _check_regular(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path} is {_kind(found)}; expected a regular file")


def _kind(found: os.stat_result) -> str:
    kinds = {
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFDIR: "a directory",
        stat.S_IFREG: "a file",
        stat.S_IFIFO: "a pipe",
    }
    return kinds.get(stat.S_IFMT(found.st_mode), "a socket or device")


def read_bytes(path: Path, limit: int, follow: bool = False) -> bytes:
    """The content of a regular file; raises `StoreError` if it has more than `limit` bytes."""
    with open_file(path, follow=follow) as file:
        _check_size(path, os.fstat(file.fileno()).st_size, limit)
        content = file.read(limit + 1)
    _check_size(path, len(content), limit)
    return content


def _check_size(path: Path, size: int, limit: int) -> None:
    if size > limit:
        raise StoreError(f"{path} has {size:,} bytes; at most {limit:,} are read")


def subdirectory(parent: Path, name: str, create: bool = False) -> Path:
    """The folder `name` in `parent`, which need not exist unless `create`; raises `StoreError` if it is a link or a file."""
    path = parent / name
    if create:
        with contextlib.suppress(FileExistsError):
            path.mkdir()
    with contextlib.suppress(FileNotFoundError):
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode):
            raise StoreError(f"{path} is {_kind(found)}; expected a directory")
    return path


def check_below(root: Path, path: Path) -> None:
    """Raises `StoreError` if `path`, or a folder between it and `root`, is a link or a file; none of them need exist."""
    for name in path.relative_to(root).parts:
        root = subdirectory(root, name)


def check_links(root: Path, name: str) -> Path:
    """The folder `name` in `root`, for a library that opens files in it itself; raises if one of its entries, in which the
    library might write, leads out of `root` or is a pipe, socket or device."""
    folder, inside = subdirectory(root, name), root.resolve()
    with contextlib.suppress(FileNotFoundError):
        for entry in map(Path, sorted(os.scandir(folder), key=lambda entry: entry.name)):
            found = os.lstat(entry)
            if stat.S_ISLNK(found.st_mode) and not entry.resolve().is_relative_to(inside):
                raise StoreError(f"{entry} is a symbolic link that leads out of {root}; remove it")
            if stat.S_IFMT(found.st_mode) not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                raise StoreError(f"{entry} is {_kind(found)}; remove it")
    return folder


def remove_temporary(folder: Path) -> None:
    """Removes what a killed process has left in `folder` under temporary names; links are removed, not followed."""
    for entry in folder.glob(TEMPORARY):
        if stat.S_ISDIR(os.lstat(entry).st_mode):
            shutil.rmtree(entry)
        else:
            entry.unlink()


def temporary_name(path: Path) -> Path:
    """A temporary name beside `path` that no other writer uses."""
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.part")


def write_atomically(path: Path, content: bytes) -> None:
    """Writes `content` to `path`: all of it or, if anything fails, nothing. A link at `path` is replaced, not followed."""
    temporary = temporary_name(path)
    try:
        with open(temporary, "xb") as file:  # exclusive: never a file or link that is there already
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_files(folder: Path, save: Callable[[Path], object]) -> None:
    """Writes the files that `save(directory)` writes, with a library that opens them itself, into `folder`.

    They are written into a new directory and then moved, so that nothing in `folder` is followed or truncated.
    """
    temporary = temporary_name(folder / "files")
    temporary.mkdir()
    try:
        save(temporary)
        for file in sorted(temporary.iterdir()):
            _replace(file, folder / file.name)
    finally:
        shutil.rmtree(temporary)
    sync_directory(folder)


def _replace(source: Path, target: Path) -> None:
    try:
        source.replace(target)
    except IsADirectoryError:
        raise StoreError(f"{target} is a directory; expected a file") from None


def sync_directory(path: Path) -> None:
    """Makes renames and removals in `path` survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def to_json(value: Any, indent: int | None = 2) -> str:
    """`value` as strict JSON; NaN and infinities become null.

    >>> to_json({"a": float("nan"), "b": [1, 2.5]}, indent=None)
    '{"a": null, "b": [1, 2.5]}'
    """
    try:
        return json.dumps(value, indent=indent, allow_nan=False, ensure_ascii=False, default=_plain)
    except ValueError:
        return json.dumps(_finite(value), indent=indent, allow_nan=False, ensure_ascii=False)


def encode(text: str) -> bytes:
    r"""JSON text as UTF-8. Bytes of a file name that are not UTF-8 are written as escapes, which JSON has, too.

    >>> encode('"\udcff"')
    b'"\\udcff"'
    """
    return text.encode(errors="backslashreplace")


def _plain(value: Any) -> Any:
    """A NumPy or JAX scalar or array as a number or list."""
    if not hasattr(value, "tolist"):
        raise TypeError(f"a {type(value).__name__} cannot be written as JSON")
    return value.tolist()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return _finite(value.tolist()) if hasattr(value, "tolist") else value


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as an indented JSON file."""
    write_atomically(path, encode(to_json(value) + "\n"))


def with_checksum(value: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with a checksum of its values under the name "checksum".

    >>> without_checksum(with_checksum({"a": 1.5}), "x")
    {'a': 1.5}
    """
    plain = json.loads(to_json(value))
    return plain | {"checksum": _value_digest(plain)}


def without_checksum(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What `with_checksum` was given; raises `StoreError` with the `name` of the file if a value has changed.

    Files of earlier versions have no checksum: they are taken as they are.
    """
    plain = {key: item for key, item in value.items() if key != "checksum"}
    if "checksum" in value and value["checksum"] != _value_digest(plain):
        raise StoreError(f"{name} is damaged: its content does not match its checksum")
    return plain


def _value_digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def file_digest(path: Path) -> str:
    """The checksum of a regular file, which is read block by block."""
    digest = hashlib.blake2b(digest_size=16)
    with open_file(path) as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def read_json(path: Path, follow: bool = False) -> Any:
    """Reads a JSON file; raises `StoreError` with the reason if that fails. `follow` is as in `open_file`."""
    try:
        text = read_bytes(path, MAX_JSON, follow).decode()
    except FileNotFoundError:
        raise StoreError(f"{path} does not exist") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise StoreError(f"{path} cannot be read: {error}") from None
    return parse_json(text, str(path))


def parse_json(text: str | bytes, name: str) -> Any:
    """The value of a JSON text; raises `StoreError` with its `name` if it is not JSON, or nested too deeply."""
    try:
        text = text if isinstance(text, str) else text.decode()
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise StoreError(f"{name} is not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # not UTF-8, a number of thousands of digits, brackets a thousand deep
        raise StoreError(f"{name} is not JSON: {error}") from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise StoreError(f"{name} is not JSON of this package: it is nested more than {MAX_DEPTH} deep")
    return value


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [item for outer in level for item in (outer.values() if isinstance(outer, dict) else outer)]
    return depth


def write_checksummed(path: Path, arrays: Mapping[str, np.ndarray], content: Any) -> str:
    """Writes arrays and JSON `content` into one safetensors file with a checksum, and returns the checksum."""
    import safetensors.numpy

    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps(content, sort_keys=True)
    metadata = {"content": text, "digest": _digest(arrays, text)}
    data = safetensors.numpy.save(arrays, metadata)
    _check_header(path, data)
    write_atomically(path, data)
    return metadata["digest"]


def read_checksummed(path: Path, digest: str | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Reads what `write_checksummed` wrote; raises `StoreError` if a single bit has changed, or if its checksum is not
    `digest`."""
    with open_tensors(path) as (file, metadata):
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    text = metadata.get("content", "")
    if metadata.get("digest") != _digest(arrays, text):
        raise StoreError(f"{path} is damaged: its content does not match its checksum")
    if digest is not None and metadata["digest"] != digest:
        raise StoreError(f"{path} is not the file that was expected")
    content = parse_json(text, f"the content of {path}")
    if not isinstance(content, dict):
        raise StoreError(f"{path} is damaged: its content is not an object")
    return arrays, content


@contextlib.contextmanager
def open_tensors(path: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    """A safetensors file, whose checksum is not verified, and its metadata; tensors are loaded on request."""
    import safetensors

    try:
        with open_file(path) as start:
            size = os.fstat(start.fileno()).st_size
            if size > (memory := os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")):
                raise StoreError(f"{path} has {size:,} bytes, this machine has a memory of {memory:,}")
            _check_header(path, start.read(8))
        with safetensors.safe_open(path, framework="numpy") as file:
            yield file, file.metadata() or {}
    except FileNotFoundError:
        raise StoreError(f"{path} does not exist") from None
    except (OSError, TypeError, ValueError, AttributeError, safetensors.SafetensorError) as error:
        raise StoreError(f"{path} is damaged: {error}") from None


def _check_header(path: Path, data: bytes) -> None:
    """Raises if the header of a safetensors file is too large: parsing 200,000 names would take half a minute."""
    length = int.from_bytes(data[:8], "little")
    if length > MAX_HEADER:
        raise StoreError(f"{path} is damaged: its header has {length:,} bytes, expected at most {MAX_HEADER:,}")


def _digest(arrays: Mapping[str, np.ndarray], text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def lock_directory(path: Path) -> BinaryIO:
    """Locks a directory for this process; the lock ends with the process or with `close` on the returned file."""
    file = open_file(path / ".lock", "append")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read(200).decode(errors="replace").strip() or "another process"
        file.close()
        raise StoreError(f"{path} is being written by {holder}; wait for it or stop it first") from None
    empty = os.fstat(file.fileno()).st_size == 0
    try:
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
        file.flush()
    except BaseException:
        if empty:  # nothing is left of a lock that could not be written
            (path / ".lock").unlink()
        with contextlib.suppress(OSError):  # closing a file on a full disk fails again; the first failure is reported
            file.close()
        raise
    return file

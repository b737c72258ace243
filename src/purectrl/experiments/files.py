"""Files that are whole or absent: written under a temporary name, flushed, renamed. Arrays as safetensors, the rest as JSON.

No pickle anywhere: loading a file never runs code.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from purectrl.core.errors import StoreError

TEMPORARY = ".*.part"
"""What unfinished files are called; a kill leaves one behind at most."""


def write_atomically(path: Path, content: bytes) -> None:
    """Puts `content` at `path`: either all of it or, if anything goes wrong, what was there before."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes renames and removals in `path` survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def to_json(value: Any, indent: int | None = 2) -> str:
    """`value` as strict JSON; numbers that JSON does not know (NaN, infinities) become null.

    >>> to_json({"a": float("nan"), "b": [1, 2.5]}, indent=None)
    '{"a": null, "b": [1, 2.5]}'
    """
    try:
        return json.dumps(value, indent=indent, allow_nan=False, ensure_ascii=False, default=_plain)
    except ValueError:
        return json.dumps(_finite(value), indent=indent, allow_nan=False, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """A NumPy or JAX scalar or array as what JSON knows."""
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
    write_atomically(path, (to_json(value) + "\n").encode())


def read_json(path: Path) -> Any:
    """Reads a JSON file; what cannot be read is named."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(f"{path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from None
    except json.JSONDecodeError as error:
        raise StoreError(f"{path} is not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets a thousand deep
        raise StoreError(f"{path} is no JSON that can be read: {error}") from None


def write_sealed(path: Path, arrays: Mapping[str, np.ndarray], content: Mapping[str, Any]) -> str:
    """Writes arrays and JSON `content` into one safetensors file that knows its own digest, and returns that."""
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps(content, sort_keys=True)
    metadata = {"content": text, "digest": _digest(arrays, text)}
    write_atomically(path, safetensors.numpy.save(arrays, metadata))
    return metadata["digest"]


def read_sealed(path: Path, digest: str | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Reads what `write_sealed` wrote; raises `StoreError` if a single bit of it has changed, or if it is not the content
    that has `digest`."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        text = metadata["content"]
        if metadata["digest"] != _digest(arrays, text):
            raise StoreError(f"{path} is damaged: its content does not match its checksum")
        if digest is not None and metadata["digest"] != digest:
            raise StoreError(f"{path} is not the file that was referred to")
        return arrays, json.loads(text)
    except FileNotFoundError:
        raise StoreError(f"{path} does not exist") from None
    except (OSError, KeyError, ValueError, safetensors.SafetensorError) as error:
        raise StoreError(f"{path} is damaged: {error}") from None


def _digest(arrays: Mapping[str, np.ndarray], text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()

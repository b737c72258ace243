"""Whether a file or directory could be written, found out before anything is computed, and without leaving anything."""

import os
import secrets
from pathlib import Path

from purectrl import signals
from purectrl.core.errors import StoreError
from purectrl.core.text import VALUE, printable

ROOM = 200
"""Bytes that the names inside an output directory may add to its path."""
LONGEST_PATH = 4096
"""Bytes of a path on Linux."""


def require_creatable(path: Path) -> None:
    """Raises `StoreError` unless `path` can be created, or can be written to if it is a directory.

    A directory with a unique name is made beside it and removed: nothing else tells that /proc or a read-only disk refuses.

    >>> require_creatable(Path("a") / ("x" * 300))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    purectrl.core.errors.StoreError: a/xxx... cannot be created: a name in it has 300 bytes, at most 255 are possible
    """
    shown = printable(path, VALUE)
    try:
        nearest = next(place for place in (path.absolute(), *path.absolute().parents) if os.path.lexists(place))
        if not nearest.is_dir():
            kind = "a file, not a directory" if nearest.exists() else "a broken link"
            raise StoreError(f"{shown} cannot be created: {printable(nearest, VALUE)} is {kind}")
        _check_length(path, nearest, shown)
        probe = nearest / f".probe.{secrets.token_hex(4)}.part"
        with signals.unwinding():
            try:
                probe.mkdir()
            finally:
                if probe.exists():
                    probe.rmdir()
    except OSError as error:
        raise StoreError(f"{shown} cannot be created: {error.strerror}") from None


def _check_length(path: Path, nearest: Path, shown: str) -> None:
    longest = max((len(os.fsencode(name)) for name in path.absolute().relative_to(nearest).parts), default=0)
    limit = os.pathconf(nearest, "PC_NAME_MAX")
    if longest > limit:
        raise StoreError(f"{shown} cannot be created: a name in it has {longest} bytes, at most {limit} are possible")
    total = len(os.fsencode(path.absolute()))
    if total > LONGEST_PATH - ROOM:
        raise StoreError(f"{shown} cannot be created: it has {total} bytes, at most {LONGEST_PATH - ROOM} are possible")

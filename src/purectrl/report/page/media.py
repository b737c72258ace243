"""Pictures and films of runs, to be carried inside the page."""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from purectrl.core.errors import StoreError

TYPES: Mapping[str, str] = {
    ".mp4": "video/mp4",
    ".webm": "video/webm",
    ".gif": "image/gif",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
}
"""What browsers show. Of files with the same name but for the ending, the first of these is taken."""
ROOM = 6_000_000
"""Bytes of all files together; as text they are a third more, and the page should stay under 10 MB."""


@dataclass(frozen=True)
class Medium:
    """A file of a run's `media`, inside the page or left where it is.

    Main arguments:
        uri: the file itself, as text; None if it is not inside the page.
        missing: why not, as the end of a sentence that begins with its path; empty if it is.
    """

    path: Path
    uri: str | None
    missing: str = ""

    @property
    def type(self) -> str:
        """Its media type."""
        return TYPES[self.path.suffix.lower()]


def files(place: Path) -> list[Path]:
    """What the run in `place` has to show, each thing once."""
    folder = place / "media"
    try:
        inside = sorted(folder.iterdir()) if folder.is_dir() else []
    except OSError as error:
        raise StoreError(f"{folder} cannot be read, so it is not shown: {error.strerror}") from None
    found = [path for path in inside if path.suffix.lower() in TYPES]
    found = [path for path in found if not path.name.startswith(".")]  # one that is being written
    order = list(TYPES)
    best: dict[str, Path] = {}
    for path in sorted(found, key=lambda path: order.index(path.suffix.lower())):
        best.setdefault(path.stem, path)
    return sorted(best.values())


def embed(paths: Iterable[Path], room: int = ROOM) -> dict[Path, Medium]:
    """Each file as a data URI, in the given order while there is room for it."""
    taken = {}
    for path in paths:
        content, missing = _content(path, room)
        room -= len(content)
        taken[path] = Medium(path, None if missing else _uri(path, content), missing)
    return taken


def _content(path: Path, room: int) -> tuple[bytes, str]:
    """What is in a file, or nothing and the reason."""
    try:
        if not path.is_file():  # a pipe, say, which nobody may ever fill
            return b"", "is not a file"
        if path.stat().st_size > room:
            return b"", "had no room on this page"
        return path.read_bytes(), ""
    except OSError as error:
        return b"", f"cannot be read: {error.strerror}"


def _uri(path: Path, content: bytes) -> str:
    return f"data:{TYPES[path.suffix.lower()]};base64,{base64.b64encode(content).decode()}"

"""Pictures and films of runs, to be carried inside the page."""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

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
    """A file of a run's `media`, inside the page or, if there was no room, left where it is."""

    path: Path
    uri: str | None

    @property
    def type(self) -> str:
        """Its media type."""
        return TYPES[self.path.suffix.lower()]


def files(place: Path) -> list[Path]:
    """What the run in `place` has to show, each thing once."""
    folder = place / "media"
    found = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in TYPES] if folder.is_dir() else []
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
        size = path.stat().st_size
        fits = size <= room
        room -= size if fits else 0
        taken[path] = Medium(path, _uri(path) if fits else None)
    return taken


def _uri(path: Path) -> str:
    content = base64.b64encode(path.read_bytes()).decode()
    return f"data:{TYPES[path.suffix.lower()]};base64,{content}"

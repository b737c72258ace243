"""Images and videos of runs, embedded in the page: regular files inside the run, of a type that their content shows."""

import base64
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from purectrl.core.errors import StoreError
from purectrl.core.io import read_bytes, subdirectory

MEDIA_TYPES: Mapping[str, str] = {
    ".mp4": "video/mp4",
    ".webm": "video/webm",
    ".gif": "image/gif",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
}
"""Formats that browsers support. Of files that differ only in their suffix, the first of these is used."""
SIGNATURES: Mapping[str, re.Pattern[bytes]] = {
    "video/mp4": re.compile(rb".{4}ftyp", re.DOTALL),
    "video/webm": re.compile(rb"\x1aE\xdf\xa3.{0,60}?webm", re.DOTALL),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
"""How the content of each type begins."""
MAX_BYTES = 6_000_000
"""Size of all files together. Base64 adds a third, and the page should stay below 10 MB."""


@dataclass(frozen=True)
class MediaFile:
    """A file in the `media` directory of a run.

    Main arguments:
        uri: its content as a data URI; None if it is not embedded.
        missing: why it is not embedded, as the end of a sentence that starts with its path.
    """

    path: Path
    uri: str | None
    missing: str = ""

    @property
    def type(self) -> str:
        """The type that its suffix declares; of an embedded file, also that of its content."""
        return MEDIA_TYPES[self.path.suffix.lower()]


def media_files(directory: Path) -> list[Path]:
    """The images and videos of the run in `directory`, each in one format."""
    folder = subdirectory(directory, "media")
    try:
        paths = sorted(folder.iterdir()) if folder.is_dir() else []
    except OSError as error:
        raise StoreError(f"{folder} cannot be read, so it is not shown: {error.strerror}") from None
    best: dict[str, Path] = {}
    for suffix in MEDIA_TYPES:
        for path in paths:
            if path.suffix.lower() == suffix and not path.name.startswith("."):  # temporary files start with a dot
                best.setdefault(path.stem, path)
    return sorted(best.values())


def poster(path: Path) -> Path | None:
    """The picture that a player shows before a video starts: the PNG of the same name."""
    picture = path.with_suffix(".png")
    return picture if MEDIA_TYPES[path.suffix.lower()].startswith("video/") and picture.is_file() else None


def embed(paths: Iterable[Path], max_bytes: int = MAX_BYTES) -> dict[Path, MediaFile]:
    """Each file as a data URI, in the given order until `max_bytes` are used."""
    embedded = {}
    for path in paths:
        content, missing = _read(path, max_bytes)
        max_bytes -= len(content)
        file = MediaFile(path, None, missing)
        if not missing:
            file = MediaFile(path, f"data:{file.type};base64,{base64.b64encode(content).decode()}")
        embedded[path] = file
    return embedded


def _read(path: Path, max_bytes: int) -> tuple[bytes, str]:
    """The content of a file, or no bytes and the reason."""
    try:
        if path.is_symlink() or not path.is_file():
            return b"", "is not a regular file"
        if path.stat().st_size > max_bytes:
            return b"", "exceeds the space for media on this page"
        content = read_bytes(path, max_bytes)
    except OSError as error:
        return b"", f"cannot be read: {error.strerror}"
    kind = MEDIA_TYPES[path.suffix.lower()]
    if not SIGNATURES[kind].match(content):
        return b"", f"is not of type {kind}"
    return (content, "") if kind != "image/png" or _is_intact(content) else (b"", "is damaged")


def _is_intact(png: bytes) -> bool:
    """Whether the checksums of all chunks of a PNG file are right, and the last one ends it."""
    place = 8
    while place + 12 <= len(png):
        size = int.from_bytes(png[place : place + 4])
        end = place + 8 + size
        if zlib.crc32(png[place + 4 : end]) != int.from_bytes(png[end : end + 4]):
            return False
        if png[place + 4 : place + 8] == b"IEND":
            return end + 4 == len(png)
        place = end + 4
    return False

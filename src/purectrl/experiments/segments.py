"""Measurements on disk, written once.

A checkpoint holds the state of a run, and the measurements would be the larger part of it, again and again. So those that
have come to some megabytes move to a file of their own that is never written again, and checkpoints refer to it. What a
checkpoint costs does not grow with the run.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purectrl.core.errors import StoreError
from purectrl.core.measurement import Dataset
from purectrl.experiments.files import read_sealed, write_sealed

FULL = 4 * 2**20
"""Bytes of measurements beyond which they get a file of their own; small runs never have that many."""


class Segment(NamedTuple):
    """One file: episodes `start` to `end`, and the digest of what it holds."""

    start: int
    end: int
    digest: str

    @property
    def name(self) -> str:
        """Of the file."""
        return f"{self.start:012d}.safetensors"


class Segments:
    """The files of one run, as far as the newest checkpoint refers to them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._list = folder, list[Segment]()

    @property
    def episodes(self) -> int:
        """How many episodes they hold, from the first on."""
        return self._list[-1].end if self._list else 0

    def save(self, data: Dataset) -> None:
        """Writes what is not in a file yet, if it is enough to fill one."""
        start, end = self.episodes, data.episodes
        tail = {name: array[start:] for name, array in data.arrays().items()}
        if sum(array.nbytes for array in tail.values()) < FULL:
            return
        self.folder.mkdir(exist_ok=True)
        place = self.folder / Segment(start, end, "").name
        self._list.append(Segment(start, end, write_sealed(place, tail, {"start": start, "end": end})))

    def listed(self) -> list[list[Any]]:
        """What a checkpoint notes."""
        return [list(segment) for segment in self._list]

    def restore(self, listed: list[list[Any]]) -> dict[str, np.ndarray]:
        """The measurements that a checkpoint refers to, by name; raises if one of its files is not as it was."""
        self._list, parts = [], []
        for segment in (Segment(*entry) for entry in listed):
            arrays, _ = read_sealed(self.folder / segment.name, segment.digest)
            if segment.start != self.episodes:
                raise StoreError(f"{self.folder} lacks the episodes from {self.episodes} to {segment.start}")
            self._list.append(segment)
            parts.append(arrays)
        return {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else {})}

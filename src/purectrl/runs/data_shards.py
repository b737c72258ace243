"""Measurements on disk, written once.

A checkpoint holds the state of a run. Measurements beyond a few megabytes are written to a shard that never changes, and
checkpoints refer to it, so that the cost of a checkpoint does not grow with the run.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purectrl.core.errors import StoreError
from purectrl.core.io import read_checksummed, subdirectory, write_checksummed
from purectrl.core.measurement import Dataset

FOLDER = "data"
"""Where they are in a run directory."""
SHARD_BYTES = 4 * 2**20
"""Measurements of at least this many bytes are written to a new shard."""


class Shard(NamedTuple):
    """One file: episodes `start` to `end`, and the checksum of its content."""

    start: int
    end: int
    digest: str

    @property
    def name(self) -> str:
        """The file name."""
        return f"{self.start:012d}.safetensors"


class DataShards:
    """The shards of the run in a directory that the newest checkpoint refers to."""

    def __init__(self, run: Path) -> None:
        self.run, self._list = run, list[Shard]()

    @property
    def episodes(self) -> int:
        """Number of episodes they hold."""
        return self._list[-1].end if self._list else 0

    def save(self, data: Dataset) -> None:
        """Writes what is not in a shard yet, if it is large enough."""
        start, end = self.episodes, data.episodes
        tail = {name: array[start:] for name, array in data.arrays().items()}
        if sum(array.nbytes for array in tail.values()) < SHARD_BYTES:
            return
        place = subdirectory(self.run, FOLDER, create=True) / Shard(start, end, "").name
        self._list.append(Shard(start, end, write_checksummed(place, tail, {"start": start, "end": end})))

    def listed(self) -> list[list[Any]]:
        """The entries of a checkpoint."""
        return [list(shard) for shard in self._list]

    def restore(self, listed: Any) -> dict[str, np.ndarray]:
        """The measurements that a checkpoint refers to, by name; raises if a shard has changed."""
        self._list, parts = [], []
        folder = subdirectory(self.run, FOLDER)
        for shard in read_shards(listed):
            if shard.start != self.episodes:
                raise StoreError(f"{folder} lacks the episodes from {self.episodes} to {shard.start}")
            arrays, _ = read_checksummed(folder / shard.name, shard.digest)
            for name, array in arrays.items():
                if len(np.atleast_1d(array)) != shard.end - shard.start:
                    raise StoreError(f"{folder / shard.name}: {name} has another number of episodes than it should")
            self._list.append(shard)
            parts.append(arrays)
        return join(parts)


def read_shards(listed: Any) -> list[Shard]:
    """The shards that a checkpoint lists; raises `StoreError` if the list is not one of shards."""
    if not isinstance(listed, list) or not all(map(_is_shard, listed)):
        raise StoreError("the checkpoint lists its data in an unknown format")
    return [Shard(*entry) for entry in listed]


def _is_shard(entry: object) -> bool:
    if not isinstance(entry, list) or [type(part) for part in entry] != [int, int, str]:
        return False
    start, end, _ = entry
    return 0 <= start < end < 10**12


def join(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Blocks of episodes after each other; raises `StoreError` unless their fields, types and shapes agree."""
    signatures = [{name: (array.dtype, array.shape[1:]) for name, array in part.items()} for part in parts]
    if any(signature != signatures[0] for signature in signatures):
        raise StoreError("the data shards and the checkpoint hold measurements of different types or shapes")
    if any(array.ndim == 0 for part in parts for array in part.values()):
        raise StoreError("the data shards and the checkpoint hold numbers that are not measurements")
    return {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else {})}

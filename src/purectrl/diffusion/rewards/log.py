"""What queries have cost: one JSON line each, appended and flushed at once, so that a kill loses at most the last batch."""

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from purectrl.core.errors import StoreError


class Query(NamedTuple):
    """One image that was sent to a reward."""

    condition: int | str
    score: float | None
    """None if the reward gave no finite number."""
    seconds: float
    """Its share of the time of its batch."""
    picture: str | None
    """`digest` of image and condition, by which a paid score is found again; None for a noisy reward."""


class QueryLog:
    """All queries of one account, in memory and, if there is a file, in it.

    Main arguments:
        file: JSON lines; read if it exists. Without it the account lives as long as the program.
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.queries = 0
        self.seconds = 0.0
        self.scores: dict[str, float] = {}
        """By picture."""
        if file is not None:
            for query in _read(file):
                self._count(query)

    def append(self, queries: Iterable[Query]) -> None:
        """Writes the queries of one batch down, then counts them."""
        queries = list(queries)
        if self.file is not None:
            lines = "".join(json.dumps(query._asdict(), ensure_ascii=False) + "\n" for query in queries)
            with open(self.file, "a", encoding="utf-8") as stream:
                stream.write(lines)
                stream.flush()
                os.fsync(stream.fileno())
        for query in queries:
            self._count(query)

    def kept(self) -> str:
        """What is safe, for an error message."""
        place = "in memory; give a log to keep them" if self.file is None else f"in {self.file}"
        return f"{self.queries} queries so far, {len(self.scores)} different scores kept {place}"

    def _count(self, query: Query) -> None:
        self.queries += 1
        self.seconds += query.seconds
        if query.score is not None and query.picture is not None:
            self.scores[query.picture] = query.score


def digest(image: np.ndarray, condition: int | str) -> str:
    """A name for what was sent: 32 hexadecimal digits that any change of image or condition changes.

    >>> len({digest(np.zeros((1, 2, 2), np.float32), condition) for condition in (3, "3", 4)})
    3
    """
    content = hashlib.blake2b(f"{image.shape} {condition!r}".encode(), digest_size=16)
    content.update(np.ascontiguousarray(image, np.float32).data)
    return content.hexdigest()


def _read(file: Path) -> list[Query]:
    """The queries in a file, if there is one; a last line that a kill cut off is removed from it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        content = file.read_bytes()
    except OSError as error:
        raise StoreError(f"the log of the reward cannot be written: {file}: {error.strerror}") from None
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.truncate(file, len(whole))
    queries = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            queries.append(Query(**json.loads(line)))
        except (ValueError, TypeError):
            raise StoreError(f"{file}, line {number}, is no query of a reward; move the file away") from None
    return queries

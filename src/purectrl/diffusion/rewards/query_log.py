"""The log of queries: one JSON line each, flushed at once, so that a killed process loses at most the last batch.

Each line has a checksum of itself, because a resumed run uses its score instead of asking again.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from purectrl.core.errors import StoreError
from purectrl.core.io import MAX_LINES, encode, open_file, parse_json, with_checksum, without_checksum


class Query(NamedTuple):
    """One image that was sent to a reward."""

    condition: int | str
    score: float | None
    """None if the reward gave no finite number."""
    seconds: float
    """Its share of the time of its batch."""
    digest: str | None
    """`query_digest` of image and condition, by which a score is found again; None for a stochastic reward."""


class QueryLog:
    """All queries of one purpose, in memory and, if there is a file, in it.

    Main arguments:
        file: JSON lines; read if it exists. Without it the log ends with the program.
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.queries = 0
        self.seconds = 0.0
        self.scores: dict[str, float] = {}
        """By digest."""
        if file is not None:
            for query in _read(file):
                self._count(query)

    def append(self, queries: Iterable[Query]) -> None:
        """Writes the queries of one batch, then counts them."""
        queries = list(queries)
        if self.file is not None:
            checked = (with_checksum(query._asdict()) for query in queries)
            lines = "".join(json.dumps(query, ensure_ascii=False) + "\n" for query in checked)
            with open_file(self.file, "append") as stream:
                stream.write(encode(lines))
                stream.flush()
                os.fsync(stream.fileno())
        for query in queries:
            self._count(query)

    def status(self) -> str:
        """What has been recorded, for an error message."""
        place = "in memory; use a log file to keep them" if self.file is None else f"in {self.file}"
        return f"{self.queries} queries so far, {len(self.scores)} different scores kept {place}"

    def _count(self, query: Query) -> None:
        self.queries += 1
        self.seconds += query.seconds
        if query.score is not None and query.digest is not None:
            self.scores[query.digest] = query.score


def query_digest(image: np.ndarray, condition: int | str) -> str:
    """32 hexadecimal digits that identify an image and its condition.

    >>> len({query_digest(np.zeros((1, 2, 2), np.float32), condition) for condition in (3, "3", 4)})
    3
    """
    content = hashlib.blake2b(f"{image.shape} {condition!r}".encode(), digest_size=16)
    content.update(np.ascontiguousarray(image, np.float32).data)
    return content.hexdigest()


def _read(file: Path) -> list[Query]:
    """The queries in a file, if it exists; an incomplete last line, which a killed process leaves, is removed from it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open_file(file, "append") as stream:
            if os.fstat(stream.fileno()).st_size > MAX_LINES:
                raise StoreError(f"the log of the reward has more than {MAX_LINES:,} bytes: {file}; move it away")
            stream.seek(0)
            content = stream.read()
            complete = content[: content.rfind(b"\n") + 1]
            if len(complete) < len(content):
                stream.truncate(len(complete))
    except OSError as error:
        raise StoreError(f"the log of the reward cannot be written: {file}: {error.strerror}") from None
    return [_parse(line, f"{file}, line {number},") for number, line in enumerate(complete.splitlines(), 1)]


def _parse(line: bytes, name: str) -> Query:
    """The query in a line; raises `StoreError` if it is none."""
    wrong = StoreError(f"{name} is not a query of a reward; move the file away")
    found = parse_json(line, name)
    if not isinstance(found, dict) or found.keys() - {"checksum"} != set(Query._fields):
        raise wrong
    query = Query(**without_checksum(found, name))
    numbers = [query.seconds, 0.0 if query.score is None else query.score]
    if not all(type(number) in (int, float) and abs(number) < math.inf for number in numbers):
        raise wrong
    if type(query.condition) not in (int, str) or not isinstance(query.digest, str | None):
        raise wrong
    return query

"""The files between a run that asks people and `purectrl label`: the images that the run waits for, and all answers.

    DIR/labels/request.json     the images that the run waits for; replaced by the next request
    DIR/labels/images/ID.png    the images
    DIR/labels/answers.jsonl    one line for each answer, retraction and submission, with a checksum, flushed at once

The run writes the first two, `purectrl label` the third. An answer can be changed until it is submitted; then it is final.
"""

import contextlib
import io
import json
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from PIL import Image

from purectrl.core.errors import StoreError
from purectrl.core.io import (
    MAX_LINES,
    encode,
    exists,
    lock_directory,
    open_file,
    parse_json,
    read_json,
    subdirectory,
    with_checksum,
    without_checksum,
    write_atomically,
    write_json,
)
from purectrl.diffusion.rewards.query_log import query_digest

FOLDER = "labels"
IDENTIFIER = re.compile(r"[0-9a-f]{32}")
MAX_IMAGES = 100_000
"""Most images of one request."""


class Question(NamedTuple):
    """One image that a person is asked about."""

    id: str
    """32 hexadecimal digits that identify image and condition."""
    condition: int | str


class Request(NamedTuple):
    """The images that a run waits for, and the number of levels of an answer."""

    questions: tuple[Question, ...]
    levels: int


NOTHING = Request((), 2)


def question_of(image: np.ndarray, condition: int | str) -> Question:
    """The question about an image [channels, height, width] in [0, 1]. It is that of its 8-bit pixels, so that rounding in
    the last bits, by another version of a library, does not make a new question of an old one."""
    return Question(query_digest(pixels(image).astype(np.float32), condition), condition)


def pixels(image: np.ndarray) -> np.ndarray:
    """An image in [0, 1] as bytes, of the same shape."""
    return np.round(255 * image).astype(np.uint8)


def labels_folder(directory: Path, create: bool = False) -> Path:
    """DIR/labels."""
    return subdirectory(directory, FOLDER, create)


def image_file(directory: Path, identifier: str) -> Path:
    """DIR/labels/images/ID.png."""
    if not IDENTIFIER.fullmatch(identifier):
        raise StoreError(f"{identifier!r:.40} does not identify an image")
    return subdirectory(labels_folder(directory), "images") / f"{identifier}.png"


def write_request(directory: Path, questions: Sequence[Question], images: np.ndarray, levels: int) -> None:
    """Writes the images [n, channels, height, width] that are not on disk yet, then the request."""
    folder = subdirectory(labels_folder(directory, create=True), "images", create=True)
    for question, image in zip(questions, images, strict=True):
        if not exists(file := folder / f"{question.id}.png"):
            values, content = pixels(image), io.BytesIO()
            Image.fromarray(values[0] if len(values) == 1 else values.transpose(1, 2, 0)).save(content, format="PNG")
            write_atomically(file, content.getvalue())
    found = {"levels": levels, "images": [question._asdict() for question in questions]}
    write_json(labels_folder(directory) / "request.json", found)


def read_request(directory: Path) -> Request:
    """What the run waits for; nothing if it has not asked yet. Raises `StoreError` if the file is not a request."""
    file = labels_folder(directory) / "request.json"
    if not exists(file):
        return NOTHING
    found = read_json(file)
    wrong = StoreError(f"{file} is not a request of a run; `purectrl resume {directory}` writes it again")
    if not isinstance(found, dict) or not isinstance(images := found.get("images"), list) or len(images) > MAX_IMAGES:
        raise wrong
    if type(levels := found.get("levels")) is not int or not 2 <= levels <= 9:
        raise wrong
    return Request(tuple(_question(image, wrong) for image in images), levels)


def _question(found: Any, wrong: StoreError) -> Question:
    if not isinstance(found, dict) or found.keys() != set(Question._fields):
        raise wrong
    question = Question(**found)
    if not isinstance(question.id, str) or not IDENTIFIER.fullmatch(question.id):
        raise wrong
    if type(question.condition) not in (int, str):
        raise wrong
    return question


class Answers:
    """What people have answered so far, followed as the file grows.

    Main arguments:
        directory: the run directory.

    Attributes:
        final: scores by identifier that a run may use.
        open: scores that can still be changed, in the order in which they were given.
    """

    def __init__(self, directory: Path) -> None:
        self.file = labels_folder(directory) / "answers.jsonl"
        self.final: dict[str, float] = {}
        self.open: dict[str, float] = {}
        self._offset = self._lines = 0

    def follow(self) -> None:
        """Reads the lines that were added since the last call; one that is still being written is left for the next."""
        if not exists(self.file):
            return
        with open_file(self.file) as stream:
            if os.fstat(stream.fileno()).st_size > MAX_LINES:
                raise StoreError(f"{self.file} has more than {MAX_LINES:,} bytes; move it away")
            stream.seek(self._offset)
            content = stream.read()
        complete = content[: content.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in complete.splitlines():
            self._lines += 1
            self.take(parse_json(line, f"{self.file}, line {self._lines},"))

    def take(self, line: Any) -> None:
        """Takes one line into account; raises `StoreError` if it is none of an answer file."""
        if isinstance(line, dict):
            line = without_checksum(line, f"{self.file}, line {self._lines},")
        if isinstance(line, dict) and line.keys() == {"submitted", "at"}:
            self.final |= self.open
            self.open.clear()
            return
        wrong = StoreError(f"{self.file}, line {self._lines}, is not an answer; move the file away")
        if not isinstance(line, dict) or line.keys() != {"id", "score", "at"} or not isinstance(line["id"], str):
            raise wrong
        identifier, score = line["id"], line["score"]
        if score is not None and (type(score) not in (int, float) or not 0 <= score <= 1):
            raise wrong
        self.open.pop(identifier, None)
        if score is not None and identifier not in self.final:
            self.open[identifier] = float(score)


class AnswerLog:
    """Appends answers to the file of a run, whose `labels` folder this process has locked. Use as a context manager."""

    def __init__(self, directory: Path) -> None:
        self._lock: BinaryIO = lock_directory(labels_folder(directory, create=True))
        self.answers = Answers(directory)
        try:
            _remove_incomplete_line(self.answers.file)
            self.answers.follow()
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> "AnswerLog":
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def answer(self, identifier: str, score: float | None) -> None:
        """Keeps an answer, or retracts it with None."""
        self._append({"id": identifier, "score": score, "at": round(time.time(), 3)})

    def submit(self) -> None:
        """Makes all answers final."""
        self._append({"submitted": len(self.answers.open), "at": round(time.time(), 3)})

    def _append(self, line: Mapping[str, Any]) -> None:
        """Writes and flushes a line, or, if that fails, leaves the file as it was; only then it counts."""
        with open_file(self.answers.file, "append") as stream:
            before = os.fstat(stream.fileno()).st_size
            try:
                stream.write(encode(json.dumps(with_checksum(line)) + "\n"))
                stream.flush()
                os.fsync(stream.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(stream.fileno(), before)
                raise
        self.answers.follow()


def _remove_incomplete_line(file: Path) -> None:
    """Removes what a killed process has left of its last line, which was not acknowledged."""
    with open_file(file, "append") as stream:
        stream.seek(0)
        content = stream.read(MAX_LINES)
        if (complete := content.rfind(b"\n") + 1) < len(content):
            stream.truncate(complete)


def score_of(level: int, levels: int) -> float:
    """The score of an answer: levels from 1, the worst, to `levels`, the best, are equidistant in [0, 1].

    >>> [score_of(level, 5) for level in range(1, 6)]
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    return (level - 1) / (levels - 1)


def level_of(score: float, levels: int) -> int:
    """The level whose score is nearest.

    >>> level_of(0.75, 5)
    4
    """
    return 1 + math.floor(score * (levels - 1) + 0.5)

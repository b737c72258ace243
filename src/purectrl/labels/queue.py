"""What a run asks, and what was answered: the state behind the page."""

import threading
from pathlib import Path
from typing import Any

from purectrl.core.errors import InputError, StoreError
from purectrl.core.io import exists, read_bytes
from purectrl.diffusion.rewards.label_files import (
    AnswerLog,
    Request,
    image_file,
    labels_folder,
    level_of,
    read_request,
    score_of,
)
from purectrl.runs.directory import read_config, read_summary

MAX_IMAGE = 64 * 2**20
"""Largest size of an image in bytes."""


class LabelQueue:
    """The questions of the run in `directory` and the answers to them. Use as a context manager; it locks `labels` in it.

    Every answer is on disk before a method returns. Several threads may use it.

    Main arguments:
        directory: a run directory whose reward is `people`.
    """

    def __init__(self, directory: Path) -> None:
        arguments = read_config(directory)["problem"].get("arguments")
        asks = isinstance(arguments, dict) and arguments.get("reward") == "people"
        if not asks and not exists(labels_folder(directory)):
            raise StoreError(f"the run in {directory} does not ask people; start one with --reward people")
        self.directory = directory
        self._log, self._lock = AnswerLog(directory), threading.Lock()

    def __enter__(self) -> "LabelQueue":
        return self

    def __exit__(self, *_: object) -> None:
        self._log.__exit__()

    def state(self) -> dict[str, Any]:
        """What the page shows, as a JSON value."""
        with self._lock:
            return self._state()

    def answer(self, identifier: str, level: int) -> dict[str, Any]:
        """Keeps an answer, from 1 to the number of levels; the state after it."""
        with self._lock:
            request = self._request()
            if not any(question.id == identifier for question in request.questions):
                raise InputError("id: the run does not wait for a label of this image")
            if type(level) is not int or not 1 <= level <= request.levels:
                raise InputError(f"level: must be between 1 and {request.levels}, not {level!r:.20}")
            self._log.answer(identifier, score_of(level, request.levels))
            return self._state()

    def undo(self) -> dict[str, Any]:
        """Retracts the last answer that is not submitted; the state after it, with `undone`, its image, or null."""
        with self._lock:
            last = next(reversed(self._log.answers.open), None)
            if last is not None:
                self._log.answer(last, None)
            return self._state() | {"undone": last}

    def submit(self) -> dict[str, Any]:
        """Makes the answers final, which the run then uses, once there is one for each image."""
        with self._lock:
            missing = [question for question in self._request().questions if question.id not in self._log.answers.open]
            if missing:
                raise InputError(f"{len(missing)} images have no label yet")
            if self._log.answers.open:
                self._log.submit()
            return self._state()

    def image(self, identifier: str) -> bytes:
        """The PNG of an image that the run waits for."""
        with self._lock:
            if not any(question.id == identifier for question in self._request().questions):
                raise InputError("id: the run does not wait for a label of this image")
        return read_bytes(image_file(self.directory, identifier), MAX_IMAGE)

    @property
    def finished(self) -> bool:
        """Whether the run has finished."""
        return read_summary(self.directory) is not None

    @property
    def submitted(self) -> int:
        """How many labels are final."""
        return len(self._log.answers.final)

    def _request(self) -> Request:
        """What the run waits for, without the images that have a final label."""
        found, final = read_request(self.directory), self._log.answers.final
        return found._replace(questions=tuple(one for one in found.questions if one.id not in final))

    def _state(self) -> dict[str, Any]:
        request, given = self._request(), self._log.answers.open
        images = [
            {
                "id": question.id,
                "condition": str(question.condition),
                "level": level_of(given[question.id], request.levels) if question.id in given else None,
            }
            for question in request.questions
        ]
        return {
            "images": images,
            "levels": request.levels,
            "submitted": self.submitted,
            "finished": not images and self.finished,
        }

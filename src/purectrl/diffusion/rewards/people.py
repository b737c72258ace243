"""People as a reward: a run writes the images that it wants labels for, and waits until `purectrl label` has them."""

import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from purectrl import signals
from purectrl.core.errors import InputError, require
from purectrl.diffusion.rewards.label_files import Answers, Question, labels_folder, question_of, write_request
from purectrl.diffusion.rewards.reward import Condition

POLL = 0.5
"""Seconds between two looks at the answers."""


class People:
    """`(images, conditions) -> scores` in [0, 1]: asks people, and waits for them.

    The questions are written to `labels` in the run directory, and `purectrl label DIR` asks them. An image that has an
    answer there is not asked again, also after a crash. A signal ends the waiting; what was answered until then is kept.

    Main arguments:
        directory: the run directory; None until the run begins.
        levels: levels of an answer, from 2 (bad, good) to 9.
    """

    def __init__(self, directory: Path | None = None, levels: int = 5) -> None:
        require(2 <= levels <= 9, f"label_levels: must be between 2 and 9, one key each, not {levels}")
        self._directory, self._levels = directory, levels

    def in_directory(self, directory: Path | None) -> "People":
        """The same for a run directory."""
        return People(directory, self._levels)

    def __call__(self, images: np.ndarray, conditions: Sequence[Condition]) -> np.ndarray:
        """images [n, 1 or 3, h, w] in [0, 1], n conditions -> scores [n] in [0, 1]."""
        if self._directory is None:
            raise InputError("reward: people are asked through the run directory; give one (--out, in Python out=)")
        questions = [question_of(image, condition) for image, condition in zip(images, conditions, strict=True)]
        labels_folder(self._directory, create=True)
        answers = Answers(self._directory)
        answers.follow()
        missing = {question: i for i, question in enumerate(questions) if question.id not in answers.final}
        if missing:
            self._ask(answers, list(missing), images[list(missing.values())])
        return np.array([answers.final[question.id] for question in questions])

    def _ask(self, answers: Answers, questions: list[Question], images: np.ndarray) -> None:
        """Waits until every question has a final answer."""
        assert self._directory is not None
        write_request(self._directory, questions, images, self._levels)
        with contextlib.suppress(OSError):  # a closed standard error does not stop a run
            print(
                f"waiting for {len(questions)} labels: `purectrl label {self._directory}`", file=sys.stderr, flush=True
            )
        while not all(question.id in answers.final for question in questions):
            if signals.stop_requested():
                raise KeyboardInterrupt
            time.sleep(POLL)
            answers.follow()
        write_request(self._directory, [], images[:0], self._levels)

"""The door to a reward: a black box that costs something each time, and that is not trusted.

A reward is a plain callable `(images, conditions) -> scores`. `Reward` puts it behind checks, a time limit and a log:

    images      [n, c, h, w] float32 in [0, 1]
    conditions  n classes (integers) or prompts (strings)
    scores      [n], finite

Every image that is sent is a query, whatever comes back. Queries are written down before anything else can go wrong, and a
picture that has been paid for is not paid for again.
"""

import math
import operator
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from purectrl.core.errors import InputError, MeasurementError, require
from purectrl.diffusion.rewards.log import Query, QueryLog, digest

Condition = int | str
"""A class or a prompt."""
Scorer = Callable[[np.ndarray, Sequence[Condition]], Any]
"""What a user writes: `(images, conditions) -> scores`, any array or sequence of n numbers."""


class Reward:
    """A scorer with its account.

    Main arguments:
        score: the black box.
        log: JSON lines, one a query, appended to. What a file that exists already holds is not paid for again.

    Other arguments:
        name: what error messages call it.
        batch: how many images are sent at once. What a batch has cost is kept when the next one fails.
        limit: seconds that one batch may take; then the call ends with an error. A scorer that never returns cannot be
            stopped from outside: it is left behind in a thread that ends with the program.
        noisy: whether the same picture gets another score each time. Then each is asked for, and paid.

    >>> brightness = Reward(lambda images, conditions: images.mean(axis=(1, 2, 3)))
    >>> brightness(np.full((2, 1, 8, 8), 0.25, np.float32), [3, 3]).tolist(), brightness.queries
    ([0.25, 0.25], 1)
    """

    def __init__(
        self,
        score: Scorer,
        log: Path | str | None = None,
        *,
        name: str | None = None,
        batch: int = 64,
        limit: float = 600.0,
        noisy: bool = False,
    ) -> None:
        require(callable(score), f"score: must be callable as score(images, conditions), not {score!r}")
        require(batch >= 1, f"batch: at least one image is sent at a time, not {batch}")
        require(limit > 0, f"limit: seconds, more than 0, not {limit}")
        self.name = name or getattr(score, "__name__", type(score).__name__)
        self._score, self._batch, self._limit, self._noisy = score, batch, float(limit), noisy
        self._log = QueryLog(None if log is None else Path(log))
        self._left_behind: threading.Thread | None = None

    @property
    def queries(self) -> int:
        """How many images have been sent, those of an earlier process with the same log among them."""
        return self._log.queries

    @property
    def seconds(self) -> float:
        """How long the scorer has taken in all."""
        return self._log.seconds

    def apart(self, log: Path | str | None = None) -> "Reward":
        """The same scorer with an account of its own, for evaluation: it shares neither counts nor paid scores."""
        return Reward(self._score, log, name=self.name, batch=self._batch, limit=self._limit, noisy=self._noisy)

    def __call__(self, images: np.ndarray, conditions: Sequence[Condition]) -> np.ndarray:
        """images [n, c, h, w] in [0, 1], n conditions -> scores [n] float64."""
        images, plain = check_images(images), check_conditions(conditions, len(images))
        pictures = [None if self._noisy else digest(*sent) for sent in zip(images, plain, strict=True)]
        new = [i for i, picture in enumerate(pictures) if picture is None or picture not in self._log.scores]
        if not self._noisy:
            new = list({pictures[i]: i for i in new}.values())
        paid = [
            self._pay(images[rows], [plain[i] for i in rows], [pictures[i] for i in rows])
            for rows in (new[i : i + self._batch] for i in range(0, len(new), self._batch))
        ]
        return np.concatenate(paid) if self._noisy else np.array([self._log.scores[picture] for picture in pictures])

    def _pay(self, images: np.ndarray, conditions: list[Condition], pictures: list[str | None]) -> np.ndarray:
        """Sends one batch and writes down what came back; only then complains about it."""
        if self._left_behind is not None and self._left_behind.is_alive():
            raise MeasurementError(f"reward {self.name!r} has still not returned from a call that took too long")
        begin = time.perf_counter()
        scores, complaint, cause = self._ask(images, conditions)
        seconds = (time.perf_counter() - begin) / len(images)
        self._log.append(
            Query(condition, float(score) if math.isfinite(score) else None, seconds, picture)
            for condition, score, picture in zip(conditions, scores, pictures, strict=True)
        )
        if complaint:
            raise MeasurementError(f"reward {self.name!r} {complaint}; {self._log.kept()}") from cause
        return scores

    def _ask(
        self, images: np.ndarray, conditions: list[Condition]
    ) -> tuple[np.ndarray, str | None, BaseException | None]:
        """(scores, with NaN where there is none; what is wrong with them; the exception behind it)."""
        nothing = np.full(len(images), np.nan)
        returned = self._within_limit(images, conditions)
        if returned is None:
            return nothing, f"did not return {len(images)} scores within its limit of {self._limit:g} s", None
        answer, error = returned
        if error is not None:
            return nothing, f"raised {type(error).__name__}: {error}", error
        scores, complaint = check_scores(answer, len(images))
        return (nothing if scores is None else scores), complaint, None

    def _within_limit(self, images: np.ndarray, conditions: list[Condition]) -> tuple[Any, BaseException | None] | None:
        """(answer, exception) of the scorer; None if there is neither in time."""
        returned: list[tuple[Any, BaseException | None]] = []

        def work() -> None:
            try:
                returned.append((self._score(images, conditions), None))
            except BaseException as error:  # any: it is the user's code, and what was paid before must be kept
                returned.append((None, error))

        thread = threading.Thread(target=work, name=f"reward {self.name}", daemon=True)
        thread.start()
        thread.join(None if math.isinf(self._limit) else self._limit)
        if returned:
            return returned[0]
        self._left_behind = thread
        return None


def check_images(images: np.ndarray) -> np.ndarray:
    """The images as float32; raises unless they are [n, c, h, w] with values in [0, 1]."""
    images = np.asarray(images)
    require(
        images.ndim == 4 and images.size > 0,
        f"images: must have shape [n, channels, height, width], none of them 0, not {list(images.shape)}",
    )
    require(
        np.issubdtype(images.dtype, np.floating),
        f"images: must be floating-point numbers in [0, 1], not {images.dtype}; divide bytes by 255",
    )
    require(bool(np.isfinite(images).all()), "images: must be finite, and some values are NaN or infinite")
    low, high = float(images.min()), float(images.max())
    require(
        low >= 0 and high <= 1,
        f"images: values must lie in [0, 1], not in [{low:.3g}, {high:.3g}]; (x + 1)/2, clipped, brings [−1, 1] there",
    )
    return np.ascontiguousarray(images, np.float32)


def check_conditions(conditions: Sequence[Condition], n: int) -> list[Condition]:
    """The conditions as plain integers and strings; raises unless there are `n`.

    >>> check_conditions(np.array([3, 4]), 2), check_conditions(["cat"], 1)
    ([3, 4], ['cat'])
    """
    require(not isinstance(conditions, str), f"conditions: a sequence with one entry an image, not {conditions!r}")
    require(len(conditions) == n, f"conditions: {n} images and {len(conditions)} conditions do not go together")
    try:
        return [condition if isinstance(condition, str) else operator.index(condition) for condition in conditions]
    except TypeError as error:
        raise InputError(f"conditions: must be integers (classes) or strings (prompts): {error}") from None


def check_scores(answer: Any, n: int) -> tuple[np.ndarray | None, str | None]:
    """(scores [n] float64 or None, what is wrong with them or None).

    >>> check_scores([0.5, 1.0], 2)
    (array([0.5, 1. ]), None)
    >>> check_scores([[0.5]], 2)
    (None, 'returned scores of shape [1, 1] for 2 images; it should be [2]')
    """
    try:
        scores = np.asarray(answer, float)
    except (TypeError, ValueError, RuntimeError) as error:
        return None, f"returned something that is no array of numbers: {error}"
    if scores.shape != (n,):
        return None, f"returned scores of shape {list(scores.shape)} for {n} images; it should be [{n}]"
    wrong = np.flatnonzero(~np.isfinite(scores))
    if wrong.size:
        return scores, f"returned {scores[wrong[0]]} for {wrong.size} of {n} images, first for number {wrong[0]}"
    return scores, None


def weighted(*terms: tuple[float, Scorer]) -> Scorer:
    """Σ wᵢ·rᵢ(images, conditions), a scorer itself. Put the sum behind one `Reward`.

    >>> twice = weighted((1.5, lambda images, _: np.ones(len(images))), (0.5, lambda images, _: np.ones(len(images))))
    >>> twice(np.zeros((3, 1, 8, 8)), [0, 0, 0]).tolist()
    [2.0, 2.0, 2.0]
    """
    require(len(terms) > 0, "terms: a sum needs at least one (weight, scorer)")
    for weight, score in terms:
        require(math.isfinite(weight), f"terms: weights must be finite, not {weight}")
        require(callable(score), f"terms: (weight, scorer) with a callable scorer, not {score!r}")

    def total(images: np.ndarray, conditions: Sequence[Condition]) -> np.ndarray:
        parts = []
        for weight, score in terms:
            scores, complaint = check_scores(score(images, conditions), len(images))
            if scores is None or complaint:
                raise MeasurementError(f"{getattr(score, '__name__', type(score).__name__)} {complaint}")
            parts.append(weight * scores)
        return np.sum(parts, axis=0)

    return total

"""A black-box reward: each query has a cost, and its answers are checked.

A reward is a plain callable `(images, conditions) -> scores`. `Reward` adds checks, a timeout and a log:

    images      [n, c, h, w] float32 in [0, 1]
    conditions  n classes (integers) or prompts (strings)
    scores      [n], finite

Every image that is sent is a query, whatever is returned. Queries are logged before an error is raised, and an image that
has a score is not sent again.
"""

import math
import operator
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from purectrl.core.errors import InputError, MeasurementError, require
from purectrl.diffusion.images import check_images
from purectrl.diffusion.rewards.query_log import Query, QueryLog, query_digest

Condition = int | str
"""A class or a prompt."""
Scorer = Callable[[np.ndarray, Sequence[Condition]], Any]
"""What a user writes: `(images, conditions) -> scores`, any array or sequence of n numbers."""


@runtime_checkable
class UsesDirectory(Protocol):
    """Optional capability of a scorer: it keeps files in the run directory."""

    def in_directory(self, directory: Path | None) -> Scorer:
        """The same scorer with its files in `directory`."""
        ...


class Reward:
    """A scorer with checks, a timeout and a log of its queries.

    Main arguments:
        score: the black box.
        log: file of JSON lines, one per query, that is appended to. Images that an existing file has scores for are not sent
            again.

    Other arguments:
        name: its name in error messages.
        range: the smallest and the largest possible score; None if unknown.
        batch_size: how many images are sent at once. The scores of a batch are kept if a later one fails.
        timeout: seconds that one batch may take; then the call raises. A scorer that never returns cannot be stopped from
            outside: it stays in a thread that ends with the program.
        stochastic: whether the same image can get different scores. Then every image is sent.
        waits: whether the scorer waits for people and keeps their answers itself: it has no timeout, gets all images at
            once, and may be interrupted by a signal.

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
        range: tuple[float, float] | None = None,
        batch_size: int = 64,
        timeout: float = 600.0,
        stochastic: bool = False,
        waits: bool = False,
    ) -> None:
        require(callable(score), f"score: must be callable as score(images, conditions), not {score!r}")
        require(batch_size >= 1, f"batch_size: must be at least 1, not {batch_size}")
        require(timeout > 0, f"reward_timeout: must be more than 0 seconds, not {timeout}")
        self.name = name or getattr(score, "__name__", type(score).__name__)
        self.range, self.stochastic, self.waits = range, stochastic, waits
        self._score, self._batch_size, self._timeout = score, batch_size, float(timeout)
        self._log = QueryLog(None if log is None else Path(log))
        self._hanging: threading.Thread | None = None

    @property
    def queries(self) -> int:
        """How many images have been sent, including those of earlier processes with the same log."""
        return self._log.queries

    @property
    def seconds(self) -> float:
        """The total time of the scorer."""
        return self._log.seconds

    def with_log(self, log: Path | str | None = None) -> "Reward":
        """The same scorer with another log: it shares neither counts nor scores with this one. A scorer that keeps files
        keeps them beside the log."""
        score = self._score
        if isinstance(score, UsesDirectory):
            score = score.in_directory(None if log is None else Path(log).parent)
        return Reward(
            score,
            log,
            name=self.name,
            range=self.range,
            batch_size=self._batch_size,
            timeout=self._timeout,
            stochastic=self.stochastic,
            waits=self.waits,
        )

    def __call__(self, images: np.ndarray, conditions: Sequence[Condition]) -> np.ndarray:
        """images [n, c, h, w] in [0, 1], n conditions -> scores [n] float64."""
        images, plain = check_images(images), check_conditions(conditions, len(images))
        digests = [None if self.stochastic else query_digest(*sent) for sent in zip(images, plain, strict=True)]
        new = [i for i, digest in enumerate(digests) if digest is None or digest not in self._log.scores]
        if not self.stochastic:
            new = list({digests[i]: i for i in new}.values())
        size = max(1, len(new)) if self.waits else self._batch_size
        batches = [new[start : start + size] for start in range(0, len(new), size)]
        scores = [self._send(images[rows], [plain[i] for i in rows], [digests[i] for i in rows]) for rows in batches]
        if self.stochastic:
            return np.concatenate(scores)
        return np.array([self._log.scores[digest] for digest in digests if digest is not None])

    def _send(self, images: np.ndarray, conditions: list[Condition], digests: list[str | None]) -> np.ndarray:
        """Sends one batch and logs what was returned; only then raises if something is wrong with it."""
        if self._hanging is not None and self._hanging.is_alive():
            raise MeasurementError(f"reward {self.name!r} has still not returned from a call that exceeded its timeout")
        begin = time.perf_counter()
        scores, problem, cause = self._scores(images, conditions)
        seconds = (time.perf_counter() - begin) / len(images)
        self._log.append(
            Query(condition, float(score) if math.isfinite(score) else None, seconds, digest)
            for condition, score, digest in zip(conditions, scores, digests, strict=True)
        )
        if problem:
            raise MeasurementError(f"reward {self.name!r} {problem}; {self._log.status()}") from cause
        return scores

    def _scores(
        self, images: np.ndarray, conditions: list[Condition]
    ) -> tuple[np.ndarray, str | None, BaseException | None]:
        """(scores, NaN where there is none; what is wrong with them; the exception behind it)."""
        none = np.full(len(images), np.nan)
        returned = self._call_with_timeout(images, conditions)
        if returned is None:
            return none, f"did not return {len(images)} scores within its timeout of {self._timeout:g} s", None
        answer, error = returned
        if error is not None and (self.waits or isinstance(error, KeyboardInterrupt)):
            raise error  # nothing was charged: what people have answered is in their own file
        if error is not None:
            return none, f"raised {type(error).__name__}: {error}", error
        scores, problem = check_scores(answer, len(images))
        return (none if scores is None else scores), problem, None

    def _call_with_timeout(
        self, images: np.ndarray, conditions: list[Condition]
    ) -> tuple[Any, BaseException | None] | None:
        """(answer, exception) of the scorer; None if it exceeds the timeout."""
        returned: list[tuple[Any, BaseException | None]] = []

        def work() -> None:
            try:
                returned.append((self._score(images, conditions), None))
            except BaseException as error:  # any: it is the user's code, and the log must be kept
                returned.append((None, error))

        thread = threading.Thread(target=work, name=f"reward {self.name}", daemon=True)
        thread.start()
        thread.join(None if self.waits or math.isinf(self._timeout) else self._timeout)
        if returned:
            return returned[0]
        self._hanging = thread
        return None


def check_conditions(conditions: Sequence[Condition], n: int) -> list[Condition]:
    """The conditions as plain integers and strings; raises unless there are `n`.

    >>> check_conditions(np.array([3, 4]), 2), check_conditions(["cat"], 1)
    ([3, 4], ['cat'])
    """
    require(
        not isinstance(conditions, str), f"conditions: must be a sequence with one entry per image, not {conditions!r}"
    )
    require(len(conditions) == n, f"conditions: {n} images need as many conditions, not {len(conditions)}")
    try:
        return [condition if isinstance(condition, str) else operator.index(condition) for condition in conditions]
    except TypeError as error:
        raise InputError(f"conditions: must be integers (classes) or strings (prompts): {error}") from None


def check_scores(answer: Any, n: int) -> tuple[np.ndarray | None, str | None]:
    """(scores [n] float64 or None, what is wrong with them or None).

    >>> check_scores([0.5, 1.0], 2)
    (array([0.5, 1. ]), None)
    >>> check_scores([[0.5]], 2)
    (None, 'returned scores of shape [1, 1] for 2 images, expected [2]')
    """
    try:
        scores = np.asarray(answer, float)
    except (TypeError, ValueError, RuntimeError) as error:
        return None, f"did not return an array of numbers: {error}"
    if scores.shape != (n,):
        return None, f"returned scores of shape {list(scores.shape)} for {n} images, expected [{n}]"
    wrong = np.flatnonzero(~np.isfinite(scores))
    if wrong.size:
        return scores, f"returned {scores[wrong[0]]} for {wrong.size} of {n} images, first for number {wrong[0]}"
    return scores, None


def weighted(*terms: tuple[float, Scorer]) -> Scorer:
    """Σ wᵢ·rᵢ(images, conditions), itself a scorer.

    >>> twice = weighted((1.5, lambda images, _: np.ones(len(images))), (0.5, lambda images, _: np.ones(len(images))))
    >>> twice(np.zeros((3, 1, 8, 8)), [0, 0, 0]).tolist()
    [2.0, 2.0, 2.0]
    """
    require(len(terms) > 0, "terms: at least one (weight, scorer) is needed")
    for weight, score in terms:
        require(math.isfinite(weight), f"terms: weights must be finite, not {weight}")
        require(callable(score), f"terms: must be (weight, scorer) with a callable scorer, not {score!r}")

    def total(images: np.ndarray, conditions: Sequence[Condition]) -> np.ndarray:
        parts = []
        for weight, score in terms:
            scores, problem = check_scores(score(images, conditions), len(images))
            if scores is None or problem:
                raise MeasurementError(f"{getattr(score, '__name__', type(score).__name__)} {problem}")
            parts.append(weight * scores)
        return np.sum(parts, axis=0)

    return total

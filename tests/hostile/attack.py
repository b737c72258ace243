"""Attacks, trials and their results."""

import hashlib
import random
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Verdict:
    """The result of one trial.

    Main arguments:
        case: the case in words, enough to repeat it.
        failure: what went wrong; None if nothing did.

    Other arguments:
        kind: the class of the case, for counting.
        counts: further numbers that are summed over trials.
    """

    case: str
    failure: str | None = None
    kind: str = ""
    counts: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict:
        """As JSON."""
        return asdict(self)


class Attack(Protocol):
    """A family of trials. One instance serves one warm process."""

    name: str
    shows: str
    """What the attack does, for the page."""
    short: int
    """Number of trials in `make test`."""
    slow: int
    """Number of trials in `make test-all`."""
    full: int
    """Number of trials for docs/reliability.md, or of what `unit` counts."""
    unit: str
    """The count that `full` limits: "trials", or one of the counts of its verdicts."""
    limit: float
    """Seconds of computing, or of waiting without computing, after which a trial counts as hanging."""

    def prepare(self, base: Path) -> None:
        """Makes what all trials share, in `base`."""
        ...

    def trial(self, number: int, folder: Path) -> Verdict:
        """Trial `number`, in the new directory `folder`."""
        ...


def announce(folder: Path, words: str) -> None:
    """Notes the case in `folder` before it is tried, in case that the process does not survive it."""
    (folder.parent / CASE).write_text(words)


CASE = "case.txt"
"""The file with the case that is being tried."""


def chance(*words: object) -> random.Random:
    """Random numbers that depend on `words` only, on every machine and in every process."""
    digest = hashlib.blake2b("/".join(map(str, words)).encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return random.Random(int.from_bytes(digest, "big"))

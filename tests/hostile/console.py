"""Calls of the program in this process, as a terminal would see them."""

import contextlib
import io
import os
import sys
import tempfile
import traceback
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from purectrl import cli

MOST_LINES, LONGEST_LINE = 2, 400
"""What a refused call may print."""


@dataclass(frozen=True)
class Answer:
    """What a call printed and returned. `status` is None if an exception escaped, which is then in `err`."""

    status: int | None
    out: str
    err: str
    value: Any = None


def program(*words: object) -> Answer:
    """The program called with `words`."""
    return observed(lambda: cli.main([str(word) for word in words]))


def observed(function: Callable[[], Any]) -> Answer:
    """Calls `function`, whose value is an exit status if it is an integer; captures the files 1 and 2 of the process."""
    with _captured() as (out, err):
        value = status = None
        try:
            value = function()
            status = value if isinstance(value, int) else 0
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 1
        except Exception:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        texts = [_content(file) for file in (out, err)]
    return Answer(status, *texts, value)


def objections(answer: Answer, *allowed: int) -> list[str]:
    """What is wrong with the form of an answer."""
    found = []
    if answer.status is None or "Traceback (most recent call last)" in answer.err:
        found.append(f"traceback: {answer.err.strip().splitlines()[-1]:.200}")
    elif answer.status not in allowed:
        found.append(f"status {answer.status} instead of {' or '.join(map(str, allowed))}: {answer.err.strip():.160}")
    if answer.status == 2:
        lines = answer.err.strip("\n").split("\n")
        if len(lines) > MOST_LINES:
            found.append(f"{len(lines)} lines: {answer.err.strip():.160}")
        if (longest := max(map(len, lines))) > LONGEST_LINE:
            found.append(f"a line of {longest} characters: {max(lines, key=len):.160}")
        if not answer.err.strip():
            found.append("no message")
    if raw := control_characters(answer.out + answer.err):
        found.append(f"control characters {raw!r:.60} on the terminal")
    return found


def control_characters(text: str) -> str:
    """The characters of `text` that a terminal would obey or that change the order of what is shown."""
    return "".join(sorted({one for one in text if one != "\n" and unicodedata.category(one) in ("Cc", "Cf")}))


@contextlib.contextmanager
def _captured() -> Iterator[tuple[io.FileIO, io.FileIO]]:
    sys.stdout.flush()
    sys.stderr.flush()
    files = [tempfile.TemporaryFile(buffering=0) for _ in range(2)]  # noqa: SIM115
    saved, streams = [os.dup(1), os.dup(2)], (sys.stdout, sys.stderr)
    try:
        for number, file in enumerate(files, 1):
            os.dup2(file.fileno(), number)
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(open(number, "wb", buffering=0, closefd=False), "utf-8", write_through=True)  # noqa: SIM115
            for number in (1, 2)
        )
        yield files[0], files[1]  # type: ignore[misc]
    finally:
        sys.stdout, sys.stderr = streams
        for number, copy in enumerate(saved, 1):
            os.dup2(copy, number)
            os.close(copy)
        for file in files:
            file.close()


def _content(file: io.FileIO) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "surrogateescape")

"""What SIGINT and SIGTERM do to the program `purectrl`, from before its imports until after its last line.

    moment                                 effect of a signal
    -------------------------------------  ------------------------------------------------------------------------
    reading the call, imports, building    the program ends at once; nothing has been written
    inside `unwinding`: writing files      KeyboardInterrupt; temporary files and new directories are removed
    the loop of a run, a sweep             collected; steps in progress are completed and saved (`purectrl.runs.process`)
    after the result                       the program ends at once, with the status of the result

The exit status is 130 for both signals, with one line on standard error. In the first hundredths of a second, in which
Python itself starts, a signal does what it does to Python. Only the program calls `install`; in other
programs the handlers of the user stay as they are. This module imports nothing that takes time.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

STOPPED = 130
"""The exit status of a program that was stopped by the user."""
NUMBERS = signal.SIGINT, signal.SIGTERM

_depth = 0
_received: list[int] = []
_collecting: list[list[int]] = []
_message = b""


def install(message: str = "stopped; nothing was written") -> None:
    """Handles both signals from now on. One that the parent process ignores, as for a background job, stays ignored."""
    global _message
    _message = f"{message}\n".encode() if message else b""
    for number in NUMBERS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _handle)
    sys.unraisablehook = _repeat


def received() -> bool:
    """Whether a signal has arrived. Libraries may turn its KeyboardInterrupt into another exception."""
    return bool(_received)


@contextmanager
def collecting(found: list[int]) -> Iterator[None]:
    """Inside it, signals are collected in `found`, and `stop_requested` knows of them."""
    _collecting.append(found)
    try:
        yield
    finally:
        _collecting.pop()


def stop_requested() -> bool:
    """Whether a run of this process was told to stop after its step: a step that waits for hours ends at once."""
    return any(_collecting)


@contextmanager
def unwinding() -> Iterator[None]:
    """Inside it, a signal raises KeyboardInterrupt, so that what was begun can be removed."""
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1


def finish(status: int) -> None:
    """The result is complete: from now on, a signal ends the program at once with `status`."""
    for number in NUMBERS:
        if signal.getsignal(number) == _handle:
            signal.signal(number, lambda *_: os._exit(status))


def _handle(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    if _depth:
        raise KeyboardInterrupt
    with suppress(OSError):
        os.write(2, _message)
    os._exit(STOPPED)


def _repeat(failure: Any) -> None:
    """Raises a KeyboardInterrupt again that was raised where Python ignores exceptions, such as in a finalizer."""
    if issubclass(failure.exc_type, KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    else:
        sys.__unraisablehook__(failure)

"""What a user sees while a run goes on: a bar with the ledger in it, or plain lines where there is no terminal."""

import contextlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from purectrl.core.ledger import Ledger


class Progress(Protocol):
    """Told of every step."""

    def __call__(self, ledger: Ledger) -> None:
        """Shows where the run is."""
        ...


def ledger_line(ledger: Ledger) -> str:
    """The three scarce things, in words.

    >>> ledger_line(Ledger(rollouts=3, measurements=12, updates=1))
    '12 measurements, 3 rollouts, 1 update'
    """
    counts = (("measurement", ledger.measurements), ("rollout", ledger.rollouts), ("update", ledger.updates))
    return ", ".join(f"{count:,} {word}{'' if count == 1 else 's'}" for word, count in counts)


@contextmanager
def progress(label: str, total: int, quiet: bool) -> Iterator[Progress]:
    """A bar on a terminal; otherwise a line every tenth of the budget; nothing but the end when `quiet`."""
    if quiet:
        yield lambda ledger: None
    elif sys.stderr.isatty():
        with _bar(label, total) as show:
            yield show
    else:
        yield _lines(label, total)


def say(message: str) -> None:
    """A line on standard error. If whoever read it has gone, that is no reason to stop a run."""
    with contextlib.suppress(OSError):
        print(message, file=sys.stderr, flush=True)


def _lines(label: str, total: int) -> Progress:
    shown = -1

    def show(ledger: Ledger) -> None:
        nonlocal shown
        tenth = 10 * ledger.measurements // total
        if tenth > shown:
            shown = tenth
            say(f"{label}: {10 * tenth:3d}%  {ledger_line(ledger)}")

    return show


@contextmanager
def _bar(label: str, total: int) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn(label),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[ledger]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total, ledger="")
        yield lambda ledger: bar.update(task, completed=ledger.measurements, ledger=ledger_line(ledger))

"""What is shown during a run: a progress bar with the ledger, or plain lines where there is no terminal."""

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from purectrl.core.ledger import Ledger
from purectrl.core.text import VALUE, printable

Progress = Callable[[Ledger], None]
"""Called after every step."""


def ledger_line(ledger: Ledger) -> str:
    """The counts of a ledger as text.

    >>> ledger_line(Ledger(rollouts=3, measurements=12, updates=1))
    '12 measurements, 3 rollouts, 1 update'
    """
    counts = (("measurement", ledger.measurements), ("rollout", ledger.rollouts), ("update", ledger.updates))
    return ", ".join(f"{count:,} {word}{'' if count == 1 else 's'}" for word, count in counts)


@contextmanager
def progress(label: str, total: int, quiet: bool) -> Iterator[Progress]:
    """A progress bar on a terminal, otherwise a line per tenth of the budget of `total` measurements; nothing if `quiet`."""
    label = printable(label, VALUE)
    if quiet:
        yield lambda ledger: None
    elif sys.stderr.isatty():
        with _bar(label, total) as show:
            yield show
    else:
        yield _lines(label, total)


def log(message: str) -> None:
    """Prints a line on standard error. A closed standard error does not stop a run."""
    with contextlib.suppress(OSError):
        print(printable(message), file=sys.stderr, flush=True)


@contextmanager
def warnings_on_one_line() -> Iterator[None]:
    """Shows Python's warnings on one line, without source code."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: log(f"warning: {message}")
        yield


def _lines(label: str, total: int) -> Progress:
    shown = -1

    def show(ledger: Ledger) -> None:
        nonlocal shown
        tenth = 10 * ledger.measurements // total
        if tenth > shown:
            shown = tenth
            log(f"{label}: {10 * tenth:3d}%  {ledger_line(ledger)}")

    return show


@contextmanager
def _bar(label: str, total: int) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn(label, markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[ledger]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total, ledger="")
        yield lambda ledger: bar.update(task, completed=ledger.measurements, ledger=ledger_line(ledger))

"""What the commands print about runs."""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from purectrl.core.text import VALUE, printable

if TYPE_CHECKING:
    from purectrl.runs.sweep import Outcome


def follow(outcomes: "Iterable[Outcome]", total: int, out: Path, quiet: bool) -> int:
    """Prints how each run ended, and returns how many finished."""
    finished = 0
    for outcome in outcomes:
        name = os.path.relpath(outcome.job.out, out)
        if outcome.summary is None:
            print(f"failed {printable(f'{name}: {outcome.error}')}", file=sys.stderr, flush=True)
            continue
        finished += 1
        if not quiet:
            print(f"[{finished}/{total}] {name}: {metrics_line(outcome.summary['metrics'])}", flush=True)
    return finished


def metrics_line(metrics: Mapping[str, Any]) -> str:
    """The metrics that fit on a line."""
    shown = ((name, value) for name, value in metrics.items() if isinstance(value, bool | int | float))
    texts = (f"{name} {value}" if isinstance(value, bool | int) else f"{name} {value:.4g}" for name, value in shown)
    return printable(", ".join(printable(text, VALUE) for text in texts))


def show(summary: Mapping[str, Any], out: Path) -> None:
    """Prints what a user wants to know at the end of a run."""
    from purectrl.core.ledger import Ledger
    from purectrl.runs.directory import with_trust
    from purectrl.runs.progress import ledger_line

    ledger = Ledger.from_dict(summary["ledger"])
    status, problem, algorithm, seed = (
        printable(summary[name], VALUE) for name in ("status", "experiment", "algorithm", "seed")
    )
    print(f"{status}: {problem}, {algorithm}, seed {seed}")
    print(f"spent: {ledger_line(ledger)}, {ledger.seconds.total:.1f} s (compiling: {ledger.seconds.compile:.1f} s)")
    print(f"result: {metrics_line(summary['metrics'])}")
    files = sorted(
        f"{path.name}{'/' if path.is_dir() else ''}" for path in out.iterdir() if not path.name.startswith(".")
    )
    print(f"wrote {out}: {printable(', '.join(files))}")
    print(f"next: purectrl evaluate {with_trust(out)}")

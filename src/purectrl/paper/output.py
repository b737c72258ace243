"""Figure, table and numbers of an item from its runs. Reads DIR/ITEM and runs nothing.

DIR/ITEM/figure.png, figure.pdf     DIR/ITEM/table.csv, table.md     DIR/ITEM/numbers.json, written last
"""

import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from purectrl.core.errors import StoreError
from purectrl.core.io import to_json, write_atomically
from purectrl.core.problem import Problem
from purectrl.paper.figures import save
from purectrl.paper.item import Item, read_computed
from purectrl.paper.load import Runs, common_versions, load_runs
from purectrl.paper.results import Analysis


def write_item(item: Item, folder: Path, seeds: Sequence[int], command: str) -> Analysis:
    """Writes figure, table and numbers of `item` into DIR/ITEM and returns the results.

    Main arguments:
        item: what was run.
        folder: DIR/ITEM.
        seeds: the seeds to read; the runs of all of them must have finished.
        command: the command that reproduces the results.
    """
    runs = load_runs(item, folder, seeds)
    analysis = item.analyze(runs, _computed(item, folder))
    folder.mkdir(parents=True, exist_ok=True)  # an item that shares all its runs with others has no directory yet
    save(item.draw, analysis.numbers, folder)
    write_atomically(folder / "table.csv", analysis.table.csv().encode())
    write_atomically(folder / "table.md", f"{analysis.table.markdown()}\n".encode())
    text = to_json(_document(item, runs, seeds, command, analysis))
    write_atomically(folder / "numbers.json", f"{_join_lists(text)}\n".encode())
    return analysis


def _join_lists(text: str) -> str:
    """JSON with each innermost list on one line.

    >>> print(_join_lists(to_json({"x": [1, 2]})))
    {
      "x": [1, 2]
    }
    """
    return re.sub(r"\[\n([^\[\]{}]*?)\n\s*\]", lambda found: f"[{' '.join(found[1].split())}]", text)


def _computed(item: Item, folder: Path) -> dict[str, Any]:
    """The computed numbers of the item; raises if some are missing."""
    kept = read_computed(item, folder)
    for computation in item.computations:
        if computation.name not in kept:
            raise StoreError(
                f"{folder / 'computed.json'} lacks {computation.name!r}; "
                f"`purectrl paper {item.name} --out {folder.parent}` adds it"
            )
    return {computation.name: kept[computation.name] for computation in item.computations}


def _document(
    item: Item, runs: Mapping[str, Runs], seeds: Sequence[int], command: str, analysis: Analysis
) -> dict[str, Any]:
    """The content of numbers.json, which includes the origin of every number."""
    from purectrl.runs.process import versions

    return {
        "item": item.name,
        "shows": item.shows,
        "command": command,
        "seeds": list(seeds) if runs else [],
        "groups": [asdict(one.group) for one in runs.values()],
        "computations": [{"name": computation.name, **computation.arguments} for computation in item.computations],
        "runs": sum(len(one.paths) for one in runs.values()),
        "seconds": _seconds(runs),
        "quick_seconds": _seconds(runs, item.quick),
        "versions": common_versions(runs) or versions(Problem.packages),
        "measured_on": {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()},
        "checks": [asdict(check) for check in analysis.checks],
        "table": asdict(analysis.table),
        "numbers": analysis.numbers,
    }


def _seconds(runs: Mapping[str, Runs], seeds: int | None = None) -> float:
    """Total computing time of all seeds or of the first few."""
    return sum(float(one.seconds("total")[:seeds].sum()) for one in runs.values())

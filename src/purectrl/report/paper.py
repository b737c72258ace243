"""The paper's items from their runs: figure, table, numbers. Reads DIR/ITEM and runs nothing.

DIR/ITEM/figure.png, figure.pdf     DIR/ITEM/table.csv, table.md     DIR/ITEM/numbers.json, written last
"""

import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from purectrl.core.errors import StoreError, choose
from purectrl.experiments.files import to_json, write_atomically
from purectrl.experiments.paper import Item, read_computed
from purectrl.experiments.runner import versions
from purectrl.report import (
    control,
    control_ablations,
    coverage,
    diffusion,
    independency,
    neural,
    rate,
    rollouts,
    samples,
    switches,
)
from purectrl.report.figures import save
from purectrl.report.findings import Findings
from purectrl.report.reading import Runs, common_versions, read_runs


class Report(NamedTuple):
    """How an item is read: from runs and computed values to findings, and from their numbers to a figure."""

    analyse: Callable[[Sequence[Runs], Mapping[str, Any]], Findings]
    draw: Callable[[Mapping[str, Any]], Figure]


REPORTS: Mapping[str, Report] = {
    "thm1-coverage": Report(coverage.analyse, coverage.draw),
    "thm1-rate": Report(rate.analyse, rate.draw),
    "thm2-switches": Report(switches.analyse, switches.draw),
    "thm3-rollouts": Report(rollouts.analyse, rollouts.draw),
    "prop2-independency": Report(independency.analyse, independency.draw),
    "neural-pendulum": Report(neural.analyse, neural.draw),
    "control-main": Report(control.analyse, control.draw),
    "control-updates": Report(control_ablations.analyse_updates, control_ablations.draw),
    "control-frequency": Report(control_ablations.analyse_frequency, control_ablations.draw),
    "diffusion-main": Report(diffusion.analyse_main, diffusion.draw),
    "diffusion-labels": Report(diffusion.analyse_labels, diffusion.draw),
    "diffusion-updates": Report(diffusion.analyse_updates, diffusion.draw),
    "diffusion-frequency": Report(diffusion.analyse_frequency, diffusion.draw),
    "diffusion-samples": Report(samples.analyse, samples.draw),
}


def write(item: Item, folder: Path, seeds: Sequence[int], command: str) -> Findings:
    """Writes figure, table and numbers of `item` into DIR/ITEM and returns what they say.

    Main arguments:
        item: what was run.
        folder: DIR/ITEM.
        seeds: the seeds to read; every one of them must have finished.
        command: what to type to get the same.
    """
    report = REPORTS[choose("item", item.name, REPORTS)]
    runs = read_runs(item, folder, seeds)
    computed = _computed(item, folder)
    findings = report.analyse(runs, computed)
    folder.mkdir(parents=True, exist_ok=True)  # an item whose runs all lie below another has none yet
    save(report.draw, findings.numbers, folder)
    write_atomically(folder / "table.csv", findings.table.csv().encode())
    write_atomically(folder / "table.md", f"{findings.table.markdown()}\n".encode())
    text = to_json(_document(item, runs, seeds, command, findings))
    write_atomically(folder / "numbers.json", f"{_short_lists(text)}\n".encode())
    return findings


def _short_lists(text: str) -> str:
    """JSON with each innermost list on one line: a third of the size, and a reader sees more of it.

    >>> print(_short_lists(to_json({"x": [1, 2]})))
    {
      "x": [1, 2]
    }
    """
    return re.sub(r"\[\n([^\[\]{}]*?)\n\s*\]", lambda found: f"[{' '.join(found[1].split())}]", text)


def _computed(item: Item, folder: Path) -> dict[str, Any]:
    """All that the item computes, and nothing else that the file may hold."""
    kept = read_computed(item, folder)
    names = [computation.name for computation in item.computations]
    missing = [name for name in names if name not in kept]
    if missing:
        raise StoreError(
            f"{folder / 'computed.json'} lacks {missing[0]!r}; `purectrl paper {item.name} --out {folder.parent}` adds it"
        )
    return {name: kept[name] for name in names}


def _document(
    item: Item, runs: Sequence[Runs], seeds: Sequence[int], command: str, findings: Findings
) -> dict[str, Any]:
    """What numbers.json holds: enough to say where every number comes from."""
    return {
        "item": item.name,
        "shows": item.shows,
        "command": command,
        "seeds": list(seeds) if runs else [],
        "groups": [asdict(one.group) for one in runs],
        "computations": [{"name": computation.name, **computation.arguments} for computation in item.computations],
        "runs": sum(len(one.summaries) for one in runs),
        "seconds": _seconds(runs),
        "quick_seconds": _seconds(runs, item.quick),
        "versions": common_versions(runs) or versions(),
        "measured_on": {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()},
        "marks": [asdict(mark) for mark in findings.marks],
        "table": asdict(findings.table),
        "numbers": findings.numbers,
    }


def _seconds(runs: Sequence[Runs], seeds: int | None = None) -> float:
    """Of computing, for all seeds or the first few."""
    return sum(float(one.seconds("total")[:seeds].sum()) for one in runs)

"""The tables and figures of the paper. Each is one module: what is run, how it is read, what it must show, its picture.

To add one, write a module with a function `item() -> Item` and name it in `ITEMS`. Listing the items loads neither JAX nor
matplotlib.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from purectrl import signals
from purectrl.core.errors import choose
from purectrl.paper.item import Item, compute_missing, run_missing

if TYPE_CHECKING:
    from purectrl.runs.sweep import Engine, Outcome

ITEMS: Mapping[str, str] = {
    "thm1-coverage": "purectrl.paper.thm1_coverage",
    "thm1-rate": "purectrl.paper.thm1_rate",
    "thm1-minimax": "purectrl.paper.thm1_minimax",
    "thm1-quotient": "purectrl.paper.thm1_quotient",
    "thm2-switches": "purectrl.paper.thm2_switches",
    "thm2-repair": "purectrl.paper.thm2_repair",
    "thm2-dimension": "purectrl.paper.thm2_dimension",
    "thm3-rollouts": "purectrl.paper.thm3_rollouts",
    "prop2-independency": "purectrl.paper.prop2_independency",
    "neural-pendulum": "purectrl.paper.neural_pendulum",
    "neural-systems": "purectrl.paper.neural_systems",
    "control-main": "purectrl.paper.control_main",
    "control-updates": "purectrl.paper.control_updates",
    "control-frequency": "purectrl.paper.control_frequency",
    "battery": "purectrl.paper.battery",
    "environments": "purectrl.paper.environments",
    "locomotion": "purectrl.paper.locomotion",
    "diffusion-main": "purectrl.paper.diffusion_main",
    "diffusion-labels": "purectrl.paper.diffusion_labels",
    "diffusion-updates": "purectrl.paper.diffusion_updates",
    "diffusion-frequency": "purectrl.paper.diffusion_frequency",
    "diffusion-regimes": "purectrl.paper.diffusion_regimes",
    "diffusion-crossing": "purectrl.paper.diffusion_crossing",
    "diffusion-taste": "purectrl.paper.diffusion_taste",
    "diffusion-fine-tuners": "purectrl.paper.diffusion_fine_tuners",
    "diffusion-curves": "purectrl.paper.diffusion_curves",
    "diffusion-samples": "purectrl.paper.diffusion_samples",
}
"""Every item and the module that defines it."""


def load_item(name: str) -> Item:
    """The item called `name`; an unknown name is refused with the nearest known one."""
    return importlib.import_module(ITEMS[choose("item", name, ITEMS)]).item()


def describe_items() -> str:
    """A line per item: what it shows, its number of runs, its cost."""
    lines, width = [], max(map(len, ITEMS)) + 2
    for item in map(load_item, ITEMS):
        full, quick = (item.count(item.chosen_seeds(few)) for few in (False, True))
        count = f"{full} runs ({quick} with --quick)" if item.groups else "no runs"
        lines.append(f"{item.name:{width}}{item.shows}; {count}, {item.cost}")
    return "\n".join(lines)


def make_item(
    item: Item | str,
    out: Path,
    quick: bool,
    engine: "Engine",
    quiet: bool,
    follow: "Callable[[Iterator[Outcome], int, Path, bool], int]",
    seeds: Sequence[int] | None = None,
    command: str | None = None,
) -> int:
    """Runs and computes what is missing of an item, writes its files and prints a line per check.

    Returns the exit status: 0, or 1 if a run failed; then nothing is drawn.

    Main arguments:
        item: the item or its name.
        out: the directory; the item is written to ITEM in it.
        quick: whether to use fewer seeds.
        engine: where the runs are computed.
        quiet: whether to show no progress.
        follow: (outcomes, their number, out, quiet) -> number of finished runs; prints how each run ended.
        seeds: other seeds than those of the item.
        command: what reproduces the result; by default `purectrl paper`.
    """
    from purectrl.paper.output import write_item

    item = load_item(item) if isinstance(item, str) else item
    folder, seeds = out / item.name, item.chosen_seeds(quick) if seeds is None else seeds
    total = item.count(seeds)
    finished = follow(run_missing(item, folder, seeds, engine), total, out, quiet)
    if finished < total:
        print(f"{finished} of {total} runs finished in {folder}; nothing is drawn. The same command continues.")
        return 1
    command = command or f"purectrl paper {item.name} --out DIR" + (" --quick" if quick and item.groups else "")
    try:
        with signals.unwinding():
            for name in compute_missing(item, folder):
                if not quiet:
                    print(f"computed {name}", flush=True)
            checks = write_item(item, folder, seeds, command).checks
    except KeyboardInterrupt:
        raise KeyboardInterrupt("what is finished is kept: the same command continues") from None
    for check in checks:
        print(f"{'passed' if check.passed else 'FAILED'}: {check.criterion}: {check.observed}")
    print(f"wrote {folder}: figure.png, figure.pdf, table.csv, table.md, numbers.json")
    return 0

"""What an item of the paper is: the runs that a figure and table of `purectrl paper` is made of.

An item is a list of groups (an experiment, an algorithm, some settings), each run with every seed, and perhaps numbers that
need no run. What they say is worked out in `purectrl.report`, which reads what is left here and runs nothing.

    DIR/ITEM/runs/<group>/<algorithm>-seed<k>/     the runs; those that are finished are never repeated
    DIR/ITEM/computed.json                         the numbers that need no run

The items themselves are in `purectrl.experiments.items`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from purectrl.core.errors import InputError, StoreError
from purectrl.experiments.registry import experiment
from purectrl.experiments.runner import Spec, versions

if TYPE_CHECKING:  # the list of items needs no JAX
    from purectrl.experiments.sweep import Engine, Job, Outcome


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed alone.

    Main arguments:
        name: their directory; groups with different algorithms may share one.
        label: what figures and tables call the series that they are a point of.
        settings: what differs from the algorithm's preset.
        most_seeds: run with no more than so many of the item's seeds, the first ones.
        home: the item below whose directory the runs lie, if another item has them, too.
    """

    name: str
    label: str
    experiment: str
    algorithm: str
    settings: Mapping[str, Any]
    most_seeds: int | None = None
    home: str | None = None

    def spec(self, seed: int) -> Spec:
        """One of the runs."""
        return Spec.of(self.experiment, self.algorithm, seed, **self.settings)


@dataclass(frozen=True)
class Computation:
    """Numbers that need no run: `function(**arguments)`, a JSON value, computed once and kept in `computed.json`."""

    name: str
    function: Callable[..., Any]
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Item:
    """One figure with its table.

    Main arguments:
        shows: what it shows, with the paper's label.
        groups: what to run.
        seeds, quick: how many seeds, and how many with `--quick`: the runs themselves are the same.
        cost: how long it takes, roughly, on two cores.
        computations: what to compute besides.
    """

    name: str
    shows: str
    groups: tuple[Group, ...] = ()
    seeds: int = 10
    quick: int = 4
    cost: str = "seconds"
    computations: tuple[Computation, ...] = ()

    def __post_init__(self) -> None:
        places = [(group.name, group.algorithm) for group in self.groups]
        if len(set(places)) < len(places):
            raise InputError(f"groups: two groups of {self.name} would write into the same directory; rename one")

    def chosen_seeds(self, quick: bool) -> range:
        """The seeds of the item, or the first few of them."""
        return range(self.quick if quick else self.seeds)

    def jobs(self, folder: Path, group: Group, seeds: Sequence[int]) -> "list[Job]":
        """The runs of one group below DIR/ITEM, one for each seed."""
        from purectrl.experiments.sweep import Job

        folder = folder.absolute()
        runs = (folder.parent / group.home if group.home else folder) / "runs" / group.name
        chosen = seeds[: group.most_seeds]
        return [Job(group.spec(seed), runs / f"{group.algorithm}-seed{seed}") for seed in chosen]

    def count(self, quick: bool) -> int:
        """How many runs the item consists of."""
        return sum(len(self.chosen_seeds(quick)[: group.most_seeds]) for group in self.groups)


def run_missing(item: Item, folder: Path, seeds: Sequence[int], engine: "Engine") -> "Iterator[Outcome]":
    """Yields the outcome of every run of `item` below DIR/ITEM, all groups in one call of the engine."""
    from purectrl.experiments.sweep import complete

    nearest = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise StoreError(f"{nearest} is a file; --out takes a directory")
    jobs = [job for group in item.groups for job in item.jobs(folder, group, seeds)]
    _refuse_foreign(jobs)
    yield from complete(jobs, engine)


def _refuse_foreign(jobs: "Sequence[Job]") -> None:
    """Raises if new runs would be averaged with runs of other versions; runs that are all there may be of any."""
    from purectrl.experiments.store import read_config

    begun = [job for job in jobs if (job.out / "config.json").exists()]
    if all((job.out / "summary.json").exists() for job in jobs):
        return
    for job in begun:
        found, ours = read_config(job.out)["versions"], versions(experiment(job.spec.experiment).packages)
        if found != ours:
            other = [f"{name} {found.get(name)}" for name in ours if found.get(name) != ours[name]]
            raise StoreError(
                f"{job.out} was run with {', '.join(other)}, unlike what is installed: one mean must not mix both; "
                "take another --out"
            )


def compute_missing(item: Item, folder: Path) -> Iterator[str]:
    """Yields the name of every computation of `item` that was not in DIR/ITEM/computed.json, once it is there."""
    from purectrl.experiments.files import write_json

    kept = read_computed(item, folder)
    for computation in item.computations:
        if computation.name in kept:
            continue
        arguments = dict(computation.arguments)
        kept[computation.name] = {"arguments": arguments, "value": computation.function(**arguments)}
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "computed.json", kept)
        yield computation.name


def read_computed(item: Item, folder: Path) -> dict[str, Any]:
    """DIR/ITEM/computed.json, as far as it goes; refused if something in it was computed with other arguments."""
    from purectrl.experiments.files import read_json

    path = folder / "computed.json"
    kept = read_json(path) if path.exists() else {}
    if not isinstance(kept, dict) or not all(isinstance(entry, dict) and "value" in entry for entry in kept.values()):
        raise StoreError(f"{path} is not what `purectrl paper` leaves: remove it, then run the item again")
    for computation in item.computations:
        if computation.name in kept and kept[computation.name].get("arguments") != dict(computation.arguments):
            raise StoreError(f"{path}: {computation.name!r} was computed with other arguments; take another --out")
    return kept

"""What an item of the paper is, and how to run and compute what is missing of it.

An item consists of groups (a problem, an algorithm, some settings), each run with every seed, and of numbers that need no
run.

    DIR/ITEM/runs/GROUP/seedK/     the runs; finished runs are never repeated
    DIR/ITEM/computed.json         the numbers that need no run
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from purectrl.core.errors import InputError, StoreError
from purectrl.core.io import check_below, exists, read_json, write_json
from purectrl.core.output_paths import require_creatable

if TYPE_CHECKING:  # the list of items needs neither JAX nor matplotlib
    from matplotlib.figure import Figure

    from purectrl.paper.load import Runs
    from purectrl.paper.results import Analysis
    from purectrl.runs.spec import RunSpec
    from purectrl.runs.sweep import Engine, Job, Outcome


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed.

    Main arguments:
        name: identifies the group in its item, and names its directory.
        label: name in figures and tables of the series that the group is a point of.
        arguments, overrides: what differs from the defaults of the problem and of the algorithm, as in `RunSpec.of`.
        measurements: the budget N; None is the problem's default.
        most_seeds: the group is run with at most this many seeds of the item, the first ones.
        home: "ITEM/GROUP" if the runs are those of another item.
    """

    name: str
    label: str
    problem: str
    algorithm: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    measurements: int | None = None
    most_seeds: int | None = None
    home: str | None = None

    def spec(self, seed: int = 0) -> "RunSpec":
        """The run with this seed."""
        from purectrl.runs.spec import RunSpec

        return RunSpec.of(
            self.problem,
            self.algorithm,
            seed,
            measurements=self.measurements,
            arguments=self.arguments,
            overrides=self.overrides,
        )


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
        analyze: the runs of each group, by its name, and the computed numbers, by theirs -> results.
        draw: the numbers of the results -> figure.
        groups: what to run.
        seeds, quick: the number of seeds, and the smaller number with `--quick`; the runs themselves are the same.
        cost: approximate duration on two cores.
        computations: what to compute without runs.
    """

    name: str
    shows: str
    analyze: "Callable[[Mapping[str, Runs], Mapping[str, Any]], Analysis]"
    draw: "Callable[[Mapping[str, Any]], Figure]"
    groups: tuple[Group, ...] = ()
    seeds: int = 10
    quick: int = 4
    cost: str = "seconds"
    computations: tuple[Computation, ...] = ()

    def __post_init__(self) -> None:
        if len({group.name for group in self.groups}) < len(self.groups):
            raise InputError(f"groups: two groups of {self.name} have the same name; rename one")

    def chosen_seeds(self, quick: bool) -> range:
        """All seeds of the item, or the first few."""
        return range(self.quick if quick else self.seeds)

    def jobs(self, folder: Path, group: Group, seeds: Sequence[int]) -> "list[Job]":
        """The runs of one group below DIR/ITEM, one per seed."""
        from purectrl.runs.sweep import Job

        item, _, name = (group.home or f"{self.name}/{group.name}").partition("/")
        runs, spec = folder.absolute().parent / item / "runs" / name, group.spec()
        return [Job(spec.with_seed(seed), runs / f"seed{seed}") for seed in seeds[: group.most_seeds]]

    def count(self, seeds: Sequence[int]) -> int:
        """The number of runs with these seeds."""
        return sum(len(seeds[: group.most_seeds]) for group in self.groups)


def run_missing(item: Item, folder: Path, seeds: Sequence[int], engine: "Engine") -> "Iterator[Outcome]":
    """Yields the outcome of every run of `item` below DIR/ITEM; all groups share one call of the engine."""
    from purectrl.runs.sweep import run_missing as run_jobs

    require_creatable(folder)
    jobs = [job for group in item.groups for job in item.jobs(folder, group, seeds)]
    for path in (folder.absolute(), *(job.out for job in jobs)):
        check_below(folder.absolute().parent, path)
    if jobs and not all((job.out / "summary.json").exists() for job in jobs):
        begun = [job.out for job in jobs if (job.out / "config.json").exists()]
        check_versions(begun, jobs[0].spec.as_dict()["versions"], "new runs")
    yield from run_jobs(jobs, engine)


def check_versions(paths: Iterable[Path], expected: Mapping[str, str], others: str) -> None:
    """Raises unless every run in `paths` began and ended with the package versions of `others`."""
    from purectrl.runs.directory import read_config, read_summary

    for path in paths:
        for source in (read_config(path), read_summary(path)):
            versions = expected if source is None else source.get("versions")
            if not isinstance(versions, dict):
                raise StoreError(f"{path / 'summary.json'} does not name the package versions of the run")
            if versions != expected:
                name = next(name for name in {**expected, **versions} if versions.get(name) != expected.get(name))
                raise StoreError(
                    f"{path} was run with {name} {versions.get(name)}, {others} with {name} {expected.get(name)}: one mean "
                    "must not mix both; use another output directory, or remove the runs of one version"
                )


def compute_missing(item: Item, folder: Path) -> Iterator[str]:
    """Computes what DIR/ITEM/computed.json lacks, and yields the name of each computation once it is stored."""
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
    """The content of DIR/ITEM/computed.json so far; raises if something in it was computed with other arguments."""
    path = folder / "computed.json"
    kept = read_json(path) if exists(path) else {}
    if not isinstance(kept, dict) or not all(isinstance(entry, dict) and "value" in entry for entry in kept.values()):
        raise StoreError(f"{path} was not written by `purectrl paper`: remove it, then run the item again")
    for computation in item.computations:
        if computation.name in kept and kept[computation.name].get("arguments") != dict(computation.arguments):
            raise StoreError(
                f"{path}: {computation.name!r} was computed with other arguments; use another output directory"
            )
    return kept

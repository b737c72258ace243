"""The runs of an item, read back. What is missing, half finished or made otherwise is named and refused, never left out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from purectrl.core.errors import StoreError
from purectrl.experiments.paper import Group, Item
from purectrl.experiments.store import read_config, read_summary
from purectrl.experiments.sweep import Job


@dataclass(frozen=True)
class Runs:
    """The finished runs of one group, in the order of their seeds.

    Main arguments:
        group: what they have in common.
        places: their directories.
        summaries: what they left.
    """

    group: Group
    places: tuple[Path, ...]
    summaries: tuple[dict[str, Any], ...]

    def metric(self, name: str) -> np.ndarray:
        """A metric of every run [seeds]."""
        return self._column("metrics", name)

    def lists(self, name: str) -> list[list[Any]]:
        """A metric of every run that is a list."""
        for place, run in self.pairs():
            if not isinstance(run["metrics"].get(name), list):
                raise StoreError(f"{place / 'summary.json'} has no {name}; was it made with another version?")
        return [run["metrics"][name] for run in self.summaries]

    def spent(self, name: str) -> np.ndarray:
        """Rollouts, measurements or updates of every run [seeds]."""
        return self._column("ledger", name)

    def seconds(self, phase: str) -> np.ndarray:
        """Seconds in a phase of every run [seeds]."""
        return np.array([_number(place, run["ledger"]["seconds"], phase) for place, run in self.pairs()])

    def setting(self, name: str) -> Any:
        """A setting of the group, the preset's unless the group changes it."""
        return getattr(self.group.spec(0).settings, name)

    def _column(self, part: str, name: str) -> np.ndarray:
        return np.array([_number(place, run[part], name) for place, run in self.pairs()])

    def pairs(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Each directory with its summary."""
        return zip(self.places, self.summaries, strict=True)


def read_runs(item: Item, folder: Path, seeds: Sequence[int]) -> list[Runs]:
    """Every group of `item` from DIR/ITEM, complete."""
    jobs = {number: item.jobs(folder, group, seeds) for number, group in enumerate(item.groups)}
    every = [job for group in jobs.values() for job in group]
    missing = [job for job in every if not job.finished()]
    if missing:
        raise StoreError(
            f"{len(missing)} of {len(every)} runs of {item.name} are missing or have not finished, the first is "
            f"{missing[0].out}; `purectrl paper {item.name} --out {folder.parent}` runs them"
        )
    found = [
        Runs(group, tuple(job.out for job in jobs[number]), tuple(_summary(job) for job in jobs[number]))
        for number, group in enumerate(item.groups)
    ]
    _refuse_mixture(found)
    return found


def common_versions(runs: Sequence[Runs]) -> dict[str, str]:
    """The versions that all runs were made with; empty if there are none."""
    return dict(runs[0].summaries[0]["versions"]) if runs else {}


def _summary(job: Job) -> dict[str, Any]:
    """A summary that says what its place says."""
    found = read_summary(job.out)
    assert found is not None  # the caller has seen that it is finished
    wanted = {"experiment": job.spec.experiment, "algorithm": job.spec.algorithm, "seed": job.spec.seed}
    for name, value in ({"status": "finished"} | wanted).items():
        if found[name] != value:
            raise StoreError(f"{job.out / 'summary.json'}: {name} is {found[name]!r} and should be {value!r}")
    if not isinstance(found.get("versions"), dict):
        raise StoreError(f"{job.out / 'summary.json'} does not say which versions it was made with")
    return found


def _refuse_mixture(found: Sequence[Runs]) -> None:
    """Raises unless every run began and ended with the same versions."""
    common = common_versions(found)
    for runs in found:
        for place, summary in runs.pairs():
            for versions in (read_config(place)["versions"], summary["versions"]):
                if versions != common:
                    name = next(name for name in {**common, **versions} if versions.get(name) != common.get(name))
                    raise StoreError(
                        f"{place} was made with {name} {versions.get(name)}, other runs with {name} {common.get(name)}: "
                        "one mean must not mix both; remove the runs of one version, or take another --out"
                    )


def _number(place: Path, values: dict[str, Any], name: str) -> float:
    value = values.get(name)
    if not isinstance(value, bool | int | float):  # NaN and infinities are written as null
        raise StoreError(f"{place / 'summary.json'}: {name} is {value!r} and should be a number")
    return float(value)

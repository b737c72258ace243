"""The finished runs of an item. Missing, unfinished or inconsistent runs are named and refused, never skipped."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from purectrl.core.errors import StoreError
from purectrl.core.keys import Key
from purectrl.paper.item import Group, Item, check_versions
from purectrl.paper.statistics import interquartile_mean, mean_interval, sd

if TYPE_CHECKING:
    from purectrl.runs.sweep import Job

KEY = Key.from_seed(0).child("report")
"""The key of all bootstrap samples: the same runs give the same intervals."""


@dataclass(frozen=True)
class Runs:
    """The finished runs of one group, in the order of their seeds."""

    group: Group
    paths: tuple[Path, ...]
    """Their directories."""
    summaries: tuple[dict[str, Any], ...]
    """Their `summary.json`."""

    @property
    def seeds(self) -> list[int]:
        """The seed of every run."""
        return [summary["seed"] for summary in self.summaries]

    def metric(self, name: str) -> np.ndarray:
        """A metric of every run [seeds]."""
        return self._numbers(lambda summary: summary["metrics"].get(name), name)

    def lists(self, name: str) -> list[list[Any]]:
        """A metric of every run that is a list."""
        for path, summary in self.pairs():
            if not isinstance(summary["metrics"].get(name), list):
                raise StoreError(f"{path / 'summary.json'} has no {name}; it may come from another version")
        return [summary["metrics"][name] for summary in self.summaries]

    def ledger(self, name: str) -> np.ndarray:
        """Rollouts, measurements or updates of every run [seeds]."""
        return self._numbers(lambda summary: summary["ledger"].get(name), name)

    def seconds(self, phase: str) -> np.ndarray:
        """Seconds in a phase of every run [seeds]."""
        return self._numbers(lambda summary: summary["ledger"]["seconds"].get(phase), phase)

    def records(self) -> list[list[dict[str, Any]]]:
        """The records of every run."""
        from purectrl.runs.directory import read_records

        found = [read_records(path) for path in self.paths]
        for path, records in zip(self.paths, found, strict=True):
            if not records:
                raise StoreError(f"{path / 'records.jsonl'} has no records; run the item again")
        return found

    def pairs(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Each directory with its summary."""
        return zip(self.paths, self.summaries, strict=True)

    def _numbers(self, read: Callable[[dict[str, Any]], Any], name: str) -> np.ndarray:
        values = [read(summary) for summary in self.summaries]
        for path, value in zip(self.paths, values, strict=True):
            if not isinstance(value, bool | int | float):  # NaN and infinities are written as null
                raise StoreError(f"{path / 'summary.json'}: {name} is {value!r} and should be a number")
        return np.array(values, np.float64)


Quantity = Callable[[Runs], np.ndarray]
"""A number per run of a group [seeds]."""


def budget(runs: Runs) -> int:
    """N, the measurement budget of every run of a group."""
    return runs.group.measurements or runs.group.spec().budget.measurements


def gap(runs: Runs) -> np.ndarray:
    """The average regret of every run [seeds]."""
    return runs.metric("gap")


def updates(runs: Runs) -> np.ndarray:
    """The number of policy updates of every run [seeds]."""
    return runs.ledger("updates")


def policy_changes(runs: Runs) -> np.ndarray:
    """The number of updates of every run after which the plan was another one [seeds]."""
    return runs.ledger("policy_changes")


def load_runs(item: Item, folder: Path, seeds: Sequence[int]) -> dict[str, Runs]:
    """The runs of every group of `item` from DIR/ITEM, by the name of the group; raises unless all have finished."""
    jobs = {group.name: item.jobs(folder, group, seeds) for group in item.groups}
    all_jobs = [job for group in jobs.values() for job in group]
    missing = [job for job in all_jobs if not job.finished()]
    if missing:
        raise StoreError(
            f"{len(missing)} of {len(all_jobs)} runs of {item.name} are missing or have not finished, the first is "
            f"{missing[0].out}; `purectrl paper {item.name} --out {folder.parent}` runs them"
        )
    found = {
        group.name: Runs(
            group, tuple(job.out for job in jobs[group.name]), tuple(_summary(job) for job in jobs[group.name])
        )
        for group in item.groups
    }
    check_versions([job.out for job in all_jobs], common_versions(found), "other runs")
    return found


def common_versions(runs: Mapping[str, Runs]) -> dict[str, str]:
    """The package versions of the runs; empty if there are no runs."""
    return next((summary.get("versions") or {} for one in runs.values() for summary in one.summaries), {})


def by_label(found: Mapping[str, Runs]) -> dict[str, list[Runs]]:
    """The groups of each series, by its label, in the order in which the labels first appear."""
    series: dict[str, list[Runs]] = {}
    for runs in found.values():
        series.setdefault(runs.group.label, []).append(runs)
    return series


def matrix(found: Sequence[Runs], quantity: Quantity) -> np.ndarray:
    """A quantity of several groups [seeds, groups]."""
    return np.stack([quantity(runs) for runs in found], axis=1)


def curve(found: Sequence[Runs], x: Callable[[Runs], float], quantity: Quantity, name: str) -> dict[str, Any]:
    """Groups as points of a curve: "x", "mean" with "low" and "high", "sd", "iqm", and "seeds", all values, sorted by x."""
    ordered = sorted(found, key=x)
    columns = matrix(ordered, quantity).T
    means = [mean_interval(KEY.child(name, number), column) for number, column in enumerate(columns)]
    return {
        "x": [x(runs) for runs in ordered],
        "mean": [interval.value for interval in means],
        "low": [interval.low for interval in means],
        "high": [interval.high for interval in means],
        "sd": [sd(column) for column in columns],
        "iqm": [interquartile_mean(column) for column in columns],
        "seeds": columns.tolist(),
    }


def _summary(job: "Job") -> dict[str, Any]:
    """The summary of a finished job; raises if it is that of another run."""
    from purectrl.runs.directory import read_summary

    found = read_summary(job.out)
    assert found is not None  # the caller has checked that the job is finished
    expected = {"experiment": job.spec.name, "algorithm": job.spec.algorithm.name, "seed": job.spec.seed}
    for name, value in ({"status": "finished"} | expected).items():
        if found[name] != value:
            raise StoreError(f"{job.out / 'summary.json'}: {name} is {found[name]!r} and should be {value!r}")
    return found

"""Reads one run directory, which can be unfinished, damaged or of another version.

This module and `records` contain everything that depends on the files of a run and on the names of its settings.
"""

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from purectrl.core.errors import StoreError
from purectrl.core.io import exists, read_json, to_json, without_checksum
from purectrl.core.ledger import Ledger
from purectrl.core.problem import Criterion
from purectrl.core.text import VALUE, printable
from purectrl.report.page.records import COUNTERS, Records, read_records
from purectrl.runs.directory import Description, describe, read_config, read_summary, verify_finished

EVALUATED = "evaluation_rollouts"
PHASES = ("rollout", "fit", "plan", "compile")
"""The phases by which a summary divides the seconds."""


@dataclass(frozen=True)
class Run:
    """The files of a run.

    Main arguments:
        directory: its directory.
        config: the content of `config.json`.
        summary: the content of `summary.json`; None if the run has not finished.
        records: the content of `records.jsonl`.

    Other arguments:
        evaluation: the result of `purectrl evaluate`; None if it has not been run.
        notes: remarks for the reader.
    """

    directory: Path
    config: Mapping[str, Any]
    summary: Mapping[str, Any] | None
    records: Records
    evaluation: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def description(self) -> Description:
        """What was run."""
        return describe(self.config)

    @property
    def problem(self) -> str:
        """The name of the problem."""
        return self.description.problem

    @property
    def reference(self) -> str:
        """Where the problem comes from: a shipped name or a file; empty if that is unknown."""
        found = _stated(self.config, "reference")
        return found if isinstance(found, str) else ""

    @property
    def algorithm(self) -> str:
        """The name of the algorithm."""
        return self.description.algorithm

    @property
    def seed(self) -> int:
        """The seed."""
        return self.config["seed"]

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings by path, such as `sampler.m`."""
        return self.description.settings

    @property
    def finished(self) -> bool:
        """Whether the run has finished. Means contain finished runs only."""
        return self.summary is not None

    @property
    def versions(self) -> Mapping[str, Any]:
        """The package versions at the end of the run, or at its start if it has not finished."""
        return (self.summary or self.config)["versions"]

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The final metrics; those of the newest evaluation if the run has not finished."""
        found = self.summary["metrics"] if self.summary else self.records.newest("eval_")
        return found if (met := self._criterion_met(found)) is None else {**found, "criterion_met": met}

    @cached_property
    def criterion(self) -> Criterion | None:
        """When the problem counts as solved; None if it does not say."""
        found = _stated(self.config, "criterion")
        if not isinstance(found, dict) or not _is_number(found.get("least")):
            return None
        metric, about = found.get("metric"), found.get("about")
        if not isinstance(metric, str) or not isinstance(about, str):
            return None
        return Criterion(metric, float(found["least"]), printable(about, VALUE))

    def _criterion_met(self, metrics: Mapping[str, Any]) -> bool | None:
        return None if self.criterion is None else self.criterion.met(metrics)

    @property
    def abort_reward(self) -> float:
        """What the rewards that learners see are relative to."""
        found = _stated(self.config, "abort_reward")
        return float(found) if _is_number(found) else 0.0

    @property
    def result(self) -> str | None:
        """The column by which policies of this problem are compared; None if it does not say, or has not recorded it."""
        found = _stated(self.config, "result")
        return f"eval_{found}" if f"eval_{found}" in self.records.columns else None

    @cached_property
    def kind(self) -> str:
        """Everything but the seed: runs of the same kind may be averaged."""
        return json.dumps(
            [*self.description[:3], self.reference, self.config["versions"], self.versions], sort_keys=True
        )

    @property
    def ledger(self) -> Mapping[str, Any]:
        """The costs. Those of an unfinished run come from its records, which do not divide the seconds by phase."""
        if self.summary:
            return self.summary["ledger"]
        counts = {name: int(self.records.last(name)) for name in COUNTERS[:3]}
        evaluated = int(np.nansum(self.records.columns.get(EVALUATED, 0)))
        return {**counts, EVALUATED: evaluated, "seconds": {"total": self.records.last("seconds")}}

    @property
    def horizon(self) -> float | None:
        """The length of an episode; None if the configuration does not contain it."""
        return float(self.description.horizon) if _is_number(self.description.horizon) else None

    @property
    def threshold(self) -> float | None:
        """The excess loss, in units of β, at which the run updates; None for other schedules."""
        threshold = self.description.schedule.get("threshold")
        return threshold if _is_number(threshold) else None


def _stated(config: Mapping[str, Any], name: str) -> Any:
    """What the problem in a configuration says about itself; None if it says nothing."""
    problem = config.get("problem")
    return problem.get(name) if isinstance(problem, dict) else None


def read_run(directory: Path) -> Run:
    """Reads the run in `directory`; raises `StoreError` if its files are damaged or inconsistent."""
    config = _read_config(directory)
    summary = _read_summary(directory, config)
    records, notes = read_records(directory / "records.jsonl", finished=summary is not None)
    if summary is None:
        notes.insert(0, f"{directory} has not finished: it is shown, but not included in means")
    else:
        for name in COUNTERS[:3]:
            if records.last(name) != summary["ledger"][name]:
                raise StoreError(
                    f"{directory / 'records.jsonl'} ends at {records.last(name):,.0f} {name}, but summary.json has "
                    f"{summary['ledger'][name]:,}: records are missing"
                )
        verify_finished(directory)
    return Run(directory, config, summary, records, _read_evaluation(directory, notes), tuple(notes))


def _read_config(directory: Path) -> dict[str, Any]:
    config = read_config(directory, formats=(1, 2))
    _check_integers(directory / "config.json", config)
    try:
        describe(config)
    except StoreError as error:
        raise StoreError(f"{directory / 'config.json'}: {error}") from None
    return config


def _read_summary(directory: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """A summary that matches `config` and contains the whole ledger."""
    summary, file = read_summary(directory), directory / "summary.json"
    if summary is None:
        return None
    _check_integers(file, summary)
    found = describe(config)
    name = _stated(config, "name") or found.problem
    expected = {"status": "finished", "experiment": name, "algorithm": found.algorithm, "seed": config["seed"]}
    for name, value in expected.items():
        if summary[name] != value:
            raise StoreError(f"{file}: {name} is {summary[name]!r:.60}, expected {value!r:.60}")
    if not isinstance(summary.get("versions"), dict):
        raise StoreError(f"{file} does not contain the package versions")
    if not all(map(math.isfinite, Ledger.from_dict(summary["ledger"]).seconds)):
        raise StoreError(f"{file}: its ledger does not contain the seconds of each phase")
    return summary


def _read_evaluation(directory: Path, notes: list[str]) -> dict[str, Any] | None:
    """The result of `purectrl evaluate`; if it cannot be read, a note is added."""
    file = directory / "evaluation.json"
    if not exists(file):
        return None
    try:
        evaluation = read_json(file)
        _check_integers(file, evaluation)
        numbers = isinstance(evaluation, dict) and all(
            type(evaluation.get(name)) is int for name in ("episodes", "seed")
        )
        if not numbers or not isinstance(evaluation.get("metrics"), dict):
            raise StoreError(f"{file} was not written by `purectrl evaluate`")
        evaluation = without_checksum(evaluation, str(file))
    except StoreError as error:
        notes.append(f"{error}; the evaluation is not shown")
        return None
    shown = {name: evaluation.get(name) for name in ("episodes", "seed", "metrics")}
    return json.loads(to_json(shown, indent=None))  # without NaN and infinities


def _check_integers(file: Path, content: object) -> None:
    """Raises if `content` contains an integer, at any depth, that exceeds the range of float64."""
    stack: list[tuple[str, Any]] = [("", content)]
    while stack:
        name, value = stack.pop()
        if isinstance(value, dict):
            stack += value.items()
        elif isinstance(value, list):
            stack += [(name, item) for item in value]
        elif isinstance(value, int) and abs(value) > sys.float_info.max:
            raise StoreError(f"{file}: {name} exceeds the range of float64")


def _is_number(value: object) -> TypeGuard[float]:
    """Whether `value` is a finite number, and not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def update_rule(schedule: Mapping[str, Any]) -> str:
    """When a run updates its policy, in words.

    >>> update_rule({"name": "on-excess-loss", "threshold": 5.0})
    'when the excess loss of a model reaches 5 β; renews it'
    >>> update_rule({"name": "batches", "sizes": [4, 4, 4], "update": "before", "initial": 7})
    'at the start of each of 3 batches of 4 episodes, after 7 episodes of exploration'
    """
    rules = {
        "every": lambda k=1: "after every episode" if k == 1 else f"after every {k} episodes",
        "batches": _batch_rule,
        "equal-batches": lambda size, update, initial: f"at the {_side(update)} of batches of {size} episodes",
        "doubling-batches": lambda first, update, initial: (
            f"at the {_side(update)} of batches of {first}, {2 * first}, …"
        ),
        "growing-batches": lambda updates, growth: f"{updates} times, at the ends of batches that grow by {growth:g}",
        "geometric": lambda first, growth, initial: f"when the number of measurements has grown by {growth:g}",
        "on-excess-loss": lambda threshold, initial=0, renew="failed": (
            f"when the excess loss of a model reaches {threshold:g} β; renews {'both models' if renew == 'both' else 'it'}"
        ),
    }
    values = {name: value for name, value in schedule.items() if name != "name"}
    try:
        return rules[schedule["name"]](**values)
    except (KeyError, TypeError, ValueError):  # a schedule of the user's own, or damaged values
        return f"by the schedule {schedule.get('name')!r:.60}"


def _side(update: str) -> str:
    return "start" if update == "before" else "end"


def _batch_rule(sizes: list[int], update: str, initial: int) -> str:
    equal = len(set(sizes)) == 1 and len(sizes) > 1
    batches = f"{len(sizes)} batches of {sizes[0]}" if equal else f"the batches of {', '.join(map(str, sizes))}"
    explored = f", after {initial} episodes of exploration" if initial else ""
    return f"at the {_side(update)} of each of {batches} episode{'' if set(sizes) == {1} else 's'}{explored}"

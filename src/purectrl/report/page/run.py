"""One run directory, read with suspicion: it may be unfinished, of another version, or damaged."""

import json
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from purectrl.core.errors import StoreError
from purectrl.experiments.files import read_json, to_json
from purectrl.experiments.registry import EVALUATED
from purectrl.experiments.store import read_config, read_summary
from purectrl.report.page.records import COUNTERS, Records, read_records

PHASES = ("rollout", "fit", "plan", "compile")
"""What the seconds of a summary are split into."""


@dataclass(frozen=True)
class Run:
    """What a run has left so far.

    Main arguments:
        place: its directory.
        config: what `config.json` says.
        summary: what `summary.json` says; None if the run has not finished.
        records: what `records.jsonl` says.

    Other arguments:
        evaluation: what `purectrl evaluate` found; None if nobody asked.
        notes: what a reader should know about this run.
    """

    place: Path
    config: dict[str, Any]
    summary: dict[str, Any] | None
    records: Records
    evaluation: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @property
    def experiment(self) -> str:
        """Its name."""
        return self.config["experiment"]

    @property
    def algorithm(self) -> str:
        """Its name."""
        return self.config["algorithm"]

    @property
    def seed(self) -> int:
        """Of this run."""
        return self.config["seed"]

    @property
    def finished(self) -> bool:
        """Whether it has spent its budget; a mean takes no other runs."""
        return self.summary is not None

    @property
    def versions(self) -> dict[str, Any]:
        """What computed: as at the end, or as at the start of a run that has not ended."""
        return (self.summary or self.config)["versions"]

    @cached_property
    def kind(self) -> str:
        """All but the seed: runs of one kind may be averaged."""
        content = {name: self.config[name] for name in ("experiment", "algorithm", "settings", "versions")}
        return json.dumps([content, self.versions], sort_keys=True)

    def ledger(self) -> dict[str, Any]:
        """What was spent; a run that has not finished says it in its last record, without the seconds of each phase."""
        if self.summary is not None:
            return self.summary["ledger"]
        counts = {name: int(self.records.last(name)) for name in COUNTERS[:3]}
        tests = int(self.records.total(EVALUATED))
        return {**counts, EVALUATED: tests, "seconds": {"total": self.records.last("seconds")}}


def read_run(place: Path) -> Run:
    """The run in `place`; raises `StoreError` if what it left cannot be trusted."""
    config = _config(place)
    summary = _summary(place, config)
    records, notes = read_records(place / "records.jsonl", finished=summary is not None)
    if summary is None:
        notes.insert(0, f"{place} has not finished: it is shown, and no mean counts it")
    else:
        _check_whole(place, records, summary["ledger"])
    evaluation = _evaluation(place, notes)
    return Run(place, config, summary, records, evaluation, tuple(notes))


def _config(place: Path) -> dict[str, Any]:
    config = read_config(place)
    _check_numbers(place / "config.json", config)
    for name, kind, wanted in (
        ("seed", int, "an integer"),
        ("settings", dict, "names and values"),
        ("versions", dict, "names"),
    ):
        if type(config[name]) is not kind:
            raise StoreError(f"{place / 'config.json'}: {name} should be {wanted}, it is {config[name]!r}")
    return config


def _summary(place: Path, config: dict[str, Any]) -> dict[str, Any] | None:
    """A summary that belongs to `config` and counts what every run counts."""
    summary, file = read_summary(place), place / "summary.json"
    if summary is None:
        return None
    _check_numbers(file, summary)
    for name, value in {
        "status": "finished",
        **{name: config[name] for name in ("experiment", "algorithm", "seed")},
    }.items():
        if summary[name] != value:
            raise StoreError(f"{file}: {name} is {summary[name]!r} and should be {value!r}")
    if not isinstance(summary.get("versions"), dict):
        raise StoreError(f"{file} does not say which versions it was made with")
    ledger = summary["ledger"]
    seconds = ledger.get("seconds")
    if not isinstance(seconds, dict) or not all(_is_number(seconds.get(name)) for name in ("total", *PHASES)):
        raise StoreError(f"{file}: its ledger does not say the seconds of each phase, as this version does")
    for name in (*COUNTERS[:3], EVALUATED):
        if not _is_number(ledger.get(name)):
            raise StoreError(f"{file}: {name} is {ledger.get(name)!r} and should be a number")
    return summary


def _check_whole(place: Path, records: Records, ledger: dict[str, Any]) -> None:
    """Raises unless the records tell all that the summary counts: a curve that ends early would pass for a result."""
    for name in COUNTERS[:3]:
        if records.last(name) != ledger[name]:
            raise StoreError(
                f"{place / 'records.jsonl'} ends at {records.last(name):,.0f} {name}, summary.json says "
                f"{ledger[name]:,}: records are missing"
            )


def _evaluation(place: Path, notes: list[str]) -> dict[str, Any] | None:
    """What `purectrl evaluate` left; one that cannot be read is noted and costs no run its place."""
    file = place / "evaluation.json"
    if not file.exists():
        return None
    try:
        found = read_json(file)
        _check_numbers(file, found)
    except StoreError as error:
        notes.append(f"{error}; the evaluation is not shown")
        return None
    if not isinstance(found, dict) or not isinstance(found.get("metrics"), dict):
        notes.append(f"{file} is not what `purectrl evaluate` writes, and is not shown")
        return None
    return json.loads(to_json(found, indent=None))


def _check_numbers(file: Path, content: Any) -> None:
    """Raises if `content` holds an integer, however deep, that is beyond every floating-point number."""
    waiting = [("", content)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += [(name, item) for item in value]
        elif isinstance(value, int) and abs(value) > sys.float_info.max:
            raise StoreError(f"{file}: {name} holds a number that no computer calculates with")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value  # NaN is no count

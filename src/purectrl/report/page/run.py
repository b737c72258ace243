"""One run directory, read with suspicion: it may be unfinished, of another version, or damaged."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from purectrl.core.errors import StoreError
from purectrl.experiments.files import read_json, to_json
from purectrl.experiments.registry import EVALUATED
from purectrl.experiments.store import read_config, read_summary

COUNTERS = ("rollouts", "measurements", "updates", "seconds")
"""What every record counts: the currencies of a run."""
PHASES = ("rollout", "fit", "plan", "compile")
"""What the seconds of a summary are split into."""


@dataclass(frozen=True)
class Run:
    """What a run has left so far.

    Main arguments:
        place: its directory.
        config: what `config.json` says.
        summary: what `summary.json` says; None if the run has not finished.
        records: the lines of `records.jsonl`.

    Other arguments:
        evaluation: what `purectrl evaluate` found; None if nobody asked.
        notes: what a reader should know about this run.
    """

    place: Path
    config: dict[str, Any]
    summary: dict[str, Any] | None
    records: list[dict[str, Any]]
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
        last = self.records[-1] if self.records else dict.fromkeys(COUNTERS, 0)
        tests = sum(record.get(EVALUATED, 0) for record in self.records)
        return {**{name: last[name] for name in COUNTERS[:3]}, EVALUATED: tests, "seconds": {"total": last["seconds"]}}


def read_run(place: Path) -> Run:
    """The run in `place`; raises `StoreError` if what it left cannot be trusted."""
    config = _config(place)
    summary = _summary(place, config)
    records, notes = _records(place, finished=summary is not None)
    if summary is None:
        notes.insert(0, f"{place} has not finished: it is shown, and no mean counts it")
    else:
        _check_whole(place, records, summary["ledger"])
    evaluation = _evaluation(place, notes)
    return Run(place, config, summary, records, evaluation, tuple(notes))


def _config(place: Path) -> dict[str, Any]:
    config = read_config(place)
    for name, kind, wanted in (("seed", int, "an integer"), ("settings", dict, "names and values"), ("versions", dict, "names")):
        if type(config[name]) is not kind:
            raise StoreError(f"{place / 'config.json'}: {name} should be {wanted}, it is {config[name]!r}")
    return config


def _summary(place: Path, config: dict[str, Any]) -> dict[str, Any] | None:
    """A summary that belongs to `config` and counts what every run counts."""
    summary, file = read_summary(place), place / "summary.json"
    if summary is None:
        return None
    for name, value in {"status": "finished", **{name: config[name] for name in ("experiment", "algorithm", "seed")}}.items():
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


def _records(place: Path, finished: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """The records and what is to be said about them."""
    file = place / "records.jsonl"
    try:
        lines = file.read_bytes().split(b"\n")
    except FileNotFoundError:
        if finished:
            raise StoreError(f"{file} does not exist, although the run has finished") from None
        return [], [f"{place} has no records yet"]
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from None
    rest = lines.pop()
    notes = []
    if rest and finished:
        raise StoreError(f"{file} ends in the middle of line {len(lines) + 1}, although the run has finished")
    if rest:
        notes.append(f"{file}: line {len(lines) + 1} is half written and was left out")
    records = _parse(file, lines)
    _check(file, records)
    return records, notes


def _parse(file: Path, lines: list[bytes]) -> list[Any]:
    try:
        whole = json.loads(b"[" + b",".join(lines) + b"]")  # several times as fast as line by line
        if len(whole) == len(lines):
            return whole
    except (ValueError, RecursionError):
        pass  # which line it is, is found out below
    for number, line in enumerate(lines, 1):
        try:
            json.loads(line)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{file}: line {number} is not JSON: {error}") from None
    raise StoreError(f"{file}: a line holds more than one record")


def _check(file: Path, records: list[Any]) -> None:
    """Raises unless every record counts what every run counts, and never less than the one before."""
    before = dict.fromkeys(COUNTERS, 0)
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict):
            raise StoreError(f"{file}: line {number} is not a record: it should hold names and values")
        for name in COUNTERS:
            value = record.get(name)
            if not _is_number(value):
                raise StoreError(f"{file}: line {number} has {name} = {value!r}, which should be a number")
            if value < before[name]:
                raise StoreError(f"{file}: line {number} has {name} = {value}, less than the line before")
        if not _is_number(record.get("episodes")) or not isinstance(record.get("updated"), str):
            raise StoreError(f"{file}: line {number} does not say how many episodes it took and what was updated")
        before = record


def _check_whole(place: Path, records: list[dict[str, Any]], ledger: dict[str, Any]) -> None:
    """Raises unless the records tell all that the summary counts: a curve that ends early would pass for a result."""
    last = records[-1] if records else dict.fromkeys(COUNTERS, 0)
    for name in COUNTERS[:3]:
        if last[name] != ledger[name]:
            raise StoreError(
                f"{place / 'records.jsonl'} ends at {last[name]:,} {name}, summary.json says {ledger[name]:,}: "
                "records are missing"
            )


def _evaluation(place: Path, notes: list[str]) -> dict[str, Any] | None:
    """What `purectrl evaluate` left; one that cannot be read is noted and costs no run its place."""
    file = place / "evaluation.json"
    if not file.exists():
        return None
    try:
        found = read_json(file)
    except StoreError as error:
        notes.append(f"{error}; the evaluation is not shown")
        return None
    if not isinstance(found, dict) or not isinstance(found.get("metrics"), dict):
        notes.append(f"{file} is not what `purectrl evaluate` writes, and is not shown")
        return None
    return json.loads(to_json(found, indent=None))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value  # NaN is no count

"""Everything that the page shows as one JSON value: groups of runs that differ only in their seeds, and the runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from purectrl import __version__
from purectrl.core.errors import StoreError
from purectrl.core.text import VALUE, printable
from purectrl.report.page import media
from purectrl.report.page.curves import (
    COLUMN_LABELS,
    HEADLINE_METRICS,
    METRIC_LABELS,
    RESULT_COLUMNS,
    learning_curves,
    rounded,
    summarize_times,
    update_decisions,
)
from purectrl.report.page.episodes import evaluation_episodes
from purectrl.report.page.records import read_measurement_times
from purectrl.report.page.run import PHASES, Run, update_rule

ROWS, MIN_ROWS, MAX_ROWS = 16_000, 50, 500
"""Rows of the learning curves: of all runs together, and the bounds for one run."""
TIMES, MIN_TIMES, MAX_TIMES = 120_000, 300, 5_000
"""Measurement times: of all runs together, and the bounds for one run."""
NUMBERS, MIN_NUMBERS, MAX_NUMBERS = 300_000, 1_500, 20_000
"""Numbers of evaluation episodes: of all runs together, and the bounds for one run."""
MAX_MEDIA = 100
"""Media files of one run."""
MAX_SETTING = 2_000
"""Characters of a setting or metric."""
MAX_LABEL_SETTINGS = 3
"""Groups that differ in more settings than this are numbered."""


class Group(NamedTuple):
    """Runs that differ only in their seeds, sorted by seed. Means are taken over a group."""

    label: str
    runs: tuple[Run, ...]


def document(runs: Sequence[Run], excluded: Sequence[str], remarks: Sequence[str] = ()) -> dict[str, Any]:
    """The content of the page about `runs`; `excluded` lists what could not be included, `remarks` are further notes."""
    groups, titles = group_runs(runs), problem_titles(runs)
    notes = [*remarks, *(note for run in runs for note in run.notes), *_version_notes(groups)]
    embedded = _embed_media(groups, notes)
    rows = min(MAX_ROWS, max(MIN_ROWS, ROWS // len(runs)))
    times = min(MAX_TIMES, max(MIN_TIMES, TIMES // len(runs)))
    numbers = min(MAX_NUMBERS, max(MIN_NUMBERS, NUMBERS // len(runs)))
    shown = []
    for number, group in enumerate(groups):
        for run in group.runs:
            shown.append(
                {
                    "group": number,
                    "seed": run.seed,
                    "directory": str(run.directory),
                    "finished": run.finished,
                    "records": len(run.records),
                    "ledger": run.ledger,
                    "metrics": _scalars(run.metrics),
                    "evaluation": run.evaluation and {**run.evaluation, "metrics": _scalars(run.evaluation["metrics"])},
                    "curves": learning_curves(run.records, rows),
                    "media": embedded[run.directory],
                    "times": _times(run, times, notes),
                    "decisions": update_decisions(run.records),
                    "episodes": _episodes(run, numbers, notes),
                }
            )
    return {
        "purectrl": __version__,
        "groups": [_group(group, titles[_identity(group.runs[0])]) for group in groups],
        "runs": shown,
        "excluded": list(excluded),
        "notes": [printable(note) for note in notes],
        "phases": PHASES,
        "column_labels": COLUMN_LABELS,
        "metric_labels": METRIC_LABELS,
        "headline_metrics": HEADLINE_METRICS,
        "result_columns": RESULT_COLUMNS,
    }


def _identity(run: Run) -> tuple[str, str]:
    """What tells problems apart: two files can give the same name to different systems."""
    return run.problem, run.reference


def problem_titles(runs: Sequence[Run]) -> dict[tuple[str, str], str]:
    """The heading of each problem: its name, and where it comes from if another problem has the same name."""
    found = list(dict.fromkeys(map(_identity, runs)))
    names = [name for name, _ in found]
    return {
        (name, place): name if names.count(name) == 1 else f"{name} ({place or 'built in Python'})"
        for name, place in found
    }


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """The runs by kind. Problems and algorithms keep the order in which they first appear."""
    kinds: dict[tuple[tuple[str, str], str], dict[str, list[Run]]] = {}
    problems = list(dict.fromkeys(map(_identity, runs)))
    for run in runs:
        kinds.setdefault((_identity(run), run.algorithm), {}).setdefault(run.kind, []).append(run)
    groups = []
    for (_, algorithm), by_kind in sorted(kinds.items(), key=lambda item: problems.index(item[0][0])):
        siblings = sorted(by_kind.values(), key=lambda kind: [_sort_key(value) for value in kind[0].settings.values()])
        for label, kind in zip(_labels(algorithm, [kind[0] for kind in siblings]), siblings, strict=True):
            groups.append(Group(label, tuple(sorted(kind, key=lambda run: run.seed))))
    return groups


def _labels(algorithm: str, runs: Sequence[Run]) -> list[str]:
    """A name for each kind of one problem and algorithm, given a run of each: the algorithm and what differs."""
    if len(runs) == 1:
        return [algorithm]
    facts = [{**run.settings, **{f"with {name}": version for name, version in run.versions.items()}} for run in runs]
    names = dict.fromkeys(name for fact in facts for name in fact)
    differing = [name for name in names if len({json.dumps(fact.get(name)) for fact in facts}) > 1]
    labels = [", ".join([algorithm, *(printable(_fact(name, fact), VALUE) for name in differing)]) for fact in facts]
    if len(differing) <= MAX_LABEL_SETTINGS and len(set(labels)) == len(labels):
        return labels
    return [f"{algorithm}, settings {number}" for number in range(1, len(runs) + 1)]


def _fact(name: str, facts: Mapping[str, Any]) -> str:
    words = name.replace("_", " ")
    return f"{words} {_value_text(facts[name])}" if name in facts else f"without {words}"


def _value_text(value: Any) -> str:
    """The value of a setting as part of a label.

    >>> _value_text(65536), _value_text([2, 4]), _value_text("uniform")
    ('65,536', '2 4', 'uniform')
    """
    if isinstance(value, list):
        return " ".join(map(_value_text, value))
    return f"{value:,}" if type(value) is int else str(value)


def _sort_key(value: Any) -> tuple[int, float, str]:
    """Numbers by size, everything else by its JSON text."""
    return (0, value, "") if isinstance(value, int | float) else (1, 0.0, json.dumps(value))


def _version_notes(groups: Sequence[Group]) -> list[str]:
    """Notes about package versions that differ between runs, or from the version that reads them."""
    versions: dict[str, set[str]] = {}
    for group in groups:
        for name, version in group.runs[0].versions.items():
            versions.setdefault(name, set()).add(str(version))
    notes = [
        f"the runs used {name} {' and '.join(sorted(found))}; no mean combines runs of different versions"
        for name, found in versions.items()
        if len(found) > 1
    ]
    others = sorted(versions.get("purectrl", set()) - {__version__})
    return notes + [f"some runs were written by purectrl {version}, this is {__version__}" for version in others]


def _embed_media(groups: Sequence[Group], notes: list[str]) -> dict[Path, list[dict[str, Any]]]:
    """The media files of each run by its directory. The first seed of every group has priority over the second."""
    ranked = [(rank, run.directory) for group in groups for rank, run in enumerate(group.runs)]
    paths: dict[Path, list[Path]] = {}
    for _, directory in sorted(ranked, key=lambda pair: pair[0]):
        try:
            paths[directory] = media.media_files(directory)
        except StoreError as error:
            notes.append(str(error))
            paths[directory] = []
    shown = [path for own in paths.values() for path in own[:MAX_MEDIA]]
    posters = {path: picture for path in shown if (picture := media.poster(path)) is not None}
    embedded = media.embed(shown + list(posters.values()))
    notes += [
        f"{directory} has more than {MAX_MEDIA} media files" for directory, own in paths.items() if own[MAX_MEDIA:]
    ]
    notes += [f"{path} {embedded[path].missing}" for path in shown if embedded[path].missing]
    entry = lambda path: _media_entry(embedded[path], embedded[posters[path]].uri if path in posters else None)  # noqa: E731
    return {directory: [entry(path) for path in own[:MAX_MEDIA]] for directory, own in paths.items()}


def _media_entry(file: media.MediaFile, poster: str | None) -> dict[str, Any]:
    found = {
        "name": file.path.name,
        "type": file.type,
        "uri": file.uri,
        "path": str(file.path),
        "missing": file.missing,
    }
    return found | {"poster": poster}


def _group(group: Group, title: str) -> dict[str, Any]:
    run = group.runs[0]
    return {
        "problem": title,
        "criterion": None if run.criterion is None else run.criterion.about,
        "result": run.result,
        "abort_reward": run.abort_reward,
        "algorithm": run.algorithm,
        "label": group.label,
        "settings": {name: _shortened(value) for name, value in run.settings.items()},
        "versions": run.versions,
        "update_rule": update_rule(run.description.schedule),
        "threshold": run.threshold,
    }


def _shortened(value: Any) -> Any:
    """The value of a setting, or the beginning and the end of it as text if it is long."""
    text = value if isinstance(value, str) else json.dumps(value)
    return value if len(text) <= MAX_SETTING else printable(text, MAX_SETTING)


def _scalars(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics that fit in a table cell; numbers are rounded."""
    scalars: dict[str, Any] = {}
    for name, value in metrics.items():
        if value is None or isinstance(value, bool | str):
            scalars[name] = _shortened(value)
        elif isinstance(value, int | float):
            scalars[name] = rounded(value)
    return scalars


def _episodes(run: Run, limit: int, notes: list[str]) -> dict[str, Any] | None:
    """Evaluation episodes of a run; if they cannot be read, a note is added."""
    try:
        return evaluation_episodes(run.directory, limit)
    except StoreError as error:
        notes.append(f"{error}; its evaluation episodes are not shown")
        return None


def _times(run: Run, limit: int, notes: list[str]) -> dict[str, Any] | None:
    """A summary of the measurement times of a run; if they cannot be read, a note is added."""
    try:
        times = read_measurement_times(run.directory)
    except StoreError as error:
        notes.append(str(error))
        return None
    return None if times is None or not times.size else summarize_times(times, run.horizon, limit)

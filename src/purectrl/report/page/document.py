"""Everything that the page shows, as one JSON value: groups of runs that differ in their seeds alone, and the runs."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purectrl import __version__
from purectrl.core.errors import StoreError
from purectrl.report.page import media
from purectrl.report.page.courses import course, shorten
from purectrl.report.page.finding import Found
from purectrl.report.page.run import Run
from purectrl.report.page.times import measured_times, strip

ROWS, FEWEST_ROWS, MOST_ROWS = 16_000, 50, 500
"""Rows of all courses together, and of one."""
POINTS, FEWEST_POINTS, MOST_POINTS = 120_000, 300, 5_000
"""Times of measurements of all runs together, and of one."""
NAMED = 3
"""So many settings may tell two groups apart by name; with more of them groups are numbered."""


class Group(NamedTuple):
    """Runs that differ in nothing but their seeds, in the order of those: what a mean is taken over."""

    label: str
    runs: tuple[Run, ...]


def document(found: Found) -> dict[str, Any]:
    """What the page is made from."""
    groups = grouped(found.runs)
    count = len(found.runs)
    rows = min(MOST_ROWS, max(FEWEST_ROWS, ROWS // count))
    points = min(MOST_POINTS, max(FEWEST_POINTS, POINTS // count))
    notes = [note for run in found.runs for note in run.notes] + _mixtures(groups)
    pictures = _pictures(groups, notes)
    runs = []
    for number, group in enumerate(groups):
        for run in group.runs:
            runs.append(_run(run, number, rows, pictures[run.place]) | {"times": _times(run, points, notes)})
    return {
        "purectrl": __version__,
        "groups": [_group(group, notes) for group in groups],
        "runs": runs,
        "problems": list(found.problems),
        "notes": notes,
    }


def grouped(runs: Iterable[Run]) -> list[Group]:
    """The runs by kind. Experiments and algorithms come in the order in which they first appear."""
    kinds: dict[str, list[Run]] = {}
    for run in runs:
        kinds.setdefault(run.kind, []).append(run)
    families: dict[str, dict[str, list[list[Run]]]] = {}
    for kind in kinds.values():
        families.setdefault(kind[0].experiment, {}).setdefault(kind[0].algorithm, []).append(kind)
    found = []
    for experiment in families.values():
        for algorithm, siblings in experiment.items():
            siblings.sort(key=lambda kind: [_sortable(value) for value in kind[0].config["settings"].values()])
            for label, kind in zip(_labels(algorithm, siblings), siblings, strict=True):
                found.append(Group(label, tuple(sorted(kind, key=lambda run: run.seed))))
    return found


def _labels(algorithm: str, siblings: Sequence[Sequence[Run]]) -> list[str]:
    """A name for each kind of one experiment and algorithm: the algorithm, and what sets it apart."""
    if len(siblings) == 1:
        return [algorithm]
    facts = [{**kind[0].config["settings"], **_prefixed(kind[0])} for kind in siblings]
    names = dict.fromkeys(name for fact in facts for name in fact)
    apart = [name for name in names if len({json.dumps(fact.get(name)) for fact in facts}) > 1]
    labels = [", ".join([algorithm, *(_fact(name, fact) for name in apart)]) for fact in facts]
    if len(apart) <= NAMED and len(set(labels)) == len(labels):
        return labels
    return [f"{algorithm}, settings {number}" for number in range(1, len(siblings) + 1)]


def _prefixed(run: Run) -> dict[str, Any]:
    """The versions of a run, told apart from its settings: "with jax 0.10.2" reads well in a label."""
    return {f"with {name}": version for name, version in run.versions.items()}


def _fact(name: str, facts: Mapping[str, Any]) -> str:
    """What a run says about `name`; an older one may not have known it."""
    spoken = name.replace("_", " ")
    return f"{spoken} {_word(facts[name])}" if name in facts else f"without {spoken}"


def _word(value: Any) -> str:
    """A value as it stands in a label.

    >>> _word(65536), _word([2, 4]), _word("uniform")
    ('65,536', '2 4', 'uniform')
    """
    if isinstance(value, list):
        return " ".join(map(_word, value))
    return f"{value:,}" if type(value) is int else str(value)


def _sortable(value: Any) -> tuple[int, float, str]:
    """Numbers by size, everything else by its words."""
    return (0, value, "") if isinstance(value, int | float) else (1, 0.0, json.dumps(value))


def _mixtures(groups: Sequence[Group]) -> list[str]:
    """Says which versions differ between runs that stand beside each other."""
    versions: dict[str, set[str]] = {}
    for group in groups:
        for name, version in group.runs[0].versions.items():
            versions.setdefault(name, set()).add(str(version))
    said = [
        f"the runs were made with {name} {' and '.join(sorted(found))}: no mean mixes them"
        for name, found in versions.items()
        if len(found) > 1
    ]
    others = sorted(versions.get("purectrl", set()) - {__version__})
    return said + [f"made with purectrl {version}, read by purectrl {__version__}" for version in others]


def _pictures(groups: Sequence[Group], notes: list[str]) -> dict[Path, list[media.Medium]]:
    """The media of each run, by its place; what cannot be shown is noted.

    Where there is no room for all, every group shows its first seed before any its second.
    """
    ranked = [(rank, run.place) for group in groups for rank, run in enumerate(group.runs)]
    files: dict[Path, list[Path]] = {}
    for _, place in sorted(ranked, key=lambda pair: pair[0]):
        try:
            files[place] = media.files(place)
        except StoreError as error:
            notes.append(str(error))
            files[place] = []
    found = media.embed(path for own in files.values() for path in own)
    notes += [f"{medium.path} {medium.missing}" for medium in found.values() if medium.missing]
    return {place: [found[path] for path in own] for place, own in files.items()}


def _group(group: Group, notes: list[str]) -> dict[str, Any]:
    first = group.runs[0]
    settings = first.config["settings"]
    threshold = settings.get("factor") if settings.get("schedule") == "on-misfit" else None
    return {
        "experiment": first.experiment,
        "algorithm": first.algorithm,
        "label": group.label,
        "settings": settings,
        "versions": first.versions,
        "rule": _rule(first, notes),
        "threshold": threshold if _is_number(threshold) else None,
    }


def _rule(run: Run, notes: list[str]) -> str:
    """When a run updates; settings of another version are noted and leave the name of the schedule."""
    settings = run.config["settings"]
    try:
        return update_rule(settings)
    except StoreError as error:
        notes.append(f"{run.place / 'config.json'}: {error}, so the page does not say when it updates")
        return f"by the schedule {settings['schedule']!r}"


def update_rule(settings: Mapping[str, Any]) -> str:
    """When a run updates, in words; raises `StoreError` if its schedule has settings that it cannot have.

    >>> update_rule({"schedule": "on-misfit", "factor": 5.0})
    'when the excess loss of a model reaches 5 β'
    >>> update_rule({"schedule": "batches", "batches": [4, 4, 4], "update": "before", "initial": 7})
    'at the start of each of 3 batches of 4 episodes, after 7 episodes of exploration'
    """
    schedule, initial = settings.get("schedule"), settings.get("initial", 0)
    if schedule == "every":
        every = settings.get("every", 1)
        return "after every episode" if every == 1 else f"after every {every} episodes"
    if schedule == "batches":
        sizes = _sizes(settings)
        if not sizes:
            return f"{settings.get('updates')} times, at the ends of batches that grow by {settings.get('growth')}"
        same = len(set(sizes)) == 1 and len(sizes) > 1
        words = f"{len(sizes)} batches of {sizes[0]}" if same else f"batches of {', '.join(map(str, sizes))}"
        side = "at the start" if settings.get("update") == "before" else "at the end"
        first = f", after {initial} episodes of exploration" if initial else ""
        plural = "" if set(sizes) == {1} else "s"
        return f"{side} of each of {words} episode{plural}{first}"
    if schedule == "geometric":
        return f"when the measurements have grown by the factor {_factor(settings, 'growth', 2.0):g}"
    if schedule == "on-misfit":
        return f"when the excess loss of a model reaches {_factor(settings, 'factor', 5.0):g} β"
    return f"by the schedule {schedule!r}"


def _sizes(settings: Mapping[str, Any]) -> list[int]:
    """The episodes of each batch; none where they grow by themselves."""
    sizes = settings.get("batches") or []
    if not isinstance(sizes, list) or not all(type(size) is int for size in sizes):
        raise StoreError(f"batches is {sizes!r} and should be a list of episodes")
    return sizes


def _factor(settings: Mapping[str, Any], name: str, default: float) -> float:
    """A setting that is a number, in runs that know it."""
    value = settings.get(name, default)
    if not _is_number(value):
        raise StoreError(f"{name} is {value!r} and should be a number")
    return value


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _run(run: Run, group: int, rows: int, shown: Sequence[media.Medium]) -> dict[str, Any]:
    return {
        "group": group,
        "seed": run.seed,
        "place": str(run.place),
        "finished": run.finished,
        "records": len(run.records),
        "ledger": run.ledger(),
        "metrics": _metrics((run.summary or {}).get("metrics", {})),
        "evaluation": run.evaluation and {**run.evaluation, "metrics": _metrics(run.evaluation["metrics"])},
        "course": course(run.records, rows),
        "media": [_medium(one) for one in shown],
    }


def _medium(one: media.Medium) -> dict[str, Any]:
    return {
        "name": one.path.name,
        "type": one.type,
        "uri": one.uri,
        "place": str(one.path),
        "missing": one.missing,
    }


def _metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics that a table can hold; curves are in the records, too."""
    found = {}
    for name, value in metrics.items():
        if isinstance(value, bool | str) or value is None:
            found[name] = value
        elif isinstance(value, int | float):
            found[name] = shorten(float(value))
    return found


def _times(run: Run, points: int, notes: list[str]) -> dict[str, Any] | None:
    """The times at which a run measured; what cannot be read is noted."""
    settings = run.config["settings"]
    try:
        times = measured_times(run.place)
    except StoreError as error:
        notes.append(str(error))
        return None
    if times is None or not times.size:
        return None
    horizon = settings.get("horizon", settings.get("denoising_steps"))
    return strip(times, float(horizon) if _is_number(horizon) else float(np.max(times)), points)

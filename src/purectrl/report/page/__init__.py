"""The report page: one HTML file about run directories that needs no network access.

`discover` searches directories for runs, `run` and `records` read one run, `curves`, `times` and `media` select what is
shown of it, and `document` assembles the JSON value that the page displays. The page is `template.html` with `style.css`,
the scripts in `SCRIPTS` and the charting library uPlot in `vendor`.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from purectrl.core.errors import InputError, StoreError, require
from purectrl.core.io import encode, open_file, to_json, write_atomically
from purectrl.core.output_paths import require_creatable
from purectrl.core.text import printable
from purectrl.report.page.discover import discover
from purectrl.report.page.document import document

SCRIPTS = ("widgets.js", "chart.js", "data.js", "curves.js", "episodes.js", "trajectories.js", "tables.js", "page.js")
"""In the order of their dependencies."""
PREFIX = b"<!doctype html>\n<!-- made by purectrl report -->\n"
"""The first bytes of a report. An existing file that starts differently is not overwritten."""


class PageResult(NamedTuple):
    """What was written.

    Main arguments:
        runs: the number of runs on the page.
        notes: remarks about these runs.
        problems: what could not be included, each with its path and the reason.
    """

    runs: int
    notes: Sequence[str]
    problems: Sequence[str]


def write_page(directories: Sequence[Path], out: Path) -> PageResult:
    """Writes a page about all runs in and below `directories` to `out`.

    Runs that cannot be included are listed on the page and in the returned value. Without any run, nothing is written.
    """
    require(len(directories) > 0, "directories: name at least one directory that contains runs")
    _check_out(out)
    found = discover(directories)
    problems = [printable(problem) for problem in found.problems]
    if not found.runs:
        raise StoreError("no run to report on: " + "; ".join(problems))
    content = document(found.runs, problems, found.notes)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, PREFIX + encode(render(content)))
    return PageResult(len(found.runs), content["notes"], problems)


def render(content: Mapping[str, Any]) -> str:
    """The page about a `document`, without `PREFIX`."""
    runs = content["runs"]
    problems, algorithms = (
        [*dict.fromkeys(group[key] for group in content["groups"])] for key in ("problem", "algorithm")
    )
    seeds = sorted({run["seed"] for run in runs})
    unfinished = sum(not run["finished"] for run in runs)
    facts = [f"{len(runs)} run{'s' * (len(runs) > 1)}", f"{len(seeds)} seed{'s' * (len(seeds) > 1)}"]
    facts += [f"{unfinished} not finished"] if unfinished else []
    parts = {
        "title": escape(printable(f"{_listed(problems)}: {_listed(algorithms)}")),
        "facts": " · ".join(facts),
        "filters": _filter("problem", problems) + _filter("algorithm", algorithms) + _filter("seed", map(str, seeds)),
        "notices": _notice("Not included", content["excluded"]) + _notice("Notes", content["notes"]),
        "version": escape(content["purectrl"]),
        "style": _read("vendor/uPlot.min.css") + _read("style.css"),
        "license": _read("vendor/uPlot.LICENSE"),
        "uplot": _read("vendor/uPlot.iife.min.js"),
        "script": "\n".join(map(_read, SCRIPTS)),
        # a "</script>" in the value of a setting must not end the data
        "data": to_json(content, indent=None).replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read("template.html"))


def _read(name: str) -> str:
    return files("purectrl.report.page").joinpath(name).read_text(encoding="utf-8")


def _listed(names: Sequence[str]) -> str:
    """Joins names: "a, b and c"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _filter(name: str, values: Iterable[str]) -> str:
    """A menu with one checkbox per value."""
    boxes = "".join(
        f'<label><input type="checkbox" name="{name}" value="{escape(value)}" checked> {escape(value)}</label>'
        for value in values
    )
    buttons = (
        '<button type="button" data-checked="true">all</button><button type="button" data-checked="false">none</button>'
    )
    content = f'<summary>{name}</summary><div><div class="all">{buttons}</div>{boxes}</div>'
    return f'<details class="filter" data-filter="{name}">{content}</details>'


def _notice(heading: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<div class="box" role="note"><h2>{heading} ({len(lines)})</h2><ul>{items}</ul></div>' if lines else ""


def _check_out(out: Path) -> None:
    """Raises unless a report may be written to `out`."""
    require_creatable(out.parent if os.path.lexists(out) else out)
    if out.is_dir():
        raise InputError(f"out: {out} is a directory; name a file, such as {out / 'report.html'}")
    if out.exists():
        with open_file(out, follow=True) as file:
            if file.read(len(PREFIX)) != PREFIX:
                raise InputError(f"out: {out} exists and is not a report of purectrl; choose another name")

"""The report page: one HTML file that needs no other and no network. Reads run directories and runs nothing.

`finding` looks for runs, `run` and `records` read one, `courses`, `times` and `media` say what of it is shown, `document`
puts it together. The page itself is `template.html` with `style.css` and these scripts, in the order in which they need each
other: `format.js` (numbers, elements), `chart.js` (one chart), `model.js` (filters, means), `parts.js` (tables, buttons),
`sections.js`, `episodes.js` and `tables.js` (what is on the page), and `page.js`, which starts them.
"""

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from purectrl.core.errors import InputError, StoreError, require
from purectrl.experiments.files import to_json, write_atomically
from purectrl.report.page.document import document
from purectrl.report.page.finding import find

SCRIPTS = ("format.js", "chart.js", "model.js", "parts.js", "sections.js", "episodes.js", "tables.js", "page.js")
"""In the order in which they need each other."""
MARK = b"<!doctype html>\n<!-- made by purectrl report -->\n"
"""How a report begins: a file that begins otherwise is not overwritten."""


class Written(NamedTuple):
    """What became of a report.

    Main arguments:
        runs: how many are on the page.
        notes: what a reader should know about them.
        problems: what is not on the page, each with its place and the reason.
    """

    runs: int
    notes: Sequence[str]
    problems: Sequence[str]


def write_page(directories: Sequence[Path], out: Path) -> Written:
    """Writes the page about all runs in and below `directories` to `out`.

    What cannot be shown is named on the page and in the returned value. If nothing can, nothing is written.
    """
    require(len(directories) > 0, "directories: name at least one directory that holds runs")
    check_out(out)
    found = find(directories)
    if not found.runs:
        raise StoreError("no run to report on: " + "; ".join(found.problems))
    content = document(found)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, MARK + page(content).encode())
    return Written(len(found.runs), content["notes"], found.problems)


def page(content: Mapping[str, Any]) -> str:
    """The page about what `document` says, without the mark in front."""
    here = files("purectrl.report.page")
    read = lambda name: here.joinpath(name).read_text(encoding="utf-8")  # noqa: E731
    parts = {
        "style": read("style.css"),
        "script": "\n".join(read(name) for name in SCRIPTS),
        # a "</script>" in the name of a setting must not end the data
        "data": to_json(content, indent=None).replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], read("template.html"))


def check_out(out: Path) -> None:
    """Raises unless a report may be written to `out`."""
    if out.is_dir():
        raise InputError(f"out: {out} is a directory; name a file, such as {out / 'report.html'}")
    if out.exists():
        with open(out, "rb") as file:
            if file.read(len(MARK)) != MARK:
                raise InputError(f"out: {out} exists and is no report of purectrl; take another name")

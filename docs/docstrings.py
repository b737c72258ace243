"""How docstrings become pages: tables as tables, lists of arguments as lists, doctests as code. The rest is Markdown."""

import re
from collections.abc import Iterator
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Rewrites every docstring that is read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called with each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """The docstring as Markdown; paragraphs are what empty lines part."""
    return "\n\n".join(part for paragraph in docstring.split("\n\n") for part in _rewritten(paragraph))


def _rewritten(paragraph: str) -> Iterator[str]:
    lines = paragraph.split("\n")
    if re.fullmatch(r"(Main|Other) arguments.*:", lines[0]):
        yield f"**{lines[0][:-1]}**"
        yield "\n".join(_entries(lines[1:]))
    elif len(lines) > 1 and re.fullmatch(r" *-{3,}(  +-{3,})+", lines[1]):
        yield "\n".join(_table(lines))
    elif ">>>" in (first := [line.strip()[:3] for line in lines]):
        start = first.index(">>>")
        if start:
            yield "\n".join(lines[:start])
        yield "\n".join(["```pycon", *lines[start:], "```"])
    else:
        yield paragraph


def _entries(lines: list[str]) -> Iterator[str]:
    """`name: what it is`, indented, with lines that go on indented further."""
    for line in lines:
        found = re.fullmatch(r"    (\w+(?:, \w+)*): (.*)", line)
        yield f"- `{found[1]}`: {found[2]}" if found else f"    {line.strip()}"


def _table(lines: list[str]) -> Iterator[str]:
    """Columns that begin where the dashes of the second line do."""
    starts = [found.start() for found in re.finditer("-+", lines[1])]
    for line in lines:
        cells = [line[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

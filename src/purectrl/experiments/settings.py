"""Settings from the command line and from files, through one parser, so that both are checked alike."""

import contextlib
import dataclasses
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tyro

from purectrl.core.errors import InputError, StoreError, choose

T = TypeVar("T")
C = TypeVar("C")


def parse(kind: type[T], arguments: Sequence[str], program: str, default: T | None = None) -> T:
    """An instance of the dataclass `kind` from `arguments`; what is wrong comes back as a one-line `InputError`."""
    screen = io.StringIO()
    try:
        with contextlib.redirect_stderr(screen):
            keywords = {} if default is None else {"default": default}
            return tyro.cli(kind, args=list(arguments), prog=program, **keywords)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise InputError(_condense(screen.getvalue(), program)) from None


def _condense(box: str, program: str) -> str:
    """The message inside one of tyro's boxes, drawn with lines or in ASCII, on one line."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    text = "\n".join(line.strip("│|+ ") for line in plain.splitlines()[1:-1])
    first, *others = [" ".join(section.split()) for section in re.split("[─-]{5,}", text) if section.strip()]
    meant = [re.search(r"--[\w-]+", section) for section in others if section.startswith("Perhaps you meant:")]
    hint = f"; did you mean {meant[0].group()}?" if meant and meant[0] else ""
    return f"{first}{hint} (`{program} --help` lists all options)"


def from_json(default: C, values: Any, origin: Path) -> C:
    """`default` with the fields in `values` replaced; `origin` is the file they come from."""
    if not isinstance(values, Mapping):
        raise StoreError(f"{origin}: the settings should be an object of names and values")
    fields = {field.name for field in dataclasses.fields(default)}  # type: ignore[arg-type]
    arguments: list[str] = []
    for name, value in values.items():
        try:
            choose("setting", name, fields)
        except InputError as error:
            raise InputError(f"{origin}: {error}") from None
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            arguments.append(flag if value else flag.replace("--", "--no-", 1))
        elif any(
            isinstance(item, str) and item.startswith("-") for item in (value if isinstance(value, list) else [value])
        ):
            raise InputError(f"{origin}: {name} should not be {value!r}")
        elif isinstance(value, list):
            arguments += [flag, *map(str, value)]
        elif isinstance(value, int | float | str) or value is None:
            arguments += [flag, str(value)]
        else:
            raise InputError(f"{origin}: {name} should not be {value!r}")
    try:
        return parse(type(default), arguments, "purectrl run EXPERIMENT", default)
    except InputError as error:
        raise InputError(f"{origin}: {error}") from None

"""Command-line flags: nested names such as `--sampler.m 4` over the same declarations that Python and `config.json` use."""

import inspect
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, get_origin

from purectrl.core.errors import InputError, choose
from purectrl.core.settings import Settings, field_docs, field_types, parameter_docs, parameter_types, parse_text

A = TypeVar("A", bound=Settings)


class Arguments(NamedTuple):
    """The words of a command, sorted."""

    positional: tuple[str, ...]
    flags: dict[str, list[str]]
    """The words after each flag, by its name without dashes; for a flag that was given twice, those of the last."""
    repeated: dict[str, list[str]]
    """The same with the words of all occurrences."""

    @property
    def help(self) -> bool:
        """Whether the user asks for help."""
        return "help" in self.flags

    def one(self, name: str) -> str | None:
        """The value of a flag that takes one word; None if it was not given."""
        return None if name not in self.flags else parse_text(f"--{name}", self.flags[name], str)


def split(words: Sequence[str]) -> Arguments:
    """Sorts the words of a command into positional arguments and flags with their values.

    >>> split(["finite", "--sampler.m", "4", "--seed=-1"])[:2]
    (('finite',), {'sampler.m': ['4'], 'seed': ['-1']})
    """
    positional, flags, repeated, current = [], dict[str, list[str]](), dict[str, list[str]](), None
    for word in words:
        if word in ("-h", "--help"):
            flags["help"] = []
        elif word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            current = name.replace("-", "_") if "." not in name else name
            flags[current] = [value] if equals else []
            repeated.setdefault(current, []).extend(flags[current])
        elif current is None:
            positional.append(word)
        else:
            flags[current].append(word)
            repeated[current].append(word)
    return Arguments(tuple(positional), flags, repeated)


def parse(
    kind: type[A], arguments: Arguments, others: Iterable[str] = (), command: str = "", nested: bool = False
) -> A:
    """The options of a command, declared as settings.

    A flag that is neither declared nor in `others` is refused; one with a dot is left to the caller if `nested`.
    """
    declared = field_types(kind)
    for name in arguments.flags:
        if name not in declared and not (nested and "." in name) and name not in others:
            known = [f"--{known.replace('_', '-')}" for known in (*declared, *others)]
            hint = f" (`purectrl {command} --help` lists the options)" if command else ""
            try:
                choose("option", f"--{name.replace('_', '-')}", known)
            except InputError as error:
                raise InputError(f"{str(error).partition(' (one of:')[0]}{hint}") from None
    values = {}
    for name, annotation in declared.items():
        if name in arguments.flags:
            found = arguments.repeated if get_origin(annotation) is tuple else arguments.flags
            values[name] = parse_text(f"--{name.replace('_', '-')}", found[name], annotation)
    try:
        return kind(**values)
    except TypeError:
        missing = next(name for name in declared if name not in values and not hasattr(kind, name))
        doc = field_docs(kind).get(missing, "")
        raise InputError(f"--{missing.replace('_', '-')} is missing: {doc}") from None


def describe_command(kind: type[Settings]) -> str:
    """The options of a command."""
    return _table((f"--{name.replace('_', '-')}", _default(kind, name), doc) for name, doc in _documented(kind))


def describe_settings(path: str, value: Settings) -> str:
    """The parameters of a component as flags, with their values and documentation."""
    rows = []
    for name, doc in _documented(type(value)):
        item = getattr(value, name)
        if isinstance(item, Settings):
            rows.append((describe_settings(f"{path}.{name.replace('_', '-')}", item),))
        else:
            rows.append((f"--{path}.{name.replace('_', '-')}", _shown(item), doc))
    return _table(rows)


def describe_function(path: str, function: Callable[..., Any]) -> str:
    """The keyword arguments of a problem function as flags."""
    docs, hints = parameter_docs(function), parameter_types(function)
    rows = [
        (
            f"--{path}.{name.replace('_', '-')}",
            "" if one.default is one.empty else _shown(one.default),
            docs.get(name, ""),
        )
        for name, one in inspect.signature(function).parameters.items()
        if name in hints
    ]
    return _table(rows)


def _documented(kind: type[Settings]) -> list[tuple[str, str]]:
    docs = field_docs(kind)
    return [(name, docs.get(name, "")) for name in field_types(kind)]


def _default(kind: type[Settings], name: str) -> str:
    return _shown(getattr(kind, name)) if hasattr(kind, name) else "required"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    lines = []
    for row in rows:
        if len(row) == 1:
            lines.append(row[0])
            continue
        flag, default, doc = row
        head = f"  {flag}" + (f" [{default}]" if default else "")
        text = textwrap.wrap(doc, 76)
        lines += [head, *(f"      {line}" for line in text)]
    return "\n".join(lines)

"""Configuration as values: frozen dataclasses that check themselves, and one conversion to and from plain JSON.

Every sampler, schedule, output rule and learner setting inherits from `Settings`. A parameter is declared once, as a field
with its type, its default and a docstring below it; the command line, `config.json` and the help text all read that
declaration. `to_plain` and `from_plain` convert such a value to and from dictionaries, lists, strings and numbers.
"""

import ast
import dataclasses
import functools
import inspect
import math
import re
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from purectrl.core.errors import InputError, choose, require

S = TypeVar("S", bound="Settings")

LARGEST, SMALLEST = 1e12, 1e-12
"""Every number in a configuration is 0 or has an absolute value between these."""
NUMBERS = {int: r"-?[0-9]+", float: r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?|nan|[-+]?inf"}
"""How numbers are typed: digits are those of ASCII, without separators."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base class of configuration values. Types are checked on construction; `check` adds the constraints of a class.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Fit(Settings):
    ...     steps: int = 100
    ...     def check(self) -> None:
    ...         require(self.steps >= 1, f"steps: must be at least 1, not {self.steps}")
    >>> Fit(steps=0)
    Traceback (most recent call last):
    ...
    purectrl.core.errors.InputError: steps: must be at least 1, not 0
    >>> Fit(steps="many")
    Traceback (most recent call last):
    ...
    purectrl.core.errors.InputError: steps: must be an integer, not 'many'
    """

    def __post_init__(self) -> None:
        for name, annotation in field_types(type(self)).items():
            check_type(name, getattr(self, name), annotation)
        self.check()

    def check(self) -> None:
        """Raises `InputError` if the values do not go together."""


@functools.cache
def field_types(kind: type[Settings]) -> dict[str, Any]:
    """The declared type of every parameter of a settings class, in order."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


def check_type(name: str, value: Any, annotation: Any) -> None:
    """Raises unless `value` is of the declared type, and every number in it is finite and of a sensible size."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        choose(name, value, arguments)
    elif origin in (Union, types.UnionType):
        if value is None and types.NoneType in arguments:
            return
        if any(get_origin(argument) is Callable for argument in arguments) and callable(value):
            return
        kinds = (types.NoneType, *(argument for argument in arguments if get_origin(argument) is Callable))
        (only,) = (argument for argument in arguments if argument not in kinds)
        check_type(name, value, only)
    elif origin is tuple:
        require(isinstance(value, tuple), f"{name}: must be a tuple, not {value!r:.60}")
        for item in value:
            check_type(name, item, arguments[0])
    elif annotation is bool:
        require(isinstance(value, bool), f"{name}: must be true or false, not {value!r:.60}")
    elif annotation is str:
        require(
            isinstance(value, str) and bool(value.strip()), f"{name}: must be a non-empty string, not {value!r:.60}"
        )
    elif annotation in (int, float):
        is_number = type(value) is int or (annotation is float and isinstance(value, float))
        require(is_number, f"{name}: must be {'an integer' if annotation is int else 'a number'}, not {value!r:.60}")
        require(isinstance(value, int) or math.isfinite(value), f"{name}: must be a finite number, not {value}")
        in_range = value == 0 or SMALLEST <= abs(value) <= LARGEST
        require(in_range, f"{name}: must be 0 or between 1e-12 and 1e12 in absolute value, not {value!r:.24}")
    elif isinstance(annotation, type) and annotation is not Any:
        require(isinstance(value, annotation), f"{name}: must be a {annotation.__name__}, not {value!r:.60}")


def check_positive(settings: Settings, *names: str) -> None:
    """Raises unless each of the named parameters is greater than zero."""
    for name in names:
        value = getattr(settings, name)
        require(value is None or value > 0, f"{name}: must be positive, not {value}")


def check_not_negative(settings: Settings, *names: str) -> None:
    """Raises unless each of the named parameters is at least zero."""
    for name in names:
        value = getattr(settings, name)
        require(value is None or value >= 0, f"{name}: must not be negative, got {value}")


def check_counts(settings: Settings, *names: str, most: int = 1_000_000) -> None:
    """Raises unless each of the named parameters is an integer from 1 to `most`."""
    for name in names:
        value = getattr(settings, name)
        require(value is None or 1 <= value <= most, f"{name}: must be between 1 and {most:,}, not {value}")


def to_plain(value: Any) -> Any:
    """Settings, tuples and scalars as JSON has them.

    >>> to_plain((1, 2.5, None))
    [1, 2.5, None]
    """
    if isinstance(value, Settings):
        return {name: to_plain(getattr(value, name)) for name in field_types(type(value))}
    if isinstance(value, tuple):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: type[S], plain: Any, path: str) -> S:
    """The settings of class `kind` that `to_plain` turned into `plain`; errors name the parameter by its full path."""
    require(isinstance(plain, Mapping), f"{path}: must be an object with names and values, not {plain!r:.60}")
    declared = field_types(kind)
    values = {}
    for name, item in plain.items():
        if name not in declared:
            with prefixed(path):
                choose("setting", name, declared)
        values[name] = _value(declared[name], item, f"{path}.{name}")
    required = (field.name for field in dataclasses.fields(kind) if field.init and _has_no_default(field))
    if missing := [name for name in required if name not in values]:
        raise InputError(f"{path}: needs a value for {missing[0]}")
    with prefixed(path):
        return kind(**values)


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _value(annotation: Any, plain: Any, path: str) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return from_plain(annotation, plain, path)
    if get_origin(annotation) is tuple and isinstance(plain, list):
        return tuple(plain)
    return plain


class prefixed:  # noqa: N801 (used as a context manager, like contextlib.suppress)
    """Puts the path of a component in front of the errors that it raises: `m: …` becomes `sampler.m: …`.

    >>> with prefixed("sampler"):
    ...     require(False, "m: must be at least 1, not 0")
    Traceback (most recent call last):
    ...
    purectrl.core.errors.InputError: sampler.m: must be at least 1, not 0
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InputError):
            separator = ": " if str(error).startswith("unknown ") else "."
            raise InputError(f"{self.path}{separator}{error}") from None


def parse_text(name: str, texts: Sequence[str], annotation: Any) -> Any:
    """The value of type `annotation` that was typed as `texts`, the words after a flag.

    >>> parse_text("sizes", ["1", "2"], tuple[int, ...]), parse_text("grid", ["none"], int | None)
    ((1, 2), None)
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        if [text.lower() for text in texts] == ["none"]:
            return None
        # a union such as `str | Callable` is typed as a string
        plain = [
            one for one in arguments if one in (int, float, bool, str, Path) or get_origin(one) in (tuple, Literal)
        ]
        return parse_text(name, texts, next(iter(plain), str))
    if origin is tuple:
        require(len(texts) > 0, f"{name}: needs at least one value")
        return tuple(parse_text(name, [text], arguments[0]) for text in texts)
    if annotation is bool and not texts:
        return True
    require(len(texts) == 1, f"{name}: needs {'one value' if not texts else f'one value, not {len(texts)}'}")
    (text,) = texts
    require(bool(text.strip()), f"{name}: the value is empty")
    if annotation is bool:
        words = {"true": True, "false": False}
        require(text.lower() in words, f"{name}: must be true or false, not {text!r:.60}")
        return words[text.lower()]
    if annotation in (int, float):
        try:
            require(re.fullmatch(NUMBERS[annotation], text, re.IGNORECASE) is not None, "")
            return annotation(text)
        except ValueError:
            wanted = "an integer" if annotation is int else "a number"
            raise InputError(f"{name}: must be {wanted}, not {text!r:.60}") from None
    return Path(text) if annotation is Path else text


@functools.cache
def field_docs(kind: type[Any]) -> dict[str, str]:
    """The docstring below each field of a dataclass, base classes included."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base is object or not dataclasses.is_dataclass(base):
            continue
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError):
            continue
        assert isinstance(tree, ast.ClassDef)
        for statement, following in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                text = following.value if isinstance(following, ast.Expr) else None
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    found[statement.target.id] = " ".join(text.value.split())
    return found


def parameter_types(function: Callable[..., Any]) -> dict[str, Any]:
    """The declared type of every parameter of a function that has one, in order.

    >>> def problem(horizon: float = 1.0) -> "Missing": ...
    >>> parameter_types(problem)
    {'horizon': <class 'float'>}
    """
    annotations = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    owner = types.SimpleNamespace(__annotations__=annotations)
    return get_type_hints(owner, getattr(inspect.unwrap(function), "__globals__", {}))


def parameter_docs(function: Callable[..., Any]) -> dict[str, str]:
    """The documentation of each parameter in the `... arguments:` sections of a function's docstring.

    >>> def problem(horizon):
    ...     '''A problem.
    ...
    ...     Main arguments:
    ...         horizon: length of an episode
    ...             in seconds.
    ...     '''
    >>> parameter_docs(problem)
    {'horizon': 'length of an episode in seconds.'}
    """
    found: dict[str, str] = {}
    name, inside = "", False
    for line in (inspect.getdoc(function) or "").splitlines():
        indent = len(line) - len(line.lstrip())
        if line.strip().endswith("arguments:") and indent == 0:
            inside = True
        elif line.strip() and indent == 0:
            inside = False
        elif inside and indent == 4 and ":" in line:
            name, _, text = line.strip().partition(":")
            found[name] = text.strip()
        elif inside and line.strip() and name:
            found[name] += " " + line.strip()
    return found

"""References to Python objects: `module:name`, or `path/to/file.py:name` for code anywhere on disk."""

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from purectrl.core.errors import InputError, choose


def is_reference(text: str) -> bool:
    """Whether `text` refers to code, rather than being a shipped name.

    >>> is_reference("tank.py:problem"), is_reference("pendulum")
    (True, False)
    """
    return ":" in text


def normalized(reference: str) -> str:
    """The reference with the absolute path of its file, so that it is valid from every directory."""
    place, name = _split(reference)
    return f"{Path(place).expanduser().resolve()}:{name}" if place.endswith(".py") else reference


def load_reference(reference: str) -> Any:
    """The object that `reference` names. This imports and runs the module or file.

    >>> load_reference("math:pi")
    3.141592653589793
    """
    place, name = _split(reference)
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    if not hasattr(module, name):
        names = [found for found in vars(module) if not found.startswith("_")]
        choose(f"name in {place}", name, names or ["(nothing)"])
    return getattr(module, name)


def reference_of(kind: type[Any]) -> str:
    """The reference of a class that was loaded by `load_reference` or imported from a module."""
    return f"{kind.__module__}:{kind.__qualname__}"


def digest(reference: str) -> str:
    """A checksum of the file behind a reference; of a package, of the file of the named module."""
    place, _ = _split(reference)
    if place.endswith(".py"):
        file: Path | None = Path(place)
    else:
        with _working_directory_on_path():
            found = importlib.util.find_spec(place)
        file = Path(found.origin) if found is not None and found.origin else None
    if file is None or not file.is_file():
        raise InputError(f"{reference}: there is no file to compute a checksum of")
    return hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()


def _split(reference: str) -> tuple[str, str]:
    place, separator, name = reference.rpartition(":")
    if not separator or not place or not name.isidentifier():
        raise InputError(f"{reference!r:.100}: expected module:name or path/to/file.py:name")
    return place, name


def _load_file(path: Path) -> ModuleType:
    path = path.expanduser().resolve()
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    name = str(path)  # so that the reference of a class in it can be derived from the class
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, Exception | SystemExit):
            raise InputError(f"{path}: importing it failed: {type(error).__name__}: {error}") from error
        raise
    return module


def _load_module(name: str) -> ModuleType:
    with _working_directory_on_path():
        try:
            return importlib.import_module(name)
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {error}"
            raise InputError(f"{name}: importing the module failed: {reason}") from error


class _working_directory_on_path:  # noqa: N801 (used as a context manager)
    """Makes modules in the working directory importable, after all installed ones."""

    def __enter__(self) -> None:
        self.entry = str(Path.cwd())
        sys.path.append(self.entry)

    def __exit__(self, *_: object) -> None:
        sys.path.remove(self.entry)

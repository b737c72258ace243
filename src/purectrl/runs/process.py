"""What a run needs of its process: signals, seconds of compilation, versions of packages."""

import functools
import importlib.metadata
import multiprocessing
import os
import platform
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from purectrl import signals
from purectrl.core.errors import InputError


def exit_unless_worker() -> None:
    """Ends the program at once. The worker of a sweep continues to save its run: the sweep can kill it."""
    if multiprocessing.parent_process() is None:
        os._exit(signals.STOPPED)  # the last checkpoint is on disk; nothing else needs an orderly end


@contextmanager
def graceful_shutdown(on_second: Callable[[], None] = exit_unless_worker) -> Iterator[list[int]]:
    """Collects SIGINT and SIGTERM, so that a step in progress is completed and saved; later signals call `on_second`."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield received
        return

    def handle(number: int, _: Any) -> None:
        if received:
            on_second()
        received.append(number)

    # the workers of a sweep ignore SIGINT, which the terminal sends to them as well: the sweep stops them
    handled = [number for number in signals.NUMBERS if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, handle) for number in handled}
    try:
        with signals.collecting(received):
            yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


CACHED_FROM = 0.2
"""Programs that took at least this many seconds to compile are kept in JAX's persistent cache."""


@contextmanager
def compile_clock(uses_jax: bool) -> Iterator[list[float]]:
    """Collects the seconds of every compilation on this thread, and enables JAX's persistent compilation cache.

    Compilation on another thread, in parallel with other work, costs the run no seconds and is not counted.
    """
    seconds: list[float] = []
    if not uses_jax:
        yield seconds
        return
    import jax

    chosen = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue] (made at run time)
    if chosen is None and (cache := _cache_directory()) is not None:
        jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", CACHED_FROM)
    own = threading.get_ident()

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event.endswith("backend_compile_duration") and threading.get_ident() == own:
            seconds.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seconds
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def _cache_directory() -> Path | None:
    """The directory of compiled programs; None if it cannot be written."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 (no home is no error here)
    cache = Path(base) / "purectrl" / "jax"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return cache if cache.is_absolute() and os.access(cache, os.W_OK) else None


EXTRAS = {
    "accelerate": "diffusion",
    "diffusers": "diffusion",
    "onnxruntime": "diffusion",
    "peft": "diffusion",
    "rapidocr-onnxruntime": "diffusion",
    "torch": "diffusion",
    "transformers": "diffusion",
    "mujoco": "mujoco",
}
"""The optional dependency group that installs a package."""


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Versions of Python, purectrl and `packages`; raises with the command that installs a missing one."""
    found = {"python": platform.python_version()}
    for name in ("purectrl", *packages):
        try:
            found[name] = _read_once(importlib.metadata.version, name)
        except importlib.metadata.PackageNotFoundError:
            extra = f"[{EXTRAS[name]}]" if name in EXTRAS else ""
            raise InputError(
                f"{name} is not installed; `pip install -c constraints.txt '.{extra}'` installs it"
            ) from None
    return found


@functools.cache
def _read_once(read: Callable[[str], str], name: str) -> str:
    """The version of a package: reading it takes longer than a short run does, and it does not change."""
    return read(name)

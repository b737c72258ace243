"""Where the seconds before the first result go: tracing, lowering and compiling, for each program of a run.

    python benchmarks/compile_times.py [PROBLEM] [--algorithm NAME] [--cache DIR]

Prints a table of a whole run: for each compiled program how often it was made, the seconds of tracing it in Python, of
lowering it, of compiling it or reading it from JAX's persistent cache, and whether that happened on the main thread. The
cache is empty, or that in DIR. Programs that take less than a twentieth of a second are summed up.
"""

import argparse
import os
import tempfile
import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import jax

SMALLEST = 0.05
"""Programs that take fewer seconds are not named."""
PARTS = {
    "jaxpr_trace_duration": "tracing",
    "jaxpr_to_mlir_module_duration": "lowering",
    "backend_compile_duration": "compiling",
}


@dataclass
class Seconds:
    """What a program cost."""

    made: int = 0
    tracing: float = 0.0
    lowering: float = 0.0
    compiling: float = 0.0

    @property
    def total(self) -> float:
        """Of all parts."""
        return self.tracing + self.lowering + self.compiling

    def add(self, other: "Seconds") -> None:
        """Adds the cost of another program."""
        self.made += other.made
        self.tracing += other.tracing
        self.lowering += other.lowering
        self.compiling += other.compiling

    def row(self, name: str, thread: str) -> str:
        """A line of the table."""
        parts = f"{self.tracing:9.2f}{self.lowering:10.2f}{self.compiling:11.2f}"
        return f"{name:28.28}{thread:>7}{self.made:6d}{parts}"


def collect() -> dict[tuple[str, str], Seconds]:
    """Seconds of programs by name and thread, filled from now on."""
    found: dict[tuple[str, str], Seconds] = defaultdict(Seconds)

    def listen(event: str, duration_secs: float, **more: Any) -> None:
        part = PARTS.get(event.rpartition("/")[2])
        if part is None:
            return
        thread = "main" if threading.current_thread() is threading.main_thread() else "other"
        one = found[str(more.get("fun_name", "")).removeprefix("jit(").removesuffix(")"), thread]
        setattr(one, part, getattr(one, part) + duration_secs)
        one.made += part == "compiling"

    jax.monitoring.register_event_duration_secs_listener(listen)
    return found


def table(found: dict[tuple[str, str], Seconds]) -> str:
    """The programs by their seconds, the small ones of each thread together, and the sums."""
    lines = [f"{'program':28}{'thread':>7}{'made':>6}{'tracing':>9}{'lowering':>10}{'compiling':>11}"]
    small, sums = defaultdict(Seconds), defaultdict(Seconds)
    for (name, thread), seconds in sorted(found.items(), key=lambda pair: -pair[1].total):
        sums[thread].add(seconds)
        if seconds.total < SMALLEST:
            small[thread].add(seconds)
        else:
            lines.append(seconds.row(name, thread))
    lines += [seconds.row("smaller ones", thread) for thread, seconds in small.items()]
    return "\n".join([*lines, *(seconds.row("all", thread) for thread, seconds in sums.items())])


def main() -> None:
    """Runs the program and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("problem", nargs="?", default="pendulum")
    parser.add_argument("--algorithm", default="pure-auto")
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--cache", help="the directory of compiled programs; none is an empty one")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cache = chosen.cache or os.path.join(folder, "cache")  # noqa: PTH118
        jax.config.update("jax_compilation_cache_dir", cache)
        found = collect()
        from purectrl.cli import main as purectrl

        words = ["--algorithm", chosen.algorithm, "--seed", str(chosen.seed), "--quiet", "--out", f"{folder}/run"]
        if purectrl(["run", chosen.problem, *words]) == 0:
            print(table(found))


if __name__ == "__main__":
    main()

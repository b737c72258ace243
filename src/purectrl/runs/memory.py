"""An estimate of the memory of a run before anything is built, compared with what the machine has.

Learner settings and problems know their largest arrays (`memory_bytes`). This module adds the process itself and the records
of a run without files. The estimate is meant to be right within a factor of about two, to refuse in one line what would
otherwise end in the kernel's out-of-memory killer.
"""

from collections.abc import Mapping
from pathlib import Path

from purectrl.core.errors import InputError
from purectrl.core.loop import Loop
from purectrl.core.problem import Problem
from purectrl.runs.spec import RunSpec

MB, GB = 1e6, 1e9
JAX_BYTES, TORCH_BYTES = 330 * MB, 700 * MB
"""A process with its imports and compiled programs."""
RECORD_BYTES = 1000
"""One record as a dictionary in memory."""


def estimate(spec: RunSpec, in_memory: bool = False) -> dict[str, float]:
    """Bytes by the settings that they depend on, such as `learner.model.width`; "" for what no setting changes.

    Main arguments:
        spec: what would be run.
        in_memory: whether the records are kept in memory, as in a run without files.
    """
    problem, sampler = spec.load_problem(), spec.algorithm.sampler
    found = {"": TORCH_BYTES if "torch" in problem.packages else JAX_BYTES}
    if in_memory:
        found["measurements"] = RECORD_BYTES * spec.budget.measurements / sampler.m
    for more in (
        problem.memory_bytes(spec.budget, sampler),
        spec.algorithm.learner.memory_bytes(problem, spec.budget, sampler),
    ):
        for name, count in more.items():
            found[name] = found.get(name, 0.0) + count
    return found


def dominating(found: Mapping[str, float]) -> str:
    """The settings that make up most of an estimate.

    >>> dominating({"": 1.0, "learner.paths": 5.0, "problem.steps": 9.0, "measurements": 0.1})
    'problem.steps, learner.paths'
    """
    names, rest = [], sum(found.values()) / 10
    for name, count in sorted(found.items(), key=lambda pair: -pair[1]):
        if name and (count > rest or not names):
            names.append(name)
    return ", ".join(dict.fromkeys(part for name in names for part in name.split(", ")))


def require_memory(spec: RunSpec, force: bool = False, in_memory: bool = False, copies: int = 1) -> None:
    """Raises `InputError` if `copies` runs at the same time need more memory than is available, unless `force`."""
    if force:
        return
    found = estimate(spec, in_memory)
    needed, has = copies * sum(found.values()), available()
    if needed > has:
        several = f"{copies} runs at the same time need" if copies > 1 else "the run needs"
        raise InputError(
            f"{dominating(found)}: {several} about {_shown(needed)} of memory, {_shown(has)} are available; use smaller "
            f"values{' or fewer workers' if copies > 1 else ''}, or --force (in Python: force=True)"
        )


def require_update_memory(problem: Problem, loop: Loop, force: bool = False) -> None:
    """Raises `InputError` if an update, such as that of a diffusion model, needs more memory than is available, unless
    `force`."""
    if force:
        return
    needed, has = problem.update_bytes(loop), available()
    if needed > has:
        raise InputError(
            f"learner: an update needs about {_shown(needed)} of memory, {_shown(has)} are available; use a smaller batch "
            "or chunk of trajectories, fewer denoising steps, or --force (in Python: force=True)"
        )


def _shown(count: float) -> str:
    """Bytes in a unit that fits.

    >>> _shown(3.21e9), _shown(8.1e13)
    ('3.2 GB', '81,000 GB')
    """
    return f"{count / GB:.1f} GB" if count < 1000 * GB else f"{count / GB:,.0f} GB"


def available(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> float:
    """Bytes that a new process can use: what the kernel estimates, or what the control groups allow if that is less."""
    limits = [_free_in(group) for group in _groups(proc, cgroups)]
    for line in _read(proc / "meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            limits.append(1024.0 * int(value.split()[0]))
    return min(limits, default=float("inf"))


def _groups(proc: Path, cgroups: Path) -> list[Path]:
    """The directories of the control groups of this process that may limit memory, for both versions of the interface."""
    found = []
    for line in _read(proc / "self" / "cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" or "memory" in controllers.split(","):
            root = cgroups if number == "0" else cgroups / "memory"
            place = root / path.lstrip("/")
            found += [one for one in (place, *place.parents) if one.is_relative_to(root)]
    return found


def _free_in(group: Path) -> float:
    """What a control group still allows; infinite without a limit. Its page cache can be reclaimed and does not count."""
    for limit, usage, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        most, used = _read(group / limit).strip(), _read(group / usage).strip()
        if most.isdecimal() and used.isdecimal():
            lines = (line.split() for line in _read(group / "memory.stat").splitlines())
            reclaimable = next((int(words[1]) for words in lines if words[0] == cache), 0)
            return max(float(most) - float(used) + reclaimable, 0.0)
    return float("inf")


def _read(file: Path) -> str:
    """The content of a file of the kernel; empty where there is none, as on other systems than Linux."""
    try:
        return file.read_text()
    except OSError:
        return ""

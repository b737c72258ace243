"""What a damage of a run directory is, and what all kinds of damage need."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

COMMANDS = ("resume", "evaluate", "report", "load_policy")
READ_BY = {
    "config.json": COMMANDS,
    "summary.json": COMMANDS,
    "records.jsonl": ("report", "resume unfinished"),
    "checkpoint": ("resume unfinished",),
    "data": ("resume unfinished",),
    "policy": ("evaluate", "load_policy"),
    "policy/plan.safetensors": ("evaluate", "load_policy"),
}
"""Which commands cannot do their work without a file."""
SECRET = "PRECIOUS-7c1e"
TAG = "<hostile-tag onload=alert(1)>"
ESCAPES = "\x1b[31mred\x1b[0m\x07\x1b]0;title\x07\x9b2J"


class Case(NamedTuple):
    """A hostile directory.

    Main arguments:
        words: what was done, in words.
        refused_by: the commands that must refuse the run, or leave it out.

    Other arguments:
        directory: where the run is, if it was renamed.
        inside: whether the command is called from within the directory.
    """

    words: str
    refused_by: frozenset[str] = frozenset()
    directory: Path | None = None
    inside: bool = False


class Place(NamedTuple):
    """The directories of a trial: a run, and what is not the run's business."""

    run: Path
    outside: Path
    finished: bool


Damage = Callable[[Random, Place], Case]


def refusing(place: Place, name: str) -> frozenset[str]:
    """The commands that need the file or directory `name` of this run."""
    top = name if name in READ_BY else name.split("/")[0]
    needed = READ_BY.get(top, ())
    found = {command for command in COMMANDS if command in needed}
    if not place.finished and "resume unfinished" in needed:
        found.add("resume")
    return frozenset(found)


def files_of(place: Place) -> list[str]:
    """The files of the run, of many shards the first and the last, and those that a command would write."""
    found = [path for path in sorted(place.run.rglob("*")) if path.is_file()]
    shards = [path for path in found if path.parent.name == "data"]
    names = [str(path.relative_to(place.run)) for path in found if path not in shards[1:-1]]
    return [*names, "evaluation.json"] if "evaluation.json" not in names else names


def folders_of(place: Place) -> list[str]:
    """Every directory of the run."""
    return [name for name in ("checkpoint", "data", "policy", "media") if (place.run / name).is_dir()]


def newest_only(place: Place, name: str) -> None:
    """Leaves no older checkpoint that could be used instead of `name`."""
    if name.startswith("checkpoint/"):
        for other in (place.run / "checkpoint").iterdir():
            if other.name != Path(name).name:
                other.unlink()

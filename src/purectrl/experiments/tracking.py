"""Live view: the lines of `records.jsonl` as curves in TensorBoard or Weights & Biases, while the run goes on.

A tracker reads along and has no say: a run is the same with and without it, bit for bit. No step is drawn twice, however
often a run is killed and goes on:

    - a tracker is told a line once a checkpoint holds that line, so that no line it has is taken back;
    - when it is closed, `DIR/NAME/told.json` notes what it was told. A killed process notes nothing: what it left may lack
      its last lines, so it is removed, and these lines are told again.

Nothing of either program is imported until it is asked for.
"""

import dataclasses
import math
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from purectrl.core.errors import InputError, StoreError
from purectrl.experiments.files import read_json, write_json


class Tracker(Protocol):
    """Draws a run somewhere."""

    def record(self, line: Mapping[str, Any]) -> None:
        """One line of `records.jsonl`."""
        ...

    def summary(self, summary: Mapping[str, Any]) -> None:
        """`summary.json`: the run is over."""
        ...

    def close(self) -> None:
        """Nothing more is coming, whether the run has ended or not; what was told is on disk afterwards."""
        ...


@dataclass(frozen=True)
class Told:
    """What a tracker has been told of a run."""

    id: str
    """The same for every part of a run that was stopped and went on."""
    measurements: int = 0
    """Of the last line."""
    finished: bool = False
    """Whether it had the summary."""
    parts: tuple[str, ...] = ()
    """The files or directories that hold it, one for each time that the run was started."""


@dataclass(frozen=True)
class Tracking:
    """A kind of tracker.

    Main arguments:
        name: it writes into `DIR/name`.
        parts: the pattern of what it writes there.
        open: (directory of the run, its config, what was told before) -> a tracker that goes on with that.
    """

    name: str
    parts: str
    open: Callable[[Path, Mapping[str, Any], Told], Tracker]


class Live:
    """The trackers of one run. Lines wait here until a checkpoint holds them."""

    def __init__(self, channels: "Sequence[_Channel]") -> None:
        self._channels = channels
        self._waiting: list[Mapping[str, Any]] = []

    def catch_up(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Lines that a checkpoint holds; each tracker is told those that it has not seen."""
        for channel in self._channels:
            channel.tell(lines)

    def record(self, line: Mapping[str, Any]) -> None:
        """A line that no checkpoint holds yet."""
        if self._channels:
            self._waiting.append(line)

    def saved(self) -> None:
        """All lines so far are on disk for good."""
        self.catch_up(self._waiting)
        self._waiting.clear()

    def summary(self, summary: Mapping[str, Any]) -> None:
        """The run is over."""
        for channel in self._channels:
            channel.end(summary)


class _Channel:
    """One tracker, and the file that notes what it was told."""

    def __init__(self, tracking: Tracking, directory: Path, config: Mapping[str, Any]) -> None:
        self._folder, self._pattern = directory / tracking.name, tracking.parts
        self._told = _read_told(self._folder / "told.json")
        self._remove_unnoted()
        self._note()  # the id, at least: it must outlive a kill
        self._tracker = tracking.open(directory, config, self._told)

    def tell(self, lines: Sequence[Mapping[str, Any]]) -> None:
        for line in lines:
            if line["measurements"] > self._told.measurements:
                self._tracker.record(line)
                self._told = dataclasses.replace(self._told, measurements=line["measurements"])

    def end(self, summary: Mapping[str, Any]) -> None:
        if not self._told.finished:
            self._tracker.summary(summary)
            self._told = dataclasses.replace(self._told, finished=True)

    def close(self) -> None:
        self._tracker.close()
        self._told = dataclasses.replace(self._told, parts=tuple(path.name for path in self._parts()))
        self._note()

    def _parts(self) -> list[Path]:
        return sorted(self._folder.glob(self._pattern))

    def _remove_unnoted(self) -> None:
        for path in self._parts():
            if path.name not in self._told.parts:
                # renamed first, since a helper process of the killed one may still be creating files in there
                gone = path.replace(path.with_name(f".{path.name}.part"))
                shutil.rmtree(gone) if gone.is_dir() else gone.unlink()

    def _note(self) -> None:
        self._folder.mkdir(exist_ok=True)
        write_json(self._folder / "told.json", dataclasses.asdict(self._told))


def _read_told(file: Path) -> Told:
    if not file.exists():
        return Told(secrets.token_hex(4))
    found = read_json(file)
    kinds = {"id": str, "measurements": int, "finished": bool, "parts": list}
    good = isinstance(found, dict) and {name: type(value) for name, value in found.items()} == kinds
    if not good or not all(isinstance(name, str) for name in found["parts"]):
        raise StoreError(f"{file} is not what a tracker left; remove {file.parent}, and it is drawn anew")
    return Told(found["id"], found["measurements"], found["finished"], tuple(found["parts"]))


@contextmanager
def tracking(kinds: Sequence[Tracking], directory: Path, config: Mapping[str, Any]) -> Iterator[Live]:
    """The trackers of the run in `directory`, closed at the end, however it comes."""
    with ExitStack() as stack:
        channels = []
        for kind in kinds:
            channels.append(_Channel(kind, directory, config))
            stack.callback(channels[-1].close)
        yield Live(channels)


def curves(line: Mapping[str, Any]) -> dict[str, float]:
    """What can be drawn of a line: its finite numbers.

    >>> curves({"step": 3, "updated": "both", "covered": True, "reward": None, "gap": float("nan")})
    {'step': 3.0, 'covered': 1.0}
    """
    scalars = {name: value.item() if getattr(value, "ndim", None) == 0 else value for name, value in line.items()}
    return {
        name: float(value)
        for name, value in scalars.items()
        if isinstance(value, bool | int | float) and math.isfinite(value)
    }


def to_tensorboard() -> Tracking:
    """Event files in `DIR/tensorboard`, over the number of measurements: what all algorithms have in common."""
    try:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: F401
    except ImportError:
        raise _missing("tensorboard") from None
    return Tracking("tensorboard", "events.out.*", _TensorBoard)


class _TensorBoard:
    """Writes TensorBoard's events itself, since its own writers need TensorFlow or torch."""

    def __init__(self, directory: Path, config: Mapping[str, Any], told: Told) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._values = event_pb2.Event, summary_pb2.Summary
        self._writer = EventFileWriter(str(directory / "tensorboard"), flush_secs=5)
        self._last = told.measurements
        self.close = self._writer.close
        # a TensorBoard that is watching has seen what a killed process left: beyond this start it forgets that
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._writer.add_event(self._event(wall_time=time.time(), step=self._last + 1, session_log=start))

    def record(self, line: Mapping[str, Any]) -> None:
        self._last = line["measurements"]
        self._add(curves(line))

    def summary(self, summary: Mapping[str, Any]) -> None:
        self._add({f"summary/{name}": value for name, value in curves(summary["metrics"]).items()})

    def _add(self, values: Mapping[str, float]) -> None:
        points = [self._values.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._writer.add_event(self._event(wall_time=time.time(), step=self._last, summary=self._values(value=points)))


def to_wandb() -> Tracking:
    """Weights & Biases, in `DIR/wandb`. It stays off the network unless the variable WANDB_MODE says `online`."""
    os.environ.setdefault("WANDB_MODE", "offline")  # before the import: its own telemetry reads it, too
    try:
        from wandb import init  # noqa: F401
    except ImportError:
        raise _missing("wandb") from None
    return Tracking("wandb", "*run-*-*", _Wandb)


class _Wandb:
    """One run of Weights & Biases; stopped and gone on with, it keeps its id."""

    def __init__(self, directory: Path, config: Mapping[str, Any], told: Told) -> None:
        os.environ.setdefault("WANDB_MODE", "offline")  # a worker of a sweep has an environment of its own
        import wandb

        quiet = wandb.Settings(silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True)
        try:
            self._run = wandb.init(
                id=told.id,
                resume="allow",
                dir=str(directory),
                project=os.environ.get("WANDB_PROJECT", "purectrl"),
                name=directory.name,
                config=dict(config),
                settings=quiet,
            )
        except wandb.errors.Error as error:
            again = f"`purectrl resume {directory}` goes on, with or without it"
            raise InputError(f"track: wandb does not start: {error}; {again}") from None
        self._run.define_metric("*", step_metric="measurements")
        self._ended = False

    def record(self, line: Mapping[str, Any]) -> None:
        self._run.log(curves(line), step=line["step"], commit=True)  # or the last row waits for a next one

    def summary(self, summary: Mapping[str, Any]) -> None:
        self._run.summary.update({"metrics": summary["metrics"], "ledger": summary["ledger"]})
        self._ended = True

    def close(self) -> None:
        self._run.finish(exit_code=0 if self._ended else 1)


TRACKERS: Mapping[str, Callable[[], Tracking]] = {"tensorboard": to_tensorboard, "wandb": to_wandb}
"""By the name that `--track` takes."""


def _missing(name: str) -> InputError:
    return InputError(f"track: {name} is not installed; `pip install -c constraints.txt '.[{name}]'` installs it")

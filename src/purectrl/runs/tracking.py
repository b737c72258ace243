"""The lines of `records.jsonl` as curves in TensorBoard or Weights & Biases while a run is in progress.

A tracker never changes the run: its results are equal to the last bit with and without it. A tracker receives a line only
after a checkpoint holds that line, so that no line is withdrawn. Every start of a run logs all of its lines, from the first
one, so that none is missing after a kill; the trackers' own resume features make sure that none is shown twice:

    - TensorBoard: each start writes an event file that begins with a session start at step 0. TensorBoard then drops the
      points of the older files, which stay on disk; other programs that read event files may see those points again.
    - W&B offline: the new offline run has the same id and replaces the older one, which is removed.
    - W&B online: with `resume="allow"`, W&B reports the first step that its server lacks; earlier steps are skipped.
"""

import importlib.util
import math
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from purectrl.core.errors import InputError, StoreError, require
from purectrl.core.io import check_links, temporary_name

Line = Mapping[str, Any]


class Tracker(NamedTuple):
    """Logs one run: `record` takes a line of `records.jsonl`, `summary` the content of `summary.json`."""

    record: Callable[[Line], None]
    summary: Callable[[Line], None]


TrackerKind = Callable[[Path, Line], AbstractContextManager[Tracker]]
"""(directory of the run, its configuration) -> a tracker of this run. It is pickled for the workers of a sweep."""


class LiveLogger:
    """The trackers of one run. Lines are held back until a checkpoint holds them."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = trackers
        self._pending: list[Line] = []

    def catch_up(self, lines: Sequence[Line]) -> None:
        """Logs lines that a checkpoint holds: once, at the start, all lines of the run so far."""
        for tracker in self._trackers:
            for line in lines:
                tracker.record(line)

    def record(self, line: Line) -> None:
        """Adds a line that no checkpoint holds yet."""
        if self._trackers:
            self._pending.append(line)

    def saved(self) -> None:
        """Logs the lines added so far: a checkpoint holds them now."""
        self.catch_up(self._pending)
        self._pending.clear()

    def summary(self, summary: Line) -> None:
        """Logs the summary of the finished run."""
        for tracker in self._trackers:
            tracker.summary(summary)


@contextmanager
def tracking(kinds: Sequence[TrackerKind], directory: Path, config: Line) -> Iterator[LiveLogger]:
    """The trackers of the run in `directory`; they are closed at the end, also after an error."""
    with ExitStack() as stack:
        yield LiveLogger([stack.enter_context(kind(directory, config)) for kind in kinds])


def curves(line: Line) -> dict[str, float]:
    """The finite numbers of a line: what can be plotted.

    >>> curves({"step": 3, "updated": "both", "covered": True, "reward": None, "gap": float("nan")})
    {'step': 3.0, 'covered': 1.0}
    """
    scalars = {name: value.item() if getattr(value, "ndim", None) == 0 else value for name, value in line.items()}
    numbers = {name: value for name, value in scalars.items() if isinstance(value, bool | int | float)}
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


@contextmanager
def _tensorboard(directory: Path, config: Line) -> Iterator[Tracker]:
    """Writes events directly: `SummaryWriter(purge_step=0)` does the same, but needs torch or a further package."""
    # the generated modules do not declare their classes, hence the two ignored rules
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(check_links(directory, "tensorboard")), flush_secs=5)
    writer.add_event(Event(wall_time=time.time(), step=0, session_log=SessionLog(status=SessionLog.START)))

    def plot(step: int, prefix: str, values: Line) -> None:
        points = [Summary.Value(tag=prefix + name, simple_value=value) for name, value in curves(values).items()]
        writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=points)))

    try:
        yield Tracker(
            record=lambda line: plot(line["measurements"], "", line),
            summary=lambda summary: plot(summary["ledger"]["measurements"], "summary/", summary["metrics"]),
        )
    finally:
        writer.close()


@contextmanager
def _wandb(directory: Path, config: Line) -> Iterator[Tracker]:
    """One W&B run. Its id is read from what W&B left in the run directory and is random at the first start: an id derived
    from the configuration would merge two runs of equal configuration, say before and after a change of the code."""
    os.environ.setdefault("WANDB_MODE", "offline")  # before the import, because W&B's telemetry reads it as well
    import wandb
    from wandb.errors import Error

    folders = [entry for entry in check_links(directory, "wandb").glob("*run-*") if not entry.is_symlink()]
    earlier = sorted(file for folder in folders for file in folder.glob("run-*.wandb") if not file.is_symlink())
    known = [file.stem.removeprefix("run-") for file in earlier]
    if not all(re.fullmatch(r"[\w-]{1,64}", name) for name in known):
        raise StoreError(f"{directory / 'wandb'} was not written by W&B; move it away")
    quiet = wandb.Settings(silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True)
    try:
        run = wandb.init(
            id=known[-1] if known else secrets.token_hex(4),
            resume="allow",
            dir=str(directory),
            project=os.environ.get("WANDB_PROJECT", "purectrl"),
            name=directory.name,
            config=dict(config),
            settings=quiet,
        )
    except Error as error:
        remedy = f"the run in {directory} can be resumed with or without it"
        raise InputError(f"track: wandb did not start: {error}; {remedy}") from None
    exit_code = 1

    def record(line: Line) -> None:
        if line["step"] >= run.starting_step:
            run.log(curves(line), step=line["step"], commit=True)  # commit, or W&B holds the last line back

    try:
        run.define_metric("*", step_metric="measurements")
        for part in {file.parent for file in earlier} - {Path(run.dir).parent}:
            if part.name.startswith("offline-run-"):
                # renamed first, because W&B's service process can outlive a killed run and create files in it
                shutil.rmtree(part.rename(temporary_name(part)))
        yield Tracker(
            record, lambda summary: run.summary.update({name: summary[name] for name in ("metrics", "ledger")})
        )
        exit_code = 0
    finally:
        run.finish(exit_code)


def _installed(name: str, kind: TrackerKind) -> TrackerKind:
    installed = importlib.util.find_spec(name) is not None
    require(installed, f"track: {name} is not installed; `pip install 'purectrl[{name}]'` installs it")
    return kind


def to_tensorboard() -> TrackerKind:
    """Event files in `DIR/tensorboard`. The horizontal axis is the number of measurements, common to all algorithms."""
    return _installed("tensorboard", _tensorboard)


def to_wandb() -> TrackerKind:
    """Weights & Biases, in `DIR/wandb`. It is offline unless the environment variable WANDB_MODE is `online`."""
    return _installed("wandb", _wandb)


TRACKERS: Mapping[str, Callable[[], TrackerKind]] = {"tensorboard": to_tensorboard, "wandb": to_wandb}
"""The trackers by name."""

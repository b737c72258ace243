"""Reads what trackers have written."""

import gc
import json
import struct
import warnings
from contextlib import contextmanager


@contextmanager
def tensorboard_view(directory):
    """A function that returns {tag: [(step, value), ...]} as an open TensorBoard shows it at that moment."""
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    opened = [EventAccumulator(str(directory / "tensorboard"), size_guidance={SCALARS: 0})]

    def view():
        events = opened[0].Reload()
        return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()[SCALARS]}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its files to the garbage collector
        try:
            yield view
        finally:
            opened.clear()
            gc.collect()


def tensorboard_curves(directory):
    """{tag: [(step, value), ...]} as TensorBoard shows it."""
    with tensorboard_view(directory) as view:
        return view()


def wandb_rows(directory):
    """The rows of all offline W&B runs in a run directory, in the order in which they were written."""
    from wandb.proto.wandb_internal_pb2 import Record

    rows = []
    for path in sorted((directory / "wandb").glob("offline-run-*/*.wandb")):
        for chunk in _chunks(path.read_bytes()):
            record = Record.FromString(chunk)
            if record.HasField("history"):
                items = record.history.item
                rows.append({item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items})
    return rows


def _chunks(log):
    """The records of a log in LevelDB's format: blocks of 32 KiB, records in parts that do not cross a block."""
    at, chunk = 7, b""  # behind the file's own header
    while at + 7 <= len(log):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", log[at : at + 7])
        chunk += log[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield chunk
            chunk = b""

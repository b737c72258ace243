"""Reads back what trackers have written."""

import gc
import json
import struct
import warnings


def tensorboard_curves(directory):
    """{tag: [(step, value), ...]} as TensorBoard itself reads it."""
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its files to the garbage collector
        events = EventAccumulator(str(directory / "tensorboard"), size_guidance={SCALARS: 0}).Reload()
        found = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()[SCALARS]}
        del events
        gc.collect()
    return found


def wandb_rows(directory):
    """The rows of all parts of a run, in the order in which they were written."""
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
    """The records of a log in LevelDB's format: blocks of 32 KiB, records in parts that do not cross them."""
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

"""Damage inside files: bytes, types and arrays that no run writes, also with a checksum that fits."""

import hashlib
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from hostile.damage_case import ESCAPES, TAG, Case, Place, files_of, newest_only, refusing
from purectrl.core.io import read_checksummed, write_checksummed


def bytes_of_json(draw: Random, place: Place) -> Case:
    """A JSON file with bytes that no writer makes."""
    name = draw.choice(["config.json", "summary.json", "records.jsonl", "evaluation.json"])
    file = place.run / name
    text = file.read_bytes() if file.exists() else b"{}"
    what, content = draw.choice(
        [
            ("empty", b""),
            ("cut short", text[: draw.randrange(max(1, len(text)))]),
            ("null", b"null"),
            ("a number", b"7"),
            ("a list", b"[1, 2]"),
            ("deep brackets", lambda: b"[" * 200_000),
            ("deep objects", lambda: b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
            ("long digits", lambda: b'{"seed": ' + b"9" * 10_000 + b"}"),
            ("1e400", text.replace(b"0", b"1e400", 1)),
            ("a long string", lambda: b'{"a": "' + b"x" * 40_000_000 + b'"}'),
            ("a long line after it", lambda: text + b" " * 30_000_000),
            ("UTF-16", text.decode().encode("utf-16")),
            ("a byte order mark", b"\xef\xbb\xbf" + text),
            ("zero bytes", b"\0" * 4096),
            ("no UTF-8", b'{"a": "\xff\xfe"}'),
            ("lone surrogates", b'{"\\ud800": "\\udfff"}'),
            ("many keys", lambda: b"{" + b",".join(b'"%d": 1' % key for key in range(200_000)) + b"}"),
            ("random bytes", draw.randbytes(2000)),
            ("escape sequences", ESCAPES.encode()),
        ]
    )
    file.write_bytes(content() if callable(content) else content)
    return Case(f"{name}: {what}", refusing(place, name) if what not in ("a long line after it",) else frozenset())


def paths_in(value: Any, prefix: tuple = ()) -> list[tuple]:
    """The path of every value inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in items for found in [(*prefix, key), *paths_in(item, (*prefix, key))]]


VALUES: list[Any] = [
    None, True, False, 0, -1, 3.5, 1e308, -1e308, 10**400, 2**63, "", "x", "nan", TAG, ESCAPES, "\ud800", "x" * 100_000, [],
    [1], [[]], {}, {"a": 1}, {"name": "x"}, [None] * 1000, "__proto__", "../../outside/precious.txt", "/etc/passwd",
    "evil:f",
]  # fmt: skip
"""What a key can hold instead of its value."""


def changed_json(draw: Random, value: Any) -> tuple[Any, str]:
    """`value` with something in it replaced, removed, renamed or added, and what it was, in words."""
    value = json.loads(json.dumps(value))
    path = draw.choice(paths_in(value))
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    key, where = path[-1], ".".join(map(str, path))
    new = draw.choice(VALUES)
    action = draw.choice(["replaced", "replaced", "replaced", "removed", "renamed", "added"])
    if action == "replaced" or not isinstance(holder, dict):
        holder[key] = new
        return value, f"{where} = {new!a:.40}"
    if action == "removed":
        del holder[key]
    elif action == "renamed":
        holder[draw.choice([str(key) + "x", TAG, ESCAPES, "\ud800", "__proto__"])] = holder.pop(key)
    else:
        holder[draw.choice(["extra", TAG, ESCAPES, "\ud800x", "toString"])] = new
    return value, f"{where} {action}"


def wrong_types(draw: Random, place: Place) -> Case:
    """A value of a wrong type in config, summary, evaluation or records, everything else made to match."""
    name = draw.choice(["config.json", "summary.json", "evaluation.json", "records.jsonl"])
    if not (place.run / name).exists():
        name = "config.json"
    file = place.run / name
    if name == "records.jsonl":
        lines = file.read_text().splitlines()
        number = draw.randrange(len(lines))
        value, what = changed_json(draw, json.loads(lines[number]))
        lines[number] = json.dumps(value)
        file.write_text("\n".join(lines) + "\n")
        what = f"line {number + 1}: {what}"
    else:
        value, what = changed_json(draw, json.loads(file.read_text()))
        file.write_text(json.dumps(value))
    rebind(place.run)
    return Case(f"{name}: {what}")


def rebind(run: Path) -> None:
    """Makes checkpoints and policy belong to the configuration and the records as they are now, as an attacker would."""
    import zlib

    digest = hashlib.blake2b((run / "config.json").read_bytes(), digest_size=16).hexdigest()
    records = (run / "records.jsonl").read_bytes()
    for file in [*(run / "checkpoint").glob("*.safetensors"), *(run / "policy").glob("*.safetensors")]:
        arrays, content = read_checksummed(file)
        content["config"] = digest
        if "records" in content:
            size = min(content["records"]["bytes"], len(records))
            content["records"] = {"bytes": size, "checksum": zlib.crc32(records[:size])}
        write_checksummed(file, arrays, content)


def wrong_arrays(draw: Random, place: Place) -> Case:
    """A checkpoint, shard or policy with a valid checksum and other content."""
    names = [name for name in files_of(place) if name.endswith(".safetensors")]
    name = draw.choice(names)
    newest_only(place, name)
    arrays, content = read_checksummed(place.run / name)
    if draw.random() < 0.5 and arrays:
        key = draw.choice(sorted(arrays))
        array = arrays[key]
        action, new = draw.choice(
            [
                ("removed", None),
                ("doubled", np.concatenate([array.reshape(-1)] * 2)),
                ("of another type", array.astype(np.int8) if array.dtype != np.int8 else array.astype(float)),
                ("a scalar", np.array(1.0)),
                ("empty", array.reshape(-1)[:0]),
                ("of 9 dimensions", array.reshape((*array.shape, 1, 1, 1, 1, 1, 1))),
                ("not finite", np.full(array.shape, np.nan) if array.dtype.kind == "f" else array),
            ]
        )
        arrays = {other: value for other, value in arrays.items() if other != key}
        if new is not None:
            arrays[key] = new
        what = f"{key} {action}"
    elif draw.random() < 0.2:
        arrays[draw.choice(["extra", TAG, ESCAPES, "data.extra", "data.t"])] = np.zeros(3)
        what = "an array more"
    else:
        content, what = changed_json(draw, content)
        if not isinstance(content, dict):
            content = {"value": content}
    write_checksummed(place.run / name, arrays, content)
    return Case(f"{name}: {what}")


def bombs(draw: Random, place: Place) -> Case:
    """A safetensors file that costs more to read than it should."""
    names = [name for name in files_of(place) if name.endswith(".safetensors")]
    name = draw.choice(names)
    newest_only(place, name)
    what, header, length = draw.choice(
        [
            ("a header of 2^62 bytes", b"{}", 2**62),
            ("a header of 90 MB", b"{}", 90_000_000),
            ("200,000 empty tensors", _many, None),
            ("a tensor of 2^60 elements", _header(shape=[2**30, 2**30], offsets=[0, 2**63]), None),
            ("overlapping tensors", _header(offsets=[0, 400]), None),
            ("negative offsets", _header(offsets=[-4, 0]), None),
            ("an unknown type", _header(dtype="F7"), None),
            ("a header of deep brackets", b"[" * 100_000, None),
            ("no header", b"", 0),
            ("nothing", None, None),
            ("metadata of 30 MB", _metadata, None),
            ("metadata of numbers", b'{"__metadata__": {"content": 3, "digest": 4}}', None),
            ("deep content", json.dumps({"__metadata__": _deep()}).encode(), None),
        ]
    )
    header = header() if callable(header) else header
    content = b"" if header is None else (len(header) if length is None else length).to_bytes(8, "little") + header
    (place.run / name).write_bytes(content)
    return Case(f"{name}: {what}", refusing(place, name))


def _header(dtype="F32", shape=(1,), offsets=(0, 4)) -> bytes:
    return json.dumps({"a": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}).encode()


def _many() -> bytes:
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return json.dumps({f"t{number}": empty for number in range(200_000)}).encode()


def _metadata() -> bytes:
    return json.dumps({"__metadata__": {"content": "[" * 30_000_000, "digest": "x"}}).encode()


def _deep() -> dict[str, str]:
    text = "[" * 50_000
    return {"content": text, "digest": hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}

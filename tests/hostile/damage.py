"""What somebody else can do to a run directory before they pass it on."""

import hashlib
import json
import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from purectrl.core.io import read_checksummed, write_checksummed

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


def file_link(draw: Random, place: Place) -> Case:
    """A file that is a link."""
    name = draw.choice(files_of(place))
    file = place.run / name
    newest_only(place, name)
    copy = place.outside / "copy"
    if file.exists():
        shutil.copyfile(file, copy)
        file.unlink()
    else:
        copy.write_text("{}")
    chain = place.outside / "chain"
    chain.symlink_to(copy)
    target: str | Path
    target, what = draw.choice(
        [
            (copy, "a copy outside"),
            (os.path.relpath(copy, file.parent), "a copy outside, relative"),
            (chain, "a link to a copy outside"),
            (place.outside / "precious.txt", "a file of the user"),
            ("/dev/zero", "/dev/zero"),
            ("/dev/stdin", "/dev/stdin"),
            ("/etc/passwd", "/etc/passwd"),
            (file.name, "itself"),
            ("nowhere/at/all", "nothing"),
            (place.outside, "a directory"),
            (place.outside / "new.txt", "a file that does not exist"),
        ]
    )
    file.parent.mkdir(exist_ok=True)
    file.symlink_to(target)
    return Case(f"{name} is a link to {what}", refusing(place, name))


def folder_link(draw: Random, place: Place) -> Case:
    """A directory that is a link."""
    name = draw.choice([*folders_of(place), draw.choice(["media", "data", "policy", "checkpoint"])])
    folder = place.run / name
    copy = place.outside / "copy"
    existed = folder.is_dir()
    if existed:
        shutil.copytree(folder, copy)
        shutil.rmtree(folder)
    else:
        copy.mkdir()
    (copy / ".mine.12345678.part").write_text(SECRET)
    target, what = draw.choice(
        [
            (copy, "a copy outside"),
            (os.path.relpath(copy, place.run), "a copy outside, relative"),
            ("/", "/"),
            ("..", "its parent"),
            (".", "the run"),
            (name, "itself"),
            ("nowhere", "nothing"),
            ("/proc/self", "/proc/self"),
        ]
    )
    folder.symlink_to(target)
    must = refusing(place, name) if existed or name in ("checkpoint", "data") else frozenset()
    return Case(f"{name}/ is a link to {what}", must)


def planted_link(draw: Random, place: Place) -> Case:
    """A link under a name that a command might write to."""
    folder = place.run / draw.choice(["", "checkpoint", "data", "policy", "media", "tensorboard", "wandb", "queries"])
    folder.mkdir(exist_ok=True)
    target = draw.choice(["precious.txt", "", "new.txt", "other"])
    made = []
    for base in ("evaluation.json", "summary.json", "config.json", "records.jsonl", "plan.safetensors", ".lock"):
        name = draw.choice([f".{base}.part", f".{base}.0123abcd.part", f"{base}.tmp", f".{base}.tmp"])
        (folder / name).symlink_to(place.outside / target)
        made.append(name)
    return Case(f"{folder.name}/ has links {made[0]}, … to outside/{target}")


def report_link(draw: Random, place: Place) -> Case:
    """A link that makes a walk long, endless or leave the directory."""
    other = place.outside / "another-run"
    shutil.copytree(place.run, other)
    config = json.loads((other / "config.json").read_text())
    config["seed"] = 77
    config["problem"]["name"] = f"{SECRET}-problem"
    (other / "config.json").write_text(json.dumps(config))
    (other / "summary.json").unlink(missing_ok=True)
    target, what = draw.choice([("/", "/"), ("..", "its parent"), (".", "itself"), (other, "another run")])
    name = draw.choice(["sub", "media/sub", "checkpoint/sub", "zz"])
    (place.run / name).parent.mkdir(exist_ok=True)
    (place.run / name).symlink_to(target)
    return Case(f"{name} is a link to {what}")


def special(draw: Random, place: Place) -> Case:
    """A file or directory that is a pipe, a socket, a device, or of the other kind."""
    name = draw.choice([*files_of(place), *folders_of(place)])
    path = place.run / name
    newest_only(place, name)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    kind = draw.choice(["pipe", "socket", "zero", "null", "tty", "other kind"])
    path.parent.mkdir(exist_ok=True)
    make_special(path, kind)
    optional = kind == "null" and name.endswith(".jsonl")
    return Case(f"{name} is a {kind}", frozenset() if optional else refusing(place, name))


def make_special(path: Path, kind: str) -> None:
    """A pipe, socket or device at `path`; without the right to make devices, a pipe."""
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            here = Path.cwd()
            os.chdir(path.parent)  # names of sockets are short
            made.bind(path.name)
            os.chdir(here)
    elif kind == "other kind":
        if path.suffix:
            path.mkdir()
        else:
            path.write_text("not a directory")
    elif kind == "pipe" or os.geteuid() != 0:
        os.mkfifo(path)
    else:
        number = {"zero": (1, 5), "null": (1, 3), "tty": (5, 0)}[kind]
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(*number))


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


def code(draw: Random, place: Place) -> Case:
    """A configuration that names code, or a model on the network."""
    evil = 'import pathlib\npathlib.Path(__file__).with_name("IMPORTED").touch()\n'
    for folder in (place.run, place.run.parent):
        (folder / "evil.py").write_text(evil)
    name = draw.choice(
        ["evil:f", "evil.py:f", f"{place.run / 'evil.py'}:f", "./evil.py:f", "this:s", "antigravity:fly"]
    )
    name = draw.choice([name, "evil:f:g", "evil.f:x", " evil:f", "pathlib:Path", "purectrl.cli:main"])
    file = place.run / "config.json"
    config = json.loads(file.read_text())
    where = draw.choice(["problem", "sampler", "schedule", "learner", "output", "env", "reward", "model", "sd reward"])
    if where == "problem":
        config["problem"]["reference"] = name
    elif where in ("sampler", "schedule", "learner", "output"):
        config["algorithm"][where] = draw.choice([{"name": name}, {**config["algorithm"][where], "name": name}])
    elif where == "env":
        config["problem"] |= {"reference": "gymnasium", "arguments": {"env": draw.choice([name, "evil:Pendulum-v1"])}}
    elif where == "reward":
        config["problem"] |= {"reference": "digits", "arguments": {"reward": name}}
    else:
        hub = draw.choice(["someone/model", "runwayml/stable-diffusion-v1-5", "https://example.org/m", "hf-internal/x"])
        arguments = {"model": hub, "reward": name} if where == "sd reward" else {"model": hub}
        arguments |= draw.choice([{}, {"aesthetic_clip": hub, "aesthetic_head": "head.pth", "reward": "aesthetic"}])
        config["problem"] |= {"reference": "stable-diffusion", "arguments": arguments}
    config["code"] = {name: "0" * 32}
    file.write_text(json.dumps(config))
    rebind(place.run)
    must = frozenset({"evaluate", "load_policy", *([] if place.finished else ["resume"])})
    return Case(f"{where} names {name!a:.60}", must, inside=draw.random() < 0.5)


def directory_name(draw: Random, place: Place) -> Case:
    """A name of the directory that no user would type."""
    names = [
        b"\xff\xfe",
        TAG.encode().replace(b"/", b""),
        b"a\nb",
        b"\x1b[31mred",
        b'"><script>alert(1)',
        b"{{data}}",
        b"~",
    ]
    names += [
        b"-rf",
        b"--help",
        b"x" * 250,
        "\u202eabc".encode(),
        b" ",
        b"%s%n",
        b"'; rm -r",
        "é".encode("latin-1"),
        b"a:b",
    ]
    name = draw.choice(names)
    target = place.run.parent / os.fsdecode(name)
    place.run.rename(target)
    return Case(f"the directory is called {name!r:.60}", directory=target)


def texts(draw: Random, place: Place) -> Case:
    """Names and values in the files that a page or a terminal would obey."""
    text = draw.choice(
        [TAG, f"</script>{TAG}", f"{{{{script}}}}{TAG}", ESCAPES, "\ud800", "a\nb\r\nc", "\u202e", "x" * 50_000]
    )
    file, summary = place.run / "config.json", place.run / "summary.json"
    config = json.loads(file.read_text())
    where = draw.choice(["problem", "algorithm", "setting", "metric", "column", "version", "evaluation"])
    if where == "problem":
        config["problem"]["name"] = text
    elif where == "algorithm":
        config["algorithm"]["name"] = text
    elif where == "setting":
        config["problem"].setdefault("arguments", {})[text] = text
    elif where == "version":
        config["versions"][text] = text
    file.write_text(json.dumps(config))
    if summary.exists():
        found = json.loads(summary.read_text())
        found["experiment"], found["algorithm"] = config["problem"]["name"], config["algorithm"]["name"]
        if where == "metric":
            found["metrics"][text] = 1.5
        if where == "version":
            found["versions"] = config["versions"]
        summary.write_text(json.dumps(found))
    if where == "column":
        records = place.run / "records.jsonl"
        lines = [
            json.dumps({**json.loads(line), text: 1.0, f"eval_{text}": 2.0})
            for line in records.read_text().splitlines()
        ]
        records.write_text("\n".join(lines) + "\n")
    if where == "evaluation":
        value = {"episodes": 2, "seed": 0, "metrics": {text: 1.0}, "media": [text, "../outside/precious.txt"]}
        (place.run / "evaluation.json").write_text(json.dumps(value))
    rebind(place.run)
    return Case(f"{where} has the text {text!a:.40}")


def media(draw: Random, place: Place) -> Case:
    """Media that are no pictures."""
    folder = place.run / "media"
    folder.mkdir(exist_ok=True)
    name = draw.choice(
        ["a.png", "video.mp4", "b.gif", "c.jpg", "d.webp", f"{TAG.replace('/', '')}.png", "e.webm", "f.svg"]
    )
    what = draw.choice(["text", "link", "link folder", "html", "large", "pipe", "many", "device"])
    path = folder / name
    if what == "text":
        path.write_text(SECRET)
    elif what == "link":
        path.symlink_to(place.outside / "precious.txt")
    elif what == "link folder":
        shutil.rmtree(folder)
        target = place.outside / "pictures"
        target.mkdir()
        (target / name).write_text(SECRET)
        folder.symlink_to(target)
    elif what == "html":
        path.write_text(f"<html><script>{TAG}</script>")
    elif what == "large":
        with path.open("wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n")
            file.truncate(8 * 2**30)
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        make_special(path, "zero")
    else:
        for number in range(3000):
            (folder / f"{number}.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    return Case(f"media/{name}: {what}")


def crowd(draw: Random, place: Place) -> Case:
    """Many or deep entries."""
    what = draw.choice(
        ["deep directories", "many directories", "many temporary files", "many checkpoints", "many records"]
    )
    if what == "deep directories":
        path = place.run
        for _ in range(120):
            path = path / "deeper-and-deeper"
        path.mkdir(parents=True)
    elif what == "many directories":
        for number in range(3000):
            (place.run / f"d{number}").mkdir()
    elif what == "many temporary files":
        (place.run / "checkpoint").mkdir(exist_ok=True)
        for number in range(2000):
            (place.run / "checkpoint" / f".{number}.part").touch()
    elif what == "many checkpoints":
        for number in range(1000):
            (place.run / "checkpoint" / f"9{number:011d}.safetensors").write_bytes(b"x")
    else:
        with (place.run / "records.jsonl").open("a") as file:
            file.write('{"step": 1}\n' * 300_000)
    return Case(what)


DAMAGES: dict[str, tuple[Damage, float]] = {
    "link to a file": (file_link, 0.16),
    "link to a directory": (folder_link, 0.09),
    "planted link": (planted_link, 0.04),
    "link in the tree": (report_link, 0.04),
    "special file": (special, 0.12),
    "bytes of JSON": (bytes_of_json, 0.1),
    "wrong types": (wrong_types, 0.14),
    "valid checksum": (wrong_arrays, 0.1),
    "bomb": (bombs, 0.04),
    "code": (code, 0.07),
    "name": (directory_name, 0.02),
    "texts": (texts, 0.04),
    "media": (media, 0.02),
    "crowd": (crowd, 0.02),
}
"""Kinds of damage with their shares."""

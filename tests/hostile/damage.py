"""What somebody else can do to a run directory before they pass it on."""

import json
import os
import shutil
import socket
import stat
from pathlib import Path
from random import Random

from hostile.damage_case import (
    ESCAPES,
    SECRET,
    TAG,
    Case,
    Damage,
    Place,
    files_of,
    folders_of,
    newest_only,
    refusing,
)
from hostile.damaged_content import bombs, bytes_of_json, rebind, wrong_arrays, wrong_types


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

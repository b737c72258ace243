"""Hostile run directories: nothing outside is written or read, nothing is imported, and the answer is short and prompt."""

import base64
import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hostile import samples
from hostile.attack import Verdict, announce, chance
from hostile.console import LONGEST_LINE, Answer, objections, observed, program
from hostile.damage import DAMAGES
from hostile.damage_case import COMMANDS, ESCAPES, SECRET, TAG, Case, Place
from purectrl import load_policy
from purectrl.core.errors import PurectrlError
from purectrl.core.text import printable


class HostileDirectories:
    """One trial is one directory and one command; four trials in a row are four commands on the same directory."""

    name, shows = (
        "directories",
        "run directories made by somebody else, each with resume, evaluate, report, load_policy",
    )
    short, slow, full, limit = 120, 1200, 300, 10.0
    unit = "directories"

    def prepare(self, base: Path) -> None:
        """Makes a finished and a stopped run, and uses them once so that what is compiled is compiled."""
        self.finished, self.stopped = samples.prepare(base)
        for source in (self.finished, self.stopped):
            warm = samples.copy(source, base / "warm")
            with samples.steady_clock():
                assert program("resume", warm, "--quiet").status == 0
                assert program("evaluate", warm, "--episodes", "2").status == 0
                assert program("report", warm, "--out", base / "warm.html").status == 0
            shutil.rmtree(warm)
        (base / "warm.html").unlink()

    def trial(self, number: int, folder: Path) -> Verdict:
        """One command on one directory."""
        command = COMMANDS[number % len(COMMANDS)]
        draw = chance("directories", number // len(COMMANDS))
        kind = draw.choices(list(DAMAGES), [share for _, share in DAMAGES.values()])[0]
        place = self._place(folder, draw.random() < 0.6, bound=draw.random() < 0.2)
        case = DAMAGES[kind][0](draw, place)
        words = f"{command}, {'finished' if place.finished else 'stopped'} run: {case.words}"
        announce(folder, words)
        before = _outside(place)
        with _no_imports(folder, place.run), _no_network() as connections:
            answer = _call(command, case.directory or place.run, folder, case.inside)
        failures = _objections(command, answer, case)
        if (after := _outside(place)) != before:
            failures.append(f"outside changed: {sorted(set(after.items()) ^ set(before.items()))[0]!r:.150}")
        if any(path.name == "IMPORTED" for path in folder.rglob("IMPORTED")):
            failures.append("code was imported")
        if connections:
            failures.append(f"a connection to {connections[0]!r:.60}")
        failures += _leaks(answer, folder, case)
        counts = {"directories": int(command == COMMANDS[0]), "refused": int(answer.status != 0)}
        return Verdict(words, "; ".join(failures) or None, kind, counts)

    def _place(self, folder: Path, finished: bool, bound: bool) -> Place:
        """A copy of a run. Unless `bound`, its summary has no checksums: whoever changes files on purpose removes them."""
        run = samples.copy(self.finished if finished else self.stopped, folder / "run")
        for file in [] if bound else [run / "summary.json", run / "evaluation.json"]:
            if file.exists():
                content = json.loads(file.read_text())
                file.write_text(json.dumps({key: content[key] for key in content if not key.startswith("checksum")}))
        outside = folder / "outside"
        (outside / "other").mkdir(parents=True)
        (outside / "precious.txt").write_text(f"{SECRET}\n" * 3)
        (outside / "other" / ".mine.01234567.part").write_text(SECRET)
        return Place(run, outside, finished)


def _call(command: str, run: Path, folder: Path, inside: bool) -> Answer:
    name = run.name
    if inside:
        os.chdir(run)
        name = "."
    elif name.startswith("-"):
        name = f"./{name}"
    if command == "resume":
        return program("resume", name, "--quiet")
    if command == "evaluate":
        return program("evaluate", name, "--episodes", "2")
    if command == "report":
        return program("report", name, "--out", folder / "page.html")

    def load() -> int:
        try:
            load_policy(name)([0.5], 0.0)
        except PurectrlError as error:
            print(f"error: {printable(error)}", file=sys.stderr)  # a Python message may be longer
            return 2
        return 0

    return observed(load)


def _objections(command: str, answer: Answer, case: Case) -> list[str]:
    allowed = (0, 1, 2) if command == "report" else (0, 2)
    found = objections(answer, *allowed)
    if command == "load_policy":  # an exception, which no terminal sees yet: it must be one that a user can handle
        return [text for text in found if text.startswith(("traceback", "status"))] + _acceptance(command, answer, case)
    longest = max(answer.err.splitlines(), key=len, default="")
    if len(longest) > LONGEST_LINE and not any(text.startswith("a line of") for text in found):
        found.append(f"a line of {len(longest)} characters: {longest:.160}")
    return found + _acceptance(command, answer, case)


def _acceptance(command: str, answer: Answer, case: Case) -> list[str]:
    """Whether a command did what it must refuse. A report may instead leave out what is damaged, and say so."""
    if command == "report" and answer.status == 1 and "left out" not in answer.err:
        return [f"status 1 without what was left out: {answer.err:.160}"]
    noted = command == "report" and "note: " in answer.err
    if command in case.refused_by and answer.status == 0 and not noted:
        return ["accepted, although it must be refused"]
    return []


def _leaks(answer: Answer, folder: Path, case: Case) -> list[str]:
    """Whether something from outside is in what the command wrote, or a text of the files acts in the page."""
    found = []
    page = folder / "page.html"
    text = page.read_text(errors="replace") if page.exists() else ""
    embedded = re.findall(r"base64,([A-Za-z0-9+/=]+)", text)
    if SECRET in answer.out + answer.err + text or any(SECRET.encode() in base64.b64decode(one) for one in embedded):
        found.append("the content of a file outside the run, or of no picture, was passed on")
    if re.search(r"root:.*:0:0:", answer.out + answer.err + text):
        found.append("/etc/passwd was passed on")
    if TAG[:10] in text:
        found.append("a tag from the files is in the page")
    if ESCAPES[:5] in answer.out + answer.err:
        found.append("escape sequences from the files reach the terminal")
    return found


def _outside(place: Place) -> dict[str, tuple]:
    """What is beside the run, with its content. A link that the damage made itself is part of it."""
    found = {}
    for path in sorted(place.outside.rglob("*")):
        state = path.lstat()
        content = path.read_bytes()[:100_000] if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(place.outside))] = (state.st_mode, state.st_mtime_ns if content else 0, content)
    return found


@contextmanager
def _no_imports(*folders: Path) -> Iterator[None]:
    """Forgets modules that a trial imported, so that the next one would import them again."""
    known = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - known:
            origin = getattr(sys.modules[name], "__file__", None) or ""
            if name in ("evil", "this", "antigravity") or any(origin.startswith(str(folder)) for folder in folders):
                del sys.modules[name]


@contextmanager
def _no_network() -> Iterator[list]:
    """Refuses connections and collects where to."""
    asked: list = []

    def refuse(_: socket.socket, address: object) -> None:
        asked.append(address)
        raise OSError("no network in this trial")

    def refuse_name(host: object, *_: object, **__: object) -> list:
        asked.append(host)
        raise OSError("no network in this trial")

    with (
        samples.patched(socket.socket, "connect", refuse),
        samples.patched(socket, "getaddrinfo", refuse_name),
    ):
        yield asked

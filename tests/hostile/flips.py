"""One bit of one file of a run is flipped: every command gives the same result as before, or refuses."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from hostile import samples
from hostile.attack import Verdict, announce, chance
from hostile.console import objections, observed, program
from hostile.outcome import difference, outcome
from purectrl import load_policy
from purectrl.core.errors import PurectrlError
from purectrl.core.text import printable

KINDS = ("finite", "lqr", "pendulum")
COMMANDS = ("resume", "evaluate", "report", "load_policy")
STATES = {"finite": [[0.25]], "lqr": [[0.25]], "pendulum": [[3.0, 0.1]]}
STEPS = {"finite": 15, "lqr": 9, "pendulum": 5}


class Flips:
    """One trial is one flipped bit and all four commands, each on its own copy."""

    name, shows = "flips", "single bits flipped in every file of finished and unfinished runs"
    short, slow, full, limit = 40, 2000, 2000, 120.0
    unit = "trials"
    kinds = KINDS

    def prepare(self, base: Path) -> None:
        """Nothing: runs are made when they are needed."""
        self.base, self.runs, self.expected = base, {}, {}

    def _prepare(self, kind: str) -> None:
        """Makes the runs of a kind and what every command gives on them unharmed."""
        finished, stopped = samples.prepare(self.base, kind, steps=STEPS[kind])
        for state, place in (("finished", finished), ("stopped", stopped)):
            self.runs[kind, state] = place
            for command in COMMANDS:
                shutil.rmtree(self.base / "run", ignore_errors=True)
                target = samples.copy(place, self.base / "run")
                status, result, errors = _result(command, kind, target)
                assert status == 0 or (state == "stopped" and command in ("evaluate", "load_policy")), errors
                self.expected[kind, state, command] = result
                shutil.rmtree(target)

    def trial(self, number: int, folder: Path) -> Verdict:
        """One flipped bit."""
        draw = chance("flips", number)
        kind = draw.choices(self.kinds, [8, 1, 1])[0] if number >= self.short else self.kinds[0]
        if (kind, "finished") not in self.runs:
            self._prepare(kind)
        state = draw.choice(["finished", "finished", "stopped"])
        source = self.runs[kind, state]
        files = sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file())
        groups: dict[str, list[Path]] = {}
        for file in files:
            groups.setdefault(file.parts[0], []).append(file)
        name = draw.choice(groups[draw.choice([group for group in groups if group != ".lock"])])
        size = (source / name).stat().st_size
        if not size:
            return Verdict(f"{kind} {state}: {name} is empty", kind=name.parts[0])
        # headers and metadata of large files are hit as often as their arrays
        place = draw.randrange(min(size, 4096) if draw.random() < 0.5 else size)
        bit = draw.randrange(8)
        words = f"{kind}, {state} run: bit {bit} of byte {place} of {name}"
        announce(folder, words)
        failures, outcomes = [], {"equal": 0, "refused": 0}
        for command in COMMANDS:
            target = samples.copy(source, folder / "run")
            _flip(target / name, place, bit)
            status, result, errors = _result(command, kind, target, name)
            failures += [f"{command}: {error}" for error in errors]
            if status is None:
                continue
            if status == 0 and (where := _wrong(command, result, self.expected[kind, state, command], name)):
                failures.append(f"{command} is silently wrong: {where}")
            outcomes["equal" if status == 0 else "refused"] += 1
            shutil.rmtree(target)
            (folder / "page.html").unlink(missing_ok=True)
        return Verdict(words, "; ".join(failures) or None, name.parts[0], outcomes)


def _flip(file: Path, place: int, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1 << bit
    file.write_bytes(content)


def _result(command: str, kind: str, run: Path, flipped: Path = Path()) -> tuple[int | None, Any, list[str]]:
    """The exit status of a command, its result if it had one, and what is wrong with its form.

    The policy of an earlier update is not read by `resume`: it is left out of the result if it is the flipped file and
    `load_policy` refuses it.
    """
    result: Any = None
    if command == "resume":
        finished = (run / "summary.json").exists()
        with samples.steady_clock():
            answer = program("resume", run, "--quiet")
        if answer.status == 0:  # a finished run is shown as it is, and a stopped one ends as it would have
            if _is_refused(run, flipped):
                (run / flipped).unlink()
            result = answer.out if finished else outcome(run)
    elif command == "evaluate":
        answer = program("evaluate", run, "--episodes", "2")
        result = answer.out
    elif command == "report":
        page = run.parent / "page.html"
        answer = program("report", run, "--out", page)
        result = _shown(page) if answer.status == 0 else None
    else:
        answer = observed(lambda: _controls(kind, run))
        result = answer.out
    result = json.loads(json.dumps(result).replace(str(run), "RUN"))
    return answer.status, result, objections(answer, *((0, 1, 2) if command == "report" else (0, 2)))


def _is_refused(run: Path, flipped: Path) -> bool:
    """Whether the flipped file is the policy of an update, and loading it is refused."""
    found = re.fullmatch(r"policy/update-([0-9]+)\.safetensors", str(flipped))
    if not found:
        return False
    try:
        load_policy(run, update=int(found[1]))
    except PurectrlError:
        return True
    return False


def _controls(kind: str, run: Path) -> int:
    try:
        policy = load_policy(run)
    except PurectrlError as error:
        print(f"error: {printable(error)}", file=sys.stderr)  # a Python message may be longer
        return 2
    for state in STATES[kind]:
        print([value.hex() for value in policy(state, 0.1).tolist()])
    return 0


def _shown(page: Path) -> Any:
    """The data that a report shows."""
    data = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page.read_text(), re.DOTALL)
    assert data is not None, "the report has no data"
    return json.loads(data[1])


def _wrong(command: str, found: Any, expected: Any, flipped: Path) -> str | None:
    """Where a result differs. A report may leave out evaluation, times, episodes or media, and records after a damaged
    checkpoint, if it says so in a note; a policy that `load_policy` refuses may be missing."""
    if command == "resume" and isinstance(found, dict) and str(flipped) not in found.get("policy", {}):
        expected = {
            **expected,
            "policy": {name: one for name, one in expected["policy"].items() if name != str(flipped)},
        }
    if (
        command == "report"
        and flipped.parts[0] == "checkpoint"
        and any(str(flipped) in note for note in found["notes"])
    ):
        return None
    if command == "report" and len(found["notes"]) > len(expected["notes"]):
        found, expected = dict(found), dict(expected)
        found.pop("notes"), expected.pop("notes")
        for run, other in zip(found["runs"], expected["runs"], strict=True):
            for part in ("evaluation", "times", "episodes", "media"):
                if not run[part] or (part == "media" and not any(file["uri"] for file in run[part])):
                    run[part] = other[part]
    return difference({"result": found}, {"result": expected})

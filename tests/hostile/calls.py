"""Wrong calls of every command: status 2, at most two short lines, nothing left. And calls that must be accepted."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile import samples
from hostile.attack import Verdict, announce, chance
from hostile.console import Answer, objections, program
from hostile.wrong_calls import BASES, FAMILIES, SHORT, finished
from purectrl.cli import output
from purectrl.runs import runner, submitted, sweep


class Accepted(BaseException):
    """The call was accepted: it reached the first step, or the first worker."""


def _accept(*_: object, **__: object) -> None:
    raise Accepted


def _stand_in(engine: Callable[..., Any]) -> Callable[..., Any]:
    """An engine that checks its arguments and runs nothing."""

    def made(*arguments: Any) -> Any:
        engine(*arguments)
        return _accept

    return made


def accepted_or_answer(words: list[str]) -> Answer | None:
    """The answer to a call, or None if it was accepted; a call that would run is not run."""
    with (
        samples.patched(runner, "_drive", _accept),
        samples.patched(sweep, "local", _stand_in(sweep.local)),
        samples.patched(sweep, "on_ray", _stand_in(sweep.on_ray)),
        samples.patched(submitted, "on_submitit", _stand_in(submitted.on_submitit)),
        samples.patched(output, "show", lambda *_: None),
    ):
        try:
            return program(*words)
        except Accepted:
            return None


def _tree(folder: Path) -> dict[str, tuple]:
    """Everything below `folder` with what would change if it were written."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(place, name)
            state = path.lstat()
            known = (state.st_mode, state.st_size, state.st_mtime_ns, state.st_ino)
            found[str(path.relative_to(folder))] = known[:1] if path.is_dir() else known
    return found


class WrongCalls:
    """Wrong calls."""

    name, shows = "calls", "wrong calls of every command"
    short, slow, full, limit = 150, 3000, 3000, 10.0
    unit = "trials"

    def prepare(self, base: Path) -> None:
        """Makes a finished run and imports what the commands import, which takes longer than a trial may."""
        _finished_run(base / "finished")
        for kind in ("pendulum", "digits"):
            answer = accepted_or_answer(samples.run_words(kind, 0, base / f"new-{kind}"))
            assert answer is None, answer.err

    def trial(self, number: int, folder: Path) -> Verdict:
        """One wrong call."""
        draw = chance("calls", number)
        kinds = list(FAMILIES)
        kind = draw.choices(kinds, [FAMILIES[name][1] for name in kinds])[0]
        words = FAMILIES[kind][0](draw, folder)
        case = " ".join(word if len(word) < 60 else f"{word[:30]!r}…({len(word)})" for word in map(str, words))
        announce(folder, ascii(case))
        before = _tree(folder)
        answer = accepted_or_answer(words)
        failures = ["accepted"] if answer is None else objections(answer, 2)
        after = _tree(folder)
        if answer is not None and before != after:
            changed = sorted({*before.items()} ^ {*after.items()})
            failures.append(f"left or changed: {changed[0][0]:.80}")
        return Verdict(ascii(case)[1:-1], "; ".join(failures) or None, kind)


def _finished_run(place: Path) -> None:
    if not (place / "summary.json").exists():
        shutil.rmtree(place, ignore_errors=True)
        answer = program(*samples.run_words("finite", 0, place))
        assert answer.status == 0, answer.err


RIGHT: list[list[str]] = [
    *(["run", *words, "--out", "out"] for words, _ in BASES.values()),
    *(
        ["run", *words, "--seed", "7", "--measurements", "3000", "--out", "a/b/c", "--quiet"]
        for words, _ in BASES.values()
    ),
    ["run", "finite", "--algorithm=pure-base", "--out=out", "--sampler.m=3", "--learner.paths=8"],
    ["run", "finite", "--algorithm", "pure-base", "--out", "out", "--sampler", "equidistant", "--sampler.m", "4"],
    ["run", "finite", "--algorithm", "pure-low-switch", "--out", "out", "--schedule.threshold", "2"],
    ["run", "finite", "--algorithm", "pure-base", "--out", "out", "--schedule", "geometric", "--schedule.growth", "3"],
    ["run", "finite", "--algorithm", "pure-base", "--out", "out", "--output", "last", "--rollouts", "1"],
    ["run", "finite", "--algorithm", "pure-base", "--out", "out", "--config", "done/config.json", "--seed", "1"],
    ["run", "finite", "--algorithm", "pure-base", "--out", "out", "--measurements", "1"],
    ["run", "finite", "--algorithm", "pure-base", "--out", "empty", "--problem.goal", "-1"],
    ["run", "ou", "--algorithm", "pure-base", "--problem.steps", "8", "--out", "ä ö/ü"],
    [
        "run",
        "pendulum",
        "--algorithm",
        "enode",
        "--out",
        "out",
        "--problem.diffusion",
        "0",
        "--learner.plan.steps",
        "5",
    ],
    ["run", "cartpole", "--algorithm", "pure-enode", "--out", "out", "--quiet", "true"],
    ["run", "digits", "--algorithm", "seiko", *samples.IMAGES, "--reward", "legibility", "--out", "out"],
    ["sweep", "finite", "--algorithms", "pure-base", "--out", "out"],
    ["sweep", "finite", "lqr", "--algorithms", "pure-base", "pure-low-switch", "--seeds", "0:2", "--out", "out"],
    ["sweep", "finite", "--algorithms", "pure-base", "--seeds", "3,1", "--workers", "1", "--out", "out", *SHORT],
    ["sweep", "finite", "--algorithms", "pure-base", "--seeds", "5", "--engine", "local", "--out", "out", *SHORT],
    ["resume", "done"],
    ["resume", "done", "--quiet"],
    ["evaluate", "done", "--episodes", "2"],
    ["evaluate", "done", "--seed", "3", "--episodes=1"],
    ["report", "done"],
    ["report", "done", "done", "--out", "page.html"],
    ["list"],
    ["paper"],
    ["--version"],
    ["--help"],
    [],
    ["run", "--help"],
    ["run", "finite", "--help"],
    ["run", "finite", "--algorithm", "pure-base", "--help"],
    ["sweep", "--help"],
    ["resume", "--help"],
    ["evaluate", "-h"],
    ["report", "--help"],
    ["paper", "--help"],
]
"""Calls that are right: a program that refuses everything would fail here."""


class RightCalls:
    """Calls that must be accepted."""

    name, shows = "accepted", "right calls, which must be accepted"
    short, slow, full, limit = 12, len(RIGHT), len(RIGHT), 30.0
    unit = "trials"

    def prepare(self, base: Path) -> None:
        """Makes a finished run."""
        _finished_run(base / "finished")

    def trial(self, number: int, folder: Path) -> Verdict:
        """One right call."""
        words = RIGHT[number * 13 % len(RIGHT)]  # every kind of call in the short selection
        (folder / "empty").mkdir()
        finished(folder)
        answer = accepted_or_answer(words)
        failures = [] if answer is None else objections(answer, 0)
        return Verdict(" ".join(words), "; ".join(failures) or None, words[0] if words else "")


assert len(RIGHT) % 13 != 0, "the order of the calls would not visit all of them"

"""Wrong calls of every command: status 2, at most two short lines, nothing left. And calls that must be accepted."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from hostile import samples
from hostile.attack import Verdict, announce, chance
from hostile.console import Answer, objections, program
from hostile.settings_in_words import (
    LONG,
    WORDS,
    component_parameters,
    parameters,
    problem_parameters,
    wrong_values,
)
from purectrl import cli
from purectrl.algorithms import ALGORITHMS, compatible
from purectrl.cli import options, output
from purectrl.cli.specs import DEFAULTED
from purectrl.problems import PROBLEMS
from purectrl.runs import runner, submitted, sweep
from purectrl.runs.spec import PARTS

SETS = ("pure-base", "pure-low-switch", "pure-low-rollout", "pure-low-both")
SHORT = samples.THEORY
BASES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    **{
        f"finite {name}": (
            ("finite", "--algorithm", name, *SHORT),
            {
                "sampler": "uniform",
                "schedule": "on-excess-loss" if name in ("pure-low-switch", "pure-low-both") else "every",
                "learner": "finite-sets",
            },
        )
        for name in SETS
    },
    "lqr": (
        ("lqr", "--algorithm", "pure-low-switch", *samples.LINEAR),
        {"sampler": "uniform", "schedule": "on-excess-loss", "learner": "linear-sets"},
    ),
    "neural": (
        ("neural", "--algorithm", "pure-base", *SHORT),
        {"sampler": "uniform", "schedule": "every", "learner": "neural-sets"},
    ),
    "pendulum": (
        ("pendulum", "--algorithm", "pure-enode"),
        {"sampler": "windows", "schedule": "doubling-batches", "learner": "enode"},
    ),
    "acrobot": (
        ("acrobot", "--algorithm", "enode"),
        {"sampler": "windows", "schedule": "equal-batches", "learner": "enode"},
    ),
    "gymnasium": (
        ("gymnasium", "--env", "Pendulum-v1", "--algorithm", "pure-enode"),
        {"sampler": "windows", "schedule": "doubling-batches", "learner": "enode"},
    ),
    "digits": (
        ("digits", "--algorithm", "pure-seiko", *samples.IMAGES),
        {"sampler": "geometric", "schedule": "growing-batches", "learner": "seiko"},
    ),
}
"""Right calls of `run` without --out, and the parts that their algorithms have."""


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


Call = list[str]
Family = Callable[[Random, Path], Call]


def base_call(draw: Random, *more: str) -> Call:
    """A right call of `run`."""
    words, _ = BASES[draw.choice(list(BASES))]
    return ["run", *words, "--out", "out", "--quiet", *more]


def command(draw: Random, _: Path) -> Call:
    """A command that does not exist."""
    name = draw.choice(list(cli.COMMANDS))
    wrong = [
        name[:-1],
        name.upper(),
        name + "s",
        f"-{name}",
        f"--{name}",
        name[::-1],
        " " + name,
        *WORDS,
        *LONG,
        "run\n",
    ]
    return [draw.choice([word for word in wrong if word != "--"]), *base_call(draw)[1:]]


def incomplete(draw: Random, _: Path) -> Call:
    """A call that lacks something."""
    problem, algorithm = draw.choice(list(PROBLEMS)), draw.choice(list(ALGORITHMS))
    no_default = draw.choice([name for name, entry in PROBLEMS.items() if not entry.offers <= DEFAULTED])
    return draw.choice(
        [
            ["run"],
            ["run", problem],
            ["run", problem, "--algorithm", algorithm],
            ["run", "--algorithm", algorithm, "--out", "out"],
            ["run", no_default, "--out", "out"],
            ["run", problem, "--algorithm", "--out", "out"],
            ["run", problem, "--algorithm", algorithm, "--out"],
            ["sweep"],
            ["sweep", problem],
            ["sweep", problem, "--algorithms", "--out", "out"],
            ["sweep", problem, "--algorithms", algorithm],
            ["sweep", "--algorithms", algorithm, "--out", "out"],
            ["sweep", problem, "--algorithms", algorithm, "--out", "out", "--seeds"],
            ["resume"],
            ["evaluate"],
            ["evaluate", "--episodes", "3"],
            ["report"],
            ["report", "--out", "page.html"],
            ["paper", "thm1-rate"],
            ["paper", "--out", "out"],
        ]
    )


def surplus(draw: Random, folder: Path) -> Call:
    """A word too many."""
    word = draw.choice([word for word in (*WORDS, *LONG, "finite", "-x", "-", "..", "7") if word != "--"])
    done = _finished(folder)
    return draw.choice(
        [
            ["run", "finite", word, *base_call(draw)[2:]],
            base_call(draw, word),
            ["resume", done, word],
            ["evaluate", word, done],
            ["list", word],
            ["paper", "thm1-rate", word, "--out", "out"],
        ]
    )


def unknown_flag(draw: Random, folder: Path) -> Call:
    """A flag that no command has, or that another part has."""
    made_up = ["--sead", "--Seed", "--seed.x", "--no-quiet", "--sampler.", "--.m", "--learner.model", "--x" * 700]
    made_up += [f"--{word}" for word in WORDS if word != "--"] + ["--problem", "--problem.", "--budget.measurements"]
    made_up += ["--force-it", "--sampler.m.n", "--learner..paths", "----seed", "--__class__", "--sampler.__init__"]
    flag = draw.choice(made_up)
    value = draw.choice([[], ["1"], ["x"]])
    done = _finished(folder)
    return draw.choice(
        [
            base_call(draw, flag, *value),
            base_call(draw, f"{flag}={draw.choice(WORDS)}"),
            ["resume", done, flag, *value],
            ["evaluate", done, flag, *value],
            ["report", done, flag, *value],
            ["sweep", "finite", "--algorithms", "pure-base", "--out", "out", flag, *value],
        ]
    )


def unused_setting(draw: Random, _: Path) -> Call:
    """A setting of a part that the chosen algorithm does not have."""
    words, parts = BASES[draw.choice(list(BASES))]
    part = draw.choice(["sampler", "schedule", "learner"])
    own = {flag for flag, _ in component_parameters(part, parts[part])}
    others = [flag for name in PARTS[part].names for flag, _ in component_parameters(part, name) if flag not in own]
    return ["run", *words, "--out", "out", draw.choice(others), draw.choice(["1", "-1", "0", "2.5", "x"])]


def setting(draw: Random, _: Path) -> Call:
    """A wrong value of a setting or an argument of the problem."""
    words, parts = BASES[draw.choice(list(BASES))]
    candidates = [
        *problem_parameters(words[0]),
        *(one for part, name in parts.items() for one in component_parameters(part, name)),
    ]
    flag, values = draw.choice([(one, wrong_values(one, kind)) for one, kind in candidates if wrong_values(one, kind)])
    return ["run", *words, "--out", "out", *_typed(draw, flag, draw.choice(values))]


def option(draw: Random, folder: Path) -> Call:
    """A wrong value of an option of a command."""
    done = _finished(folder)
    commands = {
        options.RunOptions: base_call(draw),
        options.SweepOptions: ["sweep", "finite", "--algorithms", "pure-base", "--out", "out"],
        options.PaperOptions: ["paper", "thm1-rate", "--out", "out"],
        options.ResumeOptions: ["resume", done],
        options.EvaluateOptions: ["evaluate", done],
    }
    kind = draw.choice(list(commands))
    candidates = [(flag, wrong_values(flag, annotation)) for flag, annotation in parameters(kind, "")]
    flag, values = draw.choice([(flag, values) for flag, values in candidates if values])
    return [*commands[kind], *_typed(draw, flag, draw.choice(values))]


def names(draw: Random, _: Path) -> Call:
    """A name that does not exist, or parts that do not go together."""
    wrong = draw.choice(
        [word for word in (*WORDS, *LONG, "finit", "Finite", "pure_base", "uniform,final") if word != "--"]
    )
    part = draw.choice(list(PARTS))
    algorithm = draw.choice(list(ALGORITHMS))
    unsuited = [name for name, entry in PROBLEMS.items() if not compatible(algorithm, entry.offers)]
    return draw.choice(
        [
            ["run", wrong, *base_call(draw)[2:]],
            [*base_call(draw), "--algorithm", wrong],
            [*base_call(draw), f"--{part}", wrong],
            ["sweep", wrong, "--algorithms", "pure-base", "--out", "out"],
            ["sweep", "finite", "--algorithms", "pure-base", wrong, "--out", "out"],
            ["run", draw.choice(unsuited), "--algorithm", algorithm, "--out", "out"],
            [
                "run",
                "finite",
                "--algorithm",
                "pure-base",
                "--out",
                "out",
                "--learner",
                draw.choice(["enode ", "seiko"]),
            ],
            ["run", "pendulum", "--algorithm", "pure-enode", "--out", "out", "--learner", "finite-sets"],
            ["run", "digits", "--algorithm", "seiko", "--out", "out", "--learner", "enode"],
            ["paper", wrong, "--out", "out"],
            ["run", "stable-diffusion", "--algorithm", "seiko", "--out", "out"],
        ]
    )


def paths(draw: Random, folder: Path) -> Call:
    """A path that cannot be used."""
    done = _finished(folder)
    (folder / "file").write_text("a file")
    (folder / "full").mkdir()
    (folder / "full" / "other.txt").write_text("something else")
    (folder / "empty").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "broken").symlink_to("nowhere/at/all")
    (folder / "old").mkdir()
    (folder / "old" / "config.json").write_text('{"format": 1, "seed": 0, "versions": {}}')
    impossible = [
        "/proc/x",
        "/proc/self/x/y",
        "/dev/null/x",
        "file/below",
        "/sys/x",
        "a/" + "b" * 300 + "/x",
        "c" * 256,
    ]
    impossible += ["loop/x", "\udcff" * 200, "a/" * 3000 + "b"]
    no_run = ["nowhere", "file", "empty", "full", "broken", "loop", "/dev/null", "/proc/self/mem", *impossible, "."]
    call = draw.choice(["run", "sweep", "resume", "evaluate", "report", "page", "config", "paper"])
    if call == "run":
        place = draw.choice([*impossible, "file", "full", done, "broken", "loop", "old"])
        return ["run", "finite", "--algorithm", "pure-base", *SHORT, "--out", place]
    if call == "sweep":
        place = draw.choice([*impossible, "file", "broken", "loop"])
        return ["sweep", "finite", "--algorithms", "pure-base", *SHORT, "--seeds", "0:2", "--out", place]
    if call in ("resume", "evaluate"):
        return [call, draw.choice([*no_run, "old"])]
    if call == "report":
        return ["report", draw.choice(no_run), "--out", "page.html"]
    if call == "page":
        return ["report", done, "--out", draw.choice([*impossible, "full", "loop/x", done])]
    if call == "paper":
        return ["paper", "prop2-independency", "--out", draw.choice([*impossible, "file", "loop"])]
    (folder / "bad.json").write_bytes(
        draw.choice([b"", b"[]", b"{", b"\xff\xfe", b"null", b'{"algorithm": 3}', b"[" * 9999])
    )
    return base_call(draw, "--config", draw.choice(["bad.json", "nowhere.json", "full", "loop", "/dev/null"]))


def seeds(draw: Random, _: Path) -> Call:
    """Seeds that are no seeds."""
    texts = ["0:0", "5:1", "a", "１", "٣", "1_0", "+1", " 1", "1 ", "1,,2", ",", ":", "0:", ":5", "-1", "0:1:2", "1.0"]
    texts += [
        "0:1000000000",
        "9" * 30,
        "0:" + "9" * 400,
        "0x1",
        "1e3",
        "1;2",
        "0:5,7",
        "\x1b[0m",
        "0,0",
        "²",
        *LONG[:2],
    ]
    return ["sweep", "finite", "--algorithms", "pure-base", *SHORT, "--out", "out", "--seeds", draw.choice(texts)]


def references(draw: Random, folder: Path) -> Call:
    """A reference to code that is not there, is not a problem, or fails."""
    (folder / "broken.py").write_text("def problem(:\n")
    (folder / "raises.py").write_text("raise RuntimeError('\\x1b[31mred\\x1b[0m\\n' * 400)\n")
    (folder / "stops.py").write_text("import sys\nsys.exit(3)\n")
    (folder / "wrong.py").write_text(
        "x = 1\nclass C:\n    pass\ndef problem():\n    return 7\n"
        "def fails():\n    raise KeyError('x')\ndef needs(a):\n    pass\n"
    )
    (folder / "directory.py").mkdir()
    texts = ["nofile.py:problem", "no_module_of_this_name:problem", "math:pi", "math:nothing", "a:b:c", ":", "x:", ":y"]
    texts += [
        "broken.py:problem",
        "raises.py:problem",
        "stops.py:problem",
        "wrong.py:x",
        "wrong.py:nothing",
        "wrong.py:C",
    ]
    texts += [
        "wrong.py:problem",
        "wrong.py:fails",
        "wrong.py:needs",
        "directory.py:problem",
        "..:x",
        "file.py:",
        "a b:c",
    ]
    texts += ["purectrl.cli:main", f"{'m' * 5000}:f", "\udcff:x", "é.py:x", "../..:x", "/dev/null:x", "/dev/zero.py:x"]
    texts += ["\x1b[31m:x", "os.path:join", "-:x"]
    where = draw.choice(["problem", "sampler", "schedule", "learner", "output", "reward"])
    text = draw.choice(texts)
    if where == "problem":
        return ["run", text, "--algorithm", "pure-enode", "--out", "out"]
    if where == "reward":
        return ["run", "digits", "--algorithm", "seiko", *samples.IMAGES, "--out", "out", "--reward", text]
    return [*base_call(draw), f"--{where}", text]


def environments(draw: Random, _: Path) -> Call:
    """An environment that Gymnasium does not have or that is no control problem here."""
    texts = ["NoSuch-v0", "Pendulum-v999", "Pendulum", "a:b:c", ":", "x:", ":y", "math:Swing-v0", "no_module:Env-v0"]
    texts += ["FrozenLake-v1", "Blackjack-v1", "Taxi-v3", "-v1", "v1", "ALE/Pong-v5", "\x1b[31m-v0", "é-v0", "a/b/c-v1"]
    texts += [
        "Pendulum-v",
        "Pendulum-v1.5",
        "pendulum-v1",
        "Pendulum-v1 ",
        *LONG[:3],
        "../../x",
        "%s%n",
        "Pendulum-v-1",
    ]
    return ["run", "gymnasium", "--env", draw.choice(texts), "--algorithm", "pure-enode", "--out", "out"]


def sizes(draw: Random, _: Path) -> Call:
    """Settings that are allowed one by one and need more memory than any machine here has."""
    return [
        "run",
        *draw.choice(
            [
                ("neural", "--algorithm", "pure-base", "--learner.width", "1000000"),
                ("neural", "--algorithm", "pure-base", "--learner.width", "500000", "--learner.paths", "1000000"),
                ("finite", "--algorithm", "pure-base", "--problem.steps", "1000000", "--learner.paths", "1000000"),
                ("lqr", "--algorithm", "pure-base", "--problem.steps", "1000000", "--learner.paths", "1000000"),
                ("pendulum", "--algorithm", "pure-enode", "--learner.model.width", "1000000"),
                (
                    "acrobot",
                    "--algorithm",
                    "enode",
                    "--learner.model.width",
                    "300000",
                    "--learner.model.ensemble-size",
                    "99",
                ),
                ("finite", "--algorithm", "pure-low-rollout", "--sampler.m", "1000000000"),
                ("finite", "--algorithm", "pure-base", "--measurements", "1000000000000"),
            ]
        ),
        "--seed",
        str(draw.randrange(1000)),
        "--out",
        "out",
    ]


FAMILIES: dict[str, tuple[Family, float]] = {
    "command": (command, 0.04),
    "incomplete": (incomplete, 0.05),
    "surplus": (surplus, 0.05),
    "unknown flag": (unknown_flag, 0.1),
    "unused setting": (unused_setting, 0.08),
    "setting": (setting, 0.33),
    "option": (option, 0.13),
    "names": (names, 0.06),
    "paths": (paths, 0.06),
    "seeds": (seeds, 0.02),
    "references": (references, 0.05),
    "environments": (environments, 0.02),
    "sizes": (sizes, 0.01),
}
"""Kinds of wrong calls with their shares."""


def _typed(draw: Random, flag: str, words: tuple[str, ...]) -> list[str]:
    """A flag with its words, in one of the two ways to type it."""
    return [f"{flag}={words[0]}"] if len(words) == 1 and draw.random() < 0.3 else [flag, *words]


def _finished(folder: Path) -> str:
    """A finished run in the trial's directory."""
    if not (folder / "done").exists():
        samples.copy(folder.parent / "finished", folder / "done")
    return "done"


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
    ["run", "ou", "--algorithm", "pure-base", *SHORT, "--out", "ä ö/ü"],
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
        _finished(folder)
        answer = accepted_or_answer(words)
        failures = [] if answer is None else objections(answer, 0)
        return Verdict(" ".join(words), "; ".join(failures) or None, words[0] if words else "")


assert len(RIGHT) % 13 != 0, "the order of the calls would not visit all of them"

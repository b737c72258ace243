"""Families of wrong calls: each draws a call that the program must refuse, and makes the files that the call needs."""

from collections.abc import Callable
from pathlib import Path
from random import Random

from hostile import samples
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
from purectrl.cli import options
from purectrl.cli.specs import DEFAULTED
from purectrl.problems import PROBLEMS
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
    done = finished(folder)
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
    done = finished(folder)
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
    done = finished(folder)
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
    done = finished(folder)
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


def finished(folder: Path) -> str:
    """A finished run in the trial's directory."""
    if not (folder / "done").exists():
        samples.copy(folder.parent / "finished", folder / "done")
    return "done"

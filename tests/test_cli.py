"""The command line: what is wrong is answered with exit status 2 in one or two lines, and leaves nothing behind."""

import inspect
import json
import os
import subprocess
import sys

import pytest

from purectrl import problems
from purectrl.algorithms import ALGORITHMS
from purectrl.cli import main
from purectrl.core.samplers import SAMPLERS
from purectrl.core.schedules import SCHEDULES
from purectrl.core.settings import Settings, field_types
from purectrl.runs.spec import PARTS, RunSpec

SHORT = ["--learner.paths", "8", "--problem.steps", "8"]
"""Flags that make a run of the theory's problems cheap."""
RUN = ["run", "finite", "--algorithm", "pure-base", "--out", "OUT"]
SWEEP = ["sweep", "finite", "--algorithms", "pure-base", "--out", "OUT"]
GYM = ["run", "gymnasium", "--algorithm", "pure-enode", "--out", "OUT"]
ENODE = ["run", "pendulum", "--algorithm", "pure-enode", "--out", "OUT"]
SEIKO = ["run", "digits", "--algorithm", "pure-seiko", "--out", "OUT"]

WRONG = [
    # commands, problems, algorithms: the nearest name is suggested
    (["rnu"], "unknown command 'rnu': did you mean 'run'?"),
    (
        ["frobnicate"],
        "unknown command 'frobnicate': (one of: evaluate, export, label, league, list, paper, report, resume, run, sweep)",
    ),
    (["list", "all"], "list takes no arguments, got 'all'"),
    (["run"], "run needs a problem first, one of: finite, lqr"),
    (["run", "--algorithm", "pure-base"], "run needs a problem first"),
    (["run", "finite"], "--algorithm is missing: name one of those that work on finite: pure-base, pure-low-switch"),
    (["run", "digits"], "--algorithm is missing: name one of those that work on digits: seiko, pure-seiko"),
    (["run", "finite", "--algorithm"], "--algorithm is missing: name one of those that work on finite"),
    (["run", "finit"], "unknown problem 'finit': did you mean 'finite'?"),
    (["run", "OWN.py:problem"], "--out is missing: Directory of the run, new or empty."),
    (["run", "OWN.py"], "OWN.py is a file; name the function in it that returns the problem: "),
    (["run", "pendulum"], "--out is missing: Directory of the run, new or empty."),
    (["run", "finit", *RUN[2:]], "unknown problem 'finit': did you mean 'finite'?"),
    (["run", "finite", "--algorithm", "pure-bass", "--out", "OUT"], "did you mean 'pure-base'?"),
    (["run", "finite", "--algorithm", "seiko", "--out", "OUT"], "seiko needs a diffusion model"),
    (["run", "pendulum", *RUN[2:]], "finite-sets needs"),
    (["run", "digits", *RUN[2:]], "finite-sets needs"),
    (["run", "digits", "--algorithm", "pure-enode", "--out", "OUT"], "enode needs a problem with states and controls"),
    (["run", "finite", "--algorithm", "pure-base"], "--out is missing: Directory of the run, new or empty."),
    ([*RUN, "surprise"], "--out: needs one value, not 2"),
    (["run", "finite", "surprise", *RUN[2:]], "run takes a problem, got another word: 'surprise'"),
    ([*RUN, "--measurments", "5"], "unknown option '--measurments': did you mean '--measurements'?"),
    ([*RUN, "--seed"], "--seed: needs one value"),
    # your own code
    (["run", "OUT.py:problem", *RUN[2:]], "there is no such file"),
    (["run", "nowhere:problem", *RUN[2:]], "importing the module failed: ModuleNotFoundError"),
    (["run", "FILE.py:problem", *RUN[2:]], "importing it failed: SyntaxError"),
    (["run", "OWN.py:problme", *RUN[2:]], "did you mean 'problem'?"),
    (["run", "OWN.py:NUMBER", *RUN[2:]], "is not a function that returns a Problem"),
    (["run", "OWN.py:wrong", *RUN[2:]], "returned a int, expected a Problem"),
    (["run", "OWN.py:", *RUN[2:]], "expected module:name or path/to/file.py:name"),
    ([*RUN, "--sampler", "OWN.py:NUMBER"], "is not a settings class"),
    # values of the wrong kind
    ([*RUN, "--sampler.m", "four"], "sampler.m: must be an integer, not 'four'"),
    ([*RUN, "--sampler.m", "2.5"], "sampler.m: must be an integer, not '2.5'"),
    ([*RUN, "--sampler.m", "1_0"], "sampler.m: must be an integer, not '1_0'"),
    ([*RUN, "--sampler.m"], "sampler.m: needs one value"),
    ([*RUN, "--sampler.m", "1", "2"], "sampler.m: needs one value, not 2"),
    ([*RUN, "--sampler", "geometric", "--sampler.lam", "six"], "sampler.lam: must be a number, not 'six'"),
    ([*RUN, "--seed", "x"], "--seed: must be an integer, not 'x'"),
    ([*RUN, "--sampler", "unifrom"], "unknown sampler 'unifrom': did you mean 'uniform'?"),
    ([*RUN, "--schedule", "sometimes"], "unknown schedule 'sometimes'"),
    ([*RUN, "--learner", "enod"], "unknown learner 'enod': did you mean 'enode'?"),
    ([*RUN, "--problem.drift", "guessed"], "drift"),
    ([*RUN, "--output", "best"], "unknown output 'best': (one of: best-measured"),
    ([*RUN, "--schedule", "batches", "--schedule.sizes", "1", "two"], "schedule.sizes: must be an integer, not 'two'"),
    ([*RUN, "--track", "mlflow"], "unknown track 'mlflow'"),
    # settings that the chosen components do not have
    ([*RUN, "--sampler.lam", "6"], "sampler: unknown setting of uniform 'lam'"),
    ([*RUN, "--sampler.n", "6"], "sampler: unknown setting of uniform 'n'"),
    ([*RUN, "--schedule.threshold", "2"], "schedule: unknown setting of every 'threshold'"),
    ([*RUN, "--samplre.m", "2"], "unknown component 'samplre': did you mean 'sampler'?"),
    ([*RUN, "--problem.dimension", "2"], "unknown argument of the problem finite 'dimension'"),
    ([*RUN, "--env", "Pendulum-v1"], "unknown argument of the problem finite 'env'"),
    (["run", "pendulum", "--algorithm", "enode", "--out", "OUT", "--learner.fit", "3"], "is a group of settings"),
    # settings that have no effect on this problem, or beside other settings
    ([*RUN, "--problem.scales", "8"], "scales: 8 has no effect on an even grid; use grid = dyadic"),
    (
        ["run", "ou", *RUN[2:], "--learner.paths", "8"],
        "--learner.paths has no effect: the values of ou are known exactly",
    ),
    ([*GYM, "--learner.fit.sequence-length", "9"], "a black-box model does not use it"),
    ([*GYM, "--learner.plan.step", "0.1"], "--learner.plan.step has no effect: the step of Pendulum-v1 is used"),
    ([*GYM, "--learner.model.integrator", "dopri5"], "--learner.model.integrator has no effect"),
    ([*GYM, "--learner.model.kind", "gp", "--learner.fit.steps", "9"], "a gp model does not use it"),
    ([*ENODE, "--learner.plan.step", "0.1"], "--learner.plan.step has no effect: the step of the sampler is used"),
    ([*SEIKO, "--learner.reward-model.num-heads", "4"], "has no effect: it is for uncertainty = bootstrap"),
    (
        [*SEIKO, "--learner.reward-model.uncertainty", "greedy", "--learner.reward-model.bonus-scale", "4"],
        "has no effect: uncertainty = greedy has no bonus",
    ),
    (["paper", "thm1-quotient", "--out", "OUT", "--workers", "2"], "--workers has no effect: thm1-quotient"),
    # environments
    *[
        ([*GYM, "--env", name], message)
        for name, message in [
            ("a:b:c", "env: 'a:b:c' is not the name of an environment; expected one such as Pendulum-v1"),
            (":", "env: ':' is not the name of an environment"),
            ("x y", "env: 'x y' is not the name of an environment"),
            ("Pendulum", "env: Pendulum is ambiguous without its version; did you mean Pendulum-v1?"),
            ("Pendulum-v0", "env: Environment version v0 for `Pendulum` is deprecated"),
            ("Nowhere-v0", "env: Environment `Nowhere` doesn't exist"),
            ("nowhere:Nowhere-v0", "env: No module named 'nowhere'"),
            ("A" * 5000, "env: Environment `AAAA"),
        ]
    ],
    # over-long values are shortened
    *[
        ([*RUN, flag, "x" * 100_000], "xxx")
        for flag in ("--sampler", "--problem.grid", "--seed", "--algorithm", "--track", "--config", "--sampler.m")
    ],
    ([*RUN, "--" + "x" * 100_000], "unknown option"),
    ([*RUN, "--sampler." + "x" * 100_000, "1"], "unknown setting of uniform"),
    (["x" * 100_000], "unknown command"),
    (["run", "x" * 100_000, *RUN[2:]], "unknown problem"),
    (["paper", "x" * 100_000, "--out", "OUT"], "unknown item"),
    # odd words
    ([*RUN, "--out="], "--out: the value is empty"),
    ([*RUN, "--track"], "--track: needs at least one value"),
    ([*RUN, "--seed", "+1"], "--seed: must be an integer, not '+1'"),
    ([*RUN, "--seed", " 1"], "--seed: must be an integer, not ' 1'"),
    ([*RUN, "--seed", "\uff11"], "--seed: must be an integer, not"),
    ([*RUN, "--seed", "1e3"], "--seed: must be an integer, not '1e3'"),
    ([*RUN, "--learner.delta", "\u0663"], "learner.delta: must be a number, not"),
    ([*RUN, "--sampler.", "3"], "sampler"),
    ([*RUN, "--.m", "3"], "unknown component ''"),
    ([*RUN, "--=5"], "unknown option '--'"),
    ([*RUN, "--workers", "2"], "unknown option '--workers'"),
    # values out of range
    ([*RUN, "--seed", "-1"], "seed: must be a non-negative integer, not -1"),
    ([*RUN, "--measurements", "0"], "measurements: the budget must be at least 1, not 0"),
    ([*RUN, "--measurements", "-5"], "measurements: the budget must be at least 1, not -5"),
    ([*RUN, "--rollouts", "0"], "rollouts: the budget must be at least 1, not 0"),
    ([*RUN, "--problem.scales", "0"], "scales: "),
    (["run", "ou", *RUN[2:], "--problem.u-min", "5"], "u_min"),
    ([*RUN, "--sampler.m", "0"], "sampler.m: must be between 1 and 1,000,000, not 0"),
    ([*RUN, "--sampler.m", "10", "--measurements", "9"], "m = 10 measurements, more than the whole budget N = 9"),
    ([*RUN, "--sampler", "geometric", "--sampler.lam", "0"], "sampler.lam: must be positive, not 0.0"),
    ([*RUN, "--sampler", "geometric", "--sampler.lam", "nan"], "sampler.lam: must be a finite number, not nan"),
    ([*RUN, "--sampler", "windows", "--sampler.count", "11"], "11 windows of 5 do not fit into an episode of 2"),
    ([*RUN, "--sampler", "windows", "--sampler.step", "0"], "sampler.step: must be positive, not 0.0"),
    ([*RUN, "--sampler", "exponential-gaps", "--sampler.mean-gap", "-1"], "sampler.mean_gap: must be positive"),
    ([*RUN, "--schedule.k", "0"], "schedule.k: must be between 1 and 1,000,000, not 0"),
    ([*RUN, "--schedule", "batches", "--schedule.sizes", "3", "0"], "schedule.sizes: every batch needs at least"),
    ([*RUN, "--schedule", "batches", "--schedule.sizes", "3"], "use a budget of 3 measurements, or other sizes"),
    ([*RUN, "--schedule", "batches"], "schedule: needs a value for sizes"),
    ([*RUN, "--schedule", "on-excess-loss", "--schedule.threshold", "0"], "schedule.threshold: must be positive"),
    ([*RUN, "--problem.horizon", "0"], "horizon"),
    ([*RUN, "--problem.horizon", "inf"], "horizon"),
    ([*RUN, "--problem.step", "0"], "step"),
    ([*RUN, "--learner.delta", "1"], "delta: "),
    ([*RUN, "--problem.diffusion", "-1"], "diffusion: "),
    ([*RUN, "--problem.reward-std", "-1"], "reward_std: "),
    ([*RUN, "--radius", "small"], "unknown radius 'small': (one of: anytime, theorem)"),
    (["run", "pendulum", "--algorithm", "enode", "--radius", "anytime", *RUN[4:]], "unknown setting of enode 'radius'"),
    ([*RUN, "--problem.steps", "0"], "steps"),
    ([*RUN, "--learner.paths", "1"], "paths"),
    (["run", "lqr", *RUN[2:], "--problem.dimension", "5"], "dimension"),
    ([*RUN, "--learner.delta", "5e-324"], "learner.delta: must be 0 or between 1e-12 and 1e12"),
    ([*RUN, "--measurements", "1" + "0" * 400], "must be 0 or between 1e-12 and 1e12 in absolute value"),
    ([*RUN, "--sampler.m", "1000000000"], "sampler.m: must be between 1 and 1,000,000, not 1000000000"),
    # directories
    *[
        (command, message)
        for out, message in [
            ("", "is empty"),
            ("  ", "is empty"),
            ("a\0b", "contains a null character: 'a\\x00b'"),
            ("\udcff\udcfe", "is not valid UTF-8"),
            ("X" * 300, "too long|a name in it has 300 bytes"),
            ("OUT/" + "x" * 300 + "/x", "a name in it has 300 bytes, at most 255 are possible"),
            ("OUT/" + "x" * 200 + "/x" * 2000, "bytes, at most 3896 are possible|File name too long"),
            ("/proc/x", "cannot be created"),
            ("/proc/x/y", "cannot be created"),
            ("/dev/null/x", "/dev/null is a file, not a directory"),
            ("FILE.py/inside", "FILE.py is a file, not a directory"),
        ]
        for command in (
            [*RUN[:-1], out],
            [*SWEEP[:-1], out],
            ["paper", "thm1-rate", "--out", out],
            ["report", "HELD", "--out", out],
        )
    ],
    ([*RUN[:-1], "LINK"], "is a broken link"),
    *[
        ([command, place], message)
        for command in ("resume", "evaluate", "report")
        for place, message in [
            ("", "is empty"),
            ("a\0b", "contains a null character"),
            ("\udcff\udcfe", "is not valid UTF-8"),
            ("X" * 5000, "cannot be read: File name too long"),
            ("OUT/" + "x" * 300 + "/x", "does not exist|cannot be read"),
            ("/proc/x", "does not exist"),
            ("FILE.py/inside", "does not exist"),
        ]
    ],
    (["resume", "NULL"], "is not the configuration of a purectrl run"),
    (["resume", "SEED"], "is not the configuration of a purectrl run"),
    (["resume", "OLD"], "was written by purectrl 0.1"),
    (["evaluate", "OLD"], "was written by purectrl 0.1"),
    (["resume", "SPOILT"], "is not the summary of a run"),
    (["evaluate", "SPOILT"], "is not the summary of a run"),
    (["sweep", "finite", "--algorithms", "pure-base", "--out", "FILE.py"], "is a file"),
    ([*RUN[:-1], "FILE.py"], "is a file, not a directory"),
    ([*RUN[:-1], "FOREIGN"], "is not empty and holds no run"),
    ([*RUN[:-1], "HELD"], "already holds a run: continue it with `purectrl resume"),
    (["resume"], "resume needs the directory of a run first"),
    (["resume", "OUT"], "does not exist"),
    (["resume", "FILE.py"], "is not a directory"),
    (["resume", "FOREIGN"], "holds no run: it has no config.json"),
    (["resume", "BROKEN"], "config.json is not JSON: Expecting"),
    (["resume", "ALIEN"], "is not the configuration of a purectrl run"),
    (["resume", "FUTURE"], "has format 999, this version reads format 2"),
    (["resume", "CHANGED"], "sampler.m: must be an integer, not 'four'"),
    (["resume", "MISNAMED"], "sampler: unknown setting 'mm'"),
    (["resume", "PYTHON"], "the problem was built in Python and has no reference"),
    (["resume", "CODE"], "would import code outside the package (evil.py:problem); check that first"),
    (["evaluate", "CODE"], "would import code outside the package (evil.py:problem); check that first"),
    (["evaluate", "SAMPLER"], "would import code outside the package (evil:Sampler); check that first"),
    (["evaluate", "OUT"], "does not exist"),
    (["evaluate", "HELD"], "has not finished: continue it with `purectrl resume"),
    (["evaluate", "HELD", "--episodes", "0"], "episodes: must be between 1 and 1,000,000, not 0"),
    (["report"], "report needs a directory first"),
    # config files
    ([*RUN, "--config", "OUT"], "does not exist"),
    ([*RUN, "--config", "BROKEN/config.json"], "is not JSON"),
    ([*RUN, "--config", "LIST"], "expected the config.json of a run"),
    ([*RUN, "--config", "OTHER/config.json"], "is of a run with 'pure-low-switch', not with 'pure-base'"),
    ([*RUN, "--config", "DEEP"], "is not JSON"),
    # sweeps
    (["sweep"], "sweep needs a problem first"),
    (["sweep", "finite"], "--algorithms is missing"),
    (["sweep", "finite", "--out", "OUT"], "--algorithms is missing"),
    (
        ["sweep", "finite", "--algorithms", "--out", "OUT"],
        "--algorithms is missing: name one of those that work on finite",
    ),
    (["sweep", "finite", "--algorithms", "pure-base"], "--out is missing: Directory of the sweep"),
    (["sweep", "finit", "--algorithms"], "unknown problem 'finit': did you mean 'finite'?"),
    ([*SWEEP, "--seeds", "5:0"], "5:0"),
    ([*SWEEP, "--seeds", "some"], "some"),
    *[
        ([*SWEEP, "--seeds", text], "seeds: must be a range such as 0:5 or a list such as 1,4,7, not ")
        for text in (
            "\uff11",
            "\u0663",
            "1_0",
            "+1",
            "-1",
            "1.0",
            "0:",
            ":5",
            "0:3:2",
            "1,",
            "0:1e5",
            "9" * 5000,
            "0:5,7",
        )
    ],
    ([*SWEEP, "--seeds", "0:0"], "seeds: the range 0:0 is empty"),
    ([*SWEEP, "--seeds", "1,2,1"], "seeds: 1,2,1 contains a seed twice"),
    ([*SWEEP, "--seeds", "0:100001"], "has more than 100,000 seeds"),
    ([*SWEEP, "--seeds", ",".join(map(str, range(100_001)))], "has more than 100,000 seeds"),
    ([*SWEEP, "--seeds"], "--seeds: needs one value"),
    ([*SWEEP, "--engine", "slurm"], "unknown engine 'slurm'"),
    ([*SWEEP, "--workers", "0"], "workers"),
    ([*SWEEP, "--sampler.m", "0"], "sampler.m: must be between 1 and 1,000,000, not 0"),
    (["sweep", "finite", "--algorithms", "pure-base", "pure-bass", "--out", "OUT"], "did you mean 'pure-base'?"),
    (
        ["sweep", "finite", "--algorithms", "pure-base", "pure-base", "--out", "OUT"],
        "2 runs of the sweep would be written",
    ),
    (["sweep", "finite", "pendulum", "--algorithms", "pure-base", "--out", "OUT"], "finite-sets needs"),
    # the paper's items
    (["paper", "thm1-rat", "--out", "OUT"], "unknown item 'thm1-rat': did you mean 'thm1-rate'?"),
    (["paper", "--out", "OUT"], "paper needs an item first, one of: thm1-coverage"),
    (["paper", "thm1-rate"], "--out is missing"),
    (["paper", "thm1-rate", "--out", "OUT", "--engine", "slurm"], "unknown engine 'slurm'"),
    (["paper", "thm1-rate", "--out", "OUT", "--workers", "0"], "workers"),
    (["paper", "thm1-rate", "--out", "OUT", "--seeds", "3"], "unknown option '--seeds'"),
    (["paper", "thm1-rate", "--out", "FILE.py"], "is a file"),
    (["paper", "prop2-independency", "--out", "FILE.py"], "is a file"),
]


def _name(arguments):
    """The name of a test: what was typed, shortened, since it becomes an environment variable and a directory."""
    return " ".join(word[:40] for word in arguments).encode("ascii", "backslashreplace").decode().replace("\0", "NUL")


OWN = """
NUMBER = 3

def wrong():
    return 3

def problem():
    raise SystemExit
"""


@pytest.fixture
def places(tmp_path):
    """Directories and files that are wrong in every way."""
    config = RunSpec.of("finite", "pure-base").as_dict()
    algorithm, problem = config["algorithm"], config["problem"]
    sampler = lambda **values: {**algorithm, "sampler": {"name": "uniform", **values}}  # noqa: E731
    content = {
        "FOREIGN/thesis.tex": "do not touch",
        "HELD/config.json": config,
        "BROKEN/config.json": '{"format": 2, ',
        "ALIEN/config.json": {"learning_rate": 1},
        "FUTURE/config.json": {**config, "format": 999},
        "OLD/config.json": {**config, "format": 1},
        "CHANGED/config.json": {**config, "algorithm": sampler(m="four")},
        "MISNAMED/config.json": {**config, "algorithm": sampler(mm=4)},
        "OTHER/config.json": {**config, "algorithm": {**algorithm, "name": "pure-low-switch"}},
        "PYTHON/config.json": {**config, "problem": {"reference": None, "name": "tank"}},
        "CODE/config.json": {**config, "problem": {**problem, "reference": "evil.py:problem"}},
        "CODE/evil.py": "raise SystemExit",
        "SAMPLER/config.json": {**config, "algorithm": {**algorithm, "sampler": {"name": "evil:Sampler"}}},
        "NULL/config.json": {**config, "problem": None},
        "SEED/config.json": {**config, "seed": "0"},
        "SPOILT/config.json": config,
        "SPOILT/summary.json": "{}",
        "DEEP": "[" * 100_000,
        "FILE.py": "a file",
        "OWN.py": OWN,
        "LIST": "[1, 2]",
    }
    for name, text in content.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text if isinstance(text, str) else json.dumps(text))
    (tmp_path / "LINK").symlink_to(tmp_path / "nowhere")
    return tmp_path


def everything(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*") if path.name != ".lock"}


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[_name(arguments) for arguments, _ in WRONG])
def test_a_wrong_call(places, capsys, arguments, message):
    before = everything(places)
    names = ("OUT/", "OUT.", "FILE.", "OWN.", "OTHER/", "BROKEN/")
    in_place = lambda word: (word.isupper() and len(word) < 100) or word.startswith(names)  # noqa: E731
    status = main([str(places / word) if in_place(word) else word for word in arguments])
    captured = capsys.readouterr()
    assert status == 2
    assert captured.err.startswith("error: ")
    assert any(text in captured.err for text in message.split("|")), captured.err
    assert captured.err.count("\n") <= 2
    assert max(map(len, captured.err.splitlines())) <= 400
    assert captured.out == ""
    assert everything(places) == before


def test_a_wrong_call_of_the_real_program(tmp_path):
    command = [sys.executable, "-m", "purectrl", "run", "finite", "--algorithm", "pure-base", "--sampler.m", "0"]
    done = subprocess.run([*command, "--out", str(tmp_path / "out")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr == "error: sampler.m: must be between 1 and 1,000,000, not 0\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [[], ["--help"], *[[command, "--help"] for command in ("run", "sweep", "paper", "report", "resume", "evaluate")]],
)
def test_help_is_printed(capsys, arguments):
    try:
        status = main(arguments)
    except SystemExit as stop:
        status = stop.code
    assert status == 0
    assert "usage: purectrl" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("problem", "algorithm"), [("lqr", "pure-base"), ("cartpole", "pure-enode"), ("digits", "pure-seiko")]
)
def test_every_setting_is_in_the_help_with_its_documentation(capsys, problem, algorithm):
    assert main(["run", problem, "--algorithm", algorithm, "--help"]) == 0
    text = capsys.readouterr().out
    spec = RunSpec.of(problem, algorithm)
    for path in settings_of(spec.algorithm):
        assert f"--{path.replace('_', '-')}" in text, path
    for name in inspect.signature(problems.function(problem)).parameters:
        assert f"--problem.{name.replace('_', '-')}" in text, name
    entries = text.split("\n  --")[1:]
    undocumented = [entry.splitlines()[0] for entry in entries if "\n      " not in entry]
    assert undocumented == []


def settings_of(algorithm):
    """The path of every parameter of an algorithm."""

    def walk(path, value):
        for name in field_types(type(value)):
            item = getattr(value, name)
            yield from walk(f"{path}.{name}", item) if isinstance(item, Settings) else [f"{path}.{name}"]

    return [path for part in PARTS for path in walk(part, getattr(algorithm, part))]


def test_the_help_shows_the_settings_of_the_chosen_components(capsys):
    assert main(["run", "finite", "--algorithm", "pure-low-rollout", "--help"]) == 0
    assert "--sampler.m [4]" in capsys.readouterr().out
    assert main(["run", "finite", "--algorithm", "pure-base", "--sampler", "windows", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--sampler.length [5.0]" in text
    assert "--sampler.m" not in text


def test_list_names_everything(capsys):
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    for name in (*problems.PROBLEMS, *ALGORITHMS):
        assert f"  {name} " in text


def test_a_flag_given_twice_counts_once(tmp_path):
    """The settings must be those of the algorithm that is run."""
    arguments = ["--algorithm", "pure-low-rollout", "--measurements", "8", *SHORT, "--quiet"]
    assert main(["run", "finite", "--algorithm", "pure-base", "--out", str(tmp_path / "run"), *arguments]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["algorithm"]["name"], config["algorithm"]["sampler"]["m"]) == ("pure-low-rollout", 4)


def test_letters_that_the_terminal_does_not_have():
    command = [sys.executable, "-m", "purectrl", "run", "finite", "--algorithm", "pure-base", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "\\u03b4" in done.stdout  # δ


def test_a_closed_pipe_does_not_stop_a_run(tmp_path):
    """Standard error closed, and standard output closed early: the run finishes."""
    run = f"'{sys.executable}' -m purectrl run finite --algorithm pure-base --measurements 40 {' '.join(SHORT)} --out"
    for number, ending in enumerate(["2>&-", "2>&1 | head -1", ">&-", "2>/dev/full"]):
        subprocess.run(f"{run} '{tmp_path / str(number)}' {ending}", shell=True, timeout=120, capture_output=True)
        assert (tmp_path / str(number) / "summary.json").exists(), ending


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("purectrl 0.")


def test_a_run_prints_what_it_did_and_where(tmp_path, capsys):
    out = tmp_path / "run"
    run = ["run", "lqr", "--algorithm", "pure-low-switch", "--out", str(out), "--measurements", "40", *SHORT]
    assert main(run) == 0
    captured = capsys.readouterr()
    assert "finished: lqr, pure-low-switch, seed 0" in captured.out
    assert "40 measurements, 40 rollouts, " in captured.out
    assert f"wrote {out}: checkpoint/, config.json, policy/, records.jsonl, summary.json" in captured.out
    assert "lqr pure-low-switch seed 0: 100%  40 measurements" in captured.err  # a pipe: plain lines
    assert main(["evaluate", str(out), "--episodes", "20"]) == 0
    assert "20 new episodes (seed 0): reward " in capsys.readouterr().out
    assert json.loads((out / "evaluation.json").read_text())["episodes"] == 20
    ledger = json.loads((out / "summary.json").read_text())["ledger"]
    assert ledger["evaluation_rollouts"] == 0


def test_settings_come_from_the_algorithm_then_a_config_then_flags(tmp_path, capsys):
    first, again = tmp_path / "first", tmp_path / "again"
    base = ["run", "finite", "--algorithm", "pure-low-rollout", "--quiet"]
    assert main([*base, "--sampler.m", "2", "--measurements", "20", *SHORT, "--out", str(first)]) == 0
    config = json.loads((first / "config.json").read_text())
    assert (config["algorithm"]["sampler"]["m"], config["budget"]["measurements"]) == (2, 20)
    assert main([*base, "--config", str(first / "config.json"), "--out", str(again)]) == 0
    assert (again / "config.json").read_text() == (first / "config.json").read_text()
    other = tmp_path / "other"
    assert main([*base, "--config", str(first / "config.json"), "--sampler.m", "5", "--out", str(other)]) == 0
    changed = json.loads((other / "config.json").read_text())
    assert (changed["algorithm"]["sampler"]["m"], changed["problem"]) == (5, config["problem"])
    assert capsys.readouterr().err == ""


def test_the_same_seed_twice_gives_identical_records_and_another_seed_others(tmp_path):
    lines = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        out = tmp_path / name
        arguments = ["--measurements", "60", *SHORT, "--quiet", "--out", str(out)]
        assert main(["run", "finite", "--algorithm", "pure-base", "--seed", str(seed), *arguments]) == 0
        records = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
        lines.append([{key: value for key, value in record.items() if key != "seconds"} for record in records])
    assert lines[0] == lines[1]
    assert lines[0] != lines[2]


NEEDED = {
    "windows": ["--sampler.length", "0.2", "--sampler.step", "0.05"],
    "paced-windows": ["--sampler.m", "20", "--sampler.windows", "2"],
    "batches": ["--schedule.sizes", "10", "20"],
}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_runs_from_the_command_line(tmp_path, sampler, capsys):
    arguments = ["--sampler", sampler, *NEEDED.get(sampler, []), "--schedule.k", "7", "--measurements", "60", "--quiet"]
    status = main(["run", "finite", "--algorithm", "pure-base", *SHORT, "--out", str(tmp_path / "run"), *arguments])
    if SAMPLERS[sampler].needs_uncertainty:  # which finite classes do not have
        assert status == 2
        assert "needs the predictive uncertainty of the model" in capsys.readouterr().err
        return
    if SAMPLERS[sampler].selects:  # which needs images
        assert status == 2
        assert "use equidistant, geometric or final" in capsys.readouterr().err or sampler == "auto-m"
        return
    assert status == 0
    config, summary = (json.loads((tmp_path / "run" / f"{name}.json").read_text()) for name in ("config", "summary"))
    m = 20 if sampler == "windows" else config["algorithm"]["sampler"].get("m", 1)
    assert summary["ledger"]["rollouts"] == 60 // m


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_runs_from_the_command_line(tmp_path, schedule):
    arguments = [
        "--schedule",
        schedule,
        *NEEDED.get(schedule, []),
        "--sampler.m",
        "2",
        "--measurements",
        "60",
        "--quiet",
    ]
    assert main(["run", "finite", "--algorithm", "pure-base", *SHORT, "--out", str(tmp_path / "run"), *arguments]) == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["ledger"]["rollouts"] == 30


def test_defect_b1_parameters_of_problem_and_sampler_do_not_collide(tmp_path):
    """`grid` is a parameter of the problem `finite` and of the sampler `geometric-distinct`."""
    arguments = ["--sampler", "geometric-distinct", "--sampler.m", "4", "--measurements", "40", "--quiet"]
    assert main(["run", "finite", "--algorithm", "pure-base", *SHORT, "--out", str(tmp_path / "run"), *arguments]) == 0

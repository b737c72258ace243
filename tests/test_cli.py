"""The command line: what is wrong is answered with exit status 2 in one or two lines, and leaves nothing behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from purectrl.cli import main

RUN = ["run", "finite", "--algorithm", "pure-base", "--out", "OUT"]
SWEEP = ["sweep", "finite", "--algorithms", "pure-base", "--out", "OUT"]

WRONG = [
    # commands, experiments, algorithms: a near miss is answered with the right name
    (["rnu"], "unknown command 'rnu': did you mean 'run'?"),
    (["frobnicate"], "unknown command 'frobnicate': (one of: evaluate, list, paper, report, resume, run, sweep)"),
    (["list", "all"], "list takes no arguments, got 'all'"),
    (["run"], "run needs an experiment first, one of: finite, lqr"),
    (["run", "--algorithm", "pure-base"], "run needs an experiment first"),
    (["run", "finit", *RUN[2:]], "unknown experiment 'finit': did you mean 'finite'?"),
    (["run", "finite", "--algorithm", "pure-bass", "--out", "OUT"], "did you mean 'pure-base'?"),
    (["run", "finite", "--algorithm", "seiko", "--out", "OUT"], "unknown algorithm for 'finite' 'seiko'"),
    (["run", "finite", "--out", "OUT"], "--algorithm"),
    (["run", "finite", "--algorithm", "pure-base"], "--out"),
    ([*RUN, "surprise"], "Unrecognized options: surprise"),
    ([*RUN, "--measurments", "5"], "did you mean --measurements?"),
    ([*RUN, "--seed"], "Missing value for argument '--seed'"),
    # values of the wrong kind
    ([*RUN, "--m", "four"], "--m"),
    ([*RUN, "--m", "2.5"], "--m"),
    ([*RUN, "--lam", "six"], "--lam"),
    ([*RUN, "--seed", "x"], "--seed"),
    ([*RUN, "--sampler", "unifrom"], "invalid choice 'unifrom'"),
    ([*RUN, "--schedule", "sometimes"], "invalid choice 'sometimes'"),
    ([*RUN, "--drift", "guessed"], "invalid choice 'guessed'"),
    ([*RUN, "--output", "best"], "invalid choice 'best'"),
    ([*RUN, "--batches", "1", "two"], "--batches"),
    ([*RUN, "--track", "mlflow"], "invalid choice 'mlflow'"),
    # values out of range
    ([*RUN, "--seed", "-1"], "seed: must be a non-negative integer, not -1"),
    ([*RUN, "--measurements", "0"], "measurements: the budget N must be at least 1, not 0"),
    ([*RUN, "--measurements", "-5"], "measurements: the budget N must be at least 1, not -5"),
    ([*RUN, "--scales", "0"], "scales: must lie between 1 and 12, not 0"),
    (["run", "neural", *RUN[2:], "--drift-scale", "0"], "drift_scale: must be positive, not 0.0"),
    (["run", "neural", *RUN[2:], "--width", "0"], "width: must lie between 1 and 1,000,000, not 0"),
    (["run", "ou", *RUN[2:], "--u-min", "5"], "u_min: 0 < u_min < u_max must hold, not 5 and 4"),
    ([*RUN, "--m", "0"], "m: an episode needs at least one measurement, not 0"),
    ([*RUN, "--m", "10", "--measurements", "9"], "m = 10 measurements, more than the whole budget N = 9"),
    ([*RUN, "--sampler", "geometric", "--lam", "0"], "lam: the temperature λ must be positive, not 0.0"),
    ([*RUN, "--sampler", "geometric", "--lam", "nan"], "lam: must be a finite number, not nan"),
    ([*RUN, "--sampler", "windows", "--windows", "11"], "windows: 11 windows of 0.2 do not fit"),
    ([*RUN, "--sampler", "windows", "--window-step", "0"], "window_step: the time grid Δt must be positive"),
    ([*RUN, "--sampler", "exponential-gaps", "--mean-gap", "-1"], "mean_gap: the mean gap must be positive"),
    ([*RUN, "--every", "0"], "every: the number of episodes between updates must be at least 1"),
    ([*RUN, "--schedule", "batches", "--batches", "3", "0"], "batches: every batch needs at least one episode"),
    ([*RUN, "--schedule", "batches", "--update", "before"], "initial: updating before the first batch needs exploring"),
    (
        [*RUN, "--schedule", "batches", "--batches", "3", "4"],
        "batches: initial + batches = 7 episodes, the budget of N = 4096",
    ),
    ([*RUN, "--schedule", "geometric", "--growth", "0"], "growth: the growth factor η must be positive"),
    ([*RUN, "--schedule", "geometric", "--first", "-2"], "first: the first batch must hold a positive number"),
    ([*RUN, "--schedule", "on-misfit", "--factor", "0"], "factor: the misfit test needs a positive factor"),
    ([*RUN, "--horizon", "0"], "horizon: the episode length T must be positive, not 0.0"),
    ([*RUN, "--horizon", "inf"], "horizon: must be a finite number, not inf"),
    ([*RUN, "--delta-t", "0"], "delta_t: the measurement step Δ must be positive, not 0.0"),
    ([*RUN, "--delta-t", "-0.1"], "delta_t: the measurement step Δ must be positive, not -0.1"),
    ([*RUN, "--delta", "1"], "delta: the failure probability δ must lie between 0 and 1, not 1.0"),
    ([*RUN, "--diffusion", "-1"], "diffusion: g* cannot be negative, got -1.0"),
    ([*RUN, "--reward-std", "-1"], "reward_std: a standard deviation cannot be negative"),
    ([*RUN, "--radius-scale", "0"], "radius_scale: must be positive, not 0.0"),
    ([*RUN, "--steps", "0"], "steps: the simulation needs at least one step, not 0"),
    ([*RUN, "--paths", "1"], "paths: at least 2 are needed"),
    (["run", "lqr", *RUN[2:], "--classes", "quadratic"], "invalid choice 'quadratic'"),
    (["run", "lqr", *RUN[2:], "--starts", "0"], "starts: must lie between 1 and 1,000, not 0"),
    (["run", "lqr", *RUN[2:], "--iterations", "0"], "iterations: must lie between 1 and 1,000,000, not 0"),
    (["run", "lqr", *RUN[2:], "--dimension", "5"], "dimension: must be 1, 2, 3 or 4, not 5"),
    # values beyond all reason
    ([*RUN, "--diffusion", "1e200"], "diffusion: 1e+200 is beyond all reason"),
    ([*RUN, "--radius-scale", "5e-324"], "radius_scale: 5e-324 is beyond all reason"),
    ([*RUN, "--measurements", "1" + "0" * 400], "measurements: 1000"),
    ([*RUN, "--m", "1000000000"], "m: at most 1,000,000 measurements an episode"),
    ([*RUN, "--sampler", "windows", "--window-length", "1e9", "--window-step", "1e-9"], "m: at most 1,000,000"),
    ([*RUN, "--paths", "1000000000"], "paths: steps · paths must not exceed"),
    ([*RUN, "--drift", "quotient", "--delta-t", "1e-9"], "delta_t: a quotient over Δ = 1e-09 is lost in rounding"),
    # directories
    ([*RUN[:-1], ""], "an argument is empty"),
    ([*RUN[:-1], "LINK"], "is a link that leads nowhere"),
    ([*RUN[:-1], "X" * 300], "File name too long"),
    (["resume", "NULL"], "experiment and algorithm should be names"),
    (["resume", "SEED"], "seed should be an integer, it is '0'"),
    (["resume", "SPOILT"], "is not the summary of a run"),
    (["evaluate", "SPOILT"], "is not the summary of a run"),
    (["sweep", "finite", "--algorithms", "pure-base", "--out", "FILE"], "is a file; --out takes a directory"),
    ([*RUN[:-1], "FILE"], "is a file; --out takes a directory"),
    ([*RUN[:-1], "FOREIGN"], "is not empty and holds no run"),
    ([*RUN[:-1], "HELD"], "already holds a run: `purectrl resume"),
    (["resume"], "Missing from purectrl resume: PATH Directory of the run"),
    (["resume", "OUT"], "does not exist"),
    (["resume", "FILE"], "is not a directory"),
    (["resume", "FOREIGN"], "holds no run: it has no config.json"),
    (["resume", "BROKEN"], "config.json is not JSON: Expecting"),
    (["resume", "ALIEN"], "is not the configuration of a purectrl run"),
    (["resume", "FUTURE"], "has format 999, this version reads format 1"),
    (["resume", "CHANGED"], "--m"),
    (["resume", "MISNAMED"], "unknown setting 'mm'"),
    (["evaluate", "OUT"], "does not exist"),
    (["evaluate", "HELD"], "has not finished: `purectrl resume"),
    (["evaluate", "HELD", "--episodes", "0"], "episodes: must lie between 1 and 1,000,000, not 0"),
    # config files
    ([*RUN, "--config", "OUT"], "does not exist"),
    ([*RUN, "--config", "BROKEN/config.json"], "is not JSON"),
    ([*RUN, "--config", "LIST"], "the settings should be an object of names and values"),
    ([*RUN, "--config", "UNKNOWN"], "unknown setting 'measurments': did you mean 'measurements'?"),
    (
        [*RUN, "--config", "OTHER/config.json"],
        "is of a run with 'pure-low-switch', whose settings are not those of",
    ),
    ([*RUN[:-1], "FILE/inside"], "cannot be written"),
    ([*RUN, "--config", "DEEP"], "is no JSON that can be read"),
    ([*RUN, "--config", "SNEAKY"], "batches should not be [1, '--measurements', '200']"),
    (["run", "lqr", *RUN[2:], "--config", "HELD/config.json"], "is of the experiment 'finite', not 'lqr'"),
    ([*SWEEP, "--config", "OTHER/config.json"], "is of a run with 'pure-low-switch'"),
    ([*RUN, "--config", "NESTED"], "m should not be {'a': 1}"),
    # sweeps
    (["sweep"], "sweep needs an experiment first"),
    (["sweep", "finite", "--out", "OUT"], "--algorithms"),
    ([*SWEEP, "--seeds", "5:0"], "seeds: the range 5:0 is empty"),
    ([*SWEEP, "--seeds", "some"], "seeds: 'some' is neither a range such as 0:5"),
    ([*SWEEP, "--engine", "slurm"], "invalid choice 'slurm'"),
    ([*SWEEP, "--workers", "0"], "workers: at least one is needed, not 0"),
    ([*SWEEP, "--m", "0"], "m: an episode needs at least one measurement, not 0"),
    (["sweep", "finite", "--algorithms", "pure-base", "pure-bass", "--out", "OUT"], "did you mean 'pure-base'?"),
    (["sweep", "finite", "--algorithms", "pure-base", "pure-base", "--out", "OUT"], "one of them is named twice"),
    # the paper's items
    (["paper", "thm1-rat", "--out", "OUT"], "unknown item 'thm1-rat': did you mean 'thm1-rate'?"),
    (["paper", "--out", "OUT"], "paper needs an item first, one of: thm1-coverage"),
    (["paper", "thm1-rate"], "--out"),
    (["paper", "thm1-rate", "--out", "OUT", "--engine", "slurm"], "invalid choice 'slurm'"),
    (["paper", "thm1-rate", "--out", "OUT", "--workers", "0"], "workers: at least one is needed, not 0"),
    (["paper", "thm1-rate", "--out", "OUT", "--seeds", "3"], "Unrecognized options: --seeds"),
    (["paper", "thm1-rate", "--out", "FILE"], "is a file; --out takes a directory"),
    (["paper", "prop2-independency", "--out", "FILE"], "is a file; --out takes a directory"),
]


@pytest.fixture
def places(tmp_path):
    """Directories and files of every kind of wrong."""
    settings = {
        "format": 1,
        "experiment": "finite",
        "algorithm": "pure-base",
        "seed": 0,
        "settings": {},
        "versions": {},
    }
    content = {
        "FOREIGN/thesis.tex": "do not touch",
        "HELD/config.json": json.dumps(settings),
        "BROKEN/config.json": '{"format": 1, ',
        "ALIEN/config.json": '{"learning_rate": 1}',
        "FUTURE/config.json": json.dumps({**settings, "format": 999}),
        "CHANGED/config.json": json.dumps({**settings, "settings": {"m": "four"}}),
        "MISNAMED/config.json": json.dumps({**settings, "settings": {"mm": 4}}),
        "OTHER/config.json": json.dumps({**settings, "algorithm": "pure-low-switch"}),
        "NULL/config.json": json.dumps({**settings, "experiment": None}),
        "SEED/config.json": json.dumps({**settings, "seed": "0"}),
        "SPOILT/config.json": json.dumps(settings),
        "SPOILT/summary.json": "{}",
        "DEEP": "[" * 100_000,
        "SNEAKY": '{"batches": [1, "--measurements", "200"]}',
        "FILE": "a file",
        "LIST": "[1, 2]",
        "UNKNOWN": '{"measurments": 5}',
        "NESTED": '{"m": {"a": 1}}',
    }
    for name, text in content.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "LINK").symlink_to(tmp_path / "nowhere")
    return tmp_path


def everything(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*") if path.name != ".lock"}


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[" ".join(arguments) for arguments, _ in WRONG])
def test_a_wrong_call(places, capsys, arguments, message):
    before = everything(places)
    status = main([str(places / word) if word.isupper() or "/" in word else word for word in arguments])
    captured = capsys.readouterr()
    assert status == 2
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert captured.err.count("\n") <= 2
    assert captured.out == ""
    assert everything(places) == before


def test_there_are_enough_wrong_calls():
    assert len(WRONG) >= 40


def test_a_wrong_call_of_the_real_program(tmp_path):
    command = [sys.executable, "-m", "purectrl", "run", "finite", "--algorithm", "pure-base", "--m", "0"]
    done = subprocess.run([*command, "--out", str(tmp_path / "out")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr == "error: m: an episode needs at least one measurement, not 0\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [[], ["--help"], ["run", "--help"], ["sweep", "--help"], ["paper", "--help"]])
def test_help_helps(capsys, arguments):
    try:
        status = main(arguments)
    except SystemExit as stop:
        status = stop.code
    assert status == 0
    assert "usage: purectrl" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_every_setting_is_in_the_help(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([command, "lqr", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for flag in ("--measurements", "--m ", "--sampler", "--lam", "--schedule", "--delta-t", "--dimension", "--out"):
        assert flag in text
    assert "N, the measurement budget" in text


def test_the_algorithm_decides_the_defaults_in_the_help(capsys):
    with pytest.raises(SystemExit):
        main(["run", "finite", "--algorithm", "pure-low-rollout", "--help"])
    text = capsys.readouterr().out
    assert "(default: 4)" in text[text.index("--m INT") : text.index("--sampler")]


def test_list_names_everything(capsys):
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    for name in ("finite", "lqr", "ou", "neural", "pure-base", "pure-low-switch", "pure-low-rollout", "pure-low-both"):
        assert name in text


def test_a_flag_given_twice_counts_once(tmp_path):
    """The preset must be that of the algorithm that is run."""
    arguments = ["--algorithm", "pure-low-rollout", "--measurements", "8", "--paths", "4", "--steps", "4", "--quiet"]
    assert main(["run", "finite", "--algorithm", "pure-base", "--out", str(tmp_path / "run"), *arguments]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["algorithm"], config["settings"]["m"]) == ("pure-low-rollout", 4)


def test_letters_that_the_terminal_does_not_have():
    command = [sys.executable, "-m", "purectrl", "run", "finite", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "\\u03bb of the geometric sampler" in done.stdout


def test_a_reader_that_goes_away_is_no_reason_to_stop(tmp_path):
    """Standard error closed, and standard output closed early: the run is finished all the same."""
    run = f"'{sys.executable}' -m purectrl run finite --algorithm pure-base --measurements 40 --paths 4 --steps 4 --out"
    for number, ending in enumerate(["2>&-", "2>&1 | head -1", ">&-", "2>/dev/full"]):
        subprocess.run(f"{run} '{tmp_path / str(number)}' {ending}", shell=True, timeout=120, capture_output=True)
        assert (tmp_path / str(number) / "summary.json").exists(), ending


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("purectrl 0.")


def test_a_run_says_what_it_did_and_where(tmp_path, capsys):
    out = tmp_path / "run"
    assert (
        main(
            ["run", "lqr", "--algorithm", "pure-low-switch", "--out", str(out), "--measurements", "40", "--paths", "8"]
        )
        == 0
    )
    captured = capsys.readouterr()
    assert "finished: lqr, pure-low-switch, seed 0" in captured.out
    assert "40 measurements, 40 rollouts, " in captured.out
    assert f"wrote {out}: checkpoint/, config.json, policy/, records.jsonl, summary.json" in captured.out
    assert "lqr pure-low-switch seed 0: 100%  40 measurements" in captured.err  # a pipe: plain lines
    assert main(["evaluate", str(out), "--episodes", "20"]) == 0
    assert "20 fresh episodes (seed 0): reward " in capsys.readouterr().out
    assert json.loads((out / "evaluation.json").read_text())["episodes"] == 20
    ledger = json.loads((out / "summary.json").read_text())["ledger"]
    assert ledger["evaluation_rollouts"] == 0


def test_settings_come_from_preset_then_file_then_flags(tmp_path, capsys):
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"m": 2, "paths": 8, "steps": 8, "measurements": 30}))
    out = tmp_path / "run"
    base = ["run", "finite", "--algorithm", "pure-low-rollout", "--config", str(file), "--quiet"]
    assert main([*base, "--measurements", "20", "--out", str(out)]) == 0
    settings = json.loads((out / "config.json").read_text())["settings"]
    assert (settings["m"], settings["measurements"], settings["schedule"]) == (2, 20, "every")
    again = tmp_path / "again"
    run_file = ["run", "finite", "--algorithm", "pure-low-rollout", "--config", str(out / "config.json"), "--quiet"]
    assert main([*run_file, "--out", str(again)]) == 0
    assert (again / "config.json").read_text() == (out / "config.json").read_text()
    assert capsys.readouterr().err == ""


def test_the_same_seed_twice_gives_identical_records_and_another_seed_others(tmp_path):
    lines = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        out = tmp_path / name
        arguments = ["--measurements", "60", "--paths", "8", "--steps", "8", "--quiet", "--out", str(out)]
        assert main(["run", "finite", "--algorithm", "pure-base", "--seed", str(seed), *arguments]) == 0
        records = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
        lines.append([{key: value for key, value in record.items() if key != "seconds"} for record in records])
    assert lines[0] == lines[1]
    assert lines[0] != lines[2]


def test_every_sampler_and_schedule_runs_from_the_command_line(tmp_path):
    samplers = [["uniform"], ["equidistant"], ["geometric"], ["windows"], ["final"], ["exponential-gaps"]]
    schedules = [["every", "--every", "3"], ["batches", "--batches", "10", "20"], ["geometric"], ["on-misfit"]]
    combinations = [(sampler, ["every", "--every", "7"]) for sampler in samplers] + [
        (["uniform"], s) for s in schedules
    ]
    for number, (sampler, schedule) in enumerate(combinations):
        out = Path(tmp_path / str(number))
        arguments = ["--sampler", *sampler, "--schedule", *schedule, "--m", "2", "--measurements", "60", "--quiet"]
        common = ["run", "finite", "--algorithm", "pure-base", "--paths", "4", "--steps", "4", "--out", str(out)]
        assert main([*common, *arguments]) == 0
        ledger = json.loads((out / "summary.json").read_text())["ledger"]
        m = {"windows": 20, "final": 1}.get(sampler[0], 2)
        assert ledger["rollouts"] == 60 // m

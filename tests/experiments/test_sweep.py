"""Sweeps: both engines, stopped and started again."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from helpers import left_by, purectrl, start

from purectrl.core import InputError
from purectrl.experiments import Spec
from purectrl.experiments.sweep import Job, difference, on_ray, parse_seeds

SWEEP = ("finite", "--algorithms", "pure-base", "pure-low-rollout", "--seeds", "0:2", "--measurements", 200)
SMALL = ("--paths", 8, "--steps", 8)
NAMES = ["pure-base-seed0", "pure-base-seed1", "pure-low-rollout-seed0", "pure-low-rollout-seed1"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What the sweep's runs give one by one."""
    out = tmp_path_factory.mktemp("single")
    for name in NAMES:
        algorithm, seed = name.split("-seed")
        arguments = ("--measurements", 200, *SMALL, "--quiet")
        done = purectrl("run", "finite", "--algorithm", algorithm, "--seed", seed, "--out", out / name, *arguments)
        assert done.returncode == 0, done.stderr
    return {name: left_by(out / name) for name in NAMES}


def all_left_by(out):
    return {path.name: left_by(path) for path in sorted(out.iterdir())}


def need(engine):
    if engine == "ray":
        pytest.importorskip("ray", reason="the extra `ray` is not installed")


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_sweep_gives_what_single_runs_give(tmp_path, whole, engine):
    need(engine)
    out = tmp_path / "sweep"
    done = purectrl("sweep", *SWEEP, *SMALL, "--out", out, "--engine", engine, "--workers", 2)
    assert done.returncode == 0, done.stderr
    assert "4 of 4 runs finished" in done.stdout
    assert all_left_by(out) == whole
    again = purectrl("sweep", *SWEEP, *SMALL, "--out", out, "--engine", engine)
    assert again.returncode == 0
    assert all_left_by(out) == whole


@pytest.mark.parametrize(
    ("engine", "end"),
    [("local", signal.SIGKILL), ("local", signal.SIGINT), pytest.param("ray", signal.SIGKILL, marks=pytest.mark.slow)],
)
def test_a_sweep_that_was_stopped_goes_on_with_what_is_missing(tmp_path, whole, engine, end):
    need(engine)
    out = tmp_path / "sweep"
    arguments = ("sweep", *SWEEP, *SMALL, "--out", out, "--engine", engine, "--workers", 2)
    process = start(*arguments)
    deadline = time.monotonic() + 240
    while not list(out.glob("*/records.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(end)
    process.wait(60)
    assert len(list(out.glob("*/summary.json"))) < len(NAMES)
    # workers end with the sweep: their locks must come free without anybody's help
    again = None
    while time.monotonic() < deadline and (again is None or "is being written" in again.stderr):
        again = purectrl(*arguments)
    assert again.returncode == 0, again.stderr
    assert all_left_by(out) == whole


def test_an_interrupt_starts_no_further_run(tmp_path):
    """Ctrl-C in a terminal goes to the whole group: runs under way save and stop, those that wait are not begun."""
    out = tmp_path / "sweep"
    arguments = [*SWEEP[:-1], 100_000, *SMALL, "--out", out, "--workers", 1]
    command = [sys.executable, "-m", "purectrl", "sweep", *map(str, arguments)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 120
    while not list(out.glob("*/checkpoint")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert len(list(out.iterdir())) == 1


def test_a_worker_that_is_killed_is_a_failed_run(tmp_path):
    out = tmp_path / "sweep"
    arguments = ["--algorithms", "pure-base", "--seeds", 0, "--measurements", 100_000, *SMALL, "--out", out]
    command = [sys.executable, "-m", "purectrl", "sweep", "finite", *map(str, arguments)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(out.glob("*/records.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(int(next(out.glob("*/.lock")).read_text().split()[1]), signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "its worker died" in errors
    assert "Traceback" not in errors


def test_a_run_that_fails_does_not_stop_the_others(tmp_path):
    out = tmp_path / "sweep"
    (out / "pure-base-seed0").mkdir(parents=True)
    (out / "pure-base-seed0" / "somebody's file").write_text("keep me")
    done = purectrl(
        "sweep", "finite", "--algorithms", "pure-base", "--seeds", "0:2", "--measurements", 50, *SMALL, "--out", out
    )
    assert done.returncode == 1
    assert "failed pure-base-seed0" in done.stderr
    assert "1 of 2 runs finished" in done.stdout
    assert (out / "pure-base-seed0" / "somebody's file").read_text() == "keep me"


def test_a_directory_with_other_settings_is_refused_before_anything_runs(tmp_path):
    out = tmp_path / "sweep"
    arguments = ("sweep", "finite", "--algorithms", "pure-base", "--out", out, *SMALL)
    assert purectrl(*arguments, "--measurements", 50, "--seeds", "1").returncode == 0
    refused = purectrl(*arguments, "--measurements", 60, "--seeds", "0:2")
    assert refused.returncode == 2
    assert "was run with other settings: measurements = 50 there, 60 here" in refused.stderr
    assert [path.name for path in out.iterdir()] == ["pure-base-seed1"]


def test_workers_end_with_a_killed_parent(tmp_path):
    process = start("sweep", *SWEEP[:-1], 100_000, *SMALL, "--out", tmp_path / "sweep", "--workers", 1)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "sweep").glob("*/records.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    lock = next((tmp_path / "sweep").glob("*/.lock"))
    worker = int(lock.read_text().split()[1])
    assert worker != process.pid
    process.kill()
    process.wait()
    while _alive(worker):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return not state.startswith("Z")


@pytest.mark.parametrize("text", ["5:0", "3:3", "a", "1:2:3", "", "-1", "-3:2", "1,1", "0:1,2"])
def test_wrong_seeds_are_named(text):
    with pytest.raises(InputError, match="seeds: "):
        parse_seeds(text)


def test_differences_are_named():
    one = Spec.of("finite", "pure-base", 0)
    assert difference(one, Spec.of("finite", "pure-base", 1)) == "seed 0 there, 1 here"
    assert difference(one, Spec.of("finite", "pure-base", 0, paths=9)) == "paths = 256 there, 9 here"


def test_a_job_is_finished_only_with_a_summary(tmp_path):
    spec = Spec.of("finite", "pure-base", 0)
    job = Job(spec, tmp_path / "run")
    assert not job.finished()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps({"format": 1, **spec.as_dict()}))
    assert not job.finished()


def test_ray_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install -c constraints.txt '\.\[ray\]'"):
        on_ray()


def test_ray_reports_nothing_unless_told_otherwise(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    with pytest.raises(InputError):
        on_ray()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "1"
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED")
    with pytest.raises(InputError):
        on_ray()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"

"""Sweeps: both engines, several problems, stopped and resumed."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import SHORT, left_by, purectrl, start

from purectrl.core import InputError
from purectrl.core.algorithm import Algorithm
from purectrl.core.ledger import Budget
from purectrl.core.output_rules import LastPolicy
from purectrl.core.problem import Source
from purectrl.core.references import load_reference
from purectrl.core.samplers import Uniform
from purectrl.core.schedules import Every
from purectrl.runs.spec import RunSpec
from purectrl.runs.submitted import RunGroup, on_submitit
from purectrl.runs.sweep import Job, difference, local, on_ray, parse_seeds, run_job, run_missing, sweep

# Ray leaves sockets to the garbage collector, whose warnings reach whichever test runs then
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SWEEP = ("finite", "--algorithms", "pure-base", "pure-low-rollout", "--seeds", "0:2", *SHORT, "--measurements")
NAMES = ["pure-base-seed0", "pure-base-seed1", "pure-low-rollout-seed0", "pure-low-rollout-seed1"]
OWN = Path(__file__).with_name("at_rest.py")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What the runs of the sweep give one by one."""
    out = tmp_path_factory.mktemp("single")
    for name in NAMES:
        algorithm, seed = name.split("-seed")
        arguments = ("--measurements", 200, *SHORT, "--quiet")
        done = purectrl("run", "finite", "--algorithm", algorithm, "--seed", seed, "--out", out / name, *arguments)
        assert done.returncode == 0, done.stderr
    return {name: left_by(out / name) for name in NAMES}


def all_left_by(out):
    return {path.name: left_by(path) for path in sorted((out / "finite").iterdir())}


def need(engine):
    if engine in ("ray", "submitit"):
        pytest.importorskip(engine, reason=f"the extra `{engine}` is not installed")


@pytest.mark.parametrize(
    "engine", ["local", pytest.param("ray", marks=pytest.mark.slow), pytest.param("submitit", marks=pytest.mark.slow)]
)
def test_a_sweep_gives_what_single_runs_give(tmp_path, whole, engine):
    need(engine)
    out = tmp_path / "sweep"
    done = purectrl("sweep", *SWEEP, 200, "--out", out, "--engine", engine, "--workers", 2)
    assert done.returncode == 0, done.stderr
    assert "4 of 4 runs finished" in done.stdout
    assert all_left_by(out) == whole  # which has no other directories
    again = purectrl("sweep", *SWEEP, 200, "--out", out, "--engine", engine)
    assert again.returncode == 0
    assert all_left_by(out) == whole


@pytest.mark.parametrize(
    ("engine", "end"),
    [
        ("local", signal.SIGKILL),
        ("local", signal.SIGINT),
        pytest.param("local", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("ray", signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param("submitit", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_stopped_sweep_resumes_what_is_missing(tmp_path, whole, engine, end):
    need(engine)
    out = tmp_path / "sweep"
    arguments = ("sweep", *SWEEP, 200, "--out", out, "--engine", engine, "--workers", 2)
    process = start(*arguments)
    deadline = time.monotonic() + 240
    while not list(out.glob("*/*/records.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(end)
    process.wait(60)
    assert len(list(out.glob("*/*/summary.json"))) < len(NAMES)
    # workers end with the sweep, which releases their locks
    again = None
    while time.monotonic() < deadline and (again is None or "is being written" in again.stderr):
        again = purectrl(*arguments)
    assert again.returncode == 0, again.stderr
    assert all_left_by(out) == whole


def test_an_interrupt_starts_no_further_run(tmp_path):
    """Ctrl-C in a terminal goes to the whole process group: running jobs save and stop, waiting ones are not started."""
    out = tmp_path / "sweep"
    arguments = [*SWEEP, 100_000, "--out", out, "--workers", 1]
    command = [sys.executable, "-m", "purectrl", "sweep", *map(str, arguments)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 120
    while not list(out.glob("*/*/checkpoint")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert len(list(out.glob("*/*"))) == 1


def test_a_worker_that_is_killed_is_a_failed_run(tmp_path):
    out = tmp_path / "sweep"
    arguments = ["--algorithms", "pure-base", "--seeds", 0, "--measurements", 100_000, *SHORT, "--out", out]
    command = [sys.executable, "-m", "purectrl", "sweep", "finite", *map(str, arguments)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(out.glob("*/*/records.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(int(next(out.glob("*/*/.lock")).read_text().split()[1]), signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "its worker failed" in errors
    assert "Traceback" not in errors


def test_a_run_that_fails_does_not_stop_the_others(tmp_path):
    out = tmp_path / "sweep"
    other = out / "finite" / "pure-base-seed0" / "somebody's file"
    other.parent.mkdir(parents=True)
    other.write_text("keep me")
    done = purectrl(
        "sweep", "finite", "--algorithms", "pure-base", "--seeds", "0:2", "--measurements", 50, *SHORT, "--out", out
    )
    assert done.returncode == 1
    assert "pure-base-seed0" in done.stderr
    assert "is not empty and holds no run" in done.stderr
    assert "1 of 2 runs finished" in done.stdout
    assert other.read_text() == "keep me"


def test_a_directory_with_other_settings_is_refused_before_anything_runs(tmp_path):
    out = tmp_path / "sweep"
    arguments = ("sweep", "finite", "--algorithms", "pure-base", "--out", out, *SHORT)
    assert purectrl(*arguments, "--measurements", 50, "--seeds", "1").returncode == 0
    refused = purectrl(*arguments, "--measurements", 60, "--seeds", "0:2")
    assert refused.returncode == 2
    assert "holds a run with other settings: budget.measurements is 50 there and 60 here" in refused.stderr
    assert [path.name for path in out.glob("*/*")] == ["pure-base-seed1"]


def test_workers_end_with_a_killed_parent(tmp_path):
    process = start("sweep", *SWEEP, 100_000, "--out", tmp_path / "sweep", "--workers", 1)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "sweep").glob("*/*/records.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    lock = next((tmp_path / "sweep").glob("*/*/.lock"))
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


def own(seed=0, measurements=20, name="at rest", algorithm="sum"):
    """A run of a user's own problem and learner."""
    learner = load_reference(f"{OWN}:Sum")()
    source = Source(f"{OWN}:problem", {"name": name})
    return RunSpec(source, Algorithm(Uniform(), Every(), learner, LastPolicy(), algorithm), Budget(measurements), seed)


def one_by_one(jobs):
    """An engine in this process."""
    return map(run_job, jobs)


@pytest.mark.parametrize("engine", ["local", "ray", "submitit"])
def test_workers_import_users_own_code(tmp_path, engine):
    need(engine)
    specs = [own(seed, name=name) for name in ("at rest", "ALE/Rest-v5") for seed in (0, 1)]
    outcomes = list(
        sweep(specs, tmp_path / engine, {"local": local, "ray": on_ray, "submitit": on_submitit}[engine](2))
    )
    assert [outcome.error for outcome in outcomes] == 4 * [None]
    expected = list(sweep(specs, tmp_path / "here", one_by_one))
    for outcome in expected:
        path = outcome.job.out.relative_to(tmp_path / "here")
        assert left_by(tmp_path / engine / path) == left_by(outcome.job.out)
    found = sorted(str(outcome.job.out.relative_to(tmp_path / "here")) for outcome in expected)
    assert found == [f"{name}/sum-seed{seed}" for name in ("ALE-Rest-v5", "at-rest") for seed in (0, 1)]


def test_a_job_survives_pickling():
    job = Job(own(3), Path("out"))
    again = pickle.loads(pickle.dumps(job))
    assert again.spec.as_dict() == job.spec.as_dict()
    assert (again.out, again.track) == (job.out, job.track)


def test_changed_code_of_a_finished_run_is_reported(tmp_path, capsys):
    file = shutil.copy(OWN, tmp_path / "copy.py")
    spec = RunSpec(Source(f"{file}:problem", {}), own().algorithm, Budget(5), 0)
    jobs = [Job(spec, tmp_path / "run")]
    for _ in range(2):
        (outcome,) = run_missing(jobs, one_by_one)
        assert outcome.error is None
        assert capsys.readouterr().err == ""
    Path(file).write_text(Path(file).read_text() + "# changed\n")
    assert [outcome.error for outcome in run_missing(jobs, one_by_one)] == [None]
    assert "has changed" in capsys.readouterr().err


def test_a_sweep_that_cannot_work_is_refused_at_the_call(tmp_path):
    with pytest.raises(InputError, match="specs: a sweep needs at least one run"):
        sweep([], tmp_path / "out", one_by_one)
    with pytest.raises(InputError, match="specs: 2 runs of the sweep would be written to at-rest/sum-seed0"):
        sweep([own(), own(measurements=30)], tmp_path / "out", one_by_one)
    unnamed = RunSpec(load_reference(f"{OWN}:problem")(), own().algorithm, Budget(5))
    with pytest.raises(InputError, match=r"problem: the workers cannot import at rest; refer to it as .*\.py:function"):
        sweep([unnamed], tmp_path / "out", one_by_one)
    assert not (tmp_path / "out").exists()


def test_names_cannot_leave_the_directory_of_the_sweep(tmp_path):
    (outcome,) = sweep([own(name="../../x", algorithm="..")], tmp_path / "out", one_by_one)
    assert outcome.job.out == tmp_path / "out" / "x" / "unnamed-seed0"


@pytest.mark.parametrize(
    "text",
    ["5:0", "3:3", "a", "1:2:3", "", "-1", "-3:2", "1,1", "0:1,2", " 1", "+1", "1_0", "٣", "1,", ":", "0:999999"],
)
def test_wrong_seeds_are_named(text):
    with pytest.raises(InputError, match=r"^seeds: "):
        parse_seeds(text)


def test_differences_are_named():
    one = own().as_dict()
    assert difference(one, own().as_dict()) is None
    assert difference(one, own(1).as_dict()) == "seed is 0 there and 1 here"
    assert difference(one, own(name="other").as_dict()) == "problem.name is 'at rest' there and 'other' here"
    assert difference(one | {"versions": {}, "code": {}}, one) is None
    less = one | {"algorithm": {"name": "sum"}}
    assert difference(less, one) == "algorithm.sampler.name is missing there and 'uniform' here"


def test_a_job_is_finished_only_with_a_summary(tmp_path):
    job = Job(own(), tmp_path / "run")
    assert not job.finished()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps(job.spec.as_dict()))
    assert not job.finished()


def test_missing_ray_is_named(monkeypatch):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'purectrl\[ray\]'"):
        on_ray()


def test_missing_submitit_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(InputError, match=r"pip install 'purectrl\[submitit\]'"):
        on_submitit()


def test_a_preempted_job_of_submitit_resumes_its_runs(tmp_path):
    """The hook returns the same runs, and the run that they continue is the one that was stopped."""
    need("submitit")
    job = Job(own(measurements=20), tmp_path / "run")
    queued = RunGroup(batch=False).checkpoint([job])
    ((outcome,), again) = queued.function(*queued.args), queued.function(*queued.args)
    assert outcome.error is None
    assert outcome.summary == again[0].summary  # the run had finished: nothing is repeated


def test_a_failure_keeps_what_submitit_wrote(tmp_path):
    need("submitit")
    good, bad = Job(own(0), tmp_path / "good"), Job(own(1), tmp_path / "bad")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.json").write_text("{}")  # a directory that holds no run
    outcomes = {outcome.job.out.name: outcome for outcome in on_submitit(2)([good, bad])}
    assert outcomes["good"].error is None
    assert outcomes["bad"].error
    (folder,) = tmp_path.glob(".submitit-*")
    assert folder.stat().st_mode & 0o077 == 0
    assert list(folder.glob("*.out"))


def test_ray_reports_no_usage_by_default(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    with pytest.raises(InputError):
        on_ray()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "1"
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED")
    with pytest.raises(InputError):
        on_ray()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"

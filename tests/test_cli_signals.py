"""SIGINT and SIGTERM at every moment: exit status 130, one line, no traceback, and nothing half-made is left.

A child process sends the signal to itself at a chosen moment, so that the moment does not depend on the machine.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from purectrl.cli import main

SHORT = ["--learner.paths", "8", "--problem.steps", "8", "--measurements", "40", "--quiet"]
RUN = ["run", "finite", "--algorithm", "pure-base", *SHORT, "--out"]

ON_IMPORT = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Finder())
"""
ON_CALL = """
import {module} as module
owner, name = module, {name!r}
while "." in name:
    first, name = name.split(".", 1)
    owner = getattr(owner, first)
original, calls = owner.__dict__[name], []
inner = original.__func__ if isinstance(original, classmethod) else original
def patched(*arguments, **keywords):
    calls.append(1)
    if len(calls) == {nth}:
        os.kill(os.getpid(), {number})
    return inner(*arguments, **keywords)
setattr(owner, name, classmethod(patched) if isinstance(original, classmethod) else patched)
"""
PROGRAM = "import os, sys\n{moment}\nfrom purectrl.__main__ import main\nsys.exit(main())"


def on_import(name, number):
    """Code that sends the signal when the module `name` is imported."""
    return ON_IMPORT.format(name=name, number=int(number))


def on_call(place, number, nth=1):
    """Code that sends the signal at the n-th call of `module:function`."""
    module, name = place.split(":")
    return ON_CALL.format(module=module, name=name, number=int(number), nth=nth)


def stopped(moment, *arguments):
    """Runs the program and checks that the signal ended it as documented; returns the one line that it printed."""
    code = PROGRAM.format(moment=moment)
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 130, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("stopped; ")
    return done.stderr


def left_in(folder):
    return sorted(path.name for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("module", "number"),
    [
        ("purectrl.cli", signal.SIGINT),
        ("purectrl.cli", signal.SIGTERM),
        ("numpy", signal.SIGINT),
        ("purectrl.runs.flags", signal.SIGTERM),
        ("jax", signal.SIGTERM),
        ("purectrl.runs.runner", signal.SIGINT),
    ],
)
def test_during_the_imports(tmp_path, module, number):
    line = stopped(on_import(module, number), *RUN, tmp_path / "run")
    assert line == "stopped; nothing was written\n"
    assert left_in(tmp_path) == []


@pytest.mark.parametrize(
    ("place", "number"),
    [
        ("purectrl.problems:build", signal.SIGTERM),
        ("purectrl.theory.planning:OptimisticPlanner.of", signal.SIGINT),
        ("purectrl.runs.store:lock_directory", signal.SIGTERM),
        ("purectrl.runs.store:write_json", signal.SIGINT),
        ("purectrl.core.io:sync_directory", signal.SIGTERM),
    ],
)
def test_while_a_run_is_built_and_its_directory_made(tmp_path, place, number):
    """Up to the moment at which config.json is complete, nothing may be left; parents that were made are removed, too."""
    stopped(on_call(place, number), *RUN, tmp_path / "new" / "run")
    left = left_in(tmp_path)
    assert left == [] or "config.json" in left
    assert ".part" not in " ".join(left)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert main([*RUN, str(out)]) == 0
    return out


def records(out):
    lines = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


@pytest.mark.parametrize(
    ("place", "nth", "steps", "number"),
    [
        ("purectrl.runs.store:Store.restore", 1, 0, signal.SIGTERM),
        ("purectrl.core.loop:Loop.step", 1, 1, signal.SIGTERM),
        ("purectrl.core.loop:Loop.step", 17, 17, signal.SIGINT),
        ("purectrl.runs.store:Store.save_plan", 1, 40, signal.SIGTERM),
        ("purectrl.core.problem:Problem.artifacts", 1, 40, signal.SIGINT),
        ("purectrl.runs.runner:final_metrics", 1, 40, signal.SIGTERM),
    ],
)
def test_a_run_that_has_begun_is_saved_and_continues(tmp_path, whole, place, nth, steps, number):
    out = tmp_path / "run"
    line = stopped(on_call(place, number, nth), *RUN, out)
    assert line == f"stopped; progress is saved: continue with `purectrl resume {out}`\n"
    assert not (out / "summary.json").exists()
    assert ".part" not in " ".join(left_in(out))
    assert len(records(out) if (out / "records.jsonl").exists() else []) == steps
    assert main(["resume", str(out), "--quiet"]) == 0
    assert records(out) == records(whole)


HELD = [
    *("run", "coupled-tanks", "--measurements", "60", "--sampler.step", "10", "--quiet"),
    *("--learner.fit.steps", "400", "--learner.fit.finetune-steps", "200", "--learner.plan.horizon", "4"),
    *("--learner.model.width", "8", "--learner.model.ensemble-size", "2", "--algorithm"),
]
SEARCH = ["pets", "--learner.plan.population", "8", "--learner.plan.elites", "2", "--learner.plan.iterations", "2"]
PARTICLES = ["deep-pilco", "--learner.plan.steps", "20", "--learner.plan.batch-size", "4", "--learner.plan.width", "8"]


@pytest.mark.slow  # compiles planners in two processes
@pytest.mark.parametrize("algorithm", [SEARCH, PARTICLES], ids=["pets", "deep-pilco"])
def test_a_run_with_held_controls_continues_bit_for_bit(tmp_path, algorithm):
    whole, out = tmp_path / "whole", tmp_path / "run"
    assert main([*HELD, *algorithm, "--out", str(whole)]) == 0
    stopped(on_call("purectrl.core.loop:Loop.step", signal.SIGINT, 2), *HELD, *algorithm, "--out", out)
    assert len(records(out)) == 2
    assert main(["resume", str(out), "--quiet"]) == 0
    assert len(records(whole)) == 3
    assert records(out) == records(whole)
    found, expected = (load_file(place / "policy" / "plan.safetensors") for place in (out, whole))
    assert {name: array.tobytes() for name, array in found.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }


def test_a_second_signal_does_not_wait(tmp_path):
    """It ends the program inside of the step, with the same status."""
    twice = f"os.kill(os.getpid(), {int(signal.SIGTERM)})"
    moment = on_call("purectrl.core.loop:Loop.step", signal.SIGINT, 5).replace(
        "return inner", f"\n    if len(calls) == 5: {twice}\n    return inner"
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(moment=moment), *RUN, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert main(["resume", str(tmp_path / "run"), "--quiet"]) == 0


def test_a_signal_that_a_library_turns_into_another_error(tmp_path):
    """Some extension modules report an ImportError when Python code inside of them is interrupted."""
    moment = f"""
import purectrl.runs.store as store
def create(path, config):
    try:
        os.kill(os.getpid(), {int(signal.SIGTERM)})
        sum(range(1000))
    except KeyboardInterrupt:
        raise ImportError("multiarray failed to import")
store.Store.create = create
"""
    assert stopped(moment, *RUN, tmp_path / "run") == "stopped; nothing was written\n"


@pytest.mark.parametrize(
    ("command", "place"),
    [
        (["evaluate", "WHOLE", "--episodes", "5"], "purectrl.runs.runner:write_json"),
        (["report", "WHOLE", "--out", "NEW/report.html"], "purectrl.report.page:write_atomically"),
        (["report", "WHOLE", "--out", "NEW/report.html"], "purectrl.core.io:sync_directory"),
        (["paper", "thm1-quotient", "--out", "NEW"], "purectrl.paper:compute_missing"),
    ],
)
def test_what_is_being_written_is_removed(tmp_path, whole, command, place):
    places = {
        "WHOLE": str(whole),
        "NEW": str(tmp_path / "new"),
        "NEW/report.html": str(tmp_path / "new" / "report.html"),
    }
    before = left_in(whole)
    stopped(on_call(place, signal.SIGTERM), *[places.get(word, word) for word in command])
    assert ".part" not in " ".join(left_in(tmp_path))
    assert set(left_in(tmp_path)) <= {"new", "report.html", "thm1-quotient"}
    assert left_in(whole) in (before, sorted([*before, "evaluation.json"]))


def test_after_the_result_the_status_is_that_of_the_result(tmp_path):
    moment = f"""
import atexit
atexit.register(lambda: (os.kill(os.getpid(), {int(signal.SIGTERM)}), sum(range(1000))))
"""
    code = PROGRAM.format(moment=moment)
    done = subprocess.run([sys.executable, "-c", code, "list"], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "algorithms" in done.stdout


@pytest.mark.parametrize(
    ("moment", "number"),
    [("workers start", signal.SIGTERM), ("workers start", signal.SIGINT), ("runs are under way", signal.SIGINT)],
)
def test_a_sweep_is_stopped_and_continues(tmp_path, number, moment):
    """To the whole process group, as a terminal does: running runs are saved, no process is left, no warning is shown."""
    out = tmp_path / "sweep"
    command = [
        "sweep",
        "finite",
        "--algorithms",
        "pure-low-switch",
        "--seeds",
        "0:3",
        "--workers",
        "2",
        "--out",
        str(out),
    ]
    arguments = ["--learner.paths", "8", "--problem.steps", "8", "--measurements", "3000", "--quiet"]
    process = subprocess.Popen(
        [sys.executable, "-m", "purectrl", *command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while moment == "workers start" and len(group(process.pid)) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    while moment == "runs are under way" and not list(out.rglob("*.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, number)
    printed, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert errors == "stopped; finished runs are kept, the others are saved: the same command continues\n"
    assert printed == ""
    while (
        group(process.pid) and time.monotonic() < deadline
    ):  # multiprocessing's resource tracker ends after its parent
        time.sleep(0.01)
    assert group(process.pid) == []
    assert not list(out.rglob("*.part"))
    if moment == "runs are under way":
        assert main(["resume", str(next(out.rglob("config.json")).parent), "--quiet"]) == 0


def group(leader):
    """The processes of a session that are alive."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = re.sub(r".*\) ", "", entry.read_text()).split()[:4]
        except OSError:  # it has ended in the meantime
            continue
        if int(session) == leader and state != "Z":
            found.append(int(entry.parent.name))
    return found

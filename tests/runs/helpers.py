"""Small real runs, and how to compare what they leave."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from purectrl.core import Key
from purectrl.runs.runner import record_line, resume
from purectrl.runs.spec import RunSpec
from purectrl.runs.store import Store

SHORT = ("--learner.paths", "8", "--problem.steps", "8")
"""Flags that make a run of the theory's problems cheap."""
SMALL = ("--measurements", "400", *SHORT)


def small(problem="finite", algorithm="pure-base", seed=3, measurements=400, arguments=None, **overrides):
    """A short run of a theory problem."""
    settings = {"learner.paths": 8, **{name.replace("__", "."): value for name, value in overrides.items()}}
    return RunSpec.of(
        problem,
        algorithm,
        seed,
        measurements=measurements,
        arguments={"steps": 8, **(arguments or {})},
        overrides=settings,
    )


def purectrl(*arguments, **keywords):
    """Runs the program as a user would and returns the finished process."""
    command = [sys.executable, "-m", "purectrl", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **keywords)


def start(*arguments, env=None):
    """Starts the program and does not wait; its environment is this one, or `env`."""
    command = [sys.executable, "-m", "purectrl", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)


def without_seconds(value):
    """The same JSON value without timings."""
    if isinstance(value, dict):
        return {key: without_seconds(item) for key, item in value.items() if not key.endswith("seconds")}
    return value


def left_by(directory: Path):
    """What a run left: its summary and its records, without timings and the checksums of files with timings."""
    summary = json.loads((directory / "summary.json").read_text())
    for name in ("checksum", "checksums"):
        del summary[name]
    records = [json.loads(line) for line in (directory / "records.jsonl").read_text().splitlines()]
    return without_seconds(summary), [without_seconds(record) for record in records]


def stopped_run(spec, out: Path, until, at=()):
    """A run as a kill would leave it: stopped after `until` steps, with checkpoints after the steps `at`."""
    with Store.create(out, spec.as_dict()) as store:
        problem, loop = spec.compose(out)
        state = store.restore(loop.init(Key.from_seed(spec.seed)), pytest.fail)
        while state.steps < until and not loop.finished(state):
            previous = state.output.plan
            state, record = loop.step(state)
            store.append(record_line(problem, loop.learner, state, record, previous)[0])
            if state.steps in at:
                store.checkpoint(state)
    return out


def stop_and_resume(spec, out: Path, steps):
    """Runs `spec` for a number of steps, leaves it as a stopped run would be left, and resumes it."""
    stopped_run(spec, out, until=steps, at=(steps,))
    assert not (out / "summary.json").exists()
    return resume(out, quiet=True)

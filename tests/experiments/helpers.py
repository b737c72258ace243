"""Small real runs, and how to compare what they leave."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from purectrl.core import Key
from purectrl.experiments import resume
from purectrl.experiments.runner import _line
from purectrl.experiments.store import Store

SMALL = ("--measurements", "400", "--paths", "8", "--steps", "8")
"""Settings that make a run of the theory's experiments short."""


def purectrl(*arguments, **keywords):
    """Runs the program as a user would and returns the finished process."""
    command = [sys.executable, "-m", "purectrl", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **keywords)


def start(*arguments, env=None):
    """Starts the program and does not wait; its environment is this one, or `env`."""
    command = [sys.executable, "-m", "purectrl", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)


def without_seconds(value):
    """The same JSON value with every timing taken out."""
    if isinstance(value, dict):
        return {key: without_seconds(item) for key, item in value.items() if not key.endswith("seconds")}
    return value


def left_by(directory: Path):
    """What a run left: its summary and its records, timings aside."""
    summary = json.loads((directory / "summary.json").read_text())
    records = [json.loads(line) for line in (directory / "records.jsonl").read_text().splitlines()]
    return without_seconds(summary), [without_seconds(record) for record in records]


def stop_and_resume(spec, out: Path, share=0.4):
    """Runs `spec` until that share of its budget is spent, leaves it as a stopped run would be left, and resumes it."""
    task = spec.build()
    with Store.create(out, spec.as_dict()) as store:
        state = store.restore(task.loop.init(Key.from_seed(spec.seed)), pytest.fail)
        while state.ledger.measurements < share * spec.settings.measurements:
            state, record = task.loop.step(state)
            store.append(_line(state, record, task))
        store.checkpoint(state)
    assert not task.loop.finished(state)
    resume(out, quiet=True)

"""Small real runs, and how to compare what they leave."""

import json
import os
import subprocess
import sys
from pathlib import Path

SMALL = ("--measurements", "400", "--paths", "8", "--steps", "8")
"""Settings that make a run of the theory's experiments short."""


def purectrl(*arguments, **keywords):
    """Runs the program as a user would and returns the finished process."""
    command = [sys.executable, "-m", "purectrl", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **keywords)


def start(*arguments):
    """Starts the program and does not wait."""
    command = [sys.executable, "-m", "purectrl", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)


def without_seconds(value):
    """The same JSON value with every timing taken out."""
    if isinstance(value, dict):
        return {key: without_seconds(item) for key, item in value.items() if key != "seconds"}
    return value


def left_by(directory: Path):
    """What a run left: its summary and its records, timings aside."""
    summary = json.loads((directory / "summary.json").read_text())
    records = [json.loads(line) for line in (directory / "records.jsonl").read_text().splitlines()]
    return without_seconds(summary), [without_seconds(record) for record in records]

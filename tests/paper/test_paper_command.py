"""`purectrl paper` as a user types it, and an item that is killed and restarted."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import small
from helpers import purectrl, without_seconds

from purectrl.paper import ITEMS, load_item

NAME = "thm2-switches"


def start_small(out):
    """Starts a small item in a process of its own, as the program would."""
    command = [sys.executable, small.__file__, NAME, str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def numbers(out):
    return without_seconds(json.loads((out / NAME / "numbers.json").read_text()))


def test_the_list_says_what_each_item_shows_and_costs():
    done = purectrl("paper")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(ITEMS)
    for line, item in zip(lines, map(load_item, ITEMS), strict=True):
        assert item.shows in line
        assert (f"{item.count(item.chosen_seeds(quick=False))} runs" if item.groups else "no runs") in line
        assert line.endswith(item.cost)


def test_a_wrong_item_leaves_nothing(tmp_path):
    done = purectrl("paper", "thm4", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown item 'thm4'")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_item_without_runs(tmp_path):
    done = purectrl("paper", "prop2-independency", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "passed: C at most" in done.stdout
    names = {path.name for path in (tmp_path / "prop2-independency").iterdir()}
    assert {"figure.png", "figure.pdf", "table.csv", "table.md", "numbers.json"} <= names


def test_an_item_that_was_killed_continues_with_the_same_result(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = start_small(whole)
    out, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert "[33/33]" in out

    process = start_small(killed)
    deadline = time.monotonic() + 600
    while len(list(killed.glob("*/runs/*/*/summary.json"))) < 3:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (killed / NAME / "numbers.json").exists()
    before = {path: path.stat().st_mtime_ns for path in killed.glob("*/runs/*/*/summary.json")}
    assert 3 <= len(before) < 33
    # the worker of the killed process ends by itself, but perhaps later
    while time.monotonic() < deadline:
        process = start_small(killed)
        _, errors = process.communicate(timeout=600)
        if "is being written" not in errors:
            break
    assert process.returncode == 0, errors
    assert numbers(killed) == numbers(whole)
    assert (killed / NAME / "figure.png").read_bytes() == (whole / NAME / "figure.png").read_bytes()
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_run_that_fails_is_named_and_nothing_is_drawn(tmp_path):
    place = tmp_path / NAME / "runs" / "base-N8" / "seed0"
    item = small.SMALL[NAME]
    small.pretend(item, tmp_path / NAME, lambda group, seed: {"gap": 1.0})
    for path in place.iterdir():
        path.unlink()
    Path(place / "thesis.tex").write_text("do not touch")
    process = start_small(tmp_path)
    out, errors = process.communicate(timeout=600)
    assert process.returncode == 1
    assert "failed thm2-switches/runs/base-N8/seed0: " in errors
    assert "is not empty and holds no run" in errors
    assert "32 of 33 runs finished" in out
    assert "nothing is drawn" in out
    assert not (tmp_path / NAME / "figure.png").exists()

"""Live view: what is drawn is what was recorded, no step twice, and the run does not notice."""

import json
import os
import sys
import time

import numpy as np
import pytest
from event_files import tensorboard_curves, wandb_rows
from helpers import left_by, purectrl, start

from purectrl.cli import main
from purectrl.core import InputError, StoreError
from purectrl.experiments import Spec, resume, run
from purectrl.experiments.files import read_sealed
from purectrl.experiments.store import read_records
from purectrl.experiments.tracking import Live, Told, Tracking, curves, to_tensorboard, to_wandb, tracking

SMALL = {"measurements": 60, "paths": 8, "steps": 8}
FLAGS = ("--measurements", 3000, "--paths", 8, "--steps", 8, "--quiet")


class Notes:
    """A tracker that writes everything down, and may fail at a given line."""

    def __init__(self, seen, told, fail_at=None):
        self.seen, self.told, self.fail_at, self.closed = seen, told, fail_at, False

    def record(self, line):
        if len(self.seen) == self.fail_at:
            raise KeyboardInterrupt
        self.seen.append(line)

    def summary(self, summary):
        self.seen.append(summary)

    def close(self):
        self.closed = True


def noting(seen, **keywords):
    return Tracking("notes", "*.txt", lambda directory, config, told: Notes(seen, told, **keywords))


def drawn(records, x="measurements"):
    """The curves that the lines of `records` should give."""
    found = {}
    for line in records:
        for name, value in curves(line).items():
            found.setdefault(name, []).append((line[x], np.float32(value)))
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The same run that nobody watches."""
    out = tmp_path_factory.mktemp("plain") / "run"
    run(Spec.of("finite", "pure-base", 3, **SMALL), out, quiet=True)
    return out


def test_a_run_is_the_same_bit_for_bit_with_and_without_tracking(tmp_path, plain):
    run(Spec.of("finite", "pure-base", 3, **SMALL), tmp_path / "run", quiet=True, track=[to_tensorboard()])
    assert left_by(tmp_path / "run") == left_by(plain)
    plans = [read_sealed(out / "policy" / "plan.safetensors") for out in (tmp_path / "run", plain)]
    assert plans[0] == plans[1]  # of numbers alone, without arrays
    assert plans[0][0] == {}


def test_tensorboard_draws_the_records_over_measurements(tmp_path):
    out = tmp_path / "run"
    summary = run(Spec.of("finite", "pure-low-rollout", 0, **SMALL), out, quiet=True, track=[to_tensorboard()])
    found = tensorboard_curves(out)
    assert found.pop("summary/gap") == [(60, np.float32(summary["metrics"]["gap"]))]
    assert {name: points for name, points in found.items() if "/" not in name} == drawn(read_records(out))
    assert [step for step, _ in found["rollouts"]] == list(range(4, 61, 4))


def test_a_finished_run_can_be_drawn_afterwards_and_only_once(tmp_path):
    out, seen = tmp_path / "run", []
    run(Spec.of("finite", "pure-base", 3, **SMALL), out, quiet=True)
    for _ in range(2):
        summary = resume(out, track=[noting(seen)])
    assert seen == [*read_records(out), summary]


def test_lines_wait_for_a_checkpoint_and_are_told_once(tmp_path):
    seen = []
    lines = [{"step": n, "measurements": 2 * n} for n in (1, 2, 3)]
    with tracking([noting(seen)], tmp_path, {}) as live:
        live.record(lines[0])
        live.record(lines[1])
        assert seen == []
        live.saved()
        live.record(lines[2])  # no checkpoint holds it: the run will take this step again
    with tracking([noting(seen)], tmp_path, {}) as live:
        live.catch_up(lines[:2])
        live.record(lines[2])
        live.saved()
    assert seen == lines


def test_what_a_killed_process_left_is_removed_and_told_again(tmp_path):
    seen = []
    lines = [{"step": n, "measurements": 2 * n} for n in (1, 2, 3)]
    folder = tmp_path / "notes"
    with tracking([noting(seen)], tmp_path, {}) as live:
        live.catch_up(lines[:1])
        (folder / "first.txt").touch()
    assert json.loads((folder / "told.json").read_text())["parts"] == ["first.txt"]
    before = (folder / "told.json").read_text()
    with tracking([noting([])], tmp_path, {}) as live:
        live.catch_up(lines)
        (folder / "killed.txt").touch()
    (folder / "told.json").write_text(before)  # as if nobody had closed it
    with tracking([noting(seen)], tmp_path, {}) as live:
        live.catch_up(lines)
    assert seen == lines
    assert sorted(path.name for path in folder.iterdir()) == ["first.txt", "told.json"]


def test_a_tracker_that_fails_stops_the_run_which_goes_on_without_it(tmp_path, plain):
    seen, opened = [], []

    def failing(directory, config, told):
        opened.append(Notes(seen, told, fail_at=5))
        return opened[-1]

    spec = Spec.of("finite", "pure-base", 3, **SMALL)
    with pytest.raises(KeyboardInterrupt):
        run(spec, tmp_path / "run", quiet=True, track=[Tracking("notes", "*.txt", failing)])
    assert opened[0].closed
    resume(tmp_path / "run", quiet=True, track=[noting(seen)])
    assert left_by(tmp_path / "run") == left_by(plain)
    assert seen[:-1] == read_records(tmp_path / "run")


def test_tensorboard_forgets_what_is_told_again(tmp_path):
    lines = [{"measurements": n, "gap": 1.0 / n} for n in range(1, 9)]
    kind = to_tensorboard()
    for told, part in ((0, lines[:6]), (3, lines[3:])):  # killed after six events, of which three were noted
        tracker = kind.open(tmp_path, {}, Told("id", measurements=told))
        for line in part:
            tracker.record(line)
        tracker.close()
    assert tensorboard_curves(tmp_path)["gap"] == drawn(lines)["gap"]


def test_a_killed_run_goes_on_with_the_same_curves(tmp_path):
    """kill -9, then resume, both trackers at once and wandb with no settings of its own: offline, whatever it does."""
    out = tmp_path / "run"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    track = ("--track", "tensorboard", "--track", "wandb")
    process = start("run", "finite", "--algorithm", "pure-base", "--out", out, *FLAGS, *track, env=environment)
    deadline = time.monotonic() + 120
    while len(list((out / "checkpoint").glob("*.safetensors"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not (out / "summary.json").exists()
    assert list((out / "wandb").glob("offline-run-*"))
    done = purectrl("resume", out, "--quiet", *track, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    records = read_records(out)
    assert {name: points for name, points in tensorboard_curves(out).items() if "/" not in name} == drawn(records)
    names = {path.name.rsplit("-", 1)[1] for path in (out / "wandb").glob("offline-run-*")}
    assert names == {json.loads((out / "wandb" / "told.json").read_text())["id"]}
    rows = [{name: value for name, value in row.items() if not name.startswith("_")} for row in wandb_rows(out)]
    assert rows == [curves(line) for line in records]


def test_every_run_of_a_sweep_is_drawn(tmp_path):
    flags = ("--algorithms", "pure-base", "--seeds", "0:2", "--measurements", 40, "--paths", 8, "--steps", 8)
    done = purectrl("sweep", "finite", *flags, "--out", tmp_path / "sweep", "--workers", 1, "--track", "tensorboard")
    assert done.returncode == 0, done.stderr
    for seed in (0, 1):
        out = tmp_path / "sweep" / f"pure-base-seed{seed}"
        assert tensorboard_curves(out)["reward"] == drawn(read_records(out))["reward"]


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
@pytest.mark.parametrize(
    "command", [["run", "finite", "--algorithm", "pure-base"], ["sweep", "finite", "--algorithms", "pure-base"]]
)
def test_what_is_not_installed_is_named_and_leaves_nothing(tmp_path, monkeypatch, capsys, name, command):
    monkeypatch.setenv("WANDB_MODE", "offline")
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    assert main([*command, "--out", str(tmp_path / "out"), "--track", name]) == 2
    error = f"error: track: {name} is not installed; `pip install -c constraints.txt '.[{name}]'` installs it\n"
    assert capsys.readouterr().err == error
    assert not (tmp_path / "out").exists()


def test_wandb_is_offline_unless_told_otherwise(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setenv("WANDB_MODE", "")  # so that what was there comes back afterwards
    monkeypatch.delenv("WANDB_MODE")
    with pytest.raises(InputError):
        to_wandb()
    assert os.environ["WANDB_MODE"] == "offline"
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(InputError):
        to_wandb()
    assert os.environ["WANDB_MODE"] == "online"


NOTE = {"id": "a1", "measurements": 4, "finished": False, "parts": ["first.txt"]}


@pytest.mark.parametrize(
    "note",
    [
        {"who": 1},
        [NOTE],
        NOTE | {"id": 1},
        NOTE | {"measurements": "4"},
        NOTE | {"finished": 0},
        NOTE | {"parts": "first.txt"},
        NOTE | {"parts": [1]},
        NOTE | {"more": 1},
    ],
    ids=str,
)
def test_a_spoilt_note_is_named(tmp_path, note):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "told.json").write_text(json.dumps(note))
    with pytest.raises(StoreError, match="is not what a tracker left; remove"), tracking([noting([])], tmp_path, {}):
        pass


def test_nobody_watches_nothing_waits():
    live = Live([])
    live.record({"measurements": 1})
    assert live._waiting == []

"""Tracking: what is shown is what was recorded, no step twice, and the run does not depend on it."""

import json
import os
import pickle
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from event_files import tensorboard_curves, tensorboard_view, wandb_rows
from helpers import SHORT, left_by, purectrl, small, start

from purectrl.cli import main
from purectrl.core import InputError, StoreError
from purectrl.core.io import read_checksummed
from purectrl.runs.directory import read_records
from purectrl.runs.runner import resume, run
from purectrl.runs.tracking import TRACKERS, LiveLogger, Tracker, curves, to_tensorboard, to_wandb, tracking

LINES = [{"step": n, "measurements": 2 * n, "gap": 1.0 / n} for n in range(1, 9)]
SUMMARY = {"metrics": {"gap": 0.125}, "ledger": {"measurements": 16}}


def noting(seen, closed=None, fail_at=None):
    """A kind of tracker that keeps everything in a list, and may fail at a given line."""

    @contextmanager
    def kind(directory, config):
        def record(line):
            if len(seen) == fail_at:
                raise KeyboardInterrupt
            seen.append(line)

        try:
            yield Tracker(record, seen.append)
        finally:
            if closed is not None:
                closed.append(directory)

    return kind


def plotted(records, x="measurements"):
    """The curves that the lines of `records` should give."""
    found = {}
    for line in records:
        for name, value in curves(line).items():
            found.setdefault(name, []).append((line[x], np.float32(value)))
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The same run without trackers."""
    out = tmp_path_factory.mktemp("plain") / "run"
    run(small(measurements=60), out, quiet=True)
    return out


def test_a_run_is_equal_to_the_last_bit_with_and_without_tracking(tmp_path, plain):
    run(small(measurements=60), tmp_path / "run", quiet=True, track=[to_tensorboard()])
    assert left_by(tmp_path / "run") == left_by(plain)
    plans = [read_checksummed(out / "policy" / "plan.safetensors") for out in (tmp_path / "run", plain)]
    assert plans[0] == plans[1]  # of numbers alone, without arrays
    assert plans[0][0] == {}


def test_tensorboard_plots_the_records_over_measurements(tmp_path):
    out = tmp_path / "run"
    summary = run(small("finite", "pure-low-rollout", 0, 60), out, quiet=True, track=[to_tensorboard()]).summary
    found = tensorboard_curves(out)
    assert found.pop("summary/gap") == [(60, np.float32(summary["metrics"]["gap"]))]
    assert {name: points for name, points in found.items() if "/" not in name} == plotted(read_records(out))
    assert [step for step, _ in found["rollouts"]] == list(range(4, 61, 4))


def test_a_finished_run_can_be_logged_later_and_is_shown_once(tmp_path):
    out, seen = tmp_path / "run", []
    run(small(measurements=60), out, quiet=True)
    for _ in range(2):
        summary = resume(out, track=[to_tensorboard(), noting(seen)])
    assert seen == 2 * [*read_records(out), summary]
    assert tensorboard_curves(out)["reward"] == plotted(read_records(out))["reward"]


def test_lines_wait_for_a_checkpoint(tmp_path):
    seen, again = [], []
    with tracking([noting(seen)], tmp_path, {}) as live:
        live.record(LINES[0])
        live.record(LINES[1])
        assert seen == []
        live.saved()
        live.record(LINES[2])  # no checkpoint holds it: the resumed run takes this step again
    assert seen == LINES[:2]
    with tracking([noting(again)], tmp_path, {}) as live:
        live.catch_up(LINES[:2])
        live.record(LINES[2])
        live.saved()
        live.saved()
        live.summary(SUMMARY)
    assert again == [*LINES[:3], SUMMARY]


def test_several_trackers_receive_the_same_and_all_are_closed(tmp_path):
    seen, closed = ([], []), []
    with tracking([noting(seen[0], closed), noting(seen[1], closed)], tmp_path, {}) as live:
        live.catch_up(LINES)
    assert seen == (LINES, LINES)
    assert closed == [tmp_path, tmp_path]

    def broken(directory, config):
        raise InputError("track: it did not start")

    with pytest.raises(InputError), tracking([noting([], closed), broken], tmp_path, {}):
        pass
    assert len(closed) == 3


def test_a_tracker_that_fails_stops_the_run_which_can_be_resumed_without_it(tmp_path, plain):
    seen, closed = [], []
    with pytest.raises(KeyboardInterrupt):
        run(small(measurements=60), tmp_path / "run", quiet=True, track=[noting(seen, closed, fail_at=5)])
    assert closed == [tmp_path / "run"]
    seen.clear()
    resume(tmp_path / "run", quiet=True, track=[noting(seen)])
    assert left_by(tmp_path / "run") == left_by(plain)
    assert seen[:-1] == read_records(tmp_path / "run")


def test_tensorboard_shows_every_step_once_after_a_restart(tmp_path):
    """Also in a TensorBoard that was open during the restart."""
    with tracking([to_tensorboard()], tmp_path, {}) as live:
        live.catch_up(LINES[:6])
    with tensorboard_view(tmp_path) as view:
        assert view()["gap"] == plotted(LINES[:6])["gap"]
        time.sleep(1.1)  # event files are ordered by the second in their names
        with tracking([to_tensorboard()], tmp_path, {}) as live:
            live.catch_up(LINES[:3])
            for line in LINES[3:]:
                live.record(line)
            live.saved()
            live.summary(SUMMARY)
        assert view()["gap"] == plotted(LINES)["gap"]
        assert view()["summary/gap"] == [(16, 0.125)]
    assert tensorboard_curves(tmp_path)["gap"] == plotted(LINES)["gap"]


@pytest.mark.slow  # W&B writes its file from a process of its own: what is read back depends on when that process has ended
def test_an_offline_wandb_run_keeps_its_id_and_is_complete_after_a_restart(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    names = []
    for known, new in ((0, LINES[:6]), (3, LINES[3:])):
        with tracking([to_wandb()], tmp_path, {"seed": 0}) as live:
            live.catch_up(LINES[:known])
            for line in new:
                live.record(line)
            live.saved()
        names += [path.name for path in (tmp_path / "wandb").glob("offline-run-*")]
        assert shown_by_wandb(tmp_path) == [curves(line) for line in LINES[: known + len(new)]]
        time.sleep(1.1)  # W&B names its directories by the second
    assert len(names) == len(set(names)) == 2
    assert len({name.rsplit("-", 1)[1] for name in names}) == 1
    assert list((tmp_path / "wandb").glob(".*.part")) == []
    other = tmp_path / "other"
    other.mkdir()
    with tracking([to_wandb()], other, {"seed": 0}):  # of the same configuration, but another run
        pass
    assert next((other / "wandb").glob("offline-run-*")).name.rsplit("-", 1)[1] != names[0].rsplit("-", 1)[1]


def shown_by_wandb(out):
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in wandb_rows(out)]


@pytest.fixture
def fake_wandb(monkeypatch, tmp_path):
    """A W&B whose server holds the first three steps of the run."""
    fake = SimpleNamespace(rows=[], arguments={}, exit_codes=[], summary={}, error=None)

    class Error(Exception):
        pass

    def init(**arguments):
        if fake.error:
            raise Error(fake.error)
        fake.arguments = arguments | {"mode": os.environ["WANDB_MODE"]}
        return SimpleNamespace(
            starting_step=4,
            dir=str(Path(arguments["dir"], "wandb", "run-1-id", "files")),
            summary=fake.summary,
            define_metric=lambda *_, **__: None,
            log=lambda row, step, commit: fake.rows.append((step, row)),
            finish=fake.exit_codes.append,
        )

    module, errors = ModuleType("wandb"), ModuleType("wandb.errors")
    module.init, module.Settings, errors.Error = init, SimpleNamespace, Error
    module.__spec__ = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setitem(sys.modules, "wandb.errors", errors)
    monkeypatch.setenv("WANDB_MODE", "")  # so that its value is restored after the test
    monkeypatch.delenv("WANDB_MODE")
    return fake


def test_an_online_wandb_run_skips_the_steps_that_the_server_holds(tmp_path, monkeypatch, fake_wandb):
    monkeypatch.setenv("WANDB_MODE", "online")
    held = tmp_path / "wandb" / "run-0-abc" / "run-abc.wandb"
    held.parent.mkdir(parents=True)
    held.touch()
    with tracking([to_wandb()], tmp_path, {}) as live:
        live.catch_up(LINES)
        live.summary(SUMMARY)
    assert fake_wandb.rows == [(line["step"], curves(line)) for line in LINES[3:]]
    assert fake_wandb.arguments["mode"] == "online"
    assert fake_wandb.arguments["id"] == "abc"
    assert fake_wandb.arguments["resume"] == "allow"
    assert fake_wandb.summary == SUMMARY
    assert fake_wandb.exit_codes == [0]
    assert held.exists()  # only offline runs, which are logged again as a whole, are removed


def test_wandb_is_offline_by_default_and_marks_a_stopped_run(tmp_path, fake_wandb):
    with pytest.raises(KeyboardInterrupt), tracking([to_wandb()], tmp_path, {}):
        raise KeyboardInterrupt
    assert fake_wandb.arguments["mode"] == "offline"
    assert fake_wandb.exit_codes == [1]


def test_wandb_that_does_not_start_is_reported(tmp_path, fake_wandb):
    fake_wandb.error = "no network"
    with (
        pytest.raises(InputError, match=r"^track: wandb did not start: no network; the run in .* can be resumed"),
        tracking([to_wandb()], tmp_path, {}),
    ):
        pass


def test_a_killed_run_is_resumed_with_the_same_curves(tmp_path):
    """kill -9, then resume, with both trackers and no settings of W&B: it is offline."""
    out = tmp_path / "run"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    track = ("--track", "tensorboard", "--track", "wandb", "--quiet")
    arguments = ("--algorithm", "pure-base", "--out", out, "--measurements", 3000, *SHORT)
    process = start("run", "finite", *arguments, *track, env=environment)
    deadline = time.monotonic() + 120
    while len(list((out / "checkpoint").glob("*.safetensors"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not (out / "summary.json").exists()
    (first,) = (out / "wandb").glob("offline-run-*")
    done = purectrl("resume", out, *track, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    records = read_records(out)
    found = tensorboard_curves(out)
    assert {name: points for name, points in found.items() if "/" not in name} == plotted(records)
    assert found["summary/gap"] == [
        (3000, np.float32(json.loads((out / "summary.json").read_text())["metrics"]["gap"]))
    ]
    (second,) = (out / "wandb").glob("offline-run-*")
    assert second.name.rsplit("-", 1)[1] == first.name.rsplit("-", 1)[1]
    assert shown_by_wandb(out) == [curves(line) for line in records]


def test_every_run_of_a_sweep_is_logged(tmp_path):
    flags = ("--algorithms", "pure-base", "--seeds", "0:2", "--measurements", 40, *SHORT)
    done = purectrl("sweep", "finite", *flags, "--out", tmp_path / "sweep", "--workers", 1, "--track", "tensorboard")
    assert done.returncode == 0, done.stderr
    for seed in (0, 1):
        out = tmp_path / "sweep" / "finite" / f"pure-base-seed{seed}"
        assert tensorboard_curves(out)["reward"] == plotted(read_records(out))["reward"]


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
@pytest.mark.parametrize(
    "command", [["run", "finite", "--algorithm", "pure-base"], ["sweep", "finite", "--algorithms", "pure-base"]]
)
def test_a_missing_package_is_named_with_its_extra_and_leaves_nothing(tmp_path, monkeypatch, capsys, name, command):
    monkeypatch.setitem(sys.modules, name, None)
    assert main([*command, "--out", str(tmp_path / "out"), "--track", name]) == 2
    error = f"error: track: {name} is not installed; `pip install 'purectrl[{name}]'` installs it\n"
    assert capsys.readouterr().err == error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", TRACKERS)
def test_trackers_can_be_sent_to_workers(name):
    kind = TRACKERS[name]()
    assert pickle.loads(pickle.dumps(kind)) is kind


def test_nothing_is_kept_without_trackers():
    live = LiveLogger([])
    live.record({"measurements": 1})
    assert live._pending == []


def test_wandb_removes_nothing_behind_a_link(tmp_path, fake_wandb):
    mine = tmp_path / "mine" / "run-abc.wandb"
    mine.parent.mkdir()
    mine.touch()
    run = tmp_path / "run"
    (run / "wandb").mkdir(parents=True)
    (run / "inside").mkdir()
    (run / "inside" / "run-abc.wandb").touch()
    (run / "wandb" / "offline-run-1-abc").symlink_to("../inside")
    with tracking([to_wandb()], run, {}):
        pass
    assert (run / "inside" / "run-abc.wandb").exists()
    (run / "wandb" / "offline-run-2-abc").symlink_to("../../mine")
    with pytest.raises(StoreError, match="leads out of"), tracking([to_wandb()], run, {}):
        pass
    (run / "wandb" / "offline-run-2-abc").unlink()
    (run / "wandb" / "offline-run-3-x").mkdir()
    (run / "wandb" / "offline-run-3-x" / "run-a b.wandb").touch()
    with pytest.raises(StoreError, match="was not written by W&B"), tracking([to_wandb()], run, {}):
        pass
    assert mine.exists()

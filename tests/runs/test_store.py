"""A run directory survives what happens to directories."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from helpers import SHORT, left_by, purectrl, small, start, stopped_run

from purectrl.cli import main
from purectrl.core import InputError, Key, StoreError
from purectrl.core.errors import TimeLimit
from purectrl.runs.directory import read_config, read_records
from purectrl.runs.runner import CHECKPOINT_SHARE, evaluate, resume, run
from purectrl.runs.spec import RunSpec
from purectrl.runs.store import Store

SPEC = small()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that was never interrupted, with every step's checkpoint timing left to chance."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    run(SPEC, out, quiet=True)
    return out


@pytest.fixture
def stopped(finished, tmp_path):
    """The same run as a kill would leave it after two checkpoints, with records beyond the last one."""
    out = stopped_run(SPEC, tmp_path / "stopped", until=230, at=(100, 200))
    with open(out / "records.jsonl", "ab") as file:
        file.write(b'{"step": 231, "episo')  # a line cut short
    return out


def checkpoints(out):
    return sorted((out / "checkpoint").iterdir())


def test_resume_equals_uninterrupted(stopped, finished):
    resume(stopped, quiet=True)
    assert left_by(stopped) == left_by(finished)


def test_a_run_killed_before_its_first_checkpoint_starts_over(finished, tmp_path):
    out = tmp_path / "young"
    with Store.create(out, SPEC.as_dict()):
        (out / "records.jsonl").write_bytes(b'{"step": 1')
    resume(out, quiet=True)
    assert left_by(out) == left_by(finished)


def test_resuming_a_finished_run_returns_its_summary_and_touches_nothing(finished):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.name != ".lock"}
    summary = json.loads((finished / "summary.json").read_text())
    assert summary.keys() - resume(finished, quiet=True).keys() == {"checksum", "checksums"}
    assert resume(finished, quiet=True).items() <= summary.items()
    assert before == {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.name != ".lock"}


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(stopped, finished, capsys, damage):
    newest = checkpoints(stopped)[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes({"cut": content[: len(content) // 2], "flipped": content, "empty": b""}[damage])
    resume(stopped, quiet=True)
    warning = capsys.readouterr().err
    assert str(newest) in warning
    assert "damaged" in warning
    assert left_by(stopped) == left_by(finished)


def test_with_every_checkpoint_damaged_the_run_refuses(stopped):
    for path in checkpoints(stopped):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreError, match=r"no checkpoint of .* can be used: .*damaged.*; .*damaged"):
        resume(stopped, quiet=True)


def flip(path, line):
    """Changes one bit in the given line of a text file."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = bytes([lines[line][0], lines[line][1] ^ 1]) + lines[line][2:]
    path.write_bytes(b"".join(lines))


def test_records_damaged_after_the_first_checkpoint_spoil_only_the_second(stopped, capsys, finished):
    flip(stopped / "records.jsonl", line=150)
    resume(stopped, quiet=True)
    assert "records.jsonl is damaged: it is not what 000000000200.safetensors was saved with" in capsys.readouterr().err
    assert left_by(stopped) == left_by(finished)


def test_records_damaged_before_the_first_checkpoint_stop_the_run(stopped):
    flip(stopped / "records.jsonl", line=50)
    with pytest.raises(StoreError, match=r"records\.jsonl is damaged"):
        resume(stopped, quiet=True)


def test_a_checkpoint_of_another_run_is_refused(stopped):
    other = json.loads((stopped / "config.json").read_text())
    other["seed"] = 4
    (stopped / "config.json").write_text(json.dumps(other))
    with pytest.raises(StoreError, match=r"was saved with another config\.json"):
        resume(stopped, quiet=True)


def test_other_versions_are_named(stopped, finished, capsys):
    config = json.loads((stopped / "config.json").read_text())
    config["versions"]["jax"] = "0.0.1"
    (stopped / "config.json").write_text(json.dumps(config))
    for path in checkpoints(stopped):
        path.unlink()
    resume(stopped, quiet=True)
    assert "was started with jax 0.0.1: results may differ" in capsys.readouterr().err
    assert left_by(stopped) == left_by(finished)


def test_unfinished_files_of_a_kill_are_cleaned_up(stopped):
    stray = stopped / "checkpoint" / ".000000000300.safetensors.part"
    stray.write_bytes(b"half")
    resume(stopped, quiet=True)
    assert not stray.exists()


def test_two_processes_cannot_write_one_directory(stopped):
    with Store.open(stopped):
        refused = purectrl("resume", stopped)
    assert refused.returncode == 2
    assert f"is being written by process {os.getpid()}" in refused.stderr


def test_old_checkpoints_are_removed(finished):
    assert 1 <= len(checkpoints(finished)) <= 2


def test_checkpoints_take_a_small_share_of_the_time(tmp_path):
    """The cost of a checkpoint is made large; the time between two of them must grow with it."""
    spec = small(measurements=300)
    times = []
    original = Store.checkpoint

    def slow(self, state):
        begin = time.perf_counter()
        time.sleep(0.005)
        original(self, state)
        times.append((begin, time.perf_counter()))

    Store.checkpoint = slow
    try:
        run(spec, tmp_path / "run", quiet=True)
    finally:
        Store.checkpoint = original
    for (_, end), (begin, _), cost in zip(times, times[1:-1], [b - a for a, b in times], strict=False):
        assert begin - end >= 0.9 * cost / CHECKPOINT_SHARE


def test_records_and_summary_have_what_the_design_promises(finished):
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert summary["ledger"]["measurements"] == 400
    assert summary["ledger"]["seconds"].keys() == {"total", "rollout", "fit", "plan", "compile"}
    assert {"gap", "covered", "gap_curve"} <= summary["metrics"].keys()
    assert {"purectrl", "python", "jax"} <= summary["versions"].keys()
    records = read_records(finished)
    assert [record["step"] for record in records] == list(range(1, 401))
    assert read_config(finished)["algorithm"]["schedule"] == {"name": "every", "k": 1}
    assert summary["ledger"]["updates"] == sum(record["updated"] != "neither" for record in records)


def test_nothing_is_pickled():
    # weights that others publish come in torch's own format; read so, nothing in them is run
    load = r"torch\.load(?!\(.*weights_only=True)"
    forbidden = re.compile(rf"\b(pickle|cloudpickle|dill|joblib|shelve|{load}|allow_pickle=True)\b")
    for path in (Path(__file__).parents[2] / "src").rglob("*.py"):
        code = [
            line for line in path.read_text().splitlines() if not line.lstrip().startswith(("#", '"""', "No pickle"))
        ]
        assert not forbidden.search("\n".join(code)), path


def test_the_directory_left_by_a_kill_during_the_first_write_can_be_used(tmp_path, finished):
    out = tmp_path / "run"
    out.mkdir()
    (out / ".config.json.part").write_text("{")
    run(SPEC, out, quiet=True)
    assert left_by(out) == left_by(finished)


def test_seconds_add_up_to_the_clock(tmp_path):
    begin = time.perf_counter()
    seconds = run(SPEC, tmp_path / "run", quiet=True).summary["ledger"]["seconds"]
    wall = time.perf_counter() - begin
    assert 0.8 * wall < seconds["total"] <= wall
    assert seconds["rollout"] + seconds["fit"] + seconds["plan"] < seconds["total"]


def test_a_plan_of_other_settings_is_refused(finished, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    config["problem"]["arguments"]["horizon"] = 9.0
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(StoreError, match=r"plan\.safetensors was saved with another config\.json"):
        evaluate(copy)


def test_a_directory_that_cannot_be_finished_is_not_left_behind(tmp_path):
    with pytest.raises(TypeError):
        Store.create(tmp_path / "a" / "b", {"seed": object()})
    assert list(tmp_path.iterdir()) == []


def test_a_run_in_a_thread(tmp_path, finished):
    thread = threading.Thread(target=run, args=(SPEC, tmp_path / "run", True))
    thread.start()
    thread.join()
    assert left_by(tmp_path / "run") == left_by(finished)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops(tmp_path, finished, number):
    out = tmp_path / "signalled"
    longer = ("--measurements", 100_000, *SHORT)
    process = start("run", "finite", "--algorithm", "pure-base", "--seed", 3, "--out", out, *longer)
    deadline = time.monotonic() + 120
    while not (out / "checkpoint").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(number)
    assert process.wait(60) == 130
    newest = int(checkpoints(out)[-1].stem)
    assert newest == len(read_records(out))  # nothing that was measured is lost


def _tmpfs_command(folder):
    """How to run a command with a tiny file system at `folder`, or None where that is not allowed."""
    mount = f"mount -t tmpfs -o size=256k tmpfs '{folder}' && exec \"$@\""
    command = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c", mount, "sh"]
    if shutil.which("unshare") is None:
        return None
    return command if subprocess.run([*command, "true"], capture_output=True).returncode == 0 else None


def test_a_full_disk_is_named_and_earlier_files_are_intact(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    command = _tmpfs_command(folder)
    if command is None:
        pytest.skip("mounting a small file system is not permitted here")
    script = (
        f"'{sys.executable}' -m purectrl run finite --algorithm pure-low-switch --out '{folder}/run' --measurements 20000 "
        f"{' '.join(SHORT)} --quiet; echo status $?; cp -r '{folder}/run' '{tmp_path}/copy'"
    )
    done = subprocess.run([*command, "sh", "-c", script], capture_output=True, text=True, timeout=300)
    assert "status 1" in done.stdout
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads((tmp_path / "copy" / "config.json").read_text())["problem"]["reference"] == "finite"
    assert not (tmp_path / "copy" / "summary.json").exists()
    with Store.open(tmp_path / "copy") as store:  # what was saved before is still good
        fresh = RunSpec.read(tmp_path / "copy").compose()[1].init(Key.from_seed(0))
        assert store.restore(fresh, lambda _: None).steps > 0


def test_a_run_that_is_out_of_time_is_saved_and_resumed_bit_for_bit(tmp_path, capsys):
    spec = small(measurements=60)
    run(spec, tmp_path / "whole", quiet=True)
    with pytest.raises(TimeLimit, match=r"1e-09 s are over; progress is saved: continue with `purectrl resume"):
        run(spec, tmp_path / "short", quiet=True, max_seconds=1e-9)
    assert not (tmp_path / "short" / "summary.json").exists()
    assert main(["resume", str(tmp_path / "short"), "--max-seconds", "1e-9"]) == 1
    assert "stopped: 1e-09 s are over; progress is saved" in capsys.readouterr().err
    resume(tmp_path / "short", quiet=True)
    assert left_by(tmp_path / "short") == left_by(tmp_path / "whole")
    with pytest.raises(InputError, match="max_seconds: must be positive, not -1"):
        run(spec, tmp_path / "other", quiet=True, max_seconds=-1)

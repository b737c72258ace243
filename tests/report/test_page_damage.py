"""`purectrl report` on unfinished or damaged runs, or runs of another version: each is excluded or noted, never silently."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from pages import change, records, reported, stop_half_way

from purectrl.core import StoreError
from purectrl.core.io import read_checksummed, with_checksum, write_checksummed
from purectrl.report.page import media
from purectrl.report.page.records import read_measurement_times


def half_a_line(run):
    file = run / "records.jsonl"
    file.write_text(file.read_text()[:-30])


def no_line(run):
    file = run / "records.jsonl"
    file.write_text("".join(line + "\n" for line in file.read_text().splitlines()[:-1]))


def spoil_line(run, number, text):
    file = run / "records.jsonl"
    lines = file.read_text().splitlines()
    lines[number - 1] = text
    file.write_text("\n".join(lines) + "\n")


def other_record(**values):
    def spoil(run):
        spoil_line(run, 7, json.dumps(records(run)[6] | values))

    return spoil


def digits(name, before, after):
    """Changes the text of a file."""

    def spoil(run):
        text = (run / name).read_text()
        assert before in text
        (run / name).write_text(text.replace(before, after, 1))

    return spoil


def other_schedule(**values):
    def spoil(run):
        algorithm = json.loads((run / "config.json").read_text())["algorithm"]
        change(run / "config.json", algorithm=algorithm | {"schedule": algorithm["schedule"] | values})

    return spoil


def other_content(replace):
    """Replaces the JSON content of the newest checkpoint."""

    def spoil(run):
        newest = max((run / "checkpoint").glob("*.safetensors"))
        arrays, content = read_checksummed(newest)
        write_checksummed(newest, arrays, replace(content))

    return spoil


def other_m(run):
    """The first 20 episodes, in a data shard, have three measurements each, the others one."""
    (run / "data").mkdir()
    digest = write_checksummed(run / "data" / f"{0:012d}.safetensors", {"t": np.zeros((20, 3))}, {})
    other_content(lambda content: content | {"shards": [[0, 20, digest]]})(run)


def picture(make):
    def spoil(run):
        (run / "media").mkdir()
        make(run / "media" / "x.png")

    return spoil


DAMAGE = {
    "half a line": (half_a_line, "records.jsonl ends in the middle of line 60, although the run has finished"),
    "a line less": (no_line, "ends at 59 rollouts, but summary.json has 60: records are missing"),
    "no records": (lambda run: (run / "records.jsonl").unlink(), "records.jsonl does not exist, although"),
    "no JSON": (lambda run: spoil_line(run, 3, "{'a': 1}"), "records.jsonl: line 3 is not JSON"),
    "two in a line": (lambda run: spoil_line(run, 3, "{}, {}"), "records.jsonl: line 3 is not JSON"),
    "a list": (lambda run: spoil_line(run, 3, "[1]"), "line 3 is not a record: expected a JSON object"),
    "deep brackets": (lambda run: spoil_line(run, 3, "[" * 100_000), "line 3 is not JSON"),
    "bytes": (lambda run: (run / "records.jsonl").write_bytes(b"\xff\xfe\n"), "line 1 is not JSON"),
    "old columns": (lambda run: spoil_line(run, 7, '{"step": 7, "n": 7}'), "line 7 has rollouts = None"),
    "a word": (other_record(measurements="7"), "line 7 has measurements = '7', expected a number"),
    "not a number": (other_record(seconds=float("nan")), "line 7 counts fewer seconds"),
    "falling": (other_record(rollouts=3), "line 7 counts fewer rollouts than the line before"),
    "huge": (other_record(value=10**400), "records.jsonl: value exceeds the range of float64"),
    "no episode": (other_record(episodes=0), "line 7 has episodes = 0, expected at least 1"),
    "endless episodes": (other_record(episodes=float("inf")), "line 7 has episodes = inf, expected at least 1"),
    "huge setting": (other_schedule(growth=10**400), "growth exceeds the range of float64"),
    "huge in a list": (other_schedule(sizes=[1, -(10**400)]), "sizes exceeds the range of float64"),
    "huge metric": (
        lambda run: change(run / "summary.json", metrics={"gap": 10**400}),
        "gap exceeds the range of float64",
    ),
    "other updates": (other_record(updated="all"), "line 7 has updated = 'all', expected one of neither, drift"),
    "no config": (lambda run: (run / "config.json").unlink(), "holds no run: it has no config.json"),
    "newer format": (lambda run: change(run / "config.json", format=3), "has format 3, this version reads format 2"),
    "foreign config": (
        lambda run: (run / "config.json").write_text("{}"),
        "is not the configuration of a purectrl run",
    ),
    "seed": (lambda run: change(run / "config.json", seed="0"), "is not the configuration of a purectrl run"),
    "problem": (lambda run: change(run / "config.json", problem=[1]), "is not the configuration of a purectrl run"),
    "sampler": (lambda run: change(run / "config.json", algorithm={"name": "x"}), "is not that of a purectrl run"),
    "another run's summary": (lambda run: change(run / "summary.json", seed=9), "seed is 9, expected 1"),
    "half a summary": (lambda run: (run / "summary.json").write_text('{"exp'), "summary.json is not JSON"),
    "old summary": (lambda run: change(run / "summary.json", ledger={"rollouts": 1}), "is not the summary of a run"),
    "no versions": (lambda run: change(run / "summary.json", versions=None), "does not contain the package versions"),
    "a status": (
        lambda run: change(run / "summary.json", status="failed"),
        "status is 'failed', expected 'finished'",
    ),
    "a digit of a record": (other_record(value=1.5), "records.jsonl is damaged: it is not the file with which"),
    "a digit of a setting": (
        digits("config.json", '"seed": 1', '"seed": 1 '),
        "config.json is damaged: it is not the file with which the run finished",
    ),
    "a digit of the summary": (
        digits("summary.json", '"measurements": ', '"measurements": 1'),
        "its content does not match its checksum",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_run_is_excluded_with_its_reason(damage, sweep, tmp_path, capsys):
    spoil, words = DAMAGE[damage]
    spoil(sweep / "pure-base-seed1")
    status, errors, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert status == 1
    (line,) = errors.splitlines()
    assert line.startswith("left out: ")
    assert words in line
    assert "pure-base-seed1" in line
    assert [f"left out: {problem}" for problem in found["excluded"]] == [line]
    assert [(run["group"], run["seed"]) for run in found["runs"]] == [(0, 0), (1, 0), (1, 1)]


TIMES = "so their times are not shown"
NOTED = {
    "shards": (
        other_content(lambda content: content | {"shards": [[0, 20]]}),
        f"lists its data in an unknown format, {TIMES}",
    ),
    "a list of content": (
        other_content(lambda content: [content]),
        "cannot be read, so its times are not shown",
    ),
    "another m": (other_m, f"its episodes differ in their number of measurements, {TIMES}"),
    "huge evaluation": (
        lambda run: (run / "evaluation.json").write_text(json.dumps({"metrics": {"gap": 10**400}})),
        "gap exceeds the range of float64; the evaluation is not shown",
    ),
    "a digit of the evaluation": (
        lambda run: (run / "evaluation.json").write_text(
            json.dumps(with_checksum({"episodes": 2, "seed": 0, "metrics": {"gap": 0.5}})).replace("0.5", "0.4")
        ),
        "its content does not match its checksum; the evaluation is not shown",
    ),
    "a folder of pictures": (picture(Path.mkdir), "x.png is not a regular file"),
    "a picture that is gone": (picture(lambda path: path.symlink_to("nowhere")), "x.png is not a regular file"),
}


@pytest.mark.parametrize(
    "schedule",
    [
        {"name": "geometric", "growth": "2"},
        {"name": "on-excess-loss", "threshold": None},
        {"name": "batches", "sizes": 5},
        {"name": "batches", "sizes": [[5]], "update": "after", "initial": 0},
        {"name": 7},
    ],
)
def test_a_schedule_that_is_unknown_is_shown_by_its_name(schedule, sweep, tmp_path, capsys):
    change_schedule = other_schedule(k=None, **schedule)
    change_schedule(sweep / "pure-base-seed1")
    status, _, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    rules = [group["update_rule"] for group in found["groups"]]
    assert (status, len(found["runs"])) == (0, 4)
    assert f"by the schedule {schedule['name']!r}" in rules


@pytest.mark.parametrize("damage", NOTED)
def test_defects_that_leave_a_run_usable_are_noted(damage, sweep, tmp_path, capsys):
    spoil, words = NOTED[damage]
    spoil(sweep / "pure-base-seed1")
    status, errors, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert (status, found["excluded"], len(found["runs"])) == (0, [], 4)
    (note,) = found["notes"]
    assert errors == f"note: {note}\n"
    assert words in note
    assert "pure-base-seed1" in note


@pytest.mark.parametrize("refused", ["iterdir", "read_bytes"])
def test_unreadable_media_are_noted(refused, tmp_path, monkeypatch):
    (tmp_path / "media").mkdir()
    (tmp_path / "media" / "x.png").touch()

    def refuse(path, limit=None):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path if refused == "iterdir" else media, refused, refuse)
    if refused == "iterdir":
        with pytest.raises(StoreError, match="media cannot be read, so it is not shown: Permission denied"):
            media.media_files(tmp_path)
    else:
        (file,) = media.embed(media.media_files(tmp_path)).values()
        assert (file.uri, file.missing) == (None, "cannot be read: Permission denied")


def test_an_invalid_horizon_is_replaced_by_the_latest_time(sweep, tmp_path, capsys):
    config = sweep / "pure-base-seed1" / "config.json"
    change(config, problem=json.loads(config.read_text())["problem"] | {"horizon": float("nan")})
    status, _, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    (run,) = (run for run in found["runs"] if run["directory"].endswith("pure-base-seed1"))
    assert status == 0
    assert run["times"]["horizon"] == read_measurement_times(sweep / "pure-base-seed1").max()


@pytest.mark.parametrize("damage", ["no JSON", "newer format", "no config"])
def test_without_any_run_nothing_is_written(damage, sweep, tmp_path, capsys):
    run = sweep / "pure-base-seed1"
    DAMAGE[damage][0](run)
    status, errors, found = reported(run, out=tmp_path / "new" / "page", capsys=capsys)
    assert (status, found) == (2, None)
    assert errors.startswith("error: no run to report on: ")
    assert DAMAGE[damage][1] in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_directories_without_runs(whole, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    places = [tmp_path / name for name in ("empty", "file", "absent")]
    status, errors, found = reported(*places, out=tmp_path / "page", capsys=capsys)
    assert (status, found) == (2, None)
    assert f"{tmp_path}/empty contains no run" in errors
    assert f"{tmp_path}/file is a file, not a directory" in errors
    assert f"{tmp_path}/absent does not exist" in errors
    status, errors, found = reported(whole, *places, out=tmp_path / "page", capsys=capsys)
    assert (status, len(errors.splitlines()), len(found["excluded"]), len(found["runs"])) == (1, 3, 3, 4)


@pytest.mark.parametrize("saved", [True, False], ids=["with a checkpoint", "without"])
def test_an_unfinished_run_is_shown_and_noted(saved, sweep, tmp_path, capsys):
    run = stop_half_way(sweep / "half", seed=7)
    if not saved:
        shutil.rmtree(run / "checkpoint")
    with open(run / "records.jsonl", "a") as file:
        file.write('{"step": 31, "epis')
    status, errors, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert status == 0
    assert errors.splitlines() == [f"note: {note}" for note in found["notes"]]
    assert "half has not finished: it is shown, but not included in means" in errors
    assert ("line 31 is incomplete and was skipped" in errors) == (not saved)  # else it is after the checkpoint
    (half,) = (run for run in found["runs"] if not run["finished"])
    assert (half["ledger"]["measurements"], half["metrics"], half["records"]) == (30, {}, 30)


@pytest.mark.parametrize("name", ["config.json", "records.jsonl"])
def test_an_unfinished_run_that_is_not_that_of_its_checkpoint_is_left_out(name, sweep, tmp_path, capsys):
    run = stop_half_way(sweep / "half", seed=7)
    digits(name, ": 7", ": 7 ")(run)
    status, errors, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert (status, len(found["runs"])) == (1, 4)
    assert f"half/{name} is damaged: it is not what" in errors


def test_a_run_without_any_record(sweep, tmp_path, capsys):
    run = sweep / "pure-base-seed1"
    for name in ("summary.json", "records.jsonl"):
        (run / name).unlink()
    shutil.rmtree(run / "checkpoint")
    status, errors, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert status == 0
    assert "pure-base-seed1 has no records yet" in errors
    assert found["runs"][1]["curves"] == {}
    assert found["runs"][1]["ledger"]["measurements"] == 0


def test_a_copy_of_a_run_does_not_count_twice(sweep, tmp_path, capsys):
    shutil.copytree(sweep / "pure-base-seed0", sweep / "zcopy")
    status, errors, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert (status, len(found["runs"])) == (1, 4)
    assert "zcopy has the same settings and seed as" in errors


def test_no_mean_combines_versions(sweep, tmp_path, capsys):
    for name in ("config.json", "summary.json"):
        versions = json.loads((sweep / "pure-base-seed1" / name).read_text())["versions"]
        change(sweep / "pure-base-seed1" / name, versions=versions | {"purectrl": "0.0.7"})
    status, _, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert status == 0
    labels = [group["label"] for group in found["groups"]]
    assert labels[0].startswith("pure-base, with purectrl 0.")
    assert labels[1] == "pure-low-switch" or labels[1].startswith("pure-base, with purectrl 0.")
    assert len(labels) == 3
    assert any("the runs used purectrl 0.0.7 and" in note and "no mean combines" in note for note in found["notes"])


def test_a_damaged_checkpoint_only_removes_the_times(sweep, tmp_path, capsys):
    for file in (sweep / "pure-base-seed1" / "checkpoint").iterdir():
        file.write_bytes(file.read_bytes()[:100])
    (sweep / "pure-base-seed1" / "evaluation.json").write_text("[")
    status, _, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert (status, len(found["runs"]), found["runs"][1]["times"]) == (0, 4, None)
    assert any("so its times are not shown" in note for note in found["notes"])
    assert any("the evaluation is not shown" in note for note in found["notes"])

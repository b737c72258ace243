"""Run directories from somebody else: no link is followed, nothing blocks, wrong content ends in one line and status 2."""

import json
import os
import shutil

import numpy as np
import pytest
from helpers import left_by, small, stopped_run

from purectrl.cli import main
from purectrl.core.io import read_checksummed, write_checksummed
from purectrl.runs.runner import evaluate, resume, run

SPEC = small(measurements=40)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("hostile") / "whole"
    run(SPEC, out, quiet=True)
    return out


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    return stopped_run(SPEC, tmp_path_factory.mktemp("hostile") / "half", until=25, at=(10, 20))


@pytest.fixture
def finished(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


@pytest.fixture
def stopped(half, tmp_path):
    return shutil.copytree(half, tmp_path / "run")


@pytest.fixture
def outside(tmp_path):
    """Files of the user beside the run directory, which must stay as they are."""
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".mine.part").write_text("mine")
    yield tmp_path
    assert (tmp_path / "victim").read_text() == "precious"
    assert [path.name for path in (tmp_path / "other").iterdir()] == [".mine.part"]


def refused(capsys, *words):
    """Runs a command that must end with status 2 and one short line, and returns that line."""
    assert main([str(word) for word in words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert len(line) <= 400
    return line


# links and special files


def test_a_lock_that_is_a_link(stopped, outside, capsys):
    (stopped / ".lock").unlink(missing_ok=True)
    (stopped / ".lock").symlink_to("../victim")
    assert ".lock is a symbolic link" in refused(capsys, "resume", stopped)


def test_records_that_are_a_link(stopped, outside, capsys):
    shutil.rmtree(stopped / "checkpoint")
    (stopped / "records.jsonl").unlink()
    (stopped / "records.jsonl").symlink_to("../victim")
    assert "records.jsonl is a symbolic link" in refused(capsys, "resume", stopped)


@pytest.mark.parametrize("name", ["checkpoint", "data", "policy", "media"])
def test_folders_that_are_links(stopped, outside, capsys, name):
    shutil.rmtree(stopped / name, ignore_errors=True)
    (stopped / name).symlink_to("../other")
    assert f"{name} is a symbolic link; expected a directory" in refused(capsys, "resume", stopped, "--quiet")


def test_the_folder_of_tensorboard_is_a_link(stopped, outside, capsys):
    pytest.importorskip("tensorboard")
    (stopped / "tensorboard").symlink_to("../other")
    assert "tensorboard is a symbolic link" in refused(capsys, "resume", stopped, "--quiet", "--track", "tensorboard")


def test_a_video_is_not_written_through_a_link(finished, outside, capsys, monkeypatch):
    (finished / "media").symlink_to("../other")
    assert "media is a symbolic link" in refused(capsys, "evaluate", finished, "--episodes", "2", "--video")


@pytest.mark.parametrize("name", ["evaluation.json", ".evaluation.json.part"])
def test_an_evaluation_replaces_a_link(finished, outside, name):
    (finished / name).symlink_to("../victim")
    evaluate(finished, episodes=2)
    assert json.loads((finished / "evaluation.json").read_text())["episodes"] == 2


@pytest.mark.parametrize("name", ["config.json", "summary.json", "policy/plan.safetensors"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_files_that_are_no_files(finished, capsys, name, make):
    (finished / name).unlink()
    make(finished / name)
    assert "expected a regular file" in refused(capsys, "evaluate", finished)


def test_a_checkpoint_that_is_a_pipe_is_skipped(stopped, whole, capsys):
    newest = max((stopped / "checkpoint").iterdir())
    newest.unlink()
    os.mkfifo(newest)
    resume(stopped, quiet=True)
    assert "is a pipe" in capsys.readouterr().err
    assert left_by(stopped) == left_by(whole)


def test_a_run_directory_that_is_itself_a_link_is_used(stopped, whole, tmp_path):
    (tmp_path / "link").symlink_to(stopped)
    resume(tmp_path / "link", quiet=True)
    assert left_by(stopped) == left_by(whole)


# files that parse and still are wrong


def rewrite(file, change):
    """Writes a file with a valid checksum and other content."""
    arrays, content = read_checksummed(file)
    write_checksummed(file, *change(arrays, content))


def state(**values):
    return lambda arrays, content: (arrays, content | {"state": content["state"] | values})


def ledger(**values):
    def change(arrays, content):
        return state(ledger=content["state"]["ledger"] | values)(arrays, content)

    return change


def array(name, value):
    return lambda arrays, content: (arrays | {name: value}, content)


def without(name):
    return lambda arrays, content: ({key: one for key, one in arrays.items() if key != name}, content)


WRONG_CHECKPOINTS = {
    "no config": lambda arrays, content: (arrays, {}),
    "a list of states": lambda arrays, content: (arrays, content | {"state": [1]}),
    "no records": lambda arrays, content: (arrays, content | {"records": None}),
    "negative records": lambda arrays, content: (arrays, content | {"records": {"bytes": -5, "checksum": 0}}),
    "endless records": lambda arrays, content: (arrays, content | {"records": {"bytes": 10**18, "checksum": 0}}),
    "a word of records": lambda arrays, content: (arrays, content | {"records": {"bytes": "5", "checksum": 0}}),
    "shards": lambda arrays, content: (arrays, content | {"shards": [[0, -1, "x"]]}),
    "a missing shard": lambda arrays, content: (arrays, content | {"shards": [[0, 5, "x"]]}),
    "a shard elsewhere": lambda arrays, content: (arrays, content | {"shards": ["../../victim"]}),
    "deep": lambda arrays, content: (arrays, json.loads('{"a":' * 150 + "1" + "}" * 150)),
    "another seed": state(key="0x1"),
    "no key": state(key=None),
    "negative steps": state(steps=-20),
    "other steps": state(steps=19),
    "a float of steps": state(steps=20.0),
    "no ledger": state(ledger=[]),
    "negative measurements": ledger(measurements=-5),
    "more measurements": ledger(measurements=10**6),
    "more rollouts": ledger(rollouts=10**6),
    "more updates": ledger(updates=10**6),
    "seconds": ledger(seconds={"total": "1"}),
    "negative seconds": ledger(seconds={"total": -1, "rollout": 0, "fit": 0, "plan": 0, "compile": 0}),
    "infinite seconds": ledger(seconds={name: float("inf") for name in ("total", "rollout", "fit", "plan", "compile")}),
    "a policy out of range": state(**{"['learner'].policy": 10**6}),
    "a negative drift": state(**{"['learner'].drift": -1}),
    "negative rewards": state(**{"['output'].rewards": -1}),
    "a plan out of range": state(**{"['output'].plan.policy.parameter": 10**6}),
    "a best plan out of range": state(**{"['output'].best.initial.parameter": 10**6}),
    "endless sums": state(**{"['output'].all_total": 1e308}),
    "losses that are not finite": lambda arrays, content: (
        arrays | {"['learner'].drift_loss": np.full_like(arrays["['learner'].drift_loss"], np.nan)}, content
    ),
    "a word for a number": state(**{"['learner'].value": "1"}),
    "something more": state(extra=1),
    "an array more": array("extra", np.zeros(3)),
    "an empty confidence set": lambda arrays, content: (
        arrays | {"['learner'].drift_set": np.zeros_like(arrays["['learner'].drift_set"])}, content
    ),
    "another shape": array("['learner'].drift_loss", np.zeros((2, 2))),
    "another type": array("['learner'].drift_loss", np.zeros(3, np.int8)),
    "no array": without("['learner'].drift_loss"),
    "no times": without("data.t"),
    "no states": without("data.x"),
    "integer times": array("data.t", np.zeros((20, 1), np.int64)),
    "complex times": array("data.t", np.zeros((20, 1), np.complex64)),
    "other times": array("data.t", np.zeros((19, 1))),
    "times that are not finite": array("data.t", np.full((20, 1), np.nan)),
    "scalar times": array("data.t", np.array(1.0)),
    "states of another dimension": lambda arrays, content: (
        arrays | {name: np.zeros((20, 1, 7)) for name in ("data.x", "data.y")}, content
    ),
    "data of another name": array("data.z", np.zeros((20, 1))),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_CHECKPOINTS)
def test_wrong_content_of_a_checkpoint_is_refused_and_the_one_before_is_used(stopped, outside, whole, capsys, case):
    older, newest = sorted((stopped / "checkpoint").iterdir())
    rewrite(newest, WRONG_CHECKPOINTS[case])
    copy = shutil.copytree(stopped, outside / "copy")
    assert main(["resume", str(stopped), "--quiet"]) == 0
    assert str(newest.name) in capsys.readouterr().err
    assert left_by(stopped) == left_by(whole)
    (copy / "checkpoint" / older.name).unlink()
    assert "no checkpoint of" in refused(capsys, "resume", copy, "--quiet")


def test_a_valid_checkpoint_that_is_written_again_is_used(stopped, whole, capsys):
    """The cases above are refused for their content, and not because they were written by a test."""
    rewrite(max((stopped / "checkpoint").iterdir()), lambda arrays, content: (arrays, content))
    resume(stopped, quiet=True)
    assert capsys.readouterr().err == ""
    assert left_by(stopped) == left_by(whole)


WRONG_RECORDS = {
    "a record less": lambda lines: lines[:-1],
    "a list": lambda lines: [*lines[:-1], "[1]"],
    "no step": lambda lines: [*lines[:-1], "{}"],
    "a word": lambda lines: [*lines[:-1], lines[-1].replace('"measurements": 20', '"measurements": "20"')],
    "no gap": lambda lines: [line.replace('"gap"', '"gop"') for line in lines],
    "a word for a gap": lambda lines: [line.replace('"gap": ', '"gap": "", "gop": ') for line in lines],
    "an endless gap": lambda lines: [line.replace('"gap": ', '"gap": 1e999, "gop": ') for line in lines],
}


@pytest.mark.parametrize("case", WRONG_RECORDS)
def test_records_with_a_valid_checksum_and_wrong_content(stopped, capsys, case):
    import zlib

    older, newest = sorted((stopped / "checkpoint").iterdir())
    older.unlink()
    lines = WRONG_RECORDS[case]((stopped / "records.jsonl").read_text().splitlines()[:20])
    text = "".join(line + "\n" for line in lines).encode()
    (stopped / "records.jsonl").write_bytes(text)
    saved = {"bytes": len(text), "checksum": zlib.crc32(text)}
    rewrite(newest, lambda arrays, content: (arrays, content | {"records": saved}))
    assert "record" in refused(capsys, "resume", stopped, "--quiet")


WRONG_PLANS = {
    "nothing": lambda arrays, content: (arrays, {}),
    "a list": lambda arrays, content: (arrays, content | {"plan": [1]}),
    "out of range": lambda arrays, content: (arrays, content | {"plan": content["plan"] | {"plan.policy.parameter": 99999}}),
    "negative": lambda arrays, content: (arrays, content | {"plan": content["plan"] | {"plan.initial.parameter": -1}}),
    "a word": lambda arrays, content: (arrays, content | {"plan": content["plan"] | {"plan.initial.parameter": "x"}}),
    "more": lambda arrays, content: (arrays | {"x": np.zeros(1)}, content),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_PLANS)
def test_wrong_content_of_a_policy(finished, capsys, case):
    rewrite(finished / "policy" / "plan.safetensors", WRONG_PLANS[case])
    refused(capsys, "evaluate", finished)


LEDGER = {"rollouts": 1, "measurements": 1, "updates": 1, "evaluation_rollouts": 0}
SECONDS = {"total": 1.0, "rollout": 0, "fit": 0, "plan": 0, "compile": 0}
WRONG_SUMMARIES = [
    {"ledger": LEDGER},
    {"ledger": LEDGER | {"seconds": []}},
    {"ledger": LEDGER | {"seconds": SECONDS | {"total": None}}},
    {"ledger": LEDGER | {"seconds": SECONDS | {"total": 10**400}}},
    {"ledger": LEDGER | {"seconds": SECONDS, "rollouts": "1"}},
    {"ledger": LEDGER | {"seconds": SECONDS, "rollouts": 10**300}},
    {"ledger": None},
    {"metrics": []},
    {"seed": "0"},
    {"status": None},
    {"experiment": ["x"]},
]


@pytest.mark.parametrize("values", WRONG_SUMMARIES, ids=str)
def test_wrong_content_of_a_summary(finished, capsys, values):
    summary = json.loads((finished / "summary.json").read_text())
    (finished / "summary.json").write_text(json.dumps(summary | values))
    assert "is not the summary of a run" in refused(capsys, "resume", finished)
    refused(capsys, "evaluate", finished)


@pytest.mark.parametrize("name", ["config.json", "records.jsonl", "policy/plan.safetensors"])
def test_a_finished_run_whose_files_have_changed_is_refused(finished, capsys, name):
    with open(finished / name, "ab") as file:
        file.write(b"\n")
    assert f"{name} is damaged: it is not the file with which the run finished" in refused(capsys, "resume", finished)


def test_text_of_a_summary_reaches_the_terminal_without_control_sequences(finished, capsys):
    summary = json.loads((finished / "summary.json").read_text())
    del summary["checksum"]
    metrics = summary["metrics"] | {"\x1b[2Jgap\u202e": 1.0, "x" * 10**5: 2.0}
    (finished / "summary.json").write_text(json.dumps(summary | {"status": "\x1b]0;owned\x07done", "metrics": metrics}))
    assert main(["resume", str(finished)]) == 0
    shown = capsys.readouterr().out
    assert "done: finite" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert max(map(len, shown.splitlines())) < 500


def paths_of(value, path=()):
    yield path
    for name, item in value.items() if isinstance(value, dict) else ():
        yield from paths_of(item, (*path, name))


def with_value(value, path, new):
    return new if not path else {**value, path[0]: with_value(value[path[0]], path[1:], new)}


@pytest.mark.parametrize("wrong", [None, [], {}, "x", -1, 1e300, 10**30, True, [[1]]], ids=repr)
def test_any_value_in_a_configuration_is_refused_or_harmless(finished, capsys, wrong):
    """One value after the other is replaced. The checksum of the policy binds it to the file, so nothing can succeed."""
    original = (finished / "config.json").read_text()
    for path in paths_of(json.loads(original)):
        (finished / "config.json").write_text(json.dumps(with_value(json.loads(original), path, wrong)))
        refused(capsys, "evaluate", finished, "--episodes", "2")


# many runs


def test_a_sweep_does_not_write_through_links_below_its_directory(outside, capsys):
    (outside / "sweep").mkdir()
    (outside / "sweep" / "finite").symlink_to("../other")
    words = [
        "sweep",
        "finite",
        "--algorithms",
        "pure-base",
        "--seeds",
        "0",
        "--measurements",
        "8",
        "--problem.steps",
        "8",
    ]
    assert "finite is a symbolic link; expected a directory" in refused(capsys, *words, "--out", outside / "sweep")


def test_a_paper_item_does_not_write_through_links_below_its_directory(outside, capsys):
    (outside / "paper").mkdir()
    (outside / "paper" / "thm1-coverage").symlink_to("../other")
    assert "thm1-coverage is a symbolic link" in refused(capsys, "paper", "thm1-coverage", "--out", outside / "paper")

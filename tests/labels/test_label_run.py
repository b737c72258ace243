"""A run and its people as two programs: both are killed, both continue, and nothing is asked twice."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from asked import ask

from purectrl.cli import main

SETTINGS = "--measurements 24 --schedule.updates 2 --problem.denoising-steps 2 --problem.eval-images 2 --quiet"
SETTINGS += " --learner.reward-model.steps 2 --learner.finetune.iterations 1 --learner.finetune.batch-size 2"
RUN = ["run", "digits", "--algorithm", "pure-seiko", "--reward", "people", *SETTINGS.split(), "--out"]
PATIENCE = 600.0
"""Seconds to wait for anything; no test depends on how many pass."""


@pytest.fixture
def programs():
    """Starts programs; those that are left at the end of the test are killed."""
    started = []

    def start(*words):
        command = [sys.executable, "-m", "purectrl", *map(str, words)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def until(condition, process):
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert process.poll() in (None, 0), process.communicate()[1]
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)
    return found


def pending(out):
    """The identifiers that the run waits for."""
    file = out / "labels" / "request.json"
    return [one["id"] for one in json.loads(file.read_text())["images"]] if file.exists() else []


def page_of(process):
    """The address that `purectrl label` prints."""
    return re.fullmatch(r"label at (http://127\.0\.0\.1:\d+/[\w-]+/)\n", process.stdout.readline())[1]


def next_state(url):
    """The state of the page once the run asks for something, or has finished; None before."""
    state = ask(url)
    return state if state["images"] or state["finished"] else None


def answers(out):
    return [json.loads(line) for line in (out / "labels" / "answers.jsonl").read_text().splitlines()]


def test_both_are_stopped_and_continue(tmp_path, programs):
    out = tmp_path / "run"
    run = programs(*RUN, out)
    until(lambda: pending(out), run)
    label = programs("label", out)
    url = page_of(label)
    first, *rest = [one["id"] for one in ask(url)["images"]]
    assert [first, *rest] == pending(out)
    ask(url, "answer", {"id": first, "level": 5})
    run.kill()  # at the worst moment: one label is given, none was read
    label.send_signal(signal.SIGINT)
    assert label.wait(PATIENCE) == 130
    assert label.communicate()[1] == f"stopped; every label is kept in {out / 'labels'}\n"

    label = programs("label", out)  # labels can be given while the run is stopped
    url = page_of(label)
    assert {one["id"]: one["level"] for one in ask(url)["images"]} == {first: 5} | dict.fromkeys(rest)
    for identifier in rest:
        ask(url, "answer", {"id": identifier, "level": 2})
    assert ask(url, "submit", {})["submitted"] == 1 + len(rest)

    run, given = programs("resume", out, "--quiet"), {first: 5} | dict.fromkeys(rest, 2)
    while not (state := until(lambda: next_state(url), run))["finished"]:
        for one in state["images"]:
            assert one["id"] not in given, "a label was asked twice"
            ask(url, "answer", {"id": one["id"], "level": 3})
            given[one["id"]] = 3
        ask(url, "submit", {})
    assert len(given) > 1 + len(rest), "the second update asks, too"
    assert run.wait(PATIENCE) == 0, run.communicate()[1]
    assert label.wait(PATIENCE) == 0
    assert label.communicate()[0].endswith(f"has finished: {len(given)} labels\n")

    queries = [json.loads(line) for line in (out / "queries.jsonl").read_text().splitlines()]
    assert {one["score"] for one in queries} == {(level - 1) / 4 for level in given.values()}
    assert len(queries) >= len(given), "images that differ by less than a shade of grey are one question"
    once = [line["id"] for line in answers(out) if "id" in line]
    assert len(once) == len(set(once)) == len(given)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["ledger"]["measurements"] == 24
    assert not [name for name in summary["metrics"] if name.startswith("reward")], "nobody is asked to evaluate"
    assert {"classifier_accuracy", "diversity", "kl_pretrained"} <= summary["metrics"].keys()
    assert not (out / "evaluation.jsonl").exists()
    assert (out / "media" / "samples.png").exists()
    assert main(["report", str(out), "--out", str(tmp_path / "page.html")]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["label"], "label needs the directory of a run first"),
        (["label", "nothing"], "nothing does not exist"),
        (["label", "nothing", "--port", "x"], "--port"),
        (["run", "digits", "--algorithm", "seiko", "--reward", "people", "--problem.label-levels", "1", "--out", "new"],
         "label_levels: must be between 2 and 9"),
        (["run", "digits", "--algorithm", "seiko", "--problem.eval-reward", "people", "--out", "new"],
         "eval_reward: nobody is asked"),
    ],
)  # fmt: skip
def test_wrong_calls(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert os.listdir(tmp_path) == []  # noqa: PTH208

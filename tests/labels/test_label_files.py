"""The files between a run and the page: nothing is lost, nothing is asked twice, and what is damaged is refused."""

import json
import os
import threading
import time

import numpy as np
import pytest
from asked import images, request, run_directory
from PIL import Image

from purectrl import signals
from purectrl.core import InputError
from purectrl.core.errors import StoreError
from purectrl.diffusion.rewards import Reward, evaluation_reward, reward_spec
from purectrl.diffusion.rewards.label_files import AnswerLog, Answers, image_file, question_of, read_request
from purectrl.diffusion.rewards.people import People
from purectrl.diffusion.rewards.registry import RewardOptions
from purectrl.labels import LabelQueue


@pytest.fixture
def out(tmp_path):
    return run_directory(tmp_path / "run")


def wait_for(condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


def asking(out, found, conditions, **settings):
    """(thread, scores) of people who are asked in the background."""
    scores = []
    work = lambda: scores.append(People(out, **settings)(found, conditions))  # noqa: E731
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, scores


def label_all(out, levels):
    with LabelQueue(out) as queue:
        wait_for(lambda: queue.state()["images"])
        for image, level in zip(queue.state()["images"], levels, strict=True):
            queue.answer(image["id"], level)
        queue.submit()


def test_people_are_waited_for_and_their_levels_become_scores(out, capsys):
    thread, scores = asking(out, images(3), [7, 8, 9])
    label_all(out, [1, 3, 5])
    thread.join(300)
    assert scores[0].tolist() == [0.0, 0.5, 1.0]
    assert f"waiting for 3 labels: `purectrl label {out}`" in capsys.readouterr().err
    assert read_request(out).questions == (), "nothing is pending any more"


def test_two_levels_are_bad_and_good(out):
    thread, scores = asking(out, images(2), ["cat", "dog"], levels=2)
    label_all(out, [2, 1])
    thread.join(300)
    assert scores[0].tolist() == [1.0, 0.0]


def test_an_answered_image_is_not_asked_again(out):
    thread, _ = asking(out, images(3), [0, 1, 2])
    label_all(out, [1, 2, 3])
    thread.join(300)
    # by another process, with a new image between old ones and an old one twice
    new = images(1, seed=1)
    thread, scores = asking(out, np.concatenate([images(3)[[2, 1]], new, images(3)[[2]]]), [2, 1, 9, 2])
    with LabelQueue(out) as queue:
        wait_for(lambda: queue.state()["images"])
        assert [one["condition"] for one in queue.state()["images"]] == ["9"]
    label_all(out, [5])
    thread.join(300)
    assert scores[0].tolist() == [0.5, 0.25, 1.0, 0.5]


def test_the_question_is_the_one_of_the_8_bit_image(out):
    image = np.full((1, 2, 2), 0.5019608, np.float32)  # 128 / 255
    assert question_of(image, 3) == question_of(image * np.float32(1 + 1e-6), 3)
    assert question_of(image, 3).id != question_of(image, "3").id != question_of(image + 0.01, "3").id
    request(out, 1)
    (question,) = read_request(out).questions
    stored = np.asarray(Image.open(image_file(out, question.id)))
    assert np.array_equal(stored, np.round(255 * images(1)[0, 0]).astype(np.uint8))


def test_colour_images_are_stored_as_they_are(out):
    thread, _ = asking(out, images(1, shape=(3, 8, 6)), ["a red car"])
    wait_for(lambda: read_request(out).questions)
    (question,) = read_request(out).questions
    stored = np.asarray(Image.open(image_file(out, question.id)))
    assert np.array_equal(stored, np.round(255 * images(1, shape=(3, 8, 6))[0]).astype(np.uint8).transpose(1, 2, 0))
    label_all(out, [1])
    thread.join(300)


def test_a_signal_ends_the_waiting_and_keeps_what_was_answered(out):
    reward = Reward(People(), name="people", waits=True).with_log(out / "queries.jsonl")
    received, seen = [], []

    def work():
        try:
            reward(images(2), [0, 1])
        except KeyboardInterrupt:
            seen.append("stopped")

    with signals.collecting(received):
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        with LabelQueue(out) as queue:
            wait_for(lambda: queue.state()["images"])
            queue.answer(queue.state()["images"][0]["id"], 4)
        received.append(2)
        thread.join(300)
    assert seen == ["stopped"]
    assert not signals.stop_requested()
    assert (out / "queries.jsonl").read_text() == "", "what has no answer was not charged"
    assert list(Answers(out).open) == []
    answers = Answers(out)
    answers.follow()
    assert list(answers.open.values()) == [0.75]


def test_answers_are_on_disk_at_once_and_an_incomplete_line_is_dropped(out):
    first, second, _ = request(out)
    with AnswerLog(out) as log:
        log.answer(first, 0.25)
        assert json.loads((out / "labels" / "answers.jsonl").read_text())["score"] == 0.25
        log.answer(second, 1.0)
    with open(out / "labels" / "answers.jsonl", "ab") as file:  # a process that was killed while it wrote
        file.write(b'{"id": "ab')
    follower = Answers(out)
    follower.follow()
    assert follower.open == {first: 0.25, second: 1.0}
    with AnswerLog(out) as log:
        log.answer(first, None)
        log.answer(first, 0.5)
        log.submit()
        log.answer(second, 0.0)  # too late
    follower.follow()
    assert (follower.final, follower.open) == ({first: 0.5, second: 1.0}, {})


def test_a_full_disk_leaves_no_half_line(out, monkeypatch):
    (first,) = request(out, 1)
    with AnswerLog(out) as log:
        log.answer(first, 0.25)
        before = (out / "labels" / "answers.jsonl").read_bytes()

        def full(descriptor):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            log.answer(first, 1.0)
        monkeypatch.undo()
        assert (out / "labels" / "answers.jsonl").read_bytes() == before
        assert log.answers.open == {first: 0.25}
        log.answer(first, 0.5)
    answers = Answers(out)
    answers.follow()
    assert answers.open == {first: 0.5}


@pytest.mark.parametrize(
    "line",
    [
        "7",
        "[]",
        '{"id": 3, "score": 0.5, "at": 0}',
        '{"id": "a", "score": 1.5, "at": 0}',
        '{"id": "a", "score": "1", "at": 0}',
        '{"id": "a", "score": true, "at": 0}',
        '{"id": "a", "score": 0.5, "at": 0, "checksum": "00"}',
        '{"submitted": 1, "at": 0, "checksum": null}',
        '{"id": "a"}',
        "{",
    ],
)
def test_what_is_no_answer_is_refused(out, line):
    (out / "labels").mkdir()
    (out / "labels" / "answers.jsonl").write_text(line + "\n")
    with pytest.raises(StoreError, match="line 1"):
        Answers(out).follow()


@pytest.mark.parametrize(
    "content",
    [
        "7",
        '{"levels": 5}',
        '{"levels": 1, "images": []}',
        '{"levels": 5, "images": [{"id": "../../secret", "condition": 1}]}',
        '{"levels": 5, "images": [{"id": "00000000000000000000000000000000", "condition": [1]}]}',
    ],
)
def test_what_is_no_request_is_refused(out, content):
    (out / "labels").mkdir()
    (out / "labels" / "request.json").write_text(content)
    with pytest.raises(StoreError, match="not a request"):
        read_request(out)


def test_links_are_not_followed(out, tmp_path):
    (first,) = request(out, 1)
    secret = tmp_path / "secret.png"
    (out / "labels" / "images" / f"{first}.png").rename(secret)
    (out / "labels" / "images" / f"{first}.png").symlink_to(secret)
    with LabelQueue(out) as queue, pytest.raises(StoreError, match="symbolic link"):
        queue.image(first)
    (out / "labels" / "answers.jsonl").unlink()
    (out / "labels" / "answers.jsonl").symlink_to(secret)
    with pytest.raises(StoreError, match="symbolic link"):
        LabelQueue(out)


def test_one_page_at_a_time(out):
    with LabelQueue(out), pytest.raises(StoreError, match="being written by process"):
        LabelQueue(out)
    LabelQueue(out).__exit__()


def test_a_run_that_asks_nobody_is_refused(tmp_path):
    with pytest.raises(StoreError, match="does not ask people; start one with --reward people"):
        LabelQueue(run_directory(tmp_path / "run", reward="legibility"))
    assert not (tmp_path / "run" / "labels").exists()


def test_people_need_a_directory_and_a_sensible_number_of_levels():
    with pytest.raises(InputError, match="give one \\(--out"):
        People()(images(1), [0])
    for levels in (1, 10):
        with pytest.raises(InputError, match="label_levels: must be between 2 and 9"):
            People(levels=levels)
    name, spec = reward_spec("people", RewardOptions(label_levels=3))
    assert (name, spec.range, spec.waits) == ("people", (0.0, 1.0), True)
    with pytest.raises(InputError, match="label_levels: only the reward 'people' uses them, not 'jpeg'"):
        reward_spec("jpeg", RewardOptions(label_levels=3))
    assert evaluation_reward("jpeg", RewardOptions(label_levels=3), 600.0) is not None  # beside people


def test_nobody_is_asked_about_evaluations():
    with pytest.raises(InputError, match="eval_reward: nobody is asked"):
        evaluation_reward("people", RewardOptions(), 600.0)

"""Rewards: what they score, what they cost, and what happens when they fail."""

import itertools
import json
import threading

import numpy as np
import pytest

from purectrl.core import InputError, MeasurementError, StoreError
from purectrl.diffusion.rewards import REWARDS, Reward, RewardSpec, compressibility, reward_spec, weighted
from purectrl.diffusion.rewards.jpeg import jpeg_size
from purectrl.diffusion.rewards.query_log import QueryLog


def random_images(n, seed=0, channels=1):
    return np.random.default_rng(seed).random((n, channels, 8, 8), np.float32)


def brightness(images, conditions):
    return images.mean(axis=(1, 2, 3))


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_scores_are_the_scorers_and_every_query_is_logged(tmp_path):
    images = random_images(5)
    reward = Reward(brightness, tmp_path / "new" / "queries.jsonl", batch_size=2)
    assert np.array_equal(reward(images, [0, 1, 2, 3, "four"]), brightness(images, None).astype(float))
    written = lines(tmp_path / "new" / "queries.jsonl")
    assert [line["condition"] for line in written] == [0, 1, 2, 3, "four"]
    assert [line["score"] for line in written] == brightness(images, None).astype(float).tolist()
    assert reward.queries == 5
    assert reward.seconds == pytest.approx(sum(line["seconds"] for line in written))


def test_the_scorer_sees_batches_and_plain_conditions():
    seen = []

    def remember(images, conditions):
        seen.append((images.shape, images.dtype, conditions))
        return np.zeros(len(images))

    Reward(remember, batch_size=3)(random_images(4).astype(np.float64), np.array([7, 7, 1, 2]))
    assert seen == [((3, 1, 8, 8), np.float32, [7, 7, 1]), ((1, 1, 8, 8), np.float32, [2])]
    assert all(type(condition) is int for condition in seen[0][2])


def test_an_image_is_sent_once_within_a_call_across_calls_and_across_processes(tmp_path):
    sent = []

    def count(images, conditions):
        sent.extend(conditions)
        return np.arange(len(sent) - len(images), len(sent), dtype=float)

    images, file = random_images(2), tmp_path / "queries.jsonl"
    reward = Reward(count, file)
    assert reward(images[[0, 1, 0]], [5, 5, 5]).tolist() == [0.0, 1.0, 0.0]
    assert reward(images[[1]], [5]).tolist() == [1.0]
    assert reward(images[[1]], [6]).tolist() == [2.0], "another condition is another query"
    again = Reward(count, file)
    assert again(images, [5, 5]).tolist() == [0.0, 1.0]
    assert (len(sent), reward.queries, again.queries, len(lines(file))) == (3, 3, 3, 3)
    assert again.seconds == pytest.approx(reward.seconds)


def test_a_stochastic_reward_is_queried_every_time():
    draws = np.random.default_rng(0)
    reward = Reward(lambda images, _: draws.random(len(images)), stochastic=True, batch_size=2)
    image = random_images(1)
    scores = reward(np.repeat(image, 3, axis=0), [1, 1, 1])
    assert len(set(scores)) == 3
    assert reward(image, [1]) != scores[0]
    assert reward.queries == 4


def test_evaluation_has_its_own_log(tmp_path):
    reward = Reward(brightness, tmp_path / "queries.jsonl")
    evaluation = reward.with_log(tmp_path / "evaluation.jsonl")
    evaluation(random_images(3), [0, 0, 0])
    assert (reward.queries, evaluation.queries) == (0, 3)
    assert len(lines(tmp_path / "evaluation.jsonl")) == 3
    assert lines(tmp_path / "queries.jsonl") == []


def raising(images, conditions):
    raise OSError("the server hung up")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda images: np.full(len(images), np.nan), "returned nan for 2 of 2 images, first for number 0"),
        (
            lambda images: np.array([brightness(images, None)[0], np.inf]),
            "returned inf for 1 of 2 images, first for number 1",
        ),
        (lambda images: np.zeros(3), r"returned scores of shape \[3\] for 2 images, expected \[2\]"),
        (lambda images: np.zeros((2, 1)), r"returned scores of shape \[2, 1\]"),
        (lambda images: 0.5, r"returned scores of shape \[\]"),
        (lambda images: None, r"returned scores of shape \[\]"),
        (lambda images: ["good", "bad"], "did not return an array of numbers"),
        (lambda images: raising(images, None), "raised OSError: the server hung up"),
    ],
)
def test_a_reward_that_fails_is_named_and_its_scores_are_kept(tmp_path, answer, message):
    """The first batch is good; the second fails; after the repair only the second is sent again."""
    images, file, broken = random_images(4), tmp_path / "queries.jsonl", [False, True]

    def fragile(images, conditions):
        return answer(images) if broken.pop(0) else brightness(images, conditions)

    with pytest.raises(MeasurementError, match=message) as failure:
        Reward(fragile, file, batch_size=2, name="fragile")(images, [0, 1, 2, 3])
    assert str(failure.value).startswith("reward 'fragile' ")
    scored = sum(line["score"] is not None for line in lines(file))
    assert str(failure.value).endswith(f"; 4 queries so far, {scored} different scores kept in {file}")
    sent = []
    repaired = Reward(lambda images, conditions: sent.extend(conditions) or brightness(images, conditions), file)
    assert np.allclose(repaired(images, [0, 1, 2, 3]), brightness(images, None))
    assert sent in ([2, 3], [3]), "a finite score of a failed batch is kept, too"
    assert repaired.queries == 4 + len(sent)


def test_the_exception_of_a_reward_is_the_cause():
    with pytest.raises(MeasurementError) as failure:
        Reward(raising)(random_images(1), [0])
    assert isinstance(failure.value.__cause__, OSError)


def test_a_reward_that_hangs_is_ended_by_an_error(tmp_path):
    release = threading.Event()
    calls = []

    def hangs_at_the_second(images, conditions):
        calls.append(len(images))
        if len(calls) == 2:
            release.wait(60)
        return np.zeros(len(images))

    reward = Reward(hangs_at_the_second, tmp_path / "queries.jsonl", batch_size=2, timeout=0.2)
    try:
        with pytest.raises(
            MeasurementError, match=r"did not return 2 scores within its timeout of 0.2 s; 4 queries so far, 2"
        ):
            reward(random_images(4), [0, 1, 2, 3])
        with pytest.raises(MeasurementError, match="has still not returned from a call that exceeded its timeout"):
            reward(random_images(1, seed=1), [0])
    finally:
        release.set()
    assert calls == [2, 2], "while one call hangs, no other is made"
    assert reward.queries == 4


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (2 * random_images(2) - 1, r"must lie in \[0, 1\], not in \[-"),
        (random_images(2) + 0.5, r"must lie in \[0, 1\]"),
        (np.where(random_images(2) > 0.5, np.nan, 0).astype(np.float32), "must be finite"),
        (np.zeros((2, 1, 8, 8), np.uint8), "divide bytes by 255"),
        (np.zeros((2, 8, 8), np.float32), r"must have shape \[n, channels, height, width\].*not \[2, 8, 8\]"),
        (np.zeros((0, 1, 8, 8), np.float32), "must have shape"),
    ],
)
def test_wrong_images_are_refused_before_any_query(images, message):
    reward = Reward(brightness)
    with pytest.raises(InputError, match=message):
        reward(images, [0] * len(images))
    assert reward.queries == 0


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ([0], "2 images need as many conditions, not 1"),
        ("ab", "a sequence with one entry per image"),
        ([0.5, 1.0], "must be integers .* or strings"),
    ],
)
def test_conditions_that_do_not_fit_are_refused(conditions, message):
    with pytest.raises(InputError, match=message):
        Reward(brightness)(random_images(2), conditions)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size: must be at least 1"),
        ({"timeout": 0.0}, "reward_timeout: must be more than 0 seconds"),
    ],
)
def test_settings_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        Reward(brightness, **arguments)
    with pytest.raises(InputError, match="score: must be callable"):
        Reward(3)


def test_an_incomplete_log_is_continued_and_another_file_is_refused(tmp_path):
    file = tmp_path / "queries.jsonl"
    Reward(brightness, file)(random_images(3), [0, 1, 2])
    file.write_bytes(file.read_bytes()[:-10])
    reward = Reward(brightness, file)
    assert reward.queries == 2
    reward(random_images(3), [0, 1, 2])
    assert [line["condition"] for line in lines(file)] == [0, 1, 2]
    file.write_text('{"something": "else"}\n')
    with pytest.raises(StoreError, match=r"line 1, is not a query of a reward; move the file away"):
        Reward(brightness, file)
    with pytest.raises(StoreError, match="expected a regular file"):
        Reward(brightness, tmp_path)


def test_a_weighted_sum_is_linear_and_names_the_term_that_fails():
    images = random_images(4)
    total = Reward(weighted((2.0, brightness), (-0.5, compressibility)))(images, [0] * 4)
    assert np.allclose(total, 2 * brightness(images, None) - 0.5 * compressibility(images, None))
    with pytest.raises(MeasurementError, match="raised OSError"):
        Reward(weighted((1.0, brightness), (1.0, raising)))(images, [0] * 4)
    with pytest.raises(MeasurementError, match=r"brightness returned scores of shape"):
        weighted((1.0, named("brightness", np.zeros(3))))(images, [0] * 4)
    for terms in ([], [(np.nan, brightness)], [(1.0, 3)]):
        with pytest.raises(InputError, match="terms"):
            weighted(*terms)


def test_rewards_are_chosen_by_name_reference_or_function(tmp_path):
    (tmp_path / "mine.py").write_text("def score(images, conditions):\n    return images.mean(axis=(1, 2, 3))\n")
    assert reward_spec("legibility")[1].range == (0.0, 1.0)
    assert reward_spec("legibility")[1] is reward_spec("legibility")[1], "the recogniser is loaded once"
    assert reward_spec("jpeg")[1].range == (-np.inf, 0.0)
    assert reward_spec(brightness) == ("brightness", RewardSpec(brightness))
    name, spec = reward_spec(f"{tmp_path}/mine.py:score")
    assert name.endswith("mine.py:score")
    assert spec.score(random_images(2), [0, 0]).shape == (2,)
    for wrong, message in (
        ("legibilty", "did you mean 'legibility'"),
        ("json:nothing", "unknown name in json 'nothing'"),
        (3, "reward: must"),
    ):
        with pytest.raises(InputError, match=message):
            reward_spec(wrong)


def test_a_new_named_reward_is_one_line(monkeypatch):
    monkeypatch.setitem(REWARDS, "brightness", lambda options: RewardSpec(brightness, (0.0, 1.0)))
    assert reward_spec("brightness") == ("brightness", RewardSpec(brightness, (0.0, 1.0)))


def named(name, answer):
    def score(images, conditions):
        return answer

    score.__name__ = name
    return score


def test_compressibility_counts_the_bytes_of_the_file():
    noise = random_images(1, channels=3)[0]
    assert compressibility(noise[None], [""])[0] == -jpeg_size(noise) / 1000
    assert jpeg_size(noise, quality=95) > jpeg_size(noise, quality=20) > jpeg_size(np.zeros_like(noise), quality=20)
    grey = np.full((1, 8, 8), 0.5, np.float32)
    assert jpeg_size(grey) < jpeg_size(np.repeat(grey, 3, axis=0)), "one channel is stored as one"
    with pytest.raises(InputError, match="must have 1 or 3 channels, not 2"):
        compressibility(np.zeros((1, 2, 8, 8), np.float32), [0])


@pytest.mark.parametrize("text", [[1], [2], [1, 2], [1, 1], [2, 1, 2]])
def test_the_probability_of_a_text_is_the_sum_over_all_that_is_read_as_it(text):
    """Against every path: repeats are merged, then blanks are removed."""
    from purectrl.diffusion.rewards.ocr import ctc_probability

    probabilities = np.random.default_rng(0).dirichlet(np.ones(3), size=4)
    direct = 0.0
    for path in itertools.product(range(3), repeat=4):
        merged = [character for character, _ in itertools.groupby(path)]
        if [character for character in merged if character] == text:
            direct += np.prod(probabilities[np.arange(4), path])
    assert ctc_probability(text, probabilities) == pytest.approx(direct, rel=1e-12)


@pytest.fixture(scope="module")
def legibility():
    from purectrl.diffusion.rewards.ocr import Legibility

    return Legibility()


def printed(text, size=32):
    """Light text on a dark ground [1, 1, size, size]."""
    from PIL import Image, ImageDraw, ImageFont

    canvas = Image.new("L", (size, size))
    draw = ImageDraw.Draw(canvas)
    draw.text((size / 2, size / 2), text, fill=255, font=ImageFont.load_default(0.8 * size), anchor="mm")
    return np.asarray(canvas, np.float32)[None, None] / 255


def test_what_is_printed_is_read(legibility):
    digits = np.concatenate([printed(str(c)) for c in (3, 4, 5, 7)])
    assert legibility(digits, [3, 4, 5, 7]).min() > 0.8
    assert legibility(digits, ["4", "5", "7", "3"]).max() < 0.1
    assert legibility(random_images(4), [3, 4, 5, 7]).max() < 0.1


def test_a_score_does_not_depend_on_the_batch(legibility):
    digits = np.concatenate([printed(str(c), size=16) for c in range(10)])
    together = legibility(digits, list(range(10)))
    alone = [legibility(digits[c : c + 1], [c])[0] for c in range(10)]
    assert np.array_equal(together, alone)


def test_words_and_colours_can_be_read(legibility):
    from purectrl.diffusion.rewards.ocr import Legibility

    upright = Legibility(inverted=False)
    word = np.repeat(1 - printed("47", size=40)[:, :, 4:36], 3, axis=1)
    assert upright(word, ["47"]) > 0.5
    assert upright(word, ["74"]) < 0.1
    with pytest.raises(InputError, match=r"cannot read '': "):
        upright(word, [""])
    with pytest.raises(InputError, match=r"it does not know \['\\n'\]"):
        upright(word, ["4\n"])


def test_a_recogniser_that_is_missing_or_truncated_is_named(tmp_path):
    from purectrl.diffusion.rewards.ocr import Legibility, recogniser

    with pytest.raises(StoreError, match="does not exist"):
        Legibility(tmp_path / "none.onnx")
    half = tmp_path / "half.onnx"
    half.write_bytes(recogniser().read_bytes()[:100_000])
    with pytest.raises(StoreError, match="is damaged or not an ONNX file"):
        Legibility(half)


def test_a_flipped_bit_in_the_log_changes_no_score(tmp_path):
    """Every score that is read again is one that was written; the line of a killed process is asked for again."""
    file = tmp_path / "queries.jsonl"
    Reward(brightness, file)(random_images(2), [3, "four"])
    content, written = file.read_bytes(), QueryLog(file).scores
    refused = 0
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        file.write_bytes(changed)
        try:
            assert QueryLog(file).scores.items() <= written.items(), place
        except StoreError:
            refused += 1
    assert len(written) == 2
    assert refused > 0.9 * len(content)


@pytest.mark.parametrize(
    "query",
    [
        {"condition": [], "score": 1.0, "seconds": 1.0, "digest": "x"},
        {"condition": 1, "score": "1", "seconds": 1.0, "digest": "x"},
        {"condition": 1, "score": float("nan"), "seconds": 1.0, "digest": "x"},
        {"condition": 1, "score": 1.0, "seconds": None, "digest": "x"},
        {"condition": 1, "score": 1.0, "seconds": 1.0, "digest": [1]},
        {"condition": 1, "score": 1.0, "seconds": 1.0, "digest": "x", "more": 1},
        [1],
    ],
)
def test_a_log_with_other_content_is_refused(tmp_path, query):
    (tmp_path / "queries.jsonl").write_text(json.dumps(query) + "\n")
    with pytest.raises(StoreError, match="is not a query of a reward"):
        Reward(brightness, tmp_path / "queries.jsonl")


def test_a_log_that_is_a_link_is_neither_read_nor_written(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "queries.jsonl").symlink_to("victim")
    with pytest.raises(StoreError, match="is a symbolic link"):
        Reward(brightness, tmp_path / "queries.jsonl")
    (tmp_path / "queries.jsonl").unlink()
    reward = Reward(brightness, tmp_path / "queries.jsonl")
    (tmp_path / "queries.jsonl").unlink()
    (tmp_path / "queries.jsonl").symlink_to("victim")
    with pytest.raises(StoreError, match="is a symbolic link"):
        reward(random_images(1), [0])
    assert (tmp_path / "victim").read_text() == "precious"


def test_an_own_reward_takes_images_and_conditions(tmp_path):
    (tmp_path / "own.py").write_text("def one(a):\n    pass\ndef two(a, b):\n    pass\ndef more(*a):\n    pass\n")
    assert {reward_spec(f"{tmp_path}/own.py:{name}")[1].score.__name__ for name in ("two", "more")} == {"two", "more"}
    with pytest.raises(InputError, match="cannot be called with two arguments"):
        reward_spec(f"{tmp_path}/own.py:one")

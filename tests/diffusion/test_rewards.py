"""Rewards: what they score, what they cost, and what happens when they fail."""

import itertools
import json
import threading

import numpy as np
import pytest

from purectrl.core import InputError, MeasurementError, StoreError
from purectrl.diffusion.rewards import Reward, compressibility, weighted
from purectrl.diffusion.rewards.jpeg import size


def pictures(n, seed=0, channels=1):
    return np.random.default_rng(seed).random((n, channels, 8, 8), np.float32)


def brightness(images, conditions):
    return images.mean(axis=(1, 2, 3))


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_scores_are_the_scorers_and_every_query_is_written_down(tmp_path):
    images = pictures(5)
    reward = Reward(brightness, tmp_path / "new" / "queries.jsonl", batch=2)
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

    Reward(remember, batch=3)(pictures(4).astype(np.float64), np.array([7, 7, 1, 2]))
    assert seen == [((3, 1, 8, 8), np.float32, [7, 7, 1]), ((1, 1, 8, 8), np.float32, [2])]
    assert all(type(condition) is int for condition in seen[0][2])


def test_a_picture_is_paid_for_once_within_a_call_across_calls_and_across_processes(tmp_path):
    asked = []

    def count(images, conditions):
        asked.extend(conditions)
        return np.arange(len(asked) - len(images), len(asked), dtype=float)

    images, file = pictures(2), tmp_path / "queries.jsonl"
    reward = Reward(count, file)
    assert reward(images[[0, 1, 0]], [5, 5, 5]).tolist() == [0.0, 1.0, 0.0]
    assert reward(images[[1]], [5]).tolist() == [1.0]
    assert reward(images[[1]], [6]).tolist() == [2.0], "another condition is another question"
    again = Reward(count, file)
    assert again(images, [5, 5]).tolist() == [0.0, 1.0]
    assert (len(asked), reward.queries, again.queries, len(lines(file))) == (3, 3, 3, 3)
    assert again.seconds == pytest.approx(reward.seconds)


def test_a_noisy_reward_is_asked_every_time():
    draws = np.random.default_rng(0)
    reward = Reward(lambda images, _: draws.random(len(images)), noisy=True, batch=2)
    image = pictures(1)
    scores = reward(np.repeat(image, 3, axis=0), [1, 1, 1])
    assert len(set(scores)) == 3
    assert reward(image, [1]) != scores[0]
    assert reward.queries == 4


def test_evaluation_has_its_own_account(tmp_path):
    reward = Reward(brightness, tmp_path / "queries.jsonl")
    evaluation = reward.apart(tmp_path / "evaluation.jsonl")
    evaluation(pictures(3), [0, 0, 0])
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
        (lambda images: np.zeros(3), r"returned scores of shape \[3\] for 2 images; it should be \[2\]"),
        (lambda images: np.zeros((2, 1)), r"returned scores of shape \[2, 1\]"),
        (lambda images: 0.5, r"returned scores of shape \[\]"),
        (lambda images: None, r"returned scores of shape \[\]"),
        (lambda images: ["good", "bad"], "no array of numbers"),
        (lambda images: raising(images, None), "raised OSError: the server hung up"),
    ],
)
def test_a_reward_that_fails_is_named_and_what_was_paid_is_kept(tmp_path, answer, message):
    """The first batch is good; the second fails; after the repair only the second is paid again."""
    images, file, broken = pictures(4), tmp_path / "queries.jsonl", [False, True]

    def fragile(images, conditions):
        return answer(images) if broken.pop(0) else brightness(images, conditions)

    with pytest.raises(MeasurementError, match=message) as failure:
        Reward(fragile, file, batch=2, name="fragile")(images, [0, 1, 2, 3])
    assert str(failure.value).startswith("reward 'fragile' ")
    scored = sum(line["score"] is not None for line in lines(file))
    assert str(failure.value).endswith(f"; 4 queries so far, {scored} different scores kept in {file}")
    asked = []
    repaired = Reward(lambda images, conditions: asked.extend(conditions) or brightness(images, conditions), file)
    assert np.allclose(repaired(images, [0, 1, 2, 3]), brightness(images, None))
    assert asked in ([2, 3], [3]), "a finite score of a failed batch was paid for, too"
    assert repaired.queries == 4 + len(asked)


def test_the_exception_of_a_reward_is_the_cause():
    with pytest.raises(MeasurementError) as failure:
        Reward(raising)(pictures(1), [0])
    assert isinstance(failure.value.__cause__, OSError)


def test_a_reward_that_hangs_is_ended_by_an_error(tmp_path):
    release = threading.Event()
    calls = []

    def hangs_at_the_second(images, conditions):
        calls.append(len(images))
        if len(calls) == 2:
            release.wait(60)
        return np.zeros(len(images))

    reward = Reward(hangs_at_the_second, tmp_path / "queries.jsonl", batch=2, limit=0.2)
    try:
        with pytest.raises(
            MeasurementError, match=r"did not return 2 scores within its limit of 0.2 s; 4 queries so far, 2"
        ):
            reward(pictures(4), [0, 1, 2, 3])
        with pytest.raises(MeasurementError, match="has still not returned from a call that took too long"):
            reward(pictures(1, seed=1), [0])
    finally:
        release.set()
    assert calls == [2, 2], "while one call hangs, no other is made"
    assert reward.queries == 4


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (2 * pictures(2) - 1, r"must lie in \[0, 1\], not in \[-"),
        (pictures(2) + 0.5, r"must lie in \[0, 1\]"),
        (np.where(pictures(2) > 0.5, np.nan, 0).astype(np.float32), "must be finite"),
        (np.zeros((2, 1, 8, 8), np.uint8), "divide bytes by 255"),
        (np.zeros((2, 8, 8), np.float32), r"must have shape \[n, channels, height, width\].*not \[2, 8, 8\]"),
        (np.zeros((0, 1, 8, 8), np.float32), "must have shape"),
    ],
)
def test_images_that_are_none_are_refused_before_anything_is_paid(images, message):
    reward = Reward(brightness)
    with pytest.raises(InputError, match=message):
        reward(images, [0] * len(images))
    assert reward.queries == 0


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ([0], "2 images and 1 conditions do not go together"),
        ("ab", "a sequence with one entry an image"),
        ([0.5, 1.0], "must be integers .* or strings"),
    ],
)
def test_conditions_that_do_not_fit_are_refused(conditions, message):
    with pytest.raises(InputError, match=message):
        Reward(brightness)(pictures(2), conditions)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"batch": 0}, "batch: at least one"), ({"limit": 0.0}, "limit: seconds, more than 0")],
)
def test_settings_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        Reward(brightness, **arguments)
    with pytest.raises(InputError, match="score: must be callable"):
        Reward(3)


def test_a_log_that_a_kill_cut_off_goes_on_and_another_file_is_refused(tmp_path):
    file = tmp_path / "queries.jsonl"
    Reward(brightness, file)(pictures(3), [0, 1, 2])
    file.write_bytes(file.read_bytes()[:-10])
    reward = Reward(brightness, file)
    assert reward.queries == 2
    reward(pictures(3), [0, 1, 2])
    assert [line["condition"] for line in lines(file)] == [0, 1, 2]
    file.write_text('{"something": "else"}\n')
    with pytest.raises(StoreError, match=r"line 1, is no query of a reward; move the file away"):
        Reward(brightness, file)
    with pytest.raises(StoreError, match="cannot be written"):
        Reward(brightness, tmp_path)


def test_a_weighted_sum_is_linear_and_names_the_term_that_fails():
    images = pictures(4)
    total = Reward(weighted((2.0, brightness), (-0.5, compressibility)))(images, [0] * 4)
    assert np.allclose(total, 2 * brightness(images, None) - 0.5 * compressibility(images, None))
    with pytest.raises(MeasurementError, match="raised OSError"):
        Reward(weighted((1.0, brightness), (1.0, raising)))(images, [0] * 4)
    with pytest.raises(MeasurementError, match=r"brightness returned scores of shape"):
        weighted((1.0, named("brightness", np.zeros(3))))(images, [0] * 4)
    for terms in ([], [(np.nan, brightness)], [(1.0, 3)]):
        with pytest.raises(InputError, match="terms"):
            weighted(*terms)


def named(name, answer):
    def score(images, conditions):
        return answer

    score.__name__ = name
    return score


def test_compressibility_counts_the_bytes_of_the_file():
    noise = pictures(1, channels=3)[0]
    assert compressibility(noise[None], [""])[0] == -size(noise) / 1000
    assert size(noise, quality=95) > size(noise, quality=20) > size(np.zeros_like(noise), quality=20)
    grey = np.full((1, 8, 8), 0.5, np.float32)
    assert size(grey) < size(np.repeat(grey, 3, axis=0)), "one channel is stored as one"
    with pytest.raises(InputError, match="1 or 3 channels, not 2"):
        compressibility(np.zeros((1, 2, 8, 8), np.float32), [0])


@pytest.mark.parametrize("text", [[1], [2], [1, 2], [1, 1], [2, 1, 2]])
def test_the_probability_of_a_text_is_the_sum_over_all_that_is_read_as_it(text):
    """Against every path: repeats are merged, then nothing is dropped."""
    from purectrl.diffusion.rewards.ocr import probability

    chances = np.random.default_rng(0).dirichlet(np.ones(3), size=4)
    direct = 0.0
    for path in itertools.product(range(3), repeat=4):
        merged = [character for character, _ in itertools.groupby(path)]
        if [character for character in merged if character] == text:
            direct += np.prod(chances[np.arange(4), path])
    assert probability(text, chances) == pytest.approx(direct, rel=1e-12)


@pytest.fixture(scope="module")
def legibility():
    from purectrl.diffusion.rewards.ocr import Legibility

    return Legibility()


def printed(text, size=32):
    """Light text on a dark ground [1, 1, size, size]."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("L", (size, size))
    draw = ImageDraw.Draw(picture)
    draw.text((size / 2, size / 2), text, fill=255, font=ImageFont.load_default(0.8 * size), anchor="mm")
    return np.asarray(picture, np.float32)[None, None] / 255


def test_what_is_printed_is_read(legibility):
    digits = np.concatenate([printed(str(c)) for c in (3, 4, 5, 7)])
    assert legibility(digits, [3, 4, 5, 7]).min() > 0.8
    assert legibility(digits, ["4", "5", "7", "3"]).max() < 0.1
    assert legibility(pictures(4), [3, 4, 5, 7]).max() < 0.1


def test_a_score_does_not_depend_on_company(legibility):
    digits = np.concatenate([printed(str(c), size=16) for c in range(10)])
    together = legibility(digits, list(range(10)))
    alone = [legibility(digits[c : c + 1], [c])[0] for c in range(10)]
    assert np.array_equal(together, alone)


def test_words_and_colours_can_be_asked_for(legibility):
    from purectrl.diffusion.rewards.ocr import Legibility

    upright = Legibility(inverted=False)
    word = np.repeat(1 - printed("47", size=40)[:, :, 4:36], 3, axis=1)
    assert upright(word, ["47"]) > 0.5
    assert upright(word, ["74"]) < 0.1
    with pytest.raises(InputError, match=r"cannot be asked for '': "):
        upright(word, [""])
    with pytest.raises(InputError, match=r"it does not know \['\\n'\]"):
        upright(word, ["4\n"])


def test_a_recogniser_that_is_missing_or_truncated_is_named(tmp_path):
    from purectrl.diffusion.rewards.ocr import Legibility, recogniser

    with pytest.raises(StoreError, match="does not exist"):
        Legibility(tmp_path / "none.onnx")
    half = tmp_path / "half.onnx"
    half.write_bytes(recogniser().read_bytes()[:100_000])
    with pytest.raises(StoreError, match="is damaged, or no ONNX file"):
        Legibility(half)

"""The digits: data, denoiser, classifier, image grids, training. No training here is longer than a few steps."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import UNet2DModel
from PIL import Image

from purectrl.core import InputError, StoreError
from purectrl.core.keys import Key
from purectrl.diffusion import image_grid
from purectrl.diffusion.digits import classifier, network
from purectrl.diffusion.images import Samples, diversity
from purectrl.diffusion.process import AffineSteps

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "train_digits"))

import digit_data as data
import digit_training as training
from digit_sampling import STEPS, sample


@pytest.fixture(scope="module")
def real():
    return data.load()


@pytest.fixture(scope="module")
def denoiser():
    return network.pretrained()


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_halves_are_balanced_disjoint_and_always_the_same(real):
    assert real.images.shape == (5000, 1, 16, 16)
    assert (real.images.min(), real.images.max()) == (0.0, 1.0)
    one, other = data.halves(real)
    for half in (one, other):
        assert np.bincount(half.classes).tolist() == [250] * 10
    assert not {image.tobytes() for image in one.images} & {image.tobytes() for image in other.images}
    assert np.array_equal(data.halves(real)[0].images, one.images)
    assert sorted(network.TRAINING + network.HELD_OUT) == list(range(10))


def test_an_odd_number_of_digits_is_refused():
    with pytest.raises(InputError, match="must have an even number of each class"):
        data.halves(data.Digits(np.zeros((3, 1, 16, 16), np.float32), np.array([1, 1, 1])))


def test_the_shipped_weights_are_small_and_plain_diffusers_reads_them(denoiser):
    files = [file for file in network.WEIGHTS.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 2_000_000
    plain = UNet2DModel.from_pretrained(network.WEIGHTS / "denoiser")
    x, t, classes = (
        torch.randn(3, 1, 16, 16, generator=generator()),
        torch.tensor([0, 500, 999]),
        torch.tensor([0, 9, 10]),
    )
    with torch.no_grad():
        assert torch.equal(denoiser(x, t, classes), plain(x, t, class_labels=classes).sample)
    assert not denoiser.training
    assert all(parameter.dtype == torch.float32 for parameter in denoiser.parameters())


def test_no_ddim_step_dominates():
    """The KL weights of steps lie where the notes at the module say."""
    process = AffineSteps.ddim_from_scheduler(network.schedule(), STEPS)
    assert process.steps == 12
    assert (min(process.weight), max(process.weight)) == pytest.approx((0.36, 0.87), abs=0.01)
    assert process.signal_scale[0] ** 2 == pytest.approx(0.0047, abs=1e-4)


def test_the_denoiser_predicts_the_noise(real, denoiser):
    """Its error on real digits of the classifier's half is far below 1, the error of predicting zero."""
    unseen = data.halves(real)[1]
    rows = np.arange(0, 2500, 25)
    x, classes = 2 * torch.from_numpy(unseen.images[rows]) - 1, torch.from_numpy(unseen.classes[rows])
    kept = network.schedule().alphas_cumprod
    errors = []
    for step in (100, 300, 600):
        noise = torch.randn(x.shape, generator=generator())
        noisy = kept[step].sqrt() * x + (1 - kept[step]).sqrt() * noise
        with torch.no_grad():
            errors.append((denoiser(noisy, torch.full((100,), step), classes) - noise).square().mean().item())
    assert errors[0] < 0.3
    assert sorted(errors, reverse=True) == errors, "the more noise there is, the better it is predicted"
    assert errors[-1] < 0.05


def test_samples_are_what_was_asked_for_and_about_as_different_as_real_digits(real, denoiser):
    classes = np.repeat(np.arange(10), 12)
    images = sample(denoiser, classes.tolist(), generator())
    assert images.shape == (120, 1, 16, 16)
    assert images.dtype == np.float32
    assert classifier.pretrained().is_correct(images, classes).mean() > 0.9
    assert diversity(images, classes) > 0.75 * diversity(*real)


def test_one_generator_gives_the_same_samples_and_guidance_costs_a_second_evaluation(denoiser):
    calls = []

    def counting(x, t, classes):
        calls.append(classes.tolist())
        return denoiser(x, t, classes)

    plain = sample(counting, [3, 4], generator(), steps=3)
    assert len(calls) == 3
    assert np.array_equal(plain, sample(denoiser, [3, 4], generator(), steps=3))
    guided = sample(counting, [3, 4], generator(), steps=3, guidance=2.0)
    assert calls[3:] == [[3, 4], [10, 10]] * 3
    assert not np.array_equal(plain, guided)
    unconditional = sample(denoiser, [10, 10], generator(), steps=3)
    assert np.allclose(unconditional, sample(denoiser, [3, 4], generator(), steps=3, guidance=0.0), atol=1e-6)


def test_what_cannot_be_sampled_is_refused(denoiser):
    with pytest.raises(InputError, match="classes: at least one is needed"):
        sample(denoiser, [], generator())
    with pytest.raises(InputError, match=r"classes: must be 0..9, or 10 for none of them, not \[11\]"):
        sample(denoiser, [11], generator())


def test_the_classifier_reads_digits_that_it_was_not_trained_on(real):
    unseen = data.halves(real)[0]
    assert classifier.pretrained().is_correct(*unseen).mean() > 0.96
    assert np.allclose(classifier.pretrained().probabilities(unseen.images[:7]).sum(axis=1), 1.0)


def test_diversity_is_zero_for_copies_and_linear_in_contrast(real):
    images, classes = real.images[::50], real.classes[::50]
    assert diversity(np.repeat(images, 2, axis=0), np.arange(200) // 2) == 0.0
    assert diversity(images / 2, classes) == pytest.approx(diversity(images, classes) / 2, rel=1e-6)
    shuffled = np.random.default_rng(0).permutation(len(images))
    assert diversity(images[shuffled], classes[shuffled]) == pytest.approx(diversity(images, classes))


@pytest.mark.parametrize(
    ("images", "classes", "message"),
    [
        (np.zeros((2, 1, 28, 28)), [1, 1], r"must have shape \[n, 1, 16, 16\]"),
        (np.full((2, 1, 16, 16), -1.0), [1, 1], r"must lie in \[0, 1\]"),
        (np.zeros((2, 1, 16, 16)), [1], "need as many"),
        (np.zeros((2, 1, 16, 16)), [1, 2], "at least two images of each condition"),
    ],
)
def test_images_of_other_shapes_and_ranges_are_refused(images, classes, message):
    measure = diversity if "two images" in message else classifier.pretrained().is_correct
    with pytest.raises(InputError, match=message):
        measure(images, np.array(classes))


def test_weights_that_are_missing_or_truncated_are_named(tmp_path):
    with pytest.raises(StoreError, match=r"weights of the denoiser are missing: .*config.json.*train.py --out DIR"):
        network.pretrained(tmp_path)
    with pytest.raises(StoreError, match=r"weights of the classifier are missing: .*train.py --out DIR"):
        classifier.pretrained(tmp_path / "classifier.safetensors")
    shutil.copytree(network.WEIGHTS, tmp_path / "weights")
    for file in (tmp_path / "weights").rglob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(StoreError, match=r"weights of the denoiser in .* are damaged"):
        network.pretrained(tmp_path / "weights" / "denoiser")
    with pytest.raises(StoreError, match=r"weights of the classifier in .* are damaged"):
        classifier.pretrained(tmp_path / "weights" / "classifier.safetensors")


def test_another_network_is_refused(tmp_path, denoiser):
    shutil.copytree(network.WEIGHTS / "denoiser", tmp_path / "denoiser")
    config = json.loads((tmp_path / "denoiser" / "config.json").read_text())
    (tmp_path / "denoiser" / "config.json").write_text(json.dumps(config | {"sample_size": 32}))
    with pytest.raises(InputError, match="has another network"):
        network.pretrained(tmp_path / "denoiser")


def test_what_is_saved_loads_again(tmp_path, denoiser):
    denoiser.save(tmp_path / "denoiser")
    again = network.pretrained(tmp_path / "denoiser")
    assert all(torch.equal(a, b) for a, b in zip(denoiser.parameters(), again.parameters(), strict=True))


@pytest.fixture
def few():
    images = np.random.default_rng(0).random((20, 1, 16, 16), np.float32)
    return data.Digits(images, np.arange(20) % 10)


def weights(state):
    return [*state.denoiser.parameters(), *state.average.values()]


def test_a_resumed_training_is_the_uninterrupted_one(few, tmp_path):
    whole = training.train(training.start(1), few, seed=1, steps=4)
    half = training.train(training.start(1), few, seed=1, steps=4, stop=lambda step: step == 2)
    training.save(half, 1, 4, tmp_path / "state.safetensors")
    resumed = training.train(training.restore(tmp_path / "state.safetensors", 1, 4), few, seed=1, steps=4)
    assert (half.step, resumed.step) == (2, 4)
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(resumed), strict=True))
    other = training.train(training.start(2), few, seed=2, steps=4)
    assert not torch.equal(weights(whole)[0], weights(other)[0])


def test_nothing_global_is_seeded_or_drawn_from(few):
    before = torch.get_rng_state()
    training.train(training.start(0), few, seed=0, steps=1)
    training.train_classifier(few, seed=0, steps=1)
    sample(training.untrained_denoiser(generator(), widths=(8, 8)), [1], generator(), steps=1)
    assert torch.equal(before, torch.get_rng_state())


def test_a_batch_is_signal_and_noise_of_total_variance_one():
    kept = torch.linspace(0.99, 0.01, 1000)
    x, classes = torch.randn(500, 1, 16, 16, generator=generator()), torch.arange(500) % 10
    noisy, t, labels, noise = training.noisy_batch(Key.from_seed(0), x, classes, kept)
    assert noisy.shape == noise.shape == (64, 1, 16, 16)
    assert noisy.var().item() == pytest.approx(1.0, abs=0.05)
    clean = (noisy - (1 - kept[t]).sqrt()[:, None, None, None] * noise) / kept[t].sqrt()[:, None, None, None]
    distances = (clean[:, None] - x[None]).flatten(2).norm(dim=2)
    assert distances.min(dim=1).values.max() < 1e-2, "without the noise it is one of the images"
    own = classes[distances.argmin(dim=1)]
    assert ((labels == own) | (labels == network.UNCONDITIONAL)).all()


def test_a_state_of_another_training_is_refused(few, tmp_path):
    file = tmp_path / "state.safetensors"
    training.save(training.train(training.start(1), few, seed=1, steps=1), 1, 1, file)
    with pytest.raises(StoreError, match="was saved with --seed 1 --steps 1; use another --out"):
        training.restore(file, 2, 1)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(StoreError, match=r"is damaged .*; remove it to start again"):
        training.restore(file, 1, 1)


def test_grids_show_the_pixels_and_are_reproducible(tmp_path):
    images, classes = np.random.default_rng(0).random((8, 1, 16, 16)), np.repeat([3, 7], 4)
    scores = np.linspace(0, 1, 8)
    samples = Samples(images, classes, scores)
    alone = image_grid.grid(samples, columns=4, title="before")
    corner = (image_grid.LEFT, image_grid.HEAD)
    size = 16 * image_grid.ZOOM
    crop = np.asarray(alone.crop((*corner, corner[0] + size, corner[1] + size)).convert("L"))
    assert np.array_equal(crop[:: image_grid.ZOOM, :: image_grid.ZOOM], np.round(255 * images[0, 0]).astype(np.uint8))
    both = image_grid.side_by_side({"before": samples, "after": samples}, columns=4)
    assert both.width == 2 * alone.width + 2 * image_grid.GAP
    assert np.array_equal(np.asarray(both)[:, : alone.width], np.asarray(alone))
    for name in ("a.png", "b.png"):
        image_grid.save_png(both, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with Image.open(tmp_path / "a.png") as read:
        assert read.size == both.size


def test_grids_show_words_and_large_images_at_their_size():
    images = np.random.default_rng(0).random((2, 3, 40, 40), np.float32)
    samples = Samples(images, np.array(["cat", "owl"]), np.array([5.5, 6.5]))
    shown = image_grid.grid(samples, columns=1)
    assert shown.width == image_grid.LEFT + 40 + image_grid.GAP
    pixels = np.asarray(shown)[image_grid.HEAD : image_grid.HEAD + 40, image_grid.LEFT : image_grid.LEFT + 40]
    assert np.array_equal(pixels, np.round(255 * images[0]).astype(np.uint8).transpose(1, 2, 0))


def test_grids_of_inconsistent_samples_are_refused():
    images, classes, scores = np.zeros((4, 1, 16, 16)), np.array([1, 1, 2, 2]), np.zeros(4)
    with pytest.raises(InputError, match="4 images need as many conditions and scores, not 4 and 3"):
        image_grid.grid(Samples(images, classes, scores[:3]))
    one, other = Samples(images, classes, scores), Samples(images, classes + 1, scores)
    with pytest.raises(InputError, match="all must show the same conditions"):
        image_grid.side_by_side({"before": one, "after": other})
    with pytest.raises(InputError, match="at least one group"):
        image_grid.side_by_side({})
    with pytest.raises(InputError, match="columns: must be at least 1"):
        image_grid.grid(one, columns=0)

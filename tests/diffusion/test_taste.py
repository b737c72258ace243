"""The hidden preference: noisy labels, the exact ellipsoid of its reward model, and runs on it."""

import numpy as np
import pytest
import torch
from short_runs import lines_of, loop_of, seiko

from purectrl.algorithms import named
from purectrl.core import InputError, Key, UnsupportedError
from purectrl.core.samplers import Equidistant
from purectrl.diffusion.models import equal
from purectrl.diffusion.process import torch_generator
from purectrl.diffusion.settings import FinetuneSettings, RewardModelSettings, Seiko
from purectrl.diffusion.taste import Taste, calibration_embeddings, embedding
from purectrl.diffusion.uncertainty import elliptical_norm, fit_ridge
from purectrl.problems.digit_images import digits
from purectrl.problems.taste_images import taste

KEY = Key.from_seed(0)
SMALL = {"denoising_steps": 4, "eval_images": 2}


def images(n, seed=0):
    return torch.rand(n, 1, 16, 16, generator=torch_generator(Key.from_seed(seed)))


def linear_data(n, d=6, noise=0.5, seed=0):
    generator = torch_generator(Key.from_seed(seed))
    theta = torch.randn(d, generator=generator, dtype=torch.float64)
    features = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return features, features @ theta + noise * torch.randn(n, generator=generator, dtype=torch.float64), theta


def test_the_preference_is_linear_in_the_embedding_with_unit_scale_on_pretrained_images():
    hidden = Taste(3, noise=0.5)
    values = calibration_embeddings() @ hidden.weights - hidden.offset
    assert values.mean().item() == pytest.approx(0, abs=1e-4)
    assert values.std().item() == pytest.approx(1, rel=1e-4)
    some = images(5)
    assert hidden.true(some.numpy()) == pytest.approx(
        (embedding()(some) @ hidden.weights).numpy() - hidden.offset, rel=1e-4
    )
    assert embedding()(some).norm(dim=1).tolist() == pytest.approx([16.0] * 5, rel=1e-5)
    other = Taste(4, noise=0.5)
    assert not torch.allclose(other.weights, hidden.weights)


def test_labels_have_their_noise_and_the_same_call_has_the_same_labels():
    hidden, some = Taste(0, noise=0.5), images(400).numpy()
    labels = hidden(some, [0] * 400)
    residual = labels - hidden.true(some)
    assert residual.std() == pytest.approx(0.5, rel=0.15)
    assert np.array_equal(labels, hidden(some, [0] * 400))
    twice = hidden(np.repeat(some[:1], 3, axis=0), [0] * 3)
    assert len(set(twice)) == 3, "asked again, a person answers differently"
    assert np.array_equal(Taste(0, noise=0.0)(some, [0] * 400), hidden.true(some))


def test_ridge_regression_is_the_closed_form_and_its_noise_is_estimated():
    features, r, _ = linear_data(400)
    found = fit_ridge(features, r)
    A = found.ridge * torch.eye(6, dtype=torch.float64) + features.T @ features
    assert torch.allclose(found.theta, torch.linalg.solve(A, features.T @ r))
    assert torch.allclose(found.factor @ found.factor.T, A)
    assert found.noise == pytest.approx(0.5, rel=0.1)


def test_the_ellipsoid_contains_the_truth_as_often_as_it_says():
    """And every interval φᵀθ̂ ± width contains φᵀθ where the ellipsoid contains θ."""
    inside = 0
    for seed in range(200):
        features, r, theta = linear_data(40, seed=seed)
        found = fit_ridge(features, r, confidence=0.9)
        distance = torch.linalg.vector_norm(found.factor.T @ (theta - found.theta))
        inside += bool(distance <= found.radius)
        if distance <= found.radius:
            width = elliptical_norm(found.factor / found.radius, features)
            assert ((features @ (theta - found.theta)).abs() <= width + 1e-9).all()
    assert inside >= 0.9 * 200


def test_generalised_cross_validation_shrinks_what_is_noise_alone():
    generator = torch_generator(KEY)
    features = torch.randn(60, 30, generator=generator, dtype=torch.float64)
    noise = torch.randn(60, generator=generator, dtype=torch.float64)
    exact = features @ torch.ones(30, dtype=torch.float64)
    assert fit_ridge(features, noise).ridge > 30
    assert fit_ridge(features, exact).ridge < 1
    assert fit_ridge(features, noise).theta.norm() < 0.5 * (torch.linalg.lstsq(features, noise).solution).norm()


def test_a_run_on_a_preference_evaluates_without_noise_and_resumes_bit_for_bit(tmp_path):
    problem = taste(1, **SMALL).open(tmp_path)
    learner = Seiko(
        RewardModelSettings(fit="ridge", loss="mse", bonus_scale=0.05), FinetuneSettings(iterations=2, batch_size=4)
    )
    loop = loop_of(problem, 48, sampler=Equidistant(m=4), learner=learner)
    whole, lines = lines_of(problem, loop)
    assert sum(line["queries"] for line in lines) == 48, "noisy labels are asked each time"
    assert {"ridge", "radius", "label_noise", "reward_error_final"} <= lines[0].keys()
    state, _ = loop.step(loop.init(Key.from_seed(0)))
    again = loop_of(taste(1, **SMALL), 48, sampler=Equidistant(m=4), learner=learner)
    resumed, _ = again.step(state)
    assert equal(resumed.learner.params, whole.learner.params)
    samples = problem.sample(problem.pretrained, KEY, 2)
    assert np.allclose(samples.scores, Taste(1, 0.5).true(samples.images))


def test_the_algorithms_use_the_exact_model_there():
    problem = taste(**SMALL)
    assert named("pure-seiko", problem).learner.reward_model.fit == "ridge"
    assert named("draft", problem).learner.gradient == "reward"


def test_ridge_needs_an_embedding_and_squared_errors():
    where = digits(lambda images, conditions: [0.5] * len(images), **SMALL)
    with pytest.raises(
        UnsupportedError, match=r"reward_model.fit: ridge needs an embedding of images, 'digits' has none"
    ):
        loop_of(where, learner=seiko({"fit": "ridge", "loss": "mse"}))
    with pytest.raises(
        UnsupportedError, match=r"reward_model.loss: ridge regression minimises squared errors; use mse"
    ):
        loop_of(taste(**SMALL), learner=seiko({"fit": "ridge"}))


def test_digits_can_leave_out_the_class_that_the_recogniser_does_not_read():
    found = digits(lambda images, conditions: [0.5] * len(images), left_out=(1,), **SMALL)
    assert found.conditions == (0, 2, 3, 4, 7, 8, 9)
    assert found.eval_conditions == (0, 2, 3, 4, 5, 6, 7, 8, 9)
    for wrong, message in [((5, 6), "at least one measured and one held-out"), ((11,), r"must be digits, not \[11\]")]:
        with pytest.raises(InputError, match=f"left_out: {message}"):
            digits("jpeg", left_out=wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"preference": -1}, "preference: must be a non-negative integer, not -1"),
        ({"label_noise": -0.5}, "label_noise: must not be negative, got -0.5"),
        ({"denoising_steps": 0}, "denoising_steps: must be between 1 and 1000, not 0"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        taste(**arguments)

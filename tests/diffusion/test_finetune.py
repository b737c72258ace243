"""The update of (f, q): divergences that are zero where they must be, gradients that agree, one truncation per chunk."""

import dataclasses
import itertools
import math

import pytest
import torch
from tiny import CLASSES, SHAPE, Network, finetune_settings, model, moved, process
from torch import nn

from purectrl.core import InputError, Key
from purectrl.diffusion import FinetuneSettings
from purectrl.diffusion.finetune import (
    LEARNING_RATE_SCHEDULES,
    Reference,
    finetune,
    kl_references,
    path_kl,
    sample_kl_steps,
    sample_truncation,
    simulate,
    split_chunks,
)
from purectrl.diffusion.models import GuidedDiffusion, Params, equal, tensors, trainable_copy
from purectrl.diffusion.process import Gaussian, path, torch_generator
from purectrl.diffusion.reward_model import Score
from purectrl.diffusion.rollout import noisy_state, predicted_x0

KEY = Key.from_seed(0)


def bright(x, condition, t=1.0):
    """The brighter, the better."""
    mean = x.flatten(1).mean(1)
    return Score(mean, torch.zeros_like(mean))


def guided(tiny, guidance=1.0):
    return GuidedDiffusion(tiny, process(), guidance)


def gradients(settings, tiny, start, references, seed=0, guidance=1.0):
    current = trainable_copy(start)
    generator = torch_generator(Key.from_seed(seed))
    seen = simulate(settings, guided(tiny, guidance), current, references, tiny.encode([0, 1, 2, 0]), generator)
    (bright(seen.x, None).mean.mean() - sum(0.01 * kl for kl in seen.divergences)).backward()
    return seen, [tensor.grad for tensor in tensors(current)]


def fresh():
    """A model whose network still requires gradients, so that it can be copied with other settings."""
    tiny = model()
    tiny.network.requires_grad_()
    return tiny


class Constant(nn.Module):
    """Sees the same noise everywhere."""

    def __init__(self):
        super().__init__()
        self.level = nn.Linear(1, 1, bias=False)

    def forward(self, x, steps, classes):
        return self.level(torch.ones_like(x)[..., None])[..., 0]


def finetuned(tiny, previous, pretrained, guidance=1.0, score=bright, **settings):
    settings = finetune_settings(**{"iterations": 1, **settings})
    return finetune(settings, guided(tiny, guidance), score, previous, pretrained, tiny.encode(range(CLASSES)), KEY)


@pytest.mark.parametrize("draws", [None, 3])
def test_the_divergence_to_a_just_promoted_iterate_is_zero_and_so_is_its_gradient(draws):
    tiny = model()
    pretrained = tiny.pretrained()
    promoted = moved(pretrained)
    settings = FinetuneSettings(kl_samples=draws)
    seen, with_it = gradients(settings, tiny, promoted, [Reference("previous", promoted, 1.0)])
    assert seen.divergences[0].item() == 0
    _, without = gradients(settings, tiny, promoted, [])
    if draws is None:  # then a reference draws no random numbers
        assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(with_it, without, strict=True) if a is not None)
    away, _ = gradients(settings, tiny, promoted, [Reference("pretrained", pretrained, 1.0)])
    assert away.divergences[0].item() > 0


def test_the_first_iteration_of_an_update_has_no_divergence():
    tiny = model()
    pretrained = tiny.pretrained()
    first = finetuned(tiny, pretrained, pretrained)
    assert first.info["divergence_pretrained"] == 0
    second = finetuned(tiny, first.params, pretrained)
    assert second.info["divergence_previous"] == 0
    assert second.info["divergence_pretrained"] > 0
    assert not equal(first.params, pretrained)


def test_the_divergence_covers_all_steps_and_q():
    """Two denoisers that differ by a constant c have Σ_k weight_k · c² · dimensions, whatever the path."""
    tiny = model(network=Constant)
    one = tiny.pretrained()
    other = Params({"level.weight": one.weights["level.weight"] + 0.1}, Gaussian(torch.ones(SHAPE), torch.zeros(SHAPE)))
    expected = 16 * 0.01 * sum(process().weight) + 16 / 2
    condition = tiny.encode([0, 1])
    assert path_kl(guided(tiny), one, other, condition, KEY) == pytest.approx(expected, rel=1e-4)
    # gradients through the last step alone, steps drawn by their weight: here without variance
    settings = FinetuneSettings(max_backprop_steps=1, kl_samples=2)
    references = [Reference("other", other, 1.0)]
    seen = simulate(settings, guided(tiny), trainable_copy(one), references, condition, torch_generator(KEY))
    assert seen.divergences[0].item() == pytest.approx(expected, rel=1e-4)
    level = trainable_copy(one)
    seen = simulate(settings, guided(tiny), level, references, condition, torch_generator(KEY))
    seen.divergences[0].backward()
    # d/dc of the sum: it includes steps before the truncation
    assert level.weights["level.weight"].grad.item() == pytest.approx(-2 * 16 * 0.1 * sum(process().weight), rel=1e-4)


def test_drawn_steps_sum_to_the_whole_on_average():
    """The estimator is unbiased: the mean of Σ counted_k · v_k over draws is Σ v_k."""
    steps = process(steps=8)
    values = [weight * (1 + k) for k, weight in enumerate(steps.weight)]
    generator = torch_generator(KEY)
    sums = [sum(counts * values[k] for k, counts in sample_kl_steps(4, steps, generator).items()) for _ in range(3000)]
    mean, deviation = torch.tensor(sums).mean().item(), torch.tensor(sums).std().item()
    assert abs(mean - sum(values)) < 4 * deviation / math.sqrt(3000)
    assert sample_kl_steps(None, steps, generator) == dict.fromkeys(range(8), 1.0)


@pytest.mark.parametrize("guidance", [1.0, 2.0])
def test_gradients_with_and_without_checkpointing_agree(guidance):
    tiny = model()
    pretrained = tiny.pretrained()
    previous = moved(pretrained, seed=1)
    references = kl_references(pretrained, previous, 0.1, 0.2)
    start = moved(pretrained, seed=2)
    plain, again = (
        gradients(FinetuneSettings(checkpointing=on), tiny, start, references, guidance=guidance)
        for on in (False, True)
    )
    assert torch.equal(plain[0].x, again[0].x)
    for one, other in zip(plain[1], again[1], strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)


def test_backpropagation_is_the_derivative_of_the_objective():
    """Against central differences, in double precision, through the whole path and all steps of the divergence."""
    tiny = model(network=lambda: Network().double())
    shape = lambda tensor: tensor.double()  # noqa: E731
    convert = lambda it: Params({n: shape(w) for n, w in it.weights.items()}, Gaussian(*map(shape, it.initial)))  # noqa: E731
    pretrained = convert(tiny.pretrained())
    start = moved(pretrained, seed=2)
    settings = FinetuneSettings(min_backprop_steps=5, kl_samples=None)
    references = [Reference("pretrained", pretrained, 1.0)]

    def value(params):
        condition = tiny.encode([0, 1, 2, 0])
        seen = simulate(settings, guided(tiny), params, references, condition, torch_generator(KEY))
        return (bright(seen.x, None).mean.mean() - 0.01 * seen.divergences[0]).item()

    _, found = gradients(settings, tiny, start, references)
    direction = [torch.randn(t.shape, generator=torch_generator(KEY), dtype=t.dtype) for t in tensors(start)]
    slope = sum(float((g * d).sum()) for g, d in zip(found, direction, strict=True))

    def shifted(size):
        names = sorted(start.weights)
        *weights, mean, scale = [t + size * d for t, d in zip(tensors(start), direction, strict=True)]
        return Params(dict(zip(names, weights, strict=True)), Gaussian(mean, scale))

    assert slope == pytest.approx((value(shifted(1e-5)) - value(shifted(-1e-5))) / 2e-5, rel=1e-5)


class StepByStep(nn.Module):
    """One parameter for each denoising step, so that the gradient shows which steps were backpropagated through."""

    def __init__(self):
        super().__init__()
        self.levels = nn.Embedding(1000, 1)

    def forward(self, x, steps, classes):
        return 0.5 * x + self.levels(steps)[:, :, None, None]


def reached(settings, seed):
    """Which steps have a gradient, for one trajectory."""
    tiny = model(network=StepByStep)
    current = trainable_copy(tiny.pretrained())
    seen = simulate(settings, guided(tiny), current, [], tiny.encode([0]), torch_generator(Key.from_seed(seed)))
    bright(seen.x, None).mean.sum().backward()
    moved_q = current.initial.mean.grad is not None
    return [bool(current.weights["levels.weight"].grad[s]) for s in process().timesteps], moved_q


def test_the_truncation_is_drawn_once_per_chunk():
    """Gradients at all steps from the truncation on and at none before; q has one if the whole path has."""
    lengths = []
    for seed in range(40):
        steps, moved_q = reached(FinetuneSettings(), seed)
        assert steps == sorted(steps)
        assert steps[-1]
        assert moved_q == all(steps)
        lengths.append(sum(steps))
    assert set(lengths) == {1, 2, 3, 4, 5}
    assert {
        sum(reached(FinetuneSettings(min_backprop_steps=2, max_backprop_steps=3), seed)[0]) for seed in range(20)
    } == {2, 3}


def test_the_riemann_sum_is_the_mean_of_the_reward_at_its_times():
    """With one point it is r̂(x(T)); with S points, the mean over all states after x(0)."""
    tiny = model()
    start = moved(tiny.pretrained())
    condition, diffusion = tiny.encode([0, 1]), guided(tiny)
    generator = torch_generator(KEY)
    settings = FinetuneSettings(reward_points=5, min_backprop_steps=5)
    seen = simulate(settings, diffusion, start, [], condition, generator)
    generator = torch_generator(KEY)
    sample_truncation(settings, 5, generator)
    denoise = diffusion.denoiser(start.weights, condition)
    states = [step.x for step in path(process(), denoise, start.initial.sample(2, generator), generator)]
    assert [t for t, _ in seen.measured] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert all(torch.equal(state, x) for (_, state), x in zip(seen.measured, states[1:], strict=True))
    one = simulate(FinetuneSettings(), diffusion, start, [], condition, torch_generator(KEY))
    assert len(one.measured) == 1
    assert torch.equal(one.measured[0][1], one.x)


def test_the_riemann_sum_of_predicted_images_sees_what_the_rollout_measures():
    tiny = model()
    start, condition = moved(tiny.pretrained()), tiny.encode([0, 1])
    settings = FinetuneSettings(reward_points=2, min_backprop_steps=5)
    seen = simulate(settings, guided(tiny), start, [], condition, torch_generator(KEY), predicted_x0)
    generator = torch_generator(KEY)
    sample_truncation(settings, 5, generator)
    denoise = guided(tiny).denoiser(start.weights, condition)
    steps = list(path(process(), denoise, start.initial.sample(2, generator), generator))
    assert [t for t, _ in seen.measured] == [0.6, 1.0]
    assert torch.equal(seen.measured[0][1], predicted_x0(process(), steps[3]))


def test_the_gradient_of_the_riemann_sum_is_the_mean_of_gradients():
    """A reward that counts only at one time t has 1/n of its gradient, and at the end the gradient of n = 1."""
    tiny = model(network=StepByStep)
    pretrained = tiny.pretrained()

    def gradient(points, at):
        score = lambda x, condition, t: bright(x if abs(t - at) < 1e-6 else 0.0 * x, condition)  # noqa: E731
        rates = {"alpha": 0.0, "beta": 0.0, "learning_rate": 1.0, "initial_learning_rate": 0.0, "gradient_clip": 1e9}
        found = gradients_of_chunk(tiny, score, pretrained, reward_points=points, min_backprop_steps=5, **rates)
        return found["levels.weight"]

    whole, fifth, early = gradient(1, 1.0), gradient(5, 1.0), gradient(5, 0.4)
    assert torch.allclose(fifth, whole / 5)
    reached = [bool(early[s]) for s in process().timesteps]
    assert reached == [True, True, False, False, False], "x(2T/5) depends on the first two steps alone"


def gradients_of_chunk(tiny, score, params, **settings):
    from purectrl.diffusion.finetune import gradients as chunk_gradients

    settings = finetune_settings(**{"batch_size": 2, **settings})
    condition, index = tiny.encode(range(CLASSES)), torch.tensor([0, 1])
    found = chunk_gradients(
        settings, guided(tiny), score, noisy_state, [], condition, params, index, torch_generator(KEY)
    )
    return dict(zip(sorted(params.weights), found.gradients, strict=False))


def test_the_learning_rate_can_be_constant():
    assert [LEARNING_RATE_SCHEDULES["constant"](i, 10) for i in (0, 9)] == [1.0, 1.0]
    tiny = model()
    one, other = (
        finetuned(tiny, tiny.pretrained(), tiny.pretrained(), learning_rate_schedule=name).params
        for name in LEARNING_RATE_SCHEDULES
    )
    assert not equal(one, other)


def test_truncations_are_uniform():
    generator = torch_generator(KEY)
    counts = torch.bincount(torch.tensor([sample_truncation(FinetuneSettings(), 5, generator) for _ in range(5000)]))
    assert counts.shape == (5,)
    assert (counts - 1000).abs().max() < 4 * math.sqrt(1000 * 0.8)


def test_an_update_raises_the_objective_and_moves_q():
    tiny = model()
    pretrained = tiny.pretrained()
    rates = {"iterations": 40, "learning_rate": 3e-3, "initial_learning_rate": 1e-2}
    free = finetuned(tiny, pretrained, pretrained, alpha=0.0, beta=0.0, **rates)
    assert free.info["predicted_reward"] > free.info["predicted_reward_before"] + 0.1
    assert free.params.initial.kl(pretrained.initial) > 0
    assert "divergence_pretrained" in free.info
    regularised = finetuned(tiny, pretrained, pretrained, alpha=10.0, **rates)
    condition = tiny.encode(range(CLASSES))
    far, near = (path_kl(guided(tiny), f.params, pretrained, condition, KEY) for f in (free, regularised))
    assert near < 0.2 * far


def test_an_iteration_in_chunks_is_the_same_iteration():
    """With a divergence that does not depend on the path, chunks of any size give the same gradient."""
    tiny = model(network=Constant)
    pretrained = tiny.pretrained()
    nothing = lambda x, condition, t: Score(0.0 * x.flatten(1).mean(1), torch.ones(len(x)))  # noqa: E731
    whole, *parts = (
        finetuned(
            tiny,
            moved(pretrained),
            pretrained,
            score=nothing,
            batch_size=5,
            kl_samples=None,
            chunk_size=size,
            gradient_clip=1e9,
        )
        for size in (None, 1, 2, 5)
    )
    assert whole.info["predicted_bonus"] == 1
    for part in parts:
        assert part.info == pytest.approx(whole.info, rel=1e-4)
        assert part.info["update_evaluations"] == whole.info["update_evaluations"]


@pytest.mark.parametrize(("most", "expected"), [(1, 1), (2, 2), (3, 2), (4, 4), (100, 4)])
def test_the_chunk_size_is_found_by_trial(most, expected):
    """More than `most` trajectories at once do not fit."""

    def score(x, condition, t):
        if len(x) > most:
            raise torch.OutOfMemoryError("out of memory")
        return bright(x, condition)

    tiny = model()
    pretrained = tiny.pretrained()
    found = finetuned(tiny, pretrained, pretrained, score=score, batch_size=8, chunk_size=4, chunk_trial=True)
    assert found.info["chunk_size"] == expected
    same = finetuned(tiny, pretrained, pretrained, batch_size=8, chunk_size=expected)
    assert equal(found.params, same.params), "the trial leaves no trace"


def test_chunks_of_an_iteration_have_their_own_noise():
    parts = split_chunks(torch.arange(5), 2, torch_generator(KEY))
    assert [which.tolist() for which, _ in parts] == [[0, 1], [2, 3], [4]]
    assert len({seed for _, seed in parts}) == 3
    assert [seed for _, seed in parts] == [seed for _, seed in split_chunks(torch.arange(5), 2, torch_generator(KEY))]


def test_the_scale_of_the_loss_changes_nothing_that_is_learned():
    models = [dataclasses.replace(fresh(), loss_scale=scale) for scale in (1.0, 1024.0)]
    plain, scaled = (finetuned(tiny, tiny.pretrained(), tiny.pretrained()).params for tiny in models)
    assert equal(plain, scaled), "a power of two is exact"
    assert not equal(plain, models[0].pretrained())


def test_references_are_the_pretrained_and_the_previous_model():
    pretrained = model().pretrained()
    previous = moved(pretrained)
    both = kl_references(pretrained, previous, alpha=0.1, beta=0.5)
    assert [(reference.name, reference.weight) for reference in both] == [("pretrained", 0.1), ("previous", 0.5)]
    assert [r.weight for r in kl_references(pretrained, pretrained, 0.1, 0.5)] == [0.6]
    assert [r.name for r in kl_references(pretrained, previous, 0.0, 0.5)] == ["previous"]


def test_an_update_that_diverges_returns_the_previous_parameters():
    tiny = model()
    pretrained = tiny.pretrained()
    infinite = lambda x, condition, t: Score(x.flatten(1).mean(1) * math.inf, torch.zeros(len(x)))  # noqa: E731
    found = finetuned(tiny, pretrained, pretrained, score=infinite, iterations=35)
    assert not found.finite
    assert equal(found.params, pretrained)


def sometimes_infinite(every):
    """Scores that overflow once in `every` calls."""
    calls = itertools.count(1)

    def score(x, condition, t):
        return Score(x.flatten(1).mean(1) * (math.inf if next(calls) % every == 0 else 1.0), torch.zeros(len(x)))

    return score


@pytest.mark.parametrize(("every", "loss_scale", "finite"), [(10, 1024.0, True), (4, 1024.0, False), (10, 1.0, False)])
def test_in_half_precision_a_few_iterations_may_overflow(every, loss_scale, finite):
    tiny = dataclasses.replace(fresh(), loss_scale=loss_scale)
    pretrained = tiny.pretrained()
    found = finetuned(tiny, pretrained, pretrained, score=sometimes_infinite(every), iterations=20, batch_size=2)
    assert found.finite == finite
    assert equal(found.params, pretrained) == (not finite)
    assert all(map(math.isfinite, found.info.values()))


def test_evaluations_are_counted():
    tiny, calls = model(), []
    network = tiny.network.forward
    tiny.network.forward = lambda x, *rest: calls.append(len(x)) or network(x, *rest)
    pretrained = tiny.pretrained()
    for guidance in (1.0, 2.0):
        calls.clear()
        info = finetuned(tiny, moved(pretrained), pretrained, guidance, iterations=3).info
        assert info["update_evaluations"] == sum(calls)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"iterations": 0}, "iterations: must be between 1 and 1,000,000, not 0"),
        ({"learning_rate": 0.0}, "learning_rate: must be positive, not 0.0"),
        ({"alpha": -1.0}, "alpha: must not be negative, got -1.0"),
        ({"chunk_size": 0}, "chunk_size: must be between 1 and 1,000,000, not 0"),
        (
            {"min_backprop_steps": 3, "max_backprop_steps": 2},
            "max_backprop_steps: must be at least min_backprop_steps, 3",
        ),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        FinetuneSettings(**settings)

"""The update of (f, q): divergences that are zero where they must be, gradients that agree, one cut a trajectory."""

import itertools
import math

import pytest
import torch
from tiny import CLASSES, SHAPE, Network, model, moved, process
from torch import nn

from purectrl.core import InputError, Key
from purectrl.diffusion import Tuning, path_divergence, tune
from purectrl.diffusion.models import Iterate, leaves, same_numbers, tensors
from purectrl.diffusion.process import Gaussian, generator_of
from purectrl.diffusion.reward_model import Score
from purectrl.diffusion.update import Anchor, anchors_of, draw_cut, draw_parts, draw_steps, imagine

KEY = Key.from_seed(0)


def bright(x, condition):
    """The brighter, the better."""
    mean = x.flatten(1).mean(1)
    return Score(mean, torch.zeros_like(mean))


def gradients(tuning, tiny, start, anchors, seed=0):
    current = leaves(start)
    seen = imagine(
        tuning, tiny, process(), current, anchors, tiny.encode([0, 1, 2, 0]), generator_of(Key.from_seed(seed))
    )
    (bright(seen.x, None).mean.mean() - sum(0.01 * kl for kl in seen.divergences)).backward()
    return seen, [tensor.grad for tensor in tensors(current)]


class Constant(nn.Module):
    """Sees the same noise everywhere."""

    def __init__(self):
        super().__init__()
        self.level = nn.Linear(1, 1, bias=False)

    def forward(self, x, steps, classes):
        return self.level(torch.ones_like(x)[..., None])[..., 0]


def tuned(tiny, previous, pretrained, updates=0, **settings):
    tuning = Tuning(**{"iterations": 1, "batch": 4, **settings})
    return tune(tuning, tiny, process(), bright, previous, pretrained, tiny.encode(range(CLASSES)), updates, KEY)


@pytest.mark.parametrize("draws", [None, 3])
def test_the_divergence_to_a_just_promoted_iterate_is_zero_and_so_is_its_gradient(draws):
    tiny = model()
    pretrained = tiny.pretrained()
    promoted = moved(pretrained)
    tuning = Tuning(divergence_draws=draws)
    seen, with_it = gradients(tuning, tiny, promoted, [Anchor("previous", promoted, 1.0)])
    assert seen.divergences[0].item() == 0
    _, without = gradients(tuning, tiny, promoted, [])
    if draws is None:  # then an anchor draws no random numbers of its own
        assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(with_it, without, strict=True) if a is not None)
    away, _ = gradients(tuning, tiny, promoted, [Anchor("pretrained", pretrained, 1.0)])
    assert away.divergences[0].item() > 0


def test_the_first_iteration_of_an_update_has_no_divergence():
    tiny = model()
    pretrained = tiny.pretrained()
    first = tuned(tiny, pretrained, pretrained)
    assert first.info["divergence_pretrained"] == 0
    second = tuned(tiny, first.iterate, pretrained, updates=1)
    assert second.info["divergence_previous"] == 0
    assert second.info["divergence_pretrained"] > 0
    assert not same_numbers(first.iterate, pretrained)


def test_the_divergence_covers_all_steps_and_q():
    """Two denoisers that differ by a constant c have Σ_k weight_k · c² · dimensions, whatever the path."""
    tiny = model(network=Constant)
    one = tiny.pretrained()
    other = Iterate(
        {"level.weight": one.weights["level.weight"] + 0.1}, Gaussian(torch.ones(SHAPE), torch.zeros(SHAPE))
    )
    expected = 16 * 0.01 * sum(process().weight) + 16 / 2
    condition = tiny.encode([0, 1])
    assert path_divergence(tiny, process(), one, other, condition, KEY) == pytest.approx(expected, rel=1e-4)
    # one cut that lets only the last step through, steps drawn by their weight: here without variance
    tuning = Tuning(shortest=1, longest=1, divergence_draws=2)
    seen = imagine(tuning, tiny, process(), leaves(one), [Anchor("other", other, 1.0)], condition, generator_of(KEY))
    assert seen.divergences[0].item() == pytest.approx(expected, rel=1e-4)
    level = leaves(one)
    seen = imagine(tuning, tiny, process(), level, [Anchor("other", other, 1.0)], condition, generator_of(KEY))
    seen.divergences[0].backward()
    # d/dc of the sum: steps before the cut are in it
    assert level.weights["level.weight"].grad.item() == pytest.approx(-2 * 16 * 0.1 * sum(process().weight), rel=1e-4)


def test_drawn_steps_sum_to_the_whole_on_average():
    """The estimator is unbiased: the mean of Σ counted_k · v_k over draws is Σ v_k."""
    steps = process(steps=8)
    values = [weight * (1 + k) for k, weight in enumerate(steps.weight)]
    generator = generator_of(KEY)
    sums = [
        sum(counts * values[k] for k, counts in draw_steps(Tuning(divergence_draws=4), steps, generator).items())
        for _ in range(3000)
    ]
    mean, deviation = torch.tensor(sums).mean().item(), torch.tensor(sums).std().item()
    assert abs(mean - sum(values)) < 4 * deviation / math.sqrt(3000)
    assert draw_steps(Tuning(divergence_draws=None), steps, generator) == dict.fromkeys(range(8), 1.0)


@pytest.mark.parametrize("guidance", [1.0, 2.0])
def test_gradients_with_and_without_checkpointing_agree(guidance):
    tiny = model()
    pretrained = tiny.pretrained()
    previous = moved(pretrained, seed=1)
    anchors = anchors_of(pretrained, previous, 0.1, 0.2)
    start = moved(pretrained, seed=2)
    plain, again = (
        gradients(Tuning(checkpointing=on, guidance=guidance), tiny, start, anchors) for on in (False, True)
    )
    assert torch.equal(plain[0].x, again[0].x)
    for one, other in zip(plain[1], again[1], strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)


def test_backpropagation_is_the_derivative_of_the_objective():
    """Against central differences, in double precision, through the whole path and all steps of the divergence."""
    tiny = model(network=lambda: Network().double())
    shape = lambda tensor: tensor.double()  # noqa: E731
    convert = lambda it: Iterate({n: shape(w) for n, w in it.weights.items()}, Gaussian(*map(shape, it.initial)))  # noqa: E731
    pretrained = convert(tiny.pretrained())
    start = moved(pretrained, seed=2)
    tuning = Tuning(shortest=5, divergence_draws=None)
    anchors = [Anchor("pretrained", pretrained, 1.0)]

    def value(iterate):
        seen = imagine(tuning, tiny, process(), iterate, anchors, tiny.encode([0, 1, 2, 0]), generator_of(KEY))
        return (bright(seen.x, None).mean.mean() - 0.01 * seen.divergences[0]).item()

    _, found = gradients(tuning, tiny, start, anchors)
    direction = [torch.randn(t.shape, generator=generator_of(KEY), dtype=t.dtype) for t in tensors(start)]
    slope = sum(float((g * d).sum()) for g, d in zip(found, direction, strict=True))

    def shifted(size):
        names = sorted(start.weights)
        *weights, mean, scale = [t + size * d for t, d in zip(tensors(start), direction, strict=True)]
        return Iterate(dict(zip(names, weights, strict=True)), Gaussian(mean, scale))

    assert slope == pytest.approx((value(shifted(1e-5)) - value(shifted(-1e-5))) / 2e-5, rel=1e-5)


class StepByStep(nn.Module):
    """One parameter for each denoising step, so that the gradient shows which steps were backpropagated through."""

    def __init__(self):
        super().__init__()
        self.levels = nn.Embedding(1000, 1)

    def forward(self, x, steps, classes):
        return 0.5 * x + self.levels(steps)[:, :, None, None]


def reached(tuning, seed):
    """Which steps have a gradient, for one trajectory."""
    tiny = model(network=StepByStep)
    current = leaves(tiny.pretrained())
    seen = imagine(tuning, tiny, process(), current, [], tiny.encode([0]), generator_of(Key.from_seed(seed)))
    bright(seen.x, None).mean.sum().backward()
    moved_q = current.initial.mean.grad is not None
    return [bool(current.weights["levels.weight"].grad[s]) for s in process().timesteps], moved_q


def test_the_cut_is_drawn_once_a_trajectory():
    """All steps from the cut on, none before: a cut redrawn at every step would leave holes. q moves with the whole path."""
    lengths = []
    for seed in range(40):
        steps, moved_q = reached(Tuning(), seed)
        assert steps == sorted(steps)
        assert steps[-1]
        assert moved_q == all(steps)
        lengths.append(sum(steps))
    assert set(lengths) == {1, 2, 3, 4, 5}
    assert {sum(reached(Tuning(shortest=2, longest=3), seed)[0]) for seed in range(20)} == {2, 3}


def test_cuts_are_uniform():
    generator = generator_of(KEY)
    counts = torch.bincount(torch.tensor([draw_cut(Tuning(), 5, generator) for _ in range(5000)]))
    assert counts.shape == (5,)
    assert (counts - 1000).abs().max() < 4 * math.sqrt(1000 * 0.8)


def test_an_update_raises_the_objective_and_moves_q():
    tiny = model()
    pretrained = tiny.pretrained()
    free = tuned(
        tiny, pretrained, pretrained, iterations=40, rate=3e-3, initial_rate=1e-2, alpha=0.0, beta=lambda n: 0.0
    )
    assert free.info["imagined_reward"] > free.info["imagined_reward_before"] + 0.1
    assert free.iterate.initial.kl(pretrained.initial) > 0
    assert "divergence_pretrained" in free.info
    held = tuned(tiny, pretrained, pretrained, iterations=40, rate=3e-3, initial_rate=1e-2, alpha=10.0)
    condition = tiny.encode(range(CLASSES))
    far, near = (path_divergence(tiny, process(), t.iterate, pretrained, condition, KEY) for t in (free, held))
    assert near < 0.2 * far


def test_an_iteration_in_parts_is_the_same_iteration():
    """With a divergence that does not depend on the path, parts of any size pull exactly as much as the whole."""
    tiny = model(network=Constant)
    pretrained = tiny.pretrained()
    nothing = lambda x, condition: Score(0.0 * x.flatten(1).mean(1), torch.ones(len(x)))  # noqa: E731
    whole, *parts = (
        tune(
            Tuning(iterations=1, batch=5, divergence_draws=None, chunk=chunk, clip=1e9),
            *(tiny, process(), nothing, moved(pretrained), pretrained, tiny.encode(range(CLASSES)), 0, KEY),
        )
        for chunk in (None, 1, 2, 5)
    )
    assert whole.info["imagined_bonus"] == 1
    for part in parts:
        assert part.info == pytest.approx(whole.info, rel=1e-4)
        assert part.info["update_evaluations"] == whole.info["update_evaluations"]


def test_parts_of_an_iteration_have_noise_of_their_own():
    parts = draw_parts(torch.arange(5), 2, generator_of(KEY))
    assert [which.tolist() for which, _ in parts] == [[0, 1], [2, 3], [4]]
    assert len({seed for _, seed in parts}) == 3
    assert [seed for _, seed in parts] == [seed for _, seed in draw_parts(torch.arange(5), 2, generator_of(KEY))]


def test_the_scale_of_the_loss_changes_nothing_that_is_learned():
    tiny = model()
    pretrained = tiny.pretrained()
    plain, scaled = (tuned(tiny, pretrained, pretrained, loss_scale=scale) for scale in (1.0, 1024.0))
    assert same_numbers(plain.iterate, scaled.iterate), "a power of two is exact"
    assert not same_numbers(plain.iterate, pretrained)


def test_beta_follows_the_number_of_updates():
    tiny = model()
    pretrained = tiny.pretrained()
    previous, asked = moved(pretrained), []
    tuned(tiny, previous, pretrained, updates=3, beta=lambda n: asked.append(n) or 0.5)
    assert asked == [3]
    both = anchors_of(pretrained, previous, alpha=0.1, beta=0.5)
    assert [(anchor.name, anchor.strength) for anchor in both] == [("pretrained", 0.1), ("previous", 0.5)]
    assert [a.strength for a in anchors_of(pretrained, pretrained, 0.1, 0.5)] == [0.6]
    assert [a.name for a in anchors_of(pretrained, previous, 0.0, 0.5)] == ["previous"]


def test_an_update_that_diverges_gives_the_previous_iterate_back():
    tiny = model()
    pretrained = tiny.pretrained()
    endless = lambda x, condition: Score(x.flatten(1).mean(1) * math.inf, torch.zeros(len(x)))  # noqa: E731
    found = tune(Tuning(), tiny, process(), endless, pretrained, pretrained, tiny.encode(range(3)), 0, KEY)
    assert not found.finite
    assert same_numbers(found.iterate, pretrained)


def sometimes_endless(every):
    """A judge whose scores overflow at every so many calls."""
    calls = itertools.count(1)

    def judge(x, condition):
        return Score(x.flatten(1).mean(1) * (math.inf if next(calls) % every == 0 else 1.0), torch.zeros(len(x)))

    return judge


@pytest.mark.parametrize(("every", "loss_scale", "finite"), [(10, 1024.0, True), (4, 1024.0, False), (10, 1.0, False)])
def test_in_half_precision_a_few_iterations_may_overflow(every, loss_scale, finite):
    tiny = model()
    pretrained = tiny.pretrained()
    tuning, told = Tuning(iterations=20, batch=2, loss_scale=loss_scale), tiny.encode(range(3))
    found = tune(tuning, tiny, process(), sometimes_endless(every), pretrained, pretrained, told, 0, KEY)
    assert found.finite == finite
    assert same_numbers(found.iterate, pretrained) == (not finite)
    assert all(map(math.isfinite, found.info.values()))


def test_evaluations_are_counted():
    tiny, calls = model(), []
    network = tiny.network.forward
    tiny.network.forward = lambda x, *rest: calls.append(len(x)) or network(x, *rest)
    pretrained = tiny.pretrained()
    for guidance in (1.0, 2.0):
        calls.clear()
        info = tuned(tiny, moved(pretrained), pretrained, iterations=3, guidance=guidance).info
        assert info["update_evaluations"] == sum(calls)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"iterations": 0}, "iterations: must be at least 1, not 0"),
        ({"rate": 0.0}, "rate: must be positive, not 0.0"),
        ({"alpha": -1.0}, "alpha: cannot be negative, got -1.0"),
        ({"chunk": 0}, "chunk: must be at least 1, not 0"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        Tuning(**settings)

"""The update of (f, q): Algorithm 4, line 8, by backpropagation through the sampler.

    argmax  E[r̂(x(T)) + bonus] − α KL(P^{f,q} | P^{f₁,q₁}) − β KL(P^{f,q} | P^{f_n,q_n})

With `reward_points` n > 1, r̂(x(T)) is replaced by the Riemann sum (1/n) Σ_i r̂(x(iT/n)) of the appendix.

The divergence of two laws of paths is that of their initial distributions plus the sum over all steps. Backpropagation may
be truncated, the divergence is not: a step before the truncation still contributes its own term, otherwise the early steps
would be unconstrained. Evaluating all terms would cost more than the path itself, so steps are sampled in proportion to
their weight, and the sum is estimated without bias.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from purectrl.core.keys import Key
from purectrl.diffusion.distributed import SINGLE, Ranks, Tensors
from purectrl.diffusion.models import (
    Encoded,
    GuidedDiffusion,
    Params,
    count,
    detach,
    equal,
    take,
    tensors,
    trainable_copy,
)
from purectrl.diffusion.process import AffineSteps, Denoise, Step, torch_generator
from purectrl.diffusion.reward_model import Score
from purectrl.diffusion.rollout import Measure, noisy_state
from purectrl.diffusion.settings import FinetuneSettings

MAX_OVERFLOWS = 0.1
"""Fraction of the iterations of an update in half precision that may be skipped; beyond it the update has diverged."""
ScoreStates = Callable[[Tensor, Tensor, float], Score]
"""(measured states [n, *shape], index of the condition [n], t/T) -> r̂ and its bonus."""


class Reference(NamedTuple):
    """Parameters that the update is regularised towards, and the weight of the divergence from them."""

    name: str
    params: Params
    weight: float


class Trajectories(NamedTuple):
    """Simulated trajectories of the current parameters, differentiable in them."""

    x: Tensor
    """x(T) [n, *shape]."""
    measured: tuple[tuple[float, Tensor], ...]
    """(t/T, what is measured of x(t) [n, *shape]) at each time where r̂ is evaluated; the last is (1, x(T))."""
    divergences: tuple[Tensor, ...]
    """From each reference, a scalar each."""
    calls: int
    """Calls of the denoiser with the whole batch."""


def kl_references(pretrained: Params, previous: Params, alpha: float, beta: float) -> list[Reference]:
    """The references of an update. Before the first update both are the same and become one."""
    if equal(pretrained, previous):
        return [Reference("pretrained", pretrained, alpha + beta)]
    both = [Reference("pretrained", pretrained, alpha), Reference("previous", previous, beta)]
    return [reference for reference in both if reference.weight > 0]


def sample_truncation(settings: FinetuneSettings, steps: int, generator: torch.Generator) -> int:
    """The first step that gradients pass through, uniform among the allowed ones."""
    longest = steps if settings.max_backprop_steps is None else min(settings.max_backprop_steps, steps)
    shortest = min(settings.min_backprop_steps, longest)
    length = torch.randint(shortest, longest + 1, (), generator=generator, device=generator.device)
    return steps - int(length)


def sample_kl_steps(kl_samples: int | None, process: AffineSteps, generator: torch.Generator) -> dict[int, float]:
    """Steps at which the divergence is evaluated, with the factor of each in an unbiased estimate of the sum.

    Steps are drawn with probability p_k ∝ weight_k; the factor of a draw is 1/(kl_samples · p_k).
    """
    if kl_samples is None:
        return dict.fromkeys(range(process.steps), 1.0)
    p = torch.tensor(process.weight, dtype=torch.float64, device=generator.device)
    p = p / p.sum()
    drawn = torch.multinomial(p, kl_samples, replacement=True, generator=generator).tolist()
    return {k: drawn.count(k) / (kl_samples * float(p[k])) for k in sorted(set(drawn))}


def reward_steps(points: int, steps: int) -> tuple[int, ...]:
    """The denoising steps after which r̂ is evaluated: those of the times iT/n, each once.

    >>> reward_steps(4, steps=50), reward_steps(1, steps=12)
    ((13, 25, 38, 50), (12,))
    """
    return tuple(sorted({-(-i * steps // points) for i in range(1, points + 1)}))


def simulate(
    settings: FinetuneSettings,
    diffusion: GuidedDiffusion,
    current: Params,
    references: list[Reference],
    condition: Encoded,
    generator: torch.Generator,
    measure: Measure = noisy_state,
) -> Trajectories:
    """Trajectories under `current` for encoded conditions [n, ...], and the divergence of their law from each reference."""
    process = diffusion.process
    truncation = sample_truncation(settings, process.steps, generator)
    factors = sample_kl_steps(settings.kl_samples, process, generator) if references else {}
    step = _step(settings, process, diffusion.denoiser(current.weights, condition))
    others = [_step(settings, process, diffusion.denoiser(r.params.weights, condition)) for r in references]
    sums = [current.initial.kl(reference.params.initial) for reference in references]
    x = current.initial.sample(count(condition), generator)
    points, measured = reward_steps(settings.reward_points, process.steps), list[tuple[float, Tensor]]()
    for k in range(process.steps):
        x = x.detach() if k <= truncation and truncation > 0 else x
        with torch.set_grad_enabled(k >= truncation or k in factors):
            output, mean = step(x, k)
        if k in points:
            state = measure(process, Step(k, x, output))
            measured.append((k / process.steps, state if k >= truncation else state.detach()))
        if k in factors:
            with torch.set_grad_enabled(k >= truncation):  # before the truncation, a reference is a constant
                means = [other(x, k)[1] for other in others]
            kls = [factors[k] * process.kl(mean, other, k).mean() for other in means]
            sums = [total + kl for total, kl in zip(sums, kls, strict=True)]
        x = process.sample(mean, k, generator)
    calls = process.steps + len(factors) * len(references)
    return Trajectories(x, (*measured, (1.0, x)), tuple(sums), calls)


def _step(
    settings: FinetuneSettings, process: AffineSteps, denoise: Denoise
) -> Callable[[Tensor, int], tuple[Tensor, Tensor]]:
    """(x(t_k), k) -> the network's output and μ_k. Its parameters are replaced inside the checkpointed function, so that the
    recomputation uses the same ones."""

    def plain(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        output = denoise(x, process.timesteps[k])
        return output, process.mean(x, output, k)

    def checkpointed(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        if not torch.is_grad_enabled():
            return plain(x, k)
        result = checkpoint(plain, x, k, use_reentrant=False, preserve_rng_state=False)
        assert isinstance(result, tuple)
        return result

    return checkpointed if settings.checkpointing else plain


class FinetuneResult(NamedTuple):
    """What an update returns."""

    params: Params
    info: dict[str, float]
    finite: bool
    """Whether all numbers stayed finite; otherwise `params` are the previous ones."""


class GradientChunk(NamedTuple):
    """The contribution of some trajectories to an iteration, weighted by their share of the batch."""

    gradients: list[Tensor | None]
    """Of the loss, for each of `tensors(params)`."""
    metrics: list[float]
    """r̂, bonus, and the divergence from each reference."""
    evaluations: int
    """Evaluations of the network."""


Chunk = tuple[Tensor, int]
"""The index of the condition of each trajectory [n], and the seed of their noise."""


def gradients(
    settings: FinetuneSettings,
    diffusion: GuidedDiffusion,
    score: ScoreStates,
    measure: Measure,
    references: list[Reference],
    conditions: Encoded,
    params: Params,
    index: Tensor,
    generator: torch.Generator,
) -> GradientChunk:
    """Gradients at `params` from trajectories for the conditions `index` [n] of the encoded `conditions`."""
    share, current = len(index) / settings.batch_size, trainable_copy(params)
    scale = diffusion.model.loss_scale
    simulated = simulate(settings, diffusion, current, references, take(conditions, index), generator, measure)
    scores = [score(state, index, t) for t, state in simulated.measured]
    mean, bonus = (_mean([getattr(one, name).mean() for one in scores]) for name in Score._fields)
    kl_penalty = sum(r.weight * kl for r, kl in zip(references, simulated.divergences, strict=True))
    loss = kl_penalty - _mean([(one.mean + one.bonus).mean() for one in scores])
    (scale * share * loss).backward()
    metrics = [mean.detach(), bonus.detach(), *(kl.detach() for kl in simulated.divergences)]
    evaluations = simulated.calls * len(index) * diffusion.evaluations_per_step
    found = [None if t.grad is None else t.grad / scale for t in tensors(current)]
    return GradientChunk(found, [share * float(number) for number in metrics], evaluations)


def _mean(values: list[Tensor]) -> Tensor:
    return values[0] if len(values) == 1 else torch.stack(values).mean(0)


def finetune(
    settings: FinetuneSettings,
    diffusion: GuidedDiffusion,
    score: ScoreStates,
    previous: Params,
    pretrained: Params,
    conditions: Encoded,
    key: Key,
    ranks: Ranks = SINGLE,
    measure: Measure = noisy_state,
) -> FinetuneResult:
    """AdamW from `previous`, for encoded training conditions [conditions, ...] drawn uniformly.

    The divergence from the previous parameters and its gradient are zero at the first iteration. With `chunk_size`, the
    chunks of an iteration are shared by `ranks`.
    """
    device = diffusion.model.device
    generator = torch_generator(key, device)
    references = kl_references(detach(pretrained), detach(previous), settings.alpha, settings.beta)
    gradients_of = partial(gradients, settings, diffusion, score, measure, references, conditions)
    current = trainable_copy(previous)
    trained = tensors(current)
    rates = (settings.learning_rate, settings.initial_learning_rate)
    groups = [{"params": trained[:-2], "lr": rates[0]}, {"params": trained[-2:], "lr": rates[1]}]
    optimizer = torch.optim.AdamW(groups, weight_decay=settings.weight_decay, betas=(0.9, settings.adam_beta2))
    factor = LEARNING_RATE_SCHEDULES[settings.learning_rate_schedule]
    chunk_size = min(settings.chunk_size or settings.batch_size, settings.batch_size)
    if settings.chunk_trial:
        chunk_size = largest_chunk(partial(gradients_of, current), chunk_size, device, ranks)
    rows, evaluations, overflows = [], 0, 0
    for iteration in range(settings.iterations):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * factor(iteration, settings.iterations)
        index = torch.randint(count(conditions), (settings.batch_size,), generator=generator, device=device)
        if chunk_size == settings.batch_size:
            parts = [gradients_of(current, index, generator)]
        else:
            chunks = split_chunks(index, chunk_size, generator)
            parts = _sharded(ranks, partial(gradients_of, current), chunks, device)
        for tensor, *grads in zip(trained, *(part.gradients for part in parts), strict=True):
            tensor.grad = sum_gradients(grads)
        norm = torch.nn.utils.clip_grad_norm_(trained, settings.gradient_clip)
        rows.append([float(norm), *map(sum, zip(*(part.metrics for part in parts), strict=True))])
        evaluations += sum(part.evaluations for part in parts)
        if not all(map(math.isfinite, rows[-1])):
            rows.pop()
            overflows += 1
            if diffusion.model.loss_scale == 1.0 or overflows > MAX_OVERFLOWS * settings.iterations:
                return FinetuneResult(previous, {"update_evaluations": evaluations}, finite=False)
            continue
        optimizer.step()
    info = _summary(rows, references) | {"update_evaluations": evaluations}
    info |= {"chunk_size": chunk_size} if settings.chunk_trial else {}
    return FinetuneResult(detach(current), info, finite=True)


def largest_chunk(
    gradients_of: Callable[[Tensor, torch.Generator], GradientChunk],
    size: int,
    device: torch.device,
    ranks: Ranks = SINGLE,
) -> int:
    """The largest of `size`, `size`/2, `size`/4, … trajectories whose gradient fits into memory, found by trial in the main
    process; 1 is not tried."""

    def trial() -> Tensors:
        n = size
        while n > 1 and not _fits(partial(gradients_of, torch.zeros(n, dtype=torch.int64, device=device), generator())):
            n //= 2
        return {"size": torch.tensor(n)}

    def generator() -> torch.Generator:
        return torch.Generator(device).manual_seed(0)

    return int(ranks.from_main(trial)["size"])


def _fits(work: Callable[[], object]) -> bool:
    try:
        work()
    except torch.OutOfMemoryError:
        return False
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return True


def split_chunks(index: Tensor, size: int, generator: torch.Generator) -> list[Chunk]:
    """The trajectories of an iteration in chunks of `size`, each with its own seed, so that their order does not matter."""
    parts = index.split(size)
    seeds = torch.randint(2**62, (len(parts),), generator=generator, device=generator.device).tolist()
    return list(zip(parts, seeds, strict=True))


def _sharded(
    ranks: Ranks,
    gradients_of: Callable[[Tensor, torch.Generator], GradientChunk],
    chunks: Sequence[Chunk],
    device: torch.device,
) -> list[GradientChunk]:
    """The gradients of each chunk, in order, on every rank."""

    def work(chunk: Chunk) -> Tensors:
        index, seed = chunk
        part = gradients_of(index, torch.Generator(device).manual_seed(seed))
        found = {f"gradient.{i}": grad for i, grad in enumerate(part.gradients) if grad is not None}
        numbers = torch.tensor([len(part.gradients), part.evaluations, *part.metrics], dtype=torch.float64)
        return found | {"numbers": numbers}

    parts = []
    for result in ranks.map(work, chunks):
        count, evaluations, *metrics = result["numbers"].tolist()
        parts.append(GradientChunk([result.get(f"gradient.{i}") for i in range(int(count))], metrics, int(evaluations)))
    return parts


def sum_gradients(grads: Sequence[Tensor | None]) -> Tensor | None:
    """Their sum; None if all are."""
    present = [grad for grad in grads if grad is not None]
    return sum(present[1:], start=present[0]) if present else None


def warmup_linear_decay(iteration: int, iterations: int) -> float:
    """Factor of the learning rate: it rises to 1 within five iterations and falls linearly to a fifth.

    >>> [round(warmup_linear_decay(i, 10), 2) for i in (0, 4, 9)]
    [0.2, 0.68, 0.28]
    """
    return min(1.0, (iteration + 1) / 5) * (1 - 0.8 * iteration / iterations)


def constant(iteration: int, iterations: int) -> float:
    """Factor 1."""
    return 1.0


LEARNING_RATE_SCHEDULES: dict[str, Callable[[int, int], float]] = {
    "warmup-decay": warmup_linear_decay,
    "constant": constant,
}
"""(iteration, iterations) -> factor, by the names that `FinetuneSettings.learning_rate_schedule` takes."""


def _summary(rows: list[list[float]], references: list[Reference]) -> dict[str, float]:
    """Means over the last quarter of the iterations, and the predicted reward in the first quarter."""
    quarter = max(1, len(rows) // 4)
    names = ["gradient_norm", "predicted_reward", "predicted_bonus", *(f"divergence_{r.name}" for r in references)]
    mean = lambda part: [sum(column) / len(part) for column in zip(*part, strict=True)]  # noqa: E731
    info = dict(zip(names, mean(rows[-quarter:]), strict=True))
    return info | {"predicted_reward_before": mean(rows[:quarter])[1]}


@torch.no_grad()
def path_kl(diffusion: GuidedDiffusion, one: Params, other: Params, condition: Encoded, key: Key) -> float:
    """KL(P^{f,q} | P^{f',q'}) with all steps, the mean over one path per encoded condition [n, ...]."""
    generator = torch_generator(key, diffusion.model.device)
    settings = FinetuneSettings(kl_samples=None)
    simulated = simulate(settings, diffusion, one, [Reference("other", other, 1.0)], condition, generator)
    return float(simulated.divergences[0])

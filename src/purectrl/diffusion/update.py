"""The update of (f, q): Algorithm 4, line 8, by backpropagation through the sampler.

    argmax  E[r̂(x(T)) + bonus] − α KL(P^{f,q} | P^{f₁,q₁}) − β_n KL(P^{f,q} | P^{f_n,q_n})

The divergence of two laws of paths is that of their initial distributions plus the sum over all steps. Backpropagation may
be cut, the divergence never is: a step before the cut still adds its own, or the model collapses where nobody looks. With
all its steps the sum would cost more than the path itself, so that steps are drawn in proportion to their weight, and the
sum is estimated without bias.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.diffusion.models import DiffusionModel, Iterate, denoiser, detached, leaves, same_numbers, tensors
from purectrl.diffusion.process import Ddim, Denoise, generator_of
from purectrl.diffusion.reward_model import Score

MOST_OVERFLOWS = 0.1
"""Share of the iterations of an update in half precision that may be left out; with more it has diverged."""
Judge = Callable[[Tensor, Tensor], Score]
"""(x(T) [n, *shape], index of the condition [n]) -> r̂ and its bonus."""


@dataclass(frozen=True)
class Tuning:
    """How (f, q) is updated.

    Main arguments:
        iterations, batch: of AdamW, and trajectories each.
        rate, initial_rate: of AdamW for the weights and for q; both warm up and fall to a fifth.
        alpha: of the divergence to the pretrained model.
        beta: of the divergence to the model before the update, as a function of how many updates there were.
        clip: the norm that gradients are cut to.

    Other arguments:
        shortest, longest: how many of the last steps are backpropagated through: one draw a trajectory, shared by the
            trajectories of an iteration so that the steps before the cut need no graph. None is all steps.
        divergence_draws: steps at which the divergence is looked at in an iteration; None is all steps.
        checkpointing: whether activations are computed twice instead of being kept.
        decay: of AdamW.
        guidance: classifier-free guidance, 1 is none.
        chunk: trajectories of an iteration that are in memory at once, each such part with a cut of its own; None is all.
        loss_scale: what the loss is multiplied by and gradients are divided by: half precision loses small ones. If it is
            not 1, an iteration whose gradients overflow is left out.
    """

    iterations: int = 35
    batch: int = 32
    rate: float = 3e-4
    initial_rate: float = 3e-3
    alpha: float = 1e-3
    beta: Callable[[int], float] = lambda updates: 5e-4
    clip: float = 1.0
    shortest: int = 1
    longest: int | None = None
    divergence_draws: int | None = 4
    checkpointing: bool = False
    decay: float = 0.0
    guidance: float = 1.0
    chunk: int | None = None
    loss_scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("iterations", "batch", "shortest"):
            require(getattr(self, name) >= 1, f"{name}: must be at least 1, not {getattr(self, name)}")
        require(self.chunk is None or self.chunk >= 1, f"chunk: must be at least 1, not {self.chunk}")
        for name in ("rate", "clip"):
            require(getattr(self, name) > 0, f"{name}: must be positive, not {getattr(self, name)}")
        for name in ("initial_rate", "alpha", "decay"):
            require(getattr(self, name) >= 0, f"{name}: cannot be negative, got {getattr(self, name)}")


class Anchor(NamedTuple):
    """An iterate to stay close to."""

    name: str
    iterate: Iterate
    strength: float


class Imagined(NamedTuple):
    """Trajectories of the current iterate, as a differentiable function of it."""

    x: Tensor
    """x(T) [n, *shape]."""
    divergences: tuple[Tensor, ...]
    """To each anchor, a number each."""
    calls: int
    """Calls of a denoiser for the whole batch."""


def anchors_of(pretrained: Iterate, previous: Iterate, alpha: float, beta: float) -> list[Anchor]:
    """What the update stays close to. As long as nothing was tuned, both are one."""
    if same_numbers(pretrained, previous):
        return [Anchor("pretrained", pretrained, alpha + beta)]
    both = [Anchor("pretrained", pretrained, alpha), Anchor("previous", previous, beta)]
    return [anchor for anchor in both if anchor.strength > 0]


def draw_cut(tuning: Tuning, steps: int, generator: torch.Generator) -> int:
    """The first step that is backpropagated through, uniform among those that are allowed."""
    longest = steps if tuning.longest is None else min(tuning.longest, steps)
    length = torch.randint(min(tuning.shortest, longest), longest + 1, (), generator=generator, device=generator.device)
    return steps - int(length)


def draw_steps(tuning: Tuning, process: Ddim, generator: torch.Generator) -> dict[int, float]:
    """Steps at which the divergence is looked at, and by how much each counts, so that the sum has the right mean.

    Steps are drawn with probability p_k ∝ weight_k, and each counts 1/(draws · p_k).
    """
    if tuning.divergence_draws is None:
        return dict.fromkeys(range(process.steps), 1.0)
    p = torch.tensor(process.weight, dtype=torch.float64, device=generator.device)
    p = p / p.sum()
    drawn = torch.multinomial(p, tuning.divergence_draws, replacement=True, generator=generator).tolist()
    return {k: drawn.count(k) / (tuning.divergence_draws * float(p[k])) for k in sorted(set(drawn))}


def imagine(
    tuning: Tuning,
    model: DiffusionModel,
    process: Ddim,
    current: Iterate,
    anchors: list[Anchor],
    condition: Tensor,
    generator: torch.Generator,
) -> Imagined:
    """Trajectories under `current` for encoded conditions [n, ...], and how far their law is from each anchor's."""
    cut = draw_cut(tuning, process.steps, generator)
    counted = draw_steps(tuning, process, generator) if anchors else {}
    step = _step(tuning, process, denoiser(model, current.weights, condition, tuning.guidance))
    others = [
        _step(tuning, process, denoiser(model, anchor.iterate.weights, condition, tuning.guidance))
        for anchor in anchors
    ]
    sums = [current.initial.kl(anchor.iterate.initial) for anchor in anchors]
    x = current.initial.draw(len(condition), generator)
    for k in range(process.steps):
        x = x.detach() if k <= cut and cut > 0 else x
        with torch.set_grad_enabled(k >= cut or k in counted):
            mean = step(x, k)
        if k in counted:
            with torch.set_grad_enabled(k >= cut):  # before the cut, an anchor is a constant
                means = [other(x, k) for other in others]
            kls = [counted[k] * process.kl(mean, there, k).mean() for there in means]
            sums = [total + kl for total, kl in zip(sums, kls, strict=True)]
        x = process.draw(mean, k, generator)
    return Imagined(x, tuple(sums), process.steps + len(counted) * len(anchors))


def _step(tuning: Tuning, process: Ddim, denoise: Denoise) -> Callable[[Tensor, int], Tensor]:
    """(x(t_k), k) -> μ_k. The weights are laid over the network inside the checkpointed function, so that the second pass
    uses those of the first."""

    def mean(x: Tensor, k: int) -> Tensor:
        return process.mean(x, denoise(x, process.timesteps[k]), k)

    def checkpointed(x: Tensor, k: int) -> Tensor:
        if not torch.is_grad_enabled():
            return mean(x, k)
        found = checkpoint(mean, x, k, use_reentrant=False, preserve_rng_state=False)
        assert isinstance(found, Tensor)
        return found

    return checkpointed if tuning.checkpointing else mean


class Tuned(NamedTuple):
    """What an update returns."""

    iterate: Iterate
    info: dict[str, float]
    finite: bool
    """Whether it stayed within the finite numbers."""


class Pulled(NamedTuple):
    """What some trajectories of an iteration say, by their share of it."""

    gradients: list[Tensor | None]
    """Of the loss, for each of `tensors(iterate)`."""
    told: list[float]
    """r̂, bonus, and the divergence to each anchor."""
    evaluations: int


Part = tuple[Tensor, int]
"""The index of the condition of each trajectory [n], and the seed of their noise."""


def pull(
    tuning: Tuning,
    model: DiffusionModel,
    process: Ddim,
    judge: Judge,
    anchors: list[Anchor],
    conditions: Tensor,
    iterate: Iterate,
    which: Tensor,
    generator: torch.Generator,
) -> Pulled:
    """Where trajectories for the conditions `which` [n] would move `iterate`."""
    share, current = len(which) / tuning.batch, leaves(iterate)
    seen = imagine(tuning, model, process, current, anchors, conditions[which], generator)
    score = judge(seen.x, which)
    price = sum(anchor.strength * kl for anchor, kl in zip(anchors, seen.divergences, strict=True))
    loss = price - (score.mean + score.bonus).mean()
    (tuning.loss_scale * share * loss).backward()
    told = [score.mean.detach().mean(), score.bonus.detach().mean(), *(kl.detach() for kl in seen.divergences)]
    evaluations = seen.calls * len(which) * (1 if tuning.guidance == 1.0 else 2)
    gradients = [None if t.grad is None else t.grad / tuning.loss_scale for t in tensors(current)]
    return Pulled(gradients, [share * float(number) for number in told], evaluations)


PullParts = Callable[[Iterate, Sequence[Part]], list[Pulled]]
"""Pulls at an iterate by each of some parts of an iteration."""


def tune(
    tuning: Tuning,
    model: DiffusionModel,
    process: Ddim,
    judge: Judge,
    previous: Iterate,
    pretrained: Iterate,
    conditions: Tensor,
    updates: int,
    key: Key,
    pull_parts: PullParts | None = None,
) -> Tuned:
    """AdamW from `previous` on, for encoded training conditions [conditions, ...] drawn uniformly.

    A divergence to the previous iterate is zero at the first iteration, and so is its gradient. `pull_parts` may hand the
    parts of an iteration to others; without it, one is done after the other.
    """
    generator = generator_of(key, model.device)
    anchors = anchors_of(detached(pretrained), detached(previous), tuning.alpha, tuning.beta(updates))
    here = partial(pull, tuning, model, process, judge, anchors, conditions)
    current = leaves(previous)
    numbers = tensors(current)
    groups = [{"params": numbers[:-2], "lr": tuning.rate}, {"params": numbers[-2:], "lr": tuning.initial_rate}]
    optimiser = torch.optim.AdamW(groups, weight_decay=tuning.decay, betas=(0.9, 0.99))
    lines, evaluations, overflows = [], 0, 0
    for iteration in range(tuning.iterations):
        pace = warm_and_falling(iteration, tuning.iterations)
        for group, rate in zip(optimiser.param_groups, (tuning.rate, tuning.initial_rate), strict=True):
            group["lr"] = rate * pace
        which = torch.randint(len(conditions), (tuning.batch,), generator=generator, device=model.device)
        if tuning.chunk is None or tuning.chunk >= tuning.batch:
            pulled = [here(current, which, generator)]
        else:
            parts = draw_parts(which, tuning.chunk, generator)
            pulled = (pull_parts or each_by(here, model.device))(current, parts)
        for tensor, *gradients in zip(numbers, *(part.gradients for part in pulled), strict=True):
            tensor.grad = total(gradients)
        norm = torch.nn.utils.clip_grad_norm_(numbers, tuning.clip)
        lines.append([float(norm), *map(sum, zip(*(part.told for part in pulled), strict=True))])
        evaluations += sum(part.evaluations for part in pulled)
        if not all(map(math.isfinite, lines[-1])):
            lines.pop()
            overflows += 1
            if tuning.loss_scale == 1.0 or overflows > MOST_OVERFLOWS * tuning.iterations:
                return Tuned(previous, {"update_evaluations": evaluations}, finite=False)
            continue
        optimiser.step()
    return Tuned(detached(current), _told(lines, anchors) | {"update_evaluations": evaluations}, finite=True)


def draw_parts(which: Tensor, size: int, generator: torch.Generator) -> list[Part]:
    """The trajectories of an iteration in parts of `size`, each with noise of its own, so that the order does not matter."""
    parts = which.split(size)
    seeds = torch.randint(2**62, (len(parts),), generator=generator, device=generator.device).tolist()
    return list(zip(parts, seeds, strict=True))


def each_by(one: Callable[[Iterate, Tensor, torch.Generator], Pulled], device: torch.device) -> PullParts:
    """One part after the other."""
    return lambda iterate, parts: [
        one(iterate, which, torch.Generator(device).manual_seed(seed)) for which, seed in parts
    ]


def total(gradients: Sequence[Tensor | None]) -> Tensor | None:
    """Their sum; None if nothing was reached."""
    found = [gradient for gradient in gradients if gradient is not None]
    return sum(found[1:], start=found[0]) if found else None


def warm_and_falling(iteration: int, iterations: int) -> float:
    """The pace of AdamW: up to 1 within five iterations, then down to a fifth.

    >>> [round(warm_and_falling(i, 10), 2) for i in (0, 4, 9)]
    [0.2, 0.68, 0.28]
    """
    return min(1.0, (iteration + 1) / 5) * (1 - 0.8 * iteration / iterations)


def _told(lines: list[list[float]], anchors: list[Anchor]) -> dict[str, float]:
    """What was imagined in the first and in the last quarter of the iterations."""
    quarter = max(1, len(lines) // 4)
    names = ["gradient_norm", "imagined_reward", "imagined_bonus", *(f"divergence_{anchor.name}" for anchor in anchors)]
    mean = lambda part: [sum(column) / len(part) for column in zip(*part, strict=True)]  # noqa: E731
    told = dict(zip(names, mean(lines[-quarter:]), strict=True))
    return told | {"imagined_reward_before": mean(lines[:quarter])[1]}


@torch.no_grad()
def path_divergence(
    model: DiffusionModel,
    process: Ddim,
    one: Iterate,
    other: Iterate,
    condition: Tensor,
    key: Key,
    guidance: float = 1.0,
) -> float:
    """KL(P^{f,q} | P^{f',q'}) with all its steps, the mean over a path for each encoded condition [n, ...]."""
    generator = generator_of(key, model.device)
    tuning = Tuning(divergence_draws=None, guidance=guidance)
    seen = imagine(tuning, model, process, one, [Anchor("other", other, 1.0)], condition, generator)
    return float(seen.divergences[0])

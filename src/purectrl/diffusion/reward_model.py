"""The reward that was learned, r̂ (Algorithm 4, line 8), and how sure it is.

It sees what was measured (an image, or an embedding of it), the time of the measurement and the condition. It is trained on
all m measurements of every trajectory but those of some held-out trajectories, by which it is judged.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from purectrl.core.errors import MeasurementError, require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.diffusion.process import generator_of
from purectrl.diffusion.reward_networks import random_weights
from purectrl.diffusion.rollout import step_of
from purectrl.diffusion.uncertainty import Belief, Uncertainty, absorb, draw_direction, empty_factor

CHUNK = 512
"""Measurements that pass the network at once outside of training."""


class Rows(NamedTuple):
    """Measurements one by one."""

    seen: Tensor
    """[n, ...]."""
    t: Tensor
    """t/T [n]."""
    condition: Tensor
    """Index of the condition [n]."""
    r: Tensor
    """[n]."""

    def at(self, index: Tensor) -> "Rows":
        """Some of them."""
        return Rows(*(tensor[index] for tensor in self))


def rows_of(seen: Measurements, horizon: float, device: Any = "cpu") -> Rows:
    """All measurements of all trajectories, those of one trajectory together: rows i·m … i·m + m − 1."""
    assert seen.r is not None
    flat = lambda array: torch.tensor(array.reshape(-1, *array.shape[2:]), device=device)  # noqa: E731
    measured = step_of(seen.t) / horizon  # a time inside a step is measured where the step ends
    t, r = (torch.tensor(array.ravel(), dtype=torch.float32, device=device) for array in (measured, seen.r))
    return Rows(flat(seen.x), t, flat(seen.u)[:, 0].long(), r)


class Link(NamedTuple):
    """From what a head puts out to a reward."""

    name: str
    value: Callable[[Tensor], Tensor]
    loss: Callable[[Tensor, Tensor], Tensor]
    """(outputs, measured rewards) of one shape -> losses of that shape."""
    low: float = -math.inf
    high: float = math.inf
    linear: bool = False
    """Whether an output is a reward itself; then rewards are brought to order one for the time of training."""


logistic = Link(
    "logistic",
    torch.sigmoid,
    lambda outputs, r: functional.binary_cross_entropy_with_logits(outputs, r, reduction="none"),
    0.0,
    1.0,
)
"""For rewards in [0, 1], such as probabilities."""

squared = Link("squared", lambda outputs: outputs, lambda outputs, r: (outputs - r).square(), linear=True)
"""For rewards of any size."""


@dataclass(frozen=True)
class Fitting:
    """How the network is trained.

    Main arguments:
        steps, batch: of AdamW, and measurements a step.
        rate, decay: of AdamW; the rate falls to a twentieth along a cosine.
        held_out: share of the trajectories that it never sees.

    Other arguments:
        check: steps between two looks at the held-out error; the best weights seen are kept.
        augment: (seen [n, ...], generator) -> seen that has the same reward.
    """

    steps: int = 600
    batch: int = 64
    rate: float = 1.5e-3
    decay: float = 1e-2
    held_out: float = 0.1
    check: int = 50
    augment: Callable[[Tensor, torch.Generator], Tensor] = lambda seen, generator: seen


def slight_noise(seen: Tensor, generator: torch.Generator) -> Tensor:
    """What is seen with noise of standard deviation 0.05. A model that was fitted so is smooth, and the update, which climbs
    its gradient, finds better images where it would otherwise find its errors."""
    return seen + 0.05 * torch.randn(seen.shape, generator=generator).to(seen)


class RewardState(NamedTuple):
    """Everything that a reward model has learned."""

    weights: dict[str, Tensor]
    heads: Tensor
    """The last layer [heads, d]; the last feature is the constant 1."""
    factor: Tensor
    """Cholesky factor of A = λI + Σ φφᵀ [d, d]."""
    direction: Tensor
    """A draw from N(0, A⁻¹) [d]."""


class Score(NamedTuple):
    """What is predicted [n], and what is added for optimism [n]."""

    mean: Tensor
    bonus: Tensor


@dataclass(frozen=True, eq=False)
class RewardModel:
    """A network with linear heads, an uncertainty and a way to train.

    Main arguments:
        trunk: (seen [n, ...], t [n], condition [n]) -> features [n, trunk.width].
        uncertainty: one of `purectrl.diffusion.uncertainty`.
        link: what a head's output means.
        fitting: how it is trained.

    Other arguments:
        ridge: λ.
        device: where it lives.
    """

    trunk: nn.Module
    uncertainty: Uncertainty
    link: Link = logistic
    fitting: Fitting = Fitting()
    ridge: float = 1.0
    device: Any = "cpu"

    @property
    def width(self) -> int:
        """d, the number of features with the constant one."""
        return self.trunk.width + 1

    def init(self, key: Key) -> RewardState:
        """Random weights, and nothing measured."""
        generator = generator_of(key)
        weights = {name: tensor.to(self.device) for name, tensor in random_weights(self.trunk, generator).items()}
        heads = torch.randn(self.uncertainty.heads, self.width, generator=generator) / math.sqrt(self.width)
        factor = empty_factor(self.width, self.ridge)
        direction = draw_direction(factor, generator)
        return RewardState(weights, *(tensor.to(self.device) for tensor in (heads, factor, direction)))

    def features(self, weights: dict[str, Tensor], seen: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        """φ [n, d]; the last is the constant 1."""
        found = functional_call(self.trunk, weights, (seen, t, condition))
        return torch.cat([found, torch.ones_like(found[:, :1])], dim=1)

    def score(self, state: RewardState, seen: Tensor, t: Tensor, condition: Tensor) -> Score:
        """r̂ and its bonus, differentiable in what is seen."""
        features = self.features(state.weights, seen, t, condition)
        mean = self.link.value(features @ state.heads.T).mean(1)
        belief = Belief(self.link.value, state.heads, state.factor, state.direction)
        return Score(mean, self.uncertainty.bonus(features, belief))

    def fit(self, rows: Rows, m: int, key: Key) -> tuple[RewardState, dict[str, float]]:
        """Trains from scratch on all measurements, `m` a trajectory; the state and what the held-out ones say."""
        self._check(rows)
        fresh, generator = self.init(key.child("init")), generator_of(key.child("fit"))
        train, held_out = split(len(rows.r) // m, self.fitting.held_out, generator)
        counts = resample(len(train), self.uncertainty.heads, generator)
        counts = counts.repeat_interleave(m, dim=0).to(self.device)
        rows_train, rows_held = (rows.at(_all_of(episodes, m).to(self.device)) for episodes in (train, held_out))
        centre, spread = centre_and_spread(rows.r) if self.link.linear else (0.0, 1.0)
        near = [part._replace(r=(part.r - centre) / spread) for part in (rows_train, rows_held)]
        state = self._descend(fresh, near[0], counts, near[1], generator)
        state = state._replace(heads=rescaled(state.heads, centre, spread))
        factor = self._absorb_all(state, rows)
        state = state._replace(factor=factor, direction=draw_direction(factor, generator))
        return state, self.judged(state, rows_held if len(held_out) else rows_train)

    def judged(self, state: RewardState, rows: Rows) -> dict[str, float]:
        """Error and correlation on `rows`, and on those measured at t = T alone, the mean bonus beside them."""
        scores = self._scores(state, rows)
        error, r, last = (scores.mean - rows.r).cpu().double(), rows.r.cpu().double(), (rows.t >= 1 - 1e-6).cpu()
        found = {
            "reward_error": float(error.square().mean().sqrt()),
            "reward_correlation": correlation(scores.mean.cpu().double(), r),
            "reward_bonus": float(scores.bonus.mean()),
        }
        return found | ({"reward_error_final": float(error[last].square().mean().sqrt())} if last.any() else {})

    def _check(self, rows: Rows) -> None:
        low, high = float(rows.r.min()), float(rows.r.max())
        if low < self.link.low or high > self.link.high:
            raise MeasurementError(
                f"r lies between {low:g} and {high:g}, a {self.link.name} reward model takes "
                f"[{self.link.low:g}, {self.link.high:g}]: scale the reward or take the squared link"
            )

    def _descend(
        self, state: RewardState, rows: Rows, counts: Tensor, held_out: Rows, generator: torch.Generator
    ) -> RewardState:
        """AdamW on the mean loss, every head with its own counts [n, heads]; the best weights by the held-out error."""
        fitting, best, lowest = self.fitting, state, math.inf
        weights = {name: tensor.clone().requires_grad_() for name, tensor in state.weights.items()}
        heads = state.heads.clone().requires_grad_()
        optimiser = torch.optim.AdamW([*weights.values(), heads], lr=fitting.rate, weight_decay=fitting.decay)
        for step in range(fitting.steps):
            optimiser.param_groups[0]["lr"] = fitting.rate * falling(step / fitting.steps)
            index = torch.randint(len(rows.r), (fitting.batch,), generator=generator).to(self.device)
            some = rows.at(index)
            features = self.features(weights, fitting.augment(some.seen, generator), some.t, some.condition)
            outputs = features @ heads.T
            loss = (self.link.loss(outputs, some.r[:, None].expand_as(outputs)) * counts[index]).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if (step + 1) % fitting.check and step + 1 < fitting.steps:
                continue
            now = state._replace(
                weights={name: tensor.detach().clone() for name, tensor in weights.items()},
                heads=heads.detach().clone(),
            )
            error = self._error(now, held_out) if len(held_out.r) else -step
            if error < lowest:
                best, lowest = now, error
        return best

    def _error(self, state: RewardState, rows: Rows) -> float:
        return float((self._scores(state, rows).mean - rows.r).square().mean())

    @torch.no_grad()
    def _scores(self, state: RewardState, rows: Rows) -> Score:
        parts = [self.score(state, *part[:3]) for part in _chunks(rows)]
        return Score(*(torch.cat(part) for part in zip(*parts, strict=True)))

    @torch.no_grad()
    def _absorb_all(self, state: RewardState, rows: Rows) -> Tensor:
        """The Cholesky factor over all measurements: features have changed with the weights, so it starts anew."""
        factor = empty_factor(self.width, self.ridge).to(self.device)
        for part in _chunks(rows):
            factor = absorb(factor, self.features(state.weights, *part[:3]))
        return factor


def split(episodes: int, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Trajectories to train on and trajectories held out: whole ones, since their measurements resemble each other."""
    require(0 <= share < 1, f"held_out: a share must lie in [0, 1), not {share}")
    order, apart = torch.randperm(episodes, generator=generator), min(round(share * episodes), episodes - 1)
    return order[apart:], order[:apart]


def resample(episodes: int, heads: int, generator: torch.Generator) -> Tensor:
    """How often each trajectory is in the resample of each head [episodes, heads]: drawn with replacement, as many as there
    are; with one head, each once.

    >>> resample(5, 3, torch.Generator().manual_seed(0)).sum(0).tolist()
    [5.0, 5.0, 5.0]
    """
    if heads == 1:
        return torch.ones(episodes, 1)
    drawn = torch.randint(episodes, (heads, episodes), generator=generator)
    return torch.stack([torch.bincount(row, minlength=episodes) for row in drawn], dim=1).float()


def centre_and_spread(r: Tensor) -> tuple[float, float]:
    """Mean and standard deviation of rewards; 1 for the latter where they do not vary.

    >>> centre_and_spread(torch.tensor([4.0, 6.0])), centre_and_spread(torch.tensor([5.0]))
    ((5.0, 1.0), (5.0, 1.0))
    """
    spread = float(r.std(correction=0))
    return float(r.mean()), spread if spread > 0 else 1.0


def rescaled(heads: Tensor, centre: float, spread: float) -> Tensor:
    """Linear heads [heads, d] that put out centre + spread · what `heads` do: the last feature is the constant 1."""
    shift = torch.zeros_like(heads)
    shift[:, -1] = centre
    return spread * heads + shift


def falling(done: float) -> float:
    """From 1 to a twentieth along a cosine.

    >>> falling(0.0), round(falling(1.0), 3)
    (1.0, 0.05)
    """
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done))


def correlation(one: Tensor, other: Tensor) -> float:
    """Pearson's; 0 where one of them does not vary."""
    pair = np.stack([one.numpy(), other.numpy()])
    return float(np.corrcoef(pair)[0, 1]) if pair.shape[1] > 1 and pair.std(axis=1).min() > 1e-12 else 0.0


def _all_of(episodes: Tensor, m: int) -> Tensor:
    """The rows of some trajectories."""
    return (episodes[:, None] * m + torch.arange(m)).flatten()


def _chunks(rows: Rows) -> list[Rows]:
    return [Rows(*part) for part in zip(*(tensor.split(CHUNK) for tensor in rows), strict=True)]

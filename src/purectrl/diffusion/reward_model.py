"""The learned reward r̂ (Algorithm 4, line 8) and its uncertainty.

Its input is the measured image (or an embedding of it), the time of the measurement and the condition. It is trained on all
m measurements of every trajectory except those of held-out trajectories, which select its weights and give its error.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from purectrl.core.errors import MeasurementError, require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.diffusion.process import torch_generator
from purectrl.diffusion.reward_networks import Trunk, random_weights
from purectrl.diffusion.rollout import step_of
from purectrl.diffusion.settings import RewardModelSettings
from purectrl.diffusion.uncertainty import (
    UNCERTAINTIES,
    Posterior,
    RidgeFit,
    Uncertainty,
    cholesky_update,
    fit_ridge,
    ridge_factor,
    sample_direction,
)

CHUNK = 512
"""Measurements per forward pass outside of training."""

Augment = Callable[[Tensor, torch.Generator], Tensor]
"""(inputs [n, ...], generator) -> inputs that have the same reward."""


class RewardData(NamedTuple):
    """Measurements, one per row."""

    inputs: Tensor
    """[n, ...]."""
    t: Tensor
    """t/T [n]."""
    condition: Tensor
    """Index of the condition [n]."""
    r: Tensor
    """[n]."""

    def at(self, index: Tensor) -> "RewardData":
        """The rows with these indices."""
        return RewardData(*(tensor[index] for tensor in self))


def reward_data(measured: Measurements, horizon: float, device: torch.device | str = "cpu") -> RewardData:
    """All measurements of all trajectories, one trajectory after the other; without rewards, they are zero."""
    taken = measured.valid
    flat = lambda array: torch.tensor(array[taken], device=device)  # noqa: E731
    times = step_of(measured.t) / horizon  # a time inside a step is measured at the end of the step
    rewards = np.zeros(taken.shape) if measured.r is None else measured.r
    t, r = (torch.tensor(array[taken], dtype=torch.float32, device=device) for array in (times, rewards))
    return RewardData(flat(measured.x), t, flat(measured.u)[:, 0].long(), r)


class RewardLoss(NamedTuple):
    """From outputs of heads to rewards, and the loss between them."""

    activation: Callable[[Tensor], Tensor]
    loss: Callable[[Tensor, Tensor], Tensor]
    """(outputs, measured rewards) of one shape -> losses of that shape."""
    low: float = -math.inf
    high: float = math.inf
    linear: bool = False
    """Whether an output is itself a reward; then rewards are standardised during training."""


LOSSES: dict[str, RewardLoss] = {
    "bce": RewardLoss(
        torch.sigmoid,
        lambda outputs, r: functional.binary_cross_entropy_with_logits(outputs, r, reduction="none"),
        0.0,
        1.0,
    ),
    "mse": RewardLoss(lambda outputs: outputs, lambda outputs, r: (outputs - r).square(), linear=True),
}
"""By the names that `RewardModelSettings.loss` takes."""


def add_noise(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """`inputs` with Gaussian noise of standard deviation 0.05: a reward model that was trained so is smoother, and its
    gradient leads the update to better images instead of to its errors."""
    return inputs + 0.05 * torch.randn(inputs.shape, generator=generator).to(inputs)


class RewardState(NamedTuple):
    """The fitted reward model."""

    weights: dict[str, Tensor]
    heads: Tensor
    """The last layer [num_heads, d]; the last feature is the constant 1."""
    factor: Tensor
    """Cholesky factor of A = λI + Σ φφᵀ [d, d]."""
    direction: Tensor
    """A sample of N(0, A⁻¹) [d]."""


class Score(NamedTuple):
    """Predicted reward [n] and bonus [n]."""

    mean: Tensor
    bonus: Tensor


@dataclass(frozen=True, eq=False)
class RewardModel:
    """A network with linear heads, its training and its uncertainty.

    Main arguments:
        trunk: (inputs [n, ...], t [n], condition [n]) -> features [n, trunk.width].
        settings: how it is trained, and its optimism.

    Other arguments:
        augment: changes inputs in ways that do not change the reward.
        device: where it is evaluated.
    """

    trunk: Trunk
    settings: RewardModelSettings
    augment: Augment = lambda inputs, generator: inputs
    device: torch.device | str = "cpu"

    @cached_property
    def loss(self) -> RewardLoss:
        """The loss that the settings name."""
        return LOSSES[self.settings.loss]

    @cached_property
    def uncertainty(self) -> Uncertainty:
        """The uncertainty that the settings name."""
        return UNCERTAINTIES[self.settings.uncertainty](self.settings.bonus_scale, self.settings.num_heads)

    @property
    def width(self) -> int:
        """d, the number of features including the constant."""
        return self.trunk.width + 1

    def init(self, key: Key) -> RewardState:
        """Random weights, no measurement."""
        generator = torch_generator(key)
        weights = {name: tensor.to(self.device) for name, tensor in random_weights(self.trunk, generator).items()}
        heads = torch.randn(self.uncertainty.num_heads, self.width, generator=generator) / math.sqrt(self.width)
        factor = ridge_factor(self.width, self.settings.ridge)
        direction = sample_direction(factor, generator)
        return RewardState(weights, *(tensor.to(self.device) for tensor in (heads, factor, direction)))

    def features(self, weights: dict[str, Tensor], inputs: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        """φ [n, d]; the last is the constant 1."""
        features = functional_call(self.trunk, weights, (inputs, t, condition))
        return torch.cat([features, torch.ones_like(features[:, :1])], dim=1)

    def score(self, state: RewardState, inputs: Tensor, t: Tensor, condition: Tensor) -> Score:
        """r̂ and its bonus, differentiable in the inputs."""
        features = self.features(state.weights, inputs, t, condition)
        mean = self.loss.activation(features @ state.heads.T).mean(1)
        posterior = Posterior(self.loss.activation, state.heads, state.factor, state.direction)
        return Score(mean, self.uncertainty.bonus(features, posterior))

    def fit(self, data: RewardData, m: int | Tensor, key: Key) -> tuple[RewardState, dict[str, float]]:
        """Trains from scratch on all measurements, `m` per trajectory; returns the state and its held-out metrics.

        Main arguments:
            m: measurements per trajectory, or of each trajectory [episodes], none of them 0.
        """
        self._check_range(data)
        sizes = torch.full((len(data.r) // m,), m) if isinstance(m, int) else m
        if self.settings.fit == "ridge":
            return self._fit_ridge(data, sizes, key)
        initial, generator = self.init(key.child("init")), torch_generator(key.child("fit"))
        train, held_out = split(len(sizes), self.settings.held_out, generator)
        counts = bootstrap_counts(len(train), self.uncertainty.num_heads, generator)
        counts = counts.repeat_interleave(sizes[train], dim=0).to(self.device)
        train_data, held_out_data = (data.at(_rows(episodes, sizes).to(self.device)) for episodes in (train, held_out))
        mean, std = mean_and_std(data.r) if self.loss.linear else (0.0, 1.0)
        scaled = [part._replace(r=(part.r - mean) / std) for part in (train_data, held_out_data)]
        state = self._train(initial, scaled[0], counts, scaled[1], generator)
        state = state._replace(heads=rescale_heads(state.heads, mean, std))
        factor = self._factor(state, data)
        state = state._replace(factor=factor, direction=sample_direction(factor, generator))
        return state, self.validate(state, held_out_data if len(held_out) else train_data)

    @torch.no_grad()
    def _fit_ridge(self, data: RewardData, sizes: Tensor, key: Key) -> tuple[RewardState, dict[str, float]]:
        """Ridge regression on all measurements; its error is that of a fit without the held-out trajectories."""
        initial, generator = self.init(key.child("init")), torch_generator(key.child("fit"))
        train, held_out = split(len(sizes), self.settings.held_out, generator)
        parts = [data.at(_rows(episodes, sizes).to(self.device)) for episodes in (train, held_out)]
        features = lambda part: self.features({}, *part[:3]).double()  # noqa: E731
        metrics = {}
        if len(held_out):
            trained = fit_ridge(features(parts[0]), parts[0].r.double(), self.settings.confidence)
            metrics = self.validate(_ridge_state(initial, trained, generator), parts[1])
        whole = fit_ridge(features(data), data.r.double(), self.settings.confidence)
        state = _ridge_state(initial, whole, generator)
        metrics = metrics or self.validate(state, data)
        return state, metrics | {"ridge": whole.ridge, "label_noise": whole.noise, "radius": whole.radius}

    def validate(self, state: RewardState, data: RewardData) -> dict[str, float]:
        """Error and correlation on `data`, the error on measurements at t = T alone, and the mean bonus."""
        scores = self._scores(state, data)
        error, r, last = (scores.mean - data.r).cpu().double(), data.r.cpu().double(), is_final(data.t).cpu()
        metrics = {
            "reward_error": float(error.square().mean().sqrt()),
            "reward_correlation": correlation(scores.mean.cpu().double(), r),
            "reward_bonus": float(scores.bonus.mean()),
        }
        return metrics | ({"reward_error_final": float(error[last].square().mean().sqrt())} if last.any() else {})

    def _check_range(self, data: RewardData) -> None:
        low, high = float(data.r.min()), float(data.r.max())
        if low < self.loss.low or high > self.loss.high:
            raise MeasurementError(
                f"r lies between {low:g} and {high:g}; the reward model with loss {self.settings.loss} needs "
                f"[{self.loss.low:g}, {self.loss.high:g}]: scale the reward or use loss mse"
            )

    def _train(
        self, state: RewardState, data: RewardData, counts: Tensor, held_out: RewardData, generator: torch.Generator
    ) -> RewardState:
        """AdamW on the mean loss, every head with its own counts [n, num_heads]; returns the weights with the smallest
        held-out error."""
        settings, best, lowest = self.settings, state, math.inf
        judged = at_the_end(held_out) if settings.selection == "final" else held_out
        weights = {name: tensor.clone().requires_grad_() for name, tensor in state.weights.items()}
        heads = state.heads.clone().requires_grad_()
        optimizer = torch.optim.AdamW(
            [*weights.values(), heads], lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        for step in range(settings.steps):
            optimizer.param_groups[0]["lr"] = settings.learning_rate * cosine_decay(step / settings.steps)
            index = torch.randint(len(data.r), (settings.batch_size,), generator=generator).to(self.device)
            batch = data.at(index)
            features = self.features(weights, self.augment(batch.inputs, generator), batch.t, batch.condition)
            outputs = features @ heads.T
            loss = (self.loss.loss(outputs, batch.r[:, None].expand_as(outputs)) * counts[index]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if (step + 1) % settings.check_every and step + 1 < settings.steps:
                continue
            now = state._replace(
                weights={name: tensor.detach().clone() for name, tensor in weights.items()},
                heads=heads.detach().clone(),
            )
            error = self._error(now, judged) if len(judged.r) else -step
            if error < lowest:
                best, lowest = now, error
        return best

    def _error(self, state: RewardState, data: RewardData) -> float:
        return float((self._scores(state, data).mean - data.r).square().mean())

    @torch.no_grad()
    def _scores(self, state: RewardState, data: RewardData) -> Score:
        parts = [self.score(state, *part[:3]) for part in _chunks(data)]
        return Score(*(torch.cat(part) for part in zip(*parts, strict=True)))

    @torch.no_grad()
    def _factor(self, state: RewardState, data: RewardData) -> Tensor:
        """The Cholesky factor over all measurements: features change with the weights, so it is computed from scratch."""
        factor = ridge_factor(self.width, self.settings.ridge).to(self.device)
        for part in _chunks(data):
            factor = cholesky_update(factor, self.features(state.weights, *part[:3]))
        return factor


def _ridge_state(initial: RewardState, found: RidgeFit, generator: torch.Generator) -> RewardState:
    """The ellipsoid (θ − θ̂)ᵀ A (θ − θ̂) ≤ β² as the factor of A/β², so that the width of r̂ is sqrt(φᵀ (A/β²)⁻¹ φ)."""
    factor = (found.factor / found.radius).to(initial.factor)
    return initial._replace(
        heads=found.theta[None].to(initial.heads), factor=factor, direction=sample_direction(factor, generator)
    )


def split(episodes: int, fraction: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Trajectories for training and held-out ones: whole trajectories, since their measurements are correlated."""
    require(0 <= fraction < 1, f"held_out: must lie in [0, 1), not {fraction}")
    order, count = torch.randperm(episodes, generator=generator), min(round(fraction * episodes), episodes - 1)
    return order[count:], order[:count]


def is_final(t: Tensor) -> Tensor:
    """Which of the times t/T [n] are the end of a trajectory [n]."""
    return t >= 1 - 1e-6


def at_the_end(data: RewardData) -> RewardData:
    """The measurements at t = T; all, if there is none."""
    last = is_final(data.t)
    return data.at(last) if bool(last.any()) else data


def bootstrap_counts(episodes: int, num_heads: int, generator: torch.Generator) -> Tensor:
    """How often each trajectory is in the resample of each head [episodes, num_heads], drawn with replacement; with one
    head, each once.

    >>> bootstrap_counts(5, 3, torch.Generator().manual_seed(0)).sum(0).tolist()
    [5.0, 5.0, 5.0]
    """
    if num_heads == 1:
        return torch.ones(episodes, 1)
    drawn = torch.randint(episodes, (num_heads, episodes), generator=generator)
    return torch.stack([torch.bincount(row, minlength=episodes) for row in drawn], dim=1).float()


def mean_and_std(r: Tensor) -> tuple[float, float]:
    """Mean and standard deviation of rewards; 1 for the latter if they are constant.

    >>> mean_and_std(torch.tensor([4.0, 6.0])), mean_and_std(torch.tensor([5.0]))
    ((5.0, 1.0), (5.0, 1.0))
    """
    std = float(r.std(correction=0))
    return float(r.mean()), std if std > 0 else 1.0


def rescale_heads(heads: Tensor, mean: float, std: float) -> Tensor:
    """Linear heads [num_heads, d] whose outputs are mean + std · those of `heads`: the last feature is the constant 1."""
    shift = torch.zeros_like(heads)
    shift[:, -1] = mean
    return std * heads + shift


def cosine_decay(progress: float) -> float:
    """From 1 to a twentieth along a cosine.

    >>> cosine_decay(0.0), round(cosine_decay(1.0), 3)
    (1.0, 0.05)
    """
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress))


def correlation(one: Tensor, other: Tensor) -> float:
    """Pearson's correlation; 0 if one of them is constant."""
    pair = np.stack([one.numpy(), other.numpy()])
    return float(np.corrcoef(pair)[0, 1]) if pair.shape[1] > 1 and pair.std(axis=1).min() > 1e-12 else 0.0


def _rows(episodes: Tensor, sizes: Tensor) -> Tensor:
    """The rows of these trajectories, of which `sizes` has the number of measurements of each [episodes].

    >>> _rows(torch.tensor([2, 0]), torch.tensor([2, 1, 3])).tolist()
    [3, 4, 5, 0, 1]
    """
    starts = sizes.cumsum(0) - sizes
    chosen = zip(starts[episodes].tolist(), sizes[episodes].tolist(), strict=True)
    ranges = [torch.arange(start, start + size) for start, size in chosen]
    return torch.cat([torch.zeros(0, dtype=torch.long), *ranges])


def _chunks(data: RewardData) -> list[RewardData]:
    return [RewardData(*part) for part in zip(*(tensor.split(CHUNK) for tensor in data), strict=True)]

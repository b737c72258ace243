"""Fine-tuners that see the denoising chain as a policy: DDPO, GRPO, and best-of-n with distillation.

A step of the chain is an action: x(t_{k+1}) ~ p_θ(· | x(t_k)) = N(μ_k, σ_k² I). With rewards of final images alone,

    ∇ E[r] = E[ Σ_k ∇ log p_θ(x(t_{k+1}) | x(t_k)) · (r − baseline) ],

and trajectories of the model before the update count with the ratio p_θ/p_old of each step, clipped as in PPO. There is no
reward model: an update uses the trajectories that were measured since the last one, which are replayed from the seed that
each measurement carries. A step without noise (σ_k = 0) is no random action and has no term.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from purectrl.core.keys import Key
from purectrl.core.learner import Update
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.plan import Plan
from purectrl.core.schedules import Targets
from purectrl.diffusion.cost import UpdateWork
from purectrl.diffusion.distributed import SINGLE, Ranks
from purectrl.diffusion.learner import params_from_main
from purectrl.diffusion.models import (
    Condition,
    Encoded,
    GuidedDiffusion,
    Params,
    Weights,
    detach,
    take,
    tensors,
    trainable_copy,
)
from purectrl.diffusion.process import AffineSteps, Step, path
from purectrl.diffusion.rollout import seed_of
from purectrl.diffusion.settings import Chain

if TYPE_CHECKING:
    from purectrl.diffusion.problem import DiffusionProblem


class Moments(NamedTuple):
    """The state of AdamW, which continues from update to update."""

    first: Weights
    second: Weights
    steps: int


class ChainState(NamedTuple):
    """Everything that was learned."""

    params: Params
    moments: Moments
    episodes: int
    """Episodes that earlier updates have used."""
    updates: int


class PathBatch(NamedTuple):
    """Trajectories that were rolled out together."""

    seed: int
    """Of their noise."""
    condition: Tensor
    """Index of the condition of each [n]."""
    weight: Tensor
    """Its advantage, or its weight in the likelihood [n]."""


def advantages(
    settings: Chain, r: np.ndarray, group: np.ndarray, past: np.ndarray, past_group: np.ndarray
) -> np.ndarray:
    """The weight of each trajectory [n].

    `condition`: the reward, standardised by all earlier and present rewards of its condition. `group`: by the present ones
    alone. `best`: 1 for the best trajectory of each `best_of` of a condition, otherwise 0.

    >>> one = np.zeros(4, int)
    >>> advantages(Chain(baseline="best", best_of=2), np.array([1.0, 3.0, 2.0, 0.0]), one, np.array([]), one[:0])
    array([0., 1., 1., 0.])
    >>> advantages(Chain(baseline="group"), np.array([1.0, 3.0]), one[:2], np.array([]), one[:0]).round(3)
    array([-1.,  1.])
    """
    found = np.zeros(len(r))
    for condition in np.unique(group):
        rows = group == condition
        own = r[rows]
        if settings.baseline == "best":
            kept = -(-len(own) // settings.best_of)
            found[rows] = np.argsort(np.argsort(-own, kind="stable"), kind="stable") < kept
            continue
        known = np.concatenate([past[past_group == condition], own]) if settings.baseline == "condition" else own
        known = known if len(known) > 1 else np.concatenate([past, r])
        found[rows] = (own - known.mean()) / max(known.std(), 1e-8)
    return found


@torch.no_grad()
def replay(diffusion: GuidedDiffusion, params: Params, batch: PathBatch, conditions: Encoded) -> list[Step]:
    """The trajectories of a batch as they were rolled out under `params`."""
    device = diffusion.model.device
    generator = torch.Generator(device).manual_seed(batch.seed)
    condition = take(conditions, batch.condition.to(device))
    denoise = diffusion.denoiser(params.weights, condition)
    return list(path(diffusion.process, denoise, params.initial.sample(len(batch.condition), generator), generator))


def log_ratio(process: AffineSteps, x: Tensor, mean: Tensor, old: Tensor, k: int) -> Tensor:
    """log N(x; mean, σ_k² I) − log N(x; old, σ_k² I) [n]; exactly 0 where both means agree."""
    difference = (x - old).square() - (x - mean).square()
    return difference.flatten(1).sum(1) / (2 * process.sigma[k] ** 2)


def step_loss(settings: Chain, weight: Tensor, ratio_log: Tensor) -> Tensor:
    """Minus the objective of one step [n]: clipped importance weights times advantages, or weighted log-likelihood."""
    if settings.objective == "likelihood":
        return -weight * ratio_log  # the log-likelihood up to a constant
    ratio = ratio_log.exp()
    clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
    return -torch.minimum(weight * ratio, weight * clipped)


@dataclass(frozen=True, eq=False)
class ChainLearner:
    """Policy gradients, or weighted likelihood, on the denoising chain.

    Main arguments:
        diffusion: the pretrained model, its denoising steps and guidance.
        conditions: the classes or prompts that are measured.
        settings: the update.

    Other arguments:
        ranks: processes of the run; each computes the whole update.
        batch_size: trajectories that are rolled out together, for the estimate of memory.
    """

    diffusion: GuidedDiffusion
    conditions: Sequence[Condition]
    settings: Chain
    ranks: Ranks = SINGLE
    batch_size: int = 64

    def init(self, key: Key) -> ChainState:
        """The pretrained model."""
        params = self.diffusion.model.pretrained()
        zeros = lambda: {name: torch.zeros_like(tensor) for name, tensor in params.weights.items()}  # noqa: E731
        return ChainState(params, Moments(zeros(), zeros(), 0), 0, 0)

    def policy(self, state: ChainState) -> Plan:
        """The weights by name, and q, which stays as it was."""
        return state.params.plan()

    def update(self, state: ChainState, data: Dataset, which: Targets, key: Key) -> Update:
        """Some epochs over the trajectories that were measured since the last update."""
        begin = time.perf_counter()
        old, encoded = detach(state.params), self.diffusion.model.encode(self.conditions)
        batches = path_batches(self.settings, data.all, state.episodes)
        current = trainable_copy(old)
        weights = {name: current.weights[name] for name in sorted(current.weights)}
        optimizer = self._optimizer(weights, state.moments)
        rows = list[list[float]]()
        order = key.child("order").generator()
        for _ in range(self.settings.epochs):
            for number in order.permutation(len(batches)):
                rows.append(self._iteration(current, old, batches[number], encoded, optimizer))
        names = ["gradient_norm", "importance_weight", "clipped", "divergence_pretrained"]
        info = dict(zip(names, np.mean(rows, axis=0).tolist(), strict=True))
        if self.settings.alpha == 0:
            del info["divergence_pretrained"]  # it was not computed; evaluations do
        info["update_evaluations"] = self._evaluations(batches)
        finite = bool(np.isfinite(rows).all())
        params = params_from_main(self.ranks, detach(current)) if finite else old
        moments = _moments(optimizer, weights, state.moments.steps + len(rows)) if finite else state.moments
        seconds = {"plan": time.perf_counter() - begin}
        diverged = "" if finite else "the fine-tuning of the diffusion model diverged; it keeps its parameters"
        return Update(ChainState(params, moments, data.episodes, state.updates + 1), info, seconds, diverged)

    def _iteration(
        self, current: Params, old: Params, batch: PathBatch, encoded: Encoded, optimizer: torch.optim.Optimizer
    ) -> list[float]:
        """One optimizer step on one batch; gradient norm, mean importance weight, clipped share, divergence."""
        optimizer.zero_grad()
        metrics = self.gradients(current, old, batch, encoded)
        trained = tensors(current)[:-2]
        norm = torch.nn.utils.clip_grad_norm_(trained, self.settings.gradient_clip)
        if bool(torch.isfinite(norm)):
            optimizer.step()
        return [float(norm), *metrics]

    def gradients(self, current: Params, old: Params, batch: PathBatch, encoded: Encoded) -> list[float]:
        """Adds the gradient of the loss on `batch` to the weights of `current`; mean importance weight, clipped share and
        divergence from the pretrained model."""
        n, used = len(batch.condition), self._used(batch)
        if not len(used):
            return [1.0, 0.0, 0.0]
        steps, total = replay(self.diffusion, old, batch, encoded), np.zeros(3)
        for rows in used.split(self.settings.chunk_size or n):
            part = PathBatch(batch.seed, batch.condition[rows], batch.weight[rows])
            chosen = [Step(k, x[rows], None if output is None else output[rows]) for k, x, output in steps]
            total += len(rows) / len(used) * np.array(self._chunk(current, part, chosen, encoded, len(rows) / n))
        for tensor in tensors(current):
            if tensor.grad is not None:
                tensor.grad /= self.diffusion.model.loss_scale
        return total.tolist()

    def _used(self, batch: PathBatch) -> Tensor:
        """The trajectories that have a gradient: without a divergence, those of weight 0 have none."""
        everything = torch.ones_like(batch.weight) if self.settings.alpha > 0 else batch.weight
        return everything.nonzero()[:, 0]

    def _evaluations(self, batches: Sequence[PathBatch]) -> int:
        """Evaluations of the network in an update."""
        replayed, passes = self._passes()
        used = [(len(batch.condition), len(self._used(batch))) for batch in batches]
        calls = sum(replayed * n + passes * some for n, some in used if some)
        return calls * self.diffusion.evaluations_per_step * self.settings.epochs

    def _passes(self) -> tuple[int, int]:
        """Evaluations of the network for the replay of a trajectory, and for its gradient."""
        noisy = sum(sigma > 0 for sigma in self.diffusion.process.sigma)
        return self.diffusion.process.steps, noisy * (2 if self.settings.alpha > 0 else 1)

    def _chunk(
        self, current: Params, batch: PathBatch, steps: list[Step], encoded: Encoded, share: float
    ) -> tuple[float, float, float]:
        """One step of the chain at a time, so that only its activations are in memory."""
        process, model, settings = self.diffusion.process, self.diffusion.model, self.settings
        condition, weight = take(encoded, batch.condition.to(model.device)), batch.weight.to(model.device)
        denoise = self.diffusion.denoiser(current.weights, condition)
        reference = self.diffusion.denoiser(model.pretrained().weights, condition)
        noisy = [k for k in range(process.steps) if process.sigma[k] > 0]
        ratios, clipped, divergence = 0.0, 0.0, 0.0
        for k in noisy:
            x, output = steps[k].x, steps[k].output
            assert output is not None
            mean = process.mean(x, denoise(x, process.timesteps[k]), k)
            found = log_ratio(process, steps[k + 1].x, mean, process.mean(x, output, k), k)
            loss = step_loss(settings, weight, found).mean()
            if settings.alpha > 0:
                with torch.no_grad():
                    there = process.mean(x, reference(x, process.timesteps[k]), k)
                kl = process.kl(mean, there, k).mean()
                loss, divergence = loss + settings.alpha * kl, divergence + float(kl.detach())
            (model.loss_scale * share * loss).backward()
            ratio = found.detach().exp()
            ratios += float(ratio.mean()) / len(noisy)
            clipped += float(((ratio - 1).abs() > settings.clip).float().mean()) / len(noisy)
        return ratios, clipped, divergence

    def update_work(self, update: int, episodes: int) -> UpdateWork:
        """A replay of every trajectory, and a gradient of every step of those that are used, in each epoch; a reference if
        there is a divergence."""
        settings, per_step = self.settings, self.diffusion.evaluations_per_step
        replayed, passes = self._passes()
        used = 1 / settings.best_of if settings.baseline == "best" and settings.alpha == 0 else 1.0
        calls = episodes * per_step * settings.epochs
        stored = per_step * min(settings.chunk_size or self.batch_size, self.batch_size)
        backward = calls * used * passes / (2 if settings.alpha > 0 else 1)
        return UpdateWork(forward=calls * (replayed + used * passes), backward=backward, stored=stored)

    def _optimizer(self, weights: Weights, moments: Moments) -> torch.optim.Optimizer:
        settings = self.settings
        optimizer = torch.optim.AdamW(weights.values(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
        if moments.steps:
            for name, tensor in weights.items():
                optimizer.state[tensor] = {
                    "step": torch.tensor(float(moments.steps)),
                    "exp_avg": moments.first[name].clone(),
                    "exp_avg_sq": moments.second[name].clone(),
                }
        return optimizer


def _moments(optimizer: torch.optim.Optimizer, weights: Weights, steps: int) -> Moments:
    zero = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
    first = {name: optimizer.state[tensor].get("exp_avg", zero[name]) for name, tensor in weights.items()}
    second = {name: optimizer.state[tensor].get("exp_avg_sq", zero[name]) for name, tensor in weights.items()}
    return Moments(first, second, steps)


def path_batches(settings: Chain, measured: Measurements, start: int) -> list[PathBatch]:
    """The trajectories from number `start` on, in the batches in which they were rolled out; the last measurement of a
    trajectory is its reward."""
    assert measured.r is not None
    r, group = measured.r[:, -1], measured.u[:, -1, 0].astype(int)
    found = advantages(settings, r[start:], group[start:], r[:start], group[:start])
    index, weight = torch.from_numpy(group[start:]), torch.tensor(found, dtype=torch.float32)
    rows: dict[int, list[int]] = {}
    for row, seed in enumerate(seed_of(measured.u[start:, -1])):
        rows.setdefault(seed, []).append(row)
    return [PathBatch(seed, index[own], weight[own]) for seed, own in rows.items()]


def build_chain_learner(settings: Chain, problem: "DiffusionProblem") -> ChainLearner:
    """The learner with these settings for a problem."""
    return ChainLearner(problem.diffusion, problem.conditions, settings, problem.ranks, problem.rollout_batch_size)

"""Episodes of a diffusion model: denoising trajectories, and the black-box reward at the measured times.

A reward is a plain function of images [n, channels, height, width] in [0, 1] and their conditions. Times are denoising
steps, T = S: a time inside a step is measured at the end of the step.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from purectrl.core.errors import MeasurementError, require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.plan import Plan
from purectrl.core.samplers import Selection
from purectrl.diffusion.distributed import SINGLE, Ranks, Tensors
from purectrl.diffusion.models import Condition, Encoded, GuidedDiffusion, Params, count, take
from purectrl.diffusion.process import AffineSteps, Step, path, torch_generator
from purectrl.diffusion.rewards.reward import Scorer

Measure = Callable[[AffineSteps, Step], Tensor]
"""What is measured of a state of a trajectory [n, *shape]."""

Embed = Callable[[Tensor], Tensor]
"""The input of the reward model for images [n, channels, height, width]: [n, ...]; fixed, differentiable."""


def noisy_state(process: AffineSteps, step: Step) -> Tensor:
    """x(t): the paper's r(x(t))."""
    return step.x


def predicted_x0(process: AffineSteps, step: Step) -> Tensor:
    """x̂(T) given x(t): the image that the denoiser predicts. It needs no further evaluation of the network."""
    return step.x if step.output is None else process.predict_x0(step.x, step.output, step.k)


MEASURES: dict[str, Measure] = {"predicted_x0": predicted_x0, "x_t": noisy_state}
"""What can be measured of a trajectory, by name."""


def identity(images: Tensor) -> Tensor:
    """The images themselves."""
    return images


def step_of(times: np.ndarray) -> np.ndarray:
    """The number of denoising steps taken at `times`.

    >>> step_of(np.array([12.5, 25.0, 37.5, 50.0]))
    array([13, 25, 38, 50])
    """
    return np.ceil(times - 1e-6).astype(np.int64)


WORD = 2**32
"""Seeds are kept as two numbers below this one, which are exact as floating-point numbers."""


def trajectory_labels(batch: "TrajectoryBatch") -> np.ndarray:
    """The condition of each trajectory and the seed of the noise of its batch, in two words [n, 3]."""
    seed = batch.key.bits & (2**63 - 1)
    words = np.full((len(batch.conditions), 2), [seed % WORD, seed // WORD], np.float64)
    return np.concatenate([batch.conditions[:, None], words], axis=1)


def seed_of(labels: np.ndarray) -> list[int]:
    """The seed of the batch of each trajectory, from `trajectory_labels` [n, 3]."""
    return [int(low) + WORD * int(high) for _, low, high in labels]


def balanced_conditions(key: Key, episodes: int, conditions: int) -> np.ndarray:
    """The index of the condition of each episode [episodes]: cyclic, from a random first one."""
    return (np.arange(episodes) + int(key.uniform_scalar() * conditions)) % conditions


class TrajectoryBatch(NamedTuple):
    """Trajectories that are rolled out together."""

    conditions: np.ndarray
    """The index of the condition of each [n]."""
    steps: np.ndarray
    """The steps after which they are measured [n, m]."""
    key: Key
    start: int = 0
    """The number of the first of them."""


@dataclass(frozen=True)
class DenoisingRollout:
    """The rollout of a diffusion model under a `Plan(weights, q)`; its measurements have

        x: the input of the reward model for the measured image, `embed(decode(measure(x(t))))`;
        u: the index of the condition, and the seed of the trajectory's noise in two words, [..., 3];
        r: the reward, m per trajectory.

    Main arguments:
        diffusion: the model, its denoising steps and guidance.
        conditions: the classes or prompts that are measured, in turn.
        reward: the black box, images [n, channels, height, width] float32 in [0, 1] and n conditions -> scores [n].
        measure: what is measured, `predicted_x0` or `noisy_state`.

    Other arguments:
        embed: the input of the reward model for an image.
        stochastic: whether a reward can give the same image different scores. If not, a time that was drawn twice is queried
            once; both are measurements, as the paper counts them.
        batch_size: trajectories that are rolled out together.
        ranks: processes that share the trajectories; the main process queries the reward.
    """

    diffusion: GuidedDiffusion
    conditions: Sequence[Condition]
    reward: Scorer
    measure: Measure = predicted_x0
    embed: Embed = identity
    stochastic: bool = False
    batch_size: int = 64
    ranks: Ranks = SINGLE

    def __post_init__(self) -> None:
        require(len(self.conditions) >= 1, "conditions: at least one is needed")

    def __call__(self, key: Key, plan: Plan, times: np.ndarray, selection: Selection | None = None) -> Measurements:
        """Executes `plan` in as many trajectories as `times` [episodes, m] has rows and measures at those times, or at those
        that `selection` chooses among the trajectories that are rolled out together."""
        index, steps = balanced_conditions(key.child("conditions"), len(times), len(self.conditions)), step_of(times)
        encoded, size = self.diffusion.model.encode(self.conditions), self.batch_size
        batches = [
            TrajectoryBatch(index[start : start + size], steps[start : start + size], key.child("path", number), start)
            for number, start in enumerate(range(0, len(times), size))
        ]

        @torch.no_grad()
        def sample(batch: TrajectoryBatch) -> Tensors:
            condition = take(encoded, torch.from_numpy(batch.conditions))
            images = measured_images(self.diffusion, plan, condition, batch.steps, self.measure, batch.key)
            inputs = self.embed(images.flatten(0, 1)).unflatten(0, images.shape[:2])
            taken = torch.from_numpy(self._queried(batch.steps) if selection is None else choose(batch, inputs))
            return {"images": images[taken], "inputs": inputs, "taken": taken}

        def choose(batch: TrajectoryBatch, inputs: Tensor) -> np.ndarray:
            assert selection is not None
            start = batch.start
            u = np.broadcast_to(trajectory_labels(batch)[:, None], (*batch.steps.shape, 3))
            offered = Measurements(times[start : start + size], inputs.cpu().numpy(), u)
            before, after = (selection.asked * end // len(times) for end in (start, start + offered.episodes))
            return selection.choose(offered, after - before, batch.key.child("selection"))

        inputs, rewards, taken = [], [], []
        for batch, result in zip(batches, self.ranks.imap(sample, batches), strict=True):
            inputs.append(result["inputs"].cpu().numpy())
            taken.append(result["taken"].cpu().numpy())
            rewards.append(self._query(result["images"], batch, None if selection is None else taken[-1]))
        u = np.concatenate([trajectory_labels(batch) for batch in batches])
        u = np.broadcast_to(u[:, None], (*times.shape, 3))
        found = Measurements(times, np.concatenate(inputs), u, r=np.concatenate(rewards))
        return found if selection is None else found.at(np.concatenate(taken))

    def _queried(self, steps: np.ndarray) -> np.ndarray:
        """Which measurements [n, m] are queried: all, or the distinct ones of a deterministic reward."""
        queried = np.ones(steps.shape, bool)
        if not self.stochastic:  # times are sorted, so that repeats are adjacent
            queried[:, 1:] = steps[:, 1:] != steps[:, :-1]
        return queried

    def _query(self, images: Tensor, batch: TrajectoryBatch, taken: np.ndarray | None) -> np.ndarray:
        """Rewards [n, m] of a batch, from the images that are queried: those that were `taken`, or all distinct ones."""
        queried = self._queried(batch.steps) if taken is None else taken
        if not queried.any():
            return np.zeros(queried.shape)
        conditions = [self.conditions[batch.conditions[row]] for row in np.nonzero(queried)[0]]
        scores = query(self.reward, images, conditions, self.ranks)
        source = np.maximum(np.cumsum(queried.ravel()) - 1, 0)
        return scores[source].reshape(batch.steps.shape)


@torch.no_grad()
def measured_images(
    diffusion: GuidedDiffusion, plan: Plan, condition: Encoded, steps: np.ndarray, measure: Measure, key: Key
) -> Tensor:
    """Images [n, m, channels, height, width] after `steps` [n, m] steps of trajectories under `plan`."""
    params, process, model = Params.of(plan), diffusion.process, diffusion.model
    generator = torch_generator(key, model.device)
    denoise = diffusion.denoiser(params.weights, condition)
    measured: Tensor | None = None
    for step in path(process, denoise, params.initial.sample(count(condition), generator), generator):
        rows, columns = np.nonzero(steps == step.k)
        if not len(rows):
            continue
        distinct, inverse = np.unique(rows, return_inverse=True)  # a time that was drawn twice is decoded once
        images = model.decode(measure(process, step)[distinct])[inverse]
        if measured is None:
            measured = torch.empty(*steps.shape, *images.shape[1:], device=images.device, dtype=images.dtype)
        measured[rows, columns] = images
    assert measured is not None
    return measured


def query(reward: Scorer, images: Tensor, conditions: Sequence[Condition], ranks: Ranks = SINGLE) -> np.ndarray:
    """Scores [n] of images [n, ...] on every rank; only the main process queries the reward."""

    def scores() -> Tensors:
        found = np.asarray(reward(images.float().cpu().numpy(), list(conditions)), np.float64)
        if found.shape != (len(conditions),):
            raise MeasurementError(
                f"the reward returned {found.shape} scores for {len(conditions)} images, expected one per image"
            )
        return {"scores": torch.from_numpy(found)}

    return ranks.from_main(scores)["scores"].cpu().numpy()


def final_images(
    diffusion: GuidedDiffusion,
    plan: Plan,
    conditions: Sequence[Condition],
    key: Key,
    batch_size: int = 64,
    ranks: Ranks = SINGLE,
) -> Iterator[Tensor]:
    """Final images [n, channels, height, width] for the given conditions, at most `batch_size` at a time, on every rank."""
    model, steps = diffusion.model, diffusion.process.steps
    starts = range(0, len(conditions), batch_size)

    def sample(job: tuple[int, Sequence[Condition]]) -> Tensors:
        number, some = job
        end, batch_key = np.full((len(some), 1), steps), key.child("images", number)
        return {"images": measured_images(diffusion, plan, model.encode(some), end, noisy_state, batch_key)[:, 0]}

    jobs = [(number, conditions[start : start + batch_size]) for number, start in enumerate(starts)]
    for result in ranks.imap(sample, jobs):
        yield result["images"]

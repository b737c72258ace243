"""Episodes of a diffusion model: denoising trajectories, and what a black-box reward says at the measured times.

A reward is a plain function of images [n, channels, height, width] in [0, 1] and their conditions. Times are those of the
sampler in denoising steps, T = S: a time inside a step is measured where the step ends.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from purectrl.core.errors import MeasurementError, require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.oracle import Rollout
from purectrl.core.problem import Plan
from purectrl.diffusion.crew import Crew
from purectrl.diffusion.models import Condition, DiffusionModel, Iterate, denoiser
from purectrl.diffusion.process import Ddim, Step, generator_of, path
from purectrl.diffusion.rewards.reward import Scorer

Look = Callable[[Ddim, Step], Tensor]
"""What is measured of a state on the way [n, *shape]."""

Embed = Callable[[Tensor], Tensor]
"""What the reward model sees of images [n, channels, height, width]: [n, ...]; frozen, differentiable."""


def itself(process: Ddim, step: Step) -> Tensor:
    """x(t): the paper's r(x(t))."""
    return step.x


def predicted_image(process: Ddim, step: Step) -> Tensor:
    """x̂(T) given x(t): the image that the denoiser sees in it. It asks for no further evaluation."""
    return step.x if step.noise is None else process.clean(step.x, step.noise, step.k)


def step_of(times: np.ndarray) -> np.ndarray:
    """The number of steps taken at `times`, in steps.

    >>> step_of(np.array([12.5, 25.0, 37.5, 50.0]))
    array([13, 25, 38, 50])
    """
    return np.ceil(times - 1e-6).astype(np.int64)


def balanced(key: Key, episodes: int, conditions: int) -> np.ndarray:
    """The index of the condition of each episode [episodes]: one after the other, from a random one on."""
    return (np.arange(episodes) + int(key.fraction() * conditions)) % conditions


class Together(NamedTuple):
    """Trajectories that are rolled out at once."""

    asked: np.ndarray
    """The index of the condition of each [n]."""
    steps: np.ndarray
    """After how many steps they are measured [n, m]."""
    key: Key


def denoising(
    model: DiffusionModel,
    process: Ddim,
    conditions: Sequence[Condition],
    reward: Scorer,
    look: Look = predicted_image,
    embed: Embed = lambda images: images,
    guidance: float = 1.0,
    deterministic: bool = True,
    chunk: int = 64,
    crew: Crew | None = None,
) -> Rollout:
    """The rollout of a diffusion model under a `Plan(weights, q)`; its measurements have

        x: what the reward model sees of the measured image, `embed(decode(look(x(t))))`;
        u: the index of the condition, [..., 1];
        r: the reward, m a trajectory.

    Main arguments:
        conditions: what images are asked for, in turn.
        reward: the black box, images [n, channels, height, width] float32 in [0, 1] and n conditions -> scores [n].
        look: what is measured, `predicted_image` or `itself`.

    Other arguments:
        deterministic: whether a reward gives the same image the same score. Then a time that was drawn twice asks once; both
            are measurements, as the paper counts them.
        chunk: trajectories at once.
        crew: processes that share the trajectories; rewards are asked for by the first.
    """
    require(len(conditions) >= 1, "conditions: at least one is needed")
    encoded, crew = model.encode(conditions), crew or Crew()

    def paint(plan: Plan, some: Together) -> Tensor:
        return measured_images(model, process, plan, encoded[some.asked], some.steps, look, guidance, some.key)

    crew.learn("rollout", paint)

    def rollout(key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        chosen, steps = balanced(key.child("conditions"), len(times), len(conditions)), step_of(times)
        starts = range(0, len(times), chunk)
        jobs = [
            Together(chosen[start : start + chunk], steps[start : start + chunk], key.child("path", number))
            for number, start in enumerate(starts)
        ]
        parts = []
        for job, images in zip(jobs, crew.rounds("rollout", plan, jobs), strict=True):
            r = ask(reward, images, job.steps, [conditions[i] for i in job.asked], deterministic)
            with torch.no_grad():
                seen = embed(images.flatten(0, 1)).unflatten(0, images.shape[:2])
            parts.append((seen.cpu().numpy(), r))
        x, r = (np.concatenate(part) for part in zip(*parts, strict=True))
        u = np.broadcast_to(chosen[:, None, None], (*times.shape, 1)).astype(np.float64)
        return Measurements(times, x, u, r=r)

    return rollout


@torch.no_grad()
def measured_images(
    model: DiffusionModel,
    process: Ddim,
    plan: Plan,
    condition: Tensor,
    steps: np.ndarray,
    look: Look,
    guidance: float,
    key: Key,
) -> Tensor:
    """Images [n, m, channels, height, width] after `steps` [n, m] steps of trajectories under `plan`."""
    iterate, generator = Iterate(plan.policy, plan.initial), generator_of(key, model.device)
    denoise = denoiser(model, iterate.weights, condition, guidance)
    found: Any = None
    for step in path(process, denoise, iterate.initial.draw(len(condition), generator), generator):
        rows, columns = np.nonzero(steps == step.k)
        if not len(rows):
            continue
        distinct, which = np.unique(rows, return_inverse=True)  # a time that was drawn twice is decoded once
        images = model.decode(look(process, step)[distinct])[which]
        if found is None:
            found = torch.empty(*steps.shape, *images.shape[1:], device=images.device, dtype=images.dtype)
        found[rows, columns] = images
    return found


def ask(
    reward: Scorer, images: Tensor, steps: np.ndarray, conditions: Sequence[Condition], deterministic: bool
) -> np.ndarray:
    """Rewards [n, m] of images [n, m, ...], each distinct one asked for once if the reward is deterministic."""
    n, m = steps.shape
    fresh = np.ones((n, m), bool)
    if deterministic:  # times are sorted, so that a repeat is next to what it repeats
        fresh[:, 1:] = steps[:, 1:] != steps[:, :-1]
    rows, columns = np.nonzero(fresh)
    pictures = images[rows, columns].float().cpu().numpy()
    scores = np.asarray(reward(pictures, [conditions[row] for row in rows]), np.float64)
    if scores.shape != (len(rows),):
        raise MeasurementError(
            f"the reward returned {scores.shape} scores for {len(rows)} images, expected one for each"
        )
    source = np.cumsum(fresh.ravel()) - 1
    return scores[source].reshape(n, m)

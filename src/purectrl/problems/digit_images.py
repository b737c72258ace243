"""Handwritten digits: a small diffusion model that is part of the package, and a black-box reward on its images."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from purectrl.core.errors import choose
from purectrl.core.prices import Prices

if TYPE_CHECKING:
    from purectrl.diffusion.digits.problem import DigitsProblem


def digits(
    reward: str | Callable[..., Any] = "legibility",
    *,
    eval_reward: str | Callable[..., Any] | None = None,
    label_levels: int = 5,
    view: str | None = None,
    denoising_steps: int = 12,
    measure: Literal["predicted_x0", "x_t"] = "predicted_x0",
    guidance: float = 1.0,
    left_out: tuple[int, ...] = (),
    eval_images: int = 10,
    reward_timeout: float = 600.0,
    stochastic_reward: bool = False,
    measurement_price: float = 0.0,
    rollout_price: float = 0.0,
    rollout_batch_size: int = 64,
    threads: int = 1,
) -> "DigitsProblem":
    """A class-conditional diffusion model of handwritten digits, to be fine-tuned by a reward on its images.

    The reward is measured on eight of the ten classes; the evaluation covers all of them.

    Main arguments:
        reward: what is measured: `legibility` (the probability that a text recogniser reads the digit), `jpeg` (minus the
            kilobytes of an image), `people` (labels in [0, 1], for which `purectrl label` asks), or `module:function` or
            `path/file.py:function`, called with images [n, 1, 16, 16] in [0, 1] and their classes, returning n scores.
        view: what the reward model sees of an image: `module:function` or `path/file.py:function`, called with images
            [n, 1, 16, 16] in [0, 1] as a torch tensor, returning embeddings [n, width]; by default the image itself.
        denoising_steps: S; an episode lasts T = S steps.
        measure: what is measured of a trajectory at time t: `predicted_x0`, the image that the denoiser predicts from x(t),
            or `x_t`, x(t) itself (the paper).
        eval_images: images per class of the evaluation after each update; four times as many at the end of a run.

    Other arguments:
        eval_reward: the reward of evaluations, as `reward`; by default the same, and none where people are asked.
        label_levels: levels of a label of people, from 2 to 9; for the reward `people` only.
        guidance: scale of classifier-free guidance; 1 is none.
        left_out: classes that are neither measured nor evaluated. The recogniser of `legibility` hardly ever reads a 1, so
            `1` makes methods comparable that differ by luck there.
        reward_timeout: seconds that the reward may take for 64 images.
        stochastic_reward: whether the same image can get different scores. Then all m times of an episode are queried, also
            repeated ones, and after a crash the queries of the interrupted step are repeated.
        measurement_price: what a measurement costs, in the unit of the reward.
        rollout_price: what a trajectory costs.
        rollout_batch_size: trajectories that are rolled out together.
        threads: CPU threads of PyTorch; the last bits of a run depend on it.
    """
    from purectrl.diffusion.digits.problem import build

    return build(
        reward,
        eval_reward=eval_reward,
        label_levels=label_levels,
        view=view,
        denoising_steps=denoising_steps,
        measure=choose("measure", measure, ("predicted_x0", "x_t")),
        guidance=guidance,
        left_out=tuple(left_out),
        eval_images=eval_images,
        reward_timeout=reward_timeout,
        stochastic_reward=stochastic_reward,
        prices=Prices(measurement_price, rollout_price),
        rollout_batch_size=rollout_batch_size,
        threads=threads,
    )

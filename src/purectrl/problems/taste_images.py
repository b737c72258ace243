"""A hidden preference for images of digits: a reward that is linear in a frozen embedding, with noisy labels."""

from typing import TYPE_CHECKING, Literal

from purectrl.core.errors import choose
from purectrl.core.prices import Prices

if TYPE_CHECKING:
    from purectrl.diffusion.digits.problem import DigitsProblem


def taste(
    preference: int = 0,
    *,
    label_noise: float = 0.5,
    measure: Literal["predicted_x0", "x_t"] = "x_t",
    denoising_steps: int = 12,
    eval_images: int = 10,
    measurement_price: float = 0.0,
    rollout_price: float = 0.0,
    rollout_batch_size: int = 64,
    threads: int = 1,
) -> "DigitsProblem":
    """The diffusion model of `digits`, to be fine-tuned by a hidden preference with noisy labels.

    The preference is linear in a frozen embedding of an image, whatever its noise; on images of the pretrained model it is 0
    on average and has standard deviation 1. Evaluations use it without noise.

    Main arguments:
        preference: which preference: each number is another one.
        label_noise: standard deviation of a label; every measurement is asked, also repeated ones.
        measure: what is measured of a trajectory at time t: `x_t`, x(t) itself, or `predicted_x0`, the image that the
            denoiser predicts from x(t).
        eval_images: images per class of the evaluation after each update; four times as many at the end of a run.

    Other arguments:
        denoising_steps: S; an episode lasts T = S steps.
        measurement_price: what a measurement costs, in the unit of the reward.
        rollout_price: what a trajectory costs.
        rollout_batch_size: trajectories that are rolled out together.
        threads: CPU threads of PyTorch; the last bits of a run depend on it.
    """
    from purectrl.diffusion.taste import build

    return build(
        preference,
        label_noise=label_noise,
        denoising_steps=denoising_steps,
        measure=choose("measure", measure, ("predicted_x0", "x_t")),
        eval_images=eval_images,
        prices=Prices(measurement_price, rollout_price),
        rollout_batch_size=rollout_batch_size,
        threads=threads,
    )

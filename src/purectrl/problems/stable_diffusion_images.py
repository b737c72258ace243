"""Stable Diffusion with low-rank adapters, and a black-box reward on its images: the paper's experiment."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from purectrl.core.errors import choose
from purectrl.core.prices import Prices
from purectrl.diffusion.prompts import TRAINING, UNSEEN

if TYPE_CHECKING:
    from purectrl.diffusion.stable_diffusion import StableDiffusionProblem


def stable_diffusion(
    model: str | None = None,
    reward: str | Callable[..., Any] = "aesthetic",
    *,
    eval_reward: str | Callable[..., Any] | None = None,
    label_levels: int = 5,
    view: str | None = None,
    view_model: str | None = None,
    prompt_view: Literal["index", "text"] = "index",
    aesthetic_clip: str | None = None,
    aesthetic_head: str | None = None,
    prompts: tuple[str, ...] = TRAINING,
    held_out_prompts: tuple[str, ...] = UNSEEN,
    denoising_steps: int = 50,
    measure: Literal["predicted_x0", "x_t"] = "x_t",
    guidance: float = 7.5,
    flow_noise: float = 0.7,
    rank: int = 4,
    size: int | None = None,
    precision: Literal["no", "fp16", "bf16"] = "no",
    device: Literal["auto", "cpu", "cuda"] = "auto",
    eval_images: int = 2,
    reward_timeout: float = 600.0,
    stochastic_reward: bool = False,
    measurement_price: float = 0.0,
    rollout_price: float = 0.0,
    rollout_batch_size: int = 16,
    threads: int = 1,
) -> "StableDiffusionProblem":
    """Stable Diffusion, to be fine-tuned by a reward on its images of animals.

    Main arguments:
        model: directory with a pipeline in diffusers' format, or its name on the Hugging Face hub: Stable Diffusion 1.x,
            2.x, XL or 3, or FLUX.1.
        reward: what is measured: `aesthetic` (the LAION Aesthetics V2 score, as in the paper), `jpeg` (minus the kilobytes
            of an image), `people` (labels in [0, 1], for which `purectrl label` asks), or `module:function` or
            `path/file.py:function`, called with images
            [n, 3, height, width] in [0, 1] and their prompts, returning n scores.
        view: what the reward model sees of an image: `clip` or `dino`, an embedding by a network, or `module:function` or
            `path/file.py:function`, called with images [n, channels, height, width] in [0, 1] as a torch tensor, returning
            embeddings [n, width]. By default, the embedding of the reward if it has one, otherwise brightness and
            contrast of 16 × 16 cells.
        view_model: directory with the network of the view `clip` or `dino`, or its name on the hub.
        prompt_view: what the reward model knows of a prompt: `index`, which one it is, or `text`, its text embedding, so
            that similar prompts share what is learned; for many prompts with few images each.
        aesthetic_clip: directory with CLIP ViT-L/14, or its name on the hub (aesthetic reward).
        aesthetic_head: file with the head on CLIP, or its name on the hub (aesthetic reward).
        denoising_steps: S; an episode lasts T = S steps.
        measure: what is measured of a trajectory at time t: `x_t`, x(t) itself (the paper), or `predicted_x0`, the image
            that the denoiser predicts from x(t).
        device: where to compute; `auto` uses a GPU if there is one.

    Other arguments:
        eval_reward: the reward of evaluations, as `reward`; by default the same, and none where people are asked.
        label_levels: levels of a label of people, from 2 to 9; for the reward `people` only.
        prompts: prompts that are measured; by default 50 animals.
        held_out_prompts: prompts of the evaluation alone; by default the six animals of the paper.
        guidance: scale of classifier-free guidance; 1 is none. For FLUX, which has guidance as an input, 3.5 is usual.
        flow_noise: noise of the steps of flow matching (Stable Diffusion 3, FLUX); the pipeline's own ODE is the limit 0.
        rank: rank of the adapters.
        size: height and width of an image in pixels; by default what the model was trained on.
        precision: precision of the networks: `no` is single, `fp16` and `bf16` are half precision. Adapters and the process
            are always in single precision.
        eval_images: images per prompt of the evaluation after each update; four times as many at the end of a run.
        reward_timeout: seconds that the reward may take for 64 images.
        stochastic_reward: whether the same image can get different scores. Then all m times of an episode are queried, also
            repeated ones, and after a crash the queries of the interrupted step are repeated.
        measurement_price: what a measurement costs, in the unit of the reward.
        rollout_price: what a trajectory costs.
        rollout_batch_size: trajectories that are rolled out together.
        threads: CPU threads of PyTorch; the last bits of a run depend on it.
    """
    from purectrl.diffusion.stable_diffusion import build

    return build(
        model,
        reward,
        eval_reward=eval_reward,
        label_levels=label_levels,
        view=view,
        view_model=view_model,
        prompt_view=choose("prompt_view", prompt_view, ("index", "text")),
        aesthetic_clip=aesthetic_clip,
        aesthetic_head=aesthetic_head,
        prompts=tuple(prompts),
        held_out_prompts=tuple(held_out_prompts),
        denoising_steps=denoising_steps,
        measure=choose("measure", measure, ("predicted_x0", "x_t")),
        guidance=guidance,
        flow_noise=flow_noise,
        rank=rank,
        size=size,
        precision=choose("precision", precision, ("no", "fp16", "bf16")),
        device=choose("device", device, ("auto", "cpu", "cuda")),
        eval_images=eval_images,
        reward_timeout=reward_timeout,
        stochastic_reward=stochastic_reward,
        prices=Prices(measurement_price, rollout_price),
        rollout_batch_size=rollout_batch_size,
        threads=threads,
    )

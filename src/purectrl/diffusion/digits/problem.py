"""Handwritten digits: a small class-conditional diffusion model that is fine-tuned to be legible.

Besides the reward, an evaluation reports the accuracy of an independent classifier: a model whose reward rises while that
accuracy falls exploits the reward.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from purectrl.core.errors import require
from purectrl.core.io import subdirectory, write_atomically, write_files
from purectrl.core.prices import Prices
from purectrl.core.problem import Metrics
from purectrl.diffusion import image_grid
from purectrl.diffusion.digits import classifier, network
from purectrl.diffusion.digits.network import CLASSES, SIZE, TRAINING
from purectrl.diffusion.distributed import current_ranks
from purectrl.diffusion.images import Samples, check_images, diversity
from purectrl.diffusion.models import GuidedDiffusion, Params, PixelModel, save_initial
from purectrl.diffusion.problem import DiffusionProblem, RewardInput
from purectrl.diffusion.process import AffineSteps
from purectrl.diffusion.reward_model import add_noise
from purectrl.diffusion.reward_networks import ImageTrunk, VectorTrunk
from purectrl.diffusion.rewards import RewardOptions, Scorer, black_box, evaluation_reward, reward_spec
from purectrl.diffusion.rollout import MEASURES
from purectrl.diffusion.views import view_input


@dataclass(frozen=True, eq=False, kw_only=True)
class DigitsProblem(DiffusionProblem):
    """The digits and their classifier."""

    classifier: classifier.Classifier
    packages: tuple[str, ...] = ("numpy", "torch", "diffusers", "onnxruntime", "rapidocr-onnxruntime")

    def metrics(self, samples: Samples) -> Metrics:
        """Mean reward of measured and of held-out classes, classifier accuracy, diversity."""
        images, classes, scores = samples
        check_images(images, (1, SIZE, SIZE))
        measured = np.isin(classes, self.conditions)
        return {
            "reward": float(scores[measured].mean()),
            "reward_held_out": float(scores[~measured].mean()),
            "classifier_accuracy": float(self.classifier.is_correct(images, classes).mean()),
            "diversity": diversity(images, classes),
        }

    def reward_by_condition(self, samples: Samples) -> Metrics:
        """Mean reward of each class, from 0 to 9."""
        return {"reward_by_class": list(samples.mean_scores().values())}

    def save_images(self, name: str, groups: Mapping[str, Samples], directory: Path) -> list[Path]:
        """A grid of all classes; before and after also as arrays: images as bytes [n, 1, 16, 16], scores and classes."""
        image_grid.save_png(
            image_grid.side_by_side(groups, columns=self.grid_columns), png := directory / f"{name}.png"
        )
        if "before" not in groups:
            return [png]
        arrays = {title: np.round(255 * samples.images).astype(np.uint8) for title, samples in groups.items()}
        arrays |= {f"{title}_scores": samples.scores for title, samples in groups.items()}
        arrays |= {"classes": groups["before"].conditions}
        write_atomically(file := directory / f"{name}.safetensors", save(arrays))
        return [png, file]

    def save_policy(self, params: Params, directory: Path) -> list[Path]:
        """The denoiser as a diffusers directory, which plain `UNet2DModel.from_pretrained(folder)` reads, with q and the
        noise schedule."""
        folder = subdirectory(directory, "denoiser", create=True)
        denoiser = network.pretrained()
        denoiser.load_state_dict(params.weights)
        write_files(folder, denoiser.save)
        write_files(folder, network.schedule().save_pretrained)
        save_initial(params, folder / "initial.safetensors")
        return [folder]


@functools.cache
def pretrained_model() -> PixelModel:
    """The pretrained model; runs of one process share it."""
    return PixelModel.conditional(network.pretrained(), (1, SIZE, SIZE), empty=network.UNCONDITIONAL)


@functools.cache
def pretrained_classifier() -> classifier.Classifier:
    """The classifier of the package; runs of one process share it."""
    return classifier.pretrained()


def build(
    reward: str | Scorer,
    *,
    eval_reward: str | Scorer | None,
    label_levels: int,
    view: str | None,
    denoising_steps: int,
    measure: str,
    guidance: float,
    left_out: tuple[int, ...],
    eval_images: int,
    reward_timeout: float,
    stochastic_reward: bool,
    prices: Prices,
    rollout_batch_size: int,
    threads: int,
) -> DigitsProblem:
    """The problem that `purectrl.problems.digit_images` documents."""
    most = network.TRAINING_STEPS
    require(1 <= denoising_steps <= most, f"denoising_steps: must be between 1 and {most}, not {denoising_steps}")
    unknown = [one for one in left_out if one not in range(CLASSES)]
    require(not unknown, f"left_out: must be digits, not {unknown}")
    measured = tuple(one for one in TRAINING if one not in left_out)
    evaluated = tuple(one for one in range(CLASSES) if one not in left_out)
    require(
        len(measured) >= 1 and len(evaluated) > len(measured),
        f"left_out: at least one measured and one held-out class must remain, not {list(left_out)}",
    )
    require(
        view is None or ":" in view,
        f"view: must be module:function or path/file.py:function, not {view!r:.60}; clip and dino are for stable-diffusion",
    )
    name, spec = reward_spec(reward, RewardOptions(label_levels=label_levels))
    if view is not None:
        inputs = view_input(view, pretrained_model(), len(measured))
    elif spec.embed is None:
        inputs = RewardInput(ImageTrunk(1, SIZE, len(measured)), augment=add_noise)
    else:
        inputs = RewardInput(VectorTrunk(spec.width, len(measured)), spec.embed)
    return DigitsProblem(
        name="digits",
        diffusion=GuidedDiffusion(
            pretrained_model(), AffineSteps.ddim_from_scheduler(network.schedule(), denoising_steps), guidance
        ),
        conditions=measured,
        eval_conditions=evaluated,
        reward=black_box(name, spec, reward_timeout, stochastic_reward),
        eval_reward=evaluation_reward(eval_reward, RewardOptions(), reward_timeout),
        reward_input=inputs,
        measure=MEASURES[measure],
        reward_gradient=spec.gradient,
        kl_conditions=measured * 8,
        eval_images=eval_images,
        prices=prices,
        rollout_batch_size=rollout_batch_size,
        threads=threads,
        ranks=current_ranks(),
        classifier=pretrained_classifier(),
    )

"""SEIKO and PURE_SEIKO: fine-tuning of diffusion models by a costly black-box reward (PyTorch)."""

from purectrl.diffusion.learner import SeikoLearner, SeikoState
from purectrl.diffusion.models import DiffusionModel, Iterate, PixelModel, denoiser
from purectrl.diffusion.process import Ddim, Gaussian, path
from purectrl.diffusion.reward_model import Fitting, RewardModel, Rows, logistic, slight_noise, squared
from purectrl.diffusion.reward_networks import ImageTrunk, VectorTrunk
from purectrl.diffusion.rollout import denoising, itself, predicted_image
from purectrl.diffusion.uncertainty import Uncertainty, bootstrap, greedy, thompson, ucb
from purectrl.diffusion.update import Tuning, path_divergence, tune

__all__ = [
    "Ddim",
    "DiffusionModel",
    "Fitting",
    "Gaussian",
    "ImageTrunk",
    "Iterate",
    "PixelModel",
    "RewardModel",
    "Rows",
    "SeikoLearner",
    "SeikoState",
    "Tuning",
    "Uncertainty",
    "VectorTrunk",
    "bootstrap",
    "denoiser",
    "denoising",
    "greedy",
    "itself",
    "logistic",
    "path",
    "path_divergence",
    "predicted_image",
    "slight_noise",
    "squared",
    "thompson",
    "tune",
    "ucb",
]

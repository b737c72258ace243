"""SEIKO and PURE_SEIKO: fine-tuning of diffusion models by a costly black-box reward (PyTorch).

settings         Seiko: the settings of the learner; importing them does not import PyTorch
learner          the learner of both algorithms
reward_model     the reward model, its loss and its training; uncertainty: its optimism; reward_networks: its networks
finetune         the update of the diffusion model
process, models  DDIM as a controlled diffusion; diffusion models. pipeline, lora: Stable Diffusion with adapters
rollout, problem trajectories and measurements; problems with images
rewards          black-box rewards and the log of their queries
distributed      several processes that share the work of one run
"""

import os

from purectrl.diffusion.settings import FinetuneSettings, RewardModelSettings, Seiko

__all__ = ["FinetuneSettings", "RewardModelSettings", "Seiko"]

os.environ.setdefault(
    "TRANSFORMERS_VERBOSITY", "error"
)  # else its imports print notices about packages that nobody needs

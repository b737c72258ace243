"""Rewards: plain callables `(images, conditions) -> scores`, and the log of their queries.

    Reward           checks, counts and logs every query of any reward
    weighted         the weighted sum of several rewards
    REWARDS          rewards by name; a new one is one function and one line there
    compressibility  minus the size of an image as JPEG
    Legibility       rewards.ocr: the probability that a text recogniser reads the condition
    Aesthetic        rewards.aesthetic: the LAION Aesthetics V2 predictor on CLIP ViT-L/14
    People           rewards.people: labels of people, whom `purectrl label` asks

The last three are imported from their modules, since they load packages that others do not need.
"""

from purectrl.diffusion.rewards.jpeg import compressibility
from purectrl.diffusion.rewards.registry import (
    REWARDS,
    RewardOptions,
    RewardSpec,
    black_box,
    evaluation_reward,
    reward_spec,
)
from purectrl.diffusion.rewards.reward import Condition, Reward, Scorer, weighted

__all__ = [
    "REWARDS",
    "Condition",
    "Reward",
    "RewardOptions",
    "RewardSpec",
    "Scorer",
    "black_box",
    "compressibility",
    "evaluation_reward",
    "reward_spec",
    "weighted",
]

"""Rewards: plain callables `(images, conditions) -> scores`, and the account that is kept of them.

    Reward           checks, counts and logs every query of any of these
    weighted         the weighted sum of several
    compressibility  how few bytes an image takes as JPEG
    Legibility       rewards.ocr: how likely a text recogniser reads what was asked for
    Aesthetic        rewards.aesthetic: the LAION Aesthetics V2 predictor on CLIP ViT-L/14

The last two are imported from their modules, since they load what others may not need.
"""

from purectrl.diffusion.rewards.jpeg import compressibility
from purectrl.diffusion.rewards.reward import Condition, Reward, Scorer, weighted

__all__ = ["Condition", "Reward", "Scorer", "compressibility", "weighted"]

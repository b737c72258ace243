"""Settings of SEIKO and PURE_SEIKO on Stable Diffusion. What the paper's table has is a default of `DiffusionConfig`."""

from dataclasses import dataclass
from typing import Literal

from purectrl.core.errors import require
from purectrl.experiments.config import MOST
from purectrl.experiments.diffusion_config import DiffusionConfig

MODEL = "stable-diffusion-v1-5/stable-diffusion-v1-5"
CLIP, HEAD = "openai/clip-vit-large-patch14", "trl-lib/ddpo-aesthetic-predictor"
"""Names on the Hugging Face hub, for those who have a network."""


@dataclass(frozen=True)
class StableDiffusionConfig(DiffusionConfig):
    """SEIKO and PURE_SEIKO on Stable Diffusion."""

    model: str | None = None
    """Directory with a Stable Diffusion pipeline as diffusers saves it, or its name on the Hugging Face hub."""
    reward: str = "aesthetic"
    """What is measured: `aesthetic`, the LAION Aesthetics V2 score (the paper), `jpeg` (how few kilobytes an image takes),
    or your own as `module:function`, called with images [n, 3, height, width] in [0, 1] and prompts, returning n scores."""
    link: Literal["logistic", "squared"] = "squared"
    """How the reward model is fitted: `logistic` takes rewards in [0, 1], `squared` any, best of order one."""
    aesthetic_clip: str | None = None
    """Directory with CLIP ViT-L/14, or its name on the hub (aesthetic reward)."""
    aesthetic_head: str | None = None
    """File with the head on CLIP, or its name on the hub (aesthetic reward)."""
    prompts: tuple[str, ...] = ()
    """Prompts that are measured; without any, the paper's 50 animals."""
    unseen: tuple[str, ...] = ()
    """Prompts that only tests ask for; without any, the paper's six."""
    rank: int = 4
    """Of the adapters."""
    size: int = 0
    """Height and width of an image in pixels; 0 is what the model was trained on."""
    precision: Literal["no", "fp16", "bf16"] = "no"
    """Of the networks: single, or half in one of two ways. Adapters and the process are always in single precision."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""
    guidance: float = 7.5
    """Classifier-free guidance; 1 is none."""
    tune_chunk: int = 2
    """Imagined trajectories in memory at once; 0 is all of an iteration."""
    checkpointing: bool = True
    """Whether activations are computed twice instead of being kept."""
    chunk: int = 16
    """Trajectories that are rolled out at once."""
    test_images: int = 2
    """Images of each prompt by which an iterate is tested after its update; four times as many at the end of a run."""

    @property
    def rewards(self) -> tuple[str, ...]:
        """What `reward` may be, apart from one's own."""
        return ("aesthetic", "jpeg")

    @property
    def loss_scale(self) -> float:
        """What keeps small gradients above zero in half precision."""
        return 1024.0 if self.precision == "fp16" else 1.0

    def check(self) -> None:
        """As `LoopConfig.check`; what is in the files is found out when they are read."""
        super().check()
        require(
            self.model is not None,
            "model: a Stable Diffusion pipeline is needed: its directory, or a name on the hub to download 4 GB: "
            f"--model {MODEL}",
        )
        require(
            self.reward != "aesthetic" or bool(self.aesthetic_clip and self.aesthetic_head),
            f"aesthetic_{'head' if self.aesthetic_clip else 'clip'}: the aesthetic reward is a head on CLIP ViT-L/14; "
            f"give the path of each, or names on the hub: --aesthetic-clip {CLIP} --aesthetic-head {HEAD}; "
            "--reward jpeg needs neither",
        )
        for name in ("prompts", "unseen"):
            require(len(set(getattr(self, name))) == len(getattr(self, name)), f"{name}: one of them is named twice")
        require(1 <= self.rank <= MOST, f"rank: must lie between 1 and {MOST:,}, not {self.rank}")
        require(0 <= self.size <= 4096, f"size: must lie between 1 and 4096 pixels, or 0, not {self.size}")

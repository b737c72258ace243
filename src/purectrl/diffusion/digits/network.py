"""The denoiser of the digits: a small U-Net of diffusers, its noise schedule, and its weights.

    x        [n, 1, 16, 16]   a noisy image; the clean one has values in [−1, 1]
    t        [n] int64        the training step: 0 is (almost) clean, 999 is (almost) noise
    classes  [n] int64        0..9, or `UNCONDITIONAL` for no class
    ε̂        [n, 1, 16, 16]   the noise that the denoiser predicts in x

The schedule is Stable Diffusion's. At its noisiest step ᾱ = 0.0047, so that no single DDIM step dominates the divergence:
with twelve steps the KL weights (`AffineSteps.weight`) lie between 0.36 and 0.87.
"""

from pathlib import Path

from diffusers.models.unets.unet_2d import UNet2DModel
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from torch import Tensor, nn

from purectrl.core.errors import StoreError, require

SIZE = 16
"""Height and width of an image."""
CLASSES = 10
HELD_OUT = (5, 6)
"""Classes that are never measured, as the paper has animals that it never trains on."""
TRAINING = tuple(c for c in range(CLASSES) if c not in HELD_OUT)
"""Classes that are measured."""
UNCONDITIONAL = CLASSES
"""The class that stands for no condition, for guidance."""
TRAINING_STEPS = 1000
WEIGHTS = Path(__file__).parent / "weights"
"""Weights of the package: `denoiser/` and `scheduler/` in diffusers' format, and the classifier."""
REMEDY = "reinstall purectrl, or train them: python scripts/train_digits/train.py --out DIR"


class Denoiser(nn.Module):
    """ε̂(x, t, class), on a `UNet2DModel`."""

    def __init__(self, unet: UNet2DModel) -> None:
        super().__init__()
        self.unet = unet

    def forward(self, x: Tensor, t: Tensor, classes: Tensor) -> Tensor:
        """x [n, 1, 16, 16], t [n], classes [n] -> predicted noise [n, 1, 16, 16]."""
        return self.unet(x, t, class_labels=classes, return_dict=False)[0]

    def save(self, folder: Path) -> None:
        """Writes a diffusers directory, which plain `UNet2DModel.from_pretrained(folder)` reads."""
        self.unet.save_pretrained(folder)


def schedule() -> DDIMScheduler:
    """The noise schedule: ᾱ(t) and the timesteps of DDIM.

    The last DDIM step ends at the predicted image (`set_alpha_to_one`), so its noise is zero.
    """
    return DDIMScheduler(
        num_train_timesteps=TRAINING_STEPS,
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        clip_sample=False,
        set_alpha_to_one=True,
        timestep_spacing="trailing",
    )


def pretrained(folder: Path | str | None = None) -> Denoiser:
    """The denoiser in a diffusers directory; by default the one of the package."""
    folder = WEIGHTS / "denoiser" if folder is None else Path(folder)
    for name in ("config.json", "diffusion_pytorch_model.safetensors"):
        if not (folder / name).is_file():
            raise StoreError(f"the weights of the denoiser are missing: {folder / name} does not exist; {REMEDY}")
    try:
        unet = UNet2DModel.from_pretrained(folder, local_files_only=True, low_cpu_mem_usage=False)
    except Exception as error:  # diffusers raises many types for a damaged file
        raise StoreError(f"the weights of the denoiser in {folder} are damaged ({error}); {REMEDY}") from None
    require(
        unet.config["num_class_embeds"] == CLASSES + 1 and unet.config["sample_size"] == SIZE,
        f"folder: {folder} has another network; the denoiser of the digits has 11 classes and 16×16 pixels",
    )
    return Denoiser(unet).eval()

"""The denoiser of `digits`: diffusers' U-Net in a small size, its noise schedule, and the weights that come along.

    x        [n, 1, 16, 16]   a noisy image; the clean one has values in [−1, 1]
    t        [n] int64        the training step: 0 is (almost) clean, 999 is (almost) noise
    classes  [n] int64        0..9, or `UNCONDITIONAL` where the class is not told
    ε̂        [n, 1, 16, 16]   the noise that the denoiser sees in x

The schedule is Stable Diffusion's. Its last step keeps a little of the image, ᾱ = 0.0047, so that no single DDIM step
dominates: with twelve steps the KL weight of one (`Ddim.weight`) lies between 0.36 and 0.87.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from diffusers import DDIMScheduler, UNet2DModel
from torch import Tensor, nn

from purectrl.core.errors import StoreError, require
from purectrl.diffusion.digits.data import CLASSES, SIZE

UNCONDITIONAL = CLASSES
"""The class that says nothing; guidance needs it."""
TRAINING_STEPS = 1000
WEIGHTS = Path(__file__).parent / "weights"
"""What comes with the package: `denoiser/` and `scheduler/` as diffusers writes them, and the judge."""
REMEDY = "reinstall purectrl, or make them: python -m purectrl.diffusion.digits.pretrain --out DIR"


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


def untrained(generator: torch.Generator, widths: tuple[int, ...] = (16, 32, 64)) -> Denoiser:
    """A denoiser with random weights, drawn from `generator` alone.

    Main arguments:
        widths: channels at 16×16, 8×8 and 4×4; 0.62 million weights as they are.
    """
    levels = len(widths)
    with torch.random.fork_rng(devices=[]):  # layers draw from the global generator when they are built
        unet = UNet2DModel(
            sample_size=SIZE,
            in_channels=1,
            out_channels=1,
            block_out_channels=widths,
            layers_per_block=1,
            norm_num_groups=8,
            down_block_types=("DownBlock2D",) * levels,
            up_block_types=("UpBlock2D",) * levels,
            add_attention=False,
            num_class_embeds=CLASSES + 1,
        )
    for module in unet.modules():
        redraw(module, generator)
    nn.init.zeros_(unet.conv_out.weight)  # ε̂ = 0 at first: the loss starts at 1 and not far above it
    return Denoiser(unet)


def redraw(module: nn.Module, generator: torch.Generator) -> None:
    """Draws the weights of one layer again, from `generator`: torch's own drawing reads a global state."""
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.kaiming_uniform_(module.weight, a=5**0.5, generator=generator)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, generator=generator)


def schedule() -> DDIMScheduler:
    """The noise schedule: ᾱ(t), and which steps DDIM visits.

    The last DDIM step goes to the predicted clean image itself (`set_alpha_to_one`), so its noise is zero.
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
    """The denoiser in a diffusers directory, ready to evaluate; without `folder`, the one that comes with the package."""
    folder = WEIGHTS / "denoiser" if folder is None else Path(folder)
    for name in ("config.json", "diffusion_pytorch_model.safetensors"):
        if not (folder / name).is_file():
            raise StoreError(f"the weights of the denoiser are missing: {folder / name} does not exist; {REMEDY}")
    try:
        unet = UNet2DModel.from_pretrained(folder, local_files_only=True, low_cpu_mem_usage=False)
    except Exception as error:  # diffusers raises many kinds for a damaged file
        raise StoreError(f"the weights of the denoiser in {folder} are damaged ({error}); {REMEDY}") from None
    require(
        unet.config["num_class_embeds"] == CLASSES + 1 and unet.config["sample_size"] == SIZE,
        f"folder: {folder} holds another network; the denoiser of the digits has 11 classes and 16×16 pixels",
    )
    return Denoiser(unet).eval()


def halved(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights at half precision, as they are shipped: samples do not change to the eye, files halve."""
    return {name: value.detach().half().contiguous() for name, value in state.items()}

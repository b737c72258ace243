"""A small diffusion model: four by four pixels, three classes, five steps."""

import math
import string
from itertools import pairwise

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from purectrl.core import Key
from purectrl.diffusion import FinetuneSettings, RewardModelSettings
from purectrl.diffusion.distributed import SINGLE
from purectrl.diffusion.learner import SeikoLearner
from purectrl.diffusion.models import GuidedDiffusion, PixelModel
from purectrl.diffusion.process import AffineSteps, torch_generator
from purectrl.diffusion.reward_model import RewardModel
from purectrl.diffusion.reward_networks import ImageTrunk, random_weights

SHAPE = (1, 4, 4)
CLASSES = 3
ALPHAS = [math.cos((s + 8) / 1008 * math.pi / 2) ** 2 for s in range(1000)]


class Network(nn.Module):
    """(x, steps, classes) -> noise: two convolutions and two embeddings."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 1, 3, padding=1)
        self.classes, self.time = nn.Embedding(CLASSES + 1, 6), nn.Linear(2, 6)

    def forward(self, x, steps, classes):
        phase = steps[:, None] / 1000
        context = self.classes(classes) + self.time(torch.cat([phase, 1 - phase], dim=1).to(x))
        return x + 0.3 * self.last(torch.tanh(self.first(x) + context[:, :, None, None]))


def seeded(network, seed=0):
    network.load_state_dict(random_weights(network, torch_generator(Key.from_seed(seed))))
    return network


def model(seed=0, network=Network):
    return PixelModel.conditional(seeded(network(), seed), SHAPE, empty=CLASSES)


def diffusion(guidance=1.0, **settings):
    return GuidedDiffusion(model(**settings), process(), guidance)


def process(steps=5, last=1.0):
    return AffineSteps.ddim_from_alphas(ALPHAS, [round(s) for s in np.linspace(950, 40, steps)], last)


def brightness(images, conditions):
    """A reward in [0, 1]: the mean of the pixels."""
    return images.mean(axis=(1, 2, 3), dtype=np.float64)


def reward_model(**settings):
    trunk = ImageTrunk(1, 4, CLASSES, width=8, filters=(4, 4, 4))
    small = {"steps": 20, "batch_size": 16, "check_every": 10, "bonus_scale": 0.1}
    return RewardModel(trunk, RewardModelSettings(**(small | settings)))


def finetune_settings(**settings):
    """Few and short iterations, with learning rates for the tiny model."""
    small = {"iterations": 3, "batch_size": 4, "learning_rate": 3e-4, "initial_learning_rate": 3e-3, "beta": 5e-4}
    return FinetuneSettings(**(small | settings))


def learner(reward=None, ranks=SINGLE, **settings):
    made = reward_model(**(reward or {}))
    return SeikoLearner(diffusion(), tuple(range(CLASSES)), made, finetune_settings(**settings), ranks=ranks)


def moved(params, size=0.05, seed=0):
    """Other parameters nearby."""
    generator = torch_generator(Key.from_seed(seed))
    shift = lambda tensor: tensor + size * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)  # noqa: E731
    weights = {name: shift(tensor) for name, tensor in params.weights.items()}
    return type(params)(weights, type(params.initial)(*map(shift, params.initial)))


def save_pipeline(folder):
    """Writes a Stable Diffusion pipeline with random weights, as diffusers does: 16×16 pixels, latents of 4×4×4."""
    from diffusers import PNDMScheduler, StableDiffusionPipeline

    with torch.random.fork_rng():
        torch.manual_seed(0)
        unet, vae, text_encoder = pipeline_networks()
    scheduler = PNDMScheduler(  # Stable Diffusion 1.5 comes with this one
        beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012, skip_prk_steps=True, steps_offset=1
    )
    StableDiffusionPipeline(
        vae, text_encoder, tokenizer(), unet, scheduler, None, None, requires_safety_checker=False
    ).save_pretrained(folder)
    return folder


def pipeline_networks():
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    small = {"layers_per_block": 1, "norm_num_groups": 4}
    unet = UNet2DConditionModel(
        sample_size=4,
        block_out_channels=(8, 16),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=8,
        attention_head_dim=4,
        **small,
    )
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 3, "up_block_types": ("UpDecoderBlock2D",) * 3}
    vae = AutoencoderKL(**blocks, block_out_channels=(4, 8, 8), latent_channels=4, **small)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    marks = {"bos_token_id": 52, "eos_token_id": 53, "pad_token_id": 53}
    text_encoder = CLIPTextModel(CLIPTextConfig(**sizes, vocab_size=54, max_position_embeddings=16, **marks))
    return unet, vae, text_encoder


def tokenizer():
    """CLIP's, with the 26 letters, alone and at the end of a word."""
    from transformers import CLIPTokenizer

    letters = [*string.ascii_lowercase, *(f"{letter}</w>" for letter in string.ascii_lowercase)]
    tokens = [*letters, "<|startoftext|>", "<|endoftext|>"]
    return CLIPTokenizer(vocab={token: i for i, token in enumerate(tokens)}, merges=[], model_max_length=16)


def save_clip(folder, width=8):
    """Writes a CLIP vision model with random weights, for images of 16×16 pixels."""
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = CLIPVisionConfig(**sizes, image_size=16, patch_size=8, projection_dim=width)
        CLIPVisionModelWithProjection(config).save_pretrained(folder)
    return folder


def save_head(file, widths=(8, 6, 1), seed=0):
    """Writes the affine layers of an aesthetic predictor, and returns them."""
    generator, state = torch.Generator().manual_seed(seed), {}
    for i, (inputs, outputs) in zip((0, 2), pairwise(widths), strict=True):
        state[f"layers.{i}.weight"] = torch.randn(outputs, inputs, generator=generator)
        state[f"layers.{i}.bias"] = torch.randn(outputs, generator=generator)
    save_file(state, file)
    return state

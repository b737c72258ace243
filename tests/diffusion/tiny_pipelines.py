"""Tiny pipelines of every family with random weights, written as diffusers writes them: images of 16×16 pixels."""

import string

import torch
from tiny import save_pipeline, tokenizer

TEXT = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
MARKS = {"vocab_size": 54, "max_position_embeddings": 16, "bos_token_id": 52, "eos_token_id": 53, "pad_token_id": 53}


def autoencoder(channels=4, **settings):
    from diffusers import AutoencoderKL

    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 3, "up_block_types": ("UpDecoderBlock2D",) * 3}
    sizes = {"block_out_channels": (4, 8, 8), "layers_per_block": 1, "norm_num_groups": 4}
    return AutoencoderKL(**blocks, **sizes, latent_channels=channels, **settings)


def text_encoder(projected=True):
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    config = CLIPTextConfig(**TEXT, **MARKS, projection_dim=8)
    return (CLIPTextModelWithProjection if projected else CLIPTextModel)(config)


def t5():
    from transformers import T5Config, T5EncoderModel, T5Tokenizer

    letters = [*string.ascii_lowercase, *(f"▁{letter}" for letter in string.ascii_lowercase), "▁"]
    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((token, -1.0) for token in letters)]
    config = T5Config(vocab_size=64, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    return T5EncoderModel(config), T5Tokenizer(vocab=vocab, extra_ids=0, model_max_length=16)


def stable_diffusion_2(folder):
    """As version 2.1: the U-Net predicts v."""
    import json

    save_pipeline(folder)
    file = folder / "scheduler" / "scheduler_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"prediction_type": "v_prediction"}))


def stable_diffusion_xl(folder):
    from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline, UNet2DConditionModel

    unet = UNet2DConditionModel(
        sample_size=4,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=4,
        cross_attention_dim=16,
        attention_head_dim=4,
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=4,
        projection_class_embeddings_input_dim=8 + 6 * 4,
    )
    scheduler = EulerDiscreteScheduler(
        beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012, steps_offset=1, timestep_spacing="leading"
    )
    texts = (text_encoder(projected=False), text_encoder(), tokenizer(), tokenizer())
    StableDiffusionXLPipeline(autoencoder(), *texts, unet, scheduler, add_watermarker=False).save_pretrained(folder)


def stable_diffusion_3(folder):
    from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel, StableDiffusion3Pipeline

    transformer = SD3Transformer2DModel(
        sample_size=4,
        in_channels=4,
        out_channels=4,
        num_layers=1,
        attention_head_dim=4,
        num_attention_heads=2,
        joint_attention_dim=32,
        caption_projection_dim=8,
        pooled_projection_dim=16,
        pos_embed_max_size=8,
    )
    StableDiffusion3Pipeline(
        transformer,
        FlowMatchEulerDiscreteScheduler(shift=3.0),
        autoencoder(shift_factor=0.0609, scaling_factor=1.5305),
        text_encoder(),
        tokenizer(),
        text_encoder(),
        tokenizer(),
        None,
        None,
    ).save_pretrained(folder)


def flux(folder):
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel

    transformer = FluxTransformer2DModel(
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=8,
        pooled_projection_dim=8,
        axes_dims_rope=(2, 2, 4),
        guidance_embeds=True,
    )
    encoder, words = t5()
    vae = autoencoder(shift_factor=0.1159, scaling_factor=0.3611)
    scheduler = FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)
    parts = (scheduler, vae, text_encoder(projected=False), tokenizer(), encoder, words, transformer)
    FluxPipeline(*parts).save_pretrained(folder)


WRITERS = {
    "Stable Diffusion 2.1": stable_diffusion_2,
    "Stable Diffusion XL": stable_diffusion_xl,
    "Stable Diffusion 3": stable_diffusion_3,
    "FLUX": flux,
}


def write(name, folder):
    """Writes the pipeline of a family with the same weights each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        WRITERS[name](folder)
    return folder

"""Low-rank adapters: of a large network, only small matrices beside its own are fine-tuned.

The dictionaries of weights then hold the adapters alone, so that the current, the previous and the pretrained parameters
share one backbone. A new adapter adds nothing: its second matrix is zero.
"""

from collections.abc import Sequence

import torch
from torch import nn

from purectrl.core.errors import InputError, require
from purectrl.core.keys import Key
from purectrl.diffusion.process import torch_generator

ADAPTER = "default"
"""The name that peft and diffusers expect of a single adapter."""


def add_lora(network: nn.Module, rank: int, targets: Sequence[str], key: Key) -> nn.Module:
    """`network` with adapters of `rank` beside the layers whose names end in one of `targets`; only they are trainable.

    The attention layers of Stable Diffusion are to_q, to_k, to_v and to_out.0.
    """
    from peft import LoraConfig, inject_adapter_in_model

    require(rank >= 1, f"rank: must be at least 1, not {rank}")
    network.requires_grad_(False)
    try:
        config = LoraConfig(r=rank, lora_alpha=rank, target_modules=list(targets))
        inject_adapter_in_model(config, network, ADAPTER)
    except ValueError as error:
        raise InputError(f"targets: no layer of the network matches {list(targets)}: {error}") from None
    generator = torch_generator(key)
    for name, parameter in sorted(network.named_parameters()):
        if "lora_A" in name:  # peft initialises it from the global generator
            values = torch.randn(parameter.shape, generator=generator) / rank
            parameter.data.copy_(values)
    return network

"""Networks of a reward model: from its input, the time and the condition to features."""

import abc
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from purectrl.core.errors import InputError


class Trunk(nn.Module, abc.ABC):
    """Called as trunk(inputs [n, ...], t [n] in [0, 1], condition [n] integers) -> features [n, trunk.width]."""

    width: int
    """The number of features."""
    inputs: int | None = None
    """The dimension of the embedding that it sees; None if it sees images."""


FREQUENCIES = 8
"""Sines and cosines of time, each."""


class ImageTrunk(Trunk):
    """Three convolutions, each shifted and scaled by time and condition; for small images [n, channels, size, size]."""

    def __init__(
        self,
        channels: int,
        size: int,
        conditions: int | Tensor,
        width: int = 64,
        filters: Sequence[int] = (24, 48, 64),
    ) -> None:
        super().__init__()
        context, (a, b, c) = 48, filters
        self.width = width
        self.context = ContextEmbedding(conditions, context)
        sizes, strides = [(channels, a), (a, b), (b, c)], (1, 2, 2)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(i, o, 3, stride, 1) for (i, o), stride in zip(sizes, strides, strict=True)
        )
        self.films = nn.ModuleList(nn.Linear(context, 2 * o) for _, o in sizes)
        self.gather = nn.Linear(c * math.ceil(size / 4) ** 2, 2 * width)
        self.last = nn.Linear(2 * width + context, width)

    def forward(self, inputs: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        """Images in [0, 1] -> features in [-1, 1]."""
        context = self.context(t, condition)
        hidden = 2 * inputs - 1
        for convolution, film in zip(self.convolutions, self.films, strict=True):
            scale, shift = film(context)[:, :, None, None].chunk(2, dim=1)
            hidden = functional.silu(convolution(hidden) * (1 + scale) + shift)
        hidden = functional.silu(self.gather(hidden.flatten(1)))
        return torch.tanh(self.last(torch.cat([hidden, context], dim=1)))


class VectorTrunk(Trunk):
    """Two hidden layers on an embedding [n, inputs], such as CLIP's."""

    def __init__(self, inputs: int, conditions: int | Tensor, width: int = 64, hidden: int = 256) -> None:
        super().__init__()
        self.width, self.inputs = width, inputs
        self.context = ContextEmbedding(conditions, 48)
        self.first, self.second = nn.Linear(inputs + 48, hidden), nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, width)

    def forward(self, inputs: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        """Embeddings -> features in [-1, 1]."""
        hidden = functional.silu(self.first(torch.cat([inputs, self.context(t, condition)], dim=1)))
        return torch.tanh(self.last(functional.silu(self.second(hidden))))


class FixedTrunk(Trunk):
    """No network: the features are the embedding [n, inputs] itself, whatever the time and the condition."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.width = self.inputs = inputs

    def forward(self, inputs: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        """The embedding."""
        return inputs


def cell_statistics(images: Tensor, side: int = 16) -> Tensor:
    """Mean and standard deviation of large images [n, c, h, w] in each of side × side cells [n, 2c, side, side];
    differentiable.

    >>> stripes = torch.tensor([0.0, 1.0]).repeat(2)[None, None, None]  # one row: black, white, black, white
    >>> cell_statistics(stripes.expand(1, 1, 4, 4), side=1).flatten().tolist()
    [0.5, 0.5]
    """
    mean, square = (functional.adaptive_avg_pool2d(part, side) for part in (images, images.square()))
    # the small number keeps the gradient finite in constant cells
    return torch.cat([mean, ((square - mean.square()).clamp(min=0) + 1e-8).sqrt()], dim=1)


class ContextEmbedding(nn.Module):
    """Time and condition as one vector [n, width].

    Main arguments:
        conditions: their number, each then gets a vector of its own; or what is known of each [conditions, d], so that
            similar conditions have similar vectors, whatever the number of measurements of each.
    """

    known: Tensor | None

    def __init__(self, conditions: int | Tensor, width: int) -> None:
        super().__init__()
        known = conditions if isinstance(conditions, Tensor) else None
        self.register_buffer("known", known, persistent=False)
        self.condition = nn.Embedding(int(conditions), width) if known is None else nn.Linear(known.shape[1], width)
        self.time = nn.Linear(2 * FREQUENCIES, width)

    def forward(self, t: Tensor, condition: Tensor) -> Tensor:
        """t [n] in [0, 1], condition [n] -> [n, width]."""
        angles = math.pi / 2 * t[:, None] * 2.0 ** torch.arange(FREQUENCIES, device=t.device)
        given = condition if self.known is None else self.known[condition]
        return functional.silu(self.condition(given) + self.time(torch.cat([angles.sin(), angles.cos()], dim=1)))


def random_weights(network: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """New parameters by name, drawn from `generator`; torch's own initialisation uses the global one."""
    drawn: dict[str, Tensor] = {}
    for prefix, module in network.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if own and not isinstance(module, nn.Linear | nn.Conv2d | nn.Embedding):
            raise InputError(f"network: {prefix} is a {type(module).__name__}; use Linear, Conv2d and Embedding layers")
        for name, parameter in own.items():
            full = f"{prefix}.{name}" if prefix else name
            drawn[full] = _draw(module, name, parameter, generator)
    return dict(sorted(drawn.items()))


def _draw(module: nn.Module, name: str, parameter: Tensor, generator: torch.Generator) -> Tensor:
    if name == "bias":
        return torch.zeros(parameter.shape)
    if isinstance(module, nn.Embedding):
        return torch.randn(parameter.shape, generator=generator)
    bound = 1 / math.sqrt(parameter[0].numel())
    return bound * (2 * torch.rand(parameter.shape, generator=generator) - 1)

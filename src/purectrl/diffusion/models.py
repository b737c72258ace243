"""What a diffusion model is to this package, and models that denoise pixels directly.

One network serves all parameters. What is fine-tuned is a dictionary of tensors by parameter name, which replaces the
network's own parameters for the duration of a call: the current parameters, those before the update and the pretrained ones
are three dictionaries on one backbone, and their number does not grow with the number of updates. With low-rank adapters the
dictionaries hold the adapters alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.func import functional_call

from purectrl.core.errors import InputError, require
from purectrl.core.io import write_atomically
from purectrl.core.plan import Plan
from purectrl.diffusion.process import AffineSteps, Denoise, Gaussian
from purectrl.diffusion.rewards.reward import Condition

Weights = dict[str, Tensor]
"""Trainable parameters by name."""


Encoded = Tensor | dict[str, Tensor]
"""Encoded conditions: a tensor [n, ...], or several by name, such as the token and the pooled embeddings of prompts."""


def each_tensor(encoded: Encoded, function: Callable[[Tensor], Tensor]) -> Encoded:
    """`function` of each tensor of encoded conditions."""
    if isinstance(encoded, Tensor):
        return function(encoded)
    return {name: function(tensor) for name, tensor in encoded.items()}


def count(encoded: Encoded) -> int:
    """n, the number of encoded conditions.

    >>> count({"tokens": torch.zeros(3, 77, 8), "pooled": torch.zeros(3, 8)})
    3
    """
    return len(encoded) if isinstance(encoded, Tensor) else len(next(iter(encoded.values())))


def take(encoded: Encoded, index: Tensor) -> Encoded:
    """The encoded conditions with the numbers `index` [m], any of them several times."""
    return each_tensor(encoded, lambda tensor: tensor[index])


def join(one: Encoded, other: Encoded) -> Encoded:
    """All encoded conditions of two."""
    if isinstance(one, Tensor):
        assert isinstance(other, Tensor)
        return torch.cat([one, other])
    assert isinstance(other, dict)
    return {name: torch.cat([tensor, other[name]]) for name, tensor in one.items()}


class Params(NamedTuple):
    """(f, q): what an update changes."""

    weights: Weights
    initial: Gaussian

    @classmethod
    def of(cls, plan: Plan) -> "Params":
        """The parameters that a plan executes."""
        return cls(plan.policy, plan.initial)

    def plan(self) -> Plan:
        """The plan that executes these parameters."""
        return Plan(self.weights, self.initial)


class DiffusionModel(Protocol):
    """A pretrained denoiser with encoder and decoder: a network on pixels, `UNet2DModel`, a Stable Diffusion pipeline."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one state x(t)."""
        ...

    @property
    def device(self) -> torch.device:
        """The device of states."""
        ...

    @property
    def loss_scale(self) -> float:
        """Factor of the loss during backpropagation: half precision loses small gradients. If it is not 1, iterations whose
        gradients overflow are skipped."""
        ...

    @property
    def weight_bytes(self) -> int:
        """Memory of all networks, for the estimate of a run's memory."""
        ...

    def pretrained(self) -> Params:
        """f^pre and q = N(0, I) (Algorithm 4, line 1)."""
        ...

    def encode(self, conditions: Sequence[Condition | None]) -> Encoded:
        """What `denoise` takes for these conditions [n, ...]; None is the empty condition, which guidance needs."""
        ...

    def denoise(self, weights: Weights, x: Tensor, steps: Tensor, condition: Encoded) -> Tensor:
        """The network's output [n, *shape] for x [n, *shape] at training steps [n] and encoded conditions [n, ...]."""
        ...

    def decode(self, x: Tensor) -> Tensor:
        """Images [n, channels, height, width] in [0, 1] of states x [n, *shape]; differentiable."""
        ...


@dataclass(frozen=True)
class GuidedDiffusion:
    """A model, its denoising steps and the scale of classifier-free guidance: what generates images.

    Main arguments:
        model: the pretrained model.
        process: its denoising steps.
        guidance: w in ε(∅) + w · (ε(c) − ε(∅)); 1 is no guidance.
    """

    model: DiffusionModel
    process: AffineSteps
    guidance: float = 1.0

    @property
    def evaluations_per_step(self) -> int:
        """Evaluations of the network per state and step: guidance needs two."""
        return 1 if self.guidance == 1.0 else 2

    def denoiser(self, weights: Weights, condition: Encoded) -> Denoise:
        """The denoiser for fixed encoded conditions [n, ...]."""
        model, guidance = self.model, self.guidance
        if guidance == 1.0:
            return lambda x, s: model.denoise(weights, x, timestep(s, len(x), x.device), condition)
        both = join(model.encode([None] * count(condition)), condition)

        def guided(x: Tensor, s: float) -> Tensor:
            twice = torch.cat([x, x])
            without, conditional = model.denoise(weights, twice, timestep(s, len(twice), x.device), both).chunk(2)
            return without + guidance * (conditional - without)

        return guided


def timestep(step: float, n: int, device: torch.device) -> Tensor:
    """What the network is told about the noise in n states [n]: training steps are integers, levels of a flow are not."""
    return torch.full((n,), step, dtype=torch.int64 if isinstance(step, int) else torch.float32, device=device)


def clip_straight_through(value: Tensor) -> Tensor:
    """`value` clipped to [0, 1] with the gradient of the identity, so that pixels outside the range still get gradients.

    >>> v = torch.tensor([-1.0, 0.5], requires_grad=True)
    >>> clip_straight_through(v).sum().backward()
    >>> clip_straight_through(v).tolist(), v.grad.tolist()
    ([0.0, 0.5], [1.0, 1.0])
    """
    return value.detach().clamp(0.0, 1.0) + (value - value.detach())


Call = Callable[[nn.Module, Weights, Tensor, Tensor, Tensor], Tensor]
"""(network, weights, x, steps, classes) -> noise."""


@dataclass(frozen=True, eq=False)
class PixelModel:
    """A denoiser of images in [-1, 1], with classes or without.

    Main arguments:
        network: the denoiser; parameters that require gradients are fine-tuned.
        shape: [channels, height, width] of an image.
        call: how the network is called.

    Other arguments:
        empty: the class that stands for no condition, if the network has one.
        loss_scale: factor of the loss during backpropagation.
    """

    network: nn.Module
    shape: tuple[int, ...]
    call: Call
    empty: int | None = None
    loss_scale: float = 1.0

    def __post_init__(self) -> None:
        require(
            bool(self._trainable), "network: none of its parameters requires gradients, so nothing can be fine-tuned"
        )
        self.network.eval().requires_grad_(False)

    @cached_property
    def _trainable(self) -> Weights:
        return {name: p.detach().clone() for name, p in self.network.named_parameters() if p.requires_grad}

    @classmethod
    def conditional(cls, network: nn.Module, shape: tuple[int, ...], empty: int | None = None) -> "PixelModel":
        """A network that is called as network(x, steps, classes) -> noise."""
        return cls(network, shape, lambda net, weights, *args: functional_call(net, weights, args), empty)

    @classmethod
    def unconditional(cls, network: nn.Module, shape: tuple[int, ...]) -> "PixelModel":
        """A network that is called as network(x, steps) -> noise; only the reward sees conditions."""
        return cls(network, shape, lambda net, weights, x, s, _: functional_call(net, weights, (x, s)), empty=0)

    @classmethod
    def unet2d(cls, unet: Any, empty: int | None = None) -> "PixelModel":
        """diffusers' `UNet2DModel`, with a class embedding or without."""
        size = unet.config.sample_size
        height, width = (size, size) if isinstance(size, int) else size

        def call(net: nn.Module, weights: Weights, x: Tensor, steps: Tensor, classes: Tensor) -> Tensor:
            labels = classes if unet.config.num_class_embeds is not None else None
            return functional_call(net, weights, (x, steps), {"class_labels": labels}).sample

        return cls(unet, (unet.config.in_channels, height, width), call, empty)

    @property
    def device(self) -> torch.device:
        """The device of states."""
        return next(iter(self._trainable.values())).device

    @property
    def weight_bytes(self) -> int:
        """Memory of the network."""
        return parameter_bytes(self.network)

    def pretrained(self) -> Params:
        """f^pre and q = N(0, I)."""
        return Params(dict(self._trainable), Gaussian.standard(self.shape, self.device))

    def encode(self, conditions: Sequence[Condition | None]) -> Tensor:
        """Classes as integers [n]."""
        if None in conditions and self.empty is None:
            raise InputError("guidance: this network has no class for 'no condition'; use guidance 1")
        integers = all(condition is None or isinstance(condition, int) for condition in conditions)
        require(integers, f"conditions: must be classes, which are integers, not {list(conditions)[:3]}")
        classes = [self.empty if condition is None else condition for condition in conditions]
        return torch.tensor(classes, dtype=torch.int64, device=self.device)

    def denoise(self, weights: Weights, x: Tensor, steps: Tensor, condition: Encoded) -> Tensor:
        """The noise in x [n, *shape]."""
        assert isinstance(condition, Tensor)
        return self.call(self.network, weights, x, steps, condition)

    def decode(self, x: Tensor) -> Tensor:
        """Images in [0, 1]; the gradient passes through the clipping."""
        return clip_straight_through((x + 1) / 2)


def parameter_bytes(*networks: nn.Module) -> int:
    """Memory of the parameters of some networks."""
    return sum(p.numel() * p.element_size() for network in networks for p in network.parameters())


def tensors(params: Params) -> list[Tensor]:
    """Every tensor of `params`, in an order that does not depend on how the dictionary was built."""
    return [*(params.weights[name] for name in sorted(params.weights)), *params.initial]


def equal(one: Params, other: Params) -> bool:
    """Whether two parameters are equal bit for bit."""
    return all(map(torch.equal, tensors(one), tensors(other)))


def detach(params: Params) -> Params:
    """The same values without a graph."""
    return _each(params, lambda tensor: tensor.detach())


def save_initial(params: Params, file: Path) -> None:
    """Writes q as safetensors: the mean and the log scale of x(0)."""
    initial = {name: tensor.detach().cpu().contiguous() for name, tensor in params.initial._asdict().items()}
    write_atomically(file, save(initial))


def trainable_copy(params: Params) -> Params:
    """A copy whose tensors are leaves that require gradients."""
    return _each(params, lambda tensor: tensor.detach().clone().requires_grad_())


def _each(params: Params, function: Callable[[Tensor], Tensor]) -> Params:
    weights = {name: function(tensor) for name, tensor in params.weights.items()}
    return Params(weights, Gaussian(*map(function, params.initial)))

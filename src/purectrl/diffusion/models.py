"""What a diffusion model is to this package, and the models of pixels that fit at once.

One network serves every iterate. What is tuned is a dictionary of tensors by parameter name, laid over the network for the
time of a call: the current weights, those before the update and the pretrained ones are three dictionaries on one backbone,
and their number does not grow with the number of updates. With low-rank adapters the dictionaries hold the adapters alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from purectrl.core.errors import InputError, require
from purectrl.diffusion.process import Denoise, Gaussian
from purectrl.diffusion.rewards.reward import Condition

Weights = dict[str, Tensor]
"""Tunable parameters by name."""


class Iterate(NamedTuple):
    """(f, q): what an update changes."""

    weights: Weights
    initial: Gaussian


class DiffusionModel(Protocol):
    """A pretrained denoiser with what belongs to it: a network of pixels, `UNet2DModel`, a Stable Diffusion pipeline."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one state x(t)."""
        ...

    @property
    def device(self) -> torch.device:
        """Where states live."""
        ...

    def pretrained(self) -> Iterate:
        """f^pre and q = N(0, I) (Algorithm 4, line 1)."""
        ...

    def encode(self, conditions: Sequence[Condition | None]) -> Tensor:
        """What `denoise` takes for these conditions [n, ...]; None stands for no condition, which guidance needs."""
        ...

    def denoise(self, weights: Weights, x: Tensor, steps: Tensor, condition: Tensor) -> Tensor:
        """The noise [n, *shape] in x [n, *shape] at training steps [n], for encoded conditions [n, ...]."""
        ...

    def decode(self, x: Tensor) -> Tensor:
        """Images [n, channels, height, width] in [0, 1] of states x [n, *shape]; differentiable."""
        ...


def denoiser(model: DiffusionModel, weights: Weights, condition: Tensor, guidance: float = 1.0) -> Denoise:
    """The denoiser for fixed conditions [n, ...], with classifier-free guidance: ε(∅) + guidance · (ε(c) − ε(∅)).

    Guidance 1 is none and costs one evaluation a state; any other costs two.
    """
    if guidance == 1.0:
        return lambda x, s: model.denoise(weights, x, _all(x, s), condition)
    both = torch.cat([model.encode([None] * len(condition)), condition])

    def guided(x: Tensor, s: int) -> Tensor:
        twice = torch.cat([x, x])
        without, with_it = model.denoise(weights, twice, _all(twice, s), both).chunk(2)
        return without + guidance * (with_it - without)

    return guided


def _all(x: Tensor, step: int) -> Tensor:
    return torch.full((len(x),), step, dtype=torch.int64, device=x.device)


def clip_straight_through(value: Tensor) -> Tensor:
    """`value` cut to [0, 1], with the gradient of no cut: a pixel beyond white must be able to come back.

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
        network: the denoiser; parameters that require gradients are tuned.
        shape: [channels, height, width] of an image.
        call: how the network is called.

    Other arguments:
        empty: the class that stands for none, if the network knows one.
    """

    network: nn.Module
    shape: tuple[int, ...]
    call: Call
    empty: int | None = None

    def __post_init__(self) -> None:
        tunable = {name: p.detach().clone() for name, p in self.network.named_parameters() if p.requires_grad}
        require(bool(tunable), "network: none of its parameters requires gradients, so nothing could be tuned")
        object.__setattr__(self, "_tunable", tunable)
        self.network.eval().requires_grad_(False)

    @classmethod
    def conditional(cls, network: nn.Module, shape: tuple[int, ...], empty: int | None = None) -> "PixelModel":
        """A network that is called as network(x, steps, classes) -> noise."""
        return cls(network, shape, lambda net, weights, *given: functional_call(net, weights, given), empty)

    @classmethod
    def unconditional(cls, network: nn.Module, shape: tuple[int, ...]) -> "PixelModel":
        """A network that is called as network(x, steps) -> noise; conditions tell the reward what was asked for."""
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
        """Where states live."""
        return next(iter(self._tunable.values())).device

    def pretrained(self) -> Iterate:
        """f^pre and q = N(0, I)."""
        return Iterate(dict(self._tunable), Gaussian.standard(self.shape, self.device))

    def encode(self, conditions: Sequence[Condition | None]) -> Tensor:
        """Classes as integers [n]."""
        if None in conditions and self.empty is None:
            raise InputError("guidance: this network has no class for 'no condition'; take guidance 1")
        whole = all(condition is None or isinstance(condition, int) for condition in conditions)
        require(whole, f"conditions: a model of pixels knows classes, which are integers, not {list(conditions)[:3]}")
        classes = [self.empty if condition is None else condition for condition in conditions]
        return torch.tensor(classes, dtype=torch.int64, device=self.device)

    def denoise(self, weights: Weights, x: Tensor, steps: Tensor, condition: Tensor) -> Tensor:
        """The noise in x [n, *shape]."""
        return self.call(self.network, weights, x, steps, condition)

    def decode(self, x: Tensor) -> Tensor:
        """Images in [0, 1]; the gradient passes the clipping."""
        return clip_straight_through((x + 1) / 2)


def detached(iterate: Iterate) -> Iterate:
    """The same numbers, as constants."""
    return Iterate(
        {name: tensor.detach() for name, tensor in iterate.weights.items()},
        Gaussian(iterate.initial.mean.detach(), iterate.initial.log_scale.detach()),
    )


def tensors(iterate: Iterate) -> list[Tensor]:
    """Every tensor of an iterate, in an order that does not depend on who built the dictionary."""
    return [*(iterate.weights[name] for name in sorted(iterate.weights)), *iterate.initial]


def same_numbers(one: Iterate, other: Iterate) -> bool:
    """Whether two iterates are equal bit for bit."""
    return all(map(torch.equal, tensors(one), tensors(other)))


def leaves(iterate: Iterate) -> Iterate:
    """A copy whose numbers can be descended on."""
    fresh = lambda tensor: tensor.detach().clone().requires_grad_()  # noqa: E731
    weights: Mapping[str, Tensor] = iterate.weights
    return Iterate({name: fresh(tensor) for name, tensor in weights.items()}, Gaussian(*map(fresh, iterate.initial)))

"""Denoising as a controlled diffusion: DDIM with η = 1, its paths and its divergences.

symbol in the paper      here                         meaning
-----------------------  ---------------------------  ---------------------------------------------------------------
t ∈ [0, T]               k·T/S, k = 0 … S             time of an episode: t = 0 is noise, t = T is the image
x(t)                     x [n, *shape]                state: an image in [-1, 1], or a latent of it
q                        Gaussian                     distribution of x(0); N(0, I) before the first update
f                        a denoiser and its weights   drift; f^pre has the pretrained weights
g*                       Ddim.sigma[k]                noise of the step from x(t_k) to x(t_{k+1})
ᾱ                        Ddim.alpha[k], following[k]  share of the image in x(t_k) and in x(t_{k+1})
ε_θ(x, s)                noise                        the noise that the denoiser sees in x at training step s
x̂(T)                     Ddim.clean                   the image that it predicts
μ_k                      Ddim.mean                    x(t_{k+1}) ~ N(μ_k, σ_k² I)
P^{f,q}                  Gaussian, then S steps       law of a path
KL(P^{f,q} | P^{f',q'})  Gaussian.kl + Σ_k Ddim.kl    divergence of two laws with the same σ, summed over dimensions

Time runs as in Algorithm 4: x(0) ~ q is noise, and the reward counts at x(T), the image. (The appendix announces the
other direction; its algorithm does not use it.) Training steps s of the denoiser count the other way, from S_train − 1,
noise, to 0.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from purectrl.core.errors import require
from purectrl.core.keys import Key

Denoise = Callable[[Tensor, int], Tensor]
"""(x [n, *shape], training step s) -> the noise in x [n, *shape], for conditions that are fixed."""


def generator_of(key: Key, device: Any = "cpu") -> torch.Generator:
    """A new torch generator that starts where `key` says. Nobody else draws from it, and nothing global is seeded."""
    return torch.Generator(device).manual_seed(key.bits & (2**63 - 1))


def normal(like: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers, of the shape and kind of `like`."""
    return torch.randn(like.shape, generator=generator, device=like.device, dtype=like.dtype)


@dataclass(frozen=True)
class Ddim:
    """The S steps from noise to image (Song et al., 2021, with η = 1 unless told).

    Main arguments:
        timesteps: training steps at which the denoiser is asked, from the noisiest on [S].
        alpha: ᾱ before each step [S].
        following: ᾱ after each step [S]; the last is 1 where the last step ends at the predicted image.

    Other arguments:
        eta: 1 is the diffusion of the paper; less is less noise.
    """

    timesteps: tuple[int, ...]
    alpha: tuple[float, ...]
    following: tuple[float, ...]
    eta: float = 1.0

    def __post_init__(self) -> None:
        require(len(self.timesteps) >= 1, "timesteps: at least one denoising step is needed")
        sizes = {len(self.timesteps), len(self.alpha), len(self.following)}
        require(len(sizes) == 1, f"alpha, following: one for each of the {len(self.timesteps)} timesteps is needed")
        rising = all(0 < a < b <= 1 for a, b in zip(self.alpha, self.following, strict=True))
        require(rising, "alpha: every step must lead to a larger share of the image, 0 < alpha[k] < following[k] ≤ 1")
        require(0 < self.eta <= 1, f"eta: must lie in (0, 1], not {self.eta}: without noise there is no divergence")

    @classmethod
    def of(cls, alphas: Sequence[float], timesteps: Sequence[int], last: float = 1.0, eta: float = 1.0) -> "Ddim":
        """Steps between training steps of a denoiser whose ᾱ at training step s is `alphas[s]`; the last ends at `last`.

        >>> Ddim.of([0.9, 0.5, 0.1], timesteps=[2, 0]).following
        (0.9, 1.0)
        """
        steps = tuple(int(s) for s in timesteps)
        inside = all(0 <= s < len(alphas) for s in steps)
        require(inside, f"timesteps: must lie between 0 and {len(alphas) - 1}, not {steps}")
        at = tuple(float(alphas[s]) for s in steps)
        return cls(steps, at, (*at[1:], float(last)), eta)

    @classmethod
    def from_scheduler(cls, scheduler: Any, steps: int, eta: float = 1.0) -> "Ddim":
        """The steps that diffusers' `DDIMScheduler` would take."""
        config = scheduler.config
        require(
            config.prediction_type == "epsilon",
            f"scheduler: the denoiser must predict the noise ('epsilon'), not {config.prediction_type!r}",
        )
        plain = not config.clip_sample and not config.thresholding
        require(plain, "scheduler: clip_sample and thresholding bend the drift; set both to False")
        scheduler.set_timesteps(steps)
        alphas, timesteps = scheduler.alphas_cumprod.double(), scheduler.timesteps.tolist()
        stride = config.num_train_timesteps // steps
        after = [alphas[s - stride] if s >= stride else scheduler.final_alpha_cumprod for s in timesteps]
        return cls(tuple(timesteps), tuple(alphas[timesteps].tolist()), tuple(map(float, after)), eta)

    @property
    def steps(self) -> int:
        """S."""
        return len(self.timesteps)

    @cached_property
    def sigma(self) -> tuple[float, ...]:
        """Standard deviation of the noise that each step adds [S]; 0 at the end if the last ᾱ is 1."""
        pairs = zip(self.alpha, self.following, strict=True)
        return tuple(self.eta * math.sqrt((1 - b) / (1 - a) * (1 - a / b)) for a, b in pairs)

    @cached_property
    def judging(self) -> tuple[float, ...]:
        """The σ that densities and divergences divide by [S]: a step without noise is judged by the smallest noise that
        any step has, since its own would make every divergence infinite."""
        least = min((sigma for sigma in self.sigma if sigma > 0), default=1.0)
        return tuple(max(sigma, least) for sigma in self.sigma)

    @cached_property
    def gain(self) -> tuple[float, ...]:
        """How far the mean of each step moves when the predicted noise moves by one [S]."""
        return tuple(
            math.sqrt(max(1 - b - sigma**2, 0.0)) - math.sqrt(b / a * (1 - a))
            for a, b, sigma in zip(self.alpha, self.following, self.sigma, strict=True)
        )

    @cached_property
    def weight(self) -> tuple[float, ...]:
        """How much a difference in predicted noise costs at each step [S]: KL_k = weight[k] · |ε − ε'|²."""
        return tuple(0.5 * (gain / sigma) ** 2 for gain, sigma in zip(self.gain, self.judging, strict=True))

    def clean(self, x: Tensor, noise: Tensor, k: int) -> Tensor:
        """The predicted image x̂(T), from x(t_k) and the noise in it."""
        return (x - math.sqrt(1 - self.alpha[k]) * noise) / math.sqrt(self.alpha[k])

    def mean(self, x: Tensor, noise: Tensor, k: int) -> Tensor:
        """μ_k, the mean of x(t_{k+1}) given x(t_k)."""
        return math.sqrt(self.following[k] / self.alpha[k]) * x + self.gain[k] * noise

    def draw(self, mean: Tensor, k: int, generator: torch.Generator) -> Tensor:
        """x(t_{k+1}) ~ N(μ_k, σ_k² I)."""
        return mean if self.sigma[k] == 0 else mean + self.sigma[k] * normal(mean, generator)

    def log_probability(self, x: Tensor, mean: Tensor, k: int) -> Tensor:
        """log N(x; μ_k, σ_k² I) [n], summed over dimensions."""
        sigma = self.judging[k]
        each = -0.5 * ((x - mean) / sigma) ** 2 - math.log(sigma) - 0.5 * math.log(2 * math.pi)
        return each.flatten(1).sum(1)

    def kl(self, mean: Tensor, other: Tensor, k: int) -> Tensor:
        """KL(N(mean, σ_k² I) | N(other, σ_k² I)) [n], summed over dimensions."""
        return 0.5 * ((mean - other) / self.judging[k]).flatten(1).square().sum(1)


class Gaussian(NamedTuple):
    """q: independent normal numbers, one mean and one scale for each coordinate of a state."""

    mean: Tensor
    log_scale: Tensor

    @classmethod
    def standard(cls, shape: Sequence[int], device: Any = "cpu") -> "Gaussian":
        """N(0, I)."""
        return cls(torch.zeros(*shape, device=device), torch.zeros(*shape, device=device))

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """`count` states [count, *shape], as a differentiable function of mean and scale."""
        noise = normal(self.mean.detach().expand(count, *self.mean.shape), generator)
        return self.mean + self.log_scale.exp() * noise

    def kl(self, other: "Gaussian") -> Tensor:
        """KL(self | other), a number.

        >>> unit = Gaussian.standard([3])
        >>> float(unit.kl(Gaussian(torch.ones(3), torch.zeros(3))))  # |mean|²/2
        1.5
        """
        apart = self.log_scale - other.log_scale
        shift = (self.mean - other.mean) / other.log_scale.exp()
        return 0.5 * (torch.expm1(2 * apart) - 2 * apart + shift**2).sum()


class Step(NamedTuple):
    """A state on the way, and what the denoiser says about it."""

    k: int
    x: Tensor
    noise: Tensor | None
    """None at the end, where nobody asks."""


def path(process: Ddim, denoise: Denoise, start: Tensor, generator: torch.Generator) -> Iterator[Step]:
    """x(t_0) … x(t_S), one after the other: S calls of the denoiser (appendix E, the update rule of x(t_k))."""
    x = start
    for k, s in enumerate(process.timesteps):
        noise = denoise(x, s)
        yield Step(k, x, noise)
        x = process.draw(process.mean(x, noise, k), k, generator)
    yield Step(process.steps, x, None)

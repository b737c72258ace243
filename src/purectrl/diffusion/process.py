"""Denoising as a controlled diffusion: affine Gaussian steps, their paths and their divergences.

symbol in the paper      here                              meaning
-----------------------  --------------------------------  ---------------------------------------------------------
t ∈ [0, T]               k·T/S, k = 0 … S                  time of an episode: t = 0 is noise, t = T is the image
x(t)                     x [n, *shape]                     state: an image in [-1, 1], or a latent of it
q                        Gaussian                          distribution of x(0); N(0, I) before the first update
f                        a denoiser and its weights        drift; f^pre has the pretrained weights
g*                       AffineSteps.sigma[k]              noise of the step from x(t_k) to x(t_{k+1})
ᾱ                        alphas, alphas_next               share of the image in x(t_k) and in x(t_{k+1}), DDIM
ε_θ(x, s)                output                            what the denoiser predicts in x at training step s: the noise,
                                                           v, or the velocity of a flow
x̂(T)                     AffineSteps.predict_x0            the image that it predicts
μ_k                      AffineSteps.mean                  x(t_{k+1}) ~ N(μ_k, σ_k² I)
P^{f,q}                  Gaussian, then S steps            law of a path
KL(P^{f,q} | P^{f',q'})  Gaussian.kl + Σ_k AffineSteps.kl  divergence of two laws with the same σ, summed over dimensions

Time runs as in Algorithm 4: x(0) ~ q is noise, and the reward is that of x(T), the image. (The appendix announces the
opposite direction; its algorithm does not use it.) Training steps s of the denoiser run from S_train − 1, noise, to 0.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from purectrl.core.errors import choose, require
from purectrl.core.keys import Key

PREDICTIONS = ("epsilon", "v_prediction")
"""What the network of a DDIM process may predict, as diffusers' schedulers call it."""
Denoise = Callable[[Tensor, float], Tensor]
"""(x [n, *shape], training step s) -> the network's output for x [n, *shape], for fixed conditions."""


def torch_generator(key: Key, device: torch.device | str = "cpu") -> torch.Generator:
    """A new torch generator seeded with `key`; the global generator is neither read nor seeded."""
    return torch.Generator(device).manual_seed(key.bits & (2**63 - 1))


def normal_like(like: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers with the shape, device and type of `like`."""
    return torch.randn(like.shape, generator=generator, device=like.device, dtype=like.dtype)


@dataclass(frozen=True)
class AffineSteps:
    """The S steps from noise to image, each affine in the state and in the output of the network, with Gaussian noise:

        x(t_{k+1}) ~ N(carry_k · x(t_k) + gain_k · output_k, σ_k² I)

    DDIM with networks that predict the noise or v, and stochastic flow matching, are constructors.

    Main arguments:
        timesteps: what the network is told about the noise in its input, the noisiest first [S].
        carry, gain, sigma: of each step [S]; σ may be 0 at the last step.
        noise_scale, signal_scale: the predicted image is (x − noise_scale · output)/signal_scale [S].
    """

    timesteps: tuple[float, ...]
    carry: tuple[float, ...]
    gain: tuple[float, ...]
    sigma: tuple[float, ...]
    noise_scale: tuple[float, ...]
    signal_scale: tuple[float, ...]

    def __post_init__(self) -> None:
        require(len(self.timesteps) >= 1, "timesteps: at least one denoising step is needed")
        rows = (self.carry, self.gain, self.sigma, self.noise_scale, self.signal_scale)
        same = all(len(row) == len(self.timesteps) for row in rows)
        require(same, f"carry, gain, sigma: must have one entry per timestep, {len(self.timesteps)}")
        noisy = all(sigma > 0 for sigma in self.sigma[:-1]) and self.sigma[-1] >= 0
        require(noisy, "sigma: every step but the last needs noise; without it there is no divergence")

    @classmethod
    def ddim(
        cls,
        timesteps: Sequence[int],
        alphas: Sequence[float],
        alphas_next: Sequence[float],
        eta: float = 1.0,
        prediction: str = "epsilon",
    ) -> "AffineSteps":
        """DDIM (Song et al., 2021), by default with η = 1.

        Main arguments:
            timesteps: training steps at which the denoiser is evaluated, the noisiest first [S].
            alphas: ᾱ before each step [S].
            alphas_next: ᾱ after each step [S]; the last is 1 where the last step ends at the predicted image.

        Other arguments:
            eta: 1 is the diffusion of the paper; smaller values add less noise.
            prediction: what the network predicts: the noise, "epsilon", or "v_prediction", √ᾱ·noise − √(1−ᾱ)·image.
        """
        sizes = {len(timesteps), len(alphas), len(alphas_next)}
        require(len(sizes) == 1, f"alphas, alphas_next: must have one entry per timestep, {len(timesteps)}")
        pairs = list(zip(alphas, alphas_next, strict=True))
        rising = all(0 < a < b <= 1 for a, b in pairs)
        require(rising, "alphas: must increase at every step, 0 < alphas[k] < alphas_next[k] ≤ 1")
        require(0 < eta <= 1, f"eta: must lie in (0, 1], not {eta}: without noise there is no divergence")
        choose("prediction", prediction, PREDICTIONS)
        sigma = [eta * math.sqrt((1 - b) / (1 - a) * (1 - a / b)) for a, b in pairs]
        carry = [math.sqrt(b / a) for a, b in pairs]
        gain = [
            math.sqrt(max(1 - b - s**2, 0.0)) - math.sqrt(b / a * (1 - a))
            for (a, b), s in zip(pairs, sigma, strict=True)
        ]
        noise, signal = [math.sqrt(1 - a) for a in alphas], [math.sqrt(a) for a in alphas]
        if prediction == "v_prediction":  # noise = √ᾱ v + √(1−ᾱ) x
            carry = [c + g * n for c, g, n in zip(carry, gain, noise, strict=True)]
            gain = [g * s for g, s in zip(gain, signal, strict=True)]
            noise, signal = [n / s for n, s in zip(noise, signal, strict=True)], [1 / s for s in signal]
        return cls(*map(tuple, (timesteps, carry, gain, sigma, noise, signal)))

    @classmethod
    def ddim_from_alphas(
        cls, alphas: Sequence[float], timesteps: Sequence[int], last: float = 1.0, eta: float = 1.0
    ) -> "AffineSteps":
        """DDIM between training steps of a denoiser whose ᾱ at training step s is `alphas[s]`; the last ends at `last`.

        >>> AffineSteps.ddim_from_alphas([0.9, 0.5, 0.1], timesteps=[2, 0]).carry[0] == math.sqrt(0.9 / 0.1)
        True
        """
        steps = tuple(int(s) for s in timesteps)
        require(len(steps) >= 1, "timesteps: at least one denoising step is needed")
        inside = all(0 <= s < len(alphas) for s in steps)
        require(inside, f"timesteps: must lie between 0 and {len(alphas) - 1}, not {steps}")
        at = tuple(float(alphas[s]) for s in steps)
        return cls.ddim(steps, at, (*at[1:], float(last)), eta)

    @classmethod
    def ddim_from_scheduler(cls, scheduler: Any, steps: int, eta: float = 1.0) -> "AffineSteps":
        """The steps that diffusers' `DDIMScheduler` takes."""
        config = scheduler.config
        require(
            config.prediction_type in PREDICTIONS,
            f"scheduler: the denoiser must predict the noise ('epsilon') or 'v_prediction', not {config.prediction_type!r}",
        )
        plain = not config.clip_sample and not config.thresholding
        require(plain, "scheduler: clip_sample and thresholding change the drift; set both to False")
        scheduler.set_timesteps(steps)
        alphas, timesteps = scheduler.alphas_cumprod.double(), scheduler.timesteps.tolist()
        stride = config.num_train_timesteps // steps
        after = [alphas[s - stride] if s >= stride else scheduler.final_alpha_cumprod for s in timesteps]
        return cls.ddim(timesteps, alphas[timesteps].tolist(), list(map(float, after)), eta, config.prediction_type)

    @classmethod
    def flow(cls, levels: Sequence[float], scale: float = 1000.0, noise: float = 0.7) -> "AffineSteps":
        """Flow matching with noise: an SDE whose states have the distribution of the ODE dx = v dσ at every σ.

        A state at noise level σ is (1 − σ)·image + σ·noise, and the network predicts the velocity v = noise − image. The
        score is −(x + (1 − σ) v)/σ, so that dx = [v + s²/(2σ)·(x + (1 − σ) v)] dσ + s dw has the ODE's marginals for any s;
        here s = `noise`·√(σ/(1 − σ)) (Liu et al., 2025). A last step to σ = 0 has no noise: it ends at the predicted image.

        Main arguments:
            levels: σ before each step and after the last, decreasing from at most 1 [S + 1].

        Other arguments:
            scale: the network is told scale·σ.
            noise: larger values explore more; the ODE is the limit 0.

        >>> AffineSteps.flow([1.0, 0.5, 0.0]).timesteps
        (1000.0, 500.0)
        """
        require(len(levels) >= 2, f"levels: at least two noise levels are needed, not {list(levels)}")
        falling = levels[0] <= 1 and levels[-1] >= 0 and all(a > b for a, b in pairwise(levels))
        require(falling, "levels: must decrease at every step, from at most 1 to at least 0")
        require(noise > 0, f"noise: must be positive, not {noise}: without noise there is no divergence")
        carry, gain, sigma = list[float](), list[float](), list[float]()
        for a, b in pairwise(levels):
            least = 1 - levels[1] if a == 1 else 1 - a  # s would be infinite at σ = 1
            square = 0.0 if b == 0 else noise**2 * a / least
            step = b - a
            carry.append(1 + square / (2 * a) * step)
            gain.append((1 + square * (1 - a) / (2 * a)) * step)
            sigma.append(math.sqrt(square * -step))
        before = tuple(levels[:-1])
        return cls(
            tuple(scale * level for level in before),
            tuple(carry),
            tuple(gain),
            tuple(sigma),
            before,
            (1.0,) * len(before),
        )

    @classmethod
    def flow_from_scheduler(cls, scheduler: Any, noise: float = 0.7, **timesteps: Any) -> "AffineSteps":
        """The noise levels of diffusers' `FlowMatchEulerDiscreteScheduler`; `timesteps` go to its `set_timesteps`."""
        scheduler.set_timesteps(**timesteps)
        return cls.flow(scheduler.sigmas.double().tolist(), scheduler.config.num_train_timesteps, noise)

    @property
    def steps(self) -> int:
        """S."""
        return len(self.timesteps)

    @cached_property
    def kl_sigma(self) -> tuple[float, ...]:
        """The σ of densities and divergences [S]: for a step without noise, the smallest positive σ of any step, since its
        own would make every divergence infinite."""
        least = min((sigma for sigma in self.sigma if sigma > 0), default=1.0)
        return tuple(max(sigma, least) for sigma in self.sigma)

    @cached_property
    def weight(self) -> tuple[float, ...]:
        """Cost of a difference in the network's output at each step [S]: KL_k = weight[k] · |output − output'|²."""
        return tuple(0.5 * (gain / sigma) ** 2 for gain, sigma in zip(self.gain, self.kl_sigma, strict=True))

    def predict_x0(self, x: Tensor, output: Tensor, k: int) -> Tensor:
        """The predicted image x̂(T), from x(t_k) and the network's output there."""
        return (x - self.noise_scale[k] * output) / self.signal_scale[k]

    def mean(self, x: Tensor, output: Tensor, k: int) -> Tensor:
        """μ_k, the mean of x(t_{k+1}) given x(t_k)."""
        return self.carry[k] * x + self.gain[k] * output

    def sample(self, mean: Tensor, k: int, generator: torch.Generator) -> Tensor:
        """x(t_{k+1}) ~ N(μ_k, σ_k² I)."""
        return mean if self.sigma[k] == 0 else mean + self.sigma[k] * normal_like(mean, generator)

    def log_probability(self, x: Tensor, mean: Tensor, k: int) -> Tensor:
        """log N(x; μ_k, σ_k² I) [n], summed over dimensions."""
        sigma = self.kl_sigma[k]
        each = -0.5 * ((x - mean) / sigma) ** 2 - math.log(sigma) - 0.5 * math.log(2 * math.pi)
        return each.flatten(1).sum(1)

    def kl(self, mean: Tensor, other: Tensor, k: int) -> Tensor:
        """KL(N(mean, σ_k² I) | N(other, σ_k² I)) [n], summed over dimensions."""
        return 0.5 * ((mean - other) / self.kl_sigma[k]).flatten(1).square().sum(1)


class Gaussian(NamedTuple):
    """q: independent normal coordinates, each with its own mean and scale."""

    mean: Tensor
    log_scale: Tensor

    @classmethod
    def standard(cls, shape: Sequence[int], device: torch.device | str = "cpu") -> "Gaussian":
        """N(0, I)."""
        return cls(torch.zeros(*shape, device=device), torch.zeros(*shape, device=device))

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """`n` states [n, *shape], differentiable in mean and scale."""
        noise = normal_like(self.mean.detach().expand(n, *self.mean.shape), generator)
        return self.mean + self.log_scale.exp() * noise

    def kl(self, other: "Gaussian") -> Tensor:
        """KL(self | other), a scalar.

        >>> unit = Gaussian.standard([3])
        >>> float(unit.kl(Gaussian(torch.ones(3), torch.zeros(3))))  # |mean|²/2
        1.5
        """
        log_ratio = self.log_scale - other.log_scale
        shift = (self.mean - other.mean) / other.log_scale.exp()
        return 0.5 * (torch.expm1(2 * log_ratio) - 2 * log_ratio + shift**2).sum()


class Step(NamedTuple):
    """A state of a path and what the denoiser predicts in it."""

    k: int
    x: Tensor
    output: Tensor | None
    """None at x(t_S), where the denoiser is not evaluated."""


def path(process: AffineSteps, denoise: Denoise, start: Tensor, generator: torch.Generator) -> Iterator[Step]:
    """x(t_0) … x(t_S) in order: S evaluations of the denoiser (appendix E, the update rule of x(t_k))."""
    x = start
    for k, s in enumerate(process.timesteps):
        output = denoise(x, s)
        yield Step(k, x, output)
        x = process.sample(process.mean(x, output, k), k, generator)
    yield Step(process.steps, x, None)

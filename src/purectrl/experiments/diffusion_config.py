"""Settings of SEIKO and PURE_SEIKO, typed as those of the others are. Defaults are the paper's table where it has them."""

from dataclasses import dataclass, replace
from typing import Literal

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.samplers import Context
from purectrl.core.schedules import growing
from purectrl.experiments.config import MOST, LoopConfig, make_sampler


@dataclass(frozen=True)
class DiffusionConfig(LoopConfig):
    """SEIKO and PURE_SEIKO on a diffusion model."""

    measurements: int = 19_200
    """N, the measurement budget: a run never takes one more."""
    m: int = 4
    """Measurements an episode; `final` has one."""
    sampler: Literal[
        "uniform", "equidistant", "geometric", "geometric-distinct", "windows", "final", "exponential-gaps"
    ] = "geometric"
    """When to measure."""
    schedule: Literal["every", "batches", "geometric", "on-misfit"] = "batches"
    """When to update."""
    batches: tuple[int, ...] = ()
    """Episodes of each batch; without any, `updates` batches that grow by `growth` and spend the budget."""
    updates: int = 4
    """K, the number of updates (batches schedule)."""
    first: float = 1280.0
    """B₁, measurements before the first update (geometric schedule)."""
    output: Literal["uniform", "last", "best-measured"] = "last"
    """Which plan the run hands over."""
    reward: str = "legibility"
    """What is measured: `legibility`, `jpeg` (how few kilobytes an image takes), or your own as `module:function`, called
    with images [n, channels, height, width] in [0, 1] and their conditions, returning n scores."""
    reward_limit: float = 600.0
    """Seconds that the reward may take for 64 images."""
    reward_noisy: bool = False
    """Whether the same image gets another score each time. Then all m times are asked for, repeats, too, and a step that was
    killed is paid again."""
    link: Literal["logistic", "squared"] = "logistic"
    """How the reward model is fitted: `logistic` takes rewards in [0, 1], `squared` any."""
    denoising_steps: int = 50
    """S: an episode lasts T = S steps."""
    look: Literal["image", "state"] = "state"
    """What is measured on the way: the image that the denoiser predicts from x(t), or x(t) itself (the paper)."""
    guidance: float = 1.0
    """Classifier-free guidance; 1 is none."""
    uncertainty: Literal["ucb", "bootstrap", "thompson", "greedy"] = "ucb"
    """How the reward model is optimistic."""
    bonus: float = 0.002
    """How much: C₁ of the upper confidence bound, or the multiplier on the spread of the others."""
    heads: int = 8
    """Last layers of the reward model (bootstrap)."""
    ridge: float = 1.0
    """λ in λI + Σφφᵀ."""
    fit_steps: int = 600
    """Steps of AdamW on the reward model at each update."""
    fit_batch: int = 64
    """Measurements a step."""
    fit_rate: float = 1.5e-3
    """AdamW's rate on the reward model; it falls to a twentieth."""
    held_out: float = 0.1
    """Share of the trajectories that the reward model does not train on: they choose its best weights and give its error."""
    tune_iterations: int = 100
    """Iterations of AdamW on (f, q) at each update; the table's epochs."""
    tune_batch: int = 128
    """Imagined trajectories an iteration."""
    tune_chunk: int = 0
    """Imagined trajectories in memory at once; 0 is all of an iteration."""
    tune_rate: float = 1e-4
    """AdamW's rate on the weights of the denoiser; it falls to a fifth."""
    initial_rate: float = 1e-3
    """AdamW's rate on the initial distribution q; it falls to a fifth."""
    alpha: float = 0.001
    """α, of the divergence to the pretrained model; the table does not say."""
    beta: float = 0.01
    """β, of the divergence to the model before the update."""
    clip: float = 1.0
    """The norm that gradients are cut to."""
    shortest: int = 1
    """The fewest of the last steps that are backpropagated through."""
    longest: int = 0
    """The most of them; 0 is all."""
    divergence_draws: int = 4
    """Steps at which the divergence is looked at in an iteration; 0 is all."""
    checkpointing: bool = False
    """Whether activations are computed twice instead of being kept."""
    threads: int = 1
    """Of PyTorch on a CPU: the last bits of a run depend on it, so that it is part of its settings."""
    chunk: int = 64
    """Trajectories that are rolled out at once."""
    test_images: int = 10
    """Images of each class by which an iterate is tested after its update; four times as many at the end of a run."""

    @property
    def rewards(self) -> tuple[str, ...]:
        """What `reward` may be, apart from one's own."""
        return ("legibility", "jpeg")

    @property
    def loss_scale(self) -> float:
        """What keeps small gradients above zero in half precision."""
        return 1.0

    @property
    def episodes(self) -> int:
        """Trajectories that the budget holds."""
        return self.measurements // (1 if self.sampler == "final" else max(1, self.m))

    def resolved(self) -> "DiffusionConfig":
        """The same settings with the batches written out."""
        if self.schedule != "batches" or self.batches:
            return self
        return replace(self, batches=tuple(growing(self.episodes, self.updates, self.growth)))

    def check(self) -> None:
        """As `LoopConfig.check`, for the whole experiment."""
        if self.schedule == "batches" and not self.batches:
            most = max(1, self.episodes)
            require(1 <= self.updates <= most, f"updates: must lie between 1 and {most} episodes, not {self.updates}")
            return self.resolved().check()
        super().check()
        require(
            self.schedule != "on-misfit",
            "schedule: on-misfit is not there for diffusion models; take batches or geometric",
        )
        for name in ("bonus", "initial_rate", "alpha", "beta", "longest", "divergence_draws", "tune_chunk"):
            require(getattr(self, name) >= 0, f"{name}: cannot be negative, got {getattr(self, name)}")
        known = ":" in self.reward or self.reward in self.rewards
        require(known, f"reward: {self.reward!r} is none of {', '.join(self.rewards)}, nor module:function")
        for name in ("ridge", "reward_limit", "fit_rate", "tune_rate", "clip", "guidance"):
            require(getattr(self, name) > 0, f"{name}: must be positive, not {getattr(self, name)}")
        positive = [
            "denoising_steps",
            "fit_steps",
            "fit_batch",
            "tune_iterations",
            "tune_batch",
            "shortest",
            "chunk",
            "threads",
        ]
        for name in positive:
            value = getattr(self, name)
            require(1 <= value <= MOST, f"{name}: must lie between 1 and {MOST:,}, not {value}")
        require(
            self.initial_rate == 0 or self.longest in (0, self.denoising_steps),
            f"longest: with {self.longest} of {self.denoising_steps} steps the reward never reaches the initial "
            "distribution; take 0 (all), or --initial-rate 0 to leave it as it is",
        )
        require(
            self.reward != "jpeg" or self.link == "squared", "link: kilobytes are no probability; take --link squared"
        )
        require(self.denoising_steps <= 1000, f"denoising_steps: there are 1000 at most, not {self.denoising_steps}")
        make_sampler(self)(Key(0), 1, Context(float(self.denoising_steps)))  # do its windows fit?
        require(self.heads >= 2, f"heads: a spread needs at least two heads, not {self.heads}")
        require(self.test_images >= 2, f"test_images: at least 2 of each class are compared, not {self.test_images}")
        require(0 <= self.held_out < 1, f"held_out: a share must lie in [0, 1), not {self.held_out}")
        return None

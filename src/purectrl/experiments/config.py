"""Settings of a run, typed: each field is a flag of the command line and a line of `config.json`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from purectrl.core import outputs, samplers, schedules
from purectrl.core.errors import InputError, choose, require
from purectrl.core.keys import Key
from purectrl.core.ledger import Budget
from purectrl.core.outputs import OutputRule
from purectrl.core.problem import Measuring
from purectrl.core.samplers import Context, Sampler
from purectrl.core.schedules import Schedule


@dataclass(frozen=True)
class LoopConfig:
    """The choices that every algorithm makes: how much, when to measure, when to update, what to hand over."""

    measurements: int = 4096
    """N, the measurement budget: a run never takes one more."""
    m: int = 1
    """Measurements an episode. The `windows` sampler computes it from its own settings, `final` has one."""
    sampler: Literal[
        "uniform", "equidistant", "geometric", "geometric-distinct", "windows", "final", "exponential-gaps"
    ] = "uniform"
    """When to measure."""
    lam: float = 6.0
    """λ of the geometric samplers: P(iT/m) ∝ λ^i."""
    grid: int = 0
    """Times that an episode has to choose from (geometric-distinct sampler); 0 takes m."""
    windows: int = 5
    """Number of windows an episode (windows sampler)."""
    window_length: float = 0.2
    """Length of a window (windows sampler)."""
    window_step: float = 0.05
    """Time grid Δt inside a window (windows sampler)."""
    window_at_start: bool = False
    """Whether the first window is always at t = 0 (windows sampler)."""
    mean_gap: float = 0.1
    """Mean time between two measurements (exponential-gaps sampler)."""
    schedule: Literal["every", "batches", "geometric", "on-misfit"] = "every"
    """When to update."""
    every: int = 1
    """Episodes between two updates (every schedule)."""
    batches: tuple[int, ...] = (1, 2, 4, 8)
    """Episodes of each batch (batches schedule)."""
    update: Literal["before", "after"] = "after"
    """Whether a batch is learned from at its start or at its end (batches schedule)."""
    initial: int = 0
    """η_init, exploring episodes before the first batch (all schedules but every)."""
    first: float = 64.0
    """B₁, measurements before the first update (geometric schedule)."""
    growth: float = 2.0
    """η_base, how many times more measurements each further update waits for (geometric schedule)."""
    factor: float = 5.0
    """Update when the excess loss reaches this many confidence radii (on-misfit schedule)."""
    output: Literal["uniform", "last", "best-measured"] = "uniform"
    """Which plan the run hands over: that of a uniformly drawn episode (the paper), the last, the best measured."""

    def check(self) -> None:
        """Raises `InputError` if a setting is wrong; needs no JAX, so that a mistake is answered at once."""
        hints = get_type_hints(type(self))
        for name, value in vars(self).items():
            _check_value(name, value, hints[name])
        points = self.windows * self.window_length / self.window_step if self.window_step > 0 else 0
        require(
            max(self.m, points) <= MOST, f"m: at most {MOST:,} measurements an episode, not {max(self.m, points):g}"
        )
        N = Budget(self.measurements).measurements
        m = _flags(make_sampler, self, count="windows", length="window_length", step="window_step").m
        require(m <= N, f"m: one episode takes m = {m} measurements, more than the whole budget N = {N}")
        _flags(make_schedule, self, k="every", sizes="batches")
        episodes = self.initial + sum(self.batches)
        require(
            self.schedule != "batches" or episodes == N // m,
            f"batches: initial + batches = {episodes} episodes, the budget of N = {N} with m = {m} holds {N // m}; "
            "make them equal",
        )


@dataclass(frozen=True)
class TheoryConfig(LoopConfig):
    """Algorithms 1 to 3 on a simulated diffusion."""

    horizon: float = 2.0
    """T, the length of an episode."""
    diffusion: float = 0.2
    """g*, constant and known."""
    delta_t: float = 0.1
    """Δ, the time that one measurement of the drift takes."""
    reward_std: float = 1.0
    """Standard deviation of a measured reward; the paper has 1."""
    drift: Literal["drawn", "quotient"] = "drawn"
    """How the drift is measured: drawn as in the model, or the difference quotient over Δ of one path."""
    delta: float = 0.1
    """δ, the probability with which the confidence sets may fail."""
    radius_scale: float = 1.0
    """Multiplier on the radii of Theorem 1; 1 is the theorem, less is bolder."""
    steps: int = 40
    """Euler-Maruyama steps over an episode."""
    paths: int = 256
    """Simulated paths behind each value R(π, q, f, b)."""

    def check(self) -> None:
        """As `LoopConfig.check`, for the whole experiment."""
        super().check()
        _flags(lambda config: Measuring(config.delta_t, config.reward_std, config.drift), self, step="delta_t")
        require(self.horizon > 0, f"horizon: the episode length T must be positive, not {self.horizon}")
        make_sampler(self)(Key(0), 1, Context(self.horizon))  # do its windows fit?
        require(self.diffusion >= 0, f"diffusion: g* cannot be negative, got {self.diffusion}")
        require(0 < self.delta < 1, f"delta: the failure probability δ must lie between 0 and 1, not {self.delta}")
        require(self.radius_scale > 0, f"radius_scale: must be positive, not {self.radius_scale}")
        require(
            self.drift == "drawn" or self.delta_t >= 1e-5 * self.horizon,
            f"delta_t: a quotient over Δ = {self.delta_t:g} is lost in rounding; take at least T/100,000",
        )
        require(self.steps * self.paths <= 100 * MOST, f"paths: steps · paths must not exceed {100 * MOST:,}")
        require(self.steps >= 1, f"steps: the simulation needs at least one step, not {self.steps}")
        require(self.paths >= 2, f"paths: at least 2 are needed to know the Monte-Carlo error, not {self.paths}")


@dataclass(frozen=True)
class FiniteConfig(TheoryConfig):
    """The particle on a washboard."""

    grid: Literal["even", "dyadic"] = "even"
    """Candidates: 20 drifts and 7 rewards evenly spaced, or finer and finer around a = 0.2, c = 0.3, goal = 0.5."""
    scales: int = 6
    """How often the distance to that point is halved (dyadic grid): 13 values of each parameter with 6."""
    a: float = 0.5
    """The true height of the washboard; off the grid, the truth is outside the class."""
    c: float = 0.5
    """The true strength of the control."""
    goal: float = 0.75
    """The true goal."""

    def check(self) -> None:
        """As `LoopConfig.check`, for the whole experiment."""
        super().check()
        require(1 <= self.scales <= 12, f"scales: must lie between 1 and 12, not {self.scales}")


@dataclass(frozen=True)
class LqrConfig(TheoryConfig):
    """Linear drift, bounded reward."""

    dimension: int = 2
    """d, one to four."""
    classes: Literal["finite", "linear"] = "finite"
    """Function classes: lists of candidates, or everything that is linear in the features within a ball."""
    starts: int = 8
    """Points from which the optimistic ascent starts (linear classes)."""
    iterations: int = 150
    """Steps of the optimistic ascent (linear classes)."""

    def check(self) -> None:
        """As `LoopConfig.check`, for the whole experiment."""
        super().check()
        require(1 <= self.dimension <= 4, f"dimension: must be 1, 2, 3 or 4, not {self.dimension}")
        require(1 <= self.starts <= 1000, f"starts: must lie between 1 and 1,000, not {self.starts}")
        require(1 <= self.iterations <= MOST, f"iterations: must lie between 1 and {MOST:,}, not {self.iterations}")


@dataclass(frozen=True)
class NeuralConfig(TheoryConfig):
    """A neural drift class."""

    measurements: int = 2000
    """N, the measurement budget: a run never takes one more."""
    reward_std: float = 0.1
    """Standard deviation of a measured reward."""
    width: int = 32
    """Width of the two hidden layers of the drift's networks."""
    drift_scale: float = 0.0005
    """Multiplier on the logarithm of the networks' covering number, which is far too large to be of use as it is."""
    rate: float = 3e-3
    """Step size of the fit."""
    check_steps: int = 10
    """Descent steps of the fit after each episode."""
    update_steps: int = 1000
    """Descent steps of the fit at each update."""
    starts: int = 8
    """Points from which the optimistic ascent starts."""
    iterations: int = 300
    """Steps of the optimistic ascent."""

    def check(self) -> None:
        """As `LoopConfig.check`, for the whole experiment."""
        super().check()
        require(self.drift_scale > 0, f"drift_scale: must be positive, not {self.drift_scale}")
        require(self.rate > 0, f"rate: must be positive, not {self.rate}")
        for name in ("width", "check_steps", "update_steps", "starts", "iterations"):
            value = getattr(self, name)
            require(1 <= value <= MOST, f"{name}: must lie between 1 and {MOST:,}, not {value}")


@dataclass(frozen=True)
class OuConfig(TheoryConfig):
    """The Ornstein-Uhlenbeck process of Proposition 2. Its values come from quadrature, so `paths` is not used."""

    horizon: float = 4.0
    """T, the length of an episode."""
    diffusion: float = math.sqrt(2.0)
    """g*, constant and known; the proposition has sqrt(2)."""
    u_min: float = 0.25
    """The smallest control; C_{T,m} ≤ 1 + m / (2 T u_min)."""
    u_max: float = 4.0
    """The largest control."""

    def check(self) -> None:
        """As `LoopConfig.check`, for the whole experiment."""
        super().check()
        require(
            0 < self.u_min < self.u_max, f"u_min: 0 < u_min < u_max must hold, not {self.u_min:g} and {self.u_max:g}"
        )
        least = math.ceil(self.u_max * self.horizon / 2)
        require(self.steps >= least, f"steps: Euler-Maruyama is unstable with fewer than u_max · T / 2 = {least} steps")


MOST = 1_000_000
"""More than this of anything in one episode is a slip of the finger."""


def _check_value(name: str, value: Any, kind: Any) -> None:
    """Raises unless `value` is of the type that the field declares and of a sensible size."""
    if get_origin(kind) is Literal:
        choose(name, value, get_args(kind))
        return
    if kind is bool:
        require(isinstance(value, bool), f"{name}: must be true or false, not {value!r}")
        return
    many = get_origin(kind) is tuple
    wanted = get_args(kind)[0] if many else kind
    if wanted in (str, str | None):
        for text in value if many else (value,):
            named = isinstance(text, str) and bool(text.strip())
            require(named or (text is None and wanted is not str), f"{name}: must be a name, not {text!r}")
        return
    for number in value if many else (value,):
        fits = type(number) is int or (wanted is float and isinstance(number, float))
        require(fits, f"{name}: must be {'an integer' if wanted is int else 'a number'}, not {number!r}")
        require(number == number and abs(number) != math.inf, f"{name}: must be a finite number, not {number}")
        require(number == 0 or 1e-12 <= abs(number) <= 1e12, f"{name}: {number!r:.24} is beyond all reason")


def _flags(make: Callable[[Any], Any], config: LoopConfig, **flags: str) -> Any:
    """`make(config)`, with arguments in its errors called by the names of their settings."""
    try:
        return make(config)
    except InputError as error:
        name, _, rest = str(error).partition(":")
        raise InputError(f"{flags.get(name, name)}:{rest}") from None


def make_sampler(config: LoopConfig) -> Sampler:
    """The sampler that `config` names."""
    makers: Mapping[str, Callable[[], Sampler]] = {
        "uniform": lambda: samplers.uniform(config.m),
        "equidistant": lambda: samplers.equidistant(config.m),
        "geometric": lambda: samplers.geometric(config.m, config.lam),
        "geometric-distinct": lambda: samplers.geometric_distinct(config.m, config.lam, config.grid or None),
        "windows": lambda: samplers.windows(
            config.windows, config.window_length, config.window_step, from_start=config.window_at_start
        ),
        "final": samplers.final,
        "exponential-gaps": lambda: samplers.exponential_gaps(config.m, config.mean_gap),
    }
    return makers[config.sampler]()


def make_schedule(config: LoopConfig) -> Schedule:
    """The schedule that `config` names."""
    makers: Mapping[str, Callable[[], Schedule]] = {
        "every": lambda: schedules.every(config.every),
        "batches": lambda: schedules.batches(config.batches, config.update, config.initial),
        "geometric": lambda: schedules.geometric(config.first, config.growth, config.initial),
        "on-misfit": lambda: schedules.on_misfit(config.factor, config.initial),
    }
    return makers[config.schedule]()


def make_output(config: LoopConfig) -> OutputRule:
    """The output rule that `config` names."""
    rules: Mapping[str, Any] = {
        "uniform": outputs.uniform,
        "last": outputs.last,
        "best-measured": outputs.best_measured,
    }
    return rules[config.output]

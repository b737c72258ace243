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
    sampler: Literal["uniform", "equidistant", "geometric", "windows", "final", "exponential-gaps"] = "uniform"
    """When to measure."""
    lam: float = 6.0
    """λ of the geometric sampler: P(iT/m) ∝ λ^i."""
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
    """η_init, exploring episodes before the first batch (batches and geometric schedules)."""
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
class ControlConfig(LoopConfig):
    """ENODE and PURE_ENODE on a mechanism."""

    variant: Literal["paper", "released"] = "paper"
    """The system as in the paper's table, or as in the released code."""
    horizon: float = 50.0
    """T, the length of an episode."""
    diffusion: float = 0.0
    """g, the process noise; the paper has none."""
    observation_std: float = 0.0
    """Standard deviation of the noise on measured states; the paper has none."""
    members: int = 10
    """Networks in the ensemble."""
    width: int = 200
    """Units in each hidden layer of ensemble, actor and critic."""
    integrator: Literal["midpoint", "dopri5"] = "midpoint"
    """How the model is integrated: one step a measurement, or adaptively as in the paper."""
    match_iterations: int = 600
    """Steps of gradient matching at the first update."""
    first_iterations: int = 400
    """Steps on trajectories at the first update."""
    later_iterations: int = 300
    """Steps on trajectories at each later update."""
    points: int = 4
    """Measurements in a sub-sequence that the model is fitted to."""
    fit_rows: int = 48
    """Sub-sequences a step, for each member."""
    fit_rate: float = 1e-3
    """Adam's rate on the model; it falls to a fiftieth."""
    longest_gap: float = 0.15
    """Two measurements further apart are not fitted as neighbours."""
    plan_iterations: int = 450
    """Steps of the actor at each update."""
    plan_rows: int = 48
    """Imagined rollouts a step."""
    plan_members: int = 3
    """Members of the ensemble that share them."""
    plan_horizon: float = 3.0
    """H, the length of an imagined rollout."""
    discount: float = 5.0
    """τ: a reward t seconds away counts e^(−t/τ)."""
    planning: Literal["mean", "optimistic"] = "mean"
    """Over the members of the ensemble."""
    actor_rate: float = 2e-3
    """Adam's rate on the actor; it falls to a twentieth."""
    critic_rate: float = 1e-3
    """Adam's rate on the critic."""
    stop_when_solved: bool = False
    """End at the first policy that passes its test, with the rest of the budget unspent."""

    def check(self) -> None:
        """As `LoopConfig.check`, for the whole experiment."""
        super().check()
        require(self.horizon > 0, f"horizon: the episode length T must be positive, not {self.horizon}")
        make_sampler(self)(Key(0), 1, Context(self.horizon))  # do its windows fit?
        require(
            self.schedule != "on-misfit", "schedule: on-misfit is not there for control yet; take batches or geometric"
        )
        for name in ("diffusion", "observation_std", "match_iterations"):
            require(getattr(self, name) >= 0, f"{name}: cannot be negative, got {getattr(self, name)}")
        for name in (
            "members",
            "width",
            "first_iterations",
            "later_iterations",
            "fit_rows",
            "plan_rows",
            "plan_members",
        ):
            require(
                1 <= getattr(self, name) <= MOST, f"{name}: must lie between 1 and {MOST:,}, not {getattr(self, name)}"
            )
        for name in ("fit_rate", "longest_gap", "plan_horizon", "discount", "actor_rate", "critic_rate"):
            require(getattr(self, name) > 0, f"{name}: must be positive, not {getattr(self, name)}")
        require(self.points >= 2, f"points: a sub-sequence has at least 2 measurements, not {self.points}")
        require(self.plan_iterations >= 5, f"plan_iterations: must be at least 5, not {self.plan_iterations}")
        require(self.plan_horizon >= self.window_step, f"plan_horizon: must hold a step of {self.window_step}")
        require(
            self.plan_members <= self.members and self.plan_rows % self.plan_members == 0,
            f"plan_members: must divide plan_rows = {self.plan_rows} and not exceed members = {self.members}, "
            f"got {self.plan_members}",
        )


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
        "on-misfit": lambda: schedules.on_misfit(config.factor),
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

"""Problems with states and controls: what a learner may know of them, and what an episode executes."""

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from purectrl.core.errors import InputError, StoreError, require
from purectrl.core.ledger import Budget
from purectrl.core.measurement import Measurements
from purectrl.core.plan import Plan
from purectrl.core.problem import Criterion, Metrics, Problem
from purectrl.core.samplers import Sampler
from purectrl.systems.held_policy import HeldControl, HeldPolicy
from purectrl.systems.mechanical import MechanicalSystem

Control = Callable[[Any, Any], Array]
"""(x [d], t) -> u [k], for one episode."""


@dataclass(frozen=True)
class StateSpec:
    """What a learner may know of a system with states x [d] and controls u [k].

    Main arguments:
        state_dim, control_dim: d and k.
        control_low, control_high: the limits of each control [k].

    Other arguments:
        mechanics: if the system is mechanical and that is known: which coordinates are angles, that dq/dt = v, the reward
            and the initial distribution. Its equations of motion are not shown to the learner.
        angles: the numbers of the coordinates that are angles.
        velocities: pairs (i, j) for which dx[i]/dt = x[j] is known.
        reward: the reward rate (x [d], u [k]) -> scalar if it is known; None if it must be learned.
        terminal_reward: the reward of the final state, (x [d]) -> scalar; None if there is none.
        initial_state: the state that every episode begins in [d]; None if it is random or unknown.
        drift_measured: whether measurements contain y; otherwise learners take difference quotients of measured states.
        log_reward: the logarithm of the reward, if the reward is known in that form.
        approximate_drift: (x [d], u [k]) -> [d], a model of dx/dt that is known to be inexact; the difference is learned.
        may_terminate: whether episodes can terminate before their horizon. In which states is learned from measurements.
        terminated: (x [d]) -> bool, whether an episode terminates in state x, if that is known.

    >>> spec = StateSpec(2, 1, (0.0,), (4.0,), angles=(0,))
    >>> spec.control_mid, spec.control_half_range, spec.feature_dim
    ((2.0,), (2.0,), 3)
    """

    state_dim: int
    control_dim: int
    control_low: tuple[float, ...]
    control_high: tuple[float, ...]
    mechanics: MechanicalSystem | None = None
    angles: tuple[int, ...] = ()
    velocities: tuple[tuple[int, int], ...] = ()
    reward: Callable[[Array, Array], Array] | None = None
    drift_measured: bool = True
    terminal_reward: Callable[[Array], Array] | None = None
    initial_state: tuple[float, ...] | None = None
    log_reward: Callable[[Array, Array], Array] | None = None
    approximate_drift: Callable[[Array, Array], Array] | None = None
    may_terminate: bool = False
    terminated: Callable[[Array], Array] | None = None

    def __post_init__(self) -> None:
        require(self.state_dim >= 1, f"state_dim: must be at least 1, not {self.state_dim}")
        require(self.control_dim >= 1, f"control_dim: must be at least 1, not {self.control_dim}")
        for name, limits in (("control_low", self.control_low), ("control_high", self.control_high)):
            length = len(limits)
            require(
                length == self.control_dim,
                f"{name}: has {length} numbers, expected one per control, {self.control_dim}",
            )
            require(bool(np.isfinite(limits).all()), f"{name}: the limits must be finite numbers, not {limits}")
        ordered = all(low < high for low, high in zip(self.control_low, self.control_high, strict=True))
        require(ordered, f"control_low: must be below control_high, got {self.control_low} and {self.control_high}")
        for name, numbers in (("angles", self.angles), ("velocities", [i for pair in self.velocities for i in pair])):
            valid = all(0 <= number < self.state_dim for number in numbers)
            require(valid, f"{name}: the coordinates are 0 to {self.state_dim - 1}, got {getattr(self, name)}")

    @classmethod
    def of_mechanics(cls, system: MechanicalSystem) -> "StateSpec":
        """The specification of a mechanical system whose structure and reward are known."""
        k, limit = system.control_dim, float(system.u_max)
        return cls(
            system.state_dim,
            k,
            control_low=(-limit,) * k,
            control_high=(limit,) * k,
            mechanics=system,
            angles=tuple(i for i, is_angle in enumerate(system.angles) if is_angle),
            velocities=tuple((i, system.nq + i) for i in range(system.nq)),
            reward=system.reward,
            drift_measured=False,
        )

    @property
    def control_mid(self) -> tuple[float, ...]:
        """The middle of the range of each control."""
        return tuple((low + high) / 2 for low, high in zip(self.control_low, self.control_high, strict=True))

    @property
    def control_half_range(self) -> tuple[float, ...]:
        """Half the range of each control."""
        return tuple((high - low) / 2 for low, high in zip(self.control_low, self.control_high, strict=True))

    @property
    def feature_dim(self) -> int:
        """Number of features: an angle has two."""
        return self.state_dim + len(self.angles) if self.mechanics is None else self.mechanics.feature_dim

    def featurize(self, x: Float[Array, "*rows d"]) -> Float[Array, "*rows features"]:
        """The coordinates in order, with (cos, sin) in the place of each angle."""
        if self.mechanics is not None:
            return self.mechanics.featurize(x)
        if not self.angles:
            return x
        columns = [x[..., i] for i in range(self.state_dim)]
        pairs = [(jnp.cos(q), jnp.sin(q)) if i in self.angles else (q,) for i, q in enumerate(columns)]
        return jnp.stack([feature for pair in pairs for feature in pair], axis=-1)

    def most_episodes(self, measurements: int, m: int) -> int:
        """How many episodes with m measurements, or fewer where episodes can terminate, a budget holds at most.

        >>> StateSpec(1, 1, (0.0,), (1.0,)).most_episodes(100, 20)
        5
        >>> StateSpec(1, 1, (0.0,), (1.0,), may_terminate=True).most_episodes(100, 20)
        100
        """
        return measurements if self.may_terminate else measurements // m

    def scale_control(self, u: Float[Array, "*rows k"]) -> Float[Array, "*rows k"]:
        """Controls in units of half their range, from −1 to 1."""
        return (u - _constant(self.control_mid)) / _constant(self.control_half_range)

    def unscale_control(self, scaled: Float[Array, "*rows k"]) -> Float[Array, "*rows k"]:
        """Controls between their limits, from numbers between −1 and 1."""
        return _constant(self.control_mid) + _constant(self.control_half_range) * scaled


def _constant(values: tuple[float, ...]) -> float | Array:
    """A number if all values are equal, which lets the compiler merge it with other constants, else an array [k]."""
    return values[0] if len(set(values)) == 1 else jnp.asarray(values)


@runtime_checkable
class ExploringPolicy(Protocol):
    """A policy that explores: episodes execute `explore(...)`."""

    def __call__(self, x: Array, t: Any = 0.0) -> Array:
        """The control [k] at state x [d] and time t, without exploration noise."""
        ...

    def explore(self, key: Array, episode: Any) -> Control:
        """The control (x [d], t) -> u [k] of one episode of a batch, its noise drawn from the JAX key; traceable by JAX."""
        ...

    def without_noise(self) -> "ExploringPolicy":
        """The policy whose `explore` adds no noise."""
        ...


def episode_control(policy: Any, key: Array, episode: Any) -> Control:
    """What episode number `episode` of a batch executes: with exploration noise if the policy has any."""
    return policy.explore(key, episode) if isinstance(policy, ExploringPolicy) else policy


def episode_decisions(
    policy: Any, key: Array, episode: Any
) -> tuple[Any, Callable[[Any, Array, Any], tuple[Array, Any]]]:
    """The first memory of an episode in discrete time, and (memory, x [d], t) -> (u [k], next memory).

    Of a `HeldPolicy` they are its own; other policies remember nothing.
    """
    if isinstance(policy, HeldPolicy):
        return policy.begin(key), policy.decide
    act = episode_control(policy, key, episode)
    return (), lambda memory, x, t: (act(x, t), memory)


def without_noise(plan: Plan) -> Plan:
    """`plan` without exploration noise, for evaluations."""
    return Plan(plan.policy.without_noise(), plan.initial) if isinstance(plan.policy, ExploringPolicy) else plan


def return_metrics(returns: np.ndarray) -> Metrics:
    """Mean and smallest of the returns [episodes], and the standard error of the mean if there are several.

    >>> return_metrics(np.array([1.0, 2.0, 3.0, 6.0]))
    {'return': 3.0, 'return_min': 1.0, 'return_error': 1.0801234497346435}
    """
    found = {"return": float(returns.mean()), "return_min": float(returns.min())}
    if len(returns) > 1:
        found["return_error"] = float(returns.std(ddof=1) / np.sqrt(len(returns)))
    return found


def return_criterion(least: float) -> Criterion:
    """That the mean return of an evaluation is at least `least`."""
    return Criterion("return", least, f"mean return of at least {least:g}")


class StateProblem(Problem, abc.ABC):
    """A problem with states and controls. `plan.policy(x, t)` is the control [k] at state x [d] and time t."""

    kind: ClassVar[str] = "states"
    default_algorithm: ClassVar[str | None] = "pure-auto"
    holds_controls: ClassVar[bool] = True
    """Whether it executes a `HeldPolicy`; otherwise policies are functions of state and time."""
    spec: StateSpec

    @property
    def equations(self) -> Any:
        """The true system, with methods `drift`, `reward` and `sample_initial_state`, for planning with a known model; None
        if the problem cannot offer it. Learners that learn do not read it."""
        return None

    @property
    def evaluation_length(self) -> float:
        """Seconds of an evaluation episode: T, unless the problem measures only the beginning of its episodes."""
        return self.horizon

    def memory_bytes(self, budget: Budget, sampler: Sampler) -> Mapping[str, float]:
        """All measurements, as 64-bit numbers at most, and their copy while the data set grows."""
        numbers = 2 + 2 * self.spec.state_dim + self.spec.control_dim
        return {"measurements": 1.5 * 8.0 * numbers * budget.measurements}

    def check_data(self, data: Measurements) -> None:
        """Raises unless the states have dimension d and the controls dimension k."""
        expected = (self.spec.state_dim,), (self.spec.control_dim,)
        if (found := (data.x.shape[2:], data.u.shape[2:])) != expected:
            raise StoreError(f"its states and controls have the shapes {found}, those of {self.name} have {expected}")

    def controller(self, plan: Plan) -> Callable[..., np.ndarray]:
        """The policy of `plan` as a compiled function (state [..., d], time) -> control [..., k] of NumPy arrays."""
        return policy_function(self, plan)


def policy_function(problem: StateProblem, plan: Plan) -> Callable[..., np.ndarray]:
    """The policy of `plan` without exploration noise, for use outside of a run; see `StateProblem.controller`.

    It is compiled for one state when this function returns, and for a batch of states at the first call with its shape. A
    policy with memory (`HeldControl`) is called with increasing times and begins anew at time zero.
    """
    spec = problem.spec
    d, low, high = spec.state_dim, *np.asarray((spec.control_low, spec.control_high), np.float32)
    act: Callable[[Any, Any], Any] = jax.jit(
        jnp.vectorize(lambda x, t: jnp.clip(plan.policy(x, t), low, high), signature="(d),()->(k)")
    )
    if isinstance(plan.policy, HeldPolicy):
        held = HeldControl(plan.policy, jax.random.key(0))
        act = lambda x, t: np.clip(held(x, t), low, high)  # noqa: E731

    def policy(x: Any, t: Any = 0.0) -> np.ndarray:
        """The control at state x and time t."""
        x = np.asarray(x, np.float32)
        if x.shape[-1:] != (d,):
            raise InputError(f"x: has shape {x.shape}, expected [{d}] or [..., {d}]")
        if not np.isfinite(x).all():
            raise InputError(f"x: has a coordinate that is not finite: {x.tolist()}")
        u = np.asarray(act(x, np.asarray(t, np.float32)))
        if not np.isfinite(u).all():
            raise InputError(f"x: is too large for the policy's single precision: {x.tolist()}")
        return u

    policy(np.zeros(d))
    return policy

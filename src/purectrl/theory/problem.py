"""Problems whose truth is known: a simulated system, function classes that learners may use, and exact suboptimality.

The learner sees measurements only. The problem knows the truth, so that the suboptimality R(π*, q*) − R(π, q) of a plan, the
`gap` of records and summaries, is a number and not an estimate from measurements. (π*, q*) is the best pair of the classes
Π and Q to which the plan belongs.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from purectrl.core.keys import Key
from purectrl.core.learner import Record
from purectrl.core.ledger import Budget
from purectrl.core.measurement import Measurements
from purectrl.core.oracle import Rollout
from purectrl.core.plan import Plan
from purectrl.core.problem import Metrics, Source, record_numbers
from purectrl.core.samplers import Sampler
from purectrl.core.system import MeasurementModel, System
from purectrl.systems.compiled import jax_key
from purectrl.systems.simulation import Initial, Rows, Solver, euler_maruyama, simulate_rollouts, simulate_rows
from purectrl.systems.spec import StateProblem, StateSpec
from purectrl.theory.classes import Classes, Truth
from purectrl.theory.gradient_planner import value_on_paths
from purectrl.theory.linear import LinearClass
from purectrl.theory.planning import Values
from purectrl.theory.policy_classes import Member, ParametricClass, StationaryPolicy, make_plan

PlanValue = Callable[[Plan], tuple[Array, Array]]
"""(plan) -> R(π, q, f*, b*) and its standard error."""


TRUE_PATHS = 8192
"""Simulated paths per true value of a finite class: many, so that its error does not matter."""


def simulated_bytes(state_dim: int, rewards: int, paths: int, steps: int) -> float:
    """Bytes of `paths` simulated paths with the rewards of all members along them (`value_table`)."""
    return 4.0 * paths * steps * (2 * state_dim + rewards + 2)


@dataclass(frozen=True, eq=False)
class FiniteModels:
    """Finite classes that a problem offers, and the values of their plans.

    Main arguments:
        classes: Π, Q, F and R.
        values: (simulated paths) -> R(π, q, f, b) for all members, with which learners plan.
        true_values: () -> R(π, q, f*, b*) [Π, Q, 1, 1], which defines the suboptimality of a plan.
        exact: whether `values` needs no simulated paths.
    """

    classes: Classes
    values: Callable[[int], Values]
    true_values: Callable[[], Values]
    exact: bool = False

    def holds(self, plan: Plan) -> bool:
        """Whether `plan` is a pair of members of Π and Q."""
        return _is_member(plan, self.classes.policies, self.classes.initials)

    def gap(self, plan: Plan) -> float:
        """The suboptimality of a pair of members."""
        values = self.true_values().mean[:, :, 0, 0]
        return float(values.max() - values[plan.policy.parameter, plan.initial.parameter])

    def optimum(self) -> tuple[float, float]:
        """The largest value of any pair of members, and the standard error of the values."""
        values = self.true_values()
        return float(values.mean.max()), values.error

    def metrics(self, last: Plan) -> Metrics:
        """Metrics of a run besides those of every problem."""
        return {}


@dataclass(frozen=True)
class AscentSettings:
    """The gradient ascent that searches the optimum over continuous policies on the true system."""

    num_restarts: int = 4
    iterations: int = 200
    learning_rate: float = 0.1
    paths: int = 1024


@dataclass(frozen=True, eq=False)
class ContinuousModels:
    """Continuous classes that a problem offers, and the values of their plans.

    Main arguments:
        policies, initials: Π and Q.
        rewards: R.
        value: (plan) -> its value on the true system and the standard error.
        search: () -> the optimum, its standard error, and the mean value of random plans.

    Other arguments:
        drifts: a linear class F, if offered.
        network: (JAX key, width) -> an Equinox module (x [d], u [k]) -> [d], if a neural class F is offered.
        kernels: () -> kernel classes F and R, if offered (`purectrl.theory.kernel.kernel_class`).
    """

    policies: ParametricClass
    initials: ParametricClass
    rewards: LinearClass
    value: PlanValue
    search: Callable[[], tuple[float, float, float]]
    drifts: LinearClass | None = None
    network: Callable[[Array, int], Any] | None = None
    kernels: Callable[[], tuple[LinearClass, LinearClass]] | None = None

    def holds(self, plan: Plan) -> bool:
        """Whether `plan` is a pair of members of Π and Q."""
        return _is_member(plan, self.policies, self.initials)

    def gap(self, plan: Plan) -> float:
        """The suboptimality of any plan."""
        return self.search()[0] - float(self.value(plan)[0])

    def optimum(self) -> tuple[float, float]:
        """The best value found by gradient ascent, and its standard error."""
        return self.search()[:2]

    def metrics(self, last: Plan) -> Metrics:
        """The suboptimality of random plans and of the final plan."""
        best, _, random = self.search()
        return {"gap_random": best - random, "gap_final": self.gap(last)}


@dataclass(frozen=True, eq=False, kw_only=True)
class TheoryProblem(StateProblem):
    """A simulated system with known truth and function classes for Algorithms 1 to 3, one of which must be named.

    Main arguments:
        name: the name in reports and run directories.
        system: the true system.
        spec: what any learner may know.
        measuring: Δ, the noise, and how y is measured.
        steps: Euler-Maruyama steps per episode.
        noise_std: standard deviations of y, in each direction, and of r.
        truth: f* and b* as the classes hold them.
        initial: the initial distribution of learners that do not choose one.
        value: (plan) -> its value on the true system and the standard error, for plans of any learner.

    Other arguments:
        finite, continuous: the function classes on offer; at least one of them.
        measurements: the measurement budget if the user gives none.
        substeps: steps of the truth per step of the planner, as in `true_solver`.
    """

    default_algorithm: ClassVar[str | None] = None
    holds_controls: ClassVar[bool] = False  # the gap of a policy is computed on thousands of paths
    name: str
    system: System
    spec: StateSpec
    measuring: MeasurementModel
    steps: int
    noise_std: tuple[float, float]
    truth: Truth
    initial: Initial
    value: PlanValue
    finite: FiniteModels | None = None
    continuous: ContinuousModels | None = None
    measurements: int = 4096
    substeps: int = 1
    lookahead: int = 256
    source: Source | None = None
    horizon: float = field(init=False)
    _rollout: Rollout = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "horizon", self.system.horizon)
        object.__setattr__(self, "_rollout", self._simulated(self.measuring, True))

    def rollout(self, key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        """Executes `plan` on the true system and measures at `times` [episodes, m]."""
        return self._rollout(key, plan, times)

    def rollout_rows(self, words: np.ndarray, plans: Plan, times: np.ndarray) -> Measurements:
        """Episodes of many runs at once, as `purectrl.systems.simulation.simulate_rows`."""
        steps = self.steps * self.substeps
        simulated = _row_simulator(self.system, self.measuring, steps, self.initial, true_solver(self.substeps))
        return simulated(words, plans, times)

    def _simulated(self, measuring: MeasurementModel, explore: bool) -> Rollout:
        """Episodes of the truth."""
        steps = self.steps * self.substeps
        return _simulator(self.system, measuring, steps, self.initial, explore, true_solver(self.substeps))

    def memory_bytes(self, budget: Budget, sampler: Sampler) -> Mapping[str, float]:
        """Also the paths of the episodes that are simulated at once, and those of the true values."""
        d, k = self.spec.state_dim, self.spec.control_dim
        episodes = min(self.lookahead, max(1, budget.measurements // sampler.m))
        rollout = 4.0 * episodes * (self.steps * self.substeps + sampler.m) * (3 * d + k + 4)
        found = {
            "problem.steps, sampler.m": rollout,
            "problem.steps": simulated_bytes(d, 1, TRUE_PATHS, self.steps * self.substeps),
        }
        return {**super().memory_bytes(budget, sampler), **found}

    def evaluate(self, plan: Plan, key: Key, episodes: int) -> Metrics:
        """The mean reward of `plan` on new episodes without noise in the reward, its standard error, and the gap."""
        rollout = self._simulated(MeasurementModel(reward_std=0.0), False)
        times = np.tile(np.linspace(0.0, self.horizon, self.steps + 1)[:-1], (episodes, 1))
        seen = rollout(key, plan, times)
        assert seen.r is not None
        rewards = seen.r.mean(axis=1) * self.horizon
        error = float(rewards.std() / math.sqrt(episodes))
        return {"reward": float(rewards.mean()), "reward_error": error, "gap": self.gap(plan)}

    def gap(self, plan: Plan) -> float:
        """The suboptimality of `plan` among the plans of its classes.

        A plan of other classes is compared with the best plan of the largest class on offer; its gap can be negative.
        """
        models = self._models(plan)
        return models.gap(plan) if models.holds(plan) else models.optimum()[0] - float(self.value(plan)[0])

    def columns(self, record: Record) -> Metrics:
        """The gap of the executed plan."""
        return {"gap": self.gap(record.plan)}

    def summarize(self, plan: Plan, last: Plan, key: Key, records: Sequence[Mapping[str, Any]]) -> Metrics:
        """The average gap over the episodes, the gap of the returned plan, and the optimum with its standard error."""
        models = self._models(plan)
        optimum, error = models.optimum()
        more = {"gap_output": self.gap(plan), "optimum": optimum, "truth_error": error}
        return regret(records) | more | models.metrics(last)

    def _models(self, plan: Plan) -> FiniteModels | ContinuousModels:
        """The classes to which `plan` belongs, or the largest ones on offer."""
        offered = [models for models in (self.continuous, self.finite) if models is not None]
        return next((models for models in offered if models.holds(plan)), offered[0])


def regret(records: Sequence[Mapping[str, Any]]) -> Metrics:
    """Metrics of the executed plans: average gap, its curve over the rollouts, whether the truth was always covered, and the
    smallest multiple of the radii at which it would have been."""
    names = ("episodes", "gap", *(["covered"] if "covered" in records[0] else []))
    # read once and into one array: there may be a million records
    table: np.ndarray = np.fromiter(record_numbers(records, *names), np.dtype((np.float64, len(names))))
    rollouts, total = np.cumsum(table[:, 0]), np.cumsum(table[:, 0] * table[:, 1])
    marks = np.unique(np.searchsorted(rollouts, np.geomspace(1, rollouts[-1], 33)))
    covered: Metrics = {"covered": bool(table[:, 2].all())} if "covered" in names else {}
    present = [record.get("radius_needed", -1.0) for record in records] if covered else []  # only updates have it
    filled = ({"radius_needed": math.inf if one is None else one} for one in present)  # null is infinity in JSON
    worst = max((multiple for (multiple,) in record_numbers(filled, "radius_needed", most=math.inf)), default=-1.0)
    if worst >= 0:
        covered["radius_needed"] = worst
    return {
        "gap": float(total[-1] / rollouts[-1]),
        "gap_last": float(table[-1, 1]),
        "gap_curve": [[int(rollouts[i]), float(total[i] / rollouts[i])] for i in marks],
        **covered,
    }


@functools.cache
def true_solver(substeps: int) -> Solver:
    """What computes the paths of the truth: Euler-Maruyama if it has the steps of the planner, else a stochastic Runge-Kutta
    method of strong order 1½ and weak order 2 (ShARK, for constant diffusion)."""
    if substeps == 1:
        return euler_maruyama
    import diffrax

    from purectrl.systems.solvers import diffrax_solver

    return diffrax_solver(diffrax.ShARK())


def true_value(system: System, steps: int, paths: int, initial: Initial | None = None, substeps: int = 1) -> PlanValue:
    """R(π, q, f*, b*) and its standard error by simulation, as a compiled function of a plan.

    Every plan is simulated with the same random numbers.

    Main arguments:
        system: the true system.
        steps: steps of the planner per episode.
        paths: simulated episodes.

    Other arguments:
        initial: the initial distribution of plans whose `initial` is None.
        substeps: steps of the truth per step of the planner.
    """
    keys = jax.random.split(jax_key(Key.from_seed(0).child("truth")), (paths, 2))
    grid = steps * substeps, true_solver(substeps)

    @jax.jit
    def value(plan: Plan) -> tuple[Array, Array]:
        start = initial if plan.initial is None else plan.initial
        assert start is not None
        found = value_on_paths(system, plan.policy, start, system.drift, system.reward, keys, *grid)
        return found.mean(), found.std() / math.sqrt(paths - 1)

    return value


def remembered(value: PlanValue) -> PlanValue:
    """`value` with its last results kept: a plan is simulated once, and not for every episode that executes it."""
    cached = functools.lru_cache(maxsize=8)(lambda plan: value(plan.plan))
    return lambda plan: cached(_HashedPlan(plan))


class _HashedPlan:
    """A plan that is hashed and compared by its numbers."""

    def __init__(self, plan: Plan) -> None:
        leaves, structure = jax.tree.flatten(plan)
        self.plan = plan
        self.identity = structure, tuple(np.asarray(leaf).tobytes() for leaf in leaves)

    def __hash__(self) -> int:
        return hash(self.identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _HashedPlan) and self.identity == other.identity


def search_optimum(
    system: System,
    policies: ParametricClass,
    initials: ParametricClass,
    steps: int,
    value: PlanValue,
    settings: AscentSettings,
) -> tuple[float, float, float]:
    """The best value of any policy on the true system by gradient ascent from several random plans, its standard error, and
    the mean value of those random plans."""
    optimizer = optax.adam(optax.cosine_decay_schedule(settings.learning_rate, settings.iterations))
    rough = true_value(system, steps, settings.paths)

    def ascend(plan: Plan) -> Plan:
        def step(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
            plan, memory = carry
            slope = jax.grad(lambda plan: -rough(plan)[0])(plan)
            change, memory = optimizer.update(jax.tree.map(jnp.nan_to_num, slope), memory)
            return (optax.apply_updates(plan, change), memory), None

        return jax.lax.scan(step, (plan, optimizer.init(plan)), length=settings.iterations)[0][0]

    key, count = Key.from_seed(0).child("optimum"), settings.num_restarts
    begins = [
        make_plan(policies, policies.init(key.child("p", i)), initials, initials.init(key.child("q", i)))
        for i in range(count)
    ]
    ends = jax.jit(jax.vmap(ascend))(jax.tree.map(lambda *leaves: jnp.stack(leaves), *begins))
    found = [value(jax.tree.map(lambda leaf, i=i: leaf[i], ends)) for i in range(count)]
    best, error = max((float(mean), float(error)) for mean, error in found)
    return best, error, float(np.mean([value(begin)[0] for begin in begins]))


@functools.lru_cache(maxsize=16)
def _simulator(
    system: System, measuring: MeasurementModel, steps: int, initial: Initial, explore: bool, solver: Solver
) -> Rollout:
    """The compiled rollouts, shared by all problems with equal systems."""
    return simulate_rollouts(system, measuring, steps, initial, explore, solver)


@functools.lru_cache(maxsize=16)
def _row_simulator(system: System, measuring: MeasurementModel, steps: int, initial: Initial, solver: Solver) -> Rows:
    """The compiled episodes of many runs."""
    return simulate_rows(system, measuring, steps, initial, solver=solver)


def _is_member(plan: Plan, policies: Any, initials: Any) -> bool:
    """Whether π and q are members of these classes."""
    return (
        isinstance(plan.policy, StationaryPolicy)
        and isinstance(plan.initial, Member)
        and plan.policy.apply == policies.apply
        and plan.initial.apply == initials.apply
    )

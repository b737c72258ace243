"""Problems of the theory: simulated diffusions with known truth, function classes that contain it, and exact suboptimality.

    finite    a particle on a washboard; lists of candidates
    lqr       linear drift in one to four dimensions; lists of candidates, linear and, in one, kernel classes
    ou        the Ornstein-Uhlenbeck process of Proposition 2; lists of candidates, values by quadrature
    neural    a pendulum or a quadrotor; networks for its drift

Values, optima and compiled simulators depend on the arguments only and are cached: problems with equal arguments share them.
"""

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, get_type_hints

import jax.numpy as jnp
import numpy as np

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.settings import check_type
from purectrl.core.system import MeasurementModel, System
from purectrl.problems import theory_classes
from purectrl.problems.neural_systems import NeuralSystem, neural_parts
from purectrl.systems import lqr as lqr_system
from purectrl.systems import ou as ou_system
from purectrl.systems import washboard
from purectrl.systems.simulation import Initial
from purectrl.systems.spec import StateSpec
from purectrl.theory.classes import Classes, FiniteClass, TrueFunction, Truth
from purectrl.theory.linear import LinearClass
from purectrl.theory.planning import Values, value_table
from purectrl.theory.policy_classes import GaussianInitials, LinearPolicies, ParametricClass
from purectrl.theory.problem import (
    TRUE_PATHS,
    AscentSettings,
    ContinuousModels,
    FiniteModels,
    PlanValue,
    TheoryProblem,
    remembered,
    search_optimum,
    true_solver,
    true_value,
)
from purectrl.theory.quotient import noise_growth

TABLE_PATHS, VALUE_PATHS = TRUE_PATHS, 4096
"""Simulated paths per true value of a finite and of a continuous class: many, so that its error does not matter."""

Drift = Literal["drawn", "quotient"]


def finite(
    horizon: float = 2.0,
    diffusion: float = 0.2,
    grid: Literal["even", "dyadic"] = "even",
    scales: int = 6,
    a: float = 0.5,
    c: float = 0.5,
    goal: float = 0.75,
    step: float = 0.1,
    reward_std: float = 1.0,
    drift: Drift = "drawn",
    steps: int = 40,
    substeps: int | None = None,
) -> TheoryProblem:
    """A particle on a washboard, with lists of candidate drifts and rewards.

    Main arguments:
        horizon: T, the length of an episode.
        diffusion: g*, constant and known.
        grid: the candidates: 20 drifts and 7 rewards evenly spaced, or finer and finer around a = 0.2, c = 0.3, goal = 0.5.
        scales: how often the distance to that point is halved (dyadic grid): 13 values of each parameter with 6.
        a: the true height of the washboard; off the grid, the truth is outside the class.
        c: the true strength of the control.
        goal: the true goal.

    Other arguments:
        step: Δ, the time that one measurement of the drift takes.
        reward_std: standard deviation of a measured reward; the paper has 1.
        drift: how the drift is measured: drawn as in the model, or the difference quotient over Δ of one path.
        steps: Euler-Maruyama steps per episode.
        substeps: steps of the truth per step of the planner. With more than one, the truth is a stochastic Runge-Kutta path;
            by default 1 if y is drawn and 4 for quotients, which need an accurate path within Δ.
    """
    check_arguments(finite, locals())
    require(1 <= scales <= 12, f"scales: must lie between 1 and 12, not {scales}")
    require(grid == "dyadic" or scales == 6, f"scales: {scales} has no effect on an even grid; use grid = dyadic")
    fine = _substeps(substeps, drift)
    parts = _finite_parts(horizon, diffusion, steps, fine, grid, scales, a, c, goal)
    return make_problem("finite", parts, diffusion, MeasurementModel(step, reward_std, drift), steps, substeps=fine)


def lqr(
    dimension: int = 2,
    horizon: float = 2.0,
    diffusion: float = 0.2,
    step: float = 0.1,
    reward_std: float = 1.0,
    drift: Drift = "drawn",
    steps: int = 40,
    substeps: int | None = None,
) -> TheoryProblem:
    """Linear drift with a bounded reward in one to four dimensions, with lists of candidates, linear and kernel classes.

    Main arguments:
        dimension: d, one to four; kernel classes are offered for one.
        horizon: T, the length of an episode.
        diffusion: g*, constant and known.

    Other arguments:
        step: Δ, the time that one measurement of the drift takes.
        reward_std: standard deviation of a measured reward; the paper has 1.
        drift: how the drift is measured: drawn as in the model, or the difference quotient over Δ of one path.
        steps: Euler-Maruyama steps per episode.
        substeps: steps of the truth per step of the planner. With more than one, the truth is a stochastic Runge-Kutta path;
            by default 1 if y is drawn and 4 for quotients, which need an accurate path within Δ.
    """
    check_arguments(lqr, locals())
    require(1 <= dimension <= 4, f"dimension: must be 1, 2, 3 or 4, not {dimension}")
    fine = _substeps(substeps, drift)
    parts = _lqr_parts(horizon, diffusion, steps, fine, dimension)
    return make_problem("lqr", parts, diffusion, MeasurementModel(step, reward_std, drift), steps, substeps=fine)


def ou(
    horizon: float = 4.0,
    diffusion: float = math.sqrt(2.0),
    u_min: float = 0.25,
    u_max: float = 4.0,
    rewards: Literal["bumps", "linear"] = "bumps",
    step: float = 0.1,
    reward_std: float = 1.0,
    drift: Drift = "drawn",
    steps: int = 40,
    substeps: int | None = None,
) -> TheoryProblem:
    """The Ornstein-Uhlenbeck process of Proposition 2. Values and suboptimality have no Monte-Carlo error.

    Main arguments:
        horizon: T, the length of an episode.
        diffusion: g*, constant and known; the proposition has sqrt(2).
        u_min: the smallest control; C_{T,m} ≤ 1 + m / (2 T u_min).
        u_max: the largest control.
        rewards: bumps around nine goals, with nine drifts; or αx with the true drift alone, as in the proposition, where all
            policies are worth zero and only the confidence sets have something to learn.

    Other arguments:
        step: Δ, the time that one measurement of the drift takes.
        reward_std: standard deviation of a measured reward; the paper has 1.
        drift: how the drift is measured: drawn as in the model, or the difference quotient over Δ of one path.
        steps: Euler-Maruyama steps per episode.
        substeps: steps of the truth per step of the planner. With more than one, the truth is a stochastic Runge-Kutta path;
            by default 1 if y is drawn and 4 for quotients, which need an accurate path within Δ.
    """
    check_arguments(ou, locals())
    require(0 < u_min < u_max, f"u_min: 0 < u_min < u_max must hold, not {u_min:g} and {u_max:g}")
    least = math.ceil(u_max * horizon / 2)
    require(steps >= least, f"steps: Euler-Maruyama is unstable with fewer than u_max · T / 2 = {least} steps")
    fine = _substeps(substeps, drift)
    parts = _ou_parts(horizon, diffusion, steps, u_min, u_max, rewards == "linear")
    return make_problem("ou", parts, diffusion, MeasurementModel(step, reward_std, drift), steps, substeps=fine)


def neural(
    system: NeuralSystem = "pendulum",
    horizon: float | None = None,
    diffusion: float = 0.2,
    step: float = 0.1,
    reward_std: float = 0.1,
    drift: Drift = "drawn",
    steps: int = 40,
) -> TheoryProblem:
    """A mechanical system whose drift is learned by networks.

    Main arguments:
        system: a pendulum that is lifted by a sufficient torque, one that must swing up, or a planar quadrotor.
        horizon: T, the length of an episode; 3 for the swing-up, otherwise 2.
        diffusion: g*, constant and known.

    Other arguments:
        step: Δ, the time that one measurement of the drift takes.
        reward_std: standard deviation of a measured reward.
        drift: how the drift is measured: drawn as in the model, or the difference quotient over Δ of one path.
        steps: Euler-Maruyama steps per episode.
    """
    horizon = horizon if horizon is not None else 3.0 if system == "swing-up" else 2.0
    check_arguments(neural, locals())
    parts = _neural_parts(system, horizon, diffusion, steps)
    return make_problem("neural", parts, diffusion, MeasurementModel(step, reward_std, drift), steps, measurements=2000)


class Parts(NamedTuple):
    """What a problem consists of besides its measurements: everything that is expensive to compute."""

    system: System
    limits: tuple[float, float]
    """The smallest and the largest control, in every direction."""
    truth: Truth
    initial: Initial
    """The initial distribution of learners that do not choose one."""
    value: PlanValue
    finite: FiniteModels | None = None
    continuous: ContinuousModels | None = None
    expansion: float = 0.0
    """K, the largest one-sided Lipschitz constant of any drift of the lists under any of their policies, if positive."""


def _substeps(substeps: int | None, drift: Drift) -> int:
    """Steps of the truth per step of the planner."""
    require(substeps is None or 1 <= substeps <= 1000, f"substeps: must lie between 1 and 1000, not {substeps}")
    return substeps or (1 if drift == "drawn" else 4)


def check_arguments(function: Callable[..., TheoryProblem], arguments: Mapping[str, Any]) -> None:
    """Raises `InputError` unless the arguments have the declared types, and those that all problems share fit together."""
    hints = get_type_hints(function)
    for name in inspect.signature(function).parameters:
        check_type(name, arguments[name], hints[name])
    horizon, diffusion, step, steps = (arguments[name] for name in ("horizon", "diffusion", "step", "steps"))
    require(horizon > 0, f"horizon: the episode length T must be positive, not {horizon}")
    require(diffusion >= 0, f"diffusion: g* cannot be negative, got {diffusion}")
    require(1 <= steps <= 1_000_000, f"steps: must be between 1 and 1,000,000, not {steps}")
    require(
        arguments["drift"] == "drawn" or step >= 1e-5 * horizon,
        f"step: a quotient over Δ = {step:g} is lost in rounding; use at least T/100,000",
    )


def make_problem(
    name: str,
    parts: Parts,
    diffusion: float,
    measuring: MeasurementModel,
    steps: int,
    measurements: int = 4096,
    substeps: int = 1,
) -> TheoryProblem:
    """The problem that consists of `parts`, with the given measurements."""
    growth = noise_growth(parts.expansion, measuring.step) if measuring.drift == "quotient" else 1.0
    system, (low, high), k = parts.system, parts.limits, parts.system.control_dim
    return TheoryProblem(
        name=name,
        system=system,
        spec=StateSpec(system.state_dim, k, (low,) * k, (high,) * k),
        measuring=measuring,
        steps=steps,
        noise_std=(growth * diffusion / math.sqrt(measuring.step), measuring.reward_std),
        truth=parts.truth,
        initial=parts.initial,
        value=parts.value,
        finite=parts.finite,
        continuous=parts.continuous,
        measurements=measurements,
        substeps=substeps,
    )


@functools.lru_cache(maxsize=8)
def _finite_parts(
    horizon: float,
    diffusion: float,
    steps: int,
    substeps: int,
    grid: str,
    scales: int,
    a: float,
    c: float,
    goal: float,
) -> Parts:
    system = washboard.washboard(a, c, goal, diffusion, horizon)
    classes, (drifts, goals) = theory_classes.washboard_classes(grid, scales)
    truth = Truth(
        TrueFunction(system.drift, theory_classes.index_of(drifts, (a, c))),
        TrueFunction(system.reward, theory_classes.index_of(goals[:, None], goal)),
    )
    initial: Initial = functools.partial(theory_classes.gaussian, jnp.zeros(1))
    value = remembered(true_value(system, steps, TABLE_PATHS, initial, substeps))
    models = simulated_models(system, classes, steps, substeps)
    expansion = theory_classes.washboard_expansion(drifts)
    return Parts(system, (-1.0, 1.0), truth, initial, value, models, expansion=expansion)


@functools.lru_cache(maxsize=8)
def _lqr_parts(horizon: float, diffusion: float, steps: int, substeps: int, dimension: int) -> Parts:
    system = lqr_system.lqr(dimension, diffusion, horizon)
    classes = theory_classes.lqr_classes(dimension)
    drifts, rewards, parameters = theory_classes.lqr_linear_classes(dimension)
    truth = Truth(
        TrueFunction(system.drift, index=0, parameter=parameters[0]),
        TrueFunction(system.reward, index=0, parameter=parameters[1]),
    )
    policies, initials = LinearPolicies(dimension, dimension), GaussianInitials(dimension, limit=0.0)
    initial: Initial = functools.partial(theory_classes.gaussian, jnp.zeros(dimension))
    value = remembered(true_value(system, steps, VALUE_PATHS, initial, substeps))
    kernels = functools.cache(lambda: theory_classes.lqr_kernel_classes()) if dimension == 1 else None
    classes_on_offer = {"drifts": drifts, "kernels": kernels}
    linear = continuous_models(system, policies, initials, rewards, steps, value, AscentSettings(), **classes_on_offer)
    models, expansion = simulated_models(system, classes, steps, substeps), theory_classes.lqr_expansion(dimension)
    return Parts(system, (-1.0, 1.0), truth, initial, value, models, linear, expansion)


@functools.lru_cache(maxsize=8)
def _ou_parts(horizon: float, diffusion: float, steps: int, u_min: float, u_max: float, linear: bool) -> Parts:
    classes = theory_classes.ou_classes(u_min, u_max, linear)
    if linear:
        system, (f, b) = ou_system.linear(diffusion, horizon), (0, classes.rewards.size - 1)
        table = np.zeros((classes.policies.size, 1, 1, classes.rewards.size))
    else:
        f, b = theory_classes.OU_TRUTH
        system = ou_system.ou(float(theory_classes.OU_GOALS[b]), diffusion, horizon)
        table = theory_classes.ou_values(u_min, u_max, diffusion, horizon)
    exact = Values(table[:, :, f, b, None, None], error=0.0)
    initial: Initial = functools.partial(classes.initials.apply, 0)
    return Parts(
        system,
        (u_min, u_max),
        Truth(TrueFunction(system.drift, f), TrueFunction(system.reward, b)),
        initial,
        remembered(true_value(system, steps, TABLE_PATHS, initial)),
        FiniteModels(classes, lambda paths: Values(table, error=0.0), lambda: exact, exact=True),
    )


@functools.lru_cache(maxsize=8)
def _neural_parts(name: NeuralSystem, horizon: float, diffusion: float, steps: int) -> Parts:
    found = neural_parts(name)
    system, limit = found.mechanics.system(horizon, diffusion), found.limit
    weights = np.eye(found.rewards.size(system.state_dim, system.control_dim))[:, :1]
    initial: Initial = functools.partial(found.initials.apply, found.initials.init(Key(0)))
    value = remembered(true_value(system, steps, VALUE_PATHS, initial))
    ascent = AscentSettings(num_restarts=3, iterations=500, learning_rate=0.01, paths=64)
    classes = found.policies, found.initials, found.rewards
    models = continuous_models(system, *classes, steps, value, ascent, network=found.network)
    truth = Truth(TrueFunction(system.drift), TrueFunction(system.reward, parameter=weights))
    return Parts(system, (-limit, limit), truth, initial, value, continuous=models)


def simulated_models(system: System, classes: Classes, steps: int, substeps: int = 1) -> FiniteModels:
    """Finite classes whose values are simulated, the true ones with `substeps` steps per step of the planner. The values do
    not depend on the seed of a run."""
    classes.check(system)
    key, true = Key.from_seed(0), (FiniteClass.of([system.drift]), FiniteClass.of([system.reward]))

    @functools.lru_cache(maxsize=4)
    def values(paths: int) -> Values:
        size = steps * paths
        require(size <= 100_000_000, f"paths: steps · paths must not exceed 100,000,000, it is {size:,}")
        return value_table(system, *classes, steps, paths)(key.child("plan"))

    @functools.cache
    def true_values() -> Values:
        solver = true_solver(substeps)
        return value_table(system, *classes[:2], *true, steps * substeps, TABLE_PATHS, solver)(key.child("truth"))

    return FiniteModels(classes, values, true_values)


def continuous_models(
    system: System,
    policies: ParametricClass,
    initials: ParametricClass,
    rewards: LinearClass,
    steps: int,
    value: PlanValue,
    ascent: AscentSettings,
    **drifts: Any,
) -> ContinuousModels:
    """Continuous classes whose optimum is found by gradient ascent when it is first needed."""
    search = functools.cache(lambda: search_optimum(system, policies, initials, steps, value, ascent))
    return ContinuousModels(policies, initials, rewards, value, search, **drifts)

"""The theory's experiments: a simulated truth, classes that contain it, and a gap that is a number.

The learner sees measurements only. The probe knows the truth, and writes down the gap R(π*, q*) − R(π_n, q_n) of the plan
that was executed and whether both confidence sets contain the truth.
"""

import functools
import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purectrl.core.keys import Key
from purectrl.core.learner import Record, State
from purectrl.core.ledger import Budget
from purectrl.core.loop import Loop
from purectrl.core.oracle import Oracle
from purectrl.core.problem import Array, Measuring, Plan, System
from purectrl.experiments.config import FiniteConfig, LqrConfig, TheoryConfig, make_output, make_sampler, make_schedule
from purectrl.experiments.registry import Task
from purectrl.systems import lqr as lqr_system
from purectrl.systems import washboard
from purectrl.systems.simulation import simulated
from purectrl.theory.classes import Classes, FiniteClass
from purectrl.theory.complexity import log_cover_finite
from purectrl.theory.confidence import Misfit, radius
from purectrl.theory.eluder import expectations
from purectrl.theory.learner import FiniteLearner
from purectrl.theory.planning import Optimist, Values, tabulator

AHEAD = 256
"""Episodes that the simulated truth may run ahead of Algorithm 2's test; those after an update are taken back."""

TRUTH_PATHS = 8192
"""Paths behind the values by which plans are judged: many, so that the gap is a number and not an estimate."""


def toward(parameters: tuple[Array, Array], x: Array) -> Array:
    """The policy u = clip(gain · (goal − x), −1, 1)."""
    gain, goal = parameters
    return jnp.clip(gain * (goal - x), -1.0, 1.0)


def around(mean: Array, key: Array) -> Array:
    """The initial distribution N(mean, 0.1² I)."""
    return mean + 0.1 * jax.random.normal(key, mean.shape)


def product(*axes: Any) -> np.ndarray:
    """All combinations of the given numbers [count, axes]."""
    return np.array(list(itertools.product(*axes)), np.float32)


class Setting(NamedTuple):
    """A true system and finite classes that may contain it."""

    system: System
    classes: Classes
    truth: tuple[int | None, int | None]
    """The places of f* and b* in F and R; None where they are outside."""


def finite(config: FiniteConfig) -> Task:
    """The particle on a washboard."""
    return enumerated(config, finite_setting(config), *simulated_values(finite_setting, relevant(config)))


def lqr(config: LqrConfig) -> Task:
    """Linear drift."""
    return enumerated(config, lqr_setting(config), *simulated_values(lqr_setting, relevant(config)))


def finite_setting(config: FiniteConfig) -> Setting:
    """Lists of drifts and rewards, policies with two gains toward several places, 3 initial distributions."""
    if config.grid == "even":
        drifts = product((-0.5, -0.25, 0.0, 0.25, 0.5), (-0.5, -0.25, 0.25, 0.5))
        goals = np.linspace(-0.75, 0.75, 7, dtype=np.float32)
    else:
        drifts = product(dyadic(0.2, 0.3, config.scales), dyadic(0.3, 0.2, config.scales))
        goals = np.float32(dyadic(0.5, 0.5, config.scales))
    gains = product((1.0, 4.0), np.linspace(-1.5, 1.5, 7) if config.grid == "even" else goals)
    classes = Classes(
        FiniteClass.family(toward, (gains[:, :1], gains[:, 1:])),
        FiniteClass.family(around, np.array([[-0.5], [0.0], [0.5]], np.float32)),
        FiniteClass.family(washboard.drift, drifts),
        FiniteClass.family(washboard.reward, goals),
    )
    system = washboard.washboard(config.a, config.c, config.goal, config.diffusion, config.horizon)
    return Setting(system, classes, (place(drifts, (config.a, config.c)), place(goals[:, None], config.goal)))


def dyadic(center: float, reach: float, scales: int) -> list[float]:
    """center, and center ± reach · 2^−k for k < scales, in order: something to learn at every number of measurements.

    >>> dyadic(0.0, 1.0, scales=2)
    [-1.0, -0.5, 0.0, 0.5, 1.0]
    """
    offsets = [reach * 0.5**k for k in range(scales)]
    return [center - offset for offset in offsets] + [center] + [center + offset for offset in reversed(offsets)]


def place(members: np.ndarray, truth: Any) -> int | None:
    """The index of the true parameters among those of the members [size, p]; None if they are not there."""
    found = np.flatnonzero(np.isclose(members, truth, atol=1e-6).all(axis=1))
    return int(found[0]) if found.size else None


def lqr_setting(config: LqrConfig) -> Setting:
    """16 pairs (A, B), 2^d + 1 goals, a clipped linear policy toward each with two gains."""
    d = config.dimension
    A, B = (np.asarray(matrix) for matrix in lqr_system.truth(d))
    scales = product((1.0, -1.0), (1.0, 0.5), (1.0, -1.0), (1.0, 0.5))
    drifts = ((scales[:, 0] * scales[:, 1])[:, None, None] * A, (scales[:, 2] * scales[:, 3])[:, None, None] * B)
    goals = np.concatenate([product(*[(0.5, -0.5)] * d), np.zeros((1, d), np.float32)])
    classes = Classes(
        FiniteClass.family(toward, (np.repeat([[1.0], [4.0]], len(goals), axis=0), np.tile(goals, (2, 1)))),
        FiniteClass.family(around, np.zeros((1, d), np.float32)),
        FiniteClass.family(lqr_system.drift, drifts),
        FiniteClass.family(lqr_system.reward, goals),
    )
    return Setting(lqr_system.lqr(d, config.diffusion, config.horizon), classes, (0, 0))


RELEVANT = ("horizon", "diffusion", "steps", "paths", "grid", "scales", "a", "c", "goal", "dimension")
"""The settings that values depend on."""


def relevant(config: Any) -> Any:
    """`config` with every other setting as it is by default, so that runs with other budgets or algorithms share values."""
    return type(config)(**{name: getattr(config, name) for name in RELEVANT if hasattr(config, name)})


@functools.lru_cache(maxsize=8)
def simulated_values(setting: Callable[[Any], Setting], config: Any) -> tuple[Values, Values]:
    """R(π, q, f, b) for all members, by which the learner plans, and R(π, q, f*, b*) from many more paths, by which plans
    are judged. Neither depends on the seed of a run: they are part of the experiment."""
    system, classes, _ = setting(config)
    classes.check(system)
    key, true = Key.from_seed(0), (FiniteClass.of([system.drift]), FiniteClass.of([system.reward]))
    values = tabulator(system, *classes, config.steps, config.paths)(key.child("plan"))
    return values, tabulator(system, *classes[:2], *true, config.steps, TRUTH_PATHS)(key.child("truth"))


def noise(config: TheoryConfig) -> tuple[float, float]:
    """Standard deviations of y, in each direction, and of r."""
    return config.diffusion / math.sqrt(config.delta_t), config.reward_std


def radii(config: TheoryConfig, dimension: int, drift_cover: float, reward_cover: float) -> tuple[float, float]:
    """β_F and β_R of Theorem 1, times `radius_scale`, from the logarithms of the covering numbers.

    G is the scale of y's noise (Assumption 1; see docs/deviations.md).
    """
    y, r = noise(config)
    pairs = (drift_cover, math.sqrt(dimension) * y), (reward_cover, r)
    drift, reward = (config.radius_scale * radius(log, config.measurements, config.delta, std) for log, std in pairs)
    return drift, reward


def enumerated(config: TheoryConfig, setting: Setting, values: Values, exact: Values) -> Task:
    """Algorithms 1 to 3 with finite classes.

    Main arguments:
        values: R(π, q, f, b) for all members, by which the learner plans.
        exact: R(π, q, f*, b*) [Π, Q, 1, 1], by which plans are judged.
    """
    system, (policies, initials, drifts, rewards), places = setting
    betas = radii(config, system.state_dim, log_cover_finite(drifts.size), log_cover_finite(rewards.size))
    measuring = Measuring(config.delta_t, config.reward_std, config.drift)
    rollout = simulated(system, policies.apply, initials.apply, measuring, config.steps)
    oracle = Oracle(rollout, system.horizon, Budget(config.measurements), ahead=AHEAD)
    learner = FiniteLearner(drifts, rewards, Optimist.of(values.mean), *betas, noise(config))
    gaps = (exact.mean.max() - exact.mean)[:, :, 0, 0]
    if None in places:
        warn_of_outsider(setting, config.steps)

    def probe(state: State, record: Record) -> dict[str, Any]:
        sets = zip((state.learner.drift_set, state.learner.reward_set), places, strict=True)
        covered = all(place is not None and bool(found[place]) for found, place in sets)
        return {"gap": float(gaps[record.plan]), "covered": covered}

    def metrics(state: State, records: list[dict[str, Any]]) -> dict[str, Any]:
        learner.check_fit(state.learner, state.data)
        return regret(records) | {
            "gap_output": float(gaps[state.output.plan]),
            "optimum": float(exact.mean.max()),
            "planning_error": values.error,
            "truth_error": exact.error,
        }

    def evaluate(plan: Plan, seed: int, episodes: int) -> dict[str, Any]:
        return fresh(system, policies, initials, config.steps, plan, seed, episodes) | {"gap": float(gaps[plan])}

    loop = Loop(oracle, make_sampler(config), make_schedule(config), learner, make_output(config))
    return Task(loop, probe, metrics, evaluate)


def warn_of_outsider(setting: Setting, steps: int) -> None:
    """Warns that f* or b* is in no list, and how far it is from the nearest member under the plan that shows it best."""
    found = expectations(Key.from_seed(0), setting.system, *setting.classes, steps=steps, paths=64)
    for name, place, errors in zip(("drift", "reward"), setting.truth, found, strict=True):
        if place is None:
            worst = errors.max(axis=0)
            nearest = int(worst.argmin())
            message = f"its nearest member, number {nearest}, is off by {math.sqrt(worst[nearest]):.2g}"
            warnings.warn(f"the truth is outside the {name} class: {message}", Misfit, stacklevel=3)


def regret(records: list[dict[str, Any]]) -> dict[str, Any]:
    """What the records say about the plans that were executed: average gap, its course, coverage at every n."""
    episodes = np.array([record["episodes"] for record in records])
    total = np.cumsum(episodes * np.array([record["gap"] for record in records]))
    rollouts = np.cumsum(episodes)
    marks = np.unique(np.searchsorted(rollouts, np.geomspace(1, rollouts[-1], 33)))
    return {
        "gap": float(total[-1] / rollouts[-1]),
        "gap_last": records[-1]["gap"],
        "gap_curve": [[int(rollouts[i]), float(total[i] / rollouts[i])] for i in marks],
        "covered": all(record["covered"] for record in records),
    }


def fresh(
    system: System, policies: Any, initials: Any, steps: int, plan: Plan, seed: int, episodes: int
) -> dict[str, float]:
    """The reward of `plan` on fresh noise-free episodes of the true system."""
    rollout = simulated(system, policies.apply, initials.apply, Measuring(reward_std=0.0), steps)
    times = np.tile(np.linspace(0.0, system.horizon, steps + 1)[:-1], (episodes, 1))
    seen = rollout(Key.from_seed(seed).child("evaluate"), plan, times)
    assert seen.r is not None
    rewards = seen.r.mean(axis=1) * system.horizon
    return {"reward": float(rewards.mean()), "reward_error": float(rewards.std() / math.sqrt(episodes))}

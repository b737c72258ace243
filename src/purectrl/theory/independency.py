"""The independency coefficient C_{T,m}: how far m measurements of one episode are from m uniform ones.

symbol in the paper     here             meaning
----------------------  ---------------  -----------------------------------------------------------------------------
𝒯, m                    sampler          draws the times t_1 ≤ … ≤ t_m of an episode
Ẑ                       numerator        (x, u) at t ~ Unif[0, T]
Z̄_i                     denominator      (x, u) at t_i, given what was seen at t_1, …, t_{i−1}
C_{𝒯,m}                 value            sup over i, past, π, q, f, b of E_Ẑ h / E_{Z̄_i | past} h, h = ‖f − f*‖² or (b − b*)²
u_min, u_max            u                range of the mean-reversion rate of the OU system (Proposition 2)

0/0 counts as 1, as in the proof of Proposition 2 (a class F with one member has C = 1): so C ≥ 1 for classes with the truth.
The times of an episode are sorted. The definition does not require that, and C depends on it.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.plan import Plan
from purectrl.core.samplers import Context, Sampler
from purectrl.core.system import MeasurementModel, System
from purectrl.systems.compiled import jax_key
from purectrl.systems.simulation import euler_maruyama, simulate_rollouts
from purectrl.theory.classes import FiniteClass
from purectrl.theory.eluder import expectations, require_finite, squared_errors
from purectrl.theory.policy_classes import make_plan

NOTHING = 1e-10
"""A squared error below this share of the class's largest is the rounding of f = f*, not a difference."""


def independency_ou(times: np.ndarray, u: tuple[float, float], horizon: float) -> float:
    """C_{T,m} of dx = −u x dt + sqrt(2) dw, x(0) = 0, b = αx, b* = x, F one drift (proof of Proposition 2), in closed form.

    E Ẑ² = (1 − (1 − e^(−2uT))/(2uT))/u, and with g = t_i − t_{i−1}, t_0 = 0,
    E[Z̄_i² | Z̄_{i−1} = z] = z² e^(−2ug) + (1 − e^(−2ug))/u. The worst past is z = 0, the worst i has the smallest gap. In u
    the ratio falls, then rises to 1 (for g ≥ 2T/3 it only rises), so its largest value on [u_min, u_max] is at an end; that
    shape is checked numerically in the tests, not proved.

    Main arguments:
        times: t_1 ≤ … ≤ t_m [m] inside [0, T].
        u: (u_min, u_max), with 0 < u_min ≤ u_max.
        horizon: T.

    Returns:
        C_{T,m} ≥ 1; infinite if two times agree or t_1 = 0, since then a past of 0 leaves nothing to measure.

    >>> round(independency_ou(np.array([0.25, 0.5, 0.75, 1.0]), u=(1.0, 2.0), horizon=1.0), 4)
    1.4427
    >>> independency_bound_ou(m=4, u_min=1.0, horizon=1.0)
    3.0
    """
    times = np.asarray(times, np.float64)
    low, high = u
    require(0 < horizon < math.inf, f"horizon: the episode length T must be positive and finite, not {horizon}")
    require(0 < low <= high < math.inf, f"u: must be (u_min, u_max) with 0 < u_min ≤ u_max, not {u}")
    require(times.ndim == 1 and times.size > 0, f"times: must be an array [m] with m ≥ 1, not of shape {times.shape}")
    gaps = np.diff(times, prepend=0.0)
    require(
        bool((gaps >= 0).all() and times[-1] <= horizon * (1 + 1e-12)),
        f"times: must be sorted and inside [0, {horizon}], not {times.tolist()}",
    )
    if gaps.min() == 0:
        return math.inf
    return max(1.0, *(_uniform_share(2 * rate * horizon) / -math.expm1(-2 * rate * gaps.min()) for rate in u))


def independency_bound_ou(m: int, u_min: float, horizon: float) -> float:
    """Proposition 2: C_{T,m} ≤ 1 + m/(2T u_min) for the grid t_i = iT/m; at most 2 while m ≤ 2T u_min.

    >>> independency_bound_ou(m=8, u_min=2.0, horizon=2.0)
    2.0
    """
    require(m >= 1, f"m: an episode needs at least one measurement, not {m}")
    require(0 < u_min < math.inf, f"u_min: must be positive and finite, not {u_min}")
    require(0 < horizon < math.inf, f"horizon: the episode length T must be positive and finite, not {horizon}")
    return 1 + m / (2 * horizon * u_min)


class Independency(NamedTuple):
    """C_{T,m} and where it is attained."""

    value: float
    """The estimate of C_{T,m}, at least 1."""
    error: float
    """Its standard error, from the simulated continuations in the denominator."""
    i: int
    """Which measurement, 1 … m."""
    plan: Plan
    """(π, q) as indices."""
    member: int
    """Which function: f for indices below F, then b."""


def independency_coefficient(
    key: Key,
    system: System,
    policies: FiniteClass,
    initials: FiniteClass,
    drifts: FiniteClass,
    rewards: FiniteClass,
    sampler: Sampler,
    steps: int = 100,
    pasts: int = 64,
    futures: int = 512,
    pool: int = 4096,
) -> Independency:
    """C_{T,m} of any sampler on any system with finite classes, by nested simulation.

    It is a lower estimate of a supremum: the past runs over `pasts` sampled states and not over all. Of the past only the
    last state is kept: exact for fixed times, since x(t) is Markov, and an average over pasts (so lower) for random ones.
    With random times, t_i − t_{i−1} is drawn from its law given that state: from the episodes, among `pool`, that were
    nearest to it. Half of the continuations select where the ratio is largest, the other half estimate it there: the
    largest of many noisy ratios would be biased upwards.

    Main arguments:
        system: f*, g*, b* and T.
        policies, initials, drifts, rewards: Π, Q, F, R.
        sampler: any rule for times.

    Other arguments:
        steps: Euler-Maruyama steps over [0, T].
        pasts, futures: past states for each (i, π, q), and continuations from each of them.
        pool: simulated episodes for each (π, q).

    >>> from purectrl.core.samplers import Uniform
    >>> from purectrl.systems.washboard import drift, reward, washboard
    >>> still = FiniteClass.of([lambda x: jnp.zeros(1)])
    >>> origin = FiniteClass.of([lambda key: jnp.zeros(1)])
    >>> drifts = FiniteClass.family(drift, np.array([[0.5, 0.5], [0.0, 0.5]], np.float32))
    >>> goals = FiniteClass.family(reward, np.array([0.75], np.float32))
    >>> counts = dict(steps=20, pasts=16, futures=64, pool=512)
    >>> found = independency_coefficient(Key.from_seed(0), washboard(), still, origin, drifts, goals, Uniform(), **counts)
    >>> found.value < 1.0 + 3 * found.error + 0.05  # one uniform time is what C compares with
    True
    """
    _check_counts(pasts, futures, pool)
    uniform = expectations(key.child("uniform"), system, policies, initials, drifts, rewards, steps, paths=pool)
    numerator = np.concatenate(uniform, axis=1)
    differs = numerator > NOTHING * np.repeat([part.max() for part in uniform], [drifts.size, rewards.size])
    classes = policies, initials, drifts, rewards
    highest, best = 1.0, Independency(1.0, 0.0, 1, Plan(0, 0), 0)
    for row, i, choose, estimate in _conditionals(key, system, *classes, sampler, steps, pasts, futures, pool):
        ratio = np.where(differs[row], _divide(numerator[row], choose.mean), 1.0)
        at = np.unravel_index(np.argmax(ratio), ratio.shape)
        if ratio[at] > highest:
            value = float(_divide(numerator[row, at[1]], estimate.mean[at]))
            error = value * float(estimate.error[at] / estimate.mean[at]) if value < math.inf else 0.0
            plan = Plan(*divmod(row, initials.size))
            highest, best = ratio[at], Independency(max(1.0, value), error, i, plan, int(at[1]))
    return best


class _Half(NamedTuple):
    """Squared errors after the continuations of each past."""

    mean: np.ndarray
    """[pasts, F + R]."""
    error: np.ndarray
    """Their standard errors [pasts, F + R]."""


def _conditionals(
    key: Key,
    system: System,
    policies: FiniteClass,
    initials: FiniteClass,
    drifts: FiniteClass,
    rewards: FiniteClass,
    sampler: Sampler,
    steps: int,
    pasts: int,
    futures: int,
    pool: int,
) -> Iterator[tuple[int, int, _Half, _Half]]:
    """For every plan (as its row π · |Q| + q) and measurement i, the squared errors given sampled pasts."""
    times = sampler(key.child("times"), pool, Context(system.horizon))
    continued = _continuation(system, policies, drifts, rewards, times, steps)
    rollout = simulate_rollouts(system, MeasurementModel(), steps)
    for row in range(policies.size * initials.size):
        plan = Plan(*divmod(row, initials.size))
        seen = rollout(key.child("pool"), make_plan(policies, plan.policy, initials, plan.initial), times)
        seen.check()
        for i in range(1, sampler.m + 1):
            names = "continue", row, i
            starts, gaps = _pasts(key.child(*names, "past"), initials, plan, seen.x, times, i, pasts, futures)
            choose, estimate = continued(key.child(*names), plan.policy, starts, gaps)
            require_finite(estimate.mean.max(axis=0), drifts, plan)
            yield row, i, choose, estimate


def _continuation(
    system: System, policies: FiniteClass, drifts: FiniteClass, rewards: FiniteClass, times: np.ndarray, steps: int
) -> Callable[[Key, int, np.ndarray, np.ndarray], tuple[_Half, _Half]]:
    """(key, policy, starts [P, J, d], gaps [P, J]) -> the squared errors where the paths end, in two independent halves."""
    errors = squared_errors(system, drifts, rewards)
    longest = np.diff(times, axis=1, prepend=0.0).max()
    inner = max(1, math.ceil(steps * longest / system.horizon - 1e-9))
    fractions = jnp.linspace(0.0, 1.0, inner + 1)

    def end(key: Array, policy: Array, start: Array, gap: Array) -> Array:
        act = lambda x, t: policies.apply(policy, x)  # noqa: E731
        x = euler_maruyama(key, system.drift, system.diffusion, act, start, gap * fractions)[-1]
        return errors(x, policies.apply(policy, x))

    @jax.jit
    def ends(words: Array, policy: Array, starts: Array, gaps: Array) -> Array:
        keys = jax.random.split(jax.random.wrap_key_data(words), gaps.shape)
        each = jax.vmap(jax.vmap(end, (0, None, 0, 0)), (0, None, 0, 0))
        return each(keys, policy, starts, gaps)

    def continued(key: Key, policy: int, starts: np.ndarray, gaps: np.ndarray) -> tuple[_Half, _Half]:
        found = np.asarray(ends(key.jax_key_data(), policy, starts, gaps), np.float64)
        # every other one, because neighbours come nearest first
        halves = found[:, ::2], found[:, 1::2]
        first, second = (_Half(h.mean(axis=1), h.std(axis=1) / math.sqrt(max(h.shape[1] - 1, 1))) for h in halves)
        return first, second

    return continued


def _pasts(
    key: Key,
    initials: FiniteClass,
    plan: Plan,
    x: np.ndarray,
    times: np.ndarray,
    i: int,
    pasts: int,
    futures: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Where continuations to measurement i start [P, J, d], and how long they take [P, J], from x [pool, m, d] and times."""
    if i == 1:  # nothing was seen: every x(0) and every t_1 in one average
        count = pasts * futures
        keys = jax.random.split(jax_key(key), count)
        starts = np.asarray(jax.vmap(initials.apply, (None, 0))(plan.initial, keys))
        return starts[None], np.resize(times[:, 0], (1, count)).astype(np.float32)
    last = x[:, i - 2]
    distance = ((last[:pasts, None] - last[None]) ** 2).sum(axis=-1)
    near = np.argsort(distance, axis=1, kind="stable")[:, :futures]
    gaps = times[:, i - 1] - times[:, i - 2]
    starts = np.broadcast_to(last[:pasts, None], (pasts, futures, last.shape[-1]))
    return np.ascontiguousarray(starts), gaps[near].astype(np.float32)


def _check_counts(pasts: int, futures: int, pool: int) -> None:
    require(pasts >= 1, f"pasts: at least one past state is needed, not {pasts}")
    require(futures >= 2, f"futures: each past needs at least two continuations, not {futures}")
    least = max(pasts, futures)
    require(pool >= least, f"pool: needs as many episodes as pasts and as futures, at least {least}, not {pool}")


def _divide(over: np.ndarray, under: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(over / np.asarray(under))


def _uniform_share(a: float) -> float:
    """1 − (1 − e^(−a))/a, by its series where the difference would lose digits."""
    return a / 2 - a**2 / 6 + a**3 / 24 if a < 1e-3 else 1 + math.expm1(-a) / a

"""The ℓ_p distributional Eluder dimension DE_p: the length of the longest sequence of plans that are all informative.

symbol in the paper     here                   meaning
----------------------  ---------------------  -----------------------------------------------------------------------
P                       rows                   distributions of (x(t), π(x(t))), t ~ Unif[0, T]: one for each (π, q)
F̄, R̄                    columns                functions h = ‖f − f*‖² and h = (b − b*)²
E_{p_l} h               expectations [P, H]    their expectations
ε, ε'                   epsilon, limit         scale, and the threshold ε' ≥ ε that the definition lets one choose
d_{F,ε}, d_{R,ε}        power = 1              DE_1 of F̄ and R̄
R, L                    bound, feature_bound   ‖Θ‖_F ≤ R and ‖φ‖ ≤ L (Proposition 1)

The definition. DE_p is the length of the longest sequence p_1, …, p_L for which some ε' ≥ ε exists such that for every l
there is an h with

    |E_{p_l} h| > ε'    and    Σ_{i<l} |E_{p_i} h|^p ≤ ε'^p.

The paper prints |E_{p_l} h| > ε, without the prime. Taken literally, a huge ε' makes the second condition void, so one
distribution repeated for ever is such a sequence and DE_p is infinite or zero. Jin et al. (2021), whom the paper cites,
have ε' in both places; so has this module. Then no distribution occurs twice, and no h serves twice: DE_p ≤ min(P, H).

Which ε' matter. A sequence is valid for ε' in an intersection of unions of [Σ^(1/p), |E_{p_l} h|); each piece of it ends at
some entry v of the matrix. So it is enough to try ε' just below every entry v > ε, where the conditions read
|E_{p_l} h| ≥ v and Σ < v^p. Finitely many thresholds make the search exact.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.errors import InputError, require
from purectrl.core.keys import Key
from purectrl.core.plan import Plan
from purectrl.core.samplers import Context, Uniform
from purectrl.core.system import MeasurementModel, System
from purectrl.systems.compiled import pad_rows
from purectrl.systems.simulation import simulate_rollouts
from purectrl.theory.classes import FiniteClass
from purectrl.theory.policy_classes import make_plan

BRUTE_FORCE_LIMIT = 16
"""Most distributions that `eluder_brute_force` takes: it looks at every subset."""


def eluder_greedy(expectations: np.ndarray, epsilon: float, power: float = 1.0, thresholds: int = 512) -> int:
    """A lower bound of DE_p: sequences grown one distribution at a time, for many thresholds.

    The next distribution is the one that leaves most others independent.

    Main arguments:
        expectations: E_{p_l} h [distributions, functions].
        epsilon: ε; the theorems take 1/N.
        power: p.

    Other arguments:
        thresholds: the most values of ε' to try; of a matrix with more entries above ε, evenly spread ones by rank.

    >>> eluder_greedy(np.eye(3), epsilon=0.5)
    3
    """
    require(thresholds >= 1, f"thresholds: at least one ε' must be tried, not {thresholds}")
    powers, limits = _thresholds(expectations, epsilon, power)
    if len(limits) > thresholds:
        limits = limits[np.linspace(0, len(limits) - 1, thresholds).round().astype(int)]
    best = 0
    for limit in limits:
        if _ceiling(powers, limit) > best:
            best = max(best, _grow(powers, limit))
    return best


def eluder_brute_force(expectations: np.ndarray, epsilon: float, power: float = 1.0) -> int:
    """DE_p exactly, for at most 16 distributions.

    Whether p_l is independent of its predecessors depends on their set and not on their order, so all orderings are searched
    by growing sets: 2^P of them instead of P! orderings.

    >>> eluder_brute_force(np.eye(3), epsilon=0.5), eluder_brute_force(np.ones((3, 3)), epsilon=0.5)
    (3, 1)
    """
    powers, limits = _thresholds(expectations, epsilon, power)
    require(
        len(powers) <= BRUTE_FORCE_LIMIT,
        f"expectations: brute force takes at most {BRUTE_FORCE_LIMIT} distributions, not {len(powers)}; "
        "eluder_greedy takes any number",
    )
    sums = np.zeros((1, powers.shape[1]))
    for row in powers:  # row i is in the set whose index has bit i
        sums = np.concatenate([sums, sums + row])
    best = 0
    for limit in limits:
        if _ceiling(powers, limit) > best:
            best = max(best, _longest(sums, powers, limit))
    return best


def eluder_linear(features: int, bound: float, feature_bound: float, epsilon: float) -> int:
    """Proposition 1's upper bound of d_{F,ε} and d_{R,ε} for linear classes, d² log(…), with its constants.

    The paper's proof: h = ⟨W, φφᵀ⟩ is linear with ‖W‖_F ≤ (2R)² and ‖φφᵀ‖_F ≤ L², in d² dimensions; DE_1 ≤ DE_2 (Wang et
    al. 2023, Lemma 5.4); and DE_2 is small for linear classes (Jin et al. 2021, Proposition 29). The constant comes from
    doing that last step in full: with ψ_l = E_{p_l} φφᵀ, V = λI + Σ_{i<l} ψ_i ψ_iᵀ and λ = ε'²/(4R²)², independence forces
    ‖ψ_l‖² > 1/2 in the norm of V⁻¹, so det V grows by 3/2 each time. Hence DE_2 is at most the largest n with

        n log(3/2) ≤ d² log(1 + n x / d²),    x = (4R²L²/ε)²,    which is O(d² log(1 + x)).

    The paper prints log(1 + R²L²/ε²): that loses a square on R²L², which matters for ε > 1 only.

    Main arguments:
        features: d, the length of φ.
        bound, feature_bound: R and L.

    >>> eluder_linear(2, bound=1.0, feature_bound=1.0, epsilon=0.1)
    105
    """
    require(features >= 1, f"features: φ has at least one entry, not {features}")
    return _determinant(features**2, _scale(bound, feature_bound, epsilon) ** 2)


def eluder_linear_trace(features: int, bound: float, feature_bound: float, epsilon: float) -> int:
    """A sharper upper bound than Proposition 1's: d log(1 + R²L²/ε) instead of d² log(1 + R⁴L⁴/ε²).

    W = (Θ − Θ*)ᵀ(Θ − Θ*) is positive semidefinite with trace at most 4R², and so is Φ_l = E_{p_l} φφᵀ with trace at most L².
    With V = λI + Σ_{i<l} Φ_i, λ = ε'/(4R²): ε' < tr(WΦ_l) ≤ tr(WV) · ‖V^(−1/2) Φ_l V^(−1/2)‖ ≤ 2ε' · ‖…‖, so det V grows by
    3/2 each time, now in d dimensions: n log(3/2) ≤ d log(1 + n x / d), x = 4R²L²/ε.

    >>> eluder_linear_trace(2, bound=1.0, feature_bound=1.0, epsilon=0.1)
    31
    """
    require(features >= 1, f"features: φ has at least one entry, not {features}")
    return _determinant(features, _scale(bound, feature_bound, epsilon))


class Expectations(NamedTuple):
    """E_p h for every plan and function; the row of (π, q) is π · |Q| + q."""

    drift: np.ndarray
    """E ‖f − f*‖² [Π·Q, F]."""
    reward: np.ndarray
    """E (b − b*)² [Π·Q, R]."""


def expectations(
    key: Key,
    system: System,
    policies: FiniteClass,
    initials: FiniteClass,
    drifts: FiniteClass,
    rewards: FiniteClass,
    steps: int = 100,
    paths: int = 1024,
    times: int = 4,
) -> Expectations:
    """The expectations of ‖f − f*‖² and (b − b*)² under every (π, q) and t ~ Unif[0, T], by simulation of the truth.

    Every plan sees the same noise, so that plans which do the same have equal rows.

    Main arguments:
        system: f*, g*, b* and T.
        policies, initials, drifts, rewards: Π, Q, F, R.

    Other arguments:
        steps: Euler-Maruyama steps over [0, T].
        paths: simulated paths for each plan.
        times: uniform times on each path.

    >>> from purectrl.systems.washboard import drift, reward, washboard
    >>> pull = FiniteClass.family(lambda u, x: u, np.array([[-1.0], [1.0]], np.float32))
    >>> origin = FiniteClass.of([lambda key: jnp.zeros(1)])
    >>> drifts = FiniteClass.family(drift, np.array([[0.5, 0.5], [0.5, 0.0]], np.float32))
    >>> goals = FiniteClass.family(reward, np.array([0.75], np.float32))
    >>> expectations(Key.from_seed(0), washboard(), pull, origin, drifts, goals, paths=64).drift.round(3)
    array([[0.  , 0.25],
           [0.  , 0.25]])
    """
    require(paths >= 1, f"paths: the expectations need at least one path, not {paths}")
    require(times >= 1, f"times: each path needs at least one time, not {times}")
    rollout = simulate_rollouts(system, MeasurementModel(), steps)
    errors = jax.jit(jax.vmap(squared_errors(system, drifts, rewards)))
    when = Uniform(m=times)(key.child("times"), paths, Context(system.horizon))
    means = []
    for plan in (Plan(pi, q) for pi in range(policies.size) for q in range(initials.size)):
        seen = rollout(key.child("paths"), make_plan(policies, plan.policy, initials, plan.initial), when)
        seen.check()
        rows = seen.rows()
        (found,) = pad_rows(lambda x, u: (errors(x, u),), rows.x[:, 0], rows.u[:, 0])
        means.append(found.mean(axis=0, dtype=np.float64))
        require_finite(means[-1], drifts, plan)
    table = np.stack(means)
    return Expectations(table[:, : drifts.size], table[:, drifts.size :])


def squared_errors(system: System, drifts: FiniteClass, rewards: FiniteClass) -> Callable[[Array, Array], Array]:
    """A function (x [d], u [k]) -> [F + R]: ‖f − f*‖² of every drift, then (b − b*)² of every reward."""

    def errors(x: Array, u: Array) -> Array:
        drift = ((drifts.table(x, u) - system.drift(x, u)) ** 2).sum(axis=-1)
        return jnp.concatenate([drift, (rewards.table(x, u) - system.reward(x, u)) ** 2])

    return errors


def require_finite(means: np.ndarray, drifts: FiniteClass, plan: Plan) -> None:
    """Raises if the squared errors [F + R] under `plan`, a pair of indices, are not finite."""
    if not np.isfinite(means).all():
        index = int(np.flatnonzero(~np.isfinite(means))[0])
        name = f"drifts: member {index}" if index < drifts.size else f"rewards: member {index - drifts.size}"
        raise InputError(
            f"{name} is not finite on the states that policy {plan.policy} visits from initial distribution "
            f"{plan.initial}: bound it"
        )


def _thresholds(expectations: np.ndarray, epsilon: float, power: float) -> tuple[np.ndarray, np.ndarray]:
    """|E h|^p [P, H], and v^p for every entry v > ε, largest first."""
    entries = np.abs(np.asarray(expectations, np.float64))
    require(
        entries.ndim == 2 and entries.size > 0,
        f"expectations: must be an array [distributions, functions] with entries, not of shape {entries.shape}",
    )
    require(bool(np.isfinite(entries).all()), "expectations: must be finite numbers")
    require(0 < epsilon < math.inf, f"epsilon: the scale ε must be positive and finite, not {epsilon}")
    require(1 <= power < math.inf, f"power: the p of DE_p must be at least 1 and finite, not {power}")
    powers = entries**power
    return powers, np.unique(powers[entries > epsilon])[::-1]


def _ceiling(powers: np.ndarray, limit: float) -> int:
    """No sequence for this threshold is longer: each distribution and each function serves at most once."""
    high = powers >= limit
    return int(min(high.any(axis=1).sum(), high.any(axis=0).sum()))


def _grow(powers: np.ndarray, limit: float) -> int:
    """The length of one maximal sequence for the threshold."""
    high, total, length = powers >= limit, np.zeros(powers.shape[1]), 0
    while True:
        independent = (high & (total < limit)).any(axis=1)
        if not independent.any():
            return length
        room = (total + powers < limit).astype(np.float32)  # [who is added, functions]
        left = (room @ high.T.astype(np.float32) > 0).sum(axis=1)
        # what it uses up of the room that functions have left: below 1, so that it only breaks ties
        used = np.clip(np.minimum(powers, limit - total), 0.0, None).sum(axis=1) / (limit * (1 + len(total)))
        total = total + powers[np.argmax(np.where(independent, left - used, -np.inf))]
        length += 1


def _longest(sums: np.ndarray, powers: np.ndarray, limit: float) -> int:
    """The length of the longest sequence for the threshold; `sums` [2^P, H] holds Σ|E h|^p of every set."""
    room, high = (sums < limit).astype(np.float32), (powers >= limit).astype(np.float32)
    independent = room @ high.T > 0  # [sets, distributions]
    bits, length, reached = 1 << np.arange(len(powers)), 0, np.zeros(1, np.int64)
    while True:
        where, which = np.nonzero(independent[reached])
        if where.size == 0:
            return length
        reached = np.unique(reached[where] | bits[which])
        length += 1


def _scale(bound: float, feature_bound: float, epsilon: float) -> float:
    """4R²L²/ε: the largest value of h, in units of ε."""
    for name, value in (("bound", bound), ("feature_bound", feature_bound), ("epsilon", epsilon)):
        require(0 < value < math.inf, f"{name}: must be positive and finite, not {value}")
    return 4 * bound**2 * feature_bound**2 / epsilon


def _determinant(dimension: int, x: float) -> int:
    """The largest integer n with n log(3/2) ≤ D log(1 + n x / D)."""
    rate = math.log(1.5)
    if x <= rate:
        return 0  # log(1 + xy) ≤ xy: no y > 0 satisfies it
    # log(1 + xy) ≤ log(1 + x) + log(1 + y), and log(1 + y) ≤ y·rate/2 + 0.8: no solution above `high`
    low, high = 0.0, 2 * (math.log1p(x) + 0.8) / rate
    for _ in range(200):  # concave in y and zero at 0: one sign change
        y = (low + high) / 2
        low, high = (y, high) if math.log1p(x * y) >= y * rate else (low, y)
    return math.floor(dimension * low * (1 + 1e-12))

"""The independency coefficient C_{T,m} of samplers on the problems of the theory."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from purectrl.core.errors import UnsupportedError, choose
from purectrl.core.keys import Key
from purectrl.core.samplers import SAMPLERS, Sampler
from purectrl.problems import theory
from purectrl.theory.classes import FiniteClass
from purectrl.theory.independency import independency_bound_ou, independency_coefficient, independency_ou

PROBLEMS = {"finite": theory.finite, "lqr": theory.lqr, "ou": theory.ou}
"""The problems with finite classes."""


def independency_of(
    problem_name: str, arguments: Mapping[str, Any], sampler: Sampler, pasts: int, futures: int, pool: int
) -> dict[str, Any]:
    """C_{T,m} of `sampler` by nested simulation, and its part C_{T,m,F}: the same with R = {b*}, so for the drifts alone.

    C_{T,m} of `ou` with bumps and m > 1 is infinite, which no simulation shows: its states are unbounded, and a past far
    from all goals leaves no difference between two rewards to measure. It is None, as infinity is in JSON.

    Main arguments:
        problem_name: a problem with finite classes: finite, lqr or ou.
        arguments: keyword arguments of the problem.
        sampler: the rule for measurement times.
        pasts, futures, pool: how much to simulate, as in `purectrl.theory.independency.independency_coefficient`.
    """
    problem = PROBLEMS[choose("problem", problem_name, PROBLEMS)](**arguments)
    if problem.finite is None:
        raise UnsupportedError(f"the independency coefficient needs finite classes; {problem.name!r} offers none")
    sampler.check_horizon(problem.horizon)
    system, classes = problem.system, problem.finite.classes
    drifts_only = classes._replace(rewards=FiniteClass.of([system.reward]))
    counts = {"steps": problem.steps, "pasts": pasts, "futures": futures, "pool": pool}
    name = next((name for name, kind in SAMPLERS.items() if type(sampler) is kind), type(sampler).__name__)
    key = Key.from_seed(0).child("independency", name, sampler.m)
    infinite = problem.name == "ou" and sampler.m > 1 and arguments.get("rewards") != "linear"
    whole = None if infinite else independency_coefficient(key, system, *classes, sampler=sampler, **counts)
    drift = independency_coefficient(key, system, *drifts_only, sampler=sampler, **counts)
    return {
        "m": sampler.m,
        "value": None if whole is None else whole.value,
        "error": None if whole is None else whole.error,
        "drift": drift.value,
        "drift_error": drift.error,
    }


def ou_grid(horizon: float, u_min: float, most: int) -> dict[str, Any]:
    """C_{T,m} of the Ornstein-Uhlenbeck process on the grid iT/m, m = 1 … most, and Proposition 2's bound on it.

    The paper bounds the control u from below only; here it ends at 100 u_min, beyond which the ratio tends to 1.
    """
    counts = list(range(1, most + 1))
    grids = [np.arange(1, m + 1) * horizon / m for m in counts]
    return {
        "m": counts,
        "value": [independency_ou(grid, (u_min, 100 * u_min), horizon) for grid in grids],
        "bound": [independency_bound_ou(m, u_min, horizon) for m in counts],
    }

"""The independency coefficient C_{T,m} of the samplers that experiments use."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from purectrl.core.keys import Key
from purectrl.experiments.config import TheoryConfig, make_sampler
from purectrl.experiments.registry import experiment


def independency_of(name: str, settings: Mapping[str, Any], pasts: int, futures: int, pool: int) -> dict[str, Any]:
    """C_{T,m} of the sampler that `settings` name, by nested simulation, and its part C_{T,m,F}: the same with R = {b*},
    which leaves the drifts alone.

    Main arguments:
        name: an experiment with finite classes, `finite` or `ou`.
        settings: of one of its runs with pure-low-rollout.
        pasts, futures, pool: how much to simulate, as in `purectrl.theory.independency.independency`.
    """
    from purectrl.experiments.ou import ou_setting
    from purectrl.experiments.theory import finite_setting
    from purectrl.theory.classes import FiniteClass
    from purectrl.theory.independency import independency

    config = dataclasses.replace(experiment(name).config("pure-low-rollout"), **settings)
    assert isinstance(config, TheoryConfig)
    config.check()
    sampler = make_sampler(config)
    setting: Any = {"finite": finite_setting, "ou": ou_setting}[name]
    system, classes, _ = setting(config)
    alone = classes._replace(rewards=FiniteClass.of([system.reward]))
    counts = {"steps": config.steps, "pasts": pasts, "futures": futures, "pool": pool}
    key = Key.from_seed(0).child("independency", sampler.name, sampler.m)
    whole, drift = (independency(key, system, *found, sampler, **counts) for found in (classes, alone))
    return {
        "m": sampler.m,
        "value": whole.value,
        "error": whole.error,
        "drift": drift.value,
        "drift_error": drift.error,
    }


def ou_grid(horizon: float, u_min: float, most: int) -> dict[str, Any]:
    """C_{T,m} of the Ornstein-Uhlenbeck process on the grid iT/m, m = 1 … most, and Proposition 2's bound on it.

    The paper bounds the rate u from below only; here it ends at 100 u_min, beyond which the ratio tends to 1.
    """
    from purectrl.theory.independency import independency_bound_ou, independency_ou

    counts = list(range(1, most + 1))
    grids = [np.arange(1, m + 1) * horizon / m for m in counts]
    return {
        "m": counts,
        "value": [independency_ou(grid, (u_min, 100 * u_min), horizon) for grid in grids],
        "bound": [independency_bound_ou(m, u_min, horizon) for m in counts],
    }

"""The independency coefficient C_{T,m} of the samplers that experiments use."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from purectrl.core.keys import Key
from purectrl.experiments.config import TheoryConfig, make_sampler
from purectrl.experiments.registry import experiment


def independency_of_finite(settings: Mapping[str, Any], pasts: int, futures: int, pool: int) -> dict[str, Any]:
    """C_{T,m} of `finite` with the sampler that `settings` name, by nested simulation, and its part C_{T,m,F}: the same with
    R = {b*}, which leaves the drifts alone.

    Main arguments:
        settings: of a run of `finite` with pure-low-rollout.
        pasts, futures, pool: how much to simulate, as in `purectrl.theory.independency.independency`.
    """
    from purectrl.theory.classes import FiniteClass
    from purectrl.theory.independency import independency

    config = dataclasses.replace(experiment("finite").config("pure-low-rollout"), **settings)
    assert isinstance(config, TheoryConfig)
    config.check()
    sampler = make_sampler(config)
    system, policies, initials, drifts, rewards = finite_setting(config)
    truth = FiniteClass.of([system.reward])
    counts = {"steps": config.steps, "pasts": pasts, "futures": futures, "pool": pool}
    key = Key.from_seed(0).child("independency", sampler.name, sampler.m)
    whole, drift = (
        independency(key, system, policies, initials, drifts, found, sampler, **counts) for found in (rewards, truth)
    )
    return {
        "m": sampler.m,
        "value": whole.value,
        "error": whole.error,
        "drift": drift.value,
        "drift_error": drift.error,
    }


def finite_setting(config: TheoryConfig) -> tuple[Any, ...]:
    """The system of `finite` and its Π, Q, F and R; a test holds that they are those of its task."""
    from purectrl.experiments.theory import around, product, toward
    from purectrl.systems import washboard
    from purectrl.theory.classes import FiniteClass

    learner = experiment("finite").build(config).loop.learner
    gains = product((1.0, 4.0), np.linspace(-1.5, 1.5, 7, dtype=np.float32))
    return (
        washboard.washboard(diffusion=config.diffusion, horizon=config.horizon),
        FiniteClass.family(toward, (gains[:, :1], gains[:, 1:])),
        FiniteClass.family(around, np.array([[-0.5], [0.0], [0.5]], np.float32)),
        learner.drifts,  # type: ignore[attr-defined]
        learner.rewards,  # type: ignore[attr-defined]
    )


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

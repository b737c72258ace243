"""Continuous-time reinforcement learning with few measurements, few rollouts and few policy updates.

    import purectrl as pc
    result = pc.run(pc.problems.pendulum(), pc.pure_enode, measurements=2250, seed=0, out="runs/swing")

    purectrl.core         the paper's setting and its loop (NumPy only)
    purectrl.systems      equations of systems, simulation, rendering
    purectrl.theory       Algorithms 1 to 3: function classes, confidence sets, planners
    purectrl.control      ENODE: dynamics models, policy optimization
    purectrl.diffusion    SEIKO: fine-tuning of diffusion models, rewards
    purectrl.problems     problems by name
    purectrl.algorithms   the named algorithms
    purectrl.runs         runner, run directories, sweeps
    purectrl.paper        the figures and tables of the paper
    purectrl.report       the HTML page
    purectrl.labels       the page on which people label images
    purectrl.cli          the command line

Importing this package loads nothing but the standard library; every name is loaded when it is first used.
"""

# ruff: noqa: F405
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from purectrl import algorithms, core, problems
    from purectrl.algorithms import (
        alignprop,
        best_of_n,
        ddpo,
        deep_pilco,
        draft,
        enode,
        grpo,
        known_model,
        ocorl,
        pets,
        pure_auto,
        pure_base,
        pure_enode,
        pure_low_both,
        pure_low_rollout,
        pure_low_switch,
        pure_seiko,
        sac,
        seiko,
    )
    from purectrl.core import *  # noqa: F403
    from purectrl.runs.api import Result, evaluate, export, load_policy, resume, run

__version__ = "0.2.0.dev0"

__all__ = [
    "Algorithm",
    "Budget",
    "BudgetError",
    "Context",
    "Criterion",
    "Dataset",
    "DivergenceWarning",
    "Evaluation",
    "ExcessLoss",
    "FitMonitor",
    "InputError",
    "Key",
    "Learner",
    "LearnerSettings",
    "Ledger",
    "Lookahead",
    "LookaheadMonitor",
    "Loop",
    "MeasurementError",
    "MeasurementModel",
    "Measurements",
    "Oracle",
    "OutputRule",
    "Plan",
    "PlanningWarning",
    "Prices",
    "Problem",
    "PurectrlError",
    "Record",
    "Result",
    "Sampler",
    "Schedule",
    "Seconds",
    "SelfEnding",
    "Settings",
    "Source",
    "State",
    "StoreError",
    "System",
    "Targets",
    "TimeLimit",
    "Uncertainty",
    "UncertaintyEstimator",
    "UnsupportedError",
    "Update",
    "__version__",
    "algorithms",
    "alignprop",
    "best_of_n",
    "core",
    "ddpo",
    "deep_pilco",
    "draft",
    "enode",
    "evaluate",
    "export",
    "grpo",
    "known_model",
    "load_policy",
    "ocorl",
    "output_rules",
    "pets",
    "problems",
    "pure_auto",
    "pure_base",
    "pure_enode",
    "pure_low_both",
    "pure_low_rollout",
    "pure_low_switch",
    "pure_seiko",
    "resume",
    "run",
    "sac",
    "samplers",
    "schedules",
    "seiko",
]

_MODULES = ("algorithms", "core", "problems")
_API = ("Result", "evaluate", "export", "load_policy", "resume", "run")


def __getattr__(name: str) -> Any:
    """Loads the module behind a public name when it is first used."""
    if name in _MODULES:
        return importlib.import_module(f"purectrl.{name}")
    if name in __all__:
        core = importlib.import_module("purectrl.core")
        if name in core.__all__:
            return getattr(core, name)
        return getattr(importlib.import_module("purectrl.runs.api" if name in _API else "purectrl.algorithms"), name)
    raise AttributeError(f"module 'purectrl' has no attribute {name!r}")

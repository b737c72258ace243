"""Algorithms 1 to 3 of the paper, exact: function classes, confidence sets, optimistic planning, complexity measures (JAX).

The names below are imported on first use, so that `purectrl.theory.settings` can be imported without loading JAX.
"""

import importlib
from typing import Any

_MODULES = {
    "classes": ("Classes", "FiniteClass", "ModelClass", "RegressionData", "TrueFunction", "Truth"),
    "complexity": (
        "Smoothness",
        "log_cover_finite",
        "log_cover_linear",
        "suboptimality_base",
        "suboptimality_low_rollout",
        "switches",
    ),
    "confidence": (
        "MisspecificationWarning",
        "Radius",
        "confidence_mask",
        "prequential_radius",
        "radius",
        "radius_of_list",
        "ville_radius",
    ),
    "continuous_learner": ("ContinuousClassLearner", "ContinuousState"),
    "eluder": (
        "Expectations",
        "eluder_brute_force",
        "eluder_greedy",
        "eluder_linear",
        "eluder_linear_trace",
        "expectations",
    ),
    "features": ("polynomial", "random_fourier"),
    "finite_learner": ("FiniteLearner", "FiniteState"),
    "gradient_planner": ("GradientPlanner",),
    "independency": ("Independency", "independency_bound_ou", "independency_coefficient", "independency_ou"),
    "linear": ("LinearClass",),
    "neural": ("NeuralClass",),
    "planning": ("OptimisticPlanner", "Values", "value_table"),
    "policy_classes": ("GaussianInitials", "LinearPolicies", "Member", "MlpPolicies", "StationaryPolicy", "make_plan"),
    "problem": ("TheoryProblem",),
    "settings": ("FiniteSets", "KernelSets", "LinearSets", "NeuralSets"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


__all__ = sorted(_MODULE_OF)  # pyright: ignore[reportUnsupportedDunderAll] (the names are imported on first use)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_MODULE_OF)

"""Algorithms 1 to 3 of the paper, exact: function classes, confidence sets, optimistic planning, complexity (JAX)."""

from purectrl.theory.ascent import Ascent
from purectrl.theory.ascent_learner import AscentLearner, AscentState
from purectrl.theory.classes import Classes, FiniteClass, ModelClass, Rows
from purectrl.theory.complexity import (
    Smoothness,
    gap_base,
    gap_low_rollout,
    log_cover_finite,
    log_cover_linear,
    switches,
)
from purectrl.theory.confidence import members, radius
from purectrl.theory.eluder import (
    Expectations,
    eluder_brute_force,
    eluder_greedy,
    eluder_linear,
    eluder_linear_trace,
    expectations,
)
from purectrl.theory.features import polynomial, random_fourier
from purectrl.theory.independency import Independency, independency, independency_bound_ou, independency_ou
from purectrl.theory.learner import FiniteLearner, FiniteState
from purectrl.theory.linear import LinearClass
from purectrl.theory.neural import NeuralClass
from purectrl.theory.planning import Optimist, Values, tabulator
from purectrl.theory.plans import GaussianInitials, LinearPolicies, MlpPolicies

__all__ = [
    "Ascent",
    "AscentLearner",
    "AscentState",
    "Classes",
    "Expectations",
    "FiniteClass",
    "FiniteLearner",
    "FiniteState",
    "GaussianInitials",
    "Independency",
    "LinearClass",
    "LinearPolicies",
    "MlpPolicies",
    "ModelClass",
    "NeuralClass",
    "Optimist",
    "Rows",
    "Smoothness",
    "Values",
    "eluder_brute_force",
    "eluder_greedy",
    "eluder_linear",
    "eluder_linear_trace",
    "expectations",
    "gap_base",
    "gap_low_rollout",
    "independency",
    "independency_bound_ou",
    "independency_ou",
    "log_cover_finite",
    "log_cover_linear",
    "members",
    "polynomial",
    "radius",
    "random_fourier",
    "switches",
    "tabulator",
]

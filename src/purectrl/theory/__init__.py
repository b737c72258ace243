"""Algorithms 1 to 3 of the paper, exact: function classes, confidence sets, optimistic planning (JAX)."""

from purectrl.theory.classes import FiniteClass
from purectrl.theory.confidence import members, radius
from purectrl.theory.learner import FiniteLearner, FiniteState
from purectrl.theory.planning import Optimist, Values, tabulator

__all__ = [
    "FiniteClass",
    "FiniteLearner",
    "FiniteState",
    "Optimist",
    "Values",
    "members",
    "radius",
    "tabulator",
]

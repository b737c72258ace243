"""ENODE and PURE_ENODE: an ensemble of neural differential equations, and an actor-critic that is trained in it (JAX).

The settings are here; the learner that they build is `purectrl.control.learner.EnodeLearner`, imported when it is built.
"""

from purectrl.control.settings import Enode, FitSettings, ModelSettings, PlanSettings

__all__ = ["Enode", "FitSettings", "ModelSettings", "PlanSettings"]

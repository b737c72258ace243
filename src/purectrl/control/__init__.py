"""ENODE and PURE_ENODE: an ensemble of neural differential equations, and an actor-critic that learns in it (JAX)."""

from purectrl.control.actor_critic import Improving, Region, improve
from purectrl.control.dynamics import Dynamics, learned_noise
from purectrl.control.exploration import SmoothNoise
from purectrl.control.families import BatchEnsemble, Implicit
from purectrl.control.integrate import dopri5, midpoint, midpoint_in
from purectrl.control.learner import ControlLearner, ControlState
from purectrl.control.model import Ensemble, Fitting, fit, sequences
from purectrl.control.observed import Observed
from purectrl.control.observed_learner import ObservedLearner
from purectrl.control.policy import Actor, Behaviour, Critic
from purectrl.control.rollout import feedback

__all__ = [
    "Actor",
    "BatchEnsemble",
    "Behaviour",
    "ControlLearner",
    "ControlState",
    "Critic",
    "Dynamics",
    "Ensemble",
    "Fitting",
    "Implicit",
    "Improving",
    "Observed",
    "ObservedLearner",
    "Region",
    "SmoothNoise",
    "dopri5",
    "feedback",
    "fit",
    "improve",
    "learned_noise",
    "midpoint",
    "midpoint_in",
    "sequences",
]

"""The paper's setting and its one loop; NumPy only."""

from purectrl.core import output_rules, samplers, schedules
from purectrl.core.algorithm import Algorithm, LearnerSettings
from purectrl.core.errors import (
    BudgetError,
    DivergenceWarning,
    InputError,
    MeasurementError,
    PlanningWarning,
    PurectrlError,
    StoreError,
    TimeLimit,
    UnsupportedError,
)
from purectrl.core.keys import Key
from purectrl.core.learner import (
    FitMonitor,
    Learner,
    LookaheadMonitor,
    Record,
    SelfEnding,
    State,
    UncertaintyEstimator,
    Update,
)
from purectrl.core.ledger import Budget, Ledger, Seconds
from purectrl.core.lookahead import Lookahead
from purectrl.core.loop import Loop
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.oracle import Oracle
from purectrl.core.output_rules import OutputRule
from purectrl.core.plan import Plan
from purectrl.core.prices import Prices
from purectrl.core.problem import Criterion, Evaluation, Problem, Source
from purectrl.core.samplers import Context, Sampler
from purectrl.core.schedules import ExcessLoss, Schedule, Targets
from purectrl.core.settings import Settings
from purectrl.core.system import MeasurementModel, System
from purectrl.core.uncertainty import Uncertainty

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
    "output_rules",
    "samplers",
    "schedules",
]

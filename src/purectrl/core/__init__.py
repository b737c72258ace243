"""The paper's setting and its one loop; NumPy only."""

from purectrl.core import outputs, samplers, schedules
from purectrl.core.errors import BudgetError, InputError, MeasurementError, PurectrlError, StoreError
from purectrl.core.keys import Key
from purectrl.core.learner import Learner, Record, State, Update
from purectrl.core.ledger import Budget, Ledger, Seconds
from purectrl.core.loop import Loop
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.oracle import Oracle
from purectrl.core.problem import Measuring, Plan, System
from purectrl.core.samplers import Context, Sampler
from purectrl.core.schedules import Excess, Schedule, Which

__all__ = [
    "Budget",
    "BudgetError",
    "Context",
    "Dataset",
    "Excess",
    "InputError",
    "Key",
    "Learner",
    "Ledger",
    "Loop",
    "MeasurementError",
    "Measurements",
    "Measuring",
    "Oracle",
    "Plan",
    "PurectrlError",
    "Record",
    "Sampler",
    "Schedule",
    "Seconds",
    "State",
    "StoreError",
    "System",
    "Update",
    "Which",
    "outputs",
    "samplers",
    "schedules",
]

"""Continuous-time reinforcement learning that spends few measurements, few rollouts and few policy updates.

    purectrl.core         the setting and the one loop (NumPy only)
    purectrl.systems      systems to control
    purectrl.theory       Algorithms 1 to 3 of the paper, exact
    purectrl.experiments  named experiments; runs that survive

Importing this package loads neither JAX nor torch; the parts load what they need.
"""

from purectrl.core import (
    Budget,
    BudgetError,
    Dataset,
    Excess,
    InputError,
    Key,
    Learner,
    Ledger,
    Loop,
    MeasurementError,
    Measurements,
    Measuring,
    Oracle,
    Plan,
    PurectrlError,
    Record,
    Sampler,
    Schedule,
    State,
    StoreError,
    System,
    Update,
    Which,
    outputs,
    samplers,
    schedules,
)

__version__ = "0.1.0.dev0"

__all__ = [
    "Budget",
    "BudgetError",
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
    "State",
    "StoreError",
    "System",
    "Update",
    "Which",
    "__version__",
    "outputs",
    "samplers",
    "schedules",
]

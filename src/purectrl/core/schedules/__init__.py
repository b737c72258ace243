"""WHEN to update: schedules decide how many episodes the current policy runs and what is updated afterwards.

A schedule is a frozen dataclass that carries its parameters and two plain functions of the ledger:

    episodes(ledger, m) -> number of episodes until the next decision (the loop cuts it at the budget);
    due(ledger, excess_loss) -> which models to update now; `excess_loss` is None unless `needs_excess_loss`.
"""

from purectrl.core.schedules.base import ExcessLoss, Schedule, Targets, update_points
from purectrl.core.schedules.batches import (
    Batches,
    DoublingBatches,
    EqualBatches,
    GrowingBatches,
    geometric_batch_sizes,
)
from purectrl.core.schedules.rules import Every, Geometric, OnExcessLoss

SCHEDULES: dict[str, type[Schedule]] = {
    "every": Every,
    "batches": Batches,
    "equal-batches": EqualBatches,
    "doubling-batches": DoublingBatches,
    "growing-batches": GrowingBatches,
    "geometric": Geometric,
    "on-excess-loss": OnExcessLoss,
}
"""The names that `--schedule` takes. A new schedule is a file in this directory and a line here."""

__all__ = [
    "SCHEDULES",
    "Batches",
    "DoublingBatches",
    "EqualBatches",
    "Every",
    "ExcessLoss",
    "Geometric",
    "GrowingBatches",
    "OnExcessLoss",
    "Schedule",
    "Targets",
    "geometric_batch_sizes",
    "update_points",
]

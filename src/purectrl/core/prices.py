"""What measurements, rollouts and updates cost, in the unit of the return."""

from typing import NamedTuple

from purectrl.core.errors import require
from purectrl.core.ledger import Ledger


class Prices(NamedTuple):
    """The price of each count of the ledger; the utility of a run is its return less what it has spent.

    >>> Prices(measurement=0.1, rollout=5.0).utility(100.0, Ledger(rollouts=2, measurements=20))
    88.0
    """

    measurement: float = 0.0
    """Of one measurement: a blood sample, an assay, a scan."""
    rollout: float = 0.0
    """Of one episode: a patient, a batch of a reactor, an hour of a test stand."""
    update: float = 0.0
    """Of one policy update: a validation, an approval, a deployment."""

    def check(self) -> None:
        """Raises unless every price is a number that is not negative."""
        for name, value in self._asdict().items():
            require(value >= 0, f"{name}_price: must not be negative, got {value}")

    def utility(self, value: float, ledger: Ledger) -> float:
        """The return `value` less what the ledger has spent. Evaluation is free."""
        spent = self.measurement * ledger.measurements + self.rollout * ledger.rollouts + self.update * ledger.updates
        return value - spent

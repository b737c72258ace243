"""The mechanisms by name."""

from collections.abc import Callable

from purectrl.core.errors import choose
from purectrl.systems.acrobot import acrobot
from purectrl.systems.cartpole import cartpole
from purectrl.systems.mechanism import Mechanism
from purectrl.systems.pendulum import pendulum

MECHANISMS: dict[str, Callable[[str], Mechanism]] = {"acrobot": acrobot, "cartpole": cartpole, "pendulum": pendulum}
VARIANTS = ("paper", "released")


def mechanism(name: str, variant: str = "paper") -> Mechanism:
    """The mechanism called `name`.

    >>> mechanism("acrobot", "released").u_max
    5.0
    """
    return MECHANISMS[choose("mechanism", name, MECHANISMS)](variant)

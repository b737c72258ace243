"""`ou`: the Ornstein-Uhlenbeck process of Proposition 2, with finite classes whose values are known by quadrature.

Nothing is simulated but the true system: neither the plans nor the gap have a Monte-Carlo error.
"""

import numpy as np

from purectrl.experiments.config import OuConfig
from purectrl.experiments.registry import Task
from purectrl.experiments.theory import Setting, enumerated
from purectrl.systems import ou as ou_system
from purectrl.theory.classes import Classes, FiniteClass
from purectrl.theory.planning import Values

MULTIPLIERS = 2.0 ** np.arange(-2.0, 2.5, 0.5)
"""κ in the drifts −κ·u·x; the truth is 1."""
GOALS = np.linspace(0.0, 2.0, 9)
"""Where the rewards have their peak; the truth is 1.25."""
TRUTH = 4, 5
"""The places of the truth among the multipliers and the goals."""


def rates(config: OuConfig) -> np.ndarray:
    """The controls of the policies, each constant: nine of them from u_min to u_max, in equal ratios."""
    return np.geomspace(config.u_min, config.u_max, 9)


def table(config: OuConfig) -> np.ndarray:
    """R(π, q, f, b) for all members [Π, 1, F, R]; it depends on π and f through κ·u alone."""
    decay = rates(config)[:, None, None, None] * MULTIPLIERS[:, None]
    return ou_system.value(decay, GOALS, config.diffusion, config.horizon)


def ou(config: OuConfig) -> Task:
    """The optimum lies between u_min and u_max.

    >>> table(OuConfig())[:, 0, TRUTH[0], TRUTH[1]].round(2).tolist()
    [0.88, 0.9, 0.92, 0.93, 0.92, 0.87, 0.79, 0.69, 0.58]
    """
    found = table(config)
    exact = found[:, :, TRUTH[0], TRUTH[1], None, None]
    return enumerated(config, ou_setting(config), Values(found, error=0.0), Values(exact, error=0.0))


def ou_setting(config: OuConfig) -> Setting:
    """Nine drifts, nine rewards, nine policies, and x(0) = 0."""
    controls, multipliers, goals = (np.float32(numbers) for numbers in (rates(config), MULTIPLIERS, GOALS))
    classes = Classes(
        FiniteClass.family(lambda rate, x: rate, controls[:, None]),
        FiniteClass.family(lambda point, key: point, np.zeros((1, 1), np.float32)),
        FiniteClass.family(ou_system.drift, multipliers),
        FiniteClass.family(ou_system.reward, goals),
    )
    return Setting(ou_system.ou(float(GOALS[TRUTH[1]]), config.diffusion, config.horizon), classes, TRUTH)

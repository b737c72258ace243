"""Confidence radii of Theorem 1 (appendix, theorem "conf") and the sets they define.

symbol          here
--------------  ------------------------------------------------------------------
|F_ε|, |R_ε|    covering number at ε = 1/N², given by its logarithm
G               noise scale of y: sqrt(d) · sup g*/sqrt(Δ)  (see docs/deviations.md)
δ               failure probability
"""

import math
import warnings

import numpy as np

from purectrl.core.errors import require


class Misfit(UserWarning):
    """No member of a class explains the data: the truth is outside, and no theorem holds."""


def radius(log_cover: float, total: int, delta: float, noise: float = 1.0) -> float:
    """β = 8G² log(|F_ε|/δ) + 2εN(8 + sqrt(8G² log(4N²|F_ε|/δ))), ε = 1/N².

    Main arguments:
        log_cover: log of the covering number.
        total: N.
        delta: δ.
        noise: G for the drift; 1 for the reward, whose noise has unit variance.

    >>> round(radius(math.log(16), total=4096, delta=0.1), 3)
    40.612
    """
    require(0 < delta < 1, f"delta: the failure probability δ must lie between 0 and 1, not {delta}")
    log_ratio = log_cover - math.log(delta)
    epsilon = total**-2.0
    cover = 2 * epsilon * total * (8 + math.sqrt(8 * noise**2 * (math.log(4 * total**2) + log_ratio)))
    return 8 * noise**2 * log_ratio + cover


def members(losses: np.ndarray, beta: float) -> np.ndarray:
    """The confidence set {f : L(f) ≤ min L + β} as a mask [size] (the paper's equations for F_n and R_n).

    >>> members(np.array([3.0, 1.0, 9.0]), beta=4.0)
    array([ True,  True, False])
    """
    return losses <= losses.min() + beta


def warn_of_misfit(name: str, least: float, rows: int, outputs: int, std: float) -> None:
    """Warns if min L is more than noise explains: a sum of k squares exceeds k + 2·sqrt(kt) + 2t with probability e^−t, and
    t = 20 (Laurent and Massart, 2000).

    Main arguments:
        name: what to call the class.
        least: min L, the loss of the best member.
        rows, outputs: measurements, and numbers in each.
        std: standard deviation of one of them.

    >>> warnings.simplefilter("error", Misfit)
    >>> warn_of_misfit("drift", least=110.0, rows=100, outputs=1, std=1.0)
    >>> warn_of_misfit("drift", least=300.0, rows=100, outputs=1, std=1.0)
    Traceback (most recent call last):
    ...
    purectrl.theory.confidence.Misfit: the truth is outside the drift class: its best member is off by 1, the noise apart
    """
    count = rows * outputs
    if least > std**2 * (count + 2 * math.sqrt(20.0 * count) + 40.0):
        off = math.sqrt(least / rows - outputs * std**2)
        message = f"the truth is outside the {name} class: its best member is off by {off:.1g}, the noise apart"
        warnings.warn(message, Misfit, stacklevel=3)

"""Confidence radii and the sets they define: those of Theorem 1 (appendix, theorem "conf"), and anytime-valid ones.

symbol          here
--------------  ------------------------------------------------------------------
|F_ε|, |R_ε|    covering number at ε = 1/N², given by its logarithm
G               noise scale of y: sqrt(d) · sup g*/sqrt(Δ)  (see docs/deviations.md)
σ               standard deviation of the noise in each output: g*/sqrt(Δ) for y
δ               failure probability of one set
L_n(f)          Σ ‖f(z_t) − y_t‖² over the first n measurements
f̂_{t−1}         any function that is determined by the first t − 1 measurements and z_t

**Anytime-valid sets.** The noise is Gaussian with known σ, so exp(−(‖f(z_t) − y_t‖² − ‖f*(z_t) − y_t‖²)/2σ²) is the ratio of
the likelihoods of y_t under N(f(z_t), σ²I) and under the truth. Its conditional expectation is 1 for any f determined before
y_t, so the product over t is a martingale that starts at 1. By Ville's inequality, with probability 1 − δ it is below
1/δ for all n at once. Two choices of f:

    list       each of |F| candidates, with δ/|F|:      L_n(f*) ≤ min L_n + 2σ² log(|F|/δ)             (`ville_radius`)
    any class  one sequence of fits f̂ (prequential):    L_n(f*) ≤ Σ_t ‖f̂_{t−1}(z_t) − y_t‖² + 2σ² log(1/δ)
                                                        = min L_n + regret of f̂ + 2σ² log(1/δ)   (`prequential_radius`)

No covering number, no bound on f, no dependence on N; the second holds for any class and any f̂, only its size depends on f̂.
"""

import math
import warnings
from typing import NamedTuple

import numpy as np

from purectrl.core.errors import require


class MisspecificationWarning(UserWarning):
    """No member of a function class explains the data: the truth is outside of it, and no theorem applies."""


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
    log_ratio = log_cover - _log(delta)
    epsilon = total**-2.0
    cover = 2 * epsilon * total * (8 + math.sqrt(8 * noise**2 * (math.log(4 * total**2) + log_ratio)))
    return 8 * noise**2 * log_ratio + cover


def radius_of_list(size: int, delta: float, noise: float = 1.0) -> float:
    """β = 8G² log(|F|/δ): Theorem 1 for a list, which is its own net with ε = 0.

    >>> round(radius_of_list(16, delta=0.1), 3)
    40.601
    """
    return 8 * noise**2 * (math.log(size) - _log(delta))


def ville_radius(size: int, delta: float, std: float = 1.0) -> float:
    """β = 2σ² log(|F|/δ): anytime-valid for a list, a quarter of Theorem 1's in one dimension, and of a 4d-th in d.

    >>> round(ville_radius(16, delta=0.1) / radius_of_list(16, delta=0.1), 3)
    0.25
    """
    return 2 * std**2 * (math.log(size) - _log(delta))


class Radius(NamedTuple):
    """The radius β_n of a confidence set {f : L_n(f) ≤ min L_n + β_n}: a constant, or a constant plus the regret of f̂.

    >>> Radius(40.0)(regret=7.0), Radius(2.0, adds_regret=True)(regret=7.0)
    (40.0, 9.0)
    """

    constant: float
    adds_regret: bool = False

    def __call__(self, regret: float) -> float:
        """β_n, where `regret` is Σ_t ‖f̂_{t−1}(z_t) − y_t‖² − min L_n.

        A negative regret, which is possible, counts as zero: the set is larger than it need be, and never empty.
        """
        return self.constant + max(regret, 0.0) if self.adds_regret else self.constant


def prequential_radius(delta: float, std: float = 1.0) -> Radius:
    """β_n = regret of f̂ + 2σ² log(1/δ): anytime-valid for any class.

    >>> round(prequential_radius(delta=0.1)(regret=3.0), 3)
    7.605
    """
    return Radius(-2 * std**2 * _log(delta), adds_regret=True)


def _log(delta: float) -> float:
    require(0 < delta < 1, f"delta: the failure probability δ must lie between 0 and 1, not {delta}")
    return math.log(delta)


def confidence_mask(losses: np.ndarray, beta: float) -> np.ndarray:
    """The confidence set {f : L(f) ≤ min L + β} as a mask [size] (the paper's equations for F_n and R_n).

    >>> confidence_mask(np.array([3.0, 1.0, 9.0]), beta=4.0)
    array([ True,  True, False])
    """
    return losses <= losses.min() + beta


def warn_misspecified(name: str, least: float, count: int, outputs: int, std: float) -> None:
    """Warns if min L is larger than noise explains: a sum of k squares exceeds k + 2·sqrt(kt) + 2t with probability e^−t,
    and t = 20 (Laurent and Massart, 2000).

    Main arguments:
        name: the name of the class in the message.
        least: min L, the loss of the best member.
        count, outputs: measurements, and numbers in each.
        std: standard deviation of one of them.

    >>> warnings.simplefilter("error", MisspecificationWarning)
    >>> warn_misspecified("drift", least=110.0, count=100, outputs=1, std=1.0)
    >>> warn_misspecified("drift", least=300.0, count=100, outputs=1, std=1.0)
    Traceback (most recent call last):
    ...
    purectrl.theory.confidence.MisspecificationWarning: the drift class is misspecified: best RMSE 1 after subtracting noise
    """
    k = count * outputs
    if least > std**2 * (k + 2 * math.sqrt(20.0 * k) + 40.0):
        rmse = math.sqrt(least / count - outputs * std**2)
        message = f"the {name} class is misspecified: best RMSE {rmse:.1g} after subtracting noise"
        warnings.warn(message, MisspecificationWarning, stacklevel=3)

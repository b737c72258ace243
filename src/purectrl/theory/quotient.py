"""The difference quotient y = (x(t+Δ) − x(t))/Δ, compared with what a model predicts for it.

symbol      here
----------  ----------------------------------------------------------------------------------------------
Δ           step
Φ_s(x)      the flow of dx/ds = f(x, π(x)): where the model without noise is after time s
y_f(x)      (Φ_Δ(x) − x)/Δ, `flow_quotient`; the drift at t, f(x, π(x)), differs from it by Δ/2 · dF/ds + O(Δ²)
K           a one-sided Lipschitz constant of F(x) = f*(x, π(x)): ⟨F(x) − F(z), x − z⟩ ≤ K‖x − z‖², for every π
σ²          g²/Δ · (e^{2KΔ} − 1)/(2KΔ), `noise_growth` squared times g²/Δ

**Bias.** E[y | x(t) = x] is y_{f*}(x) + O(Δ g² |∇²F|): exact where F is linear. Compared with the drift at t, the truth has
an error of order Δ at every measurement, L(f*) − min L grows linearly with n, and every set excludes it in the end.

**Noise.** Given x(t), the map from the Brownian path on [t, t+Δ] to x(t+Δ) moves by at most g·sqrt((e^{2KΔ} − 1)/(2K)) times
the Cameron-Martin norm of a change of the path (Gronwall and Cauchy-Schwarz), so every direction of y is sub-Gaussian with
scale σ by Gaussian concentration. The likelihood ratios of `purectrl.theory.confidence` are then supermartingales. If
feedback contracts, K ≤ 0, and g/√Δ is enough. The intervals [t, t+Δ] of one episode must not overlap.
"""

import math
from collections.abc import Callable

from jax import Array

from purectrl.core.errors import require

SUBSTEPS = 2
"""Runge-Kutta steps over Δ."""


def flow_quotient(field: Callable[[Array], Array], x: Array, step: float, substeps: int = SUBSTEPS) -> Array:
    """(Φ_Δ(x) − x)/Δ for the flow Φ of dx/ds = field(x), by the classical Runge-Kutta method.

    Main arguments:
        field: (x [...]) -> dx/ds [...], the drift of a model under a policy.
        x: x(t) [...].
        step: Δ.

    >>> round(flow_quotient(lambda x: -x, 1.0, step=0.5), 4)  # (e^{-1/2} - 1)/0.5
    -0.7869
    """
    h = step / substeps
    end = x
    for _ in range(substeps):
        first = field(end)
        second = field(end + h / 2 * first)
        third = field(end + h / 2 * second)
        end = end + h / 6 * (first + 2 * second + 2 * third + field(end + h * third))
    return (end - x) / step


def flow_excess(field: Callable[[Array], Array], x: Array, step: float) -> Array:
    """What the quotient of the flow differs from the drift at x: Δ/2 · dF/ds + O(Δ²)."""
    return flow_quotient(field, x, step) - field(x)


def noise_growth(expansion: float, step: float) -> float:
    """sqrt((e^{2KΔ} − 1)/(2KΔ)): the scale of the noise of y relative to g/√Δ, at least 1.

    Main arguments:
        expansion: K; negative where feedback contracts.
        step: Δ.

    >>> round(noise_growth(3.0, 0.1), 3), noise_growth(-1.0, 0.1)
    (1.171, 1.0)
    """
    require(step > 0, f"step: Δ must be positive, not {step}")
    exponent = 2 * max(expansion, 0.0) * step
    return math.sqrt(math.expm1(exponent) / exponent) if exponent > 0 else 1.0

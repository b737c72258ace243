"""Complexity measures: covering numbers, and the bounds of Theorems 1, 2 and 3.

symbol in the paper       here                          meaning
------------------------  ----------------------------  --------------------------------------------------------------
|N(F, ε)|, |N(R, ε)|      log_cover_finite, _linear     covering number in the sup norm at scale ε, as its logarithm
T                         horizon                       length of an episode
L_f, L_g, L_b, L_π        drift, diffusion, ...         Lipschitz constants (Assumption 1)
K, L                      growth, sensitivity           how fast model errors grow, and what they cost in reward
d_{F,1/N}, d_{R,1/N}      dim_drift, dim_reward         distributional Eluder dimensions (theory/eluder.py)
β_F, β_R                  beta_drift, beta_reward       confidence radii (theory/confidence.py)
C_{T,m}                   independency                  independency coefficient (theory/independency.py)
O(·)                      constant                      the factor that the paper leaves open
"""

import math
from dataclasses import dataclass

from purectrl.core.errors import require


def log_cover_finite(size: int) -> float:
    """log |F|: a finite class covers itself at every scale.

    >>> round(log_cover_finite(20), 3)
    2.996
    """
    require(size >= 1, f"size: a function class has at least one member, not {size}")
    return math.log(size)


def log_cover_linear(dimension: int, bound: float, feature_bound: float, epsilon: float) -> float:
    """log |N(F, ε)| ≤ dim · log(1 + 2RL/ε) for F = {⟨Θ, φ⟩ : ‖Θ‖_F ≤ R}, ‖φ‖ ≤ L.

    The volume bound: ‖f_Θ − f_Θ'‖_∞ ≤ L‖Θ − Θ'‖_F, and a ball of radius R in R^dim has an ε/L-net of (1 + 2RL/ε)^dim points.

    Main arguments:
        dimension: the number of entries of Θ.
        bound, feature_bound: R and L.
        epsilon: ε; Theorem 1 takes 1/N².

    >>> round(log_cover_linear(4, bound=1.0, feature_bound=1.0, epsilon=0.1), 3)
    12.178
    """
    require(dimension >= 1, f"dimension: Θ has at least one entry, not {dimension}")
    _positive(bound=bound, feature_bound=feature_bound, epsilon=epsilon)
    return dimension * math.log1p(2 * bound * feature_bound / epsilon)


@dataclass(frozen=True)
class Smoothness:
    """Assumption 1: T and the Lipschitz constants, and what the theorems make of them.

    Main arguments:
        horizon: T.
        drift, diffusion, reward, policy: L_f, L_g, L_b, L_π.
        dimension: d, which the flow lemma (appendix) has in K. The theorem in the main text drops it, as if d = 1.

    >>> flat = Smoothness(horizon=1.0, drift=1.0, diffusion=0.5, reward=2.0, policy=1.0)
    >>> flat.growth, flat.sensitivity
    (10.0, 4.0)
    """

    horizon: float
    drift: float
    diffusion: float
    reward: float
    policy: float
    dimension: int = 1

    def __post_init__(self) -> None:
        _positive(horizon=self.horizon)
        for name in ("drift", "diffusion", "reward", "policy"):
            value = getattr(self, name)
            require(0 <= value < math.inf, f"{name}: a Lipschitz constant must be finite and not negative, got {value}")
        require(self.dimension >= 1, f"dimension: a state has at least one entry, not {self.dimension}")

    @property
    def growth(self) -> float:
        """K = 1 + d(1 + L_π)² L_g² + 2(1 + L_π)² L_f²."""
        return 1 + (1 + self.policy) ** 2 * (self.dimension * self.diffusion**2 + 2 * self.drift**2)

    @property
    def sensitivity(self) -> float:
        """L = L_b(1 + L_π)."""
        return self.reward * (1 + self.policy)


def suboptimality_base(
    smoothness: Smoothness,
    total: int,
    *,
    dim_drift: float,
    dim_reward: float,
    beta_drift: float,
    beta_reward: float,
    constant: float = 1.0,
) -> float:
    """Theorem 1: (T sqrt(d_R β_R) + L T^(3/2) sqrt(exp(KT)) sqrt(d_F β_F)) / sqrt(N / log N).

    Also the suboptimality of Algorithm 2 (Theorem 2), with a larger constant, since its test tolerates 5β.

    Main arguments:
        smoothness: T, K and L.
        total: N.
        dim_drift, dim_reward, beta_drift, beta_reward: d_F, d_R at scale 1/N, and β_F, β_R.
        constant: the factor inside O(·).

    >>> still = Smoothness(horizon=1.0, drift=0.0, diffusion=0.0, reward=1.0, policy=0.0)
    >>> sizes = dict(dim_drift=2, dim_reward=3, beta_drift=40.0, beta_reward=40.0)
    >>> round(suboptimality_base(still, 65_536, **sizes), 4)
    0.3343
    """
    _total(total)
    _dimensions(dim_drift, dim_reward)
    _positive(beta_drift=beta_drift, beta_reward=beta_reward, constant=constant)
    T, K, L = smoothness.horizon, smoothness.growth, smoothness.sensitivity
    reward = T * math.sqrt(dim_reward * beta_reward)
    # L = 0 costs nothing even where exp(KT) is too large for a float
    drift = L * T**1.5 * _exp(K * T / 2) * math.sqrt(dim_drift * beta_drift) if L * dim_drift > 0 else 0.0
    return constant * (reward + drift) / math.sqrt(total / math.log(total))


def switches(total: int, dim_drift: float, dim_reward: float, constant: float = 1.0) -> float:
    """Theorem 2: Algorithm 2 updates its plan at most log N · (d_F + d_R) times.

    >>> round(switches(65_536, dim_drift=2, dim_reward=3), 1)
    55.5
    """
    _total(total)
    _dimensions(dim_drift, dim_reward)
    _positive(constant=constant)
    return constant * math.log(total) * (dim_drift + dim_reward)


def suboptimality_low_rollout(
    smoothness: Smoothness,
    total: int,
    m: int,
    independency: float,
    *,
    dim_drift: float,
    dim_reward: float,
    beta_drift: float,
    beta_reward: float,
    constant: float = 1.0,
    log_power: int = 1,
) -> float:
    """Theorem 3: Theorem 1's bound · sqrt(C_{T,m}) + mT(d_F + d_R) / (N / log N).

    The second term accounts for episodes in which m measurements taken at once are too informative.

    Main arguments:
        m: measurements per episode.
        independency: C_{T,m} ≥ 1.

    Other arguments, as in `suboptimality_base`, and:
        log_power: 1 is the theorem; 2 is what its proof adds up to: up to log N sets E_j of up to d log N episodes each.

    >>> still = Smoothness(horizon=1.0, drift=0.0, diffusion=0.0, reward=1.0, policy=0.0)
    >>> sizes = dict(dim_drift=2, dim_reward=3, beta_drift=40.0, beta_reward=40.0)
    >>> [round(suboptimality_low_rollout(still, 65_536, m, independency=2.0, **sizes), 4) for m in (1, 16)]
    [0.4737, 0.4864]
    """
    require(1 <= m <= total, f"m: an episode takes between 1 and N = {total} measurements, not {m}")
    require(independency >= 1, f"independency: C is at least 1, not {independency}")
    require(log_power in (1, 2), f"log_power: must be 1 (the theorem) or 2 (its proof), not {log_power}")
    sizes = {"dim_drift": dim_drift, "dim_reward": dim_reward, "beta_drift": beta_drift, "beta_reward": beta_reward}
    leading = suboptimality_base(smoothness, total, constant=constant, **sizes) * math.sqrt(independency)
    batch = m * smoothness.horizon * (dim_drift + dim_reward) * math.log(total) ** log_power / total
    return leading + constant * batch


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf


def _positive(**numbers: float) -> None:
    for name, value in numbers.items():
        require(0 < value < math.inf, f"{name}: must be positive and finite, not {value}")


def _total(total: int) -> None:
    require(total >= 2, f"total: the bounds hold for N ≥ 2 measurements, not {total}")


def _dimensions(dim_drift: float, dim_reward: float) -> None:
    for name, value in (("dim_drift", dim_drift), ("dim_reward", dim_reward)):
        require(0 <= value < math.inf, f"{name}: an Eluder dimension must be finite and not negative, got {value}")

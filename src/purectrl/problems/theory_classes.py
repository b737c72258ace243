"""The function classes of the problems in `purectrl.problems.theory`."""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.systems import lqr as lqr_system
from purectrl.systems import ou as ou_system
from purectrl.systems import washboard
from purectrl.theory.classes import Classes, FiniteClass
from purectrl.theory.kernel import choose_points, gaussian_kernel, kernel_class, kernel_features
from purectrl.theory.linear import LinearClass

OU_MULTIPLIERS = 2.0 ** np.arange(-2.0, 2.5, 0.5)
"""κ in the drifts −κ·u·x of `ou`; the truth is 1."""
OU_GOALS = np.linspace(0.0, 2.0, 9)
"""Where the rewards of `ou` have their maximum; the truth is 1.25."""
OU_TRUTH = 4, 5
"""The indices of the truth among the multipliers and the goals."""
OU_SLOPES = np.linspace(0.0, 1.0, 9)
"""α in the rewards αx of `ou` with linear rewards; the truth is the last."""
KERNEL_TOLERANCE = 0.02
"""The variance that chosen points may leave unexplained in the kernel classes of `lqr`, relative to that of the kernel."""


def goal_policy(parameters: tuple[Array, Array], x: Array) -> Array:
    """The policy u = clip(gain · (goal − x), −1, 1)."""
    gain, goal = parameters
    return jnp.clip(gain * (goal - x), -1.0, 1.0)


def gaussian(mean: Array, key: Array) -> Array:
    """The initial distribution N(mean, 0.1² I)."""
    return mean + 0.1 * jax.random.normal(key, mean.shape)


def product(*axes: Any) -> np.ndarray:
    """All combinations of the given numbers [count, axes]."""
    return np.array(list(itertools.product(*axes)), np.float32)


def dyadic(center: float, reach: float, scales: int) -> list[float]:
    """center, and center ± reach · 2^−k for k < scales, sorted: candidates to tell apart at every number of measurements.

    >>> dyadic(0.0, 1.0, scales=2)
    [-1.0, -0.5, 0.0, 0.5, 1.0]
    """
    offsets = [reach * 0.5**k for k in range(scales)]
    return [center - offset for offset in offsets] + [center] + [center + offset for offset in reversed(offsets)]


def index_of(members: np.ndarray, truth: Any) -> int | None:
    """The index of the true parameters among those of the members [size, p]; None if they are not among them."""
    found = np.flatnonzero(np.isclose(members, truth, atol=1e-6).all(axis=1))
    return int(found[0]) if found.size else None


def washboard_classes(grid: str, scales: int) -> tuple[Classes, tuple[np.ndarray, np.ndarray]]:
    """Lists of drifts and rewards, policies with two gains and several goals, three initial distributions; and the
    parameters of the drifts [F, 2] and of the rewards [R]."""
    if grid == "even":
        drifts = product((-0.5, -0.25, 0.0, 0.25, 0.5), (-0.5, -0.25, 0.25, 0.5))
        goals = np.linspace(-0.75, 0.75, 7, dtype=np.float32)
    else:
        drifts = product(dyadic(0.2, 0.3, scales), dyadic(0.3, 0.2, scales))
        goals = np.array(dyadic(0.5, 0.5, scales), np.float32)
    gains = product((1.0, 4.0), np.linspace(-1.5, 1.5, 7) if grid == "even" else goals)
    classes = Classes(
        FiniteClass.family(goal_policy, (gains[:, :1], gains[:, 1:])),
        FiniteClass.family(gaussian, np.array([[-0.5], [0.0], [0.5]], np.float32)),
        FiniteClass.family(washboard.drift, drifts),
        FiniteClass.family(washboard.reward, goals),
    )
    return classes, (drifts, goals)


def washboard_expansion(drifts: np.ndarray) -> float:
    """K of the paper's one-sided Lipschitz condition for drifts (a, c) [F, 2] of `finite` under policies with gains up to 4:
    dF/dx = 2a cos 2x − c · gain where the control is not clipped.

    >>> float(washboard_expansion(np.array([[0.5, -0.25], [0.25, 0.5]])))
    2.0
    """
    return float((2 * np.abs(drifts[:, 0]) + 4 * np.maximum(-drifts[:, 1], 0.0)).max())


def lqr_expansion(d: int) -> float:
    """The same for the lists of `lqr`, whose A and B may change their signs, under policies with gains up to 4."""
    A, B = (np.asarray(matrix) for matrix in lqr_system.truth(d))
    return float(np.abs(np.linalg.eigvalsh((A + A.T) / 2)).max() + 4 * np.abs(B).max())


def _lqr_goals(d: int) -> np.ndarray:
    """The corners of a cube and its center [2^d + 1, d]; the first is the truth."""
    return np.concatenate([product(*[(0.5, -0.5)] * d), np.zeros((1, d), np.float32)])


def lqr_classes(d: int) -> Classes:
    """16 pairs (A, B), 2^d + 1 goals, a clipped linear policy toward each goal with two gains; the first is the truth."""
    A, B = (np.asarray(matrix) for matrix in lqr_system.truth(d))
    scales, goals = product((1.0, -1.0), (1.0, 0.5), (1.0, -1.0), (1.0, 0.5)), _lqr_goals(d)
    drifts = ((scales[:, 0] * scales[:, 1])[:, None, None] * A, (scales[:, 2] * scales[:, 3])[:, None, None] * B)
    return Classes(
        FiniteClass.family(goal_policy, (np.repeat([[1.0], [4.0]], len(goals), axis=0), np.tile(goals, (2, 1)))),
        FiniteClass.family(gaussian, np.zeros((1, d), np.float32)),
        FiniteClass.family(lqr_system.drift, drifts),
        FiniteClass.family(lqr_system.reward, goals),
    )


def lqr_linear_classes(d: int) -> tuple[LinearClass, LinearClass, tuple[np.ndarray, np.ndarray]]:
    """Drifts linear in (x, u), rewards linear in bumps around a grid of goals, both within a ball; and the true Θ of
    each."""
    A, B = (np.asarray(matrix) for matrix in lqr_system.truth(d))
    goals = _lqr_goals(d)
    truth = np.concatenate([A.T, B.T]), np.eye(len(goals))[:, :1]
    bound: Any = 1.25 * np.linalg.norm(truth[0])  # a NumPy float32, like the true Θ
    drifts = LinearClass(lambda x, u: jnp.concatenate([x, u]), bound, outputs=d, feature_bound=3 * d)
    rewards = LinearClass(
        lambda x, u: jax.vmap(lqr_system.reward, (0, None, None))(jnp.asarray(goals), x, u),
        1.0,
        feature_bound=math.sqrt(len(goals)),
    )
    return drifts, rewards, truth


def lqr_kernel_classes() -> tuple[LinearClass, LinearClass]:
    """For d = 1: drifts that are linear plus a smooth function of (x, u), and smooth rewards, both within a ball.

    The kernel of the rewards is exp(−(x − x')² − (u − u')²/10), so the true reward is k(·, (goal, 0)), of norm one; that of
    the drifts is ⟨z, z'⟩ plus a Gaussian one of height 1/4, and the true drift has nothing of the second.
    """
    goals = np.concatenate([_lqr_goals(1), np.zeros((3, 1), np.float32)], axis=1)
    candidates = np.concatenate([goals, product(np.linspace(-1.5, 1.5, 7), (-1.0, 0.0, 1.0))])
    bumps = gaussian_kernel(np.array([math.sqrt(0.5), math.sqrt(5.0)]))
    smooth = gaussian_kernel(np.ones(2))
    rewards = kernel_features(bumps, choose_points(bumps, candidates, first=len(goals), tolerance=KERNEL_TOLERANCE))
    more = kernel_features(smooth, choose_points(smooth, candidates, tolerance=KERNEL_TOLERANCE))
    drifts = lambda x, u: jnp.concatenate([x, u, more(x, u) / 2])  # noqa: E731
    bound = 1.25 * float(np.linalg.norm(np.concatenate([np.asarray(part) for part in lqr_system.truth(1)])))
    return kernel_class(drifts, candidates, bound, 1, outputs=1), kernel_class(rewards, candidates, 1.25, 1)


def ou_controls(u_min: float, u_max: float) -> np.ndarray:
    """The controls of the policies of `ou`, each constant: nine from u_min to u_max, in equal ratios."""
    return np.geomspace(u_min, u_max, 9)


def ou_values(u_min: float, u_max: float, diffusion: float, horizon: float) -> np.ndarray:
    """R(π, q, f, b) for all members [Π, 1, F, R]; it depends on π and f through κ·u alone.

    The optimum lies between u_min and u_max:

    >>> ou_values(0.25, 4.0, math.sqrt(2.0), 4.0)[:, 0, OU_TRUTH[0], OU_TRUTH[1]].round(2).tolist()
    [0.88, 0.9, 0.92, 0.93, 0.92, 0.87, 0.79, 0.69, 0.58]
    """
    decay = ou_controls(u_min, u_max)[:, None, None, None] * OU_MULTIPLIERS[:, None]
    return ou_system.value(decay, OU_GOALS, diffusion, horizon)


def ou_classes(u_min: float, u_max: float, linear: bool = False) -> Classes:
    """Nine constant policies, x(0) = 0, nine drifts, nine rewards; with linear rewards the true drift alone."""
    multipliers, family, numbers = OU_MULTIPLIERS, ou_system.reward, OU_GOALS
    if linear:
        multipliers, family, numbers = np.ones(1), ou_system.proportional, OU_SLOPES
    return Classes(
        FiniteClass.family(lambda control, x: control, ou_controls(u_min, u_max).astype(np.float32)[:, None]),
        FiniteClass.family(lambda point, key: point, np.zeros((1, 1), np.float32)),
        FiniteClass.family(ou_system.drift, multipliers.astype(np.float32)),
        FiniteClass.family(family, numbers.astype(np.float32)),
    )

"""The problem `circle`: rewards at a given distance from each other, on a compact system with closed forms.

The candidates are the 2^d corners of a cube, θ ∈ {−η, η}^d, and the truth is the last that an optimistic planner tries. With
η in proportion to N^(−1/2) no algorithm has a smaller rate than N^(−1/2): Theorem 1 is tested where it is tight. The
coefficient C_{T,m} of Theorem 3 is finite and exact. `purectrl.systems.circle_statistics` has both.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.plan import Plan
from purectrl.core.system import MeasurementModel
from purectrl.problems.theory import Drift, Parts, check_arguments, make_problem
from purectrl.systems import circle as circle_system
from purectrl.systems.circle_statistics import Start, mean_bump
from purectrl.theory.classes import Classes, FiniteClass, TrueFunction, Truth
from purectrl.theory.kernel import Kernel, kernel_class, kernel_features
from purectrl.theory.linear import LinearClass
from purectrl.theory.planning import Values
from purectrl.theory.problem import TRUE_PATHS, ContinuousModels, FiniteModels, TheoryProblem, remembered, true_value

OFFSET = 5.0
"""The constant feature of the linear rewards: large, so that the true Θ is far inside its ball."""
WAVES = (0.4, 0.35, 0.18, 0.07)
"""κ(s) = Σ_k w_k cos ks, the kernel of functions on the circle; they sum to one."""


def circle(
    dimension: int = 1,
    horizon: float = 1.0,
    diffusion: float = 2.0,
    distance: float = 0.1,
    start: Start = "uniform",
    step: float = 0.1,
    reward_std: float = 1.0,
    drift: Drift = "drawn",
    steps: int = 8,
) -> TheoryProblem:
    """Brownian motion on a circle, with 2^d candidate rewards, linear ones, or a kernel class. Values, suboptimality and
    C_{T,m} are exact.

    Main arguments:
        dimension: d, the number of controls and of unknowns, one to eight.
        horizon: T, the length of an episode.
        diffusion: g*, constant and known; the mixing time is 2/g*².
        distance: η, half the distance of two candidates in each unknown.
        start: x(0) uniform on the circle, or at π, where nothing can be learned about the reward (dimension 1).

    Other arguments:
        step: Δ, the time that one measurement of the drift takes.
        reward_std: standard deviation of a measured reward; the paper has 1.
        drift: how the drift is measured: drawn as in the model, or the difference quotient over Δ of one path.
        steps: Euler-Maruyama steps per episode; any number is exact.
    """
    check_arguments(circle, locals())
    require(1 <= dimension <= 8, f"dimension: must lie between 1 and 8, not {dimension}")
    require(diffusion > 0, f"diffusion: g* must be positive on the circle, not {diffusion}")
    most = 0.5 if dimension == 1 else 1 / dimension
    require(0 < distance <= most, f"distance: rewards stay in [0, 1] for 0 < η ≤ {most:g}, not {distance:g}")
    require(start == "uniform" or dimension == 1, "start: opposite is the point where the one bump of dimension 1 is 0")
    parts = _circle_parts(dimension, horizon, diffusion, distance, start, steps)
    return make_problem("circle", parts, diffusion, MeasurementModel(step, reward_std, drift), steps)


class ConstantControls:
    """The policies of the linear classes of `circle`: any constant control u = tanh(w), w [d]."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension

    def init(self, key: Key) -> np.ndarray:
        """A random member."""
        return key.generator().normal(size=self.dimension).astype(np.float32)

    def apply(self, parameters: Array, x: Array) -> Array:
        """The control u [d]."""
        return jnp.tanh(parameters)


class Anywhere:
    """The one initial distribution: uniform on the circle."""

    def init(self, key: Key) -> np.ndarray:
        """No parameters."""
        return np.zeros(0, np.float32)

    def apply(self, parameters: Array, key: Array) -> Array:
        """A draw of x(0) [1]."""
        return _uniform_angle(parameters, key)


def _linear_models(dimension: int, horizon: float, distance: float) -> tuple[ContinuousModels, np.ndarray]:
    """One drift, rewards linear in (OFFSET, u_j ψ_j(x)) within a ball of radius one, constant controls; and the true Θ.

    θ* = (1/(2 OFFSET), −η, …, −η). A constant control u is worth T(1/2 − η Σ u_j/2), so all values are exact.
    """
    theta = np.array([[0.5 / OFFSET], *[[-distance]] * dimension], np.float32)
    features = lambda x, u: jnp.concatenate([jnp.full(1, OFFSET), u * circle_system.bumps(dimension, x)])  # noqa: E731
    rewards = LinearClass(features, 1.0, feature_bound=math.sqrt(OFFSET**2 + dimension))
    drifts = LinearClass(lambda x, u: jnp.zeros(1), 1.0, outputs=1)

    def value(plan: Plan) -> tuple[Array, Array]:
        control = plan.policy(jnp.zeros(1), 0.0)
        return horizon * (0.5 - distance * jnp.sum(control) / 2), jnp.float32(0.0)

    search = lambda: (horizon * (0.5 + distance * dimension / 2), 0.0, horizon / 2)  # noqa: E731
    kernels = functools.cache(lambda: (drifts, _kernel_rewards(dimension)))
    policies = ConstantControls(dimension)
    return ContinuousModels(policies, Anywhere(), rewards, value, search, drifts=drifts, kernels=kernels), theta


def wave_kernel(weights: tuple[float, ...]) -> Kernel:
    """κ(x, x') = Σ_k w_k cos k(x − x'), k = 0, 1, …: smooth functions with 2 · len(weights) − 1 coordinates.

    >>> float(wave_kernel((0.5, 0.5))(jnp.zeros(1), jnp.full(1, jnp.pi)))
    0.0
    """
    waves = jnp.arange(len(weights))
    return lambda x, other: jnp.sum(jnp.asarray(weights, jnp.float32) * jnp.cos(waves * (x[0] - other[0])))


def _kernel_rewards(dimension: int) -> LinearClass:
    """The unit ball of the kernel OFFSET² + Σ_j u_j u'_j κ(x − x'): b(x, u) = a + Σ_j u_j f_j(x) with any smooth f_j. It has
    1 + 7d coordinates; of the truth f_j = −η ψ_j."""
    count = 2 * len(WAVES) - 1
    functions = kernel_features(wave_kernel(WAVES), np.arange(count)[:, None] * 2 * np.pi / count)

    def features(x: Array, u: Array) -> Array:
        return jnp.concatenate([jnp.full(1, OFFSET), jnp.outer(u, functions(x, u[:0])).ravel()])

    places = np.linspace(0.0, 2 * np.pi, 3 * count, endpoint=False)
    controls = np.concatenate([np.zeros((1, dimension)), np.eye(dimension), np.ones((1, dimension))])
    candidates = np.array([[x, *u] for x in places for u in controls], np.float32)
    return kernel_class(features, candidates, 1.0, state_dim=1)


def _uniform_angle(_: Array, key: Array) -> Array:
    return jax.random.uniform(key, (1,), maxval=2 * jnp.pi)


def _opposite(_: Array, key: Array) -> Array:
    return jnp.full(1, jnp.pi)


@functools.lru_cache(maxsize=64)
def _circle_parts(dimension: int, horizon: float, diffusion: float, distance: float, start: Start, steps: int) -> Parts:
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=dimension)), np.float32)
    thetas = np.float32(distance) * signs
    system = circle_system.circle(thetas[-1], diffusion, horizon)
    classes = Classes(
        FiniteClass.family(lambda control, x: control, signs),
        FiniteClass.family(_uniform_angle if start == "uniform" else _opposite, np.zeros(1, np.float32)),
        FiniteClass.of([system.drift]),
        FiniteClass.family(circle_system.reward, thetas),
    )
    classes.check(system)
    worth = mean_bump(start, diffusion, horizon)
    agreement = signs.astype(int) @ signs.astype(int).T  # exact, so that equal values are equal
    table = horizon * (0.5 + distance * worth * agreement)[:, None, None, :]
    exact = Values(table[..., -1:], error=0.0)
    initial = functools.partial(classes.initials.apply, 0)
    linear, theta = _linear_models(dimension, horizon, distance)
    nothing = np.zeros((1, 1), np.float32)
    return Parts(
        system,
        (-1.0, 1.0),
        Truth(TrueFunction(system.drift, 0, nothing), TrueFunction(system.reward, len(thetas) - 1, theta)),
        initial,
        remembered(true_value(system, steps, TRUE_PATHS, initial)),
        FiniteModels(classes, lambda paths: Values(table, error=0.0), lambda: exact, exact=True),
        linear if start == "uniform" else None,
    )

"""The value R(π, q, f, b) of a plan under a model, and its optimistic argmax.

Expectations are averages over simulated paths with common random numbers: every (π, q, f) sees the same noise, so their
differences are far more accurate than the values. The Monte-Carlo error is reported (the ℓ of the paper's remark).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.errors import InputError
from purectrl.core.keys import Key
from purectrl.core.system import System
from purectrl.systems.simulation import Solver, euler_maruyama
from purectrl.theory.classes import FiniteClass


class Values(NamedTuple):
    """R(π, q, f, b) for every member of finite classes."""

    mean: np.ndarray
    """Values [Π, Q, F, R]."""
    error: float
    """The largest standard error of `mean`, the ℓ of the paper's remark."""


def value_table(
    system: System,
    policies: FiniteClass,
    initials: FiniteClass,
    drifts: FiniteClass,
    rewards: FiniteClass,
    steps: int,
    paths: int,
    solver: Solver = euler_maruyama,
) -> Callable[[Key], Values]:
    """A compiled function of a key that simulates R(π, q, f, b) for all members at once.

    Only the diffusion and T of `system` are used: drift and reward come from the classes.

    Other arguments:
        steps: steps over [0, T].
        paths: simulated paths for each (π, q, f).
        solver: what computes a path.

    Returns:
        (key) -> `Values`, whose arrays are [Π, Q, F, R].
    """
    times = jnp.linspace(0.0, system.horizon, steps + 1)
    step = system.horizon / steps

    def episode(keys: Array, pi: Array, q: Array, f: Array) -> Array:
        start_key, path_key = keys
        policy = lambda x, t: policies.apply(pi, x)  # noqa: E731
        drift = lambda x, u: drifts.apply(f, x, u)  # noqa: E731
        path = solver(path_key, drift, system.diffusion, policy, initials.apply(q, start_key), times)[:-1]
        value = jax.vmap(lambda x: rewards.table(x, policies.apply(pi, x)))(path).sum(axis=0) * step
        # a bounded reward is finite even where the state is not
        return jnp.where(jnp.isfinite(path).all(), value, jnp.nan)

    @jax.jit
    def table(words: Array) -> tuple[Array, Array]:
        keys = jax.random.split(jax.random.wrap_key_data(words), (paths, 2))

        def average(index: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            sums = jax.vmap(episode, (0, None, None, None))(keys, *index)
            return sums.mean(axis=0), sums.std(axis=0) / np.sqrt(max(paths - 1, 1))

        axes = [jnp.arange(c.size) for c in (policies, initials, drifts)]
        grid = jnp.meshgrid(*axes, indexing="ij")
        # a sequential map, so that a member of a list of functions is one branch taken and not all branches computed
        return jax.lax.map(average, tuple(axis.ravel() for axis in grid))

    def values(key: Key) -> Values:
        mean, error = (np.asarray(array, np.float64) for array in table(key.jax_key_data()))
        shape = (policies.size, initials.size, drifts.size, rewards.size)
        if not np.isfinite(mean).all():
            pi, q, f, b = np.argwhere(~np.isfinite(mean.reshape(shape)))[0]
            raise InputError(
                f"simulating policy {pi} from initial distribution {q} under drift {f} and reward {b} of the classes "
                "leaves the finite numbers: bound those functions or use more simulation steps"
            )
        return Values(mean.reshape(shape), float(error.max()))

    return values


class OptimisticPlanner(NamedTuple):
    """The optimistic argmax over Π × Q × F_n × R_n by exact enumeration (Algorithm 1, line 3).

    The maximum over (π, q) does not depend on the data, so it is taken once; a plan then costs |F|·|R| comparisons.

    Two policies, one initial distribution, two drifts, one reward. While both drifts are possible, the plan is the best one
    under the drift with the larger value; when the second drift is ruled out, it changes:

    >>> planner = OptimisticPlanner.of(np.array([[[[1.0], [5.0]]], [[[2.0], [3.0]]]]))
    >>> planner(np.array([True, True]), np.array([True])), planner(np.array([True, False]), np.array([True]))
    ((0, 0, 1, 0, 5.0), (1, 0, 0, 0, 2.0))
    """

    best: np.ndarray
    """max over (π, q) of R(π, q, f, b): [F, R]."""
    plan: np.ndarray
    """The (π, q) that attains it, as an index into Π × Q: [F, R]."""
    initials: int
    """|Q|."""

    @classmethod
    def of(cls, values: np.ndarray) -> "OptimisticPlanner":
        """From `Values.mean` [Π, Q, F, R]."""
        flat = values.reshape(-1, *values.shape[2:])
        return cls(flat.max(axis=0), flat.argmax(axis=0), values.shape[1])

    def __call__(self, drifts: np.ndarray, rewards: np.ndarray) -> tuple[int, int, int, int, float]:
        """(π, q, f, b, value) for the confidence sets given as masks [F] and [R]."""
        f_index, b_index = np.flatnonzero(drifts), np.flatnonzero(rewards)
        allowed = self.best[np.ix_(f_index, b_index)]
        row, column = divmod(int(allowed.argmax()), len(b_index))
        f, b = int(f_index[row]), int(b_index[column])
        pi, q = divmod(int(self.plan[f, b]), self.initials)
        return pi, q, f, b, float(allowed[row, column])

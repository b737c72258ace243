"""Feature maps φ(x, u) for linear classes: functions of one state x [d] and one control u [k] to a vector [p]."""

import itertools
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.errors import require
from purectrl.core.keys import Key

Features = Callable[[Array, Array], Array]


def polynomial(degree: int, state_dim: int, control_dim: int) -> Features:
    """All monomials of (x, u) up to `degree`, the constant first.

    >>> polynomial(degree=2, state_dim=1, control_dim=1)(jnp.array([2.0]), jnp.array([3.0])).tolist()
    [1.0, 2.0, 3.0, 4.0, 6.0, 9.0]
    """
    require(degree >= 0, f"degree: must not be negative, got {degree}")
    variables = range(state_dim + control_dim)
    terms = [term for total in range(degree + 1) for term in itertools.combinations_with_replacement(variables, total)]

    def features(x: Array, u: Array) -> Array:
        z = jnp.concatenate([x, u])
        return jnp.stack([jnp.prod(z[np.array(term, int)]) for term in terms])

    return features


def random_fourier(count: int, state_dim: int, control_dim: int, scale: float = 1.0, seed: int = 0) -> Features:
    """`count` random cosines of (x, u), which approximate the Gaussian kernel of width `scale`; ‖φ‖² ≤ 2.

    >>> random_fourier(64, 1, 1)(jnp.zeros(1), jnp.zeros(1)).shape
    (64,)
    """
    require(count >= 1, f"count: at least one feature is needed, not {count}")
    require(scale > 0, f"scale: the width must be positive, not {scale}")
    draws = Key.from_seed(seed).generator()
    frequencies = jnp.asarray(draws.normal(size=(count, state_dim + control_dim)) / scale, jnp.float32)
    phases = jnp.asarray(draws.uniform(0.0, 2 * np.pi, count), jnp.float32)
    return lambda x, u: jnp.sqrt(2.0 / count) * jnp.cos(frequencies @ jnp.concatenate([x, u]) + phases)

"""Calling compiled functions: random keys, and batches padded to few sizes so that few programs are compiled."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.keys import Key


def jax_key(key: Key) -> Array:
    """The JAX key with the bits of `key`.

    Inside compiled code, pass `key.jax_key_data()` and call `jax.random.wrap_key_data` there: a NumPy array is cheaper to
    hand to a compiled function than a JAX key.

    >>> jax.random.key_data(jax_key(Key(5))).tolist()
    [5, 0]
    """
    return jax.random.wrap_key_data(jnp.asarray(key.jax_key_data()))


def pad_rows(
    function: Callable[..., tuple[Array, ...]], *arrays: np.ndarray, sizes: tuple[int, ...] = (1, 16, 256)
) -> tuple[np.ndarray, ...]:
    """Calls `function` on arrays whose first axis is padded, and cuts its results back.

    Main arguments:
        function: (*arrays [rows, ...]) -> arrays [rows, ...], row by row.
        arrays: each with the same number of rows. Copies of the last row fill the rest.

    Other arguments:
        sizes: the numbers of rows to pad to; beyond the largest, powers of two.

    >>> pad_rows(lambda rows: (2 * rows, rows.size + 0 * rows), np.arange(3))
    (array([0, 2, 4]), array([16, 16, 16]))
    """
    rows = len(arrays[0])
    padded = next((size for size in sizes if rows <= size), 1 << (rows - 1).bit_length())
    if padded > rows:
        arrays = tuple(np.concatenate([a, np.repeat(a[-1:], padded - rows, axis=0)]) for a in arrays)
    return tuple(np.asarray(result)[:rows] for result in function(*arrays))

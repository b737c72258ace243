"""Multilayer perceptrons as plain arrays: an ensemble is evaluated as one batched product."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float


class Layer(NamedTuple):
    """An affine map; the leading axes of both arrays number the networks."""

    weight: Array
    """[..., inputs, outputs]."""
    bias: Array
    """[..., 1, outputs], or [outputs] if there is one network."""


def glorot(generator: np.random.Generator, sizes: Sequence[int], members: int | None = None) -> tuple[Layer, ...]:
    """Layers with Glorot-normal weights and zero biases; `sizes` are the widths from input to output.

    NumPy draws them: a JAX program for each shape would take seconds to compile.
    """
    lead, row = ((), ()) if members is None else ((members,), (1,))
    layers = []
    for inputs, outputs in pairwise(sizes):
        weight = generator.standard_normal((*lead, inputs, outputs), np.float32) * np.sqrt(2 / (inputs + outputs))
        layers.append(Layer(jnp.asarray(weight, jnp.float32), jnp.zeros((*lead, *row, outputs))))
    return tuple(layers)


def mlp(
    layers: Sequence[Layer], x: Float[Array, "*members rows inputs"], activation: Callable[[Array], Array]
) -> Float[Array, "*members rows outputs"]:
    """The multilayer perceptron with `activation` after every layer but the last.

    >>> line = (Layer(jnp.array([[2.0]]), jnp.array([1.0])),)
    >>> mlp(line, jnp.array([[3.0]]), jnp.tanh).tolist()
    [[7.0]]
    """
    for layer in layers[:-1]:
        x = activation(x @ layer.weight + layer.bias)
    return x @ layers[-1].weight + layers[-1].bias

"""Multilayer perceptrons as plain arrays, so that ten networks are one batched product and not ten small ones."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from purectrl.core.problem import Array


class Layer(NamedTuple):
    """An affine map; the leading axes of both arrays number the networks."""

    weight: Array
    """[..., inputs, outputs]."""
    bias: Array
    """[..., 1, outputs], or [outputs] where there is one network."""


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


def perceptron(layers: Sequence[Layer], x: Array, activation: Callable[[Array], Array]) -> Array:
    """x [..., rows, inputs] -> [..., rows, outputs], with `activation` after every layer but the last.

    >>> line = (Layer(jnp.array([[2.0]]), jnp.array([1.0])),)
    >>> perceptron(line, jnp.array([[3.0]]), jnp.tanh).tolist()
    [[7.0]]
    """
    for layer in layers[:-1]:
        x = activation(x @ layer.weight + layer.bias)
    return x @ layers[-1].weight + layers[-1].bias

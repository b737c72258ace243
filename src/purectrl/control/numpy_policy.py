"""A learned policy in plain NumPy. `purectrl export DIR --to numpy` writes this file with the weights beside it.

    from policy import policy      # policy.py and policy.npz in the same directory

    u = policy([3.1, 0.0])         # state [..., d] -> control [..., k], within the limits of the controls

A coordinate x[i] that is an angle enters the network as cos x[i], sin x[i]; every feature is divided by its scale. Hidden
layers are ReLU. The control is mid + half range · tanh(output), whatever the time. A state that is not finite is refused.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


class Policy:
    """The function state [..., d] -> control [..., k] with the weights in `arrays`."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        depth = sum(name.startswith("weight") for name in arrays)
        self.layers = [(arrays[f"weight{i}"], arrays[f"bias{i}"]) for i in range(depth)]
        self.scale, self.low, self.high = arrays["scale"], arrays["low"], arrays["high"]
        self.mid, self.half_range = arrays["mid"], arrays["half_range"]
        self.columns = arrays["columns"]  # the coordinate behind each feature
        self.cosines, self.sines = (np.flatnonzero(arrays["kinds"] == kind) for kind in (1, 2))
        self.state_dim = int(self.columns.max()) + 1

    def __call__(self, x: Any, t: float = 0.0) -> np.ndarray:
        """The control at state x; it does not depend on the time t."""
        x = np.asarray(x, np.float32)
        if x.shape[-1:] != (self.state_dim,):
            raise ValueError(f"x: has shape {x.shape}, expected [{self.state_dim}] or [..., {self.state_dim}]")
        if not np.isfinite(x).all():
            raise ValueError(f"x: has a coordinate that is not finite: {x.tolist()}")
        u = self.control(x)
        if not np.isfinite(u).all():
            raise ValueError(f"x: is too large for the policy's single precision: {x.tolist()}")
        return u

    def control(self, x: np.ndarray) -> np.ndarray:
        """The same without checks; x is of single precision."""
        h = x[..., self.columns]
        if self.cosines.size:
            h[..., self.cosines] = np.cos(h[..., self.cosines])
            h[..., self.sines] = np.sin(h[..., self.sines])
        h = h / self.scale
        for weight, bias in self.layers[:-1]:
            h = np.maximum(h @ weight + bias, 0)
        weight, bias = self.layers[-1]
        u = self.mid + self.half_range * np.tanh(h @ weight + bias)
        return np.minimum(np.maximum(u, self.low), self.high)


def load(file: Path) -> Policy:
    """The policy with the weights in an .npz file."""
    with np.load(file, allow_pickle=False) as arrays:
        return Policy(dict(arrays))

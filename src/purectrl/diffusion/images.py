"""Checks and statistics of images [n, channels, height, width] in [0, 1]."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from purectrl.core.errors import require


class Samples(NamedTuple):
    """Generated images, their conditions and their scores."""

    images: np.ndarray
    """[n, 1 or 3, size, size] in [0, 1]."""
    conditions: np.ndarray
    """Classes (integers) or prompts (strings) [n]."""
    scores: np.ndarray
    """[n]."""

    def of(self, conditions: Sequence[int | str]) -> "Samples":
        """The samples for any of `conditions`."""
        chosen = np.isin(self.conditions, conditions)
        return Samples(*(array[chosen] for array in self))

    def mean_scores(self) -> dict[str, float]:
        """The mean score of each condition."""
        return {str(c): float(self.scores[self.conditions == c].mean()) for c in np.unique(self.conditions)}


def check_images(images: np.ndarray, shape: tuple[int, int, int] | None = None) -> np.ndarray:
    """The images as float32; raises unless they are [n, c, h, w] with values in [0, 1].

    Other arguments:
        shape: the only accepted (c, h, w); any by default.
    """
    images = np.asarray(images)
    wanted = "n, channels, height, width" if shape is None else ", ".join(map(str, ("n", *shape)))
    fits = images.ndim == 4 and images.size > 0 and (shape is None or images.shape[1:] == shape)
    require(fits, f"images: must have shape [{wanted}] without empty axes, not {list(images.shape)}")
    require(
        np.issubdtype(images.dtype, np.floating),
        f"images: must be floating-point numbers in [0, 1], not {images.dtype}; divide bytes by 255",
    )
    require(bool(np.isfinite(images).all()), "images: must be finite, some values are NaN or infinite")
    low, high = float(images.min()), float(images.max())
    require(
        low >= 0 and high <= 1,
        f"images: values must lie in [0, 1], not in [{low:.3g}, {high:.3g}]; (x + 1)/2, clipped, maps [−1, 1] there",
    )
    return np.ascontiguousarray(images, np.float32)


def diversity(images: np.ndarray, conditions: np.ndarray) -> float:
    """The standard deviation of a pixel among images [n, ...] of one condition [n], averaged over pixels and conditions.

    Zero if all images of a condition are equal.

    >>> two = np.stack([np.zeros((1, 16, 16)), np.ones((1, 16, 16))])
    >>> round(diversity(two, np.array([4, 4])), 3), diversity(two[[0, 0]], np.array([4, 4]))
    (0.707, 0.0)
    """
    require(
        len(images) == len(conditions),
        f"conditions: {len(images)} images need as many conditions, not {len(conditions)}",
    )
    groups = [images[conditions == c] for c in np.unique(conditions)]
    require(min(map(len, groups)) >= 2, "images: diversity needs at least two images of each condition")
    return float(np.mean([group.std(axis=0, ddof=1).mean() for group in groups]))

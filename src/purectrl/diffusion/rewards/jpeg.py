"""JPEG compressibility: how few bytes an image takes. Cheap, exact, and known from the literature on tuning by reward."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from purectrl.core.errors import require


def compressibility(images: np.ndarray, conditions: Sequence[int | str], quality: int = 95) -> np.ndarray:
    """Minus the size in kilobytes: images [n, 1 or 3, h, w] in [0, 1] -> scores [n]; conditions do not matter.

    >>> plain = np.zeros((1, 3, 64, 64), np.float32)
    >>> noise = np.random.default_rng(0).random((1, 3, 64, 64), np.float32)
    >>> bool(compressibility(plain, [""])[0] > compressibility(noise, [""])[0])
    True
    """
    return np.array([-size(image, quality) / 1000 for image in images])


def size(image: np.ndarray, quality: int = 95) -> int:
    """Bytes of an image [1 or 3, h, w] as JPEG."""
    require(image.shape[0] in (1, 3), f"images: 1 or 3 channels, not {image.shape[0]}")
    pixels = np.round(255 * image).astype(np.uint8)
    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    file = io.BytesIO()
    picture.save(file, format="JPEG", quality=quality)
    return file.tell()

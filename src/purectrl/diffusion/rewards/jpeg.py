"""JPEG compressibility: minus the size of an image. A cheap and exact reward that is common in work on fine-tuning."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from purectrl.core.errors import require


def compressibility(images: np.ndarray, conditions: Sequence[int | str], quality: int = 95) -> np.ndarray:
    """Minus the size in kilobytes: images [n, 1 or 3, h, w] in [0, 1] -> scores [n]; conditions are not used.

    >>> plain = np.zeros((1, 3, 64, 64), np.float32)
    >>> noise = np.random.default_rng(0).random((1, 3, 64, 64), np.float32)
    >>> bool(compressibility(plain, [""])[0] > compressibility(noise, [""])[0])
    True
    """
    return np.array([-jpeg_size(image, quality) / 1000 for image in images])


def jpeg_size(image: np.ndarray, quality: int = 95) -> int:
    """Bytes of an image [1 or 3, h, w] as JPEG."""
    require(image.shape[0] in (1, 3), f"images: must have 1 or 3 channels, not {image.shape[0]}")
    pixels = np.round(255 * image).astype(np.uint8)
    image_8bit = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    file = io.BytesIO()
    image_8bit.save(file, format="JPEG", quality=quality)
    return file.tell()

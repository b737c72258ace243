"""Grids of samples: one row per condition, a score, if there is one, under each image; several models side by side."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from purectrl.core.errors import require
from purectrl.core.io import write_atomically
from purectrl.diffusion.images import Samples, check_images

ZOOM = 3
"""Screen pixels per pixel, for images smaller than `SMALL`; others are shown at their size."""
SMALL = 32
GAP = 6
TEXT = 13
"""Pixel rows for the score under an image."""
LEFT = 84
"""Pixel columns for the condition and its mean score."""
HEAD = 30
"""Pixel rows for the title."""
BACKGROUND, FOREGROUND = "#ffffff", "#222222"
LOW, HIGH = np.array([213, 94, 0]), np.array([0, 114, 178])
"""Colours of the lowest and the highest score: of Okabe and Ito's palette, which colour-blind readers can distinguish."""


def grid(samples: Samples, *, columns: int = 10, title: str = "") -> Image.Image:
    """One row per condition: the condition, the mean score of all its samples, then its first `columns` samples."""
    return side_by_side({title: samples}, columns=columns)


def side_by_side(groups: Mapping[str, Samples], *, columns: int = 10) -> Image.Image:
    """Groups of samples next to each other, such as before and after: each with a title, conditions in the same row.

    Main arguments:
        groups: samples by title, at least one; all must show the same conditions.
    """
    require(len(groups) > 0, "groups: at least one group of samples is needed")
    require(columns >= 1, f"columns: must be at least 1, not {columns}")
    rows = [_check(title, samples) for title, samples in groups.items()]
    require(all(row == rows[0] for row in rows), f"groups: all must show the same conditions, not {rows}")
    low, high = _score_range([samples.scores for samples in groups.values()])
    panels = [_panel(title, samples, rows[0], columns, low, high) for title, samples in groups.items()]
    width = sum(panel.width for panel in panels) + 2 * GAP * (len(panels) - 1)
    sheet = Image.new("RGB", (width, panels[0].height), BACKGROUND)
    left = 0
    for panel in panels:
        sheet.paste(panel, (left, 0))
        left += panel.width + 2 * GAP
    return sheet


def save_png(image: Image.Image, file: Path | str) -> None:
    """Writes a PNG atomically; equal images give equal bytes."""
    content = io.BytesIO()
    image.save(content, format="PNG", optimize=True)
    write_atomically(Path(file), content.getvalue())


def _check(title: str, samples: Samples) -> list[int | str]:
    """The conditions of a group; raises unless its shapes agree."""
    images, conditions, scores = samples
    check_images(images)
    require(
        len(images) == len(conditions) == len(scores),
        f"{title or 'samples'}: {len(images)} images need as many conditions and scores, not {len(conditions)} and "
        f"{len(scores)}",
    )
    return np.unique(conditions).tolist()


def _score_range(scores: Sequence[np.ndarray]) -> tuple[float, float]:
    """The scores with the two end colours: 0 and 1 if all lie between, otherwise the smallest and the largest."""
    values = np.concatenate(scores)
    low, high = float(values.min()), float(values.max())
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, max(high, low + 1e-9))


def _panel(
    title: str, samples: Samples, rows: Sequence[int | str], columns: int, low: float, high: float
) -> Image.Image:
    size = samples.images.shape[-1] * _zoom(samples.images.shape[-1])
    across, down = size + GAP, size + TEXT + GAP
    panel = Image.new("RGB", (LEFT + columns * across, HEAD + len(rows) * down), BACKGROUND)
    draw = ImageDraw.Draw(panel)
    large, small = ImageFont.load_default(17), ImageFont.load_default(11)
    scored = bool(np.isfinite(samples.scores).all())
    mean = f"{title + ': ' if title else ''}mean score {samples.scores.mean():.3f}" if scored else title
    draw.text((LEFT, HEAD / 2), mean, fill=FOREGROUND, font=large, anchor="lm")
    for i, condition in enumerate(rows):
        top, chosen = HEAD + i * down, np.flatnonzero(samples.conditions == condition)
        name, average = str(condition), f"{samples.scores[chosen].mean():.2f}"
        one, other = (0.5, 0.5) if len(name) == 1 else (0.3, 0.7)  # a word and its score need two lines
        font = ImageFont.load_default(26 if len(name) == 1 else 11)
        draw.text((GAP, top + one * size), name, FOREGROUND, font, anchor="lm")
        if scored:
            draw.text((LEFT - 2 * GAP, top + other * size), average, FOREGROUND, large, anchor="rm")
        for j, index in enumerate(chosen[:columns]):
            left, score = LEFT + j * across, float(samples.scores[index])
            panel.paste(_enlarged(samples.images[index]), (left, top))
            if scored:
                colour = _colour((score - low) / (high - low))
                draw.text((left + size / 2, top + size + 1), f"{score:.2f}", colour, small, anchor="ma")
    return panel


def _enlarged(image: np.ndarray) -> Image.Image:
    """An image [1 or 3, size, size] at its size on the screen."""
    pixels = np.round(255 * image).astype(np.uint8)
    plain = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    zoom = _zoom(plain.width)
    return plain.resize((zoom * plain.width, zoom * plain.height), Image.Resampling.NEAREST)


def _zoom(size: int) -> int:
    return ZOOM if size < SMALL else 1


def _colour(fraction: float) -> tuple[int, int, int]:
    """Between `LOW` and `HIGH`.

    >>> _colour(0.0), _colour(1.0)
    ((213, 94, 0), (0, 114, 178))
    """
    red, green, blue = (round(float(value)) for value in LOW + np.clip(fraction, 0, 1) * (HIGH - LOW))
    return red, green, blue

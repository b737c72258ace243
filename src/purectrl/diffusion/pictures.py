"""Pictures of samples: a row for each class, a score under each image; two models side by side."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from purectrl.core.errors import require
from purectrl.diffusion.rewards.reward import check_images

ZOOM = 3
"""Screen pixels a pixel, for images that are smaller than `SMALL`; others are shown as they are."""
SMALL = 32
GAP = 6
TEXT = 13
"""Rows for the score under an image."""
LEFT = 84
"""Columns for the class and its mean score."""
HEAD = 30
"""Rows for the title."""
PAPER, INK, GREY = "#ffffff", "#222222", "#777777"
LOW, HIGH = np.array([213, 94, 0]), np.array([0, 114, 178])
"""Colours of the worst and the best score: of Okabe and Ito's palette, which colour-blind readers can tell apart."""


class Samples(NamedTuple):
    """Images, what was asked for, and what they were worth."""

    images: np.ndarray
    """[n, 1 or 3, size, size] in [0, 1]."""
    classes: np.ndarray
    """Integers or words [n]."""
    scores: np.ndarray
    """[n]."""


def spread_within(images: np.ndarray, classes: np.ndarray) -> float:
    """The standard deviation of a pixel among images [n, ...] of one class [n], averaged over pixels and classes."""
    groups = [images[classes == c] for c in np.unique(classes)]
    require(min(map(len, groups)) >= 2, "classes: at least two images of each class are needed to tell them apart")
    return float(np.mean([group.std(axis=0, ddof=1).mean() for group in groups]))


def by_class(
    images: np.ndarray, classes: np.ndarray, scores: np.ndarray, *, columns: int = 10, title: str = ""
) -> Image.Image:
    """One row a class: the class, the mean score of all its samples, then the first `columns` of them with theirs."""
    return side_by_side({title: Samples(images, classes, scores)}, columns=columns)


def side_by_side(groups: Mapping[str, Samples], *, columns: int = 10) -> Image.Image:
    """Groups of samples next to each other, such as before and after: each with a title, classes in the same row.

    Main arguments:
        groups: samples by title, at least one; all must show the same classes.
    """
    require(len(groups) > 0, "groups: at least one group of samples")
    require(columns >= 1, f"columns: at least 1, not {columns}")
    rows = [_check(title, samples) for title, samples in groups.items()]
    require(all(row == rows[0] for row in rows), f"groups: all must show the same classes, not {rows}")
    low, high = _span([samples.scores for samples in groups.values()])
    panels = [_panel(title, samples, rows[0], columns, low, high) for title, samples in groups.items()]
    sheet = Image.new("RGB", (sum(p.width for p in panels) + 2 * GAP * (len(panels) - 1), panels[0].height), PAPER)
    left = 0
    for panel in panels:
        sheet.paste(panel, (left, 0))
        left += panel.width + 2 * GAP
    return sheet


def save(picture: Image.Image, file: Path | str) -> None:
    """Writes a PNG, whole or not at all; the same picture gives the same bytes."""
    content = io.BytesIO()
    picture.save(content, format="PNG", optimize=True)
    temporary = Path(file).with_name(f".{Path(file).name}.part")
    temporary.write_bytes(content.getvalue())
    temporary.replace(file)


def _check(title: str, samples: Samples) -> list[int | str]:
    """The classes of a group, after a look at its shapes."""
    images, classes, scores = samples
    check_images(images)
    require(
        len(images) == len(classes) == len(scores),
        f"{title or 'samples'}: {len(images)} images, {len(classes)} classes and {len(scores)} scores do not go together",
    )
    return np.unique(classes).tolist()


def _span(scores: Sequence[np.ndarray]) -> tuple[float, float]:
    """The scores that get the two end colours: 0 and 1 if all lie between, or the ends of what there is."""
    everything = np.concatenate(scores)
    low, high = float(everything.min()), float(everything.max())
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, max(high, low + 1e-9))


def _panel(
    title: str, samples: Samples, rows: Sequence[int | str], columns: int, low: float, high: float
) -> Image.Image:
    size = samples.images.shape[-1] * _zoom(samples.images.shape[-1])
    across, down = size + GAP, size + TEXT + GAP
    panel = Image.new("RGB", (LEFT + columns * across, HEAD + len(rows) * down), PAPER)
    draw = ImageDraw.Draw(panel)
    large, small = ImageFont.load_default(17), ImageFont.load_default(11)
    mean = f"{title + ': ' if title else ''}mean score {samples.scores.mean():.3f}"
    draw.text((LEFT, HEAD / 2), mean, fill=INK, font=large, anchor="lm")
    for i, c in enumerate(rows):
        top, chosen = HEAD + i * down, np.flatnonzero(samples.classes == c)
        name, average = str(c), f"{samples.scores[chosen].mean():.2f}"
        one, other = (0.5, 0.5) if len(name) == 1 else (0.3, 0.7)  # a word and its score need two lines
        draw.text((GAP, top + one * size), name, INK, ImageFont.load_default(26 if len(name) == 1 else 11), anchor="lm")
        draw.text((LEFT - 2 * GAP, top + other * size), average, INK, large, anchor="rm")
        for j, index in enumerate(chosen[:columns]):
            left, score = LEFT + j * across, float(samples.scores[index])
            panel.paste(_enlarged(samples.images[index]), (left, top))
            colour = _colour((score - low) / (high - low))
            draw.text((left + size / 2, top + size + 1), f"{score:.2f}", colour, small, anchor="ma")
    return panel


def _enlarged(image: np.ndarray) -> Image.Image:
    """The picture of [1 or 3, size, size]."""
    pixels = np.round(255 * image).astype(np.uint8)
    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    zoom = _zoom(picture.width)
    return picture.resize((zoom * picture.width, zoom * picture.height), Image.Resampling.NEAREST)


def _zoom(size: int) -> int:
    return ZOOM if size < SMALL else 1


def _colour(share: float) -> tuple[int, int, int]:
    """Between `LOW` and `HIGH`.

    >>> _colour(0.0), _colour(1.0)
    ((213, 94, 0), (0, 114, 178))
    """
    red, green, blue = (round(float(value)) for value in LOW + np.clip(share, 0, 1) * (HIGH - LOW))
    return red, green, blue

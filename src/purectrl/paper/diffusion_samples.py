"""Images before and after fine-tuning, side by side: the same noise for every model, a row per class."""

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from purectrl.core.errors import StoreError
from purectrl.core.io import open_tensors, subdirectory
from purectrl.paper.figures import Axes, Figure, panels
from purectrl.paper.item import Group, Item
from purectrl.paper.load import Runs
from purectrl.paper.results import Analysis, Check, Table

SHOWN = 5
"""Images per class."""
GAP_X, GAP_Y = 2, 5
"""Pixels between two images, and between two rows, where the scores are."""


def item() -> Item:
    """Images of the pretrained model and of both fine-tuned ones, from the same noise."""
    return Item(
        "diffusion-samples",
        "Samples before and after fine-tuning with SEIKO and with PURE_SEIKO, side by side",
        analyze,
        draw,
        (
            Group("seiko", "SEIKO", "digits", "seiko", home="diffusion-main/seiko"),
            Group("pure-seiko", "PURE_SEIKO", "digits", "pure-seiko", home="diffusion-main/pure-seiko"),
        ),
        seeds=1,
        quick=1,
        cost="a quarter of an hour on two cores, seconds after diffusion-main",
    )


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """The first images of each class from `media/samples.safetensors` of the first seed, and their scores."""
    samples = {
        runs.group.label: read_samples(subdirectory(runs.paths[0], "media") / "samples.safetensors")
        for runs in found.values()
    }
    first = next(iter(samples.values()))
    models = {"pretrained": (first["before"], first["before_scores"])}
    models |= {label: (kept["after"], kept["after_scores"]) for label, kept in samples.items()}
    classes = np.unique(first["classes"])
    of_class = [first["classes"] == c for c in classes]
    rows = {
        label: {
            "sheet": contact_sheet([images[chosen][:SHOWN] for chosen in of_class]),
            "scores": [np.round(scores[chosen][:SHOWN], 2).tolist() for chosen in of_class],
            "mean": [float(scores[chosen].mean()) for chosen in of_class],
        }
        for label, (images, scores) in models.items()
    }
    numbers = {"classes": classes.tolist(), "models": rows, "size": int(first["before"].shape[-1])}
    means = {label: float(np.mean(row["mean"])) for label, row in rows.items()}
    check = Check(
        "every fine-tuned model's images score higher than the pretrained model's, from the same noise",
        ", ".join(f"{label} {value:.3f}" for label, value in means.items()),
        all(means[label] > means["pretrained"] for label in samples),
    )
    by_class = tuple(zip(classes.tolist(), *(row["mean"] for row in rows.values()), strict=True))
    return Analysis(numbers, Table(("class", *models), by_class), (check,))


def read_samples(file: Path) -> dict[str, np.ndarray]:
    """The images of a run: before, after [n, 1, size, size] bytes, their scores [n] and classes [n]."""
    try:
        with open_tensors(file) as (tensors, _):
            names = ("before", "after", "before_scores", "after_scores", "classes")
            return {name: tensors.get_tensor(name) for name in names}
    except StoreError as error:
        raise StoreError(f"{file} does not hold the samples of a run ({error}); run the item again") from None


def contact_sheet(rows: list[np.ndarray]) -> str:
    """A PNG in base64 with a row of images [n, 1, size, size] per class."""
    from PIL import Image

    size = rows[0].shape[-1]
    step_x, step_y = size + GAP_X, size + GAP_Y
    pixels = np.full((len(rows) * step_y, SHOWN * step_x), 255, np.uint8)
    for i, images in enumerate(rows):
        for j, image in enumerate(images):
            pixels[i * step_y : i * step_y + size, j * step_x : j * step_x + size] = image[0]
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, format="PNG", optimize=True)
    return base64.b64encode(content.getvalue()).decode()


def draw(numbers: Mapping[str, Any]) -> Figure:
    """A panel per model."""
    with panels(len(numbers["models"]), height=7.2) as (figure, axes):
        for panel, (label, row) in zip(axes, numbers["models"].items(), strict=True):
            _draw_model(panel, label, row, numbers)
    return figure


def _draw_model(axes: Axes, label: str, row: Mapping[str, Any], numbers: Mapping[str, Any]) -> None:
    from PIL import Image

    size, classes = numbers["size"], numbers["classes"]
    step_x, step_y = size + GAP_X, size + GAP_Y
    axes.imshow(Image.open(io.BytesIO(base64.b64decode(row["sheet"]))), cmap="gray", interpolation="nearest")
    for i, scores in enumerate(row["scores"]):
        for j, score in enumerate(scores):
            x, y = j * step_x + size / 2, i * step_y + size + GAP_Y / 2 - 0.5
            axes.text(x, y, f"{score:.2f}", fontsize=7.5, ha="center", va="center")
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_xticks([])
    rows = [f"{c}: {value:.2f}" for c, value in zip(classes, row["mean"], strict=True)]
    axes.set_yticks([i * step_y + size / 2 for i in range(len(classes))], rows)
    axes.tick_params(length=0)
    axes.set_title(f"{label}, mean score {np.mean(row['mean']):.2f}")

"""Images before and after fine-tuning, side by side: the same noise for every model, a row for each class."""

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from safetensors.numpy import load_file

from purectrl.core.errors import StoreError
from purectrl.report.figures import panels
from purectrl.report.findings import Findings, Mark, Table
from purectrl.report.reading import Runs

SHOWN = 5
"""Images of each class."""
ACROSS, DOWN = 2, 5
"""Pixels between two images, and between two rows, where the scores are."""


def analyse(found: Sequence[Runs], computed: Mapping[str, Any]) -> Findings:
    """The first images of each class from `media/samples.safetensors` of the first seed, and their scores."""
    kept = {runs.group.label: read_samples(runs.places[0] / "media" / "samples.safetensors") for runs in found}
    first = next(iter(kept.values()))
    models = {"pretrained": (first["before"], first["before_scores"])}
    models |= {label: (samples["after"], samples["after_scores"]) for label, samples in kept.items()}
    classes = first["classes"]
    rows = {
        label: {
            "sheet": sheet(images, classes),
            "scores": [np.round(scores[classes == c][:SHOWN], 2).tolist() for c in np.unique(classes)],
            "mean": [float(scores[classes == c].mean()) for c in np.unique(classes)],
        }
        for label, (images, scores) in models.items()
    }
    numbers = {"classes": np.unique(classes).tolist(), "models": rows, "size": int(first["before"].shape[-1])}
    means = {label: float(np.mean(row["mean"])) for label, row in rows.items()}
    mark = Mark(
        "every tuned model's images score more than the pretrained model's, from the same noise",
        ", ".join(f"{label} {value:.3f}" for label, value in means.items()),
        all(means[label] > means["pretrained"] for label in kept),
    )
    columns = ("class", *models)
    table = tuple(
        (c, *(row["mean"][number] for row in rows.values())) for number, c in enumerate(numbers["classes"])
    )  # fmt: skip
    return Findings(numbers, Table(columns, table), (mark,))


def read_samples(file: Path) -> dict[str, np.ndarray]:
    """What a run leaves of its images: before, after [n, 1, size, size] bytes, their scores [n] and classes [n]."""
    try:
        found = load_file(file)
        return {name: found[name] for name in ("before", "after", "before_scores", "after_scores", "classes")}
    except (OSError, KeyError, safetensors.SafetensorError) as error:
        raise StoreError(f"{file} does not hold the samples of a run ({error}); run the item again") from None


def sheet(images: np.ndarray, classes: np.ndarray) -> str:
    """A PNG in base64: a row for each class, the first images of it side by side."""
    size = images.shape[-1]
    across, down = size + ACROSS, size + DOWN
    rows = np.unique(classes)
    pixels = np.full((len(rows) * down, SHOWN * across), 255, np.uint8)
    for i, c in enumerate(rows):
        for j, image in enumerate(images[classes == c][:SHOWN]):
            pixels[i * down : i * down + size, j * across : j * across + size] = image[0]
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, format="PNG", optimize=True)
    return base64.b64encode(content.getvalue()).decode()


def draw(numbers: Mapping[str, Any]) -> Figure:
    """A panel for each model."""
    with panels(len(numbers["models"]), height=7.2) as (figure, axes):
        for panel, (label, row) in zip(axes, numbers["models"].items(), strict=True):
            _draw_model(panel, label, row, numbers)
    return figure


def _draw_model(axes: Axes, label: str, row: Mapping[str, Any], numbers: Mapping[str, Any]) -> None:
    size, classes = numbers["size"], numbers["classes"]
    across, down = size + ACROSS, size + DOWN
    axes.imshow(Image.open(io.BytesIO(base64.b64decode(row["sheet"]))), cmap="gray", interpolation="nearest")
    for i, scores in enumerate(row["scores"]):
        for j, score in enumerate(scores):
            axes.text(
                j * across + size / 2,
                i * down + size + DOWN / 2 - 0.5,
                f"{score:.2f}",
                fontsize=7.5,
                ha="center",
                va="center",
            )
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_xticks([])
    rows = [f"{c}: {value:.2f}" for c, value in zip(classes, row["mean"], strict=True)]
    axes.set_yticks([i * down + size / 2 for i in range(len(classes))], rows)
    axes.tick_params(length=0)
    axes.set_title(f"{label}, mean score {np.mean(row['mean']):.2f}")

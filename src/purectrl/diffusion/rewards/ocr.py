"""Legibility: the probability that a text recogniser reads the condition in the image. A black box without gradient.

The recogniser is PP-OCR's, which `rapidocr-onnxruntime` contains as an ONNX file. It is applied to the whole image as one
line of text, without text detection.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from purectrl.core.errors import InputError, StoreError, require
from purectrl.diffusion.rewards.reward import Condition

HEIGHT = 48
"""Pixel rows of the recogniser's input."""
BATCH_SIZE = 8
"""Images per call of the recogniser: the fastest size; scores do not depend on it."""


class Legibility:
    """`(images, conditions) -> scores`: the probability that each image is read as exactly its condition.

    A class is read as its number, a prompt as the text itself. Noise scores about 0; a query takes milliseconds.

    Main arguments:
        model: the ONNX file of a PP-OCR recogniser; by default the one of `rapidocr-onnxruntime`.
        inverted: whether the text is light on a dark background; the recogniser expects dark on light.

    Other arguments:
        stretch: horizontal scale of the recogniser's input. At 5/6 it reads real digits best.
        threads: CPU threads of the recogniser.
    """

    def __init__(
        self, model: Path | str | None = None, *, inverted: bool = True, stretch: float = 5 / 6, threads: int = 1
    ) -> None:
        require(stretch > 0, f"stretch: must be more than 0, not {stretch}")
        self._session = _session(Path(model) if model is not None else recogniser(), threads)
        self._input = self._session.get_inputs()[0].name
        self._characters = _alphabet(self._session)
        self._inverted, self._stretch = inverted, stretch

    def __call__(self, images: np.ndarray, conditions: Sequence[Condition]) -> np.ndarray:
        """images [n, 1 or 3, h, w] in [0, 1], n conditions -> scores [n] in [0, 1]."""
        targets = [self._spell(condition) for condition in conditions]
        read = [self._read(images[i : i + BATCH_SIZE]) for i in range(0, len(images), BATCH_SIZE)]
        return np.array([ctc_probability(text, row) for text, row in zip(targets, np.concatenate(read), strict=True)])

    def _spell(self, condition: Condition) -> list[int]:
        """The indices of the characters of a condition in the recogniser's output."""
        unknown = [character for character in str(condition) if character not in self._characters]
        if unknown or not str(condition):
            raise InputError(f"conditions: the recogniser cannot read {condition!r}: it does not know {unknown}")
        return [self._characters[character] for character in str(condition)]

    def _read(self, images: np.ndarray) -> np.ndarray:
        """images [n, c, h, w] -> probabilities [n, positions, characters]."""
        n, channels, height, width = images.shape
        require(channels in (1, 3), f"images: must have 1 or 3 channels, not {channels}")
        shape = (HEIGHT, max(1, round(HEIGHT * self._stretch * width / height)))
        light = torch.from_numpy(1 - images if self._inverted else images)
        large = torch.nn.functional.interpolate(light, shape, mode="bicubic").clamp(0, 1)
        pixels = (2 * large - 1).expand(n, 3, *shape).contiguous().numpy()
        return self._session.run(None, {self._input: pixels})[0]


def ctc_probability(text: Sequence[int], probabilities: np.ndarray) -> float:
    """The probability that `text` is read, summed over all its alignments with the positions (CTC).

    Main arguments:
        text: indices of the characters, at least one; 0 is the blank.
        probabilities: [positions, characters].

    >>> probabilities = np.array([[0.5, 0.5], [0.5, 0.5]])
    >>> ctc_probability([1], probabilities)  # all alignments but two blanks
    0.75
    """
    states = np.zeros(2 * len(text) + 1, int)  # blank, first character, blank, second, ..., blank
    states[1::2] = text
    skips = np.zeros(len(states), bool)  # the blank between two different characters is optional
    skips[2:] = (states[2:] != 0) & (states[2:] != states[:-2])
    reached = np.zeros(len(states))
    reached[:2] = probabilities[0, states[:2]]
    for row in probabilities[1:]:
        one, two = np.roll(reached, 1), np.roll(reached, 2)
        one[0] = 0
        reached = (reached + one + skips * two) * row[states]
    return float(reached[-2:].sum())


def recogniser() -> Path:
    """The ONNX file of `rapidocr-onnxruntime`. The package is not imported, since it loads OpenCV."""
    package = importlib.util.find_spec("rapidocr_onnxruntime")
    if package is None or not package.submodule_search_locations:
        raise InputError(
            "the text recogniser is part of rapidocr-onnxruntime: pip install -c constraints.txt '.[diffusion]'"
        )
    folder = Path(package.submodule_search_locations[0])
    files = sorted((folder / "models").glob("*rec*.onnx"))
    if not files:
        raise StoreError(f"{folder} has no recogniser; reinstall rapidocr-onnxruntime")
    return files[0]


def _session(file: Path, threads: int) -> Any:
    import onnxruntime

    if not file.is_file():
        raise StoreError(f"model: {file} does not exist; by default the recogniser of rapidocr-onnxruntime is used")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common type
        raise StoreError(f"model: {file} is damaged or not an ONNX file: {error}") from None


def _alphabet(session: Any) -> dict[str, int]:
    """The index of each character in the recogniser's output; index 0 is the blank."""
    characters = session.get_modelmeta().custom_metadata_map.get("character")
    require(characters is not None, "model: the ONNX file has no list of characters")
    return {character: index for index, character in enumerate([*characters.split("\n"), " "], 1)}

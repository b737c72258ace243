"""Legibility: the probability that a text recogniser reads what was asked for. A black box without gradient.

The recogniser is PP-OCR's, which `rapidocr-onnxruntime` carries as an ONNX file. It is asked directly, on one line of text
that is the whole image; finding the text first would only get in the way.
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
"""Rows that the recogniser takes."""
BATCH = 8
"""Images a call of the recogniser: fewer or more are slower, and the scores are the same."""


class Legibility:
    """`(images, conditions) -> scores`: the probability that each image is read as its condition, and as nothing else.

    A class is asked for as its number, a prompt as the text itself. Noise gets nothing; a query takes milliseconds.

    Main arguments:
        model: the ONNX file of a PP-OCR recogniser; without it, the one that `rapidocr-onnxruntime` carries.
        inverted: whether the writing is light on a dark ground; the recogniser expects dark on light.

    Other arguments:
        stretch: how much wider the recogniser sees the image. At 5/6 it reads real digits best, and a sixth faster.
        threads: of the recogniser.
    """

    def __init__(
        self, model: Path | str | None = None, *, inverted: bool = True, stretch: float = 5 / 6, threads: int = 1
    ) -> None:
        require(stretch > 0, f"stretch: more than 0, not {stretch}")
        self._session = _session(Path(model) if model is not None else recogniser(), threads)
        self._input = self._session.get_inputs()[0].name
        self._places = _alphabet(self._session)
        self._inverted, self._stretch = inverted, stretch

    def __call__(self, images: np.ndarray, conditions: Sequence[Condition]) -> np.ndarray:
        """images [n, 1 or 3, h, w] in [0, 1], n conditions -> scores [n] in [0, 1]."""
        wanted = [self._spell(condition) for condition in conditions]
        read = [self._read(images[i : i + BATCH]) for i in range(0, len(images), BATCH)]
        return np.array([probability(text, row) for text, row in zip(wanted, np.concatenate(read), strict=True)])

    def _spell(self, condition: Condition) -> list[int]:
        """Where the characters of a condition stand in the recogniser's answer."""
        unknown = [character for character in str(condition) if character not in self._places]
        if unknown or not str(condition):
            raise InputError(
                f"conditions: the recogniser cannot be asked for {condition!r}: it does not know {unknown}"
            )
        return [self._places[character] for character in str(condition)]

    def _read(self, images: np.ndarray) -> np.ndarray:
        """images [n, c, h, w] -> probabilities [n, places from left to right, characters]."""
        n, channels, height, width = images.shape
        require(channels in (1, 3), f"images: 1 or 3 channels, not {channels}")
        shape = (HEIGHT, max(1, round(HEIGHT * self._stretch * width / height)))
        light = torch.from_numpy(1 - images if self._inverted else images)
        large = torch.nn.functional.interpolate(light, shape, mode="bicubic").clamp(0, 1)
        pixels = (2 * large - 1).expand(n, 3, *shape).contiguous().numpy()
        return self._session.run(None, {self._input: pixels})[0]


def probability(text: Sequence[int], chances: np.ndarray) -> float:
    """The probability that `text` is read, summed over all ways to lay it along the places (CTC).

    Main arguments:
        text: which characters, at least one; 0 stands for "nothing here" and is none.
        chances: [places, characters].

    >>> chances = np.array([[0.5, 0.5], [0.5, 0.5]])
    >>> probability([1], chances)  # 1 and nothing, nothing and 1, 1 and 1: all but nothing at all
    0.75
    """
    states = np.zeros(2 * len(text) + 1, int)  # nothing, first character, nothing, second, ..., nothing
    states[1::2] = text
    skips = np.zeros(len(states), bool)  # between two different characters there may be nothing, or not even that
    skips[2:] = (states[2:] != 0) & (states[2:] != states[:-2])
    reached = np.zeros(len(states))
    reached[:2] = chances[0, states[:2]]
    for row in chances[1:]:
        one, two = np.roll(reached, 1), np.roll(reached, 2)
        one[0] = 0
        reached = (reached + one + skips * two) * row[states]
    return float(reached[-2:].sum())


def recogniser() -> Path:
    """The ONNX file that `rapidocr-onnxruntime` carries. The package is not imported: it would load OpenCV."""
    package = importlib.util.find_spec("rapidocr_onnxruntime")
    if package is None or not package.submodule_search_locations:
        raise InputError(
            "the text recogniser comes with rapidocr-onnxruntime: pip install -c constraints.txt '.[diffusion]'"
        )
    folder = Path(package.submodule_search_locations[0])
    files = sorted((folder / "models").glob("*rec*.onnx"))
    if not files:
        raise StoreError(f"{folder} carries no recogniser; reinstall rapidocr-onnxruntime")
    return files[0]


def _session(file: Path, threads: int) -> Any:
    import onnxruntime

    if not file.is_file():
        raise StoreError(f"model: {file} does not exist; without it the recogniser of rapidocr-onnxruntime is taken")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common class
        raise StoreError(f"model: {file} is damaged, or no ONNX file: {error}") from None


def _alphabet(session: Any) -> dict[str, int]:
    """Where each character stands in the recogniser's answer; place 0 says "nothing here"."""
    characters = session.get_modelmeta().custom_metadata_map.get("character")
    require(characters is not None, "model: the ONNX file does not say which characters it reads")
    return {character: place for place, character in enumerate([*characters.split("\n"), " "], 1)}

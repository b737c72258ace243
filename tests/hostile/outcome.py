"""What a run leaves, without timings, so that an interrupted run can be compared with an uninterrupted one bit for bit."""

import hashlib
import json
from pathlib import Path

import safetensors

from purectrl.runs.episodes import EPISODES, EVALUATION


def without_seconds(value):
    """The same JSON value without every key that ends in "seconds"."""
    if isinstance(value, dict):
        return {key: without_seconds(item) for key, item in value.items() if not key.endswith("seconds")}
    return [without_seconds(item) for item in value] if isinstance(value, list) else value


def outcome(directory: Path) -> dict:
    """Summary and records without timings, and every tensor of the policy and of the last checkpoint as a checksum.

    Where checkpoints and data shards begin depends on timings, so that the data of both are joined first.
    """
    summary = json.loads((directory / "summary.json").read_text())
    for name in ("checksum", "checksums"):  # of files with timings in them
        del summary[name]
    lines = (directory / "records.jsonl").read_text().splitlines()
    newest = max((directory / "checkpoint").glob("[0-9]*.safetensors"))
    state, content = _tensors(newest)
    for name in [name for name in state if name.startswith("data.")]:
        shards = [_tensors(directory / "data" / f"{shard[0]:012d}.safetensors")[0] for shard in content["shards"]]
        state[name] = _join([shard[name.removeprefix("data.")] for shard in shards] + [state[name]])
    return {
        "summary": without_seconds(summary),
        "records": [without_seconds(json.loads(line)) for line in lines],
        "policy": {
            str(path.relative_to(directory)): _policy(path)
            for path in sorted((directory / "policy").rglob("*"))
            if path.is_file()
        },
        "checkpoint": newest.name,
        "state": {name: _checksum(array) for name, array in state.items()},
        "scalars": without_seconds(content["state"]),
    }


def outcomes(directory: Path) -> dict:
    """The outcome of every run in or below `directory`, by path."""
    places = sorted(path.parent for path in directory.rglob("summary.json"))
    return {str(place.relative_to(directory)): outcome(place) for place in places}


def difference(found: dict, expected: dict) -> str | None:
    """The first part in which two outcomes differ; None if they are equal."""
    for name in sorted({*found, *expected}, key=str):
        one, other = found.get(name), expected.get(name)
        if one != other:
            if isinstance(one, dict) and isinstance(other, dict):
                return f"{name}.{difference(one, other)}"
            if isinstance(one, list) and isinstance(other, list):
                return f"{name}.{difference(dict(enumerate(one)), dict(enumerate(other)))}"
            return f"{name}: {one!r:.120} instead of {other!r:.120}"
    return None


def leftovers(directory: Path) -> list[str]:
    """Files and directories in a finished run that no finished run has."""
    known = {
        "config.json",
        "records.jsonl",
        "summary.json",
        "evaluation.json",
        "queries.jsonl",
        "evaluation.jsonl",
        EPISODES,
        EVALUATION,
        ".lock",
    }
    folders = {"checkpoint", "policy", "data", "media"}
    found = []
    for path in directory.rglob("*"):
        parts = path.relative_to(directory).parts
        temporary = path.name.startswith(".") and path.name != ".lock"
        if temporary or (len(parts) == 1 and path.name not in known | folders):
            found.append("/".join(parts))
    return found


def _policy(file: Path) -> dict | str:
    """A file of the policy. The bytes of a safetensors file differ between two equal runs, because the library writes its
    metadata in any order."""
    if file.suffix != ".safetensors":
        return hashlib.blake2b(file.read_bytes(), digest_size=12).hexdigest()
    arrays, content = _tensors(file)
    return {"plan": content.get("plan"), **{name: _checksum(array) for name, array in arrays.items()}}


def _tensors(file: Path):
    with safetensors.safe_open(file, framework="numpy") as opened:
        arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        return arrays, json.loads((opened.metadata() or {}).get("content", "{}"))


def _join(parts):
    import numpy as np

    return np.concatenate(parts)


def _checksum(array) -> str:
    return f"{array.dtype} {list(array.shape)} {hashlib.blake2b(array.tobytes(), digest_size=12).hexdigest()}"

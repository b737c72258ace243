"""Curves of fine-tuning runs: what the evaluation after each update found, and what had been spent until then."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from purectrl.core.errors import StoreError
from purectrl.paper.load import Runs

SPENT: Mapping[str, str] = {
    "labels": "measurements",
    "queries": "queries",
    "trajectories": "rollouts",
    "seconds": "seconds",
}
"""What is spent, and its column in the records."""
FOUND: Mapping[str, str] = {
    "reward": "eval_reward",
    "held-out classes": "eval_reward_held_out",
    "classifier accuracy": "eval_classifier_accuracy",
    "diversity": "eval_diversity",
    "KL": "eval_kl_pretrained",
}
"""What an evaluation finds, and its column in the records."""
Curve = dict[str, list[float]]
"""Each of `SPENT` and `FOUND` at every update."""


def curves(runs: Runs) -> list[Curve]:
    """The curve of every run."""
    return [curve(records, str(path)) for path, records in zip(runs.paths, runs.records(), strict=True)]


def curve(records: Sequence[Mapping[str, Any]], path: str) -> Curve:
    """The curve of a run from its records; queries are counted per step, everything else from the beginning."""
    found: Curve = {name: [] for name in (*SPENT, *FOUND)}
    queries = 0.0
    for record in records:
        queries += record.get("queries", 0)
        if FOUND["reward"] not in record:
            continue
        try:
            row = {name: queries if name == "queries" else record[column] for name, column in SPENT.items()}
            row |= {name: record[column] for name, column in FOUND.items()}
        except KeyError as error:
            raise StoreError(f"{path}/records.jsonl lacks {error}; run the item again") from None
        for name, value in row.items():
            found[name].append(float(value))
    if not found["reward"]:
        raise StoreError(f"{path}/records.jsonl has no evaluation; run the item again")
    return found


def mean_curve(found: Sequence[Curve]) -> Curve:
    """The mean over runs that were updated equally often, and the standard error of their reward."""
    mean = {name: np.mean([one[name] for one in found], axis=0).tolist() for name in found[0]}
    rewards = np.array([one["reward"] for one in found])
    error = rewards.std(axis=0, ddof=1) / len(rewards) ** 0.5 if len(rewards) > 1 else np.zeros(rewards.shape[1])
    return mean | {"standard error": error.tolist()}


def reward_at(found: Curve, spent: str, amounts: Sequence[float]) -> np.ndarray:
    """The reward of a run when it had spent these amounts [n]: linear in the logarithm between two updates, NaN before
    the first and after the last, but for 5 %: the number of distinct images is random.

    >>> curve = {"queries": [10.0, 1000.0], "reward": [0.5, 0.7]}
    >>> reward_at(curve, "queries", [1.0, 100.0, 1000.0, 1001.0, 1100.0]).round(3)
    array([nan, 0.6, 0.7, 0.7, nan])
    """
    x, at = np.log(found[spent]), np.log(amounts)
    near = np.clip(at, x[0], x[-1])
    return np.where(np.abs(at - near) <= np.log(1.05), np.interp(near, x, found["reward"]), np.nan)


def ahead(ours: Sequence[Curve], theirs: Sequence[Curve], spent: str) -> np.ndarray:
    """How far each of our runs is ahead of theirs with the same seed when both have spent the same [seeds, updates]; NaN
    where theirs has no reward."""
    pairs = zip(ours, theirs, strict=False)  # on the seeds that both have
    return np.array([np.array(one["reward"]) - reward_at(other, spent, one[spent]) for one, other in pairs])


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Mean over seeds and its standard error, which is 0 for one seed.

    >>> mean_and_error(np.array([1.0, 3.0]))
    (2.0, 1.0)
    """
    error = float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0
    return float(values.mean()), error

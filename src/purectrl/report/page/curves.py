"""Learning curves and measurement times, downsampled to what a screen can show.

A run can have a hundred thousand records. The rows that are kept are the first, the last, those with an update, and others
spaced evenly and logarithmically. A kept row also represents the rows that were dropped before it: rewards and
suboptimalities by their mean over episodes, excess losses by the largest, coverage by whether it held in all of them, and
every other column by its last known value.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from purectrl.report.page.records import TEXTS, Records

RESULT_COLUMNS = ("eval_return", "eval_reward", "average_gap", "reward")
"""The first of these columns that the runs of a problem have is its result, unless the problem names its result."""
COLUMN_LABELS: Mapping[str, str] = {
    "reward": "measured reward",
    "eval_reward": "evaluation reward",
    "eval_return": "evaluation return",
    "predicted_reward": "reward that the update promises",
    "asked_reward": "measured reward of final images",
    "promised_reward": "reward that the last update promised",
    "shortfall": "promised less measured reward",
    "divergence_pretrained": "divergence from the pretrained model (nats)",
    "divergence_previous": "divergence from the model before (nats)",
    "eval_classifier_accuracy": "second opinion: classifier accuracy",
    "eval_diversity": "diversity",
    "eval_kl_pretrained": "divergence from the pretrained model, evaluation (nats)",
    "gap": "suboptimality of the current policy",
    "average_gap": "average suboptimality (regret / rollouts)",
    "covered": "confidence sets contain the truth",
    "covered_so_far": "confidence sets have contained the truth so far",
    "excess_drift": "excess loss of the drift / β",
    "excess_reward": "excess loss of the reward / β",
    "eval_return_error": "standard error of the evaluation return",
    "imagined_reward": "reward imagined by the model",
    "promised": "reward promised for the last episode",
    "measured": "reward measured in it",
}
HEADLINE_METRICS = (
    "return", "return_error", "return_min", "reward", "reward_min", "solved", "criterion_met", "gap", "gap_last", "covered",
    "classifier_accuracy", "kl_pretrained",
)  # fmt: skip
"""The metrics of the overview, in this order. `solved` is shown of problems that do not state a criterion."""
METRIC_LABELS: Mapping[str, str] = {
    "gap": "suboptimality, average",
    "gap_last": "suboptimality, last",
    "covered": "always covered",
    "evaluation_rollouts": "evaluation episodes",
    "return_error": "standard error of the return",
    "return_min": "return, worst episode",
    "reward_min": "reward, smallest",
}
DECISIONS = 100
"""How many updates are listed, the newest."""
DECISION_COLUMNS = (
    "measurements", "rollouts", "updates", "promised", "measured", "imagined_reward", "eval_reward", "eval_return",
    "eval_return_error",
)  # fmt: skip
"""What is listed of each."""
BINS = 50
"""Bins of the histogram of measurement times."""
TICKS = 10_000
"""Measurement times are written as integer multiples of horizon / TICKS, which is finer than a screen."""


def learning_curves(records: Records, limit: int) -> dict[str, list[float | None]]:
    """The columns of the records by name, downsampled to at most `limit` rows.

    >>> gaps = {"episodes": np.ones(3), "rollouts": np.arange(1.0, 4.0), "gap": np.array([2.0, 1.0, 0.0])}
    >>> curves = learning_curves(Records(gaps, updated=np.zeros(3, int)), limit=2)
    >>> curves["rollouts"], curves["average_gap"]
    ([1, 3], [2, 1])
    """
    if not len(records):
        return {}
    rows = downsample(records.updated > 0, limit)
    starts = np.concatenate([[0], rows[:-1] + 1])
    curves: dict[str, list[float | None]] = {}
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is not drawn
        columns = {**records.columns, **_averages(records.columns)}
        for name, column in columns.items():
            values = AGGREGATES.get(name, _last_known)(column, columns["episodes"], starts, rows)
            curves[name] = [rounded(value) for value in values.tolist()]
    return curves | {"updated": np.bitwise_or.reduceat(records.updated, starts).tolist()}


def update_decisions(records: Records) -> list[dict[str, Any]]:
    """What the newest updates did: costs so far, which models, imagined and measured reward, and the learner's decision.
    Empty if the costs are all that is known.

    >>> columns = {"measurements": np.array([5.0, 9.0]), "rollouts": np.array([1.0, 2.0]), "updates": np.array([0.0, 1.0])}
    >>> update_decisions(Records(columns, np.array([0, 3]), {1: {"decision": "stop"}}))
    [{'measurements': 9, 'rollouts': 2, 'updates': 1, 'updated': 3, 'decision': 'stop'}]
    """
    rows = [row for row in range(len(records)) if records.updated[row] or row in records.texts]
    table = []
    for row in rows[-DECISIONS:]:
        numbers = {
            name: rounded(float(column[row])) for name, column in records.columns.items() if name in DECISION_COLUMNS
        }
        known = {name: numbers[name] for name in DECISION_COLUMNS if numbers.get(name) is not None}
        table.append({**known, "updated": int(records.updated[row]), **records.texts.get(row, {})})
    said = set(DECISION_COLUMNS[3:]) | set(TEXTS)
    return table if any(said & row.keys() for row in table) else []


def downsample(important: np.ndarray, limit: int) -> np.ndarray:
    """At most `limit` row indices: both ends, important rows while they fit, others spaced evenly and logarithmically.

    Main arguments:
        important: whether a row should be kept [records].

    >>> downsample(np.arange(1000) == 500, limit=5).tolist()
    [0, 32, 500, 999]
    """
    count = len(important)
    if count <= limit:
        return np.arange(count)
    kept = np.flatnonzero(important)
    if len(kept) > limit // 2:
        kept = kept[np.linspace(0, len(kept) - 1, limit // 2).round().astype(int)]
    room = max(limit - len(kept) - 2, 0) // 2
    fractions = (np.arange(room) + 1) / (room + 1)
    even, logarithmic = fractions * (count - 1), (count - 1) ** fractions
    return np.unique(np.concatenate([[0, count - 1], kept, even.round(), logarithmic.round()]).astype(int))


def _mean(column: np.ndarray, episodes: np.ndarray, starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    known = ~np.isnan(column)
    weights = np.add.reduceat(episodes * known, starts)
    total = np.add.reduceat(np.where(known, column * episodes, 0.0), starts)
    return np.divide(total, weights, out=np.full(len(rows), np.nan), where=weights > 0)


def _last_known(column: np.ndarray, episodes: np.ndarray, starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    newest = np.maximum.accumulate(np.where(np.isnan(column), -1, np.arange(len(column))))[rows]
    return np.where(newest >= starts, column[newest], np.nan)


AGGREGATES: Mapping[str, Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "reward": _mean,
    "gap": _mean,
    "excess_drift": lambda column, episodes, starts, rows: np.fmax.reduceat(column, starts),
    "excess_reward": lambda column, episodes, starts, rows: np.fmax.reduceat(column, starts),
    "covered": lambda column, episodes, starts, rows: np.fmin.reduceat(column, starts),
}
"""How a kept row represents the dropped rows before it; every other column uses `_last_known`."""


def _averages(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Averages since the start, which the theorems bound."""
    averages = {}
    episodes = columns["episodes"]
    if "gap" in columns and not np.isnan(columns["gap"]).any():
        averages["average_gap"] = np.cumsum(columns["gap"] * episodes) / np.cumsum(episodes)
    if "covered" in columns and not np.isnan(columns["covered"]).any():
        averages["covered_so_far"] = np.minimum.accumulate(columns["covered"])
    return averages


def rounded(value: float) -> float | None:
    """Six significant digits, None for NaN and infinities.

    >>> rounded(65536.0), rounded(0.123456789), rounded(float("nan"))
    (65536, 0.123457, None)
    """
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 1e15 else float(f"{value:.6g}")


def summarize_times(times: np.ndarray, horizon: float | None, limit: int) -> dict[str, Any]:
    """A histogram of all measurement times, and the times of some evenly spaced episodes.

    Main arguments:
        times: measurement times [episodes, m], NaN after the end of an episode.
        horizon: the length T of an episode; None takes the latest time.
        limit: how many times to write at most, but at least those of two episodes.

    >>> summary = summarize_times(np.array([[0.0, 1.0], [0.5, 2.0]]), horizon=2.0, limit=100)
    >>> summary["episodes"], summary["times"], sum(summary["histogram"])
    ([1, 2], [[0, 5000], [2500, 10000]], 4)
    """
    count, m = times.shape
    known = times[~np.isnan(times)]
    horizon = max(horizon or 0.0, float(known.max(initial=0.0)), 1e-9)
    shown = np.unique(np.linspace(0, count - 1, min(count, max(2, limit // m))).round().astype(int))
    histogram, _ = np.histogram(known, bins=BINS, range=(0.0, horizon))
    rows = (row[~np.isnan(row)] for row in times[shown])
    return {
        "horizon": horizon,
        "ticks": TICKS,
        "total": count,
        "m": m,
        "episodes": (shown + 1).tolist(),
        "times": [(row / horizon * TICKS).round().astype(int).tolist() for row in rows],
        "measured": len(known),
        "histogram": histogram.tolist(),
    }

"""SEIKO and PURE_SEIKO on the digits: rewards and costs at the same N."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from purectrl.core.errors import StoreError
from purectrl.core.io import MAX_LINES, read_bytes
from purectrl.paper.figures import Figure
from purectrl.paper.groups import Summary, draw_groups, not_worse, paired, scaled_minutes, summarize, tabulate
from purectrl.paper.item import Group, Item
from purectrl.paper.load import KEY, Runs
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import mean, mean_interval, ratio

REWARD = 0.8
"""The lowest reward on training classes."""
MAX_SECONDS = 300.0
"""The longest run of PURE_SEIKO."""
TIME_RATIO, EVALUATION_RATIO = 0.5, 0.5
"""The largest ratios to SEIKO's seconds and denoiser evaluations."""
PAPER: Mapping[str, tuple[float, float]] = {"PURE_SEIKO": (7.85, 15.2), "SEIKO": (7.54, 31.3)}
"""Aesthetic score and hours of the paper's plot, on Stable Diffusion: another reward, on another scale."""
METRICS = ("reward_held_out", "classifier_accuracy", "diversity", "kl_pretrained", "queries", "network_evaluations")
PRETRAINED = ("reward", "reward_held_out", "classifier_accuracy", "diversity")
"""Metrics that are known of the pretrained model as well."""
COLUMNS: Mapping[str, str] = {
    "before": "reward_pretrained",
    "held-out classes": "reward_held_out",
    "held-out before": "reward_held_out_pretrained",
    "classifier accuracy": "classifier_accuracy",
    "diversity": "diversity",
    "KL": "kl_pretrained",
    "error of the reward model": "reward_model_error",
    "trajectories": "rollouts",
    "measurements": "measurements",
    "queries": "queries",
    "denoiser evaluations": "network_evaluations",
    "updates": "updates",
    "seconds": "total",
}


def item() -> Item:
    """SEIKO and PURE_SEIKO on the digits."""
    return Item(
        "diffusion-main",
        "Fine-tuning of a diffusion model: PURE_SEIKO beside SEIKO, with a quarter of the trajectories",
        analyze,
        draw,
        (Group("pure-seiko", "PURE_SEIKO", "digits", "pure-seiko"), Group("seiko", "SEIKO", "digits", "seiko")),
        seeds=5,
        quick=2,
        cost="about 35 minutes on two cores, 15 with --quick",
    )


def summaries(found: Mapping[str, Runs]) -> dict[str, Summary]:
    """The summary of every group of runs on the digits."""
    return {name: _summarize(runs) for name, runs in found.items()}


def _summarize(runs: Runs) -> Summary:
    """The results of one group. The seconds of rollouts are split into denoising and queries of the reward."""
    group = summarize(
        runs, KEY.child("diffusion", runs.group.name), [*METRICS, *(f"{name}_pretrained" for name in PRETRAINED)]
    )
    queries = np.array([query_seconds(path / "queries.jsonl") for path in runs.paths])
    # a run that was interrupted has more queries in its log than steps in its records: no phase is below zero
    denoising = np.maximum(group["seconds"].pop("rollout") - queries, 0.0)
    return group | {
        "seconds": {"denoising": denoising.tolist(), "queries": queries.tolist(), **group["seconds"]},
        "reward_by_class": runs.lists("reward_by_class"),
        "curves": runs.lists("reward_curve"),
        "reward_model_error": [
            _last_error(path, records) for path, records in zip(runs.paths, runs.records(), strict=True)
        ],
    }


def _last_error(path: Path, records: list[dict[str, Any]]) -> float:
    """Root mean squared error of the reward model on held-out trajectories, at the last update of a run."""
    found = [record["reward_error"] for record in records if "reward_error" in record]
    if not found:
        raise StoreError(f"{path / 'records.jsonl'} has no reward_error; run the item again")
    return float(found[-1])


def query_seconds(file: Path) -> float:
    """The total duration of all queries of the reward in a run, from its log."""
    try:
        lines = read_bytes(file, MAX_LINES).splitlines()
        return sum(float(json.loads(line)["seconds"]) for line in lines)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{file} is not the log of a reward ({error}); run the item again") from None


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """PURE_SEIKO beside SEIKO at the same N."""
    groups = summaries(found)
    pure, seiko = groups["pure-seiko"], groups["seiko"]
    pure |= scaled_minutes((PAPER["PURE_SEIKO"][1], PAPER["SEIKO"][1]), seiko)
    table = tabulate(groups, COLUMNS)
    rows = tuple((*row, *PAPER[group["label"]]) for row, group in zip(table.rows, groups.values(), strict=True))
    table = Table((*table.columns, "paper's score", "paper's hours"), rows)
    checks = (*_reward_checks(pure, seiko), *_cost_checks(pure, seiko))
    return Analysis({"groups": list(groups.values()), "required": REWARD}, table, checks)


def _reward_checks(pure: Summary, seiko: Summary) -> list[Check]:
    """Whether PURE_SEIKO increases the reward, and not at the cost of what the reward does not see."""
    reward, held_out, accuracy, diversity = (mean(pure[name]) for name in PRETRAINED)
    before, _, accuracy_before, diversity_before = (mean(pure[f"{name}_pretrained"]) for name in PRETRAINED)
    gain = mean_interval(
        KEY.child("held-out"), np.array(pure["reward_held_out"]) - np.array(pure["reward_held_out_pretrained"])
    )
    return [
        not_worse(pure, seiko, "reward of PURE_SEIKO within one standard deviation of SEIKO's, or better"),
        Check(
            f"reward of PURE_SEIKO on training classes at least {REWARD}",
            f"{reward:.3f}, from {before:.3f} before",
            reward >= REWARD,
        ),
        Check(
            "its reward on held-out classes clearly above the pretrained model's",
            f"{held_out:.3f}, which is {gain.value:.3f} more [{gain.low:.3f}, {gain.high:.3f}]",
            gain.low > 0,
        ),
        Check(
            "the classifier accuracy not below the pretrained model's",
            f"{accuracy:.3f} against {accuracy_before:.3f}; diversity {diversity:.3f} against {diversity_before:.3f}",
            accuracy >= accuracy_before,
        ),
    ]


def _cost_checks(pure: Summary, seiko: Summary) -> list[Check]:
    """What PURE_SEIKO saves."""
    time = ratio(KEY.child("diffusion time"), *paired(pure, seiko, "total"))
    calls = mean(pure["network_evaluations"]) / mean(seiko["network_evaluations"])
    ours, theirs = (mean(group["rollouts"]) for group in (pure, seiko))
    longest = max(pure["total"])
    return [
        Check("exactly one quarter of SEIKO's trajectories", f"{ours:,.0f} of {theirs:,.0f}", 4 * ours == theirs),
        Check(f"at most {EVALUATION_RATIO} of its denoiser evaluations", f"{calls:.2f}", calls <= EVALUATION_RATIO),
        Check(f"at most {TIME_RATIO} of its seconds", f"{time:.2f}", time.value <= TIME_RATIO),
        Check(
            f"a run in at most {MAX_SECONDS / 60:g} minutes",
            f"median {np.median(pure['total']):.0f} s, maximum {longest:.0f} s",
            longest <= MAX_SECONDS,
        ),
    ]


def conclude(groups: Mapping[str, Summary], *checks: Check) -> Analysis:
    """The results of an item whose groups are compared."""
    return Analysis({"groups": list(groups.values())}, tabulate(groups, COLUMNS), checks)


def draw(numbers: Mapping[str, Any]) -> Figure:
    """Rewards of every group, and where its time is spent."""
    series = {"reward": "training classes", "reward_held_out": "held-out classes"}
    phases = {
        "denoising": "denoising",
        "queries": "queries of the reward",
        "fit": "fitting the reward model",
        "plan": "updating the diffusion model",
        "rest": "evaluation, start",
    }
    label = "reward: probability that the digit is read"
    return draw_groups(numbers["groups"], series, phases, label, numbers.get("required"))

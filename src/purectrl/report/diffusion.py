"""SEIKO and PURE_SEIKO on the digits: rewards, what they cost, and what changes with K, with m and with what is measured."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from purectrl.core.errors import StoreError
from purectrl.experiments.store import read_records
from purectrl.report.curves import KEY
from purectrl.report.findings import Findings, Mark, Table
from purectrl.report.groups import about, below, by_share, draw_groups, reward_columns, rewards_of, rising
from purectrl.report.reading import Runs
from purectrl.report.statistics import mean, mean_interval, ratio

WANTED = 0.8
"""Reward on training classes."""
LONGEST = 600.0
"""Seconds of a run of PURE_SEIKO."""
TIME_SHARE, EVALUATION_SHARE = 0.65, 0.5
"""Of SEIKO's seconds and denoiser evaluations at most."""
PAPER: Mapping[str, tuple[float, float]] = {"PURE_SEIKO": (7.85, 15.2), "SEIKO": (7.54, 31.3)}
"""Aesthetic score and hours of the paper's plot, on Stable Diffusion: another reward, on another scale."""
SERIES: Mapping[str, str] = {"reward": "training classes", "reward_held_out": "held-out classes"}
PHASES: Mapping[str, str] = {
    "denoising": "denoising",
    "queries": "asking the reward",
    "fit": "fitting the reward model",
    "plan": "updating the diffusion model",
    "rest": "tests, start",
}
"""What a run spends its seconds on."""


def told(runs: Runs) -> dict[str, Any]:
    """What the runs of one group say."""
    names = ("reward_held_out", "second_opinion", "diversity", "kl_pretrained", "queries", "network_evaluations")
    before = ("reward_pretrained", "reward_held_out_pretrained", "second_opinion_pretrained", "diversity_pretrained")
    return {
        "label": runs.group.label,
        **rewards_of(runs, KEY.child("diffusion", runs.group.name)),
        **{name: runs.metric(name).tolist() for name in (*names, *before)},
        "reward_by_class": runs.lists("reward_by_class"),
        **{name: runs.spent(name).tolist() for name in ("rollouts", "measurements", "updates")},
        "total": runs.seconds("total").tolist(),
        "seconds": {name: values.tolist() for name, values in phases(runs).items()},
        "curves": runs.lists("reward_curve"),
        "reward_model_error": [last_error(place) for place in runs.places],
    }


def phases(runs: Runs) -> dict[str, np.ndarray]:
    """Seconds of each phase in every run [seeds]; trajectories and queries apart. A run that was killed has asked more than
    its steps say: nothing is below zero."""
    asked = np.array([query_seconds(place / "queries.jsonl") for place in runs.places])
    rollout, fit, plan = (runs.seconds(name) for name in ("rollout", "fit", "plan"))
    rest = np.maximum(runs.seconds("total") - rollout - fit - plan, 0.0)
    return {"denoising": np.maximum(rollout - asked, 0.0), "queries": asked, "fit": fit, "plan": plan, "rest": rest}


def last_error(place: Path) -> float:
    """Root of the mean squared error of the reward model on held-out trajectories, at the last update of a run."""
    found = [record["reward_error"] for record in read_records(place) if "reward_error" in record]
    if not found:
        raise StoreError(f"{place / 'records.jsonl'} has no reward_error; run the item again")
    return float(found[-1])


def query_seconds(file: Path) -> float:
    """How long the reward of a run has taken in all, from its log."""
    try:
        return sum(float(json.loads(line)["seconds"]) for line in file.read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{file} is not the log of a reward ({error}); run the item again") from None


def analyse_main(found: Sequence[Runs], computed: Mapping[str, Any]) -> Findings:
    """PURE_SEIKO beside SEIKO at the same N."""
    groups = [told(runs) for runs in found]
    pure, seiko = groups
    pure |= by_share((PAPER["PURE_SEIKO"][1], PAPER["SEIKO"][1]), seiko)
    marks = (*_reward_marks(pure, seiko), *_cost_marks(pure, seiko))
    return Findings({"groups": groups, "wanted": WANTED}, _table(groups), marks)


def analyse_labels(found: Sequence[Runs], computed: Mapping[str, Any]) -> Findings:
    """PURE_SEIKO beside other things to measure on the same trajectories."""
    groups = [told(runs) for runs in found]
    pure, *others = groups
    asks = "PURE_SEIKO, with predicted images at the paper's times, is clearly better than: {}"
    marks = tuple(below(other, pure, asks.format(other["label"])) for other in others)
    return Findings({"groups": groups}, _table(groups), marks)


def analyse_updates(found: Sequence[Runs], computed: Mapping[str, Any]) -> Findings:
    """K: the paper finds K = 4 as good as more, and K = 2 clearly worse."""
    groups = [told(runs) for runs in found]
    few, middle, many = groups
    marks = (
        about(middle, many, "as the paper has it, more than 4 updates add nothing"),
        below(few, middle, "as the paper has it, 2 updates are too few"),
    )
    return Findings({"groups": groups}, _table(groups), marks)


def analyse_frequency(found: Sequence[Runs], computed: Mapping[str, Any]) -> Findings:
    """m: the paper finds m = 4 as good as m = 1 and faster, and m = 40 worse."""
    groups = [told(runs) for runs in found]
    one, some, many = groups
    marks = (
        about(some, one, "as the paper has it, 4 measurements a trajectory are as good as 1"),
        below(many, some, "as the paper has it, 40 measurements a trajectory are too many"),
        rising(groups[::-1], "as the paper has it, time falls with m"),
    )
    return Findings({"groups": groups}, _table(groups), marks)


def _reward_marks(pure: Mapping[str, Any], seiko: Mapping[str, Any]) -> list[Mark]:
    """Whether PURE_SEIKO learns what it should, and does not cheat."""
    reward, before = mean(np.array(pure["reward"])), mean(np.array(pure["reward_pretrained"]))
    gain = np.array(pure["reward_held_out"]) - np.array(pure["reward_held_out_pretrained"])
    held_out = mean_interval(KEY.child("held-out"), gain)
    judged, judged_before = (mean(np.array(pure[name])) for name in ("second_opinion", "second_opinion_pretrained"))
    return [
        about(pure, seiko, "reward of PURE_SEIKO within one standard deviation of SEIKO's, or better"),
        Mark(
            f"reward of PURE_SEIKO on training classes at least {WANTED}",
            f"{reward:.3f}, from {before:.3f} before",
            reward >= WANTED,
        ),
        Mark(
            "its reward on held-out classes clearly above the pretrained model's",
            f"{mean(np.array(pure['reward_held_out'])):.3f}, which is {held_out.value:.3f} more "
            f"[{held_out.low:.3f}, {held_out.high:.3f}]",
            held_out.low > 0,
        ),
        Mark(
            "the second opinion not below the pretrained model's",
            f"{judged:.3f} against {judged_before:.3f}; diversity {mean(np.array(pure['diversity'])):.3f} against "
            f"{mean(np.array(pure['diversity_pretrained'])):.3f}",
            judged >= judged_before,
        ),
    ]


def _cost_marks(pure: Mapping[str, Any], seiko: Mapping[str, Any]) -> list[Mark]:
    """What PURE_SEIKO saves."""
    shared = min(len(pure["seeds"]), len(seiko["seeds"]))
    time = ratio(KEY.child("diffusion time"), *(np.array(group["total"][:shared]) for group in (pure, seiko)))
    calls = mean(np.array(pure["network_evaluations"])) / mean(np.array(seiko["network_evaluations"]))
    trajectories = [mean(np.array(group["rollouts"])) for group in (pure, seiko)]
    return [
        Mark(
            "exactly one quarter of SEIKO's trajectories",
            f"{trajectories[0]:,.0f} of {trajectories[1]:,.0f}",
            4 * trajectories[0] == trajectories[1],
        ),
        Mark(f"at most {EVALUATION_SHARE} of its denoiser evaluations", f"{calls:.2f}", calls <= EVALUATION_SHARE),
        Mark(
            f"at most {TIME_SHARE} of its seconds",
            f"{time.value:.2f} [{time.low:.2f}, {time.high:.2f}]",
            time.value <= TIME_SHARE,
        ),
        Mark(
            f"a run in at most {LONGEST / 60:g} minutes",
            f"{np.median(pure['total']):.0f} s in the median, {max(pure['total']):.0f} s at most",
            max(pure["total"]) <= LONGEST,
        ),
    ]


def _table(groups: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for group in groups:
        of = {name: mean(np.array(values)) for name, values in group.items() if _numbers(values)}
        row = {
            "": group["label"],
            **reward_columns(group),
            "before": of["reward_pretrained"],
            "held-out classes": of["reward_held_out"],
            "held-out before": of["reward_held_out_pretrained"],
            "second opinion": of["second_opinion"],
            "diversity": of["diversity"],
            "KL": of["kl_pretrained"],
            "error of the reward model": of["reward_model_error"],
            "trajectories": of["rollouts"],
            "measurements": of["measurements"],
            "queries": of["queries"],
            "denoiser evaluations": of["network_evaluations"],
            "updates": of["updates"],
            "seconds": of["total"],
            **{f"s {name}": mean(np.array(values)) for name, values in group["seconds"].items()},
        }
        if all(group["label"] in PAPER for group in groups):
            row |= dict(zip(("paper's score", "paper's hours"), PAPER[group["label"]], strict=True))
        rows.append(row)
    return Table(tuple(rows[0]), tuple(tuple(row.values()) for row in rows))


def _numbers(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, int | float) for value in values)


def draw(numbers: Mapping[str, Any]) -> Figure:
    """Rewards of every group, and where its minutes go."""
    return draw_groups(
        numbers["groups"], SERIES, PHASES, "reward: probability that the digit is read", numbers.get("wanted")
    )

"""Every fine-tuner on the digits under one budget of labels: reward, second opinions, divergence and seconds."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from purectrl.diffusion.fine_tuners import LEARNERS
from purectrl.paper.figures import COLOURS, MARKERS, Axes, Figure, legend_below, panels
from purectrl.paper.fine_tuning import curves, mean_and_error, mean_curve
from purectrl.paper.item import Group, Item
from purectrl.paper.load import Runs
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import mean

LABELS = 960
"""The budget of each."""
CHAIN: Mapping[str, Any] = {
    "schedule.size": 160,
    "learner.learning_rate": 1e-3,
}
"""Settings of DDPO, GRPO and best-of-n: with a small budget, small batches and long steps. They are not tuned."""
_SEIKO = LEARNERS["digits"]().finetune
DIVERGENCE: Mapping[str, Any] = {
    "learner.finetune.alpha": _SEIKO.alpha,
    "learner.finetune.beta": _SEIKO.beta,
}
"""The prices of SEIKO, for DRaFT: it is made for rewards with a gradient, and here it follows a reward model."""


class FineTuner(NamedTuple):
    """A row of the table."""

    label: str
    algorithm: str
    settings: Mapping[str, Any] = {}


FINE_TUNERS: Mapping[str, FineTuner] = {
    "ddpo": FineTuner("DDPO", "ddpo", CHAIN),
    "grpo": FineTuner("GRPO", "grpo", CHAIN),
    "best-of-n": FineTuner("best of 4, distilled", "best-of-n", CHAIN),
    "draft": FineTuner("DRaFT-1", "draft"),
    "draft-divergence": FineTuner("DRaFT-1 with SEIKO's divergence", "draft", DIVERGENCE),
    "alignprop": FineTuner("AlignProp", "alignprop"),
    "seiko": FineTuner("SEIKO", "seiko"),
    "pure-seiko": FineTuner("PURE_SEIKO", "pure-seiko"),
}
"""By the name of the group of runs."""
METRICS: Mapping[str, str] = {
    "reward": "reward",
    "held-out classes": "reward_held_out",
    "classifier accuracy": "classifier_accuracy",
    "diversity": "diversity",
    "KL": "kl_pretrained",
    "queries": "queries",
}
"""Columns of the table, and metrics of a run."""
PRETRAINED = ("reward", "reward_held_out", "classifier_accuracy", "diversity")
"""Metrics that are known of the pretrained model as well."""


def item(labels: int = LABELS) -> Item:
    """DDPO, GRPO, best-of-n, DRaFT with and without a divergence, AlignProp, SEIKO and PURE_SEIKO."""
    # the recogniser hardly ever reads a 1, which would decide by luck; small batches make more steps on the chain
    digits = {"left_out": (1,), "rollout_batch_size": 32}
    return Item(
        "diffusion-fine-tuners",
        f"Every fine-tuner on the digits without the 1, with {labels:,} labels each",
        analyze,
        draw,
        tuple(
            Group(name, one.label, "digits", one.algorithm, digits, one.settings, measurements=labels)
            for name, one in FINE_TUNERS.items()
        ),
        seeds=5,
        quick=2,
        cost="about an hour of computing, 25 minutes with --quick, halved on two cores",
    )


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """The table, and which fine-tuner has the highest reward."""
    rewards = {name: runs.metric("reward") for name, runs in found.items()}
    best = max(rewards, key=lambda name: mean(rewards[name]))
    rows = [_row(runs) for runs in found.values()]
    first = next(iter(found.values()))
    before = {name: mean(first.metric(f"{name}_pretrained")) for name in PRETRAINED}
    rows.append(_pretrained_row(rows[0], before))
    numbers = {
        "labels": first.group.measurements,
        "before": before,
        "fine_tuners": {
            name: {
                "label": runs.group.label,
                **{column: runs.metric(metric).tolist() for column, metric in METRICS.items()},
                "seconds": runs.seconds("total").tolist(),
                "curve": mean_curve(curves(runs)),
            }
            for name, runs in found.items()
        },
    }
    checks = (
        _not_behind(rewards, found, best),
        _second_opinion(found[best], before["classifier_accuracy"]),
        *(_raises(runs, name) for name, runs in found.items()),
    )
    return Analysis(numbers, Table.of(rows), checks)


def _row(runs: Runs) -> dict[str, Any]:
    reward, error = mean_and_error(runs.metric("reward"))
    means = {column: mean(runs.metric(metric)) for column, metric in METRICS.items()}
    return {
        "": runs.group.label,
        "reward": reward,
        "standard error": error,
        **{column: value for column, value in means.items() if column != "reward"},
        "trajectories": mean(runs.ledger("rollouts")),
        "denoiser evaluations": mean(runs.metric("network_evaluations")),
        "seconds": mean(runs.seconds("total")),
    }


def _pretrained_row(row: Mapping[str, Any], before: Mapping[str, float]) -> dict[str, Any]:
    known = {
        "": "pretrained",
        "reward": before["reward"],
        "held-out classes": before["reward_held_out"],
        "classifier accuracy": before["classifier_accuracy"],
        "diversity": before["diversity"],
        "KL": 0.0,
    }
    return {column: known.get(column) for column in row}


def _not_behind(rewards: Mapping[str, np.ndarray], found: Mapping[str, Runs], best: str) -> Check:
    """Whether no other fine-tuner is ahead of the better of SEIKO and PURE_SEIKO by more than a standard error."""
    ours = max(("seiko", "pure-seiko"), key=lambda name: mean(rewards[name]))
    difference, error = mean_and_error(rewards[best] - rewards[ours])
    return Check(
        "no fine-tuner is ahead of the better of SEIKO and PURE_SEIKO by more than one standard error",
        f"the highest reward is that of {found[best].group.label}, {mean(rewards[best]):.3f}; "
        f"{found[ours].group.label} has {mean(rewards[ours]):.3f}, difference {difference:.3f} ± {error:.3f}",
        difference <= error,
    )


def _second_opinion(runs: Runs, before: float) -> Check:
    accuracy, error = mean_and_error(runs.metric("classifier_accuracy"))
    return Check(
        "the fine-tuner with the highest reward keeps the classifier accuracy of the pretrained model, within 0.02",
        f"{runs.group.label}: {accuracy:.3f} ± {error:.3f} against {before:.3f}",
        accuracy >= before - 0.02,
    )


def _raises(runs: Runs, name: str) -> Check:
    gain, error = mean_and_error(runs.metric("reward") - runs.metric("reward_pretrained"))
    return Check(f"`{name}` raises the reward by more than two standard errors", _signed(gain, error), gain > 2 * error)


def _signed(value: float, error: float) -> str:
    return f"{value:+.3f} ± {error:.3f}"


def draw(numbers: Mapping[str, Any]) -> Figure:
    """The reward after each update over labels, over seconds, and of the final model over the divergence."""
    with panels(3, height=4.6) as (figure, (labels, seconds, divergence)):
        for index, found in enumerate(numbers["fine_tuners"].values()):
            style = style_of(index)
            curve = found["curve"]
            for axes, spent in ((labels, "labels"), (seconds, "seconds")):
                axes.plot(curve[spent], curve["reward"], label=found["label"], markersize=5, linewidth=1.5, **style)
            divergence.plot(found["KL"], found["reward"], markersize=6, linewidth=0, **style)
        for axes, text in (
            (labels, "labels"),
            (seconds, "seconds"),
            (divergence, "KL from the pretrained model, nats"),
        ):
            axes.set_xlabel(text)
            _mark_pretrained(axes, numbers["before"]["reward"])
        labels.set_ylabel("reward: probability that the digit is read")
        divergence.set_ylabel("final reward of each run")
        legend_below(figure, columns=4)
    return figure


def style_of(index: int) -> dict[str, Any]:
    """Colour and marker of a series; there may be more series than colours."""
    colours = (*COLOURS, "#444444", "#999999")
    return {"color": colours[index % len(colours)], "marker": (*MARKERS, "X", "*")[index % len(colours)]}


def _mark_pretrained(axes: Axes, reward: float) -> None:
    axes.axhline(reward, color="#444444", linestyle=":", linewidth=1.2, label="pretrained")

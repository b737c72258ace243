"""Fine-tuning to a hidden preference: x(t) at all times of n trajectories, final labels on n, and SEIKO on 4n."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from purectrl.paper.figures import COLOURS, Figure, panels
from purectrl.paper.item import Computation, Item
from purectrl.paper.load import Runs
from purectrl.paper.results import Analysis, Check, Table

TRAJECTORIES = 75
"""n."""
PREFERENCES = range(10, 15)
"""Hidden preferences, on which no setting was chosen."""
ARMS: Mapping[str, tuple[str, int, int]] = {
    "states": ("PURE_SEIKO, x(t) at four times, n trajectories", 4, 1),
    "finals": ("final labels, n trajectories", 1, 1),
    "more-finals": ("SEIKO, final labels, 4n trajectories", 1, 4),
}
"""Label, measurements per trajectory, trajectories in units of n."""
METRICS = ("reward", "reward_held_out", "predicted", "kl", "classifier_accuracy", "diversity")


def item(
    trajectories: int = TRAJECTORIES, preferences: Sequence[int] = PREFERENCES, iterations: int = 25, **fewer: int
) -> Item:
    """One update from labels of three kinds, for several hidden preferences."""
    return Item(
        "diffusion-taste",
        "Fine-tuning to a hidden preference: PURE_SEIKO on n trajectories beside final labels on n, and SEIKO on 4n",
        analyze,
        draw,
        computations=tuple(
            Computation(
                f"preference {preference}, {arm}",
                fine_tuned,
                {"arm": arm, "n": trajectories, "preference": preference, "iterations": iterations, **fewer},
            )
            for preference in preferences
            for arm in ARMS
        ),
        cost="about 15 minutes on one core",
    )


def fine_tuned(
    arm: str, n: int, preference: int, iterations: int, images: int = 32, denoising_steps: int = 12
) -> dict[str, float]:
    """Metrics of `images` new images per class after one update from the labels of `arm`; arms are paired by noise."""
    from purectrl.algorithms import named
    from purectrl.core.keys import Key
    from purectrl.core.ledger import Budget
    from purectrl.core.samplers import Equidistant
    from purectrl.diffusion.finetune import path_kl
    from purectrl.diffusion.models import Params
    from purectrl.problems.taste_images import taste

    _, m, times = ARMS[arm]
    problem, key = taste(preference, denoising_steps=denoising_steps), Key.from_seed(preference)
    settings = {"schedule.updates": 1, "learner.finetune.iterations": iterations}
    algorithm = named("pure-seiko", problem).with_settings(settings)
    loop = replace(algorithm, sampler=Equidistant(m)).build(problem, Budget(m * times * n))
    state, record = loop.step(loop.init(key))
    plan, model = state.output.plan, problem.diffusion.model
    found = problem.evaluate(plan, key.child("new"), images * len(problem.eval_conditions))
    kl = path_kl(
        problem.diffusion, Params.of(plan), model.pretrained(), model.encode(problem.kl_conditions), key.child("kl")
    )
    return {**found, "kl": kl, "predicted": record.info["predicted_reward"]}


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """The three arms, paired by preference."""
    arms: dict[str, dict[str, list[float]]] = {arm: {name: [] for name in METRICS} for arm in ARMS}
    for entry in computed.values():
        for name in METRICS:
            arms[entry["arguments"]["arm"]][name].append(entry["value"][name])
    n = next(iter(computed.values()))["arguments"]["n"]
    rows = [
        {
            "": label,
            "trajectories": times * n,
            "labels": m * times * n,
            "reward": float(np.mean(values["reward"])),
            "standard error": _error(np.array(values["reward"])),
            "held-out classes": float(np.mean(values["reward_held_out"])),
            "predicted": float(np.mean(values["predicted"])),
            "KL": float(np.mean(values["kl"])),
            "classifier accuracy": float(np.mean(values["classifier_accuracy"])),
            "diversity": float(np.mean(values["diversity"])),
        }
        for (label, m, times), values in zip(ARMS.values(), arms.values(), strict=True)
    ]
    checks = (
        _ahead(arms, "finals", f"x(t) at four times of n = {n} trajectories clearly above final labels on as many", 2),
        _ahead(arms, "more-finals", f"and at least as good as SEIKO with {4 * n} trajectories", 0),
    )
    return Analysis({"n": n, "arms": arms}, Table.of(rows), checks)


def _error(values: np.ndarray) -> float:
    """The standard error of a mean."""
    return float(values.std(ddof=1) / len(values) ** 0.5)


def _ahead(arms: Mapping[str, Mapping[str, list[float]]], other: str, criterion: str, errors: float) -> Check:
    """Whether the reward with x(t) exceeds that of another arm by more than so many standard errors, paired."""
    difference = np.array(arms["states"]["reward"]) - np.array(arms[other]["reward"])
    mean, error = float(difference.mean()), _error(difference)
    seen = f"difference {mean:.3f} ± {error:.3f} (standard error), {len(difference)} preferences"
    return Check(criterion, seen, mean > errors * error if errors else mean >= 0)


def draw(numbers: Mapping[str, Any]) -> Figure:
    """The reward of every preference, and the reward beside the divergence."""
    with panels(2, height=3.6) as (figure, (left, right)):
        for index, (arm, (label, _, _)) in enumerate(ARMS.items()):
            values, colour = numbers["arms"][arm], COLOURS[index]
            reward, kl = np.array(values["reward"]), np.array(values["kl"])
            left.plot(reward, np.full(len(reward), index), "|", markersize=11, color=colour)
            left.errorbar(reward.mean(), index, xerr=_error(reward), fmt="o", color=colour, capsize=4)
            right.plot(kl, reward, "o", markersize=5, color=colour, label=label)
        left.set_yticks(range(len(ARMS)), ["x(t), n", "finals, n", "finals, 4n"])
        left.set_ylim(len(ARMS) - 0.5, -0.5)
        left.set_xlabel("true reward of new images; bars: standard errors")
        right.set_xlabel("divergence from the pretrained model in nats")
        right.set_ylabel("true reward")
        figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure

"""Fine-tuning to a hidden preference: x(t) at all times of n trajectories beside final labels on as many and on more."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from purectrl.paper.figures import COLOURS, MARKERS, Axes, Figure, legend_below, log_ticks, panels
from purectrl.paper.fine_tuning import mean_and_error
from purectrl.paper.item import Computation, Item
from purectrl.paper.load import Runs
from purectrl.paper.results import Analysis, Check, Table

SIZES = (20, 80)
"""Trajectories. Each is four times the one before, so that SEIKO's final labels on 4n are the next size; for more sizes, see
`diffusion-crossing`."""
PREFERENCES = range(10, 20)
"""Hidden preferences, on which no setting was chosen."""
NATS = 10.0
"""The divergence from the pretrained model at which arms are compared."""
ARMS: Mapping[str, tuple[str, int]] = {
    "states": ("PURE_SEIKO: x(t) at four times", 4),
    "finals": ("SEIKO: final labels", 1),
}
"""Label, and measurements per trajectory."""
UPDATE: Mapping[str, Any] = {
    "schedule.updates": 1,
    "learner.finetune.iterations": 12,
    "learner.finetune.batch_size": 16,
    "learner.finetune.learning_rate": 4e-4,
    "learner.finetune.initial_learning_rate": 4e-3,
    "learner.finetune.kl_samples": 2,
}
"""One update, the same for all arms; a small one; chosen on preferences 0 and 1."""
METRICS = ("reward", "reward_held_out", "classifier_accuracy", "diversity", "kl", "kl_whole")


def item(sizes: Sequence[int] = SIZES, preferences: Sequence[int] = PREFERENCES, **fewer: Any) -> Item:
    """One update from labels of two kinds, for several hidden preferences and numbers of trajectories."""
    cases = [[("states", n), ("finals", n), ("finals", 4 * n)] for n in sizes[:-1]]
    ordered = [(preference, *one) for case in cases for preference in preferences for one in case]
    return Item(
        "diffusion-taste",
        "Fine-tuning to a hidden preference: PURE_SEIKO on n trajectories beside SEIKO on n and on 4n, at equal divergence",
        analyze,
        draw,
        computations=tuple(
            Computation(
                f"preference {preference}, {arm}, n = {n}",
                fine_tuned,
                {"arm": arm, "n": n, "preference": preference, **fewer},
            )
            for preference, arm, n in dict.fromkeys(ordered)
        ),
        cost="about 8 minutes on one core",
    )


def fine_tuned(
    arm: str, n: int, preference: int, images: int = 10, denoising_steps: int = 12, iterations: int | None = None
) -> dict[str, float]:
    """Metrics of `images` new images per class after one update from the labels of `arm` on n trajectories. The update is
    scaled to `NATS`; arms are paired by noise."""
    from purectrl.algorithms import named
    from purectrl.core.keys import Key
    from purectrl.core.ledger import Budget
    from purectrl.core.samplers import Equidistant
    from purectrl.diffusion.interpolation import at_divergence
    from purectrl.diffusion.models import Params
    from purectrl.problems.taste_images import taste

    _, m = ARMS[arm]
    problem, key = taste(preference, denoising_steps=denoising_steps), Key.from_seed(preference)
    settings = UPDATE if iterations is None else {**UPDATE, "learner.finetune.iterations": iterations}
    algorithm = named("pure-seiko", problem).with_settings(settings)
    loop = replace(algorithm, sampler=Equidistant(m)).build(problem, Budget(m * n))
    state, record = loop.step(loop.init(key))
    diffusion = problem.diffusion
    condition = diffusion.model.encode(problem.conditions * 2)
    scaled = at_divergence(diffusion, Params.of(state.output.plan), condition, key.child("kl"), NATS)
    found = problem.evaluate(scaled.params.plan(), key.child("new"), images * len(problem.eval_conditions))
    predicted = record.info["predicted_reward"]
    return {**found, "kl": scaled.divergence, "scale": scaled.scale, "kl_whole": scaled.whole, "predicted": predicted}


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """Both arms at every n, paired by preference, and how many final labels x(t) on n trajectories is worth."""
    cells: dict[tuple[str, int], dict[str, list[float]]] = {}
    for entry in computed.values():
        where = (entry["arguments"]["arm"], entry["arguments"]["n"])
        values = cells.setdefault(where, {name: [] for name in METRICS})
        for name in values:
            values[name].append(entry["value"][name])
    sizes = sorted(n for arm, n in cells if arm == "finals")
    finals = [float(np.mean(cells["finals", n]["reward"])) for n in sizes]
    rows = [_row(arm, n, values, sizes, finals) for (arm, n), values in sorted(cells.items(), reverse=True)]
    checks = [check for n in sizes[:-1] for check in _checks(cells, n)]
    arms = {arm: {str(n): cells[arm, n] for n in sizes if (arm, n) in cells} for arm in ARMS}
    return Analysis({"sizes": sizes, "nats": NATS, "arms": arms}, Table.of(rows), tuple(checks))


def _row(
    arm: str, n: int, values: Mapping[str, list[float]], sizes: Sequence[int], finals: Sequence[float]
) -> dict[str, Any]:
    label, m = ARMS[arm]
    reward, error = mean_and_error(np.array(values["reward"]))
    mean = {name: float(np.mean(some)) for name, some in values.items()}
    return {
        "": label,
        "n": n,
        "labels": m * n,
        "reward": reward,
        "standard error": error,
        "worth final labels on": worth(reward, sizes, finals) if arm == "states" else None,
        "KL": mean["kl"],
        "held-out classes": mean["reward_held_out"],
        "classifier accuracy": mean["classifier_accuracy"],
        "diversity": mean["diversity"],
        "KL before scaling": mean["kl_whole"],
    }


def worth(reward: float, sizes: Sequence[int], finals: Sequence[float]) -> float | None:
    """The number of trajectories on which final labels reach a mean reward, linear in the logarithm between two sizes; None
    outside of the sizes, or if the reward does not rise with them.

    >>> worth(1.5, (10, 1000), (1.0, 2.0)), worth(2.5, (10, 1000), (1.0, 2.0))
    (100.0, None)
    """
    rising = all(a < b for a, b in itertools.pairwise(finals))
    if not rising or not finals[0] <= reward <= finals[-1]:
        return None
    return round(float(np.exp(np.interp(reward, finals, np.log(sizes)))), 1)


def _checks(cells: Mapping[tuple[str, int], Mapping[str, list[float]]], n: int) -> tuple[Check, Check]:
    few = f"at {NATS:g} nats, x(t) at four times of n = {n} trajectories"
    return (
        _ahead(
            cells["states", n], cells["finals", n], f"{few} above final labels on as many by two standard errors", 2
        ),
        _ahead(cells["states", n], cells["finals", 4 * n], f"{few} at least as good as SEIKO with {4 * n}", 0),
    )


def _ahead(ours: Mapping[str, list[float]], theirs: Mapping[str, list[float]], criterion: str, errors: float) -> Check:
    """Whether the reward with x(t) exceeds the other by more than so many standard errors, paired."""
    difference, error = mean_and_error(np.array(ours["reward"]) - np.array(theirs["reward"]))
    seen = f"difference {difference:.3f} ± {error:.3f} (standard error), {len(ours['reward'])} preferences"
    return Check(criterion, seen, difference > errors * error if errors else difference >= 0)


def draw(numbers: Mapping[str, Any]) -> Figure:
    """The mean reward over n, and the paired differences that the criteria are about."""
    with panels(2, height=4.2) as (figure, (left, right)):
        for index, (arm, by_size) in enumerate(numbers["arms"].items()):
            found = [mean_and_error(np.array(values["reward"])) for values in by_size.values()]
            _errorbars(left, [float(n) for n in by_size], found, index, ARMS[arm][0])
        states, finals, sizes = numbers["arms"]["states"], numbers["arms"]["finals"], numbers["sizes"][:-1]
        for index, (times, label) in enumerate(
            ((1, "x(t) minus final labels on n"), (4, "x(t) minus final labels on 4n")), 2
        ):
            pairs = [(np.array(states[str(n)]["reward"]), np.array(finals[str(times * n)]["reward"])) for n in sizes]
            _errorbars(right, sizes, [mean_and_error(ours - theirs) for ours, theirs in pairs], index, label)
        right.axhline(0.0, color="#444444", linewidth=1)
        left.set_ylabel(f"true reward at {numbers['nats']:g} nats")
        right.set_ylabel("paired difference; bars: standard errors")
        for panel, at in ((left, numbers["sizes"]), (right, sizes)):
            log_ticks(panel, at)
            panel.set_xlabel("trajectories n")
        legend_below(figure, columns=2)
    return figure


def _errorbars(axes: Axes, x: Sequence[float], found: Sequence[tuple[float, float]], index: int, label: str) -> None:
    means, errors = zip(*found, strict=True)
    style = {"color": COLOURS[index], "marker": MARKERS[index], "label": label, "capsize": 4, "linewidth": 1.5}
    axes.errorbar(x, means, yerr=errors, **style)

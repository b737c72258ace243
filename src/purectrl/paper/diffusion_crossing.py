"""Where labels on the way are worth as much as more trajectories: exact updates for a hidden preference."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from purectrl.paper.diffusion_taste import worth
from purectrl.paper.figures import COLOURS, MARKERS, Figure, legend_below, log_ticks, panels
from purectrl.paper.fine_tuning import mean_and_error
from purectrl.paper.item import Computation, Item
from purectrl.paper.load import Runs
from purectrl.paper.results import Analysis, Check, Table

SIZES = (10, 20, 40, 80, 160, 320, 640, 1280)
"""Trajectories n. The largest two are for SEIKO alone, which has 4n."""
PREFERENCES = range(10, 30)
"""Hidden preferences, on which no setting was chosen."""
LABELS: Mapping[str, str] = {
    "states": "x(t) at four times",
    "predicted": "predicted image at four times",
    "sampler": "predicted image, λ = 6",
    "finals": "final images (SEIKO)",
}


def item(
    sizes: Sequence[int] = SIZES, preferences: Sequence[int] = PREFERENCES, images: int = 384, nats: float = 1.0
) -> Item:
    """The exact update for reward models that were fitted to labels of four kinds."""
    arguments = {"sizes": list(sizes), "preferences": list(preferences), "images": images, "nats": nats}
    return Item(
        "diffusion-crossing",
        "Where x(t) at four times of n trajectories is worth final labels on 4n: exact updates for hidden preferences, "
        "at equal divergence",
        analyze,
        draw,
        computations=tuple(
            Computation(f"noise {noise:g}", tilted_rewards, {"noise": noise, **arguments}) for noise in (0.5, 2.0)
        ),
        cost="about 2 minutes on one core",
    )


def tilted_rewards(**arguments: Any) -> dict[str, dict[str, list[float]]]:
    """The true reward of the exact update, per preference, by what is labelled and by n."""
    from purectrl.diffusion.tilting import tilted_rewards as compute

    return compute(**arguments)


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """Labels of every kind at every n, and how many final labels x(t) is worth."""
    cases = [{**entry["arguments"], "rewards": entry["value"]} for entry in computed.values()]
    rows = [_row(case, n) for case in cases for n in case["sizes"]]
    checks = [check for case in cases for n in case["sizes"] if 4 * n in case["sizes"] for check in _checks(case, n)]
    return Analysis({"cases": cases}, Table.of(rows), tuple(checks))


def _row(case: Mapping[str, Any], n: int) -> dict[str, Any]:
    means = {arm: float(np.mean(by_size[str(n)])) for arm, by_size in case["rewards"].items()}
    difference, error = _difference(case, n, n)
    finals = [float(np.mean(case["rewards"]["finals"][str(size)])) for size in case["sizes"]]
    return {
        "label noise": case["noise"],
        "n": n,
        **{LABELS[arm]: means[arm] for arm in LABELS},
        "the reward itself": means["truth"],
        "x(t) minus finals": difference,
        "standard error": error,
        "x(t) is worth finals on": worth(means["states"], case["sizes"], finals),
    }


def _difference(case: Mapping[str, Any], n: int, finals: int) -> tuple[float, float]:
    """x(t) on n trajectories minus final labels on `finals`, paired by preference."""
    ours, theirs = case["rewards"]["states"][str(n)], case["rewards"]["finals"][str(finals)]
    return mean_and_error(np.array(ours) - np.array(theirs))


def _checks(case: Mapping[str, Any], n: int) -> tuple[Check, Check]:
    where, count = f"noise {case['noise']:g}, n = {n}", len(case["preferences"])
    few, error_few = _difference(case, n, n)
    many, error_many = _difference(case, n, 4 * n)
    seen = "difference {:.3f} ± {:.3f} (standard error), {} preferences"
    return (
        Check(
            f"{where}: x(t) at four times above final labels on as many trajectories by two standard errors",
            seen.format(few, error_few, count),
            few > 2 * error_few,
        ),
        Check(
            f"{where}: and at least as good as SEIKO with {4 * n}, within one standard error",
            seen.format(many, error_many, count),
            many >= -error_many,
        ),
    )


def draw(numbers: Mapping[str, Any]) -> Figure:
    """The mean true reward over the number of trajectories, for each label noise."""
    cases = numbers["cases"]
    with panels(len(cases), height=4.4) as (figure, axes):
        for panel, case in zip(axes, cases, strict=True):
            for index, (arm, label) in enumerate(LABELS.items()):
                found = [mean_and_error(np.array(case["rewards"][arm][str(n)])) for n in case["sizes"]]
                means, errors = zip(*found, strict=True)
                style = {"color": COLOURS[index], "marker": MARKERS[index], "label": label, "capsize": 3}
                panel.errorbar(case["sizes"], means, yerr=errors, linewidth=1.5, **style)
            best = float(np.mean(next(iter(case["rewards"]["truth"].values()))))
            panel.axhline(best, color="#444444", linestyle=":", linewidth=1.2, label="the reward itself")
            log_ticks(panel, case["sizes"])
            panel.set_xlabel("trajectories n")
            panel.set_title(f"label noise {case['noise']:g}")
        axes[0].set_ylabel(f"true reward at {cases[0]['nats']:g} nat")
        legend_below(figure, columns=3)
    return figure

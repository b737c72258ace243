"""Theorem 1, first claim: how often the truth was in both confidence sets for all n, and how small the radii could be."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from purectrl.paper.coverage import DELTA, covered
from purectrl.paper.figures import COLOURS, CRITERION, Axes, Figure, label_sizes, legend_below, log_height, panels
from purectrl.paper.item import Computation, Group, Item
from purectrl.paper.load import Runs
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import wilson

TRIALS: Mapping[str, int] = {"linear": 1024, "kernel": 256}
"""N of the sequences of measurements under random policies, by their classes."""
KINDS = ("theorem", "anytime")
SCALES = np.geomspace(0.01, 2.0, 60)
"""Multiples of the radii in the calibration curve."""


def item(
    linear: int = 1024,
    m: int = 16,
    finite: int = 1024,
    trials: Mapping[str, int] = TRIALS,
    sizes: Sequence[int] = tuple(2**exponent for exponent in range(8, 17)),
    seeds: int = 1000,
    most: int = 100,
    quick: int = 50,
) -> Item:
    """Algorithms 1 and 3, which compute F_n and R_n after every episode, with both kinds of radii; and as many sequences of
    measurements under random policies, with linear and kernel classes.

    The theorem holds for any policies and any times, so runs with linear classes have m measurements per episode, and little
    is spent on their planning.

    Main arguments:
        linear, finite: N of the runs.
        trials: N of the sequences, by their classes.
        sizes: N for which the two kinds of radii are compared.
        seeds: runs with lists, and sequences; runs with linear classes are at most `most`.
    """
    light = {"learner": "linear-sets", "learner.num_restarts": 1, "learner.iterations": 2, "learner.paths": 2}
    arguments = {"dimension": 1, "steps": 10}
    groups = []
    for kind in KINDS:
        radius = {"learner.radius": kind, "learner.delta": DELTA}
        label = f"lists, PURE base, N = {finite:,}, {kind}"
        groups.append(Group(f"finite-{kind}", label, "finite", "pure-base", {}, radius, finite))
        label = f"linear, PURE LowRollout, N = {linear:,}, {kind}"
        overrides = {**light, **radius, "sampler.m": m}
        groups.append(Group(f"lqr-{kind}", label, "lqr", "pure-low-rollout", arguments, overrides, linear, most))
    return Item(
        "thm1-coverage",
        "Theorem 1, first claim: f* in F_n and b* in R_n for all n, with probability at least 1 − δ",
        analyze,
        draw,
        tuple(groups),
        seeds,
        quick,
        cost="about 15 minutes of computing, 8 with --quick, halved on two cores",
        computations=(
            *(
                Computation(name, coverage, {"members": name, "runs": seeds, "N": N, "delta": DELTA})
                for name, N in trials.items()
            ),
            *(
                Computation(f"{name} radius", radii, {"members": name, "runs": 8, "sizes": list(sizes), "delta": DELTA})
                for name in trials
            ),
        ),
    )


def coverage(**arguments: Any) -> dict[str, list[float]]:
    """The multiples of the radii that sequences of measurements under random policies need."""
    from purectrl.problems.coverage_trials import multiples_needed

    return multiples_needed(**arguments)


def radii(**arguments: Any) -> dict[str, list[float]]:
    """The anytime-valid radius as a share of the theorem's."""
    from purectrl.problems.coverage_trials import radius_shares

    return radius_shares(**arguments)


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """The share of covered runs in each group, with Wilson's interval, and the multiple of the radii that would have covered
    the truth in a share 1 − δ of them; the same for the sequences."""
    rows, failed, curves, checks = [], {}, {}, []
    for name, runs in found.items():
        inside = covered(runs)
        failed[name] = [seed for seed, good in zip(runs.seeds, inside, strict=True) if not good]
        _add(rows, checks, curves, runs.group.label, inside, runs.metric("radius_needed"))
    for name, entry in computed.items():
        for kind in KINDS if "N" in entry["arguments"] else ():
            needed = np.array(entry["value"][kind])
            label = f"{name}, random policies, N = {entry['arguments']['N']:,}, {kind}"
            _add(rows, checks, curves, label, needed <= 1, needed)
    shares = {
        name.removesuffix(" radius"): {"N": entry["arguments"]["sizes"], **entry["value"]}
        for name, entry in computed.items()
        if "sizes" in entry["arguments"]
    }
    numbers = {
        "rows": rows,
        "failed_seeds": failed,
        "scales": SCALES.tolist(),
        "calibration": curves,
        "radius_shares": shares,
    }
    return Analysis(numbers, Table.of(rows), tuple(checks))


def _add(
    rows: list[dict[str, Any]],
    checks: list[Check],
    curves: dict[str, list[float]],
    label: str,
    inside: np.ndarray,
    needed: np.ndarray,
) -> None:
    """Adds what is shown of one group or of one class of sequences."""
    count, total = int(inside.sum()), len(inside)
    share = wilson(count, total)
    quantile = float(np.quantile(needed, 1 - DELTA, method="higher"))
    rows.append(
        {
            "classes": label,
            "runs": total,
            "covered": count,
            **share.columns("share"),
            "radius needed for 1 − δ": quantile,
        }
    )
    curves[label] = [round(float(np.mean(needed <= scale)), 4) for scale in SCALES]
    criterion = f"{label}: share of covered runs at least 1 − δ = {1 - DELTA:g}"
    observed = f"{count} of {total}, {share:.3f}; a multiple {quantile:.2g} of the radius would do"
    checks.append(Check(criterion, observed, share.value >= 1 - DELTA))


def draw(numbers: Mapping[str, Any]) -> Figure:
    """Left a row per group: its share, the interval, the criterion. Middle the share over the multiple of the radii, dashed
    for the theorem's. Right the anytime-valid radius as a share of the theorem's, over N."""
    rows = numbers["rows"]
    colours = {name: COLOURS[place] for place, name in enumerate(dict.fromkeys(map(_name, rows)))}
    with panels(3, height=3.2 + 0.3 * len(rows)) as (figure, (left, middle, right)):
        for y, row in enumerate(rows):
            colour, theorem = colours[_name(row)], row["classes"].endswith("theorem")
            left.plot([row["95% low"], row["95% high"]], [y, y], color=colour, linewidth=2.5, zorder=2)
            left.plot(row["share"], y, "s" if theorem else "o", color=colour, markersize=7, zorder=3, clip_on=False)
            heights, style = numbers["calibration"][row["classes"]], "--" if theorem else "-"
            label = None if theorem else f"{_name(row)} (dashed: theorem's radius)"
            middle.plot(numbers["scales"], heights, style, color=colour, label=label)
        left.axvline(1 - DELTA, **CRITERION)
        middle.axhline(1 - DELTA, **CRITERION, label=f"criterion: 1 − δ = {1 - DELTA:g}")
        middle.axvline(1.0, color="#888888", linewidth=0.8)
        lowest = min(*(row["95% low"] for row in rows), 0.85)
        left.set(xlim=(lowest - 0.02, 1.0), ylim=(len(rows) - 0.5, -0.5))
        left.set_yticks(range(len(rows)), [f"{row['classes'].split(',')[0]}, {_kind(row)}" for row in rows])
        left.set_xlabel("share of covered runs")
        middle.set(xscale="log", xlabel="multiple of the radius", ylabel="share of covered runs", ylim=(0, 1.02))
        middle.set_title("calibration")
        _draw_radii(right, numbers["radius_shares"])
        legend_below(figure, columns=2)
    return figure


def _draw_radii(axes: Axes, shares: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """A curve per class and part."""
    axes.axhline(0.25, color=COLOURS[0], linewidth=1.4, label="radius: lists")
    for index, (name, one) in enumerate(shares.items()):
        for part, style in (("drift", "o-"), ("reward", "s--")):
            label = f"radius: {name}, {part}"
            axes.plot(one["N"], one[part], style, color=COLOURS[4 + index], markersize=4, label=label)
    log_height(axes)
    label_sizes(axes, next(iter(shares.values()))["N"][::2], "measurements N")
    axes.set_title("anytime radius / theorem's")


def _name(row: Mapping[str, Any]) -> str:
    """The classes of a row and how they were measured.

    >>> _name({"classes": "lists, PURE base, N = 1,024, theorem"})
    'lists, PURE base'
    """
    return row["classes"].split(", N")[0]


def _kind(row: Mapping[str, Any]) -> str:
    return row["classes"].rsplit(", ", 1)[1]

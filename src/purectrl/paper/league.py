"""A league: algorithms side by side on the same problems, seeds and budget, and what each spends to reach the ceiling.

symbol  here      meaning
------  --------  ---------------------------------------------------------------------------------------------
c       ceiling   return of `known-model`, the planner with the true equations; without equations the best mean
f       floor     return of `random`, smooth random control
s       score     (return − f)/(c − f) of an evaluated policy
s*      share     the score that counts as reached

A run is charged with the measurements, rollouts, updates and seconds of the first record whose evaluation has s ≥ s*.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from purectrl.core.errors import StoreError, require
from purectrl.core.ledger import Ledger
from purectrl.core.prices import Prices
from purectrl.paper.figures import COLOURS, CRITERION, MARKERS, Figure, legend_below, log_width, panels
from purectrl.paper.item import Group, Item
from purectrl.paper.load import KEY, Runs
from purectrl.paper.results import Analysis, Table
from purectrl.paper.statistics import MIN_SEEDS, mean, mean_interval

CEILING, FLOOR = "known-model", "random"
"""The algorithms whose returns are the scores 1 and 0."""
SPENT = ("measurements", "rollouts", "updates", "seconds")
"""What is counted until the share is reached."""


class Entrant(NamedTuple):
    """A problem with an algorithm."""

    problem: str
    algorithm: str


def item(
    problems: Mapping[str, bool],
    algorithms: Sequence[str],
    seeds: int,
    measurements: int | None = None,
    share: float = 0.95,
    prices: Prices | None = None,
) -> Item:
    """The league as an item: every problem with every algorithm, the floor and, where there are equations, the ceiling.

    Main arguments:
        problems: their names or references, and whether each offers its equations.
        algorithms: what is compared.
        seeds: number of seeds per problem and algorithm; floor and ceiling have at most three.
        measurements: the budget of every run; None is that of the problem.
        share: the score that counts as reached.
        prices: of the utility; None are those of each problem.
    """
    require(len(algorithms) > 0, "algorithms: a league needs at least one")
    require(0 < share <= 1, f"share: must be above 0 and at most 1, not {share}")
    if prices is not None:
        prices.check()
    groups = []
    for problem, offers_equations in problems.items():
        references = [name for name, wanted in ((FLOOR, True), (CEILING, offers_equations)) if wanted]
        for algorithm in dict.fromkeys([*algorithms, *references]):
            most = None if algorithm in algorithms else 3
            name = f"{_file_name(problem)}-{algorithm}"
            groups.append(Group(name, problem, problem, algorithm, measurements=measurements, most_seeds=most))
    return Item(
        "league",
        f"{len(algorithms)} algorithms on {len(problems)} problems, and what each spends to reach {share:g} of the ceiling",
        lambda found, _: analyze(found, tuple(algorithms), share, prices),
        draw,
        tuple(groups),
        seeds=seeds,
        quick=seeds,
        cost="depends on the algorithms",
    )


def _file_name(problem: str) -> str:
    """A name that is valid as the name of a directory.

    >>> _file_name("tank.py:problem")
    'tank.py-problem'
    """
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in problem).strip(".-")


def analyze(
    found: Mapping[str, Runs], algorithms: Sequence[str], share: float, prices: Prices | None = None
) -> Analysis:
    """Scores, what was spent to reach the share, utilities and ranks, a row per problem and algorithm."""
    by_entrant = {Entrant(runs.group.problem, runs.group.algorithm): runs for runs in found.values()}
    rows: list[dict[str, Any]] = []
    for problem in dict.fromkeys(entrant.problem for entrant in by_entrant):
        runs = {name: by_entrant[Entrant(problem, name)] for name in algorithms}
        floor = mean(final_returns(by_entrant[Entrant(problem, FLOOR)]))
        known = by_entrant.get(Entrant(problem, CEILING))
        ceiling = max(mean(final_returns(one)) for one in ([known] if known else runs.values()))
        rows += _ranked([_row(one, floor, ceiling, share, prices) for one in runs.values()])
    numbers = {"rows": rows, "share": share, "mean_ranks": _mean_ranks(rows, algorithms)}
    hidden = {"curves", "reached_at"}
    table = Table.of([{name: value for name, value in row.items() if name not in hidden} for row in rows])
    return Analysis(numbers, table, ())


def final_returns(runs: Runs) -> np.ndarray:
    """The return, or the mean reward where policies are compared by that, of every run [seeds]."""
    return runs.metric(_metric(runs))


def _metric(runs: Runs) -> str:
    """The metric by which the problem compares policies: the one whose learning curve its runs keep."""
    found = [summary["metrics"] for summary in runs.summaries]
    return "return" if all("return" in one and "reward_curve" not in one for one in found) else "reward"


def _row(runs: Runs, floor: float, ceiling: float, share: float, prices: Prices | None) -> dict[str, Any]:
    """One problem with one algorithm."""
    unit = ceiling - floor
    if not unit > 0:
        raise StoreError(
            f"{runs.group.problem}: the ceiling, a return of {ceiling:g}, is not above the floor, {floor:g}; "
            "use a larger budget, or leave the problem out"
        )
    returns = final_returns(runs)
    curves = [score_curve(records, f"eval_{_metric(runs)}", floor, unit) for records in runs.records()]
    reached = [first_reached(records, scores, share) for records, scores in curves]
    scores = (returns - floor) / unit
    interval = mean_interval(KEY, scores) if len(scores) >= MIN_SEEDS else None
    return {
        "problem": runs.group.problem,
        "algorithm": runs.group.algorithm,
        "score": mean(scores),
        "95% low": None if interval is None else interval.low,
        "95% high": None if interval is None else interval.high,
        "reached": f"{sum(one is not None for one in reached)} of {len(reached)}",
        **{name: median_spent(reached, name) for name in SPENT},
        "utility": mean(_utilities(runs, returns, prices)),
        "reached_at": [None if one is None else {name: one[name] for name in SPENT} for one in reached],
        "curves": [
            {"measurements": [record["measurements"] for record in records], "score": scores.tolist()}
            for records, scores in curves
        ],
    }


def score_curve(
    records: Sequence[Mapping[str, Any]], name: str, floor: float, unit: float
) -> tuple[list[Mapping[str, Any]], np.ndarray]:
    """The evaluated records of a run and their scores.

    >>> records = [{"eval_return": 1.0}, {}, {"eval_return": 3.0}]
    >>> score_curve(records, "eval_return", floor=1.0, unit=4.0)[1]
    array([0. , 0.5])
    """
    evaluated = [record for record in records if isinstance(record.get(name), int | float)]
    return evaluated, (np.array([record[name] for record in evaluated], np.float64) - floor) / unit


def first_reached(records: Sequence[Mapping[str, Any]], scores: np.ndarray, share: float) -> Mapping[str, Any] | None:
    """The first record with at least this score; None if there is none."""
    places = np.flatnonzero(scores >= share)
    return records[places[0]] if len(places) else None


def median_spent(reached: Sequence[Mapping[str, Any] | None], name: str) -> float | None:
    """The median over seeds of what was spent, where seeds that did not reach the share count as infinite.

    >>> median_spent([{"updates": 3}, None, {"updates": 5}], "updates")
    5.0
    >>> median_spent([None, None, {"updates": 5}], "updates")  # most seeds did not reach it
    """
    value = float(np.median([math.inf if one is None else one[name] for one in reached]))
    return value if math.isfinite(value) else None


def _utilities(runs: Runs, returns: np.ndarray, prices: Prices | None) -> np.ndarray:
    """Return less what was spent, of every run [seeds]."""
    if prices is None and all("utility" in summary["metrics"] for summary in runs.summaries):
        return runs.metric("utility")
    ledgers = [Ledger.from_dict(summary["ledger"]) for summary in runs.summaries]
    chosen = prices or Prices()
    return np.array([chosen.utility(value, ledger) for value, ledger in zip(returns, ledgers, strict=True)])


def _ranked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of one problem with their rank: fewest measurements to the share, then the highest score. Ties share a rank."""
    keys = [(math.inf if row["measurements"] is None else row["measurements"], -row["score"]) for row in rows]
    return [{**row, "rank": 1 + sum(other < key for other in keys)} for row, key in zip(rows, keys, strict=True)]


def _mean_ranks(rows: Sequence[Mapping[str, Any]], algorithms: Sequence[str]) -> dict[str, float]:
    return {name: mean(np.array([row["rank"] for row in rows if row["algorithm"] == name])) for name in algorithms}


def draw(numbers: Mapping[str, Any]) -> Figure:
    """Scores at the end, and measurements until the share is reached; runs that do not reach it are missing."""
    rows = numbers["rows"]
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    algorithms = list(numbers["mean_ranks"])
    with panels(2, height=2.2 + (0.16 * len(algorithms) + 0.2) * len(problems)) as (figure, (left, right)):
        for row in rows:
            index = algorithms.index(row["algorithm"])
            offset = (index - (len(algorithms) - 1) / 2) * 0.8 / len(algorithms)
            place = problems.index(row["problem"]) + offset
            first = row["problem"] == problems[0]
            style = {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)], "markersize": 5}
            if row["95% low"] is not None:
                left.plot([row["95% low"], row["95% high"]], [place, place], color=style["color"], linewidth=1.2)
            label = f"{row['algorithm']} (mean rank {numbers['mean_ranks'][row['algorithm']]:.1f})"
            left.plot([row["score"]], [place], linestyle="", label=label if first else "_nolegend_", **style)
            spent = [one["measurements"] for one in row["reached_at"] if one is not None]
            right.plot(spent, [place] * len(spent), linestyle="", alpha=0.8, **style)
        left.axvline(numbers["share"], **CRITERION, label="share that counts as reached")
        left.set_xlabel("score of the returned policy (0: random, 1: ceiling)")
        right.set_xlabel("measurements until the share is reached, each seed")
        log_width(right)
        for axes, names in ((left, problems), (right, [""] * len(problems))):
            axes.set_yticks(np.arange(len(problems)), names)
            axes.set_ylim(len(problems) - 0.5, -0.5)
        legend_below(figure, columns=min(3, len(algorithms) + 1))
    return figure

"""Theorem 3: whether the regret of m measurements per rollout grows as sqrt(C_{T,m}), on a circle, where C is known.

C is a supremum over pasts. It is large for two reasons, which the item separates:

    correlated      Episodes start anywhere, and m equidistant measurements of an episode are dependent: the more, the
                    slower the mixing. On average over episodes they say as much as independent ones.
    uninformative   Episodes start where nothing is to be learned, and one measurement is taken soon after: it says 1/C
                    of what one at a uniform time says.

The rival predictor is the design effect 1 + (m − 1)ρ of survey sampling. In every setting the two rewards have the distance
that takes half of the measurements to decide, about the worst for the regret: nearer ones cost less, farther ones are told
apart sooner. The theorem's sqrt(C/N) is a bound over all distances.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from purectrl.core.samplers import Equidistant, ExponentialGaps, Sampler, Uniform, Windows
from purectrl.paper.coverage import DELTA, coverage_check, covered
from purectrl.paper.figures import CRITERION, Axes, Figure, legend_below, log_height, panels, scatter
from purectrl.paper.item import Computation, Group, Item
from purectrl.paper.load import KEY, Runs, budget, gap, matrix
from purectrl.paper.results import Analysis, Check, Table
from purectrl.paper.statistics import Interval, mean, ratio, slope
from purectrl.systems.circle_statistics import Start, design_effect, independency_circle, measured_information

REWARD_STD = 0.04
"""Standard deviation of a measured reward: small, so that distances fit into [0, 1/2] for C up to some hundred."""
RATE, WITHIN = 0.5, 0.1
"""The exponent of C in the theorem, and how far an estimate may be from it."""
CORRELATED, UNINFORMATIVE = "correlated", "uninformative"


def item(
    N: int = 1000,
    counts: Sequence[int] = (1, 5, 20, 100),
    mixing: Sequence[float] = (10.0, 1.0, 0.1),
    gaps: Sequence[float] = (0.1, 0.03, 0.01, 0.0),
    seeds: int = 100,
    quick: int = 40,
) -> Item:
    """Algorithm 3 on `circle` with anytime-valid sets: m equidistant measurements, m up to N/10, for several mixing times in
    units of T; and one measurement after an exponential time of several means, of which zero is the start itself."""
    settings = [(f"tau{tau:g}-m{m}", {"m": m, "mixing": tau, "start": "uniform"}) for tau in mixing for m in counts]
    settings += [("opposite", {"m": 1, "mixing": 1.0, "start": "opposite"})]
    settings += [(f"opposite-gap{one:g}", {"m": 1, "mixing": 1.0, "start": "opposite", "gap": one}) for one in gaps]
    groups = []
    for name, setting in settings:
        informative = coefficients(**setting)["information"] > 0
        arguments = {
            "diffusion": _diffusion(setting["mixing"]),
            "distance": _half_way(N, setting) if informative else 0.5,
            "start": setting["start"],
            "reward_std": REWARD_STD,
        }
        overrides = {"learner.radius": "anytime", "learner.delta": DELTA, **_overrides(setting)}
        groups.append(Group(name, name, "circle", "pure-low-rollout", arguments, overrides, N))
    return Item(
        "thm3-rollouts",
        "Theorem 3: m measurements per rollout need N/m rollouts; whether the regret grows as the square root of C_{T,m}",
        analyze,
        draw,
        tuple(groups),
        seeds,
        quick,
        cost="about 5 minutes of computing, 2 with --quick, halved on two cores",
        computations=tuple(Computation(name, coefficients, setting) for name, setting in settings),
    )


def coefficients(m: int, mixing: float, start: Start, gap: float | None = None) -> dict[str, float]:
    """C_{T,m}, the design effect, and E ψ² at a measurement, for T = 1."""
    sampler, diffusion = _sampler(m, start, gap), _diffusion(mixing)
    return {
        "C": independency_circle(sampler, diffusion, 1.0, start),
        "design_effect": design_effect(m, diffusion, 1.0),
        "information": measured_information(sampler, diffusion, 1.0, start),
    }


def _sampler(m: int, start: Start, gap: float | None) -> Sampler:
    if start == "uniform":
        return Equidistant(m)
    if gap is None:
        return Uniform(m)
    return ExponentialGaps(m, gap) if gap > 0 else Windows(count=1, length=0.01, step=0.01, from_start=True)


def _overrides(setting: Mapping[str, Any]) -> dict[str, Any]:
    """The same sampler as overrides of a run."""
    if setting["start"] == "uniform":
        return {"sampler": "equidistant", "sampler.m": setting["m"]}
    if "gap" not in setting:
        return {"sampler": "uniform", "sampler.m": 1}
    if setting["gap"] > 0:
        return {"sampler": "exponential-gaps", "sampler.m": 1, "sampler.mean_gap": setting["gap"]}
    window = {"sampler.count": 1, "sampler.length": 0.01, "sampler.step": 0.01, "sampler.from_start": True}
    return {"sampler": "windows", **window}


def _diffusion(mixing: float) -> float:
    """g with the mixing time 2/g²."""
    return math.sqrt(2 / mixing)


def _beta() -> float:
    """β_R of two rewards (`purectrl.theory.confidence.ville_radius`): the list of item groups must not load JAX."""
    return 2 * REWARD_STD**2 * math.log(2 / (DELTA / 2))


def _half_way(N: int, setting: Mapping[str, Any]) -> float:
    """η with which N/2 measurements exclude the wrong reward on average: 4η² E ψ² · N/2 = β_R."""
    return math.sqrt(_beta() / (2 * coefficients(**setting)["information"] * N))


def analyze(found: Mapping[str, Runs], computed: Mapping[str, Any]) -> Analysis:
    """The regret of every setting, beside C and the design effect, and relative to C = 1."""
    rows = []
    for name, runs in found.items():
        setting, known = computed[name]["arguments"], computed[name]["value"]
        kind = CORRELATED if setting["start"] == "uniform" else UNINFORMATIVE
        same = "-".join([*name.split("-")[:-1], "m1"]) if kind == CORRELATED else "opposite"
        coefficient = math.inf if known["C"] is None else known["C"]  # null is infinity in JSON
        rows.append(
            {
                "kind": kind,
                "mixing time / T": setting["mixing"],
                "m": setting["m"],
                "rollouts": int(mean(runs.ledger("rollouts"))),
                "C": coefficient if math.isfinite(coefficient) else "∞",
                "design effect": known["design_effect"],
                "covered": f"{int(covered(runs).sum())}/{len(runs.seeds)}",
                "regret": mean(gap(runs)),
                **ratio(KEY.child("relative", name), gap(runs), gap(found[same])).columns("relative to C = 1"),
                "bound": _bound(budget(runs), setting["m"], coefficient),
            }
        )
    slopes = {kind: _exponent(kind, list(found.values()), rows) for kind in (CORRELATED, UNINFORMATIVE)}
    checks = (coverage_check(found), *_checks(rows, slopes))
    numbers = {"rows": rows, "exponents": {kind: one._asdict() for kind, one in slopes.items()}}
    return Analysis(numbers, Table.of(rows), checks)


def _exponent(kind: str, found: Sequence[Runs], rows: Sequence[Mapping[str, Any]]) -> Interval:
    """The exponent of C in the regret relative to C = 1, by least squares over the settings of a kind with finite C."""
    chosen = [
        (row["C"], runs) for row, runs in zip(rows, found, strict=True) if row["kind"] == kind and row["C"] != "∞"
    ]
    coefficients = np.array([coefficient for coefficient, _ in chosen])
    return slope(KEY.child("exponent", kind), coefficients, matrix([runs for _, runs in chosen], gap))


def _bound(N: int, m: int, coefficient: float) -> float | str:
    """Theorem 3's bound with the factor one: d_R = 1 for two rewards, d_F = 0 for one drift."""
    from purectrl.theory.complexity import Smoothness, suboptimality_low_rollout

    if not math.isfinite(coefficient):
        return "∞"
    smooth = Smoothness(horizon=1.0, drift=0.0, diffusion=0.0, reward=1.0, policy=0.0)
    sizes = {"dim_drift": 0, "dim_reward": 1, "beta_drift": 1.0, "beta_reward": _beta()}
    return suboptimality_low_rollout(smooth, N, m, coefficient, **sizes)


def _checks(rows: Sequence[Mapping[str, Any]], slopes: Mapping[str, Interval]) -> tuple[Check, ...]:
    finite = [row for row in rows if row["C"] != "∞"]
    tight = max(finite, key=lambda row: row["regret"] / row["bound"])
    share = tight["regret"] / tight["bound"]
    far = [row for row in finite if row["kind"] == CORRELATED and row["m"] > 1]
    errors = {
        name: math.sqrt(mean(np.log([row["relative to C = 1"] / math.sqrt(row[name]) for row in far]) ** 2))
        for name in ("C", "design effect")
    }
    hypotheses = [
        Check(
            f"{kind} measurements: regret ∝ C^{RATE:g}, exponent within {WITHIN:g} of it",
            f"{found:.3f} for C = 1 to {max(row['C'] for row in finite if row['kind'] == kind):,.0f}",
            abs(found.value - RATE) <= WITHIN,
        )
        for kind, found in slopes.items()
    ]
    return (
        *hypotheses,
        Check(
            "correlated measurements: the root of the design effect is nearer to the regret than that of C",
            f"typical factor {math.exp(errors['design effect']):.3g} against {math.exp(errors['C']):.3g}",
            errors["design effect"] < errors["C"],
        ),
        Check(
            "regret at most Theorem 3's bound with the factor one, in every setting with finite C",
            f"at most {share:.3f} of it, at C = {tight['C']:.3g}, m = {tight['m']}",
            share <= 1,
        ),
    )


def draw(numbers: Mapping[str, Any]) -> Figure:
    """The regret relative to C = 1, left over C beside sqrt(C), right over the design effect beside its root."""
    with panels(2, height=4.6) as (figure, (left, right)):
        rows = numbers["rows"]
        labels = list(dict.fromkeys(map(_label, rows)))
        for index, label in enumerate(labels):
            series = [row for row in rows if _label(row) == label]
            _points(left, [row for row in series if row["C"] != "∞"], "C", index, label)
            if series[0]["kind"] == CORRELATED:
                _points(right, series, "design effect", index, label)
        for axes, name in ((left, "C"), (right, "design effect")):
            most = max(row[name] for row in rows if row["C"] != "∞")
            ends = np.geomspace(1, most, 2)
            axes.plot(ends, np.sqrt(ends), **CRITERION, label="hypothesis: square root")
            axes.set_xscale("log")
            log_height(axes)
            axes.set_ylabel("regret relative to C = 1")
        infinite = sum(row["C"] == "∞" for row in rows)
        left.set(xlabel="independency coefficient C$_{T,m}$", title=f"over C ({infinite} infinite, not drawn)")
        right.set(xlabel="design effect 1 + (m − 1)ρ", title="correlated measurements")
        legend_below(figure, columns=2)
    return figure


def _label(row: Mapping[str, Any]) -> str:
    return (
        f"correlated, mixing time {row['mixing time / T']:g} T" if row["kind"] == CORRELATED else "uninformative, m = 1"
    )


def _points(axes: Axes, rows: Sequence[Mapping[str, Any]], at: str, index: int, label: str) -> None:
    columns = {"x": at, "mean": "relative to C = 1", "low": "95% low", "high": "95% high"}
    scatter(axes, {name: [row[column] for row in rows] for name, column in columns.items()}, index, label)

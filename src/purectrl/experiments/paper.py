"""The paper's items: the runs that each figure and table of `purectrl paper` is made of.

An item is a list of groups (an experiment, an algorithm, some settings), each run with every seed, and perhaps numbers that
need no run. What they say is worked out in `purectrl.report`, which reads what is left here and runs nothing.

    DIR/ITEM/runs/<group>/<algorithm>-seed<k>/     the runs; those that are finished are never repeated
    DIR/ITEM/computed.json                         the numbers that need no run

To add an item: a function here that returns an `Item`, its call in `ITEMS`, and a row in `purectrl.report.paper.REPORTS`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from purectrl.core.errors import InputError, StoreError, choose
from purectrl.experiments.coefficients import independency_of, ou_grid
from purectrl.experiments.runner import Spec, versions

if TYPE_CHECKING:  # the list of items needs no JAX
    from purectrl.experiments.sweep import Engine, Job, Outcome

RICHER: Mapping[str, Any] = {
    "grid": "dyadic",
    "scales": 9,
    "a": 0.2,
    "c": 0.3,
    "goal": 0.5,
    "diffusion": 0.005,
    "reward_std": 0.01,
    "paths": 32,
}
"""Settings of `finite` under which LowSwitch has something to switch about (Theorem 2): candidates at nine distances from
the truth, and so little noise that the first are told apart at once."""
LINEAR: Mapping[str, Any] = {"classes": "linear", "dimension": 1}
"""`lqr` with linear classes in one dimension."""
LIGHT: Mapping[str, Any] = {**LINEAR, "radius_scale": 0.05, "starts": 4, "iterations": 40, "paths": 128, "steps": 20}
"""The same with small radii, since with the theorem's nothing is learned at small N, and with a planner that Algorithm 1 can
afford after every episode."""
SYSTEMS = ("pendulum", "cartpole", "acrobot")
"""Those of the paper's control experiments."""
SIMULATION: Mapping[str, int] = {"pasts": 32, "futures": 256, "pool": 2048}
"""How much to simulate for C_{T,m}, which varies over many powers of ten."""


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed alone.

    Main arguments:
        name: their directory; groups with different algorithms may share one.
        label: what figures and tables call the series that they are a point of.
        settings: what differs from the algorithm's preset.
        most_seeds: run with no more than so many of the item's seeds, the first ones.
    """

    name: str
    label: str
    experiment: str
    algorithm: str
    settings: Mapping[str, Any]
    most_seeds: int | None = None

    def spec(self, seed: int) -> Spec:
        """One of the runs."""
        return Spec.of(self.experiment, self.algorithm, seed, **self.settings)


@dataclass(frozen=True)
class Computation:
    """Numbers that need no run: `function(**arguments)`, a JSON value, computed once and kept in `computed.json`."""

    name: str
    function: Callable[..., Any]
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Item:
    """One figure with its table.

    Main arguments:
        shows: what it shows, with the paper's label.
        groups: what to run.
        seeds, quick: how many seeds, and how many with `--quick`: the runs themselves are the same.
        cost: how long it takes, roughly, on two cores.
        computations: what to compute besides.
    """

    name: str
    shows: str
    groups: tuple[Group, ...] = ()
    seeds: int = 10
    quick: int = 4
    cost: str = "seconds"
    computations: tuple[Computation, ...] = ()

    def __post_init__(self) -> None:
        places = [(group.name, group.algorithm) for group in self.groups]
        if len(set(places)) < len(places):
            raise InputError(f"groups: two groups of {self.name} would write into the same directory; rename one")

    def chosen_seeds(self, quick: bool) -> range:
        """The seeds of the item, or the first few of them."""
        return range(self.quick if quick else self.seeds)

    def jobs(self, folder: Path, group: Group, seeds: Sequence[int]) -> "list[Job]":
        """The runs of one group below DIR/ITEM, one for each seed."""
        from purectrl.experiments.sweep import Job

        runs = folder.absolute() / "runs" / group.name
        chosen = seeds[: group.most_seeds]
        return [Job(group.spec(seed), runs / f"{group.algorithm}-seed{seed}") for seed in chosen]

    def count(self, quick: bool) -> int:
        """How many runs the item consists of."""
        return sum(len(self.chosen_seeds(quick)[: group.most_seeds]) for group in self.groups)


def run_missing(item: Item, folder: Path, seeds: Sequence[int], engine: "Engine") -> "Iterator[Outcome]":
    """Yields the outcome of every run of `item` below DIR/ITEM, all groups in one call of the engine."""
    from purectrl.experiments.sweep import complete

    nearest = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise StoreError(f"{nearest} is a file; --out takes a directory")
    jobs = [job for group in item.groups for job in item.jobs(folder, group, seeds)]
    _refuse_foreign(jobs)
    yield from complete(jobs, engine)


def _refuse_foreign(jobs: "Sequence[Job]") -> None:
    """Raises if new runs would be averaged with runs of other versions; runs that are all there may be of any."""
    from purectrl.experiments.store import read_config

    begun = [job for job in jobs if (job.out / "config.json").exists()]
    if all((job.out / "summary.json").exists() for job in jobs):
        return
    ours = versions()
    for job in begun:
        found = read_config(job.out)["versions"]
        if found != ours:
            other = [f"{name} {found.get(name)}" for name in ours if found.get(name) != ours[name]]
            raise StoreError(
                f"{job.out} was run with {', '.join(other)}, unlike what is installed: one mean must not mix both; "
                "take another --out"
            )


def compute_missing(item: Item, folder: Path) -> Iterator[str]:
    """Yields the name of every computation of `item` that was not in DIR/ITEM/computed.json, once it is there."""
    from purectrl.experiments.files import write_json

    kept = read_computed(item, folder)
    for computation in item.computations:
        if computation.name in kept:
            continue
        arguments = dict(computation.arguments)
        kept[computation.name] = {"arguments": arguments, "value": computation.function(**arguments)}
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "computed.json", kept)
        yield computation.name


def read_computed(item: Item, folder: Path) -> dict[str, Any]:
    """DIR/ITEM/computed.json, as far as it goes; refused if something in it was computed with other arguments."""
    from purectrl.experiments.files import read_json

    path = folder / "computed.json"
    kept = read_json(path) if path.exists() else {}
    if not isinstance(kept, dict) or not all(isinstance(entry, dict) and "value" in entry for entry in kept.values()):
        raise StoreError(f"{path} is not what `purectrl paper` leaves: remove it, then run the item again")
    for computation in item.computations:
        if computation.name in kept and kept[computation.name].get("arguments") != dict(computation.arguments):
            raise StoreError(f"{path}: {computation.name!r} was computed with other arguments; take another --out")
    return kept


def powers(first: int, last: int) -> list[int]:
    """2^first … 2^last, the largest first: long runs begin early, so that all cores are busy until the end.

    >>> powers(8, 10)
    [1024, 512, 256]
    """
    return [2**exponent for exponent in range(last, first - 1, -1)]


def thm1_coverage(finite: int = 1024, linear: int = 256, seeds: int = 200, quick: int = 50, **common: Any) -> Item:
    """Algorithm 1, since only it makes F_n and R_n anew for every n. The theorem holds for any plans, so with linear classes
    hardly anything is spent on making them good.
    """
    short = {**LINEAR, "starts": 1, "iterations": 2, "paths": 8, "steps": 10, "measurements": linear}
    theorem = {"radius_scale": 1.0, "delta": 0.1}
    return Item(
        "thm1-coverage",
        "Theorem 1, first claim: f* in F_n and b* in R_n for all n, with probability at least 1 − δ",
        (
            Group("lqr", f"lqr, linear classes, N = {linear:,}", "lqr", "pure-base", {**short, **theorem, **common}),
            Group(
                "finite",
                f"finite, N = {finite:,}",
                "finite",
                "pure-base",
                {"measurements": finite, **theorem, **common},
            ),
        ),
        seeds,
        quick,
        cost="about an hour",
    )


def thm1_rate(
    sizes: Sequence[int] = tuple(powers(8, 16)),
    base_sizes: Sequence[int] = tuple(powers(8, 11)),
    seeds: int = 10,
    quick: int = 4,
    **common: Any,
) -> Item:
    """The average regret over N, and what planning costs: Algorithm 1 with linear classes is affordable at small N only."""
    series = [
        ("lqr, PURE base", "lqr", "pure-base", LIGHT, base_sizes),
        ("lqr, PURE LowSwitch", "lqr", "pure-low-switch", LIGHT, sizes),
        ("finite, PURE base", "finite", "pure-base", {}, sizes),
        ("finite, PURE LowSwitch", "finite", "pure-low-switch", {}, sizes),
        ("finite, PURE LowRollout (m = 4)", "finite", "pure-low-rollout", {}, sizes),
    ]
    return Item(
        "thm1-rate",
        "Theorem 1, second claim: the average regret falls like N^(−1/2)",
        tuple(
            Group(f"{experiment}-N{N}", label, experiment, algorithm, {**settings, "measurements": N, **common})
            for label, experiment, algorithm, settings, over in series
            for N in over
        ),
        seeds,
        quick,
        cost="about five hours, most of them Algorithm 1 on lqr",
    )


def thm2_switches(
    sizes: Sequence[int] = tuple(powers(8, 16)),
    factors: Sequence[float] = (1.0, 2.0, 10.0),
    seeds: int = 10,
    quick: int = 4,
    **common: Any,
) -> Item:
    """Algorithm 2 against Algorithm 1, and other factors than its 5 at the largest N."""
    settings = {**RICHER, **common}
    largest = max(sizes)
    over = [
        Group(f"N{N}", label, "finite", algorithm, {"measurements": N, **settings})
        for label, algorithm in (("PURE base", "pure-base"), ("PURE LowSwitch", "pure-low-switch"))
        for N in sizes
    ]
    others = [
        Group(
            f"factor{factor:g}",
            f"factor {factor:g}",
            "finite",
            "pure-low-switch",
            {"measurements": largest, "factor": factor, **settings},
        )
        for factor in factors
    ]
    return Item(
        "thm2-switches",
        "Theorem 2: PURE LowSwitch updates its policy O(log N) times, at the same regret",
        (*over, *others),
        seeds,
        quick,
        cost="about an hour",
    )


def thm3_rollouts(
    N: int = 2**13,
    counts: Sequence[int] = (1, 2, 4, 8, 16),
    window_step: float = 0.01,
    seeds: int = 10,
    quick: int = 4,
    coefficient: Callable[..., Any] = independency_of,
    **common: Any,
) -> Item:
    """Algorithm 3 with good samplers, with one that takes its m measurements within a moment, and with one whose moment is
    always the first of the episode. The system is that of Proposition 2, where x(0) = 0 says nothing about the drift; the
    radii are a tenth of the theorem's, so that there is something to see."""
    fixed = {"measurements": N, "radius_scale": 0.1}
    groups = [
        Group(f"{sampler}-m{m}", sampler, "ou", "pure-low-rollout", {**fixed, **settings(m), **common})
        for sampler, settings in (
            ("uniform", lambda m: {"sampler": "uniform", "m": m}),
            ("equidistant", lambda m: {"sampler": "equidistant", "m": m}),
            ("clustered", partial(_window, window_step)),
            ("at-the-start", lambda m: {**_window(window_step, m), "window_at_start": True}),
        )
        for m in counts
    ]
    return Item(
        "thm3-rollouts",
        "Theorem 3: m measurements a rollout need N/m rollouts; the regret grows with the coefficient C_{T,m}",
        tuple(groups),
        seeds,
        quick,
        cost="about half an hour",
        computations=tuple(
            Computation(group.name, coefficient, {"name": "ou", "settings": dict(group.settings), **SIMULATION})
            for group in groups
        ),
    )


def _window(step: float, m: int) -> dict[str, Any]:
    """One window of m points an episode; m follows from its length."""
    return {"sampler": "windows", "windows": 1, "window_length": m * step, "window_step": step}


def prop2_independency(most: int = 64, cases: Sequence[tuple[float, float]] = ((1, 1), (4, 1), (4, 4))) -> Item:
    """The closed form of the Ornstein-Uhlenbeck process for a few (T, u_min)."""
    return Item(
        "prop2-independency",
        "Proposition 2: C_{T,m} ≤ 1 + m/(2T u_min) for the Ornstein-Uhlenbeck process on the grid iT/m",
        computations=tuple(
            Computation(f"T={T:g} u_min={u_min:g}", ou_grid, {"horizon": float(T), "u_min": float(u_min), "most": most})
            for T, u_min in cases
        ),
    )


def neural_pendulum(seeds: int = 5, quick: int = 2, **common: Any) -> Item:
    """Algorithm 2 where no small linear class fits."""
    return Item(
        "neural-pendulum",
        "Algorithm 2 with a neural drift class on a pendulum: the gap beside a random policy's",
        (Group("neural", "neural drift", "neural", "pure-low-switch", common),),
        seeds,
        quick,
        cost="about ten minutes",
    )


def control_main(
    seeds: int = 10, quick: int = 2, hard: int = 5, enode: int = 2, systems: Sequence[str] = SYSTEMS, **common: Any
) -> Item:
    """ENODE and PURE_ENODE on the three systems; `hard` and `enode` are the most seeds on those that take long."""
    groups = [
        Group(system, label, system, algorithm, common, None if system == "pendulum" else most)
        for system in systems
        for label, algorithm, most in (("PURE_ENODE", "pure-enode", hard), ("ENODE", "enode", enode))
    ]
    return Item(
        "control-main",
        "Continuous-time control: PURE_ENODE beside ENODE, the same learner with fewer updates",
        tuple(groups),
        seeds,
        quick,
        cost="about an hour and a quarter, 40 minutes with --quick",
    )


ITEMS: Mapping[str, Item] = {
    item.name: item
    for item in (
        thm1_coverage(),
        thm1_rate(),
        thm2_switches(),
        thm3_rollouts(),
        prop2_independency(),
        neural_pendulum(),
        control_main(),
    )
}
"""What `purectrl paper` knows."""


def item_called(name: str) -> Item:
    """The item called `name`; a near miss is answered with the right name."""
    return ITEMS[choose("item", name, ITEMS)]

"""The items that `purectrl paper` knows: every figure, table and theorem as a list of runs.

To add one: a function here that returns an `Item`, its call in `ITEMS`, and a row in `purectrl.report.paper.REPORTS`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from purectrl.core.errors import choose
from purectrl.experiments.coefficients import independency_of, ou_grid
from purectrl.experiments.paper import Computation, Group, Item

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
        cost="about half an hour of computing, 7 minutes with --quick, halved on two cores",
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
        cost="about an hour of computing, 25 minutes with --quick, halved on two cores",
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
        cost="about half an hour of computing, 13 minutes with --quick, halved on two cores",
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
        cost="about 8 minutes on two cores, 6 with --quick",
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
        cost="about a quarter of an hour on two cores, 5 minutes with --quick",
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
        cost="about an hour and a quarter on two cores, 40 minutes with --quick",
    )


CONTROL = "control-main"
"""Where the runs lie that all items of control share."""


def control_updates(seeds: int = 5, quick: int = 2, **common: Any) -> Item:
    """Other batches on acrobot: tripling, doubling, ten equal ones, and ENODE's twenty. The paper's ten batches of 4 do not
    spend its budget of 87 episodes; ten of 8 do."""
    return Item(
        "control-updates",
        "How many updates PURE_ENODE needs on acrobot: N_pu = 4, 6, 10, 20",
        (
            Group("four", "N_pu = 4, tripling", "acrobot", "pure-enode", {**common, "batches": (2, 6, 18, 54)}),
            Group("acrobot", "N_pu = 6, doubling", "acrobot", "pure-enode", common, home=CONTROL),
            Group("ten", "N_pu = 10, equal", "acrobot", "pure-enode", {**common, "batches": (8,) * 10}),
            Group("acrobot", "N_pu = 20, ENODE", "acrobot", "enode", common, most_seeds=2, home=CONTROL),
        ),
        seeds,
        quick,
        cost="about 20 minutes on two cores, 10 with --quick, after control-main",
    )


def control_frequency(seeds: int = 5, quick: int = 2, **common: Any) -> Item:
    """Other numbers of measurements an episode on acrobot, with the batches of the paper's table. An episode has 500 points
    of 0.1 s, so that 1,000 measurements are 0.05 s apart; what comes before the first batch is rounded up to episodes."""
    table: list[tuple[int, dict[str, Any], int, tuple[int, ...]]] = [
        (125, {"window_length": 2.5}, 14, (4, 8, 16, 32, 36, 64)),
        (500, {"windows": 10}, 4, (1, 2, 4, 8, 9, 16)),
        (1000, {"windows": 10, "window_step": 0.05}, 2, (1, 1, 2, 4, 4, 8)),
    ]
    groups = [
        Group(
            f"m{m}",
            f"m = {m}",
            "acrobot",
            "pure-enode",
            {**common, **windows, "m": m, "initial": initial, "batches": batches}
            | {"measurements": m * (initial + sum(batches))},
        )
        for m, windows, initial, batches in table
    ]
    groups.insert(1, Group("acrobot", "m = 250", "acrobot", "pure-enode", common, home=CONTROL))
    return Item(
        "control-frequency",
        "How often PURE_ENODE measures in an episode of acrobot: m = 125, 250, 500, 1000",
        tuple(groups),
        seeds,
        quick,
        cost="about 25 minutes on two cores, 10 with --quick, after control-main",
    )


DIFFUSION = "diffusion-main"
"""Where the runs lie that all items of diffusion share."""


def diffusion_main(seeds: int = 5, quick: int = 2, **common: Any) -> Item:
    """SEIKO and PURE_SEIKO on the digits."""
    return Item(
        DIFFUSION,
        "Fine-tuning of a diffusion model: PURE_SEIKO beside SEIKO, with a quarter of the trajectories",
        (
            Group("m4", "PURE_SEIKO", "digits", "pure-seiko", common),
            Group("m1", "SEIKO", "digits", "seiko", common),
        ),
        seeds,
        quick,
        cost="about 50 minutes on two cores, 20 with --quick",
    )


def diffusion_labels(seeds: int = 5, quick: int = 2, others: int = 2, **common: Any) -> Item:
    """What the paper lacks: the same N/m trajectories with final labels alone, and other things to measure on the way, with
    `others` seeds at most."""
    rows: list[tuple[str, str, str, Mapping[str, Any]]] = [
        ("terminal", "final labels alone", "seiko", {"measurements": common.get("measurements", 19_200) // 4}),
        ("distinct", "each of the m times once", "pure-seiko", {"sampler": "geometric-distinct"}),
        ("state", "x(t) itself", "pure-seiko", {"look": "state"}),
        (
            "state-distinct",
            "x(t) itself, each time once",
            "pure-seiko",
            {"look": "state", "sampler": "geometric-distinct"},
        ),
    ]
    return Item(
        "diffusion-labels",
        "Whether labels on the way help: PURE_SEIKO beside other labels on the same N/m trajectories",
        (
            Group("m4", "PURE_SEIKO", "digits", "pure-seiko", common, home=DIFFUSION),
            *(
                Group(name, label, "digits", algorithm, {**common, **settings}, None if name == "terminal" else others)
                for name, label, algorithm, settings in rows
            ),
        ),
        seeds,
        quick,
        cost="about 40 minutes on two cores, half an hour with --quick, after diffusion-main",
    )


def diffusion_updates(seeds: int = 5, quick: int = 2, others: int = 2, **common: Any) -> Item:
    """PURE_SEIKO with other numbers of updates. The paper does not say how eight batches grow: by 1.35 here, so that they
    begin with half of what four do. `others` is the most seeds of these."""

    def group(K: int, growth: float) -> Group:
        return Group(f"K{K}", f"K = {K}", "digits", "pure-seiko", {**common, "updates": K, "growth": growth}, others)

    four = Group("m4", "K = 4", "digits", "pure-seiko", common, home=DIFFUSION)
    return Item(
        "diffusion-updates",
        "How many updates PURE_SEIKO needs: K = 2, 4, 8 at m = 4",
        (group(2, 2.0), four, group(8, 1.35)),
        seeds,
        quick,
        cost="about a quarter of an hour on two cores, with --quick or without, after diffusion-main",
    )


def diffusion_frequency(seeds: int = 5, quick: int = 2, others: int = 2, **common: Any) -> Item:
    """PURE_SEIKO with other numbers of measurements a trajectory; m = 1 is SEIKO. `others` is the most seeds of m = 40."""
    return Item(
        "diffusion-frequency",
        "How often PURE_SEIKO measures along a trajectory: m = 1, 4, 40 at K = 4",
        (
            Group("m1", "m = 1", "digits", "seiko", common, home=DIFFUSION),
            Group("m4", "m = 4", "digits", "pure-seiko", common, home=DIFFUSION),
            Group("m40", "m = 40", "digits", "pure-seiko", {**common, "m": 40}, others),
        ),
        seeds,
        quick,
        cost="about 10 minutes on two cores, with --quick or without, after diffusion-main",
    )


def diffusion_samples(seeds: int = 1, quick: int = 1, **common: Any) -> Item:
    """Images of the pretrained model and of both tuned ones, from the same noise."""
    return Item(
        "diffusion-samples",
        "Samples before and after fine-tuning with SEIKO and with PURE_SEIKO, side by side",
        (
            Group("m1", "SEIKO", "digits", "seiko", common, home=DIFFUSION),
            Group("m4", "PURE_SEIKO", "digits", "pure-seiko", common, home=DIFFUSION),
        ),
        seeds,
        quick,
        cost="a quarter of an hour on two cores, seconds after diffusion-main",
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
        control_updates(),
        control_frequency(),
        diffusion_main(),
        diffusion_labels(),
        diffusion_updates(),
        diffusion_frequency(),
        diffusion_samples(),
    )
}
"""What `purectrl paper` knows."""


def item_called(name: str) -> Item:
    """The item called `name`; a near miss is answered with the right name."""
    return ITEMS[choose("item", name, ITEMS)]

"""The named algorithms: each a few lines that return an `Algorithm`.

    algorithm                       sampler                  schedule                         learner
    ------------------------------  -----------------------  -------------------------------  ----------------------------
    PURE_base (Algorithm 1)         uniform, m = 1           every episode                    confidence sets
    PURE_LowSwitch (Algorithm 2)    uniform, m = 1           excess loss ≥ 5β, failed set     confidence sets
    PURE_LowRollout (Algorithm 3)   uniform, m               every episode                    confidence sets
    both combined (ours)            uniform, m               excess loss ≥ 5β, both sets      confidence sets
    ENODE                           windows                  equal batches                    ensemble of neural ODEs
    PURE_ENODE (Algorithm 5)        windows                  doubling batches                 ensemble of neural ODEs
    OCoRL                           max-determinant          every episode                    GP, optimistic trajectory
    PURE-auto (ours)                windows at the system's  promise not kept                 ensemble, planning in rounds
                                    time scale
    known model (ours)              windows at the system's  promise not kept                 true equations, planning in
                                    time scale                                                rounds
    SAC (baseline)                  whole episode            every episode                    soft actor-critic
    PETS (baseline)                 whole episode            every episode                    ensemble, plan per decision
    deep PILCO (baseline)           whole episode            every episode                    ensemble, particles, no critic
    SEIKO                           final                    K growing batches                reward model, fine-tuning
    PURE_SEIKO (Algorithm 4)        m times, P(iT/m) ∝ λ^i   K growing batches                reward model, fine-tuning
    DRaFT-K                         final                    K growing batches                reward model, last K steps
    AlignProp                       final                    K growing batches                reward model, random K
    DDPO, GRPO                      final                    equal batches                    policy gradient on the chain
    best-of-n                       final                    equal batches                    likelihood of the best

Each function takes the problem, whose settings in the paper's tables it uses; without one, it returns general defaults. A
baseline and its PURE variant differ in sampler and schedule only.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from purectrl.core.algorithm import Algorithm, LearnerSettings
from purectrl.core.errors import InputError, choose
from purectrl.core.output_rules import LastPolicy
from purectrl.core.problem import Problem
from purectrl.core.references import is_reference, load_reference
from purectrl.core.samplers import MaxDeterminant, PacedWindows, Sampler, Uniform, Windows
from purectrl.core.schedules import DoublingBatches, EqualBatches, Every, OnExcessLoss, Schedule
from purectrl.diffusion.fine_tuners import (
    STABLE_DIFFUSION_PRESETS,
    alignprop,
    best_of_n,
    ddpo,
    draft,
    grpo,
    pure_seiko,
    seiko,
)


class LearnerEntry(NamedTuple):
    """A shipped learner."""

    reference: str
    """Its settings class."""
    needs: frozenset[str]
    """What a problem must offer."""


LEARNERS: dict[str, LearnerEntry] = {
    "finite-sets": LearnerEntry("purectrl.theory.settings:FiniteSets", frozenset({"finite classes"})),
    "linear-sets": LearnerEntry("purectrl.theory.settings:LinearSets", frozenset({"linear classes"})),
    "kernel-sets": LearnerEntry("purectrl.theory.settings:KernelSets", frozenset({"kernel classes"})),
    "neural-sets": LearnerEntry("purectrl.theory.settings:NeuralSets", frozenset({"neural classes"})),
    "enode": LearnerEntry("purectrl.control.settings:Enode", frozenset({"states"})),
    "trajectory": LearnerEntry("purectrl.control.trajectory_settings:Trajectory", frozenset({"states"})),
    "auto": LearnerEntry("purectrl.control.auto_settings:Auto", frozenset({"states"})),
    "known-model": LearnerEntry("purectrl.control.auto_settings:KnownModel", frozenset({"states", "equations"})),
    "sac": LearnerEntry("purectrl.control.sac_settings:Sac", frozenset({"states"})),
    "pets": LearnerEntry("purectrl.control.pets_settings:Pets", frozenset({"states", "held controls"})),
    "deep-pilco": LearnerEntry(
        "purectrl.control.deep_pilco_settings:DeepPilco", frozenset({"states", "held controls"})
    ),
    "random": LearnerEntry("purectrl.control.random_control:RandomControl", frozenset({"states"})),
    "seiko": LearnerEntry("purectrl.diffusion.settings:Seiko", frozenset({"images"})),
    "chain": LearnerEntry("purectrl.diffusion.settings:Chain", frozenset({"images"})),
}
"""The names that `--learner` takes. A new learner is a file and a line here."""


def learner_class(name: str) -> type[LearnerSettings]:
    """The settings class of a learner, by its name or by a reference to a user's own."""
    reference = name if is_reference(name) else LEARNERS[choose("learner", name, LEARNERS)].reference
    return load_reference(reference)


def _confidence_sets(problem: Problem | None) -> LearnerSettings:
    """The learner for the function classes of the problem: lists unless it offers networks only."""
    return learner_class("neural-sets" if problem is not None and problem.name == "neural" else "finite-sets")()


def pure_base(problem: Problem | None = None) -> Algorithm:
    """Algorithm 1: one measurement per episode, an update after each."""
    return Algorithm(Uniform(m=1), Every(), _confidence_sets(problem), name="pure-base")


def pure_low_switch(problem: Problem | None = None) -> Algorithm:
    """Algorithm 2: updates only the model whose excess loss exceeds 5 confidence radii; `--renew both` repairs it."""
    schedule = OnExcessLoss(renew="failed")  # the paper's rule, whose proof has a gap: docs/algorithm-2.md
    return Algorithm(Uniform(m=1), schedule, _confidence_sets(problem), name="pure-low-switch")


def pure_low_rollout(problem: Problem | None = None) -> Algorithm:
    """Algorithm 3: m measurements per episode."""
    return Algorithm(Uniform(m=4), Every(), _confidence_sets(problem), name="pure-low-rollout")


def pure_low_both(problem: Problem | None = None) -> Algorithm:
    """Algorithms 2 and 3 combined, both confidence sets renewed together: few rollouts and few updates."""
    return Algorithm(Uniform(m=4), OnExcessLoss(), _confidence_sets(problem), name="pure-low-both")


class TableRow(NamedTuple):
    """A row of the paper's table of data and policy updates: η_init and the batches of both algorithms."""

    initial: int
    equal: int
    """Episodes of each of ENODE's batches."""
    first: int
    """Episodes of the first of PURE_ENODE's batches, which double."""


TABLE = {
    "pendulum": TableRow(initial=3, equal=1, first=1),
    "cartpole": TableRow(initial=5, equal=3, first=2),
    "acrobot": TableRow(initial=7, equal=4, first=2),
    "gymnasium": TableRow(initial=6, equal=2, first=2),
}
"""`gymnasium` is ours; all others are the paper's."""
GENERAL = TableRow(initial=5, equal=3, first=2)


def _ensembles(problem: Problem | None, schedule: Callable[[TableRow], Schedule], name: str) -> Algorithm:
    from purectrl.control.settings import Enode
    from purectrl.systems.spec import StateProblem

    row = GENERAL if problem is None else TABLE.get(problem.family or problem.name, GENERAL)
    learner = Enode.mechanical()
    if isinstance(problem, StateProblem) and problem.spec.mechanics is None:
        learner = Enode.black_box()
    elif problem is not None and problem.name == "pendulum":
        learner = Enode.pendulum()
    return Algorithm(_windows(problem), schedule(row), learner, LastPolicy(), name)


def _windows(problem: Problem | None) -> Sampler:
    """Algorithm 5: N_d = 5 windows of 5 s with Δt = 0.1 s, so m = 250; fewer in shorter episodes."""
    horizon = 50.0 if problem is None else problem.horizon
    grid = None if problem is None else problem.time_grid
    if grid is not None and grid > (0.1 if horizon >= 5.0 else horizon / 50):  # the whole episode, on the grid
        points = max(2, min(50, int(horizon / grid + 1e-9)))
        return Windows(count=1, length=points * grid, step=grid, from_start=True)
    if horizon < 5.0:  # the whole episode at 50 times
        return Windows(count=1, length=horizon, step=horizon / 50, from_start=True)
    return Windows(count=min(5, int(horizon // 5.0)), length=5.0, step=0.1, from_start=True)


def enode(problem: Problem | None = None) -> Algorithm:
    """ENODE: an ensemble of neural ODEs, equal batches."""
    return _ensembles(problem, lambda row: EqualBatches(size=row.equal, initial=row.initial), "enode")


def pure_enode(problem: Problem | None = None) -> Algorithm:
    """PURE_ENODE, Algorithm 5: the same learner, batches that double."""
    return _ensembles(problem, lambda row: DoublingBatches(first=row.first, initial=row.initial), "pure-enode")


def ocorl(problem: Problem | None = None) -> Algorithm:
    """OCoRL: a Gaussian process per coordinate, hallucinated control, the most informative times."""
    from purectrl.control.trajectory_settings import PredictorSettings, Trajectory
    from purectrl.systems.spec import StateProblem

    learner, sampler = Trajectory(), MaxDeterminant(m=11, from_start=True)
    if isinstance(problem, StateProblem):
        if problem.spec.reward is None:
            learner = Trajectory(PredictorSettings("ensemble"))
        if not problem.spec.drift_measured:  # pairs of measurements, for difference quotients
            step = problem.time_grid or 0.1
            sampler = MaxDeterminant(m=22, from_start=True, window=2, step=step)
    return Algorithm(sampler, Every(), learner, LastPolicy(), "ocorl")


def _paced(problem: Problem | None) -> PacedWindows:
    """250 measurements per episode, or all steps of a shorter episode in discrete time."""
    if problem is None or problem.time_grid is None:
        return PacedWindows()
    steps = int(problem.horizon / problem.time_grid + 1e-9)
    return PacedWindows(grid=problem.time_grid) if steps > 250 else PacedWindows(steps, 1, grid=problem.time_grid)


def pure_auto(problem: Problem | None = None) -> Algorithm:
    """PURE-auto, the default: time scales, updates and the end of the run are decided by the data."""
    from purectrl.control.auto_settings import Auto

    return Algorithm(_paced(problem), OnExcessLoss(1.0, initial=3), Auto(), LastPolicy(), "pure-auto")


def known_model(problem: Problem | None = None) -> Algorithm:
    """The true equations in the place of a learned model: the ceiling for algorithms that learn one."""
    from purectrl.control.auto_settings import KnownModel

    return Algorithm(_paced(problem), OnExcessLoss(1.0, initial=4), KnownModel(), LastPolicy(), "known-model")


def sac(problem: Problem | None = None) -> Algorithm:
    """SAC: model-free soft actor-critic on all steps of every episode, 500 in continuous time."""
    from purectrl.control.sac_settings import Sac

    horizon, grid = (1.0, None) if problem is None else (problem.horizon, problem.time_grid)
    step = grid or horizon / 500
    points = max(2, int(horizon / step + 1e-9))
    whole = Windows(count=1, length=points * step, step=step, from_start=True)
    return Algorithm(whole, Every(), Sac(), LastPolicy(), "sac")


def _held_steps(problem: Problem | None) -> Windows:
    """Every step of the episode: those of a problem in discrete time, else a hundredth of it, and at most 0.1 s of a
    mechanical system."""
    horizon, grid = (50.0, None) if problem is None else (problem.horizon, problem.time_grid)
    mechanical = getattr(getattr(problem, "spec", None), "mechanics", None) is not None
    step = grid or min(horizon / 100, 0.1 if mechanical else horizon)
    points = max(2, int(horizon / step + 1e-9))
    return Windows(count=1, length=points * step, step=step, from_start=True)


def pets(problem: Problem | None = None) -> Algorithm:
    """PETS: an ensemble of networks, and model predictive control by the cross-entropy method with trajectory sampling."""
    from purectrl.control.pets_settings import Pets

    return Algorithm(_held_steps(problem), Every(), Pets(), LastPolicy(), "pets")


def deep_pilco(problem: Problem | None = None) -> Algorithm:
    """Deep PILCO with an ensemble: the gradient of the reward along particles, without a critic."""
    from purectrl.control.deep_pilco_settings import DeepPilco

    return Algorithm(_held_steps(problem), Every(), DeepPilco(), LastPolicy(), "deep-pilco")


def random(problem: Problem | None = None) -> Algorithm:
    """Smooth random control that never learns: the floor of comparisons."""
    from purectrl.control.random_control import RandomControl

    return Algorithm(Uniform(m=10), Every(), RandomControl(), LastPolicy(), "random")


class AlgorithmEntry(NamedTuple):
    """A named algorithm."""

    make: Callable[[Problem | None], Algorithm]
    learners: tuple[str, ...]
    """The learners that it may use."""

    @property
    def about(self) -> str:
        """One line for `purectrl list`."""
        return (self.make.__doc__ or "").splitlines()[0]


_SETS = ("finite-sets", "linear-sets", "kernel-sets", "neural-sets")

ALGORITHMS: dict[str, AlgorithmEntry] = {
    "pure-base": AlgorithmEntry(pure_base, _SETS),
    "pure-low-switch": AlgorithmEntry(pure_low_switch, _SETS),
    "pure-low-rollout": AlgorithmEntry(pure_low_rollout, _SETS),
    "pure-low-both": AlgorithmEntry(pure_low_both, _SETS),
    "enode": AlgorithmEntry(enode, ("enode",)),
    "pure-enode": AlgorithmEntry(pure_enode, ("enode",)),
    "ocorl": AlgorithmEntry(ocorl, ("trajectory",)),
    "pure-auto": AlgorithmEntry(pure_auto, ("auto",)),
    "known-model": AlgorithmEntry(known_model, ("known-model",)),
    "sac": AlgorithmEntry(sac, ("sac",)),
    "pets": AlgorithmEntry(pets, ("pets",)),
    "deep-pilco": AlgorithmEntry(deep_pilco, ("deep-pilco",)),
    "random": AlgorithmEntry(random, ("random",)),
    "seiko": AlgorithmEntry(seiko, ("seiko",)),
    "pure-seiko": AlgorithmEntry(pure_seiko, ("seiko",)),
    "draft": AlgorithmEntry(draft, ("seiko",)),
    "alignprop": AlgorithmEntry(alignprop, ("seiko",)),
    "ddpo": AlgorithmEntry(ddpo, ("chain",)),
    "grpo": AlgorithmEntry(grpo, ("chain",)),
    "best-of-n": AlgorithmEntry(best_of_n, ("chain",)),
}
"""The names that `--algorithm` takes. A new algorithm is a function and a line here."""


class Preset(NamedTuple):
    """Named settings of an algorithm on a problem."""

    about: str
    """One line for `purectrl list`."""
    learners: tuple[str, ...]
    """The learners that it is for."""
    settings: Mapping[str, Any]
    """Values by path."""


PRESETS: dict[str, dict[str, Preset]] = {
    "stable-diffusion": {
        name: Preset(about, ("seiko",), settings) for name, (about, settings) in STABLE_DIFFUSION_PRESETS.items()
    },
}
"""Presets by problem and name; the first of a problem is its default. A new preset is an entry here."""


def named(name: str, problem: Problem | None = None, preset: str | None = None) -> Algorithm:
    """The algorithm called `name`, with its settings for `problem`, and with those of a preset of the problem.

    >>> from types import SimpleNamespace
    >>> named("seiko", SimpleNamespace(name="stable-diffusion"), preset="paper").learner.finetune.beta
    0.01
    """
    entry = ALGORITHMS[choose("algorithm", name, ALGORITHMS)]
    algorithm = entry.make(problem)
    where = "" if problem is None else problem.name
    found = {
        key: one for key, one in PRESETS.get(where, {}).items() if all(used in one.learners for used in entry.learners)
    }
    if preset is not None and not found:
        raise InputError(f"preset: {name} has no presets on {where or 'no problem'}; leave --preset away")
    if not found:
        return algorithm
    return algorithm.with_settings(found[choose("preset", preset or next(iter(found)), found)].settings)


def compatible(algorithm: str, offers: frozenset[str]) -> bool:
    """Whether a named algorithm works on a problem that offers `offers`.

    >>> compatible("pure-enode", frozenset({"states"})), compatible("seiko", frozenset({"states"}))
    (True, False)
    """
    return any(LEARNERS[name].needs <= offers for name in ALGORITHMS[algorithm].learners)

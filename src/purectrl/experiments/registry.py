"""The experiments by name, and each algorithm as what it is: a few settings of the one loop.

Nothing heavy is imported here, so that `purectrl list` and a mistyped name answer at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from purectrl.core.errors import choose
from purectrl.core.learner import Record, State
from purectrl.core.loop import Loop
from purectrl.core.problem import Plan
from purectrl.experiments.config import FiniteConfig, LoopConfig, LqrConfig, NeuralConfig, OuConfig
from purectrl.experiments.control_config import ControlConfig
from purectrl.experiments.diffusion_config import DiffusionConfig
from purectrl.experiments.gym_config import GymConfig
from purectrl.experiments.stable_diffusion_config import StableDiffusionConfig

EVALUATED = "evaluation_rollouts"
"""The column of a record that says how many test episodes its probe took."""


COMPUTING = ("numpy", "jax", "equinox", "diffrax", "optax")
"""The packages behind theory and control."""


@dataclass(frozen=True)
class Task:
    """An experiment with all settings made: something to run.

    Main arguments:
        loop: the algorithm on the system.
        probe: (state after a step, its record) -> what to write down beside it; may know the truth. Test episodes that it
            takes go under `EVALUATED`, and the runner books them.
        metrics: (final state, all records) -> the metrics of `summary.json`.
        evaluate: (plan, seed, episodes) -> metrics on fresh episodes.

    Other arguments:
        episodes: how many fresh episodes an evaluation takes unless told.
        stop: (the record of a step) -> whether the run may end early, with part of its budget unspent.
        policy: (plan) -> the policy, a function (x [d], t) -> u [k] that anyone may call.
        film: (plan, seed, directory) -> the files of a film of the plan at work, written into `directory`.
        attach: (directory) -> None, told where the run lies before its first step: for what must be kept query by query.
        leave: (plan, seed, directory) -> more files that a run leaves at its end, written into its directory.
        serve: in a process that only helps another one with this run: does its share, and returns when the run is over.
    """

    loop: Loop
    probe: Callable[[State, Record], dict[str, Any]]
    metrics: Callable[[State, list[dict[str, Any]]], dict[str, Any]]
    evaluate: Callable[[Plan, int, int], dict[str, Any]]
    episodes: int = 100
    stop: Callable[[dict[str, Any]], bool] = lambda record: False
    policy: Callable[[Plan], Callable[..., np.ndarray]] | None = None
    film: Callable[[Plan, int, Path], list[Path]] | None = None
    attach: Callable[[Path], None] = lambda directory: None
    leave: Callable[[Plan, int, Path], list[Path]] = lambda plan, seed, directory: []
    serve: Callable[[], None] | None = None


@dataclass(frozen=True)
class Experiment:
    """A named experiment: a system, default settings, and the algorithms that it can be run with."""

    name: str
    about: str
    defaults: LoopConfig
    algorithms: Mapping[str, Mapping[str, Any]]
    build: Callable[[Any], Task]
    packages: tuple[str, ...] = COMPUTING
    """What computes: their versions are part of a run."""

    def config(self, algorithm: str) -> LoopConfig:
        """The settings of `algorithm` on this experiment."""
        choose(f"algorithm for {self.name!r}", algorithm, self.algorithms)
        return replace(self.defaults, **self.algorithms[algorithm])


THEORY = {
    "pure-base": {"sampler": "uniform", "m": 1, "schedule": "every"},
    "pure-low-switch": {"sampler": "uniform", "m": 1, "schedule": "on-misfit"},
    "pure-low-rollout": {"sampler": "uniform", "m": 4, "schedule": "every"},
    "pure-low-both": {"sampler": "uniform", "m": 4, "schedule": "on-misfit"},
}
"""Algorithms 1, 2 and 3, and 2 with 3: the same learner, four ways to choose when."""

ABOUT = {
    "pure-base": "Algorithm 1: one measurement an episode, an update after each",
    "pure-low-switch": "Algorithm 2: updates only the model that has stopped fitting",
    "pure-low-rollout": "Algorithm 3: m measurements an episode",
    "pure-low-both": "Algorithms 2 and 3 together, where the paper stops short: few rollouts and few updates",
    "enode": "ensemble of neural ODEs, equal batches",
    "pure-enode": "Algorithm 5: the same learner, batches that grow",
    "seiko": "reward measured on final images, optimistic fine-tuning of a diffusion model",
    "pure-seiko": "Algorithm 4: the same learner, m measurements on the way to an image",
}


WINDOWS: dict[str, Any] = {
    "m": 250,
    "sampler": "windows",
    "windows": 5,
    "window_length": 5.0,
    "window_step": 0.1,
    "window_at_start": True,
    "schedule": "batches",
    "update": "before",
    "first": 250.0,
    "output": "last",
}
"""Algorithm 5: N_d = 5 windows of T' = 5 s with Δt = 0.1 s, so m = 250; updates at the start of each batch."""


GYM: dict[str, Any] = {**WINDOWS, "m": 100, "windows": 2, "first": 100.0}
"""The same with N_d = 2 in episodes of 10 s: all of them is seen."""


def _finite(config: FiniteConfig) -> Task:
    from purectrl.experiments.theory import finite

    return finite(config)


def _lqr(config: LqrConfig) -> Task:
    if config.classes == "linear":
        from purectrl.experiments.continuous import lqr
    else:
        from purectrl.experiments.theory import lqr
    return lqr(config)


def _neural(config: NeuralConfig) -> Task:
    from purectrl.experiments.continuous import neural

    return neural(config)


def _ou(config: OuConfig) -> Task:
    from purectrl.experiments.ou import ou

    return ou(config)


def _batches(enode: tuple[int, ...], pure_enode: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    """The same learner with two lists of batches: a row of the table of data and policy updates."""
    return {"enode": {"batches": enode}, "pure-enode": {"batches": pure_enode}}


def _control(name: str) -> Callable[[ControlConfig], Task]:
    def build(config: ControlConfig) -> Task:
        from purectrl.experiments.control import swing_up

        return swing_up(name, config)

    return build


def _gymnasium(config: GymConfig) -> Task:
    from purectrl.experiments.gymnasium import environment

    return environment(config)


SEIKO: dict[str, dict[str, Any]] = {
    "seiko": {"sampler": "final", "m": 1},
    "pure-seiko": {"sampler": "geometric", "m": 4, "lam": 6.0},
}
"""The same learner and the same K batches of measurements, seen at the end or on the way."""


def _digits(config: DiffusionConfig) -> Task:
    from purectrl.experiments.diffusion import digits

    return digits(config)


def _stable_diffusion(config: StableDiffusionConfig) -> Task:
    from purectrl.experiments.stable_diffusion import stable_diffusion

    return stable_diffusion(config)


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("finite", "a particle on a washboard, finite classes", FiniteConfig(), THEORY, _finite),
        Experiment(
            "lqr", "linear drift in one to four dimensions, finite or linear classes", LqrConfig(), THEORY, _lqr
        ),
        Experiment("ou", "the Ornstein-Uhlenbeck process of Proposition 2, exact values", OuConfig(), THEORY, _ou),
        Experiment("neural", "a pendulum whose drift is a network", NeuralConfig(), THEORY, _neural),
        Experiment(
            "pendulum",
            "a rod to swing up with a weak torque",
            ControlConfig(
                **WINDOWS,
                measurements=9 * 250,
                initial=3,
                batches=(1, 2, 3),
                match_iterations=300,
                first_iterations=200,
                later_iterations=150,
                fit_rows=32,
                plan_iterations=300,
            ),
            _batches(enode=(1,) * 6, pure_enode=(1, 2, 3)),
            _control("pendulum"),
        ),
        Experiment(
            "cartpole",
            "a pole to swing up by pushing its cart",
            ControlConfig(**WINDOWS, measurements=80 * 250, initial=5, batches=(2, 4, 8, 13, 16, 32)),
            _batches(enode=(3,) * 25, pure_enode=(2, 4, 8, 13, 16, 32)),
            _control("cartpole"),
        ),
        Experiment(
            "acrobot",
            "two links to swing up by torques at both joints",
            ControlConfig(**WINDOWS, measurements=87 * 250, initial=7, batches=(2, 4, 8, 16, 18, 32)),
            _batches(enode=(4,) * 20, pure_enode=(2, 4, 8, 16, 18, 32)),
            _control("acrobot"),
        ),
        Experiment(
            "gymnasium",
            "any Gymnasium environment with continuous observations and actions, --env; drift and reward are learned",
            GymConfig(**GYM, measurements=20 * 100, initial=6, batches=(2, 4, 8)),
            _batches(enode=(2,) * 7, pure_enode=(2, 4, 8)),
            _gymnasium,
        ),
        Experiment(
            "digits",
            "a diffusion model of handwritten digits, to be made legible",
            DiffusionConfig(
                denoising_steps=12,
                look="image",
                bonus=0.1,
                tune_iterations=35,
                tune_batch=32,
                tune_rate=3e-4,
                initial_rate=3e-3,
                alpha=2e-3,
                beta=5e-4,
            ),
            SEIKO,
            _digits,
            packages=("numpy", "torch", "diffusers", "onnxruntime", "rapidocr-onnxruntime"),
        ),
        Experiment(
            "stable-diffusion",
            "Stable Diffusion, to paint animals that score higher; --model is a directory or a name on the hub",
            StableDiffusionConfig(),
            SEIKO,
            _stable_diffusion,
            packages=("numpy", "torch", "diffusers", "transformers", "peft"),
        ),
    )
}


def experiment(name: str) -> Experiment:
    """The experiment called `name`; a near miss is answered with the right name."""
    return EXPERIMENTS[choose("experiment", name, EXPERIMENTS)]

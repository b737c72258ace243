"""The experiments by name, and each algorithm as what it is: a few settings of the one loop.

Nothing heavy is imported here, so that `purectrl list` and a mistyped name answer at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from purectrl.core.errors import choose
from purectrl.core.learner import Record, State
from purectrl.core.loop import Loop
from purectrl.core.problem import Plan
from purectrl.experiments.config import FiniteConfig, LoopConfig, LqrConfig, NeuralConfig, OuConfig


@dataclass(frozen=True)
class Task:
    """An experiment with all settings made: something to run.

    Main arguments:
        loop: the algorithm on the system.
        probe: (state after a step, its record) -> what to write down beside it; may know the truth.
        metrics: (final state, all records) -> the metrics of `summary.json`.
        evaluate: (plan, seed, episodes) -> metrics on fresh episodes.
    """

    loop: Loop
    probe: Callable[[State, Record], dict[str, Any]]
    metrics: Callable[[State, list[dict[str, Any]]], dict[str, Any]]
    evaluate: Callable[[Plan, int, int], dict[str, Any]]


@dataclass(frozen=True)
class Experiment:
    """A named experiment: a system, default settings, and the algorithms that it can be run with."""

    name: str
    about: str
    defaults: LoopConfig
    algorithms: Mapping[str, Mapping[str, Any]]
    build: Callable[[Any], Task]

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
}


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


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("finite", "a particle on a washboard, finite classes", FiniteConfig(), THEORY, _finite),
        Experiment(
            "lqr", "linear drift in one to four dimensions, finite or linear classes", LqrConfig(), THEORY, _lqr
        ),
        Experiment("ou", "the Ornstein-Uhlenbeck process of Proposition 2, exact values", OuConfig(), THEORY, _ou),
        Experiment("neural", "a pendulum whose drift is a network", NeuralConfig(), THEORY, _neural),
    )
}


def experiment(name: str) -> Experiment:
    """The experiment called `name`; a near miss is answered with the right name."""
    return EXPERIMENTS[choose("experiment", name, EXPERIMENTS)]

"""Small loops over both dynamics models, so that tests share compiled programs."""

from dataclasses import replace

from purectrl.control.settings import Enode, FitSettings, ModelSettings, PlanSettings
from purectrl.core.algorithm import Algorithm
from purectrl.core.ledger import Budget
from purectrl.core.output_rules import LastPolicy
from purectrl.core.samplers import Windows
from purectrl.core.schedules import Batches
from purectrl.problems.gymnasium_environments import gymnasium
from purectrl.problems.mechanical_systems import pendulum

FIT = FitSettings(gradient_matching_steps=4, steps=4, finetune_steps=4, batch_size=4)
PLAN = PlanSettings(steps=5, batch_size=6, horizon=0.5)
MECHANICAL = Enode(ModelSettings(ensemble_size=3, width=8), FIT, PLAN)
BLACK_BOX = Enode(ModelSettings(ensemble_size=2, width=8), FIT, replace(PLAN, ensemble_size=2))
SAMPLER = Windows(count=2, length=1.0, step=0.1, from_start=True)
BATCHES = Batches((1, 2), "before", 1)


def settings(kind, **parts):
    """The learner for pendulum or gymnasium, with parts of `fit`, `plan` or `model` replaced."""
    enode = MECHANICAL if kind == "pendulum" else BLACK_BOX
    return replace(enode, **{name: replace(getattr(enode, name), **values) for name, values in parts.items()})


def problem(kind):
    """Four seconds of a pendulum, or three of Pendulum-v1."""
    return pendulum(horizon=4.0) if kind == "pendulum" else gymnasium("Pendulum-v1", horizon=3.0, eval_episodes=2)


def loop(kind, schedule=BATCHES, measurements=80, learner=None):
    """PURE_ENODE with 20 measurements per episode."""
    algorithm = Algorithm(SAMPLER, schedule, learner or settings(kind), LastPolicy())
    return algorithm.build(problem(kind), Budget(measurements))

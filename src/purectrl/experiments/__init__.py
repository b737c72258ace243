"""Named experiments, and runs of them that survive. Nothing heavy is imported until a run starts."""

from purectrl.experiments.registry import EXPERIMENTS, Experiment, Task, experiment
from purectrl.experiments.runner import Spec, evaluate, load_policy, resume, run

__all__ = ["EXPERIMENTS", "Experiment", "Spec", "Task", "evaluate", "experiment", "load_policy", "resume", "run"]

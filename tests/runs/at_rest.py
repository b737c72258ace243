"""A problem and a learner of a user, in a file of their own: a system at rest, a learner that sums what it measures."""

from dataclasses import dataclass

import numpy as np

from purectrl.core.algorithm import LearnerSettings
from purectrl.core.learner import Update
from purectrl.core.measurement import Measurements
from purectrl.core.plan import Plan
from purectrl.core.problem import Problem


class AtRest(Problem):
    packages = ("numpy",)
    horizon = 1.0

    def __init__(self, name):
        self.name = name

    def rollout(self, key, plan, times):
        noise = key.generator().normal(size=(*times.shape, 1))
        return Measurements(t=times, x=noise, u=np.zeros_like(noise))

    def evaluate(self, plan, key, episodes):
        return {"return": float(plan.policy)}


def problem(name: str = "at rest"):
    return AtRest(name)


@dataclass(frozen=True)
class Sum(LearnerSettings):
    start: float = 0.0

    def build(self, problem, budget, sampler):
        return self

    def init(self, key):
        return np.array(self.start)

    def update(self, state, data, which, key):
        return Update(state + data.all.x[-1, 0, 0], {"sum": float(state)}, {})

    def policy(self, state):
        return Plan(state, None)

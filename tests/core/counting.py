"""A system and a learner that only count, for tests of the loop."""

import numpy as np

from purectrl.core import ExcessLoss, Measurements, Plan, Update


class CountingSystem:
    """A rollout that writes down what it was asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, key, plan, times):
        self.asked.append((plan, times))
        shape = times.shape
        noise = key.generator().normal(size=shape)
        return Measurements(times, np.full((*shape, 2), plan.policy), np.zeros((*shape, 1)), None, noise)

    @property
    def measurements(self):
        return sum(times.size for _, times in self.asked)

    @property
    def rollouts(self):
        return sum(len(times) for _, times in self.asked)


class CountingLearner:
    """A learner whose policy is the number of updates so far; its excess loss depends on the number of measurements."""

    can_look_ahead = True

    def __init__(self):
        self.updates = []

    def init(self, key):
        return {"updates": 0, "seen": 0}

    def observe(self, state, block):
        return {**state, "seen": state["seen"] + block.t.size}

    def excess_loss(self, state, data, key):
        return ExcessLoss(state["seen"] % 11, state["seen"] % 7), state

    def excess_loss_per_episode(self, state, block):
        states = [self.observe(state, block.first(n)) for n in range(1, block.episodes + 1)]
        return [self.excess_loss(state, None, None)[0] for state in states]

    def update(self, state, data, which, key):
        self.updates.append(which)
        return Update({**state, "updates": state["updates"] + 1}, {"which": which.name}, {"fit": 0.0, "plan": 0.0})

    def policy(self, state):
        return Plan(state["updates"], 0)

"""Episodes of a Gymnasium environment under a `Behaviour`: exploring ones for an oracle, whole ones for a test."""

from collections.abc import Callable
from typing import NamedTuple

import gymnasium
import jax
import numpy as np

from purectrl.control.exploration import SmoothNoise
from purectrl.control.policy import Behaviour
from purectrl.core.keys import Key
from purectrl.core.problem import Array, Plan
from purectrl.systems.gym import Act, seed_of

_act = jax.jit(lambda actor, x: actor(x))
_control = jax.jit(lambda behaviour, x, noise: behaviour.control(x, noise))


def exploring(noise: SmoothNoise, controls: int) -> Callable[[Key, Plan, int], Act]:
    """What `gym_episodes` begins an episode with: the plan's `Behaviour`, its noise drawn from the episode's key."""
    factor = noise.factor()
    knots = np.arange(len(factor)) * noise.step

    def begin(key: Key, plan: Plan, number: int) -> Act:
        behaviour = plan.policy
        amplitude = behaviour.amplitudes[number % len(behaviour.amplitudes)]
        path = amplitude * factor @ key.child("noise").generator().standard_normal((len(factor), controls), np.float32)

        def act(x: np.ndarray, t: float) -> Array:
            now = np.array([np.interp(t, knots, column) for column in path.T], np.float32)
            return _control(behaviour, np.asarray(x, np.float32), now)

        return act

    return begin


class Played(NamedTuple):
    """What tests of a policy found, in the environment's own unit."""

    returns: np.ndarray
    """The sum of rewards of each episode [episodes]."""
    steps: np.ndarray
    """How many steps it took [episodes]."""

    def judged(self) -> dict[str, float]:
        """Means, and the worst episode.

        >>> Played(np.array([-10.0, -30.0]), np.array([5, 5])).judged()
        {'return': -20.0, 'return_min': -30.0, 'reward': -4.0, 'steps': 5.0}
        """
        return {
            "return": float(self.returns.mean()),
            "return_min": float(self.returns.min()),
            "reward": float(self.returns.sum() / self.steps.sum()),
            "steps": float(self.steps.mean()),
        }


def played(env: gymnasium.Env, behaviour: Behaviour, key: Key, episodes: int, limit: int) -> Played:
    """Whole episodes of the actor without noise, until the environment ends them or `limit` steps are done."""
    returns, steps = np.zeros(episodes), np.zeros(episodes, int)
    for number in range(episodes):
        x, _ = env.reset(seed=seed_of(key.child("episode", number)))
        ended = False
        while not ended and steps[number] < limit:
            u = np.asarray(_act(behaviour.actor, np.asarray(x, np.float32)))
            x, reward, terminated, truncated, _ = env.step(u)
            returns[number] += float(reward)
            steps[number] += 1
            ended = terminated or truncated
    return Played(returns, steps)
